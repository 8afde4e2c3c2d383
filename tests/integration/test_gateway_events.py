"""Events over HTTP: each once and in order whatever a client does, and what a client's leaving cancels and what not."""

from __future__ import annotations

import random
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from pipeline.deadline import Deadline
from schemas.events import Progress, Unchanged
from schemas.runs import Lease, RunKind, RunState
from tests.cli_driver import HANDBOOK
from tests.gateway_driver import Gateway, Said, running, settings
from tests.integration.test_cancel import OPEN, WAITING, locked, until

QUESTION: dict[str, Any] = {"text": "Who may use the laser cutter?", "deadline": 30.0, "cache": False}


@dataclass
class Author:
    """Writes the events of one run, as a worker would."""

    gateway: Gateway
    lease: Lease
    said: int = field(default=2)

    @classmethod
    async def begin(cls, gateway: Gateway, corpus: str) -> Author:
        found = await gateway.app.create_corpus(corpus)
        runs = gateway.app.services.runs
        run = await runs.submit(found.corpus_id, RunKind.INDEX, {})
        lease = await runs.claim(run.run_id, 1, list(RunKind))
        assert lease is not None
        return cls(gateway, lease)

    async def say(self, count: int, *, last: bool = False) -> None:
        runs = self.gateway.app.services.runs
        for number in range(count):
            async with runs.fenced(self.lease) as tx:
                tx.event(Progress(stage="s", done=number, total=0))
                tx.advance(self.lease.step + 1)
            self.lease = tx.outlook() or self.lease
            self.said += 1
        if last:
            async with runs.fenced(self.lease) as tx:
                tx.event(Unchanged(generation=1, outcomes={}))
                tx.finish(RunState.COMPLETED)
            self.said += 1

    @property
    def path(self) -> str:
        return f"/v1/runs/{self.lease.run_id}/events"


@pytest.mark.parametrize("seed", range(4))
async def test_a_client_that_comes_and_goes_sees_every_event_once_in_order(
    tmp_path: Path, database: str, redis_url: str, seed: int
) -> None:
    """Eight clients leave after a random number of events, also in the middle of one, and come back with the last id."""
    chance = random.Random(seed)
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        author = await Author.begin(gateway, "c")
        seen: list[list[Said]] = []
        connections = 0

        async def follow(odds: random.Random) -> None:
            nonlocal connections
            got: list[Said] = []
            while not got or got[-1].event != "unchanged":
                patience = odds.randint(1, 9)
                connections += 1
                async with gateway.events(author.path, got[-1].id if got else None) as events:
                    async for event in events:
                        got.append(event)
                        patience -= 1
                        if not patience:
                            break
            seen.append(got)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(follow, random.Random(chance.random()))
            for _ in range(6):
                await author.say(chance.randint(0, 9))
                await anyio.sleep(0.02)
            await author.say(1, last=True)
        expected = [str(number) for number in range(1, author.said + 1)]
        assert all([event.id for event in got] == expected for got in seen)
        assert connections > 8
        assert [event.data["seq"] for event in seen[0]] == [int(number) for number in expected]


async def test_an_ended_run_tells_a_browser_not_to_come_back(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        author = await Author.begin(gateway, "c")
        await author.say(3, last=True)
        assert [event.id for event in await gateway.all(author.path, params={"after": 4})] == ["5", "6"]
        assert [event.id for event in await gateway.all(author.path, "5", params={"after": 1})] == ["6"]
        await gateway.ok("GET", author.path, 204, headers={"last-event-id": "6"})
        await gateway.ok("GET", author.path, 422, headers={"last-event-id": "six"})
        await gateway.ok("GET", author.path, 422, headers={"last-event-id": "9" * 30})
        await gateway.ok("GET", author.path, 422, params={"after": -1})


async def test_a_corpus_is_followed_over_its_runs_and_a_reset_is_explicit(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """What retention removed is never passed over in silence: `reset`, with an id that makes the client begin anew."""
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        old = await Author.begin(gateway, "c")
        await old.say(2, last=True)
        ids: list[str] = []
        async with gateway.events("/v1/corpora/c/events") as events:
            async for event in events:
                ids.append(event.id)
                if event.event == "unchanged":
                    break
        new = await Author.begin(gateway, "c")
        await new.say(1, last=True)
        async with gateway.events("/v1/corpora/c/events", ids[2]) as events:
            rest = [await anext(events) for _ in range(len(ids) - 3 + new.said)]
        assert [event.id for event in rest[: len(ids) - 3]] == ids[3:]
        assert {event.data["run_id"] for event in rest} == {old.lease.run_id, new.lease.run_id}

        async with gateway.app.services.pool.transaction(Deadline.after(5)) as tx:
            await tx.execute(
                "update run set finished_at = finished_at - interval '9 days' where run_id = $1", old.lease.run_id
            )
        assert await gateway.app.services.events.expire(old.lease.corpus_id, 7, 100) == 1
        (reset,) = await gateway.all("/v1/corpora/c/events", ids[2])
        assert (reset.event, reset.id) == ("reset", "")
        async with gateway.events("/v1/corpora/c/events", reset.id) as events:
            assert (await anext(events)).data["run_id"] == new.lease.run_id


async def test_a_client_that_leaves_cancels_no_run_and_frees_its_place(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    async with running(settings(tmp_path, database, redis_url, gateway_streams=1)) as gateway:
        author = await Author.begin(gateway, "c")
        async with gateway.events(author.path) as events:
            await anext(events)
            await gateway.ok("GET", author.path, 429)
        await author.say(1, last=True)
        assert (await gateway.ok("GET", f"/v1/runs/{author.lease.run_id}"))["state"] == "completed"
        while (await gateway.http.get(author.path, params={"after": 1})).status_code == 429:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_direct_query_speaks_as_it_goes(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await gateway.ok("POST", "/v1/corpora/c/query", 404, json=QUESTION, headers={"accept": "text/event-stream"})
        run = await gateway.app.index("c", [str(HANDBOOK)])
        await gateway.app.work(run.run_id)
        events = await gateway.all("/v1/corpora/c/query", method="POST", json=QUESTION)
        assert [event.event for event in events] == ["pinned", "leg", "leg", "leg", "completed"]
        assert {event.data["report"]["leg"] for event in events[1:4]} == {"dense", "graph", "keyword"}
        assert events[-1].data["result"]["hits"]
        order = {**QUESTION, "vector": [1.0]}
        (*_, last) = await gateway.all("/v1/corpora/c/query", method="POST", json=order)
        assert (last.event, last.data["code"]) == ("failed", "InvalidRequest")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_client_that_leaves_a_direct_query_cancels_it_in_the_database(
    tmp_path: Path, database: str, redis_url: str, accept: str
) -> None:
    """Its statement waits for a lock when the client goes; soon nothing of it is left. Its place is free again."""
    given = settings(tmp_path, database, redis_url, gateway_direct_queries=1)
    async with running(given) as gateway:
        run = await gateway.app.index("c", [str(HANDBOOK)])
        await gateway.app.work(run.run_id)
        async with locked(database, "chunk") as watcher:
            async with anyio.create_task_group() as group:

                async def ask() -> None:
                    headers = {"accept": accept}
                    await gateway.http.post("/v1/corpora/c/query", json=QUESTION, headers=headers)

                group.start_soon(ask)
                await until(watcher, WAITING, bool)
                await gateway.ok("POST", "/v1/corpora/c/query", 429, json=QUESTION)
                group.cancel_scope.cancel()
            await until(watcher, WAITING, lambda found: not found)
            await until(watcher, OPEN, lambda found: not found)
        await gateway.ok("POST", "/v1/corpora/c/query", json=QUESTION)


async def test_a_server_that_stops_ends_its_streams_and_the_client_goes_on_elsewhere(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    given = settings(tmp_path, database, redis_url)
    async with running(given) as other:
        async with running(given) as gateway:
            author = await Author.begin(gateway, "c")
            async with gateway.events(author.path) as events:
                got = [await anext(events), await anext(events)]
                gateway.server.should_exit = True
                got += [event async for event in events]
        assert [event.id for event in got] == ["1", "2"]
        later = Author(other, author.lease)
        await later.say(2, last=True)
        got += await other.all(author.path, got[-1].id)
        assert [event.id for event in got] == [str(number) for number in range(1, later.said + 1)]


async def test_a_stream_that_has_nothing_to_say_beats(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url, gateway_heartbeat_seconds=0.05)) as gateway:
        author = await Author.begin(gateway, "c")
        async with (
            gateway.http.stream("GET", author.path, headers={"last-event-id": "2"}) as response,
            aclosing(response.aiter_lines()) as lines,
        ):
            found = [await anext(lines) for _ in range(8)]
        assert found[0].startswith("retry: ")
        assert found.count(":") >= 2

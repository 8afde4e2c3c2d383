"""Many subscriptions of one gateway, connections that are lost, and a queue that forgets everything in the middle.

The clients have a process of their own. A resume is timed from the wish to connect to the first event that was missed: it
includes the connection, the request and whatever else the machine has to do at the same time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest
from redis.asyncio import Redis

from schemas.ids import RunId
from schemas.runs import RunKind
from tests import gateway_driver
from tests.figures import say
from tests.gateway_clients import Orders, Report, order, percentiles
from tests.gateway_driver import Gateway, running, settings
from tests.integration.test_gateway_events import Author
from worker.settings import WorkerSettings

SUBSCRIBERS = int(os.environ.get("SAPWOOD_SUBSCRIBERS") or 60)
"""How many clients follow one run, or a run each."""

DROPPED = 0.1
"""The part of the reads after which a client loses its connection."""

PAUSE = 0.1 + SUBSCRIBERS / 500
"""Seconds between two rounds of events: a tenth of the clients comes back after each event."""

EVERY = 0.01
"""Seconds between two clients that come back to a run each."""

AT_ONCE = 6
"""Runs that are made at a time."""


PATIENCE = 60.0 + SUBSCRIBERS / 2
"""Seconds after which a test gives up; nothing is asserted about times."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_driver, "PATIENCE", PATIENCE)


def roomy(tmp_path: Path, database: str, redis_url: str) -> WorkerSettings:
    return settings(tmp_path, database, redis_url, gateway_streams=10 * SUBSCRIBERS, gateway_send_seconds=120.0)


def port(gateway: Gateway) -> int:
    return gateway.http.base_url.port or 0


def came(gateway: Gateway) -> dict[str, int]:
    """Return how many events the feeds had from where up to now."""
    return {source: gateway.app.services.feeds.came[source] for source in ("live", "stream", "log")}


async def test_every_subscriber_sees_every_event_once_whatever_is_dropped_and_flushed(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    reports: list[Report] = []
    async with running(roomy(tmp_path, database, redis_url)) as gateway, Redis.from_url(redis_url) as redis:
        author = await Author.begin(gateway, "c")

        async def clients() -> None:
            reports.append(await order(Orders(port(gateway), [author.path] * SUBSCRIBERS, dropped=DROPPED)))

        async with anyio.create_task_group() as group:
            group.start_soon(clients)
            while not any(came(gateway).values()):  # noqa: ASYNC110 - until the first of them is there
                await anyio.sleep(0.01)
            for round_ in range(10):
                await author.say(4)
                if round_ == 5:
                    await redis.flushall()
                await anyio.sleep(PAUSE)
            await author.say(1, last=True)
        (report,), sources = reports, came(gateway)
    assert len(report.seen) == SUBSCRIBERS
    assert all(got == list(range(1, author.said + 1)) for got in report.seen)
    assert len(report.resumes) > SUBSCRIBERS / 2
    assert sum(sources.values()) < SUBSCRIBERS * author.said / 4, "each event is read for many"
    say(request, f"{SUBSCRIBERS} subscriptions of one run saw 1..{author.said} once each, over a FLUSHALL")
    say(request, f"  {len(report.resumes)} resumes beside the others: {percentiles(report.resumes)}")
    say(request, f"  {report.refused} were put off; events read by the process: {sources}")


async def test_each_run_is_resumed_from_the_stream_and_after_a_flush_from_the_log(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """One client a run, so that nothing is in the memory of the process and the two sources are told apart by counts."""
    async with running(roomy(tmp_path, database, redis_url)) as gateway, Redis.from_url(redis_url) as redis:
        orders = Orders(port(gateway), await many_runs(gateway), after=1, last=2, every=EVERY)
        await order(Orders(port(gateway), orders.paths[:1], after=1, last=2))  # warm, as a server is
        for source in ("stream", "log"):
            if source == "log":
                await redis.flushall()
            before = came(gateway)
            report, milliseconds = await costing(orders)
            grown = {name: count - before[name] for name, count in came(gateway).items()}
            assert report.seen == [[2]] * SUBSCRIBERS
            assert grown == {"live": 0, "stream": 0, "log": 0} | {source: SUBSCRIBERS}
            name = {"stream": "Valkey", "log": "PostgreSQL, after a FLUSHALL"}[source]
            times = percentiles(report.resumes)
            say(
                request,
                f"{SUBSCRIBERS} runs resumed from {name}, {1 / EVERY:.0f} a second: {times}; {milliseconds:.1f} ms CPU each",
            )


async def costing(orders: Orders) -> tuple[Report, float]:
    """Have clients do this; return also the time of the processor that the gateway had for each, in milliseconds."""
    begun = time.process_time()
    report = await order(orders)
    return report, 1000 * (time.process_time() - begun) / len(orders.paths)


async def many_runs(gateway: Gateway) -> list[str]:
    """Make as many runs as there are subscribers, with two events each, and return their paths when all are published."""
    app = gateway.app
    corpus = (await app.create_corpus("c")).corpus_id
    runs, left = list[RunId](), list(range(SUBSCRIBERS))

    async def make() -> None:
        while left:
            left.pop()
            run = await app.services.runs.submit(corpus, RunKind.QUERY, {})
            assert await app.services.runs.claim(run.run_id, 1, list(RunKind)) is not None
            runs.append(run.run_id)

    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(make)
    while await app.services.events.unpublished(1):  # noqa: ASYNC110 - the herald tells nobody that it is done
        await anyio.sleep(0.01)
    return [f"/v1/runs/{run}/events" for run in runs]

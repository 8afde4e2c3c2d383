"""Events on real PostgreSQL and Valkey: live, resumable, without a gap, whatever happens to the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest
from redis.asyncio import Redis

from pipeline.adapters.arq_doorbell import open_doorbell
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.redis_streams import open_streams
from pipeline.deadline import Deadline
from pipeline.errors import EventsExpired
from pipeline.events import open_herald, relay_rest
from pipeline.feeds import Feeds, open_feeds
from schemas.events import Event, Progress, Unchanged
from schemas.ids import CorpusId, RunId
from schemas.runs import Lease, RunKind, RunState

NOWHERE = "unix:///nonexistent/valkey.sock"


@dataclass
class World:
    pool: Pool
    corpus: CorpusId
    log: PostgresEvents
    feeds: Feeds
    runs: PostgresRuns
    redis: Redis

    async def start(self, kind: RunKind = RunKind.INDEX) -> Lease:
        run = await self.runs.submit(self.corpus, kind, {})
        lease = await self.runs.claim(run.run_id, 1, list(RunKind))
        assert lease is not None
        return lease

    async def say(self, lease: Lease, count: int = 1, *, last: bool = False) -> Lease:
        for _ in range(count):
            async with self.runs.fenced(lease) as tx:
                tx.event(Progress(stage="s", done=lease.step, total=0))
                tx.advance(lease.step + 1)
            lease = tx.outlook() or lease
        if last:
            async with self.runs.fenced(lease) as tx:
                tx.event(Unchanged(generation=1, outcomes={}))
                tx.finish(RunState.COMPLETED)
        return lease


@dataclass(frozen=True)
class Place:
    """Where a world is opened. Fixtures that hold a task group can not be: set-up and tear-down are different tasks."""

    database: str
    redis_url: str
    stream_url: str

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[World, None]:
        async with (
            open_pool(self.database, 10) as pool,
            open_streams(self.stream_url) as stream,
            open_doorbell(self.stream_url) as doorbell,
            open_herald(log := PostgresEvents(pool), stream, doorbell) as herald,
            open_feeds(log, stream) as feeds,
            Redis.from_url(self.redis_url) as redis,
        ):
            async with pool.transaction(Deadline.after(5)) as tx:
                corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id"))
            yield World(pool, corpus, log, feeds, PostgresRuns(pool, herald, owner="a"), redis)


@pytest.fixture(params=["live", "no stream"])
def place(request: pytest.FixtureRequest, database: str, redis_url: str) -> Place:
    """The same promises hold with the stream and without it."""
    return Place(database, redis_url, redis_url if request.param == "live" else NOWHERE)


def in_world(test: Callable[[World], Awaitable[None]]) -> Callable[[Place], Awaitable[None]]:
    """Run a test in a world that is opened and closed by its own task."""

    async def run(place: Place) -> None:
        async with place.open() as world:
            await test(world)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def collect(world: World, run_id: RunId, after: int = 0) -> list[Event]:
    with anyio.fail_after(20):
        return [entry.event async for entries in world.feeds.run(run_id, after) for entry in entries]


def dense(events: list[Event], after: int = 0) -> bool:
    return [event.seq for event in events] == list(range(after + 1, after + len(events) + 1))


@in_world
async def test_a_subscriber_sees_every_event_once_in_order_and_then_the_end(world: World) -> None:
    lease = await world.start()
    seen: list[list[Event]] = []

    async def follow(after: int) -> None:
        seen.append(await collect(world, lease.run_id, after))

    async with anyio.create_task_group() as group:
        for after in (0, 0, 1, 5):
            group.start_soon(follow, after)
        await world.say(lease, 10, last=True)
    assert sorted(len(events) for events in seen) == [8, 12, 13, 13]
    assert all(dense(events, events[0].seq - 1) and events[-1].terminal for events in seen)


@in_world
async def test_resuming_after_the_end_ends_at_once(world: World) -> None:
    lease = await world.start()
    await world.say(lease, 3, last=True)
    assert len(await collect(world, lease.run_id)) == 6
    assert len(await collect(world, lease.run_id, after=5)) == 1
    assert await collect(world, lease.run_id, after=6) == []


@in_world
async def test_a_flush_or_a_trim_in_the_middle_is_never_a_gap(world: World) -> None:
    lease = await world.start()
    events: list[Event] = []

    async def follow() -> None:
        events.extend(await collect(world, lease.run_id))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        for _ in range(5):
            lease = await world.say(lease, 3)
            await world.redis.flushdb()
        lease = await world.say(lease, 3)
        await world.redis.xtrim(f"sapwood:events:{lease.run_id}", maxlen=1, approximate=False)
        await world.say(lease, last=True)
    assert len(events) == 2 + 18 + 2
    assert dense(events)
    late = await collect(world, lease.run_id)
    assert late == events


@in_world
async def test_a_run_beyond_retention_is_said_to_be_so(world: World) -> None:
    with pytest.raises(EventsExpired):
        await collect(world, RunId("gone"))
    lease = await world.start()
    await world.say(lease, 3, last=True)
    assert await world.log.expire(world.corpus, 1.0, 100) == 0
    assert await world.log.expire(world.corpus, 0.0, 100) == 1
    with pytest.raises(EventsExpired):
        await collect(world, lease.run_id, after=2)
    assert await world.log.read_corpus(world.corpus, 0, 10) == []
    with pytest.raises(EventsExpired):
        await world.log.read_corpus(world.corpus, 1, 10)


@in_world
async def test_a_corpus_subscription_passes_over_nothing_that_commits_late(world: World) -> None:
    """A transaction that took its event first and commits last is still seen by a reader that was faster."""
    slow, fast = await world.start(), await world.runs.submit(world.corpus, RunKind.QUERY, {})
    seen: list[tuple[int, Event]] = []
    total = 2 + 1 + 1 + 1

    async def follow() -> None:
        async for entries in world.feeds.corpus(world.corpus):
            seen.extend((entry.place, entry.event) for entry in entries)
            if len(seen) == total:
                return

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            async with world.runs.fenced(slow) as tx:
                await tx.fetchval("select pg_current_xact_id()::text")  # as if it had said its event now
                await world.runs.claim(fast.run_id, 1, list(RunKind))
                await anyio.sleep(0.5)
                tx.event(Progress(stage="late", done=0, total=0))
                tx.advance(1)
    positions = [position for position, _ in seen]
    assert positions == sorted(positions)
    by_run = {run: [event.seq for _, event in seen if event.run_id == run] for run in (slow.run_id, fast.run_id)}
    assert by_run == {slow.run_id: [1, 2, 3], fast.run_id: [1, 2]}
    rest = await world.log.read_corpus(world.corpus, positions[1], 100)
    assert rest == seen[2:]


class Counted(PostgresEvents):
    """Counts how often the log is asked."""

    asked = 0

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        self.asked += 1
        return await super().read(run_id, after, limit)

    async def read_corpus(self, corpus: CorpusId, after: int, limit: int) -> list[tuple[int, Event]]:
        self.asked += 1
        return await super().read_corpus(corpus, after, limit)

    async def end_of(self, run_id: RunId) -> tuple[int, bool]:
        self.asked += 1
        return await super().end_of(run_id)


async def blocked_reads(redis: Redis) -> int:
    """How many connections to this test's database wait in an XREAD."""
    mine = str(redis.connection_pool.connection_kwargs["db"])
    return sum(one["db"] == mine and one["cmd"] == "xread" for one in await redis.client_list())


async def crowd(place: Place, subscribers: int, each: int, lists: list[list[int]]) -> tuple[int, int]:
    """Have a run and its corpus followed by a crowd, `each` of them in a process of its own, over a flush.

    Return how many connections listened, and how often the log was asked.
    """
    async with place.open() as world, AsyncExitStack() as stack:
        lease, logs, feeds = await world.start(), list[Counted](), list[Feeds]()
        for _ in range(0, subscribers, each):
            logs.append(Counted(world.pool))
            stream = await stack.enter_async_context(open_streams(place.stream_url))
            feeds.append(await stack.enter_async_context(open_feeds(logs[-1], stream)))

        async def follow(number: int) -> None:
            after, got = number % 3, list[int]()
            async for entries in feeds[number // each].run(lease.run_id, after):
                got += [entry.place for entry in entries]
            lists.append([*range(1, after + 1), *got])

        async def follow_corpus(number: int) -> None:
            seen, got = 0, list[int]()
            async with aclosing(feeds[number // each].corpus(world.corpus)) as found:
                while seen < len(EVERY_EVENT):
                    entries = await anext(found)
                    seen += len(entries)
                    got += [entry.event.seq for entry in entries]
            lists.append(got)

        listening = 0
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(subscribers):
                    group.start_soon(follow, number)
                    group.start_soon(follow_corpus, number)
                lease = await world.say(lease, 5)
                while listening < len(feeds):
                    listening = await blocked_reads(world.redis)
                await world.redis.flushdb()
                lease = await world.say(lease, 5)
                listening = max(listening, await blocked_reads(world.redis))
                await world.say(lease, last=True)
        return listening, sum(log.asked for log in logs)


EVERY_EVENT = [*range(1, 15)]
"""Queued, started, eleven that are said, and the last."""


async def test_a_crowd_costs_as_much_as_one(database: str, redis_url: str) -> None:
    """300 subscriptions of a run and 300 of its corpus: one connection listens, and the log is asked as if for a few."""
    lists: list[list[int]] = []
    listening, asked = await crowd(Place(database, redis_url, redis_url), 300, 300, lists)
    assert lists == [EVERY_EVENT] * 600
    assert listening == 1
    assert asked < 60


async def test_each_process_costs_something(database: str, redis_url: str) -> None:
    """The negative control: the same counts, where nothing is shared."""
    lists: list[list[int]] = []
    listening, asked = await crowd(Place(database, redis_url, redis_url), 20, 1, lists)
    assert lists == [EVERY_EVENT] * 40
    assert listening == 20
    assert asked >= 60


async def test_many_runs_are_followed_on_one_connection(database: str, redis_url: str) -> None:
    """Each is heard from the moment it is followed, also those that join while the others wait."""
    async with Place(database, redis_url, redis_url).open() as world:
        leases = [await world.start(RunKind.QUERY) for _ in range(40)]
        seen: dict[RunId, list[int]] = {}

        async def follow(run_id: RunId) -> None:
            seen[run_id] = [entry.place async for entries in world.feeds.run(run_id) for entry in entries]

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for lease in leases:
                    group.start_soon(follow, lease.run_id)
                    assert await blocked_reads(world.redis) <= 1
                for lease in leases:
                    await world.say(lease, 1, last=True)
        assert seen == {lease.run_id: [1, 2, 3, 4] for lease in leases}
        assert world.feeds.came["live"] > 0
        assert world.feeds.followed == 0


async def test_publishing_twice_or_from_two_processes_adds_nothing(database: str, redis_url: str) -> None:
    async with open_pool(database, 10) as pool, open_streams(redis_url) as stream, open_doorbell(redis_url) as bell:
        log = PostgresEvents(pool)
        async with pool.transaction(Deadline.after(5)) as tx:
            corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id"))
        async with open_herald(log, stream, bell) as herald:
            run = await PostgresRuns(pool, herald, owner="a").submit(corpus, RunKind.INDEX, {})
        async with pool.transaction(Deadline.after(5)) as tx:
            await tx.execute("update run set published_seq = 0")
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(relay_rest, log, stream)
        await stream.publish(await log.read(run.run_id, 0, 10))
        assert await log.unpublished(10) == []
        async with Redis.from_url(redis_url) as redis:
            assert await redis.xlen(f"sapwood:events:{run.run_id}") == 1

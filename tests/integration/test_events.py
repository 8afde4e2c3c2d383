"""Events on real PostgreSQL and Valkey: live, resumable, without a gap, whatever happens to the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest
from redis.asyncio import Redis

from pipeline.adapters.arq_doorbell import open_doorbell
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.redis_streams import RedisStreams, open_streams
from pipeline.deadline import Deadline
from pipeline.errors import EventsExpired
from pipeline.events import open_herald, relay_rest, subscribe, subscribe_corpus
from schemas.events import Event, Progress, Unchanged
from schemas.ids import CorpusId, RunId
from schemas.runs import Lease, RunKind, RunState

NOWHERE = "unix:///nonexistent/valkey.sock"


@dataclass
class World:
    pool: Pool
    corpus: CorpusId
    log: PostgresEvents
    stream: RedisStreams
    runs: PostgresRuns
    redis: Redis

    async def start(self) -> Lease:
        run = await self.runs.submit(self.corpus, RunKind.INDEX, {})
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
            Redis.from_url(self.redis_url) as redis,
        ):
            async with pool.transaction(Deadline.after(5)) as tx:
                corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id"))
            yield World(pool, corpus, log, stream, PostgresRuns(pool, herald, owner="a"), redis)


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
        return [event async for event in subscribe(world.log, world.stream, run_id, after)]


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
        async for position, event in subscribe_corpus(world.log, world.corpus):
            seen.append((position, event))
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

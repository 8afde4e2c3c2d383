"""The run protocol against real PostgreSQL: claims, leases, fences, batches, cancels, deadlines, crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import pytest

from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.deadline import Deadline
from pipeline.errors import FencedOut, InvalidRequest, NotFound, RunCancelled
from pipeline.protocol import digest_of
from schemas.events import Documents, Event, LegDone, Progress, Unchanged
from schemas.ids import CorpusId, RunId
from schemas.query import Leg, LegReport, Wire
from schemas.runs import Lease, RunKind, RunState

ALL = tuple(RunKind)
DONE = Unchanged(generation=1, outcomes={})


@dataclass
class Told:
    """A herald that only remembers."""

    rings: list[tuple[RunId, int]] = field(default_factory=list)
    runs: list[RunId] = field(default_factory=list)

    def ring(self, run_id: RunId, fence: int) -> None:
        self.rings.append((run_id, fence))

    def publish(self, run_id: RunId) -> None:
        self.runs.append(run_id)


@dataclass
class World:
    pool: Pool
    corpus: CorpusId
    told: Told = field(default_factory=Told)
    ended: list[RunId] = field(default_factory=list)

    def store(self, owner: str = "a", lease: float = 30.0, crashes: int = 5) -> PostgresRuns:
        async def on_end(tx: object, corpus: CorpusId, run_id: RunId) -> None:
            self.ended.append(run_id)

        return PostgresRuns(self.pool, self.told, owner=owner, lease_seconds=lease, max_crashes=crashes, on_end=on_end)

    async def events(self, run_id: RunId) -> list[Event]:
        """All events of a run, dense from 1, with a final one at the end only."""
        found = await PostgresEvents(self.pool).read(run_id, 0, 1000)
        assert [event.seq for event in found] == list(range(1, len(found) + 1))
        assert not any(event.terminal for event in found[:-1])
        return found

    async def types(self, run_id: RunId) -> list[str]:
        return [event.body.type for event in await self.events(run_id)]

    async def run_sql(self, statement: str, *args: object) -> None:
        async with self.pool.transaction(Deadline.after(5)) as tx:
            await tx.execute(statement, *args)

    async def lapse(self, run_id: RunId) -> None:
        """Let a lease run out."""
        await self.run_sql("update run set lease_until = clock_timestamp() - interval '1 s' where run_id = $1", run_id)


@pytest.fixture
async def world(database: str) -> AsyncIterator[World]:
    async with open_pool(database, 10) as pool:
        async with pool.transaction(Deadline.after(5)) as tx:
            corpus = await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id")
        yield World(pool, CorpusId(corpus))


async def claimed(store: PostgresRuns, world: World, kind: RunKind = RunKind.INDEX) -> Lease:
    run = await store.submit(world.corpus, kind, {"x": 1})
    lease = await store.claim(run.run_id, 1, ALL)
    assert lease is not None
    return lease


async def spawned(store: PostgresRuns, world: World, batches: int = 3) -> tuple[Lease, list[Lease]]:
    """A run that waits for its batches, and those, all claimed."""
    root = await claimed(store, world)
    async with store.fenced(root) as tx:
        tx.advance(0, generation=7)
        tx.spawn([{"part": number} for number in range(batches)], next_step=1)
    leases = [await store.next_unit(root.run_id, ALL) for _ in range(batches)]
    return root, [lease for lease in leases if lease is not None]


async def end(store: PostgresRuns, lease: Lease, state: RunState = RunState.COMPLETED, error: str = "") -> None:
    async with store.fenced(lease) as tx:
        if state is RunState.COMPLETED and lease.kind is not RunKind.BATCH:
            tx.event(DONE)
        tx.finish(state, error)


async def test_a_submitted_run_is_durable_with_its_first_event_and_rings(world: World) -> None:
    run = await world.store().submit(world.corpus, RunKind.QUERY, {"text": "?"}, seconds=5)
    assert (run.state, run.last_seq) == (RunState.QUEUED, 1)
    assert world.told.rings == [(run.run_id, 1)]
    assert await world.types(run.run_id) == ["queued"]


async def test_an_idempotency_key_makes_one_run_however_often_and_concurrently_it_is_used(world: World) -> None:
    store, found = world.store(), set[RunId]()

    async def submit() -> None:
        found.add((await store.submit(world.corpus, RunKind.INDEX, {}, key="k")).run_id)

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(submit)
    assert len(found) == 1


async def test_a_key_is_refused_for_another_request_and_a_run_of_an_older_program_is_taken_as_it_is(
    world: World,
) -> None:
    """Another kind or other words, seen before anything is made; without a digest on either side the key alone decides."""
    store, query = world.store(), RunKind.QUERY
    first, other = digest_of({"text": "a"}), digest_of({"text": "b"})
    run = await store.submit(world.corpus, query, {}, key="k", digest=first)
    assert (await store.submit(world.corpus, query, {"other": 1}, key="k", digest=first)).run_id == run.run_id
    assert await store.earlier(world.corpus, query, "k", first) == run
    assert await store.earlier(world.corpus, query, "unused", first) is None
    for kind, digest in ((query, other), (RunKind.INDEX, first)):
        with pytest.raises(InvalidRequest, match="another request"):
            await store.submit(world.corpus, kind, {}, key="k", digest=digest)
        with pytest.raises(InvalidRequest, match="another request"):
            await store.earlier(world.corpus, kind, "k", digest)
    old = await store.submit(world.corpus, query, {}, key="old")
    assert (await store.submit(world.corpus, query, {}, key="old", digest=first)).run_id == old.run_id
    assert len(await store.list(world.corpus, 10)) == 2
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1}) != digest_of({"a": 1, "b": [3]})


async def test_of_different_requests_with_one_key_at_the_same_time_one_is_taken(world: World) -> None:
    store, taken, refused = world.store(), set[RunId](), list[str]()

    async def submit(number: int) -> None:
        try:
            digest = digest_of({"number": number})
            taken.add((await store.submit(world.corpus, RunKind.INDEX, {}, key="k", digest=digest)).run_id)
        except InvalidRequest as error:
            refused.append(str(error))

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(submit, number)
    assert (len(taken), len(refused)) == (1, 9)


BAD = "a\0b\udc80c"


@pytest.mark.parametrize("body", [
    Documents(counts={BAD: 1}, notable=((BAD, "failed", BAD),)),
    Progress(stage=BAD, done=1, total=1),
])  # fmt: skip
async def test_no_text_in_an_event_keeps_a_run_from_going_on_and_ending(world: World, body: Wire) -> None:
    """NUL and lone surrogates, which PostgreSQL can not hold, anywhere in a body, in the error and in the reason."""
    store = world.store()
    for state in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED):
        lease = await claimed(store, world)
        async with store.fenced(lease) as tx:
            tx.event(body)
        if state is RunState.CANCELLED:
            await store.cancel(lease.run_id, BAD)
        await end(store, lease, state, f"ParserKilled: {BAD}" if state is RunState.FAILED else "")
        found = (await world.events(lease.run_id))[2].body
        assert found.model_dump_json().count("ab?c") == (2 if isinstance(body, Documents) else 1)
        info = await store.info(lease.run_id)
        assert info.state is state
        assert "\0" not in info.error


async def test_a_result_with_text_that_cannot_be_stored_is_stored_without_it(world: World) -> None:
    """The final event of a query holds texts of documents, and what servers said of themselves."""
    store = world.store()
    lease = await claimed(store, world, RunKind.QUERY)
    report = LegReport(leg=Leg.DENSE, state="failed", error=BAD)
    async with store.fenced(lease) as tx:
        tx.event(LegDone(report=report))
        tx.finish(RunState.FAILED, f"Odd: {BAD}")
    *_, leg, failed = await world.events(lease.run_id)
    assert leg.body.report.error == "ab?c"
    assert failed.body.message == "ab?c"


async def test_a_request_that_cannot_be_stored_is_refused_and_makes_nothing(world: World) -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(InvalidRequest, match="lone surrogate"):
            await world.store().submit(world.corpus, RunKind.QUERY, {"deep": [{"text": text}]})
    assert await world.store().list(world.corpus, 10) == []


async def test_unknown_things_are_not_found(world: World) -> None:
    store = world.store()
    with pytest.raises(NotFound):
        await store.submit(CorpusId(999), RunKind.INDEX, {})
    with pytest.raises(NotFound):
        await store.info(RunId("no"))
    with pytest.raises(NotFound):
        await store.cancel(RunId("no"), "")


async def test_of_many_claims_one_wins(world: World) -> None:
    run = await world.store().submit(world.corpus, RunKind.QUERY, {})
    won: list[Lease] = []

    async def claim(owner: str) -> None:
        lease = await world.store(owner).claim(run.run_id, 1, ALL)
        won.extend([lease] if lease else [])

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(claim, str(number))
    assert len(won) == 1
    assert await world.store().claim(run.run_id, 2, ALL) is None
    assert await world.types(run.run_id) == ["queued", "started"]


async def test_a_step_commits_with_its_effects_and_events_or_not_at_all(world: World) -> None:
    store = world.store()
    lease = await claimed(store, world)
    async with store.fenced(lease) as tx:
        await tx.execute("update corpus set name = 'kept'")
        tx.event(Progress(stage="s", done=1, total=2))
        tx.advance(1)
    with pytest.raises(FencedOut):  # the same step again: the checkpoint has moved on
        async with store.fenced(lease) as tx:
            await tx.execute("update corpus set name = 'lost'")
            tx.event(Progress(stage="s", done=1, total=2))
            tx.advance(1)
    with pytest.raises(KeyError):
        async with store.fenced(lease) as tx:
            tx.event(Progress(stage="s", done=1, total=2))
            raise KeyError
    assert await world.types(lease.run_id) == ["queued", "started", "progress"]
    async with world.pool.connection(Deadline.after(5)) as tx:
        assert await tx.fetchval("select name from corpus") == "kept"


async def test_a_stale_worker_is_fenced_out_of_everything(world: World) -> None:
    """It can not write, beat, hand back or end; whoever took over can."""
    stale = world.store("stale")
    old = await claimed(stale, world)
    await world.lapse(old.run_id)
    assert await world.store("sweeper").sweep() == 1
    fresh = world.store("fresh")
    new = await fresh.claim(old.run_id, 2, ALL)
    assert new is not None
    for attempt in (stale.beat(old), stale.hand_back(old), end(stale, old)):
        with pytest.raises(FencedOut):
            await attempt
    await end(fresh, new)
    info = await fresh.info(old.run_id)
    assert (info.state, info.crash_count, info.shutdown_count) == (RunState.COMPLETED, 1, 0)
    assert await world.types(old.run_id) == ["queued", "started", "started", "unchanged"]


async def test_a_living_lease_is_not_swept(world: World) -> None:
    store = world.store()
    lease = await claimed(store, world)
    assert await store.sweep() == 0
    assert await store.beat(lease) is False


async def test_handing_back_costs_no_attempt_however_often(world: World) -> None:
    store = world.store(crashes=2)
    lease: Lease | None = await claimed(store, world)
    for _ in range(20):
        assert lease is not None
        await store.hand_back(lease)
        lease = await store.claim(lease.run_id, lease.fence + 1, ALL)
    info = await store.info(lease.run_id if lease else RunId(""))
    assert (info.state, info.crash_count, info.shutdown_count) == (RunState.RUNNING, 0, 20)


async def test_a_retry_is_counted_and_not_due_at_once(world: World) -> None:
    store = world.store()
    lease = await claimed(store, world)
    await store.hand_back(lease, retry_after=60)
    assert await store.next_unit(None, ALL) is None
    await world.run_sql("update run set queued_at = clock_timestamp()")
    again = await store.next_unit(None, ALL)
    assert again is not None
    assert again.attempts == 1


async def test_a_unit_that_crashes_its_workers_is_given_up_with_its_reason(world: World) -> None:
    store = world.store(crashes=3)
    lease: Lease | None = await claimed(store, world)
    for _ in range(3):
        assert lease is not None
        await world.lapse(lease.run_id)
        await store.sweep()
        lease = await store.next_unit(None, ALL) or lease
    assert lease is not None
    info = await store.info(lease.run_id)
    assert (info.state, info.crash_count) == (RunState.FAILED, 3)
    last = (await world.events(lease.run_id))[-1]
    assert last.body.type == "failed"
    assert "3 times" in last.body.message
    assert world.ended == [lease.run_id]


async def test_the_last_batch_queues_the_next_step(world: World) -> None:
    store = world.store()
    root, batches = await spawned(store, world, 3)
    assert [(batch.root_id, batch.generation) for batch in batches] == [(root.run_id, 7)] * 3
    assert [batch.payload["part"] for batch in batches] == [0, 1, 2]
    world.told.rings.clear()
    for batch in batches:
        assert (await store.info(root.run_id)).state is RunState.WAITING
        assert world.told.rings == []
        async with store.fenced(batch) as tx:
            tx.event(Progress(stage="batch", done=1, total=3))
            tx.finish(RunState.COMPLETED)
    assert world.told.rings == [(root.run_id, 2)]
    last = await store.claim(root.run_id, 2, ALL)
    assert last is not None
    assert (last.step, last.generation) == (1, 7)
    await end(store, last)
    assert (await world.types(root.run_id))[2:] == ["progress"] * 3 + ["started", "unchanged"]


async def test_batches_that_end_at_the_same_time_queue_the_next_step_once(world: World) -> None:
    store = world.store()
    root, batches = await spawned(store, world, 8)
    async with anyio.create_task_group() as group:
        for batch in batches:
            group.start_soon(end, store, batch)
    info = await store.info(root.run_id)
    assert (info.state, info.step) == (RunState.QUEUED, 1)


async def test_a_failed_batch_fails_its_run_when_the_others_have_stopped(world: World) -> None:
    store = world.store()
    root, batches = await spawned(store, world, 3)
    await end(store, batches[0])
    await end(store, batches[1], RunState.FAILED, "ModelError: it is broken")
    assert (await store.info(root.run_id)).state is RunState.WAITING
    assert await store.beat(batches[2]) is True
    with pytest.raises(RunCancelled):
        async with store.fenced(batches[2]) as tx:
            tx.advance(1)
    await end(store, batches[2], RunState.CANCELLED)
    last = (await world.events(root.run_id))[-1]
    assert last.body.model_dump() == {"type": "failed", "code": "ModelError", "message": "it is broken"}
    assert world.ended == [root.run_id]


async def test_a_queued_run_is_cancelled_on_the_spot(world: World) -> None:
    store = world.store()
    run = await store.submit(world.corpus, RunKind.INDEX, {})
    await store.cancel(run.run_id, "no need")
    await store.cancel(run.run_id, "again")
    assert await store.claim(run.run_id, 1, ALL) is None
    last = (await world.events(run.run_id))[-1]
    assert last.body.model_dump() == {"type": "cancelled", "reason": "no need"}
    assert (await store.info(run.run_id)).state is RunState.CANCELLED


async def test_a_running_unit_is_told_and_ends_itself(world: World) -> None:
    store = world.store()
    lease = await claimed(store, world)
    async with store.stops() as stops:
        await store.cancel(lease.run_id, "why")
        with anyio.fail_after(5):
            assert await stops.receive() == lease.run_id
    assert await store.beat(lease) is True
    for attempt in ("advance", "spawn"):
        with pytest.raises(RunCancelled):
            async with store.fenced(lease) as tx:
                tx.advance(1) if attempt == "advance" else tx.spawn([{}], 1)
    await end(store, lease, RunState.CANCELLED)
    assert (await world.events(lease.run_id))[-1].body.model_dump() == {"type": "cancelled", "reason": "why"}


async def test_a_cancelled_index_run_ends_when_its_last_batch_has_stopped(world: World) -> None:
    """One batch runs, one is lost with its worker, the others are still queued."""
    store = world.store()
    root = await claimed(store, world)
    async with store.fenced(root) as tx:
        tx.spawn([{}] * 5, 1)
    alive, lost = await store.next_unit(root.run_id, ALL), await store.next_unit(root.run_id, ALL)
    assert alive is not None
    assert lost is not None
    await store.cancel(root.run_id, "stop")
    assert await store.next_unit(None, ALL) is None
    await end(store, alive, RunState.CANCELLED)
    assert (await store.info(root.run_id)).state is RunState.WAITING
    await world.lapse(lost.run_id)
    await store.sweep()
    assert (await store.info(root.run_id)).state is RunState.CANCELLED
    assert (await world.types(root.run_id))[-1] == "cancelled"
    assert world.ended == [root.run_id]


async def test_a_unit_handed_back_after_its_cancel_is_ended_by_the_sweeper(world: World) -> None:
    store = world.store()
    lease = await claimed(store, world)
    await store.cancel(lease.run_id, "")
    await store.hand_back(lease)
    assert await store.next_unit(None, ALL) is None
    await store.sweep()
    assert (await store.info(lease.run_id)).state is RunState.CANCELLED


async def test_what_nobody_took_up_in_time_expires(world: World) -> None:
    store = world.store()
    query = await store.submit(world.corpus, RunKind.QUERY, {}, seconds=3600)
    root, batches = await spawned(store, world, 2)
    await end(store, batches[0])
    await store.hand_back(batches[1])
    await world.run_sql("update run set deadline_at = clock_timestamp() - interval '1 s'")
    assert await store.next_unit(None, ALL) is None
    for _ in range(2):
        await store.sweep()
    for run_id in (query.run_id, root.run_id):
        assert (await world.types(run_id))[-1] == "expired"
    assert await store.sweep() == 0


async def test_one_index_run_of_a_corpus_builds_at_a_time_and_rings_the_next(world: World) -> None:
    store = world.store()
    first = await claimed(store, world)
    second = await store.submit(world.corpus, RunKind.INDEX, {})
    assert await store.claim(second.run_id, 1, ALL) is None
    assert await store.next_unit(None, ALL) is None
    world.told.rings.clear()
    await end(store, first)
    assert world.told.rings == [(second.run_id, 1)]
    assert await store.claim(second.run_id, 1, ALL) is not None


async def test_two_index_runs_claimed_at_the_same_instant_do_not_both_build(world: World) -> None:
    store, won = world.store(), list[Lease]()
    runs = [await store.submit(world.corpus, RunKind.INDEX, {}) for _ in range(6)]

    async def claim(run_id: RunId) -> None:
        lease = await store.claim(run_id, 1, ALL)
        won.extend([lease] if lease else [])

    async with anyio.create_task_group() as group:
        for run in runs:
            group.start_soon(claim, run.run_id)
    assert len(won) == 1


async def test_next_units_are_the_oldest_of_the_run_and_of_the_kinds_asked_for(world: World) -> None:
    store = world.store()
    query = await store.submit(world.corpus, RunKind.QUERY, {})
    root = await claimed(store, world)
    async with store.fenced(root) as tx:
        tx.spawn([{}, {}], 1)
    taken = [
        await store.next_unit(*ask) for ask in ((root.run_id, ALL), (None, [RunKind.BATCH]), (None, ALL), (None, ALL))
    ]
    assert [lease and lease.run_id for lease in taken] == [
        f"{root.run_id}.00001",
        f"{root.run_id}.00002",
        query.run_id,
        None,
    ]


async def test_runs_are_listed_newest_first_without_batches(world: World) -> None:
    store = world.store()
    root, _ = await spawned(store, world, 2)
    query = await store.submit(world.corpus, RunKind.QUERY, {})
    assert [run.run_id for run in await store.list(world.corpus, 10)] == [query.run_id, root.run_id]
    assert await store.list(CorpusId(999), 10) == []


async def test_cancels_failures_and_sweeps_of_many_batches_never_deadlock(world: World) -> None:
    """Everything that locks a root and its batches, at once; in the end the run has one final event."""
    store = world.store()
    root, batches = await spawned(store, world, 24)

    async def finish(lease: Lease, number: int) -> None:
        with suppress(FencedOut):
            await end(store, lease, *((RunState.FAILED, "ModelError: x") if number % 5 == 0 else ()))

    async with anyio.create_task_group() as group:
        for number, batch in enumerate(batches):
            if number % 4 == 3:
                await world.lapse(batch.run_id)
            group.start_soon(finish, batch, number)
            if number % 6 == 0:
                group.start_soon(store.sweep)
                group.start_soon(store.cancel, root.run_id, "x")
    for _ in range(3):
        await store.sweep()
    assert (await store.info(root.run_id)).state in (RunState.CANCELLED, RunState.FAILED)
    assert (await world.types(root.run_id))[-1] in ("cancelled", "failed")

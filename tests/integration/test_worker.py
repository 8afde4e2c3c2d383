"""Workers on toy handlers: every way a unit can end, cancels that arrive at once, and leaving in order."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from pipeline.adapters.arq_doorbell import ArqDoorbell, open_doorbell
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.redis_streams import RedisStreams, open_streams
from pipeline.deadline import Deadline
from pipeline.errors import ModelError, RunFailed
from pipeline.events import open_herald
from pipeline.runs import MAX_RETRIES, Handler, Work
from schemas.events import Progress, Unchanged
from schemas.ids import CorpusId, RunId
from schemas.runs import RunInfo, RunKind, RunState
from worker.process import Parts, lanes, run_inline, run_worker

DONE = Unchanged(generation=1, outcomes={})


@dataclass
class World:
    pool: Pool
    corpus: CorpusId
    log: PostgresEvents
    stream: RedisStreams
    bell: ArqDoorbell
    runs: PostgresRuns
    cancelled: list[RunId] = field(default_factory=list)

    def parts(self, handler: Handler) -> Parts:
        return Parts(self.runs, self.runs, self.log, self.stream, dict.fromkeys(RunKind, handler))

    async def inline(self, handler: Handler, kind: RunKind = RunKind.QUERY, seconds: float | None = None) -> RunInfo:
        """Submit a run and work on it here until it has ended."""
        run = await self.runs.submit(self.corpus, kind, {}, seconds=seconds)
        with anyio.fail_after(30):
            return await run_inline(self.parts(handler), run.run_id, lanes())

    async def last(self, run_id: RunId) -> dict[str, object]:
        events = await self.log.read(run_id, 0, 1000)
        assert [event.terminal for event in events] == [False] * (len(events) - 1) + [True]
        return events[-1].body.model_dump()

    async def sleep(self, work: Work) -> None:
        """A handler that does nothing for very long, and tells if it was stopped."""
        try:
            await anyio.sleep(600)
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(work.lease.run_id)
            raise

    async def until(self, run_id: RunId, *states: RunState) -> RunInfo:
        with anyio.fail_after(30):
            while (info := await self.runs.info(run_id)).state not in states:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return info


class Silence:
    """A herald that forgets everything."""

    def ring(self, run_id: RunId, fence: int) -> None:
        return

    def publish(self, run_id: RunId) -> None:
        return


@asynccontextmanager
async def world(database: str, redis_url: str, lease: float = 30.0) -> AsyncGenerator[World, None]:
    async with (
        open_pool(database, 10) as pool,
        open_streams(redis_url) as stream,
        open_doorbell(redis_url) as bell,
        open_herald(log := PostgresEvents(pool), stream, bell) as herald,
    ):
        async with pool.transaction(Deadline.after(5)) as tx:
            corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id"))
        yield World(pool, corpus, log, stream, bell, PostgresRuns(pool, herald, owner="a", lease_seconds=lease))


async def finish(work: Work) -> None:
    async with work.fenced() as tx:
        if work.lease.kind is not RunKind.BATCH:
            tx.event(DONE)
        tx.finish(RunState.COMPLETED)


async def fan_out(work: Work) -> None:
    """Plan five batches, and end after the last."""
    if work.lease.kind is RunKind.INDEX and work.lease.step == 0:
        async with work.fenced() as tx:
            tx.advance(0, generation=3)
            tx.spawn([{"n": number} for number in range(5)], 1)
    else:
        await finish(work)


async def test_an_index_run_fans_out_and_comes_together_in_one_process(database: str, redis_url: str) -> None:
    async with world(database, redis_url) as w:
        info = await w.inline(fan_out, RunKind.INDEX)
        assert (info.state, info.step, info.generation) == (RunState.COMPLETED, 1, 3)


async def test_an_index_run_needs_no_queue_in_process(database: str) -> None:
    async with world(database, "unix:///nonexistent/valkey.sock") as w:
        assert (await w.inline(fan_out, RunKind.INDEX)).state is RunState.COMPLETED


async def test_a_retryable_error_is_retried_and_another_is_final(database: str, redis_url: str) -> None:
    tries = 0

    async def flaky(work: Work) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            async with anyio.create_task_group():
                raise ModelError("busy")
        await finish(work)

    async def broken(work: Work) -> None:
        raise RunFailed("no use")

    async def bug(work: Work) -> None:
        raise KeyError("secret")

    async def idle(work: Work) -> None:
        return

    async with world(database, redis_url) as w:
        assert (await w.inline(flaky)).state is RunState.COMPLETED
        assert tries == 2
        failed = await w.inline(broken)
        assert await w.last(failed.run_id) == {"type": "failed", "code": "RunFailed", "message": "no use"}
        crashed = await w.last((await w.inline(bug)).run_id)
        assert crashed["code"] == "KeyError"
        assert "secret" not in str(crashed)
        assert (await w.inline(idle)).state is RunState.FAILED


async def test_a_failed_batch_fails_the_run_and_stops_the_others(database: str, redis_url: str) -> None:
    async with world(database, redis_url) as w:

        async def handler(work: Work) -> None:
            if work.lease.kind is RunKind.INDEX:
                await fan_out(work)
            elif work.lease.payload["n"] == 1:
                raise RunFailed("bad batch")
            else:
                await w.sleep(work)

        info = await w.inline(handler, RunKind.INDEX)
        assert (info.state, info.error) == (RunState.FAILED, "RunFailed: bad batch")
        assert await w.last(info.run_id) == {"type": "failed", "code": "RunFailed", "message": "bad batch"}


async def test_a_deadline_ends_a_unit_that_does_not_end_itself(database: str, redis_url: str) -> None:
    async with world(database, redis_url) as w:
        info = await w.inline(w.sleep, seconds=0.3)
        assert await w.last(info.run_id) == {"type": "expired", "result": None}
        assert w.cancelled == [info.run_id]


@pytest.mark.parametrize("late", [1, 100])
async def test_a_call_beyond_its_own_limit_is_tried_again_and_never_counts_as_the_runs_deadline(
    database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    monkeypatch.setattr("pipeline.runs.backoff", lambda attempts: 0.01)
    tries = 0

    async def slow(work: Work) -> None:
        nonlocal tries
        tries += 1
        if tries <= late:
            Deadline.after(0).budget(1)
        await finish(work)

    async with world(database, redis_url) as w:
        info = await w.inline(slow)
        assert info.state is (RunState.COMPLETED if late == 1 else RunState.FAILED)
        assert tries == (2 if late == 1 else MAX_RETRIES + 1)
        assert info.error.startswith("RunFailed: A call took longer than it may") is (late > 1)


async def test_a_cancel_arrives_long_before_the_next_heartbeat(database: str, redis_url: str) -> None:
    """The lease is 300 s, so the next heartbeat would come after 100 s; the test gives up after 30."""
    async with world(database, redis_url, lease=300.0) as w, anyio.create_task_group() as group:
        group.start_soon(run_worker, w.parts(w.sleep), w.bell, lanes())
        run = await w.runs.submit(w.corpus, RunKind.INDEX, {})
        await w.until(run.run_id, RunState.RUNNING)
        await w.runs.cancel(run.run_id, "enough")
        await w.until(run.run_id, RunState.CANCELLED)
        assert w.cancelled == [run.run_id]
        assert await w.last(run.run_id) == {"type": "cancelled", "reason": "enough"}
        group.cancel_scope.cancel()


async def test_a_worker_that_lost_its_lease_stops_the_work(database: str, redis_url: str) -> None:
    async with world(database, redis_url, lease=0.6) as w, anyio.create_task_group() as group:
        stole = anyio.Event()

        async def handler(work: Work) -> None:
            if work.lease.fence > 1:
                stole.set()
                await finish(work)
            else:
                async with w.pool.transaction(Deadline.after(5)) as tx:
                    await tx.execute("update run set fence = 2, state = 'queued', owner = ''")
                await w.sleep(work)

        parts = w.parts(handler)
        group.start_soon(run_worker, parts, w.bell, lanes())
        run = await w.runs.submit(w.corpus, RunKind.QUERY, {})
        await w.until(run.run_id, RunState.COMPLETED)
        with anyio.fail_after(30):
            while not w.cancelled:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        ending = {"kind": "query", "ending": "fenced_out"}
        assert parts.vitals.registry.get_sample_value("sapwood_units_total", ending) == 1.0
        group.cancel_scope.cancel()


async def test_a_worker_may_get_a_unit_again_while_its_old_turn_is_still_ending(database: str, redis_url: str) -> None:
    """As after a freeze: the worker's own sweeper queues the unit anew before the old turn has stopped."""
    again = anyio.Event()

    async def handler(work: Work) -> None:
        if work.lease.fence > 1:
            await finish(work)
            again.set()
            return
        async with w.pool.transaction(Deadline.after(5)) as tx:
            await tx.execute("update run set fence = 2, state = 'queued', owner = ''")
        with anyio.move_on_after(20, shield=True):
            await again.wait()
            await anyio.sleep(0.1)  # the new turn is over and forgotten before the old one

    async with world(database, redis_url) as w:
        assert (await w.inline(handler)).state is RunState.COMPLETED
        assert again.is_set()


async def test_twenty_rolling_sigterms_cost_no_attempt(database: str, redis_url: str) -> None:
    """Each worker is told to stop in the middle of a step; the run goes on elsewhere, and ends as if undisturbed."""
    stops, steps = 0, 25

    async def handler(work: Work) -> None:
        nonlocal stops
        while work.lease.step < steps:
            async with work.fenced() as tx:
                tx.event(Progress(stage="s", done=work.lease.step, total=steps))
                tx.advance(work.lease.step + 1)
            if stops < 20:
                stops += 1
                os.kill(os.getpid(), signal.SIGTERM)
                await anyio.sleep(600)
        await finish(work)

    async with world(database, redis_url) as w:
        run = await w.runs.submit(w.corpus, RunKind.QUERY, {})
        for _ in range(20):
            with anyio.fail_after(30):
                await run_worker(w.parts(handler), w.bell, lanes())
        with anyio.fail_after(30):
            info = await run_inline(w.parts(handler), run.run_id, lanes())
        assert (info.state, info.crash_count) == (RunState.COMPLETED, 0)
        assert info.shutdown_count >= 20  # a claim may be under way when the signal comes; it is handed back, too
        assert info.last_seq == len(await w.log.read(run.run_id, 0, 1000))
        done = [e.body.done for e in await w.log.read(run.run_id, 0, 1000) if isinstance(e.body, Progress)]
        assert done == list(range(steps))


async def test_work_is_found_without_a_ring(database: str, redis_url: str) -> None:
    """As if the queue had been flushed right after each submit: workers look by themselves."""
    async with world(database, redis_url) as w, anyio.create_task_group() as group:
        silent = PostgresRuns(w.pool, Silence(), owner="client")
        group.start_soon(run_worker, w.parts(finish), w.bell, lanes())
        for _ in range(5):
            run = await silent.submit(w.corpus, RunKind.QUERY, {})
            await w.until(run.run_id, RunState.COMPLETED)
        group.cancel_scope.cancel()


async def test_index_work_never_takes_the_place_of_queries(database: str, redis_url: str) -> None:
    async with world(database, redis_url) as w, anyio.create_task_group() as group:

        async def handler(work: Work) -> None:
            await (finish(work) if work.lease.kind is RunKind.QUERY else w.sleep(work))

        group.start_soon(run_worker, w.parts(handler), w.bell, lanes(index_slots=1, query_slots=1))
        index = await w.runs.submit(w.corpus, RunKind.INDEX, {})
        await w.until(index.run_id, RunState.RUNNING)
        for _ in range(3):
            query = await w.runs.submit(w.corpus, RunKind.QUERY, {})
            await w.until(query.run_id, RunState.COMPLETED)
        group.cancel_scope.cancel()
    assert w.cancelled == [index.run_id]

"""Any order of claims, steps, crashes, cancels and sweeps, by current and stale workers, keeps the promises."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.deadline import Deadline
from pipeline.errors import FencedOut, RunCancelled
from schemas.events import Unchanged
from schemas.ids import CorpusId, RunId
from schemas.runs import Lease, RunKind, RunState

KINDS = list(RunKind)
STEPS = 3
_names = itertools.count()

NAMES = ["index", "query", "take", "step", "step", "step", "end", "fail", "beat", "back", "crash", "cancel", "sweep"]
OPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 7)), min_size=5, max_size=40)


class Silence:
    """A herald that forgets everything."""

    def ring(self, run_id: RunId, fence: int) -> None:
        return

    def publish(self, run_id: RunId) -> None:
        return


@dataclass
class Machine:
    """The store, beside what a plain model says about it: which lease of each unit is the one that counts."""

    pool: Pool
    runs: PostgresRuns
    corpus: CorpusId
    roots: list[RunId] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    owner: dict[RunId, Lease] = field(default_factory=dict)

    async def do(self, op: str, number: int) -> None:
        if op in ("index", "query"):
            self.roots.append((await self.runs.submit(self.corpus, RunKind(op), {})).run_id)
        elif op == "sweep":
            await self.runs.sweep()
        elif op == "take":
            await self.take()
        elif op == "cancel" and self.roots:
            await self.runs.cancel(self.roots[number % len(self.roots)], "x")
        elif op != "cancel" and self.leases:
            await self.work(op, -1 - number % min(4, len(self.leases)))
            if op in ("crash", "back"):
                await self.take()  # at once, so that stale workers have somebody to disturb

    async def take(self) -> Lease | None:
        lease = await self.runs.next_unit(None, KINDS)
        if lease is not None:
            assert lease.run_id not in self.owner, "a unit with a living owner was given away"
            self.leases.append(lease)
            self.owner[lease.run_id] = lease
        return lease

    async def work(self, op: str, index: int) -> None:
        """Let some worker, current or stale, try something: it works if and only if the model says so."""
        lease = self.leases[index]
        current = self.owner.get(lease.run_id) is lease
        if op == "crash":
            if current:
                await self.sql("update run set lease_until = '-infinity' where run_id = $1", lease.run_id)
                assert await self.runs.sweep() >= 1
                del self.owner[lease.run_id]
            return
        try:
            await self.attempt(op, index, lease)
        except FencedOut:
            assert not current, (op, lease)
        except RunCancelled:
            assert current, (op, lease)
        else:
            assert current, (op, lease)

    async def attempt(self, op: str, index: int, lease: Lease) -> None:
        if op == "beat":
            await self.runs.beat(lease)
        elif op == "back":
            await self.runs.hand_back(lease)
            del self.owner[lease.run_id]
        elif op == "end" or (op == "step" and lease.step >= STEPS):
            await self.end(lease, RunState.COMPLETED)
        elif op == "fail":
            await self.end(lease, RunState.FAILED)
        elif lease.kind is RunKind.INDEX and lease.step == 0:
            async with self.runs.fenced(lease) as tx:
                tx.spawn([{}, {}], STEPS)
            del self.owner[lease.run_id]
        else:
            async with self.runs.fenced(lease) as tx:
                await tx.execute("insert into effect values ($1, $2)", lease.run_id, lease.step)
                tx.advance(lease.step + 1)
            after = tx.outlook()
            assert after is not None
            self.leases[index] = self.owner[lease.run_id] = after

    async def end(self, lease: Lease, state: RunState) -> None:
        async with self.runs.fenced(lease) as tx:
            if state is RunState.COMPLETED and lease.kind is not RunKind.BATCH:
                tx.event(Unchanged(generation=1, outcomes={}))
            tx.finish(state, "RunFailed: x" if state is RunState.FAILED else "")
        del self.owner[lease.run_id]

    async def drain(self) -> None:
        """All workers die; one that works well does the rest."""
        await self.sql("update run set lease_until = '-infinity' where state = 'running'")
        self.owner.clear()
        for _ in range(200):
            await self.runs.sweep()
            lease = await self.take()
            if lease is None:
                break
            while lease.run_id in self.owner:
                await self.work("step", len(self.leases) - 1)
                if await self.stopping(lease):
                    await self.end(self.leases[-1], RunState.CANCELLED)

    async def stopping(self, lease: Lease) -> bool:
        return lease.run_id in self.owner and await self.runs.beat(self.leases[-1])

    async def sql(self, statement: str, *args: object) -> None:
        async with self.pool.transaction(Deadline.after(5)) as tx:
            await tx.execute(statement, *args)

    async def check(self) -> None:
        """Every run has ended, once; its numbers are dense; no effect happened twice."""
        log = PostgresEvents(self.pool)
        for root in self.roots:
            assert (await self.runs.info(root)).state.terminal, root
            events = await log.read(root, 0, 1000)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert [event.terminal for event in events] == [False] * (len(events) - 1) + [True]
        async with self.pool.connection(Deadline.after(5)) as tx:
            assert await tx.fetchval("select count(*) - count(distinct (run_id, step)) from effect") == 0
            assert await tx.fetchval("select count(*) from run where finished_at is null or building") == 0


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database, 4) as pool:
        async with pool.transaction(Deadline.after(5)) as tx:
            await tx.execute("create table effect (run_id text, step int)")
        yield pool


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(ops=OPS)
async def test_the_protocol_keeps_its_promises_whatever_happens_in_whatever_order(
    pool: Pool, ops: list[tuple[str, int]]
) -> None:
    async with pool.transaction(Deadline.after(5)) as tx:
        name = f"c{next(_names)}"
        corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", name))
    machine = Machine(pool, PostgresRuns(pool, Silence(), owner="w", lease_seconds=60, max_crashes=3), corpus)
    for op, number in [("query", 0), ("take", 0), *ops]:
        await machine.do(op, number)
    await machine.drain()
    await machine.check()

"""The event log contract for the plain reference and for real PostgreSQL, where events come from fenced transactions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest

from pipeline.adapters.memory_events import MemoryEvents
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.deadline import Deadline
from pipeline.errors import EventsExpired
from pipeline.ports import EventLog
from pipeline.testing.event_log_contract import EventLogContract, EventWriter
from schemas.events import Event, Progress
from schemas.ids import CorpusId, RunId
from schemas.query import Wire
from schemas.runs import Lease, RunKind, RunState

ALL = tuple(RunKind)


class Deaf:
    """A herald that nobody listens to."""

    def ring(self, run_id: RunId, fence: int) -> None: ...

    def publish(self, run_id: RunId) -> None: ...


@dataclass
class FencedWriter:
    """Says events the way units of work do. It remembers its leases and asks how far a unit is before it goes on."""

    pool: Pool
    leases: dict[RunId, Lease] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runs = PostgresRuns(self.pool, Deaf(), owner="writer")

    async def start(self, corpus: CorpusId) -> RunId:
        run = await self.runs.submit(corpus, RunKind.QUERY, {})
        return (await self._claimed(run.run_id, 1)).run_id

    async def _claimed(self, run_id: RunId, fence: int) -> Lease:
        lease = await self.runs.claim(run_id, fence, ALL)
        assert lease is not None
        self.leases[run_id] = lease
        return lease

    @asynccontextmanager
    async def saying(self, run_id: RunId, *bodies: Wire, end: bool = False) -> AsyncGenerator[None, None]:
        lease = replace(self.leases[run_id], step=(await self.runs.info(run_id)).step)
        async with self.runs.fenced(lease) as tx:
            await tx.fetchval("select pg_current_xact_id()::text")  # positions follow from it
            yield
            for body in bodies:
                tx.event(body)
            if end:
                tx.finish(RunState.COMPLETED)
            else:
                tx.advance(lease.step + 1)

    async def say_at_once(self, run_id: RunId, count: int) -> None:
        async with self.runs.fenced(self.leases[run_id]) as tx:
            tx.spawn([{} for _ in range(count)], 1)

        async def one(number: int) -> None:
            unit = await self.runs.next_unit(run_id, ALL)
            assert unit is not None
            async with self.runs.fenced(unit) as tx:
                tx.event(Progress(stage="s", done=number, total=count))
                tx.finish(RunState.COMPLETED)

        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(one, number)
        await self._claimed(run_id, 2)

    async def forget(self, corpus: CorpusId) -> None:
        await PostgresEvents(self.pool).expire(corpus, 0.0, 1000)


class TestReference(EventLogContract):
    @pytest.fixture
    def corpora(self) -> tuple[CorpusId, CorpusId]:
        return CorpusId(1), CorpusId(2)

    @pytest.fixture
    def log(self, corpora: tuple[CorpusId, CorpusId]) -> EventLog:
        return MemoryEvents(dict(zip(corpora, ("one", "two"), strict=True)))

    @pytest.fixture
    def writer(self, log: EventLog) -> EventWriter:
        assert isinstance(log, MemoryEvents)
        return log


class TestPostgres(EventLogContract):
    @pytest.fixture
    async def pool(self, database: str) -> AsyncIterator[Pool]:
        async with open_pool(database, 12) as opened:
            yield opened

    @pytest.fixture
    async def corpora(self, pool: Pool) -> tuple[CorpusId, CorpusId]:
        async with pool.transaction(Deadline.after(5)) as tx:
            made = [
                await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", n)
                for n in ("one", "two")
            ]
        return CorpusId(made[0]), CorpusId(made[1])

    @pytest.fixture
    def log(self, pool: Pool) -> EventLog:
        return PostgresEvents(pool)

    @pytest.fixture
    def writer(self, pool: Pool) -> EventWriter:
        return FencedWriter(pool)


class Hasty(MemoryEvents):
    """Shows every event as soon as it is committed, whoever may still commit before it."""

    def _horizon(self) -> float:
        return float("inf")


class Holed(MemoryEvents):
    """Takes numbers that an abandoned block never uses."""

    @asynccontextmanager
    async def saying(self, run_id: RunId, *bodies: Wire, end: bool = False) -> AsyncGenerator[None, None]:
        try:
            async with super().saying(run_id, *bodies, end=end):
                yield
        except BaseException:
            self._runs[run_id].events += [self._runs[run_id].events[-1]] if self._runs[run_id].events else [LOST]
            self._runs[run_id].positions += [0]
            raise


class Forgetful(MemoryEvents):
    """Takes a run that is gone for one that has said nothing yet."""

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        try:
            return await super().read(run_id, after, limit)
        except EventsExpired:
            return []


class Leaking(MemoryEvents):
    """Reads every corpus as one."""

    async def read_corpus(self, corpus: CorpusId, after: int, limit: int) -> list[tuple[int, Event]]:
        pairs = [pair for known in self._names for pair in await MemoryEvents.read_corpus(self, known, after, limit)]
        return sorted(pairs, key=lambda pair: pair[0])[:limit]


class Piecemeal(MemoryEvents):
    """Commits the events of a block one by one."""

    @asynccontextmanager
    async def saying(self, run_id: RunId, *bodies: Wire, end: bool = False) -> AsyncGenerator[None, None]:
        for body in bodies[:-1]:
            async with super().saying(run_id, body):
                pass
        async with super().saying(run_id, *bodies[-1:], end=end):
            yield


LOST = Event(
    run_id="lost", corpus="one", seq=7, at="2000-01-01T00:00:00+00:00", body=Progress(stage="", done=0, total=0)
)


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (Hasty, EventLogContract.test_a_commit_that_comes_late_is_not_passed_over),
        (Holed, EventLogContract.test_an_abandoned_block_leaves_no_hole),
        (Forgetful, EventLogContract.test_what_is_beyond_retention_is_said_to_be_so),
        (Leaking, EventLogContract.test_runs_and_corpora_are_apart),
        (Piecemeal, EventLogContract.test_appending_may_be_left_at_any_await),
    ],
)
async def test_the_contract_finds_a_broken_log(broken: type[MemoryEvents], case: Callable[..., object]) -> None:
    corpora = CorpusId(1), CorpusId(2)
    log = broken(dict(zip(corpora, ("one", "two"), strict=True)))
    with pytest.raises(AssertionError):
        await case(EventLogContract(), log, log, corpora)

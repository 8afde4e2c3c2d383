"""The contracts of generations and pins, for the plain reference and for real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from pipeline.adapters.memory_manifests import MemoryManifests, _Corpus
from pipeline.adapters.postgres_gc import PostgresCollector
from pipeline.adapters.postgres_generations import PostgresGenerations, promote, rollback
from pipeline.adapters.postgres_pins import PostgresPins
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import PromotionConflict
from pipeline.generations.manifest import Draft, collection_name
from pipeline.generations.pins import Key, PinStore
from pipeline.generations.rows import DocumentRows
from pipeline.testing.manifest_contract import ManifestContract, ManifestStore, States
from pipeline.testing.pin_contract import PinContract
from pipeline.testing.rows import FINGERPRINT
from schemas.ids import CorpusId, RunId
from schemas.manifest import Manifest
from tests.generation_builder import Builder

ALIVE = """
insert into run (run_id, root_id, corpus_id, kind, state)
select $1, $1, corpus_id, 'index', 'running' from corpus where corpus_id = $2
on conflict do nothing
"""
"""A run that nobody takes for dead, so that its build is no orphan."""


@dataclass(frozen=True)
class PostgresStore:
    """The functions of the adapters as one `ManifestStore`, each call in a transaction of its own."""

    pool: Pool

    async def begin(self, corpus: CorpusId, run: RunId) -> int:
        async with self.pool.transaction(Deadline.after(10)) as tx:
            await tx.execute(ALIVE, run, corpus)
        number, _ = await Builder(self.pool, corpus).begin(run)
        return number

    async def write(
        self, corpus: CorpusId, number: int, documents: Sequence[DocumentRows], removed: Sequence[str] = ()
    ) -> None:
        bare = [replace(one, mentions=[[] for _ in one.chunks], facts=[[] for _ in one.chunks]) for one in documents]
        await Builder(self.pool, corpus).write(number, collection_name(corpus, FINGERPRINT), bare, removed)

    async def promote(self, corpus: CorpusId, number: int, draft: Draft) -> Manifest:
        async with self.pool.transaction(Deadline.after(10)) as tx:
            return await promote(tx, corpus, number, replace(draft, collection=collection_name(corpus, FINGERPRINT)))

    async def rollback(self, corpus: CorpusId, target: int, number: int, run: RunId) -> Manifest:
        async with self.pool.transaction(Deadline.after(10)) as tx:
            return await rollback(tx, corpus, target, number, run)

    async def abort(self, corpus: CorpusId, number: int) -> None:
        await PostgresCollector(self.pool).abort(corpus, number, Deadline.after(10))

    async def collect(self, corpus: CorpusId, keep: int) -> tuple[int, ...]:
        return (await PostgresCollector(self.pool).collect(corpus, keep, Deadline.after(10))).generations

    async def states(self, corpus: CorpusId) -> States:
        listed = await PostgresGenerations(self.pool).list(corpus, Deadline.after(10))
        return [(one.number, one.state, one.pins) for one in listed]

    async def read(self, corpus: CorpusId, number: int) -> tuple[Manifest, list[str]]:
        generations = PostgresGenerations(self.pool)
        found = await generations.manifest(corpus, number, Deadline.after(10))
        documents = await generations.documents(corpus, number, "", 100, Deadline.after(10))
        return found, [one.document_id for one in documents]


class Both(ManifestContract, PinContract):
    """All that is asked of a store of generations."""


class TestReference(Both):
    @pytest.fixture
    def corpora(self) -> tuple[CorpusId, CorpusId]:
        return CorpusId(1), CorpusId(2)

    @pytest.fixture
    def store(self, corpora: tuple[CorpusId, CorpusId]) -> ManifestStore:
        return MemoryManifests(dict(zip(corpora, ("one", "two"), strict=True)))

    @pytest.fixture
    def pins(self, store: ManifestStore) -> PinStore:
        assert isinstance(store, MemoryManifests)
        return store


class TestPostgres(Both):
    @pytest.fixture
    async def pool(self, database: str) -> AsyncIterator[Pool]:
        async with open_pool(database, 12) as opened:
            yield opened

    @pytest.fixture
    async def corpora(self, pool: Pool) -> tuple[CorpusId, CorpusId]:
        one, two = await Builder.new(pool, "one"), await Builder.new(pool, "two")
        return one.corpus, two.corpus

    @pytest.fixture
    def store(self, pool: Pool) -> ManifestStore:
        return PostgresStore(pool)

    @pytest.fixture
    def pins(self, pool: Pool) -> PinStore:
        return PostgresPins(pool)


class Reusing(MemoryManifests):
    """Gives the number of an aborted build to the next."""

    def _next(self, known: _Corpus) -> int:
        used = [number for number, one in known.generations.items() if one.state != "aborted"]
        known.last = max(used, default=0)
        return super()._next(known)


class Careless(MemoryManifests):
    """Reclaims what is pinned."""

    async def collect(self, corpus: CorpusId, keep: int) -> tuple[int, ...]:
        self._pins.clear()
        return await super().collect(corpus, keep)


class Early(MemoryManifests):
    """Publishes first and asks the gate afterwards."""

    async def promote(self, corpus: CorpusId, number: int, draft: Draft) -> Manifest:
        await super().promote(corpus, number, replace(draft, policy="off"))
        self._corpora[corpus].generations[number].state = "building"
        return await super().promote(corpus, number, draft)


class Sloppy(MemoryManifests):
    """Lets whoever comes last promote."""

    async def promote(self, corpus: CorpusId, number: int, draft: Draft) -> Manifest:
        try:
            return await super().promote(corpus, number, draft)
        except PromotionConflict:
            self._corpora[corpus].generations[number].state = "building"
            return await super().promote(corpus, number, draft)


class Leaking(MemoryManifests):
    """Takes every pin for one of any corpus."""

    async def renew(self, keys: Sequence[Key], holder: str, lease: float, deadline: Deadline) -> set[Key]:
        numbers = {number for (_, number), _ in self._pins}
        return {key for key in keys if key[1] in numbers}


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (Reusing, ManifestContract.test_numbers_grow_and_are_never_used_again),
        (Early, ManifestContract.test_what_the_gate_refuses_stays_open_and_unseen),
        (Sloppy, ManifestContract.test_of_many_that_promote_at_once_one_does),
    ],
)
async def test_the_contract_finds_a_broken_store(broken: type[MemoryManifests], case: Callable[..., object]) -> None:
    corpora = CorpusId(1), CorpusId(2)
    with pytest.raises(AssertionError):
        await case(ManifestContract(), broken(dict(zip(corpora, ("one", "two"), strict=True))), corpora)


@pytest.mark.parametrize(
    ("broken", "suite", "case"),
    [
        (Careless, PinContract(), PinContract.test_a_pin_keeps_its_generation_from_being_reclaimed),
        (Leaking, ManifestContract(), ManifestContract.test_corpora_are_apart),
    ],
)
async def test_the_contract_finds_broken_pins(
    broken: type[MemoryManifests], suite: object, case: Callable[..., object]
) -> None:
    corpora = CorpusId(1), CorpusId(2)
    store = broken(dict(zip(corpora, ("one", "two"), strict=True)))
    with pytest.raises(AssertionError):
        await case(suite, store, store, corpora)

"""The keyword contract for the plain reference and for snapshots: built in memory, and read from real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest

from pipeline.adapters.memory_keyword import MemoryKeyword
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.deadline import Deadline
from pipeline.errors import NotFound
from pipeline.generations.rows import DocumentRows
from pipeline.retrieval.analyzer import pack, term_hash, tokens
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot
from pipeline.testing.keyword_contract import K1, B, Hits, KeywordContract, SearchableIndex
from pipeline.testing.rows import document
from schemas.ids import ChunkId, CorpusId
from tests.generation_builder import Builder

Chunks = Mapping[int, str]


def documents_of(chunks: Chunks) -> dict[str, dict[int, str]]:
    """Spread chunks over a few documents, so that an edit of one rewrites its neighbours."""
    found: dict[str, dict[int, str]] = {}
    for chunk, text in sorted(chunks.items()):
        found.setdefault(f"d{chunk % 5}", {})[chunk] = text
    return found


def rewritten(old: Chunks, new: Chunks) -> set[str]:
    before, after = documents_of(old), documents_of(new)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def found_in(snapshot: Snapshot, query: str, k: int, allowed: Collection[int] | None) -> Hits:
    mask = None if allowed is None else snapshot.mask(np.array(sorted(allowed), dtype=np.int64))
    rows, scores = snapshot.keyword.search([term_hash(term) for term in tokens(query)], k, mask, K1, B)
    return list(zip(snapshot.chunk_ids[rows].tolist(), scores.tolist(), strict=True))


class DeltaIndex:
    """Snapshots reached from the one before by deltas made here, as a worker keeps them."""

    def __init__(self) -> None:
        self._chunks: dict[CorpusId, list[Chunks]] = {}
        self._snapshots: dict[tuple[CorpusId, int], Snapshot] = {}

    async def publish(self, corpus: CorpusId, chunks: Chunks) -> int:
        states = self._chunks.setdefault(corpus, [{}])
        number = len(states)
        last = self._snapshots.get((corpus, number - 1), Snapshot.empty())
        self._snapshots[corpus, number] = last.apply(self._delta(states[-1], chunks, number))
        states.append(dict(chunks))
        return number

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> Hits:
        if (corpus, generation) not in self._snapshots:
            raise NotFound()
        return found_in(self._snapshots[corpus, generation], query, k, allowed)

    def _delta(self, old: Chunks, new: Chunks, generation: int) -> Delta:
        changed, none = rewritten(old, new), np.empty(0, dtype=np.int64)
        dead = [chunk for name in changed for chunk in documents_of(old).get(name, {})]
        born = [(chunk, name, text) for name in changed for chunk, text in documents_of(new).get(name, {}).items()]
        bags = [pack(tokens(text)) for *_, text in born]
        return Delta(
            generation=generation,
            dead_chunks=np.array(dead, dtype=np.int64),
            dead_entities=none,
            dead_relations=RelationRows(none, none, [], none.astype(np.float32)),
            chunks=ChunkRows(
                np.array([chunk for chunk, *_ in born], dtype=np.int64),
                [name for _, name, _ in born],
                np.array([sorted(documents_of(new)[name]).index(chunk) for chunk, name, _ in born], dtype=np.int32),
                np.array([length for _, length in bags], dtype=np.int32),
                [bag for bag, _ in bags],
            ),
            mentions=MentionRows(none, none),
            entities=EntityRows(none, [], none),
            relations=RelationRows(none, none, [], none.astype(np.float32)),
        )


class CompactedIndex(DeltaIndex):
    """The same after every dead slot was taken out."""

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> Hits:
        if (corpus, generation) in self._snapshots:
            last = self._snapshots[corpus, generation]
            self._snapshots[corpus, generation] = replace(last, keyword=last.keyword.compacted())
        return await super().search(corpus, generation, query, k, allowed)


class PostgresIndex:
    """Snapshots read from PostgreSQL: by deltas from the generation before, or (`whole`) each anew."""

    def __init__(self, pool: Pool, *, whole: bool) -> None:
        self._pool = pool
        self._source = PostgresSnapshots(pool)
        self._whole = whole
        self._written: dict[CorpusId, Chunks] = {}
        self._snapshots: dict[tuple[CorpusId, int], Snapshot] = {}

    async def publish(self, corpus: CorpusId, chunks: Chunks) -> int:
        new = documents_of(chunks)
        changed = rewritten(self._written.get(corpus, {}), chunks)
        builder = Builder(self._pool, corpus)
        number, collection = await builder.begin(f"run {corpus}")
        rows = [rows_of(name, new[name]) for name in sorted(changed & new.keys())]
        await builder.write(number, collection, rows, sorted(changed - new.keys()))
        await builder.promote(number, collection)
        self._written[corpus] = dict(chunks)
        return number

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> Hits:
        return found_in(await self._snapshot(corpus, generation), query, k, allowed)

    async def _snapshot(self, corpus: CorpusId, generation: int) -> Snapshot:
        if (corpus, generation) not in self._snapshots:
            older = [] if self._whole else [g for c, g in self._snapshots if c == corpus and g < generation]
            since = max(older, default=0)
            delta = await self._source.delta(corpus, since, generation, Deadline.after(10))
            last = self._snapshots[corpus, since] if since else Snapshot.empty()
            self._snapshots[corpus, generation] = last.apply(delta)
        return self._snapshots[corpus, generation]


def rows_of(name: str, chunks: Chunks) -> DocumentRows:
    """Return a document with these chunks, analysed as ingest does it."""
    rows = document(name, *([(text, "", "")] for text in chunks.values()))
    packed = [pack(tokens(text)) for text in chunks.values()]
    made = [
        replace(one, chunk_id=ChunkId(chunk), text=text, end=one.start + len(text), terms=bag, length=length)
        for one, (chunk, text), (bag, length) in zip(rows.chunks, chunks.items(), packed, strict=True)
    ]
    nothing: list[list[object]] = [[] for _ in made]
    return replace(rows, chunks=made, mentions=nothing, facts=nothing)


@pytest.fixture
def reference() -> SearchableIndex:
    return MemoryKeyword(K1, B)


@pytest.fixture
def corpora() -> tuple[CorpusId, CorpusId]:
    return CorpusId(1), CorpusId(2)


class TestReference(KeywordContract):
    @pytest.fixture
    def index(self) -> SearchableIndex:
        return MemoryKeyword(K1, B)


class TestSnapshotByDeltas(KeywordContract):
    @pytest.fixture
    def index(self) -> SearchableIndex:
        return DeltaIndex()


class TestSnapshotCompacted(KeywordContract):
    @pytest.fixture
    def index(self) -> SearchableIndex:
        return CompactedIndex()


class OnPostgres(KeywordContract):
    whole = False

    @pytest.fixture
    async def pool(self, database: str) -> AsyncIterator[Pool]:
        async with open_pool(database) as opened:
            yield opened

    @pytest.fixture
    async def corpora(self, pool: Pool) -> tuple[CorpusId, CorpusId]:
        one, two = await Builder.new(pool, "one"), await Builder.new(pool, "two")
        return one.corpus, two.corpus

    @pytest.fixture
    def index(self, pool: Pool) -> SearchableIndex:
        return PostgresIndex(pool, whole=self.whole)


class TestPostgresByDeltas(OnPostgres):
    pass


class TestPostgresWhole(OnPostgres):
    whole = True


class Leaking(MemoryKeyword):
    """Counts and finds the chunks of every corpus."""

    def _generation(self, corpus: CorpusId, generation: int) -> dict[int, list[str]]:
        own = super()._generation(corpus, generation)
        foreign = [chunks for (other, _), chunks in self._generations.items() if other != corpus]
        return own | {chunk: terms for chunks in foreign for chunk, terms in chunks.items() if chunk not in own}


class Overwriting(MemoryKeyword):
    """Keeps one copy for all generations."""

    async def publish(self, corpus: CorpusId, chunks: Chunks) -> int:
        number = await super().publish(corpus, chunks)
        for key in self._generations:
            if key[0] == corpus:
                self._generations[key] = self._generations[corpus, number]
        return number


class Untied(MemoryKeyword):
    """Orders ties the other way."""

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> Hits:
        found = await super().search(corpus, generation, query, 10**9, allowed)
        return sorted(found, key=lambda hit: (-hit[1], -hit[0]))[:k]


class Narrowing(MemoryKeyword):
    """Takes its statistics from what the filter lets through."""

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> Hits:
        inside = MemoryKeyword(K1, B)
        chunks = self._generation(corpus, generation)
        kept = {chunk: " ".join(terms) for chunk, terms in chunks.items() if allowed is None or chunk in allowed}
        return await inside.search(corpus, await inside.publish(corpus, kept), query, k)


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (Leaking, KeywordContract.test_corpora_are_apart),
        (Overwriting, KeywordContract.test_a_generation_never_changes),
        (Untied, KeywordContract.test_ties_are_in_the_order_of_chunk_ids),
        (Narrowing, KeywordContract.test_only_allowed_chunks_are_returned_and_scores_stay),
    ],
)
async def test_the_contract_finds_a_broken_index(
    broken: type[MemoryKeyword], case: Callable[..., object], corpora: tuple[CorpusId, CorpusId]
) -> None:
    with pytest.raises(AssertionError):
        await case(KeywordContract(), broken(K1, B), corpora)

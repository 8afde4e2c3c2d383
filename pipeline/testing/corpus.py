"""A whole generation in memory: deterministic stand-ins for the stores of the query stage, and rows for real ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.ports import Tx, Vectors
from pipeline.retrieval.analyzer import FINGERPRINT, pack, tokens
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.outline import Placed
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, Ints, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot
from schemas.ids import CorpusId, chunk_id, entity_id, entity_no, identity_key, text_hash
from schemas.manifest import Manifest, StoreCheck
from schemas.settings import CorpusSettings

EMBEDDING = "synthetic/1"
SOURCE = "/synthetic"


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of one generation. `terms`, `lengths` and `vectors` (n, d) go with `chunks`.

    `entities` are (name, type), each with a mention. `mentions` are (m, 2) pairs of positions of chunks and entities,
    `relations` (r, 2) pairs of positions of entities, all of the type `knows`.
    """

    chunks: Sequence[StoredChunk]
    terms: Sequence[bytes]
    lengths: Sequence[int]
    vectors: Vectors
    entities: Sequence[tuple[str, str]] = ()
    mentions: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    relations: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))

    @property
    def entity_nos(self) -> list[int]:
        """The number of each entity."""
        return [entity_no(entity_id(kind, identity_key(name))) for name, kind in self.entities]


def chunk(
    document: str,
    ordinal: int,
    text: str,
    metadata: Mapping[str, Any] | None = None,
    headings: tuple[str, ...] = (),
) -> StoredChunk:
    """Return a chunk of a made-up document."""
    return StoredChunk(
        chunk_id=chunk_id(document, text, 0),
        document=document,
        ordinal=ordinal,
        text=text,
        text_hash=text_hash(text),
        lines=(ordinal + 1, ordinal + 1),
        headings=headings,
        title=document,
        metadata=dict(metadata or {}),
    )


def rows_of(chunks: Sequence[StoredChunk], vectors: Vectors, **graph: Any) -> Rows:
    """Return rows with the terms of these chunks."""
    packed = [pack(tokens(one.text)) for one in chunks]
    return Rows(chunks, [bag for bag, _ in packed], [length for _, length in packed], vectors, **graph)


def synthetic(size: int, dimension: int, relations: int = 0, seed: int = 19, words: int = 60) -> Rows:
    """Return a corpus of `size` chunks, ten to a document, about topics: near vectors share words and entities.

    There are half as many entities as chunks, ten mentions in each chunk, and hubs among entities and words.
    """
    rng = np.random.default_rng(seed)
    topics = max(1, size // 100)
    topic = rng.integers(0, topics, size)
    centres = rng.normal(size=(topics, dimension)).astype(np.float32)
    vectors = centres[topic] + 0.8 * rng.normal(size=(size, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    common, special = np.minimum(rng.zipf(1.3, (size, words - 10)), 50_000), rng.integers(0, 20, (size, 10))
    bags = [[*(f"w{w}" for w in common[i]), *(f"t{topic[i]}x{w}" for w in special[i]), f"u{i}"] for i in range(size)]
    chunks = [
        chunk(f"folder/doc-{i // 10:06d}.md", i % 10, " ".join(bag), {"tier": i // 10 % 10, "lang": "en"})
        for i, bag in enumerate(bags)
    ]
    known = cache(tokens)  # each word is a token of its own, so they need not be found anew in each text
    packed = [pack(token for word in bag for token in known(word)) for bag in bags]
    entities = [(f"Entity {i}", "person" if i % 3 else "place") for i in range(max(2, size // 2))]
    everyone = np.stack([np.arange(len(entities)) * 2 % size, np.arange(len(entities))], axis=1)
    return Rows(
        chunks,
        [bag for bag, _ in packed],
        [length for _, length in packed],
        vectors.astype(np.float32),
        entities,
        np.unique(np.concatenate([_skewed(rng, 10 * size, size, len(entities)), everyone]), axis=0),
        _skewed(rng, relations or 5 * size, len(entities), len(entities)),
    )


def _skewed(rng: np.random.Generator, count: int, left: int, right: int) -> NDArray[np.int64]:
    """Return up to `count` distinct pairs of which the right ends are a few hubs and many others."""
    hubs = np.minimum((rng.pareto(1.0, count) * right / 50).astype(np.int64), right - 1)
    return np.unique(np.stack([rng.integers(0, left, count), hubs], axis=1), axis=0)


def manifest_of(rows: Rows, corpus: CorpusId, generation: int, collection: str = "") -> Manifest:
    """Return the manifest of a generation with these rows."""
    sizes = {
        "documents": len({one.document for one in rows.chunks}),
        "chunks": len(rows.chunks),
        "dense": len(rows.vectors),
        "entities": len(rows.entities),
        "relations": len(rows.relations),
    }
    return Manifest(
        corpus=f"corpus-{corpus}",
        generation=generation,
        run_id="run",
        collection=collection or f"dense_{corpus}_{hashlib.sha256(EMBEDDING.encode()).hexdigest()[:12]}",
        dimension=rows.vectors.shape[1],
        graph_id="graph",
        policy="semantic",
        embedding=EMBEDDING,
        extraction="synthetic/1",
        analyzer=FINGERPRINT,
        stores={name: StoreCheck(rows=count, checksum="") for name, count in sizes.items()},
        outcomes={},
        communities=1,
        levels=1,
        modularity=0.0,
        promoted_at="2000-01-01T00:00:00+00:00",
    )


@dataclass(frozen=True, slots=True)
class PinnedRows:
    """A pinned generation, as the query stage takes it."""

    corpus_id: CorpusId
    manifest: Manifest
    settings: CorpusSettings = field(default_factory=CorpusSettings)


@dataclass(frozen=True, slots=True)
class MemoryStores:
    """`DenseIndex`, `ChunkStore`, `SnapshotSource` and `Snapshots` over the rows of generations: exact, never awaiting.

    `loads` counts the deltas asked for, as (since, generation).
    """

    generations: Mapping[tuple[CorpusId, int], Rows]
    loads: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    async def search(
        self, manifest: Manifest, vector: NDArray[np.float32], k: int, allowed: Ints | None, deadline: Deadline
    ) -> list[tuple[int, float]]:
        """See `DenseIndex`."""
        rows = self._rows_of(manifest)
        ids = [one.chunk_id for one in rows.chunks]
        passing = None if allowed is None else set(allowed.tolist())
        near = zip(ids, (rows.vectors @ vector).tolist(), strict=True)
        return sorted((n for n in near if passing is None or n[0] in passing), key=lambda n: (-n[1], n[0]))[:k]

    async def similarities(
        self, manifest: Manifest, vector: NDArray[np.float32], chunks: Sequence[int], deadline: Deadline
    ) -> dict[int, float]:
        """See `DenseIndex`."""
        wanted = np.array(chunks, dtype=np.int64)
        return dict(await self.search(manifest, vector, len(wanted), wanted, deadline))

    async def allowed(self, corpus: CorpusId, generation: int, filters: Mapping[str, Any], deadline: Deadline) -> Ints:
        """See `ChunkStore`."""
        found = [
            one.chunk_id
            for one in self.generations[corpus, generation].chunks
            if filters.items() <= {**one.metadata, "document": one.document, "source": SOURCE}.items()
        ]
        return np.array(sorted(found), dtype=np.int64)

    async def chunks(
        self, corpus: CorpusId, generation: int, ids: Sequence[int], deadline: Deadline
    ) -> dict[int, StoredChunk]:
        """See `ChunkStore`."""
        wanted = set(ids)
        return {one.chunk_id: one for one in self.generations[corpus, generation].chunks if one.chunk_id in wanted}

    async def neighbors(
        self, corpus: CorpusId, generation: int, places: Sequence[tuple[str, int]], window: int, deadline: Deadline
    ) -> list[StoredChunk]:
        """See `ChunkStore`."""
        wanted = {(document, ordinal + step) for document, ordinal in places for step in range(-window, window + 1)}
        found = [one for one in self.generations[corpus, generation].chunks if (one.document, one.ordinal) in wanted]
        return sorted(found, key=lambda one: (one.document, one.ordinal))

    async def outlines(
        self, corpus: CorpusId, generation: int, documents: Sequence[str], most: int, deadline: Deadline
    ) -> list[Placed]:
        """See `ChunkStore`."""
        found = [one for one in self.generations[corpus, generation].chunks if one.document in set(documents)]
        ordered = sorted(found, key=lambda one: (one.document, one.ordinal))[:most]
        return [Placed(one.chunk_id, one.document, one.title, one.headings) for one in ordered]

    async def values(self, corpus: CorpusId, generation: int, field: str, deadline: Deadline) -> dict[str, Any]:
        """See `ChunkStore`."""
        found = {one.document: one.metadata.get(field) for one in self.generations[corpus, generation].chunks}
        return {
            key: one for key, one in found.items() if isinstance(one, str | int | float) and not isinstance(one, bool)
        }

    async def delta(self, corpus: CorpusId, since: int, generation: int, deadline: Deadline) -> Delta:
        """See `SnapshotSource`: all the old rows die, and all the new ones are born."""
        self.loads.append((since, generation))
        old = _columns(self.generations[corpus, since]) if since else None
        new = _columns(self.generations[corpus, generation])
        if old is None:
            return replace(new, generation=generation)
        return replace(
            new,
            generation=generation,
            dead_chunks=old.chunks.chunk_id,
            dead_entities=old.entities.entity_no,
            dead_relations=old.relations,
        )

    async def get(self, corpus: CorpusId, generation: int, deadline: Deadline) -> Snapshot:
        """See `Snapshots`; built anew each time."""
        return Snapshot.empty().apply(await self.delta(corpus, 0, generation, deadline))

    def _rows_of(self, manifest: Manifest) -> Rows:
        corpus = CorpusId(int(manifest.collection.split("_")[1]))
        return self.generations[corpus, manifest.generation]


def _columns(rows: Rows) -> Delta:
    none = np.empty(0, dtype=np.int64)
    ids = np.array([one.chunk_id for one in rows.chunks], dtype=np.int64)
    nos = np.array(rows.entity_nos, dtype=np.int64)
    weights = np.ones(len(rows.relations), dtype=np.float32)
    relations = RelationRows(
        nos[rows.relations[:, 0]], nos[rows.relations[:, 1]], ["knows"] * len(rows.relations), weights
    )
    return Delta(
        generation=0,
        dead_chunks=none,
        dead_entities=none,
        dead_relations=RelationRows(none, none, [], weights[:0]),
        chunks=ChunkRows(
            ids,
            [one.document for one in rows.chunks],
            np.array([one.ordinal for one in rows.chunks], dtype=np.int32),
            np.array(rows.lengths, dtype=np.int32),
            list(rows.terms),
        ),
        mentions=MentionRows(ids[rows.mentions[:, 0]], nos[rows.mentions[:, 1]]),
        entities=EntityRows(nos, [identity_key(name) for name, _ in rows.entities], np.zeros(len(nos), dtype=np.int64)),
        relations=relations,
    )


async def write_rows(tx: Tx, corpus: CorpusId, generation: int, rows: Rows, collection: str) -> None:
    """Write the rows into PostgreSQL as born in this generation; the corpus and the collection exist already."""
    ids, nos = [one.chunk_id for one in rows.chunks], rows.entity_nos
    firsts = [two for one, two in pairwise([None, *rows.chunks]) if two and (not one or one.document != two.document)]
    await tx.copy(
        "document",
        ("corpus_id", "document_id", "born", "source_location", "locator", "content_hash", "recipe", "media_type",
         "title", "metadata", "chars", "chunks"),
        [(corpus, d.document, generation, SOURCE, d.document, b"h", b"r", "text/plain", d.title, d.metadata, 1, 1)
         for d in firsts],
    )  # fmt: skip
    await tx.copy(
        "chunk",
        ("corpus_id", "chunk_id", "born", "document_id", "ordinal", "text", "char_start", "char_end", "first_line",
         "last_line", "headings", "text_hash", "passage_hash", "terms", "length"),
        [(corpus, c.chunk_id, generation, c.document, c.ordinal, c.text, 0, len(c.text), *c.lines, list(c.headings),
          c.text_hash, c.text_hash, terms, length)
         for c, terms, length in zip(rows.chunks, rows.terms, rows.lengths, strict=True)],
    )  # fmt: skip
    await tx.copy(
        collection,
        ("chunk_id", "born", "embedding"),
        [(one, generation, vector) for one, vector in zip(ids, rows.vectors, strict=True)],
    )
    await _write_graph(tx, corpus, generation, rows, ids, nos)


async def _write_graph(tx: Tx, corpus: CorpusId, generation: int, rows: Rows, ids: list[int], nos: list[int]) -> None:
    keys = [identity_key(name) for name, _ in rows.entities]
    await tx.copy(
        "mention",
        ("corpus_id", "chunk_id", "entity_no", "born", "type", "key", "surface", "char_start", "char_end", "origin"),
        [(corpus, ids[c], nos[e], generation, rows.entities[e][1], keys[e], rows.entities[e][0], -1, -1, "text")
         for c, e in _pairs(rows.mentions)],
    )  # fmt: skip
    await tx.copy(
        "entity",
        ("corpus_id", "entity_no", "born", "entity_id", "type", "key", "name", "mentions", "chunks"),
        [(corpus, no, generation, entity_id(kind, key), kind, key, name, 1, 1)
         for no, key, (name, kind) in zip(nos, keys, rows.entities, strict=True)],
    )  # fmt: skip
    await tx.copy(
        "membership", ("corpus_id", "entity_no", "born", "path"), [(corpus, no, generation, [0]) for no in nos]
    )
    await tx.copy(
        "relation",
        ("corpus_id", "source_no", "target_no", "born", "type", "weight", "evidence"),
        [(corpus, nos[a], nos[b], generation, "knows", 1.0, 1) for a, b in _pairs(rows.relations)],
    )


def _pairs(positions: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return zip(positions[:, 0].tolist(), positions[:, 1].tolist(), strict=True)

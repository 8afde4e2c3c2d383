"""A world in which PostgreSQL holds graphs: generations that share the rows which did not change between them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.adapters.postgres_gc import PostgresCollector
from pipeline.adapters.postgres_graph import PostgresGraph
from pipeline.adapters.postgres_pool import Pool
from pipeline.deadline import Deadline
from pipeline.errors import GenerationChanged
from pipeline.generations.rows import stored
from pipeline.graphs.parts import GraphRef
from pipeline.ports import SnapshotSource, Tx
from pipeline.retrieval.analyzer import pack, tokens
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import Bounds
from pipeline.testing.graph_worlds import Whole, soon
from schemas.ids import CorpusId, graph_id

KEYS = {
    "document": ("document_id",),
    "chunk": ("chunk_id",),
    "entity": ("entity_no",),
    "relation": ("source_no", "target_no", "type"),
    "membership": ("entity_no",),
}
COLUMNS = {
    "document": ("document_id", "source_location", "locator", "content_hash", "recipe", "media_type", "title", "chars", "chunks"),
    "chunk": ("chunk_id", "document_id", "ordinal", "text", "char_start", "char_end", "first_line", "last_line", "text_hash",
              "passage_hash", "terms", "length"),
    "entity": ("entity_no", "entity_id", "type", "key", "name", "description", "mentions", "chunks", "degree", "first_chunk",
               "properties"),
    "relation": ("source_no", "target_no", "type", "weight", "evidence", "properties"),
    "membership": ("entity_no", "path"),
    "mention": ("chunk_id", "entity_no", "type", "key", "surface", "char_start", "char_end", "origin"),
}  # fmt: skip

Row = tuple[Any, ...]
Versions = dict[tuple[Any, ...], tuple[Row, frozenset[int]]]
"""What is live of a table: for each key the row, and the entities that a chunk mentions."""


@dataclass
class PostgresWorld:
    """A `GraphWorld`: a row dies only where it is gone or another one, and is born only where it is new or another one."""

    pool: Pool
    reader: PostgresGraph
    corpora: dict[str, tuple[CorpusId, str]] = field(default_factory=dict[str, tuple[CorpusId, str]])
    live: dict[str, Mapping[str, Versions]] = field(default_factory=dict[str, Mapping[str, Versions]])
    shared: int = 0
    """Rows that a later generation took from the one before."""

    def bounded(self, bounds: Bounds) -> PostgresWorld:
        """See `GraphWorld`; nothing is derived when a graph is published."""
        return self

    async def publish(self, corpus: str, whole: Whole) -> GraphRef:
        """See `GraphWorld`."""
        async with self.pool.transaction(soon()) as tx:
            if corpus not in self.corpora:
                row = await tx.fetchrow("insert into corpus (name) values ($1) returning corpus_id, uid", corpus)
                self.corpora[corpus] = CorpusId(row["corpus_id"]), uuid.UUID(str(row["uid"])).hex
            number, uid = self.corpora[corpus]
            generation = await tx.fetchval(
                "update corpus set last_generation = last_generation + 1, current_generation = last_generation + 1"
                " where corpus_id = $1 returning last_generation",
                number,
            )
            before, after = self.live.get(corpus, {}), tables(whole)
            for table, rows in after.items():
                await self._write(tx, number, generation, table, before.get(table, {}), rows)
            await tx.execute(
                "update generation set state = 'superseded' where corpus_id = $1 and state = 'current'", number
            )
            await tx.execute(
                "insert into generation (corpus_id, number, state, run_id) values ($1, $2, 'current', 'run')",
                number,
                generation,
            )
        self.live[corpus] = after
        return GraphRef(number, generation, corpus, graph_id(uid, generation))

    async def _write(
        self, tx: Tx, corpus: CorpusId, generation: int, table: str, before: Versions, after: Versions
    ) -> None:
        dead = [key for key, row in before.items() if after.get(key) != row]
        born = {key: row for key, row in after.items() if before.get(key) != row}
        self.shared += len(after) - len(born)
        match = " and ".join(f"{column} = ${place}" for place, column in enumerate(KEYS[table], 3))
        for key in dead:
            await tx.execute(
                f"update {table} set died = $2 where corpus_id = $1 and died is null and {match}",
                corpus,
                generation,
                *key,
            )
        await self._insert(tx, corpus, generation, table, [row for row, _ in born.values()])
        if table == "chunk":  # mentions live and die with their chunk
            await tx.execute(
                "update mention set died = $2 where corpus_id = $1 and died is null and chunk_id = any($3::bigint[])",
                corpus,
                generation,
                [chunk for (chunk,) in dead],
            )
            links = [(chunk, entity) for (chunk,), (_, named) in born.items() for entity in named]
            rows = [(chunk, entity, "thing", "key", "surface", -1, -1, "text") for chunk, entity in links]
            await self._insert(tx, corpus, generation, "mention", rows)

    @staticmethod
    async def _insert(tx: Tx, corpus: CorpusId, generation: int, table: str, rows: Iterable[Row]) -> None:
        await tx.copy(table, ("corpus_id", "born", *COLUMNS[table]), [(corpus, generation, *row) for row in rows])

    async def retire(self, graph: GraphRef) -> None:
        """See `GraphWorld`: by the garbage collector, as if the corpus kept one generation fewer."""
        async with self.pool.connection(soon()) as tx:
            numbers = [
                row["number"]
                for row in await tx.fetch(
                    "select number from generation where corpus_id = $1 and state in ('current', 'superseded')"
                    " order by number",
                    graph.corpus_id,
                )
            ]
        assert numbers[0] == graph.generation
        reclaimed = await PostgresCollector(self.pool).collect(graph.corpus_id, len(numbers) - 1, soon())
        assert reclaimed.generations == (graph.generation,)


def tables(whole: Whole) -> dict[str, Versions]:
    """Return all rows of a graph; a chunk is another one if it mentions others."""
    part = whole.part
    named: dict[int, set[int]] = {}
    mentioned: dict[int, set[int]] = {}
    for mention in part.mentions:
        named.setdefault(mention.chunk_id, set()).add(mention.entity_no)
        mentioned.setdefault(mention.entity_no, set()).add(mention.chunk_id)
    sizes: dict[str, int] = {}
    for chunk in part.chunks:
        sizes[chunk.document] = sizes.get(chunk.document, 0) + 1
    near: dict[int, set[int]] = {}
    for one in part.relations:
        if one.source != one.target:
            near.setdefault(one.source, set()).add(one.target)
            near.setdefault(one.target, set()).add(one.source)
    terms, length = pack(tokens("some text"))
    return {
        "document": keyed(
            1, [(name, "/somewhere", name, b"h", b"r", "text/plain", name, 1, size) for name, size in sizes.items()]
        ),
        "chunk": {
            (chunk.chunk_id,): (
                (chunk.chunk_id, chunk.document, chunk.ordinal, "some text", 0, 9, 1, 1, b"h", b"h", terms, length),
                frozenset(named.get(chunk.chunk_id, ())),
            )
            for chunk in part.chunks
        },
        "entity": keyed(
            1,
            [
                (
                    *(e.entity_no, e.entity_id, e.type, e.key, e.name, e.description, e.mentions, e.chunks),
                    *(len(near.get(e.entity_no, ())), min(mentioned.get(e.entity_no, ()), default=None)),
                    stored(e.properties),
                )
                for e in part.entities
            ],
        ),
        "relation": keyed(
            3, [(r.source, r.target, r.type, r.weight, r.evidence, stored(r.properties)) for r in part.relations]
        ),
        "membership": keyed(1, [(entity, list(path)) for entity, path in whole.paths.items()]),
    }


def keyed(width: int, rows: Sequence[Row]) -> Versions:
    """Return rows by their first columns."""
    return {row[:width]: (row, frozenset()) for row in rows}


@dataclass
class Loaded:
    """Snapshots that are made when they are asked for, each from the one before it: what a cache does, without its tasks."""

    source: SnapshotSource
    held: dict[tuple[CorpusId, int], Snapshot] = field(default_factory=dict[tuple[CorpusId, int], Snapshot])

    async def get(self, corpus: CorpusId, generation: int, deadline: Deadline) -> Snapshot:
        """Return the snapshot of a generation."""
        if (corpus, generation) not in self.held:
            base = self.held.get((corpus, generation - 1), Snapshot.empty())
            try:
                delta = await self.source.delta(corpus, base.generation, generation, deadline)
            except GenerationChanged:
                base = Snapshot.empty()
                delta = await self.source.delta(corpus, 0, generation, deadline)
            self.held[corpus, generation] = base.apply(delta)
        return self.held[corpus, generation]

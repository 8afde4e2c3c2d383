"""Graphs in Neo4j: one for each generation, in a database that several corpora and installations may share.

What the extractor found is data: types and keys are properties, never labels, relationship types or query text. A graph is
a registry node (`SapwoodGraph`), whose lock and fence every write takes first, with entities, chunks and what ties them.
Nodes vanish only by `drop`, which closes the graph to writers before, so what was seen there is there until the fence falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import FencedOut, InconsistentGeneration, MissingDatabase
from pipeline.graphs.columns import check_columns, name_start
from pipeline.graphs.parts import Clusters, GraphChunk, GraphPart, GraphRef, GraphTotals
from pipeline.graphs.sessions import Sessions
from pipeline.queries import load_cypher
from pipeline.retrieval.walk import ENTITY_CHUNKS, FAN
from schemas.graph import Entity, Relation
from schemas.ids import graph_join_id, show

_CYPHER = load_cypher("graph")
_SCHEMA = (
    _CYPHER["graph_key"],
    _CYPHER["entity_key"],
    _CYPHER["chunk_key"],
    _CYPHER["graph_uid"],
    _CYPHER["entity_type"],
    _CYPHER["entity_community"],
    _CYPHER["entity_id"],
    _CYPHER["entity_name"],
    _CYPHER["chunk_place"],
)

BATCH = 2_500
"""Entities placed by one transaction."""

PAGE = 1_000
"""Nodes sealed or removed by one transaction."""

LOOK = 5_000
"""Nodes counted by one statement."""

TIES = 20_000
"""Relationships removed or moved by one transaction."""

SCHEMA_SECONDS = 60
"""How long new indexes may take to be of use; they are made before there is anything to index."""


class Clusterer(Protocol):
    """Finds communities where the graph is."""

    async def cluster(self, graph: GraphRef, deadline: Deadline) -> Clusters:
        """See `GraphStore`."""
        ...


class Neo4jGraph:
    """A `GraphStore` over one server. `fan` and `entity_chunks` bound what `seal` prepares for a walk."""

    def __init__(
        self, sessions: Sessions, clusterer: Clusterer, fan: int = FAN, entity_chunks: int = ENTITY_CHUNKS
    ) -> None:
        self._sessions = sessions
        self._clusterer = clusterer
        self._fan = fan
        self._entity_chunks = entity_chunks
        self._ready: set[str] = set()
        self._preparing = anyio.Lock()

    async def open(self, graph: GraphRef, fence: int, deadline: Deadline) -> None:
        """See `GraphStore`. The first call of a process for a database makes its constraints and indexes."""
        database = self._sessions.database_of(graph.corpus)
        await self._prepare(database, deadline)
        values = {"graph_id": graph.graph_id, "uid": graph.uid, "corpus": graph.corpus, "generation": graph.generation}
        if not await self._sessions.write(database, _CYPHER["open"], {**values, "fence": fence}, deadline):
            raise FencedOut()

    async def _prepare(self, database: str, deadline: Deadline) -> None:
        async with self._preparing:
            if database in self._ready:
                return
            for statement in _SCHEMA:
                await self._sessions.write(database, statement, {}, deadline)
            await self._sessions.read(database, _CYPHER["await_schema"], {"seconds": SCHEMA_SECONDS}, deadline)
            self._ready.add(database)

    async def write(self, graph: GraphRef, fence: int, part: GraphPart, deadline: Deadline) -> None:
        """See `GraphStore`. A part is one transaction, which the server holds in memory: some 10,000 rows are a good size."""
        check_columns(part.entities, part.relations)
        values = {
            **_ends(part),
            "chunks": [_chunk(graph, chunk) for chunk in part.chunks],
            "entities": [_entity(graph, entity) for entity in part.entities],
            "relations": [_relation(graph, relation) for relation in part.relations],
            "mentions": [(mention.entity_no, mention.chunk_id) for mention in part.mentions],
        }
        missing = await self._fenced(graph, fence, _CYPHER["write"], values, deadline)
        for kind, end in missing.items():
            if end is not None:
                raise InconsistentGeneration(f"The graph lacks {kind} {show(end)}, which a relation or mention names.")

    async def _fenced(
        self, graph: GraphRef, fence: int, statement: str, values: Mapping[str, Any], deadline: Deadline
    ) -> dict[str, Any]:
        """Run the rest of a fenced write and return its one record. Raises FencedOut, with nothing changed."""
        scope = {"graph_id": graph.graph_id, "fence": fence}
        query = f"{_CYPHER['hold']}\n{statement}"
        database = self._sessions.database_of(graph.corpus)
        records = await self._sessions.write(database, query, {**values, **scope}, deadline)
        if not records:
            raise FencedOut()
        return records[0]

    async def seal(self, graph: GraphRef, fence: int, deadline: Deadline) -> GraphTotals:
        """See `GraphStore`. Chunks are joined along their documents; entities get their lists of neighbours.

        The registry is told whether all names can be looked up; entities that an earlier release wrote lack what it takes.
        """
        await self._seal_pages(graph, fence, _CYPHER["seal_chunks"], deadline)
        await self._seal_links(graph, fence, deadline)
        await self._seal_pages(graph, fence, _CYPHER["seal_entities"], deadline)
        await self._fenced(graph, fence, _CYPHER["seal_names"], {}, deadline)
        return await self.totals(graph, deadline)

    async def _seal_pages(self, graph: GraphRef, fence: int, statement: str, deadline: Deadline) -> None:
        after: int | None = -1
        while after is not None:
            values = {"after": after, "page": PAGE, "fan": self._fan}
            after = (await self._fenced(graph, fence, statement, values, deadline))["last"]

    async def _seal_links(self, graph: GraphRef, fence: int, deadline: Deadline) -> None:
        """Leave an entity that very many chunks mention tied to the first of them only; the others are kept apart."""
        database = self._sessions.database_of(graph.corpus)
        values = {"graph_id": graph.graph_id, "most": self._entity_chunks}
        for hub in await self._sessions.read(database, _CYPHER["many_links"], values, deadline):
            last = await self._sessions.read(database, _CYPHER["last_link"], {**values, **hub}, deadline)
            if last:
                await self._move(graph, fence, _CYPHER["promote_links"], {**hub, **last[0]}, deadline)
                await self._move(graph, fence, _CYPHER["demote_links"], {**hub, **last[0]}, deadline)

    async def _move(
        self, graph: GraphRef, fence: int, statement: str, values: Mapping[str, Any], deadline: Deadline
    ) -> None:
        moved = TIES
        while moved == TIES:
            moved = (await self._fenced(graph, fence, statement, {**values, "page": TIES}, deadline))["moved"]

    async def cluster(self, graph: GraphRef, deadline: Deadline) -> Clusters:
        """See `GraphStore`."""
        return await self._clusterer.cluster(graph, deadline)

    async def place(
        self, graph: GraphRef, fence: int, paths: Mapping[int, tuple[int, ...]], deadline: Deadline
    ) -> None:
        """See `GraphStore`."""
        entities = (await self._fenced(graph, fence, _CYPHER["count_entities"], {}, deadline))["entities"]
        placed = sum(map(bool, paths.values()))
        if not entities == placed == len(paths):
            raise InconsistentGeneration(f"{placed} of {len(paths)} paths lead to the {entities} entities of a graph.")
        rows = [(entity, list(path)) for entity, path in paths.items()]
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            found = await self._fenced(graph, fence, _CYPHER["place"], {"rows": batch}, deadline)
            if found["written"] != len(batch):
                raise InconsistentGeneration("A community path leads to an entity that the graph lacks.")

    async def totals(self, graph: GraphRef, deadline: Deadline) -> GraphTotals:
        """See `GraphStore`. A relationship between two graphs is astray, however it is stamped."""
        database = self._sessions.database_of(graph.corpus)
        sums, foreign = Counter[str](), set[str]()
        for statement in (_CYPHER["totals_entities"], _CYPHER["totals_chunks"]):
            after: int | None = -1
            while after is not None:
                values = {"graph_id": graph.graph_id, "after": after, "page": LOOK}
                found = (await self._sessions.read(database, statement, values, deadline))[0]
                after = found.pop("last")
                foreign.update(*found.pop("foreign"))
                sums.update(found)
        return GraphTotals(**sums, stray_nodes=len(foreign))

    async def graphs(self, corpus: str, uid: str, deadline: Deadline) -> list[str]:
        """See `GraphStore`. A corpus whose database was never made has none."""
        database = self._sessions.database_of(corpus)
        try:
            found = await self._sessions.read(database, _CYPHER["graphs"], {"uid": uid}, deadline)
        except MissingDatabase:
            return []
        return [row["graph_id"] for row in found]

    async def drop(self, corpus: str, graph_id: str, deadline: Deadline) -> int:
        """See `GraphStore`. The first transaction closes the graph to writers, the last takes it off the registry."""
        database = self._sessions.database_of(corpus)
        values = {"graph_id": graph_id, "page": PAGE, "ties": TIES}
        removed = 0
        for statement in (_CYPHER["drop_chunks"], _CYPHER["drop_entities"]):
            while (found := (await self._sessions.write(database, statement, values, deadline))[0])["seen"]:
                removed += found["removed"]
        await self._sessions.write(database, _CYPHER["forget"], values, deadline)
        return removed


def _chunk(graph: GraphRef, chunk: GraphChunk) -> dict[str, Any]:
    return {
        "graph_id": graph.graph_id,
        "id": chunk.chunk_id,
        "graph_join_id": graph_join_id(graph.graph_id, chunk.chunk_id),
        "document": chunk.document,
        "ordinal": chunk.ordinal,
    }


def _entity(graph: GraphRef, entity: Entity) -> dict[str, Any]:
    return {
        **entity.properties,
        "graph_id": graph.graph_id,
        "no": entity.entity_no,
        "entity_id": entity.entity_id,
        "type": entity.type,
        "key": entity.key,
        "name": entity.name,
        "name_start": name_start(entity.name),
        "description": entity.description,
        "mentions": entity.mentions,
        "chunks": entity.chunks,
    }


def _relation(graph: GraphRef, relation: Relation) -> dict[str, Any]:
    columns = {
        **relation.properties,
        "graph_id": graph.graph_id,
        "type": relation.type,
        "weight": relation.weight,
        "evidence": relation.evidence,
    }
    return {"source": relation.source, "target": relation.target, "columns": columns}


def _ends(part: GraphPart) -> dict[str, list[int]]:
    """Return what relations and mentions refer to and the part itself does not bring."""
    chunks = {mention.chunk_id for mention in part.mentions}
    entities = {mention.entity_no for mention in part.mentions}
    for relation in part.relations:
        entities |= {relation.source, relation.target}
    return {
        "chunk_ends": list(chunks - {chunk.chunk_id for chunk in part.chunks}),
        "entity_ends": list(entities - {entity.entity_no for entity in part.entities}),
    }

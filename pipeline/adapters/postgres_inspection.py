"""Graphs as PostgreSQL holds them, looked at; and what the documents of any graph say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.graphs.inspection import (
    MAX_EDGES,
    MAX_MEMBERS,
    Counts,
    Edge,
    Found,
    Group,
    Seen,
    Source,
    folded,
    nearest,
    rings,
)
from pipeline.graphs.parts import GraphRef
from pipeline.ingest.communities import LEADERS
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import Entity
from schemas.ids import CorpusId, entity_no

_SQL = load("inspection")


class Connections(Protocol):
    """Lends connections for single reads; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresInspector:
    """A `GraphInspector` over one database. A graph is the rows that its generation sees."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def named(self, graph: GraphRef, kind: str | None, text: str, limit: int, deadline: Deadline) -> list[Seen]:
        """See `GraphInspector`."""
        rows = await self._picked(_SQL["pick_named"], graph, (kind, folded(text), limit), deadline)
        return list(map(_seen, rows))

    async def connected(self, graph: GraphRef, text: str, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`."""
        return _found(await self._picked(_SQL["pick_connected"], graph, (folded(text), limit), deadline))

    async def members(self, graph: GraphRef, community: int, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`."""
        return _found(await self._picked(_SQL["pick_members"], graph, (community, limit), deadline))

    async def entity(self, graph: GraphRef, entity_id: str, deadline: Deadline) -> Seen | None:
        """See `GraphInspector`: by its key, since the number follows from most ids."""
        number = _number(entity_id)
        rows: Sequence[Any] = ()
        if number is not None:
            rows = await self._picked(_SQL["pick_number"], graph, (number, entity_id), deadline)
        rows = rows or await self._picked(_SQL["pick_id"], graph, (entity_id,), deadline)
        return _seen(rows[0]) if rows else None

    async def reached(self, graph: GraphRef, centre: int, hops: int, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`: a statement for each hop."""

        async def ring(frontier: list[int], seen: list[int], room: int) -> list[int]:
            return [row["node"] for row in await self._fetch(_SQL["ring"], graph, (frontier, seen, room), deadline)]

        near = await rings(centre, hops, ring)
        first = nearest(near, limit)
        rows = await self._picked(_SQL["pick_near"], graph, (list(first), list(first.values()), limit), deadline)
        return Found(list(map(_seen, rows)), len(near) if rows else 0)

    async def edges(
        self, graph: GraphRef, sources: Sequence[int], targets: Sequence[int] | None, deadline: Deadline
    ) -> list[Edge]:
        """See `GraphInspector`."""
        ends = (list(sources), None if targets is None else list(targets), MAX_EDGES)
        return [Edge(*row) for row in await self._fetch(_SQL["edges"], graph, ends, deadline)]

    async def groups(self, graph: GraphRef, level: int | None, limit: int, deadline: Deadline) -> list[Group]:
        """See `GraphInspector`."""
        rows = await self._fetch(_SQL["groups"], graph, (level, limit, MAX_MEMBERS, LEADERS), deadline)
        return [Group(*row) for row in rows]

    async def counts(self, graph: GraphRef, deadline: Deadline) -> Counts:
        """See `GraphInspector`; one connection, a generation does not change between its statements."""
        scope = (graph.corpus_id, graph.generation)
        async with self._pool.connection(deadline) as tx:
            entities = await tx.fetch(_SQL["entity_types"], *scope)
            relations = await tx.fetch(_SQL["relation_types"], *scope)
            groups = await tx.fetchval(_SQL["group_count"], *scope)
        return Counts(
            {row["type"]: row["rows"] for row in entities}, {row["type"]: row["rows"] for row in relations}, groups
        )

    async def _picked(self, head: str, graph: GraphRef, values: tuple[Any, ...], deadline: Deadline) -> Sequence[Any]:
        return await self._fetch(f"{head}\n{_SQL['shown']}", graph, values, deadline)

    async def _fetch(self, query: str, graph: GraphRef, values: tuple[Any, ...], deadline: Deadline) -> Sequence[Any]:
        async with self._pool.connection(deadline) as tx:
            return await tx.fetch(query, graph.corpus_id, graph.generation, *values)


class PostgresEvidence:
    """`Evidence` over one database."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def sources(
        self, corpus: CorpusId, generation: int, entity: int, offset: int, limit: int, deadline: Deadline
    ) -> list[Source]:
        """See `Evidence`."""
        async with self._pool.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["sources"], corpus, generation, entity, offset, limit)
        return [Source(row[0], row[1], (row[2], row[3]), row[4], row[5]) for row in rows]

    async def totals(self, corpus: CorpusId, generation: int, deadline: Deadline) -> tuple[int, int]:
        """See `Evidence`."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["document_totals"], corpus, generation)
        return row["documents"], row["chunks"]


def _number(entity_id: str) -> int | None:
    try:
        return entity_no(entity_id)
    except (ValueError, IndexError):
        return None


def _seen(row: Any) -> Seen:
    return Seen(Entity(*row[:9]), tuple(row["path"]), row["document"])


def _found(rows: Sequence[Any]) -> Found:
    return Found(list(map(_seen, rows)), rows[0]["total"] if rows else 0)

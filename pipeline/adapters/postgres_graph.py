"""Graphs as PostgreSQL holds them, read: the walk over the snapshot of a generation, and pages of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.ports import Tx
from pipeline.queries import load
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import Limits, WalkResult, walk_chunks
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, EntityNo

_SQL = load("graph")
_ROWS = load("projection")

_BEFORE = -1
"""Less than any id."""


class Connections(Protocol):
    """Lends connections for single reads; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class Snapshots(Protocol):
    """Gives the snapshot of a generation."""

    async def get(self, corpus: CorpusId, generation: int, deadline: Deadline) -> Snapshot:
        """Return it, loaded if need be. Raises DeadlineExceeded when that takes too long."""
        ...


class PostgresGraph:
    """A `GraphReader` over one database. A graph is the rows that its generation sees."""

    def __init__(self, pool: Connections, snapshots: Snapshots) -> None:
        self._pool = pool
        self._snapshots = snapshots

    async def expand(
        self,
        graph: GraphRef,
        seeds: Sequence[tuple[int, float]],
        limits: Limits,
        allowed: Ints | None,
        deadline: Deadline,
    ) -> WalkResult:
        """See `GraphReader`.

        Raises:
            InconsistentGeneration: a seed is no chunk of this generation.
        """
        snapshot = await self._snapshots.get(graph.corpus_id, graph.generation, deadline)
        deadline.budget(1.0)
        # An abandoned thread ends by itself within milliseconds.
        return await anyio.to_thread.run_sync(
            partial(walk_chunks, snapshot, seeds, limits, allowed), abandon_on_cancel=True
        )

    async def entities(self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline) -> list[Entity]:
        """See `GraphReader`."""
        start = _BEFORE if after is None else after
        return [Entity(*row) for row in await self._page(_ROWS["entities"], graph, (start, limit), deadline)]

    async def relations(
        self, graph: GraphRef, after: tuple[int, int, str] | None, limit: int, deadline: Deadline
    ) -> list[Relation]:
        """See `GraphReader`."""
        start = after or (_BEFORE, _BEFORE, "")
        rows = await self._page(_ROWS["relations"], graph, (*start, limit), deadline)
        return [Relation(EntityNo(row[0]), EntityNo(row[1]), *row[2:]) for row in rows]

    async def paths(
        self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline
    ) -> list[tuple[int, tuple[int, ...]]]:
        """See `GraphReader`."""
        start = _BEFORE if after is None else after
        rows = await self._page(_SQL["paths"], graph, (start, limit), deadline)
        return [(row["entity_no"], tuple(row["path"])) for row in rows]

    async def _page(self, query: str, graph: GraphRef, page: tuple[Any, ...], deadline: Deadline) -> Sequence[Any]:
        async with self._pool.connection(deadline) as tx:
            return await tx.fetch(query, graph.corpus_id, graph.generation, *page)

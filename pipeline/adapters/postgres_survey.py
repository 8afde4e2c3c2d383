"""What a generation holds, counted in PostgreSQL, which has every entity and relation wherever else the graph lies."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.propose import MOST_PROPERTIES, MOST_TYPES, Ends, Findings, PropertyCount, TypeCount
from pipeline.graphtools.values import DATE_FORM, DATETIME_FORM
from pipeline.ports import Tx
from pipeline.queries import load

_SQL = load("proposal")


class Connections(Protocol):
    """Lends connections for single reads; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresSurveyor:
    """A `Surveyor` over one database."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def survey(self, graph: GraphRef, deadline: Deadline) -> Findings:
        """See `Surveyor`; one connection, a generation does not change between its statements."""
        scope, forms = (graph.corpus_id, graph.generation), (f"^{DATE_FORM}$", f"^{DATETIME_FORM}$")
        async with self._pool.connection(deadline) as tx:
            entities = [TypeCount(*row) for row in await tx.fetch(_SQL["entity_types"], *scope, MOST_TYPES)]
            relations = [TypeCount(*row) for row in await tx.fetch(_SQL["relation_types"], *scope, MOST_TYPES)]
            types = [one.type for one in entities], [one.type for one in relations]
            properties = await tx.fetch(_SQL["properties"], *scope, *types, MOST_PROPERTIES, *forms)
            ends = await tx.fetch(_SQL["relation_ends"], *scope, types[1])
        found = {row["type"]: Ends(*row) for row in ends}
        return Findings(
            entities,
            relations,
            [PropertyCount(*row) for row in properties],
            [found[kind] for kind in types[1] if kind in found],
        )

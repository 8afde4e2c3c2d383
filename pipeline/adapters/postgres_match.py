"""Portable MATCH over graphs as PostgreSQL holds them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

import asyncpg
from anyio import to_thread

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, StoreRefused
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.execution import Bounds, Cell, Edge, Limit, Node, Path, Rows
from pipeline.graphtools.finish import Finisher
from pipeline.graphtools.plan import Both, Condition, Plan
from pipeline.graphtools.query import Joining
from pipeline.graphtools.sql import Statement, compiled
from pipeline.graphtools.sql_rows import Shape
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import Scalar

_SQL = load("match")

BATCH = 1_000
"""Matches that travel at a time, at least, where they are finished here: a page's worth would be too many journeys."""

Tid = tuple[int, int]
"""The place of a row in its table: block and number."""


class Transactions(Protocol):
    """Opens transactions; the pool does."""

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block, and rolls back if anything is raised."""
        ...


class PostgresMatch:
    """A `MatchExecutor` over one database. A graph is the rows that its generation sees.

    Regular expressions are asked here, of the matches of all else. Where the steps run out, the rows are those of the matches
    found until then, in the plan's order; pages of such an answer fit together as long as the tables stay as they are.
    """

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def match(self, graph: GraphRef, plan: Plan, bounds: Bounds, deadline: Deadline) -> Rows:
        """See `MatchExecutor`."""
        statement = compiled(plan, graph.corpus_id, graph.generation, bounds)
        with _refused():
            async with self._database.transaction(deadline) as tx:
                await tx.execute(_SQL["read_only"])
                found = _Found(tx, graph, statement)
                if not statement.rest:
                    return Rows(tuple(await found.all()), found.limit)
                finisher = Finisher(replace(plan, where=reduce(_both, statement.rest)), bounds.offset, bounds.rows)
                async for matches in found.pages(max(bounds.fetch, BATCH)):
                    await to_thread.run_sync(_add, finisher, matches)
        return Rows(await to_thread.run_sync(finisher.rows), found.limit)


def _both(left: Condition, right: Condition) -> Condition:
    return Both(Joining.AND, left, right)


def _add(finisher: Finisher, matches: Sequence[Sequence[Any]]) -> None:
    for match in matches:
        finisher.add(match)


@contextmanager
def _refused() -> Generator[None, None, None]:
    """Tell apart what was wrong with the question: a value, or a sum beyond its type."""
    try:
        yield
    except StoreRefused as error:
        if isinstance(error.__cause__, asyncpg.NumericValueOutOfRangeError):
            raise InvalidRequest("A sum is beyond the range of its type.") from error
        if type(error.__cause__) in (
            asyncpg.DataError,
            asyncpg.CharacterNotInRepertoireError,
        ):  # the driver's, the server's
            raise InvalidRequest("A value holds characters that no text can hold.") from error
        raise


@dataclass
class _Found:
    """The rows of the statement. `limit` is known after the first of them."""

    tx: Tx
    graph: GraphRef
    statement: Statement
    limit: Limit = Limit.NONE

    async def all(self) -> list[tuple[Cell, ...]]:
        """Return the rows, in their order: those of a page."""
        return await self._whole(await self.tx.fetch(self.statement.text, *self.statement.parameters))

    async def pages(self, size: int) -> AsyncGenerator[list[tuple[Cell, ...]], None]:
        """Yield the rows, of which there may be many, `size` at a time."""
        # The driver remembers of what types the rows of a FETCH are by its text, so they must follow from the name.
        name = "matches_" + "".join(shape.value for shape in self.statement.shapes)
        await self.tx.execute(f"declare {name} no scroll cursor for {self.statement.text}", *self.statement.parameters)
        while rows := await self.tx.fetch(f"fetch forward {size} from {name}"):
            yield await self._whole(rows)

    async def _whole(self, found: Sequence[Any]) -> list[tuple[Cell, ...]]:
        """Return rows with their nodes and edges, of which the statement gave the keys."""
        if found[0]["cut"]:
            self.limit = Limit.STEPS
        rows = [row[2:] for row in found if row["place"] is not None]
        elements = _Elements()
        numbers, tids = set[int](), set[Tid]()
        for shape, cell in (one for row in rows for one in _shaped(self.statement.shapes, row)):
            match shape:
                case Shape.NODE:
                    numbers.add(cell[0])
                case Shape.EDGE:
                    tids.add(cell[0])
                case Shape.PATH:
                    numbers.update(cell[0])
                    tids.update(cell[1])
                case Shape.VALUE:
                    pass
        await elements.load(self.tx, self.graph, numbers, tids)
        return [tuple(elements.cell(*one) for one in _shaped(self.statement.shapes, row)) for row in rows]


def _shaped(shapes: Iterable[Shape], row: Sequence[Any]) -> Iterator[tuple[Shape, Sequence[Any]]]:
    """Yield the cells of a row, each as what it travels as."""
    at = 0
    for shape in shapes:
        width = 2 if shape is Shape.PATH else 1
        yield shape, row[at : at + width]
        at += width


@dataclass
class _Elements:
    """Nodes by the number of their entity and edges by the place of their row."""

    nodes: dict[int, Node] = field(default_factory=dict[int, Node])
    edges: dict[Tid, Edge] = field(default_factory=dict[Tid, Edge])

    async def load(self, tx: Tx, graph: GraphRef, numbers: set[int], tids: set[Tid]) -> None:
        """Read them, and the nodes at the ends of the edges."""
        scope = graph.corpus_id, graph.generation
        relations = await tx.fetch(_SQL["edges"], *scope, list(tids)) if tids else ()
        numbers |= {row[end] for row in relations for end in ("source_no", "target_no")}
        for row in await tx.fetch(_SQL["nodes"], *scope, list(numbers)) if numbers else ():
            columns = {name: row[name] for name in ("name", "description", "mentions", "chunks")}
            self.nodes[row["entity_no"]] = Node(row["entity_id"], row["type"], {**row["properties"], **columns})
        for row in relations:
            columns = {name: row[name] for name in ("weight", "evidence")}
            source, target = self.nodes[row["source_no"]], self.nodes[row["target_no"]]
            self.edges[row["tid"]] = Edge(source.id, row["type"], target.id, {**row["properties"], **columns})

    def cell(self, shape: Shape, cell: Sequence[Any]) -> Cell:
        """Return what a cell stands for."""
        match shape:
            case Shape.NODE:
                return self.nodes[cell[0]]
            case Shape.EDGE:
                return self.edges[cell[0]]
            case Shape.PATH:
                nodes, edges = cell
                return Path(tuple(self.nodes[one] for one in nodes), tuple(self.edges[one] for one in edges))
            case Shape.VALUE:
                value: Scalar | None = cell[0]
                return value

"""Portable MATCH over graphs in Neo4j: one reading statement for each page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from anyio import to_thread

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.sessions import Feeds
from pipeline.graphtools.cypher import Statement, cypher
from pipeline.graphtools.cypher_terms import HIDDEN, by_name
from pipeline.graphtools.execution import Bounds, Cell, Edge, Limit, Node, Path, Rows
from pipeline.graphtools.finish import Element, Finisher
from pipeline.graphtools.memory import MANY
from pipeline.graphtools.plan import Column, Plan
from pipeline.graphtools.values import conjuncts
from pipeline.queries import load_cypher

_MATCH = load_cypher("match")

KNOWN = 1_000
"""Graphs of which it is remembered that names can be looked up."""

FETCHED = 1_000
"""Matches that travel at a time where the statement returns these: there may be very many."""


class Neo4jMatch:
    """A `MatchExecutor` over graphs that `Neo4jGraph` has written, in transactions that can only read.

    `Bounds.steps` are matches of the whole pattern for which all that the server was asked is true; what it goes through on
    its way to these is bounded by the deadline alone, which ends the transaction. Where there are more matches, the first
    ones count, in the order in which the server finds them: that is the same for all pages while its plan is.
    """

    def __init__(self, sessions: Feeds) -> None:
        self._sessions = sessions
        self._looked_up: set[str] = set()

    async def match(self, graph: GraphRef, plan: Plan, bounds: Bounds, deadline: Deadline) -> Rows:
        """See `MatchExecutor`. A graph that is not there has no matches."""
        name_starts = any(map(by_name, conjuncts(plan.where))) and await self._has_name_starts(graph, deadline)
        statement = cypher(plan, graph.graph_id, bounds, name_starts=name_starts)

        def begin() -> _Page | _Matches:
            return _Matches(statement, plan, bounds) if statement.matches else _Page(plan)

        fetch = FETCHED if statement.matches else bounds.fetch
        database = self._sessions.database_of(graph.corpus)
        taken = await self._sessions.feed(database, statement.text, statement.parameters, begin, fetch, deadline)
        return await taken.finished()

    async def _has_name_starts(self, graph: GraphRef, deadline: Deadline) -> bool:
        """Whether names can be looked up; a graph of an earlier release has only the names. What was sealed stays so."""
        if graph.graph_id not in self._looked_up:
            database, scope = self._sessions.database_of(graph.corpus), {"graph_id": graph.graph_id}
            found = await self._sessions.feed(database, _MATCH["name_starts"], scope, _Answer, 1, deadline)
            if not found.yes:
                return False
            if len(self._looked_up) >= KNOWN:
                self._looked_up.clear()
            self._looked_up.add(graph.graph_id)
        return True


class _Answer:
    """Takes a yes or no."""

    yes = False

    def add(self, record: Mapping[str, Any], /) -> None:
        self.yes = record["has"]


class _Page:
    """Takes the rows of a page, and a last record that is none."""

    def __init__(self, plan: Plan) -> None:
        self._columns = plan.columns
        self._several = [not edge.one for edge in plan.edges]
        self._rows: list[tuple[Cell, ...]] = []
        self._cut = False

    def add(self, record: Mapping[str, Any], /) -> None:
        self._cut = record["cut"]
        if not record["last"]:
            self._rows.append(tuple(map(self._cell, self._columns, record["row"])))

    async def finished(self) -> Rows:
        return Rows(tuple(self._rows), Limit.STEPS if self._cut else Limit.NONE)

    def _cell(self, column: Column, value: Any) -> Cell:
        if column.property or column.aggregate:
            return cast("Cell", value)
        return _element(column.element, value, self._several, None)


class _Matches:
    """Takes matches, and makes rows of them as everybody does."""

    def __init__(self, statement: Statement, plan: Plan, bounds: Bounds) -> None:
        self._finisher = Finisher(plan, bounds.offset, bounds.rows)
        self._names = statement.names
        self._several = [not edge.one for edge in plan.edges]
        self._left = bounds.steps
        self._cut = False

    def add(self, record: Mapping[str, Any], /) -> None:
        self._cut = not self._left
        if self._cut:
            return
        self._left -= 1
        self._finisher.add(
            [_element(place, value, self._several, self._names[place]) for place, value in enumerate(record["row"])]
        )

    async def finished(self) -> Rows:
        many = len(self._finisher) > MANY
        rows = await to_thread.run_sync(self._finisher.rows) if many else self._finisher.rows()
        return Rows(rows, Limit.STEPS if self._cut else Limit.NONE)


def _element(place: int | None, value: Any, several: Sequence[bool], names: Sequence[str] | None) -> Element:
    """Return the element at a place of the pattern, or (None) the whole match, with all its properties or these."""
    if place is None or (place % 2 and several[place // 2]):
        nodes, edges = value
        return Path(tuple(_node(one, None) for one in nodes), tuple(_edge(one, None) for one in edges))
    return _edge(value, names) if place % 2 else _node(value, names)


def _node(value: Any, names: Sequence[str] | None) -> Node:
    if names is None:
        return Node(value["entity_id"], value["type"], _shown(value, 0))
    return Node(value[0], value[1], _named(names, value[2]))


def _edge(value: Any, names: Sequence[str] | None) -> Edge:
    source, kind, target, properties = value
    return Edge(source, kind, target, _shown(properties, 1) if names is None else _named(names, properties))


def _shown(properties: Mapping[str, Any], edge: int) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name not in HIDDEN[edge]}


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}

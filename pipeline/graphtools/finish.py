"""From matches to rows: filter, group, make distinct, order, and cut the page out. Every backend ends like this.

A store that can do all of it itself must return the same; one that cannot hands its matches to `finish`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from pipeline.graphtools.execution import Cell, Edge, Node, Path
from pipeline.graphtools.plan import Column, Order, Plan, Property
from pipeline.graphtools.values import Descending, Key, aggregate, comparable, conform, evaluator, order_key
from schemas.graph import Scalar

Element = Node | Edge | Path
Match = Sequence[Element]
"""The elements of the pattern from left to right: node, edge, node, …; an edge of several hops is a path."""

Row = tuple[Cell, ...]

_SLACK = 1000
"""Rows that may be kept beyond those that can be asked for, before the last ones are thrown away."""


def finish(plan: Plan, matches: Iterable[Match], offset: int, most: int) -> tuple[Row, ...]:
    """Return the rows of all matches: at most `most`, after the first `offset`. The filter is the plan's.

    Raises:
        InvalidRequest: a sum is beyond the range of its type.
    """
    finisher = Finisher(plan, offset, most)
    for match in matches:
        finisher.add(match)
    return finisher.rows()


def read(match: Match, wanted: Property) -> Scalar | None:
    """Return what a property of a match is compared by."""
    return comparable(_stored(match, wanted), wanted.type)


class Finisher:
    """Takes matches one by one, in any order, and remembers no more of them than the rows need."""

    def __init__(self, plan: Plan, offset: int, most: int) -> None:
        self._plan = plan
        self._aggregated = plan.aggregated
        self._offset = offset
        self._holds = evaluator(plan.where) if plan.where else None
        self._groups: dict[Key, _Group] = {}
        self._best = _Best(offset + most)
        if self._aggregated and not plan.groups:
            self._groups[()] = _Group(())

    def __len__(self) -> int:
        """How much is to be ordered at the end."""
        return len(self._groups) + len(self._best)

    def add(self, match: Match) -> None:
        """Take a match into account, if the plan's condition is true of it."""
        if self._holds and not self._holds(lambda wanted: read(match, wanted)):
            return
        if self._aggregated:
            key = tuple(order_key(read(match, one)) for one in self._plan.groups)
            self._groups.setdefault(key, _Group(match)).add(self._plan.columns, match)
        else:
            self._offer(match, tuple(_cell(column, match, self._plan.distinct) for column in self._plan.columns))

    def rows(self) -> tuple[Row, ...]:
        """Return the page. Nothing may be added afterwards. Raises InvalidRequest as `finish` does."""
        for group in self._groups.values():
            self._offer(group.first, group.cells(self._plan.columns))
        self._groups.clear()
        return tuple(self._best.ordered()[self._offset :])

    def _offer(self, match: Match, cells: Row) -> None:
        """Offer a row with what makes it another one than all others, and its place among them."""
        identity = columns = tuple(map(order_key, cells))
        if self._aggregated:
            last = tuple(order_key(read(match, one)) for one in self._plan.groups)
        elif self._plan.distinct:
            last = columns
        else:
            last = tuple(map(order_key, match))
        if not self._plan.distinct:
            identity = last
        keys = tuple(self._key(order, match, columns) for order in self._plan.order)
        self._best.offer(identity, keys + last, cells)

    def _key(self, order: Order, match: Match, columns: tuple[Key, ...]) -> Key | Descending:
        """Return a sort key: a DATETIME is compared in its full form, also where it is a column and shown as it is stored."""
        by = order.by
        if isinstance(by, int) and not self._plan.columns[by].aggregate:
            by = self._plan.columns[by].property or by
        key = columns[by] if isinstance(by, int) else order_key(read(match, by))
        return Descending(key) if order.descending else key


@dataclass(slots=True)
class _Group:
    """The first match of a group, and for each column that is an aggregate what is to be aggregated."""

    first: Match
    values: dict[int, list[Scalar]] = field(default_factory=dict[int, list[Scalar]])

    def add(self, columns: Sequence[Column], match: Match) -> None:
        for place, column in enumerate(columns):
            if column.aggregate and (value := _counted(column, match)) is not None:
                self.values.setdefault(place, []).append(value)

    def cells(self, columns: Sequence[Column]) -> Row:
        return tuple(
            aggregate(column.aggregate, self.values.get(place, ()), column.property.type if column.property else None)
            if column.aggregate
            else _cell(column, self.first, True)
            for place, column in enumerate(columns)
        )


class _Best:
    """The first `most` rows by their keys. Of rows with one identity it keeps the one with the least key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Key, tuple[Key, Row]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def offer(self, identity: Key, key: Key, row: Row) -> None:
        known = self._kept.get(identity)
        if known is None or key < known[0]:
            self._kept[identity] = key, row
        if len(self._kept) > 2 * self._most + _SLACK:
            first = heapq.nsmallest(self._most, self._kept.items(), key=lambda item: item[1][0])
            self._kept = dict(first)

    def ordered(self) -> list[Row]:
        first = heapq.nsmallest(self._most, self._kept.values(), key=itemgetter(0))
        return [row for _, row in first]


def _stored(match: Match, wanted: Property) -> Scalar | None:
    element = match[wanted.element]
    return None if isinstance(element, Path) else element.properties.get(wanted.stored)


def _cell(column: Column, match: Match, merged: bool) -> Cell:
    """Return a cell. In a row that stands for several matches, a DATETIME is in its full form."""
    if column.property:
        return (comparable if merged else conform)(_stored(match, column.property), column.property.type)
    return whole(match) if column.element is None else match[column.element]


def _counted(column: Column, match: Match) -> Scalar | None:
    """Return what an aggregate takes of a match: a value, or what tells an element from all others."""
    if column.property:
        return read(match, column.property)
    return True if column.element is None else repr(order_key(match[column.element]))


def whole(match: Match) -> Path:
    """Return a match as one path."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    for element in match:
        match element:
            case Node():
                nodes.append(element)
            case Edge():
                edges.append(element)
            case Path():
                nodes += element.nodes[1:-1]
                edges += element.edges
    return Path(tuple(nodes), tuple(edges))

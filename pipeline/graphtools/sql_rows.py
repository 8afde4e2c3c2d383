"""From matches to rows, in PostgreSQL's terms: cells, groups, what is distinct, and the order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from pipeline.graphtools.plan import Column, Plan, Property
from pipeline.graphtools.query import Aggregate
from schemas.exposed import PropertyType


class Shape(Enum):
    """How a cell travels: a value as it is, a node as the number of its entity, an edge as the place of its row in the table, a
    path as the list of the former and the list of the latter.
    """

    VALUE = "v"
    NODE = "n"
    EDGE = "e"
    PATH = "p"


class Names:
    """The columns of the matches (`m`), by what they hold; `used` are those that the rows are made of.

    Of a node: `n2` its number, `i2` its public id. Of an edge: `r1` the place of its row, `s1`, `y1`, `g1` the id of its source,
    its type and the id of its target. Of a path: `r1` and `n1` the lists of its edges and nodes, `x1` what it is ordered by.
    Of a property: `v0` what it is compared by, or the value as it is shown.
    """

    def __init__(self) -> None:
        self.used = dict[str, None]()
        self.values: dict[tuple[Property, bool], str] = {}

    def value(self, wanted: Property, shown: bool = False) -> str:
        """Return the name of a property: as it is compared, or as it is shown where that is another value."""
        key = wanted, shown and wanted.type is PropertyType.DATETIME
        return self.values.setdefault(key, f"v{len(self.values)}")

    def use(self, name: str) -> str:
        """Return a reference to a column of the matches."""
        self.used[name] = None
        return f"m.{name}"


@dataclass(frozen=True, slots=True)
class Rows:
    """The queries after that of the matches, the last of which gives all rows, and the cells' columns and shapes."""

    ctes: tuple[str, ...]
    query: str
    cells: tuple[str, ...]
    shapes: tuple[Shape, ...]


def matches_of(plan: Plan, names: Names) -> Rows:
    """Return the matches as rows: all elements of the pattern, from left to right, in no order."""
    elements = range(len(plan.nodes) + len(plan.edges))
    cells = [cell for element in elements for cell in _element(plan, names, element)]
    query = f"select {_named('c', cells)} from kept m"
    return Rows((), query, _aliases("c", cells), tuple(_shape(plan, element) for element in elements))


def rows_of(plan: Plan, names: Names) -> Rows:
    """Return the rows of a plan, in its order."""
    cells = [cell for column in plan.columns for cell in _cells(plan, names, column)]
    keys = _keys(plan, names)
    order = ", ".join(f"o{at} {'desc' if down else 'asc'}" for at, (_, down) in enumerate(keys))
    listed = _named("c", cells) + "".join(f", {key} as o{at}" for at, (key, _) in enumerate(keys))
    if plan.aggregated:
        groups = ", ".join(names.use(names.value(one)) for one in plan.groups)
        grouped = f" group by {groups}" if groups else ""
        ctes = [f"listed as materialized (select {listed} from kept m{grouped})"]
    else:
        ctes = [f"listed as (select {'distinct ' if plan.distinct else ''}{listed} from kept m)"]
    aliases, ordered = _aliases("c", cells), f" order by {order}" if order else ""
    source = "listed"
    if plan.aggregated and plan.distinct:
        over = f"partition by {', '.join(aliases)}{ordered}"
        ctes.append(f"firsts as (select *, row_number() over ({over}) as nth from listed)")
        source = "firsts where nth = 1"
    shapes = tuple(_shape_of(plan, column) for column in plan.columns)
    return Rows(tuple(ctes), f"select {', '.join(aliases)} from {source}{ordered}", aliases, shapes)


def _named(letter: str, cells: Iterable[str]) -> str:
    return ", ".join(f"{cell} as {letter}{at}" for at, cell in enumerate(cells))


def _aliases(letter: str, cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{letter}{at}" for at in range(len(cells)))


def _shape_of(plan: Plan, column: Column) -> Shape:
    if column.property or column.aggregate:
        return Shape.VALUE
    return Shape.PATH if column.element is None else _shape(plan, column.element)


def _shape(plan: Plan, element: int) -> Shape:
    if element % 2 == 0:
        return Shape.NODE
    return Shape.EDGE if plan.edges[element // 2].one else Shape.PATH


def _cells(plan: Plan, names: Names, column: Column) -> list[str]:
    if column.aggregate:
        return [_aggregate(plan, names, column, column.aggregate)]
    if column.property:
        merged = plan.distinct or plan.aggregated
        return [names.use(names.value(column.property, shown=not merged))]
    return _whole(plan, names) if column.element is None else _element(plan, names, column.element)


def _element(plan: Plan, names: Names, element: int) -> list[str]:
    match _shape(plan, element):
        case Shape.NODE:
            return [names.use(f"n{element}")]
        case Shape.EDGE:
            return [names.use(f"r{element}")]
        case _:
            return [names.use(f"n{element}"), names.use(f"r{element}")]


def _whole(plan: Plan, names: Names) -> list[str]:
    nodes, edges = [f"array[{names.use('n0')}]"], ["'{}'::tid[]"]
    for element in range(1, 2 * len(plan.edges), 2):
        if _shape(plan, element) is Shape.EDGE:
            nodes.append(f"array[{names.use(f'n{element + 1}')}]")
            edges.append(f"array[{names.use(f'r{element}')}]")
        else:
            nodes.append(f"{names.use(f'n{element}')}[2:]")
            edges.append(names.use(f"r{element}"))
    return [" || ".join(nodes), " || ".join(edges)]


def _keys(plan: Plan, names: Names) -> list[tuple[str, bool]]:
    """Return all that rows are ordered by, and whether it is descending."""
    keys = [(key, one.descending) for one in plan.order for key in _key(plan, names, one.by)]
    if plan.aggregated:
        last = [names.use(names.value(one)) for one in plan.groups]
    elif plan.distinct:
        last = [key for at in range(len(plan.columns)) for key in _key(plan, names, at)]
    else:
        elements = range(len(plan.nodes) + len(plan.edges))
        last = [key for element in elements for key in _element_key(plan, names, element)]
    return keys + [(key, False) for key in last]


def _key(plan: Plan, names: Names, by: int | Property) -> list[str]:
    if isinstance(by, Property):
        return [names.use(names.value(by))]
    column = plan.columns[by]
    if column.aggregate:
        return [_aggregate(plan, names, column, column.aggregate)]
    if column.property:
        return [names.use(names.value(column.property))]
    return [_whole_key(plan, names)] if column.element is None else _element_key(plan, names, column.element)


def _element_key(plan: Plan, names: Names, element: int) -> list[str]:
    match _shape(plan, element):
        case Shape.NODE:
            return [names.use(f"i{element}")]
        case Shape.EDGE:
            return [names.use(f"{part}{element}") for part in "syg"]
        case _:
            return [names.use(f"x{element}")]


def _whole_key(plan: Plan, names: Names) -> str:
    parts = [f"array[{names.use('i0')}]"]
    for element in range(1, 2 * len(plan.edges), 2):
        if _shape(plan, element) is Shape.EDGE:
            keys = [*_element_key(plan, names, element), *_element_key(plan, names, element + 1)]
            parts.append(f"array[{', '.join(keys)}]")
        else:
            parts.append(f"{names.use(f'x{element}')}[2:]")
    return " || ".join(parts)


def _aggregate(plan: Plan, names: Names, column: Column, function: Aggregate) -> str:
    if column.property is None:
        return _count(plan, names, column.element, function)
    value, kind = names.use(names.value(column.property)), column.property.type
    match function:
        case Aggregate.COUNT:
            return f"count({value})"
        case Aggregate.COUNT_DISTINCT:
            return f"count(distinct {value})"
        case Aggregate.MIN:
            return f"bool_and({value})" if kind is PropertyType.BOOLEAN else f"min({value})"
        case Aggregate.MAX:
            return f"bool_or({value})" if kind is PropertyType.BOOLEAN else f"max({value})"
        case Aggregate.SUM:
            return f"coalesce(sum({value}), 0)::{'bigint' if kind is PropertyType.INT64 else 'float8'}"
        case Aggregate.AVG:
            return f"sum({value})::float8 / nullif(count({value}), 0)"


def _count(plan: Plan, names: Names, element: int | None, function: Aggregate) -> str:
    if function is Aggregate.COUNT:
        return "count(*)"
    if element is None:
        return "least(count(*), 1)"
    path = _shape(plan, element) is Shape.PATH
    return f"count(distinct {_element_key(plan, names, element)[0] if path else _element(plan, names, element)[0]})"

"""Plans as single Cypher statements of Neo4j 5, over graphs as `Neo4jGraph` writes them.

What Cypher cannot do by our definitions is left to whoever has the matches, and then the statement returns those: conditions
with REGEX, since Java's syntax is another one than RE2's, and those by which a text would be ordered wrongly
(`cypher_terms.residual`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.graphtools.cypher_terms import HIDDEN, LARGEST, Terms, name_of, properties_of, residual
from pipeline.graphtools.execution import Bounds
from pipeline.graphtools.plan import Column, Order, Plan, Property
from pipeline.graphtools.query import Aggregate, Direction
from pipeline.graphtools.values import conjuncts
from schemas.exposed import PropertyType

_MOST = 2**60
"""Matches that nobody reaches; sums with it stay within 64 bits."""

_HALF = 2**32
"""A sum of whole numbers is taken in two parts, since the server's own would silently become a DOUBLE."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A reading statement and its parameters. Each record has a `row`: of the result or, with `matches`, a match.

    Records of the result also say whether matches were left out of account (`cut`), and the `last` one is no row but says
    only that. Of matches there is one more than the steps where there are more; `names` says which properties come with each
    element of the pattern, in place of all of them (None).
    """

    text: str
    parameters: Mapping[str, Any]
    matches: bool
    names: tuple[tuple[str, ...] | None, ...] = ()


def cypher(plan: Plan, graph_id: str, bounds: Bounds, *, name_starts: bool = False) -> Statement:
    """Return the statement that answers a plan from a graph, by way of the `name_starts` of its entities if all have one.

    Raises:
        InvalidRequest: a text holds half a character.
    """
    return _Compiler(plan, graph_id, bounds, name_starts).statement()


@dataclass(frozen=True, slots=True)
class _Trail:
    """Several edges in a row: the variable of the node before them, and the list of them."""

    start: str
    edges: str

    def key(self) -> list[str]:
        ends = "[startNode(r).entity_id, r.type, endNode(r).entity_id]"
        return [f"{self.start}.entity_id", f"[r IN {self.edges} | {ends}]"]

    def cell(self) -> str:
        step = "CASE WHEN startNode(r) = last(seen) THEN endNode(r) ELSE startNode(r) END"
        nodes = f"reduce(seen = [{self.start}], r IN {self.edges} | seen + [{step}])"
        return f"[[n IN {nodes} | properties(n)], [r IN {self.edges} | {_edge('r')}]]"


class _Compiler:
    """The work on one plan. Elements are called `v0`, `e1`, `v2`, … by their places, columns `c0`, `c1`, …"""

    def __init__(self, plan: Plan, graph_id: str, bounds: Bounds, name_starts: bool) -> None:
        self._plan = plan
        self._terms = Terms(plan)
        asked = conjuncts(plan.where)
        self._residual = any(map(residual, asked))
        self._match = self._terms.match([one for one in asked if not residual(one)], name_starts)
        self._steps = min(bounds.steps, _MOST)
        page = {"offset": min(bounds.offset, max(self._steps, 1)), "rows": bounds.rows}
        self._bounds = {"graph_id": graph_id, "steps": self._steps, **page}

    def statement(self) -> Statement:
        if self._residual:
            return self._matches()
        plain = not self._plan.aggregated and not self._plan.distinct
        carried, lines = self._plain() if plain else self._grouped() if self._plan.aggregated else self._distinct()
        doubt = "size(page) = $rows OR $offset + size(page) >= $steps" if plain else "seen >= $steps"
        known = "page" if plain else "seen"
        unpacked = [f"page[place][{at}] AS {name}" for at, name in enumerate(carried)]
        cells = ", ".join(map(self._cell, range(len(self._plan.columns)), self._plan.columns))
        lines = [
            *self._match,
            *lines,
            f"CALL ({known}) {{",
            f"WITH {known} WHERE {doubt}",
            *self._match,
            "WITH 1 AS one SKIP $steps LIMIT 1",
            "RETURN count(*) > 0 AS cut",
            "}",
            "UNWIND range(0, size(page)) AS place",
            f"WITH {', '.join(['place', 'size(page) AS size', 'cut', *unpacked])}",
            f"RETURN [{cells}] AS row, cut, place = size AS last ORDER BY place",
        ]
        return Statement("\n".join(lines), self._terms.parameters | self._bounds, matches=False)

    def _matches(self) -> Statement:
        """Return the statement for all matches, with what there is to know of them."""
        elements = self._elements()
        names = tuple(map(self._used, range(len(elements))))
        cells = [self._matched(place, found) for place, found in enumerate(names)]
        more = {"graph_id": self._bounds["graph_id"], "steps": self._steps + 1}
        lines = [*self._match, f"WITH {', '.join(elements)} LIMIT $steps", f"RETURN [{', '.join(cells)}] AS row"]
        return Statement("\n".join(lines), self._terms.parameters | more, matches=True, names=names)

    # Rows. Each way to make them returns the names that a row carries, and the lines that end with a `page` of rows.

    def _plain(self) -> tuple[list[str], list[str]]:
        elements = self._elements()
        carried = ", ".join(elements)
        keys = [key for order in self._plan.order for key in self._sorted(order)] + self._total()
        return elements, [
            f"WITH {carried} LIMIT $steps",
            f"WITH {carried} ORDER BY {', '.join(keys)} SKIP $offset LIMIT $rows",
            f"WITH collect([{carried}]) AS page",
        ]

    def _distinct(self) -> tuple[list[str], list[str]]:
        wanted: dict[str, str] = {}
        for place, column in enumerate(self._plan.columns):
            wanted |= self._identity(place, column)
        keys = [key for order in self._plan.order for key in self._sorted(order)]
        keys += [key for place in range(len(self._plan.columns)) for key in self._of(place)]
        return list(wanted), [
            f"WITH {_listed(wanted)} LIMIT $steps",
            f"WITH {', '.join(wanted)}, count(*) AS weight ORDER BY {', '.join(keys)}",
            *_paged(wanted),
        ]

    def _identity(self, place: int, column: Column) -> dict[str, str]:
        """Return what makes a column's value another one, by names, and holds all that is shown of it."""
        if column.property:
            return {f"c{place}": self._terms.value(column.property)}
        if trail := self._trail(column):
            return {trail.start: trail.start, f"c{place}": trail.edges}
        name = name_of(column.element or 0)
        return {name: name}

    def _grouped(self) -> tuple[list[str], list[str]]:
        plan = self._plan
        groups = {f"g{number}": self._terms.value(one) for number, one in enumerate(plan.groups)}
        taken = {f"x{place}": text for place, one in enumerate(plan.columns) if (text := self._taken(one))}
        parts = [part for place, one in enumerate(plan.columns) if one.aggregate for part in _parts(place, one)]
        columns = {f"c{place}": self._result(place, one) for place, one in enumerate(plan.columns)}
        keys = [key for order in plan.order for key in self._sorted(order)]
        lines = [
            f"WITH {_listed({**groups, **taken} or {'one': '1'})} LIMIT $steps",
            f"WITH {', '.join([*groups, *parts, 'count(*) AS weight'])}",
            f"WITH {', '.join([*groups, _listed(columns), 'weight'])}",
        ]
        last = list(groups)
        if plan.distinct and groups:
            lines[-1] += f" ORDER BY {', '.join(groups)}"
            lines.append(
                f"WITH {', '.join(columns)}, head(collect([{', '.join(groups)}])) AS first, sum(weight) AS weight"
            )
            last = [f"first[{number}]" for number in range(len(groups))]
        if keys + last:
            lines.append(f"WITH {', '.join(columns)}, weight ORDER BY {', '.join(keys + last)}")
        return list(columns), [*lines, *_paged(columns)]

    def _taken(self, column: Column) -> str:
        """Return what an aggregate takes of a match, nothing if that does not matter."""
        if column.aggregate is None:
            return ""
        if column.property:
            return self._terms.value(column.property)
        if column.aggregate is Aggregate.COUNT or column.element is None:
            return ""
        trail = self._trail(column)
        return f"[{trail.start}] + {trail.edges}" if trail else name_of(column.element)

    def _result(self, place: int, column: Column) -> str:
        """Return a column of a group, from the parts of its aggregate."""
        if column.aggregate is None:
            return f"g{self._plan.groups.index(column.property)}" if column.property in self._plan.groups else "null"
        whole = column.property is not None and column.property.type is PropertyType.INT64
        match column.aggregate:
            case Aggregate.SUM if whole:
                low = f"(b{place} % {_HALF} + {_HALF}) % {_HALF}"
                return f"(a{place} + (b{place} - {low}) / {_HALF}) * {_HALF} + {low}"
            case Aggregate.AVG if whole:
                total = f"toFloat(a{place}) * {_HALF}.0 + toFloat(b{place})"
                return f"CASE WHEN n{place} > 0 THEN ({total}) / n{place} END"
            case Aggregate.SUM:
                return _finite(place)
            case Aggregate.AVG:
                return f"CASE WHEN n{place} > 0 THEN {_finite(place)} / n{place} END"
            case _:
                return f"a{place}"

    # Order.

    def _sorted(self, order: Order) -> list[str]:
        by = order.by
        if isinstance(by, Property) and self._plan.distinct:
            by = [None if one.aggregate else one.property for one in self._plan.columns].index(by)
        if isinstance(by, int):
            keys = self._of(by)
        elif self._plan.aggregated:
            keys = [f"g{self._plan.groups.index(by)}"]
        else:
            keys = [self._terms.value(by)]
        return [f"{key} DESC" for key in keys] if order.descending else keys

    def _of(self, place: int) -> list[str]:
        """Return the keys of a column."""
        column, plan = self._plan.columns[place], self._plan
        if column.property or column.aggregate:
            merged = plan.aggregated or plan.distinct or column.property is None
            return [f"c{place}"] if merged else [self._terms.value(column.property)] if column.property else []
        if trail := self._trail(column):
            return _Trail(trail.start, f"c{place}" if plan.distinct else trail.edges).key()
        name = name_of(column.element or 0)
        return _edge_key(name) if name[0] == "e" else [f"{name}.entity_id"]

    def _total(self) -> list[str]:
        """Return the ids of all elements, from left to right, without those that follow from others before them."""
        keys = ["v0.entity_id"]
        for number, edge in enumerate(self._plan.edges):
            name, after = f"e{2 * number + 1}", f"v{2 * number + 2}.entity_id"
            if not edge.one:
                keys.append(_Trail("", name).key()[1])
            elif edge.direction is Direction.BOTH:
                keys += _edge_key(name)
            else:
                keys += [f"{name}.type", after] if edge.direction is Direction.OUT else [after, f"{name}.type"]
        return keys

    # What is returned.

    def _cell(self, place: int, column: Column) -> str:
        merged = self._plan.aggregated or self._plan.distinct
        if column.property or column.aggregate:
            return self._terms.shown(column.property) if column.property and not merged else f"c{place}"
        if trail := self._trail(column):
            return _Trail(trail.start, f"c{place}").cell() if merged else trail.cell()
        name = name_of(column.element or 0)
        return _edge(name) if name[0] == "e" else f"properties({name})"

    def _matched(self, place: int, names: tuple[str, ...] | None) -> str:
        """Return an element of a match: whole, or with some of its properties."""
        name = name_of(place)
        if place % 2 and not self._plan.edges[place // 2].one:
            return _Trail(name_of(place - 1), name).cell()
        if names is None:
            return _edge(name) if place % 2 else f"properties({name})"
        some = f"[k IN {self._terms.bound(list(names))} | {name}[k]]"
        return f"[{', '.join(_edge_key(name))}, {some}]" if place % 2 else f"[{name}.entity_id, {name}.type, {some}]"

    def _used(self, place: int) -> tuple[str, ...] | None:
        """Return the properties of an element that the plan names; None if it is shown, and so are all."""
        plan = self._plan
        shown = [column.element for column in plan.columns if not column.property and not column.aggregate]
        if place in shown or None in shown:
            return None
        keys = [order.by for order in plan.order if isinstance(order.by, Property)]
        columns = [column.property for column in plan.columns if column.property]
        used = [*columns, *plan.groups, *keys, *properties_of(plan.where)]
        names = dict.fromkeys(one.stored for one in used if one.element == place)
        return tuple(name for name in names if name not in HIDDEN[place % 2])

    def _trail(self, column: Column) -> _Trail | None:
        """Return what a column shows, if that is a path or an edge of several hops."""
        if column.element is None:
            lists = [f"[e{2 * n + 1}]" if edge.one else f"e{2 * n + 1}" for n, edge in enumerate(self._plan.edges)]
            return _Trail("v0", " + ".join(lists or ["[]"]))
        if column.element % 2 and not self._plan.edges[column.element // 2].one:
            return _Trail(name_of(column.element - 1), name_of(column.element))
        return None

    def _elements(self) -> list[str]:
        return list(map(name_of, range(len(self._plan.nodes) + len(self._plan.edges))))


def _edge(name: str) -> str:
    return f"[{', '.join(_edge_key(name))}, properties({name})]"


def _edge_key(name: str) -> list[str]:
    return [f"startNode({name}).entity_id", f"{name}.type", f"endNode({name}).entity_id"]


def _listed(columns: Mapping[str, str]) -> str:
    return ", ".join(name if name == text else f"{text} AS {name}" for name, text in columns.items())


def _paged(carried: Iterable[str]) -> list[str]:
    """Return the end of rows that stand for several matches each, whose number was `weight`."""
    return [
        f"WITH collect([{', '.join(carried)}]) AS found, sum(weight) AS seen",
        "WITH found[$offset..$offset + $rows] AS page, seen",
    ]


def _parts(place: int, column: Column) -> list[str]:
    """Return what is aggregated for a column."""
    taken, function = f"x{place}", column.aggregate
    match function:
        case Aggregate.SUM | Aggregate.AVG if column.property and column.property.type is PropertyType.INT64:
            parts = {"a": f"sum({taken} / {_HALF})", "b": f"sum({taken} % {_HALF})", "n": f"count({taken})"}
        case Aggregate.SUM | Aggregate.AVG:
            parts = {"a": f"toFloat(sum({taken}))", "n": f"count({taken})"}
        case Aggregate.COUNT_DISTINCT:
            parts = {"a": f"count(DISTINCT {taken if column.property or column.element is not None else 'true'})"}
        case Aggregate.COUNT:
            parts = {"a": f"count({taken})" if column.property else "count(*)"}
        case _:
            parts = {"a": f"{function.lower() if function else ''}({taken})"}
    return [f"{text} AS {letter}{place}" for letter, text in parts.items()]


def _finite(place: int) -> str:
    """Return a sum of DOUBLE. The server fails on one that is none, as on one of whole numbers beyond 64 bits."""
    total = f"a{place}"
    return f"CASE WHEN abs({total}) <= {LARGEST} THEN {total} ELSE {2**63 - 1} + n{place} END"

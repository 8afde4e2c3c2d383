"""What a plan asks for, in Cypher: its pattern, its conditions and the values of its properties.

Nothing that was stored or asked for stands in a text: values, types and names of properties are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from pipeline.errors import InvalidRequest
from pipeline.graphs.columns import ENTITY_COLUMNS, RELATION_COLUMNS, name_start
from pipeline.graphtools.plan import Both, Condition, EdgePlan, Not, Plan, Predicate, Property
from pipeline.graphtools.query import Direction, Joining, Operator
from pipeline.graphtools.values import DATE_FORM, DATETIME_FORM, FULL, comparable
from schemas.exposed import PropertyType
from schemas.graph import Scalar

NODE_COLUMNS = {"name": PropertyType.STRING, "description": PropertyType.STRING} | dict.fromkeys(
    ("mentions", "chunks"), PropertyType.INT64
)
"""The columns of an entity that a plan can name, and what they always are."""

EDGE_COLUMNS = {"weight": None, "evidence": PropertyType.INT64}
"""Those of a relation; a weight may have been written as either kind of number."""

HIDDEN = ENTITY_COLUMNS - NODE_COLUMNS.keys(), RELATION_COLUMNS - EDGE_COLUMNS.keys()
"""Properties in the store that are none of a node's (0) or an edge's (1)."""

LARGEST = "1.7976931348623157e308"
"""The greatest DOUBLE."""

_HIGH = re.compile("[\ud800-\U0010ffff]")
_NO_TEXT = re.compile("[\ud800-\udfff]")

_ORDERINGS = frozenset({Operator.GT, Operator.GE, Operator.LT, Operator.LE, Operator.BETWEEN})
_TEXTS = frozenset({Operator.CONTAINS, Operator.STARTS_WITH, Operator.ENDS_WITH, Operator.REGEX})
_SIMPLE = {
    PropertyType.STRING: "STRING",
    PropertyType.BOOLEAN: "BOOLEAN",
    PropertyType.INT64: "INTEGER",
}


_Argument = Scalar | Sequence[Scalar | None] | None


class Terms:
    """The terms of one plan, and the parameters that they need. Elements are called `v0`, `e1`, `v2`, … by their places."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names: dict[str | tuple[str, ...], str] = {}
        self.parameters: dict[str, Any] = {}

    def match(self, asked: Sequence[Condition], name_starts: bool) -> list[str]:
        """Return the lines that find all matches of which these conditions are true, within the graph `$graph_id`.

        With `name_starts`, names that are asked for are also looked up by those, which have an index.
        """
        conditions = [*self._typed(), *map(self._condition, asked)]
        if name_starts:
            conditions += [self._start(*found) for one in asked if (found := by_name(one))]
        return [f"MATCH {self._pattern()}", f"WHERE {' AND '.join(conditions)}"]

    def _pattern(self) -> str:
        parts = ["(v0:SapwoodEntity {graph_id: $graph_id})"]
        for number, edge in enumerate(self._plan.edges):
            hops = "" if edge.one else f"*{edge.least}..{edge.most}"
            left = "<-" if edge.direction is Direction.IN else "-"
            right = "->" if edge.direction is Direction.OUT else "-"
            parts.append(f"{left}[e{2 * number + 1}:RELATES{hops} {{graph_id: $graph_id}}]{right}")
            parts.append(f"(v{2 * number + 2}:SapwoodEntity {{graph_id: $graph_id}})")
        return "".join(parts)

    def _typed(self) -> Iterator[str]:
        for number, node in enumerate(self._plan.nodes):
            yield self._is(f"v{2 * number}.type", node.types)
        for number, edge in enumerate(self._plan.edges):
            name = f"e{2 * number + 1}"
            if edge.one:
                yield self._of_a_kind(edge, name, *self._ends(number))
            else:
                scope = "startNode(r).graph_id = $graph_id AND endNode(r).graph_id = $graph_id"
                ends = ("startNode(r)", frozenset[str]()), ("endNode(r)", frozenset[str]())
                yield f"all(r IN {name} WHERE {self._of_a_kind(edge, 'r', *ends)} AND {scope})"

    def _ends(self, number: int) -> list[tuple[str, Set[str]]]:
        """Return the source and the target of a single edge, each with the types that it is known to have."""
        places = number, number + 1
        types = [self._plan.nodes[place].types for place in places]
        if self._plan.edges[number].direction is Direction.BOTH:
            either = types[0] | types[1]
            return [(f"startNode(e{2 * number + 1})", either), (f"endNode(e{2 * number + 1})", either)]
        ends: list[tuple[str, Set[str]]] = [
            (f"v{2 * place}", known) for place, known in zip(places, types, strict=True)
        ]
        return ends if self._plan.edges[number].direction is Direction.OUT else ends[::-1]

    def _of_a_kind(self, edge: EdgePlan, name: str, source: tuple[str, Set[str]], target: tuple[str, Set[str]]) -> str:
        alike: dict[tuple[str, ...], list[str]] = {}
        for kind in edge.kinds:
            ends = ((source, kind.sources), (target, kind.targets))
            needed = [self._is(f"{end}.type", types) for (end, known), types in ends if not known or not known <= types]
            alike.setdefault(tuple(needed), []).append(kind.stored)
        ways = [" AND ".join([self._is(f"{name}.type", kinds), *needed]) for needed, kinds in alike.items()]
        return ways[0] if len(ways) == 1 else f"any(x IN [{', '.join(ways)}] WHERE x)"

    def _is(self, text: str, types: Iterable[str]) -> str:
        found = sorted(types)
        return f"{text} = {self._named(found[0])}" if len(found) == 1 else f"{text} IN {self._named(tuple(found))}"

    def _condition(self, condition: Condition) -> str:
        """Return a condition without AND, OR and NOT: the planner's normal form of these may be exponentially long."""
        match condition:
            case Not(inner):
                return f"({self._condition(inner)} = false)"
            case Both(joining):
                each = ", ".join(map(self._condition, _joined(condition)))
                return f"{'all' if joining is Joining.AND else 'any'}(x IN [{each}] WHERE x)"
            case Predicate():
                return f"({self._predicate(condition)})"

    def _predicate(self, predicate: Predicate) -> str:
        asked, operator, kind = predicate.property, predicate.operator, predicate.property.type
        if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
            return f"{self.value(asked)} {operator}"
        values = [comparable(value, kind) for value in predicate.values]
        if operator in _TEXTS and (kind is not PropertyType.STRING or values == [None]):
            return "null"
        value = self.value(asked)
        match operator:
            case Operator.BETWEEN:
                return f"{self.bound(values[0])} <= {value} <= {self.bound(values[1])}"
            case Operator.NOT_IN:
                return f"NOT {value} IN {self.bound(values)}"
            case Operator.IN:
                return f"{value} IN {self.bound(values)}"
            case _:
                return f"{value} {operator} {self.bound(values[0])}"

    def _start(self, node: int, operator: Operator, names: Sequence[str]) -> str:
        starts = list(dict.fromkeys(map(name_start, names)))
        return f"{name_of(node)}.name_start {operator} {self.bound(starts if operator is Operator.IN else starts[0])}"

    def bound(self, value: _Argument) -> str:
        """Return a new parameter for a value. Raises InvalidRequest."""
        texts = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        if any(isinstance(text, str) and _NO_TEXT.search(text) for text in texts):
            raise InvalidRequest("A text holds half a character, which the graph store cannot take.")
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"${name}"

    def _named(self, value: str | tuple[str, ...]) -> str:
        """Return the parameter for names or types: always the same one for the same, so that it is the same term."""
        if value not in self._names:
            self._names[value] = self.bound(value)
        return self._names[value]

    def _stored(self, wanted: Property) -> str:
        edge = wanted.element % 2
        if wanted.stored in HIDDEN[edge] or (edge and not self._plan.edges[wanted.element // 2].one):
            return "null"
        own = wanted.stored in (EDGE_COLUMNS if edge else NODE_COLUMNS)
        return f"{name_of(wanted.element)}{f'.{wanted.stored}' if own else f'[{self._named(wanted.stored)}]'}"

    def shown(self, wanted: Property) -> str:
        """Return a property as it is shown: null where it is not of its type."""
        stored, kind = self._stored(wanted), wanted.type
        if stored == "null" or kind is (EDGE_COLUMNS if wanted.element % 2 else NODE_COLUMNS).get(wanted.stored):
            return stored
        match kind:
            case PropertyType.DOUBLE:  # minus zero becomes zero
                return f"CASE WHEN -{LARGEST} <= {stored} <= {LARGEST} THEN toFloat({stored}) + 0.0 END"
            case PropertyType.DATE:
                return f"CASE WHEN {stored} =~ {self._named(DATE_FORM)} THEN {stored} END"
            case PropertyType.DATETIME:
                return f"CASE WHEN {stored} =~ {self._named(DATETIME_FORM)} THEN {stored} END"
            case _:
                return f"CASE WHEN {stored} IS :: {_SIMPLE[kind]} NOT NULL THEN {stored} END"

    def value(self, wanted: Property) -> str:
        """Return a property as it is compared: like `shown`, but DATETIME in its full form."""
        value = self.shown(wanted)
        if wanted.type is not PropertyType.DATETIME or value == "null":
            return value
        stored = self._stored(wanted)
        full = f"left({stored} + substring({self._named(FULL)}, size({stored})), {len(FULL)})"
        return f"CASE WHEN {stored} =~ {self._named(DATETIME_FORM)} THEN {full} END"


def name_of(place: int) -> str:
    """Return the variable of an element."""
    return f"e{place}" if place % 2 else f"v{place}"


def properties_of(condition: Condition | None) -> Iterator[Property]:
    """Yield the properties that a condition names."""
    return (predicate.property for predicate in _predicates(condition))


def by_name(condition: Condition) -> tuple[int, Operator, list[str]] | None:
    """Return the node whose name must be one of these (IN) or this one (EQ) for a condition to be true, if it is of that kind."""
    match condition:
        case Predicate(Property(node, "name", PropertyType.STRING), Operator.EQ | Operator.IN as operator, values):
            names = [value for value in values if isinstance(value, str)]
            return (node, operator, names) if names and node % 2 == 0 else None
        case _:
            return None


def residual(condition: Condition) -> bool:
    """Whether the server would answer a condition otherwise than we do.

    It compares what is stored by code points, but with a parameter by UTF-16: these differ only from U+D800 on.
    """
    return any(map(_own, _predicates(condition)))


def _own(predicate: Predicate) -> bool:
    if predicate.property.type is not PropertyType.STRING:
        return False
    texts = [value for value in predicate.values if isinstance(value, str)]
    if predicate.operator is Operator.REGEX:
        return bool(texts)
    return predicate.operator in _ORDERINGS and any(map(_HIGH.search, texts))


def _joined(condition: Both) -> list[Condition]:
    """Return the conditions of a chain of one joining, so that it nests no deeper than it must."""
    found: list[Condition] = []
    left: list[Condition] = [condition]
    while left:
        one = left.pop()
        if isinstance(one, Both) and one.joining is condition.joining:
            left += (one.right, one.left)
        else:
            found.append(one)
    return found


def _predicates(condition: Condition | None) -> Iterator[Predicate]:
    left = [condition] if condition else []
    while left:
        match left.pop():
            case Not(inner):
                left.append(inner)
            case Both(_, first, second):
                left += (second, first)
            case Predicate() as predicate:
                yield predicate

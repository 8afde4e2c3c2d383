"""Random schemas, graphs and queries for stores that answer portable MATCH, and texts of the queries.

Doubles are few and short in binary, so that every store adds them to the same sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

from hypothesis import strategies as st

from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.execution import MatchExecutor
from pipeline.graphtools.query import (
    Aggregate,
    Condition,
    Direction,
    EdgePattern,
    GroupKey,
    Joining,
    Junction,
    Negation,
    NodePattern,
    Operator,
    Predicate,
    Projection,
    PropertyPattern,
    Query,
    SortKey,
    Step,
    Value,
)
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType
from schemas.graph import Entity, Relation, Scalar
from schemas.ids import EntityNo


class MatchStore(Protocol):
    """Keeps graphs, and answers plans from them."""

    @property
    def executor(self) -> MatchExecutor:
        """What answers."""
        ...

    async def load(self, entities: Sequence[Entity], relations: Sequence[Relation]) -> GraphRef:
        """Keep a graph of its own, beside all others, and return its name."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """A graph, parts of which a schema may not expose."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]


TYPES = ("person", "a b", "Ärztin", "x'); --", "hidden")
RELATIONS = ("knows", "works at", "владеет", "knows", "works at", "hidden")

TEXTS = (
    "",
    "a",
    "A",
    "ab",
    "b",
    "é",
    "e\u0301",
    "\uffff",
    "\U0001f600",
    "a\nb",
    "%",
    "_",
    "\\",
    "1",
    "true",
    "ß",
    "ab'c",
    "n" * 99 + "\U0001f600a",
    "n" * 99 + "\U0001f600b",
)
"""The last two differ only where an index of names no longer looks."""

INTEGERS = (0, 1, -1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
DOUBLES = (0.0, 0.5, -1.5, 2.0, 3.25, -0.25, 1e15, 1, -2)
DATES = ("2020-01-01", "2020-02-29", "1999-12-31", "2020-1-1", "2020-13-01", "2020-01-01\n")
MOMENTS = (
    "2020-01-01T10:00",
    "2020-01-01T10:00:00",
    "2020-01-01T10:00:00.5",
    "2020-01-01T10:00:00.500000000",
    "2020-01-01T10:00:00.1234567891",
    "2020-01-01T10:00:00.123456789",
    "2019-06-30T23:59:59",
    "2020-01-01T10",
    "2020-01-01",
)
KINDS = ("red", "green", "blue")

POOLS: dict[str, tuple[Scalar, ...]] = {
    "s": TEXTS,
    "i": INTEGERS,
    "n": (0, 1, 2, 3, 1),
    "d": DOUBLES,
    "b": (True, False),
    "t": DATES,
    "z": MOMENTS,
    "k": (*KINDS, "violet"),
}
"""What properties may be stored, and their values but for those of a wrong type."""

WRONG: tuple[Scalar, ...] = ("a", 1, 1.0, True, 0.5, "2020-01-01")


def exposed(name: str, kind: PropertyType, stored: str = "", *enum: str) -> ExposedProperty:
    """Return a property."""
    return ExposedProperty(name=name, type=kind, stored=stored, enum_values=enum)


EXTRACTED = (
    exposed("text", PropertyType.STRING, "s"),
    exposed("number", PropertyType.INT64, "i"),
    exposed("small", PropertyType.INT64, "n"),
    exposed("double", PropertyType.DOUBLE, "d"),
    exposed("flag", PropertyType.BOOLEAN, "b"),
    exposed("day", PropertyType.DATE, "t"),
    exposed("moment", PropertyType.DATETIME, "z"),
    exposed("kind", PropertyType.STRING, "k", *KINDS),
    exposed("wrong", PropertyType.INT64, "s"),
)
OF_NODES = (
    exposed("name", PropertyType.STRING),
    exposed("mentions", PropertyType.INT64),
    exposed("chunks", PropertyType.DOUBLE),
    exposed("about", PropertyType.STRING, "description"),
    exposed("born", PropertyType.DATE, "name"),
)
OF_EDGES = (
    exposed("weight", PropertyType.DOUBLE),
    exposed("evidence", PropertyType.INT64),
    exposed("heavy", PropertyType.INT64, "weight"),
)


@st.composite
def schemas(draw: st.DrawFn) -> GraphSchema:
    """Draw a schema whose labels share stored types."""
    labels = [
        NodeType(
            label=label,
            stored=tuple(draw(st.lists(st.sampled_from(TYPES[:4]), min_size=2, max_size=4, unique=True))),
            properties=_some(draw, OF_NODES + EXTRACTED),
        )
        for label in ("A", "B", "C")[: draw(st.integers(1, 3))]
    ]
    ends = st.sampled_from([None, None, None, *(label.label for label in labels)])
    order = RELATIONS[:3]
    stored = [order[:2], order[2:]] if draw(st.booleans()) else [order[:1], order[1:2]]
    edges = [
        EdgeType(
            type=name,
            stored=tuple(types),
            source_label=draw(ends),
            target_label=draw(ends),
            properties=_some(draw, OF_EDGES + EXTRACTED),
        )
        for name, types in zip("RS", stored, strict=True)
    ]
    return GraphSchema(node_types=tuple(labels), edge_types=tuple(edges))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a small graph."""
    entities = tuple(_entity(draw, number) for number in range(draw(st.integers(1, 5))))
    numbers = st.sampled_from([one.entity_no for one in entities])
    triples = draw(
        st.lists(st.tuples(numbers, st.sampled_from(RELATIONS), numbers), min_size=3, max_size=12, unique=True)
    )
    relations = tuple(
        Relation(source, target, kind, draw(st.sampled_from([0.5, 0.25, 1.0])), draw(st.integers(1, 3)), _stored(draw))
        for source, kind, target in triples
    )
    return World(entities, relations)


def _some(draw: st.DrawFn, pool: Sequence[ExposedProperty]) -> tuple[ExposedProperty, ...]:
    return tuple(draw(st.lists(st.sampled_from(pool), min_size=3, max_size=8, unique=True)))


def _entity(draw: st.DrawFn, number: int) -> Entity:
    """Draw an entity; the order of the numbers is not that of the public ids."""
    kind, name = draw(st.sampled_from((*TYPES[:4], *TYPES))), draw(st.sampled_from(TEXTS + DATES[:2]))
    public = f"{draw(st.sampled_from(['a', 'B', 'é', chr(0x1F600), chr(0xFFFD)]))}:{number}"
    mentions, chunks = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return Entity(EntityNo(100 - number), public, kind, name, name, "about", mentions, chunks, _stored(draw))


def _stored(draw: st.DrawFn) -> dict[str, Scalar]:
    names = draw(st.lists(st.sampled_from(tuple(POOLS)), max_size=6, unique=True))
    return {name: draw(st.sampled_from((*POOLS[name], *POOLS[name], *WRONG))) for name in names}


@st.composite
def queries(draw: st.DrawFn, schema: GraphSchema) -> Query:
    """Draw a query that a schema mostly allows. A match has four hops at most."""
    labels, types = [one.label for one in schema.node_types], [one.type for one in schema.edge_types]
    steps, left = list[Step](), 4
    one_or_two = st.lists(
        st.sampled_from(labels), min_size=1, max_size=2 if draw(st.integers(0, 3)) == 0 else 1, unique=True
    )
    start = NodePattern("n0", tuple(draw(one_or_two)))
    length = draw(st.sampled_from([0, 1, 1, 2, 2, 3]))
    for number in range(1, length + 1):
        most = draw(st.sampled_from([1, 1, min(2, left - length + number), left - length + number]))
        least = draw(st.integers(1, most))
        left -= most
        chosen = tuple(draw(st.lists(st.sampled_from(types), min_size=1, max_size=2, unique=True)))
        edge = EdgePattern(f"e{number}", chosen, (), draw(st.sampled_from((*Direction, Direction.BOTH))), least, most)
        steps.append(Step(edge, NodePattern(f"n{number}", tuple(draw(one_or_two)))))
    found = Query(start, tuple(steps), ())
    known = properties_of(found, schema)
    if known and draw(st.integers(0, 3)) == 0:
        alias, one = draw(st.sampled_from(known))
        found = _with_inline(found, alias, PropertyPattern(one.name, value(draw, one)))
    where = condition(draw, known) if bool(known) and draw(st.booleans()) else None
    return _returning(draw, replace(found, where=where), known)


Known = list[tuple[str, ExposedProperty]]


def properties_of(query: Query, schema: GraphSchema) -> Known:
    """Return the properties of each alias that the language knows of it."""
    nodes, edges = {one.label: one for one in schema.node_types}, {one.type: one for one in schema.edge_types}
    known: Known = []
    for node in query.nodes:
        declared = {one.name: one for label in node.labels for one in nodes[label].properties}
        known += [(node.alias, one) for one in declared.values()]
    for edge in query.edges:
        of_all = [
            one
            for one in edges[edge.types[0]].properties
            if all(one in edges[other].properties for other in edge.types)
        ]
        known += [(edge.alias, one) for one in of_all if edge.one]
    return known


def _with_inline(query: Query, alias: str, pattern: PropertyPattern) -> Query:
    def node(one: NodePattern) -> NodePattern:
        return replace(one, properties=(pattern,)) if one.alias == alias else one

    def edge(one: EdgePattern) -> EdgePattern:
        return replace(one, properties=(pattern,)) if one.alias == alias else one

    steps = tuple(Step(edge(step.edge), node(step.node)) for step in query.steps)
    return replace(query, start=node(query.start), steps=steps)


SINGLE = (Operator.EQ, Operator.NE, Operator.GT, Operator.GE, Operator.LT, Operator.LE)
NULLS = (Operator.IS_NULL, Operator.IS_NOT_NULL)
PARTS = (Operator.CONTAINS, Operator.STARTS_WITH, Operator.ENDS_WITH)
COUNTED = (Aggregate.COUNT, Aggregate.COUNT_DISTINCT, Aggregate.MIN, Aggregate.MAX)
PATTERNS = ("", ".*", "(?s).*", "a.*", "[ab]+", "(?i)A", "\\p{L}", ".", "^a$", "é|ß", "%", None)
ASKED: dict[PropertyType, tuple[Value, ...]] = {
    PropertyType.STRING: TEXTS,
    PropertyType.INT64: INTEGERS,
    PropertyType.DOUBLE: DOUBLES,
    PropertyType.BOOLEAN: (True, False),
    PropertyType.DATE: DATES[:3],
    PropertyType.DATETIME: MOMENTS[:7],
}


def value(draw: st.DrawFn, one: ExposedProperty) -> Value:
    """Draw a value that a property takes, mostly such as are stored."""
    pool = one.enum_values or ASKED[one.type]
    return draw(st.sampled_from((*pool, *pool, None)))


def condition(draw: st.DrawFn, known: Known, left: int = 2) -> Condition:
    """Draw a condition of up to four predicates."""
    match draw(st.integers(0, 4)) if left else 4:
        case 0:
            return Negation(condition(draw, known, left - 1))
        case 1 | 2:
            joining = draw(st.sampled_from(Joining))
            return Junction(joining, condition(draw, known, left - 1), condition(draw, known, left - 1))
        case _:
            return predicate(draw, *draw(st.sampled_from(known)))


def predicate(draw: st.DrawFn, alias: str, one: ExposedProperty) -> Predicate:
    """Draw a predicate of a property."""
    text = one.type is PropertyType.STRING
    given: tuple[Value, ...] = ()
    match draw(st.integers(0, 5 if text else 3)):
        case 0:
            operator, given = draw(st.sampled_from(SINGLE)), (value(draw, one),)
        case 1:
            operator = draw(st.sampled_from(NULLS))
        case 2:
            operator = draw(st.sampled_from((Operator.IN, Operator.NOT_IN)))
            given = tuple(value(draw, one) for _ in range(draw(st.integers(1, 3))))
        case 3:
            operator, given = Operator.BETWEEN, (value(draw, one), value(draw, one))
        case 4:
            operator, given = draw(st.sampled_from(PARTS)), (draw(st.sampled_from((*TEXTS, None))),)
        case _:
            operator, given = Operator.REGEX, (draw(st.sampled_from(PATTERNS)),)
    return Predicate(alias, one.name, operator, given)


def _returning(draw: st.DrawFn, query: Query, known: Known) -> Query:
    aliases = [*(node.alias for node in query.nodes), *(edge.alias for edge in query.edges)]
    distinct = draw(st.booleans())
    keys = list[GroupKey]()
    if draw(st.booleans()):
        for alias, one in draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else ():
            keys.append(GroupKey(alias, one.name))
        shown = [Projection("", key.alias, key.name) for key in keys if draw(st.booleans())]
        shown += [_aggregate(draw, aliases, known) for _ in range(draw(st.integers(0 if shown else 1, 3)))]
    else:
        shown = [_plain(draw, aliases, known) for _ in range(draw(st.integers(1, 3)))]
    names = count()
    columns = tuple(replace(one, output=f"c{next(names)}") for one in shown)
    sorts = [SortKey(one.output) for one in columns]
    if not distinct:
        sorts += [SortKey(key.alias, key.name) for key in keys]
        if not any(one.aggregate for one in columns) and not keys:
            sorts += [SortKey(alias, one.name) for alias, one in known]
    order = tuple(
        replace(one, descending=draw(st.booleans())) for one in draw(st.lists(st.sampled_from(sorts), max_size=2))
    )
    return replace(query, projections=columns, distinct=distinct, group=tuple(keys), order=order)


def _plain(draw: st.DrawFn, aliases: list[str], known: Known) -> Projection:
    match draw(st.integers(0, 2 if known else 1)):
        case 0:
            return Projection("")
        case 1:
            return Projection("", draw(st.sampled_from(aliases)))
        case _:
            alias, one = draw(st.sampled_from(known))
            return Projection("", alias, one.name)


def _aggregate(draw: st.DrawFn, aliases: list[str], known: Known) -> Projection:
    match draw(st.integers(0, 3 if known else 1)):
        case 0:
            return Projection("", aggregate=Aggregate.COUNT, rows=True)
        case 1:
            return Projection("", draw(st.sampled_from(aliases)), None, Aggregate.COUNT)
        case _:
            alias, one = draw(st.sampled_from(known))
            numeric = one.type in (PropertyType.INT64, PropertyType.DOUBLE)
            return Projection("", alias, one.name, draw(st.sampled_from(tuple(Aggregate) if numeric else COUNTED)))


@dataclass
class Printer:
    """Writes a query down. With `bound`, all values are parameters."""

    bound: bool
    parameters: dict[str, object] = field(default_factory=dict[str, object])

    def text(self, query: Query) -> str:
        """Return the text of a query without SKIP and LIMIT."""
        words = [
            "MATCH",
            self._node(query.start),
            *(f"{self._edge(one.edge)}{self._node(one.node)}" for one in query.steps),
        ]
        if query.where:
            words += ["WHERE", self._condition(query.where)]
        words += ["RETURN", "DISTINCT"] if query.distinct else ["RETURN"]
        words.append(", ".join(map(_projection, query.projections)))
        if query.group:
            words += ["GROUP BY", ", ".join(f"{key.alias}.{key.name}" for key in query.group)]
        if query.order:
            words += ["ORDER BY", ", ".join(map(_sort, query.order))]
        return " ".join(words)

    def _node(self, node: NodePattern) -> str:
        return f"({node.alias}{''.join(f':{label}' for label in node.labels)}{self._inline(node.properties)})"

    def _edge(self, edge: EdgePattern) -> str:
        hops = "" if edge.one else f"*{edge.least}..{edge.most}"
        inner = f"[{edge.alias}:{'|'.join(edge.types)}{self._inline(edge.properties)}{hops}]"
        before, after = {Direction.OUT: ("-", "->"), Direction.IN: ("<-", "-"), Direction.BOTH: ("-", "-")}[
            edge.direction
        ]
        return f"{before}{inner}{after}"

    def _inline(self, properties: Sequence[PropertyPattern]) -> str:
        inner = ", ".join(f"{one.name}: {self._value(one.value)}" for one in properties)
        return f" {{{inner}}}" if inner else ""

    def _condition(self, condition: Condition) -> str:
        match condition:
            case Negation(inner):
                return f"NOT ({self._condition(inner)})"
            case Junction(joining, left, right):
                return f"({self._condition(left)}) {joining} ({self._condition(right)})"
            case Predicate(alias, name, operator, given):
                shown = [self._value(value) for value in given]
                asked = f"{alias}.{name} {operator}"
                match operator:
                    case Operator.IN | Operator.NOT_IN:
                        return f"{asked} [{', '.join(shown)}]"
                    case Operator.BETWEEN:
                        return f"{asked} {shown[0]} AND {shown[1]}"
                    case _:
                        return " ".join((asked, *shown))

    def _value(self, value: Value) -> str:
        if self.bound:
            name = f"p{len(self.parameters)}"
            self.parameters[name] = value
            return f":{name}"
        match value:
            case None | bool():
                return str(value).upper() if value is not None else "NULL"
            case str():
                escaped = value.replace("\\", "\\\\").replace("'", "\\'")
                return f"'{escaped}'"
            case float():
                return f"{value:f}"
            case int():
                return str(value)


def _projection(shown: Projection) -> str:
    target = (
        "PATH" if shown.path else "*" if shown.rows else f"{shown.alias}.{shown.name}" if shown.name else shown.alias
    )
    match shown.aggregate:
        case None:
            return f"{target} AS {shown.output}"
        case Aggregate.COUNT_DISTINCT:
            return f"COUNT(DISTINCT {target}) AS {shown.output}"
        case function:
            return f"{function}({target}) AS {shown.output}"


def _sort(key: SortKey) -> str:
    by = key.alias if key.name is None else f"{key.alias}.{key.name}"
    return f"{by} DESC" if key.descending else by

"""Random queries of the graph query language, and random ways to write them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from hypothesis import strategies as st

from pipeline.graphtools.build import RESERVED
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

WORDS = (
    "a",
    "Person",
    "order",
    "COUNT",
    "union",
    "create",
    "path",
    "Set",
    "match",
    "is",
    "with",
    "_n0",
    "distinct",
    "x1",
)
NAMES = st.sampled_from(WORDS) | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Value] = TEXTS | INTEGERS | DOUBLES | st.booleans() | st.none()
SPACES = st.sampled_from([" ", "  ", "\n", "\t", "\r\n ", "\u00a0", "\u2003"])

SINGLE = (Operator.EQ, Operator.NE, Operator.GT, Operator.GE, Operator.LT, Operator.LE)
TEXTUAL = (Operator.CONTAINS, Operator.STARTS_WITH, Operator.ENDS_WITH, Operator.REGEX)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Draw a query that makes sense."""
    hops = draw(st.integers(0, 3))
    aliases = draw(st.lists(NAMES, min_size=2 * hops + 1, max_size=2 * hops + 1, unique=True))
    nodes = [NodePattern(alias, draw(labels()), draw(inline())) for alias in aliases[::2]]
    edges = [draw(edge(alias)) for alias in aliases[1::2]]
    whole = [*aliases[::2], *(one.alias for one in edges if one.one)]
    property_ = st.tuples(st.sampled_from(whole), NAMES)
    where = draw(st.none() | conditions(property_))
    group, projections = draw(columns(st.sampled_from(aliases), property_))
    distinct = draw(st.booleans())
    keys = [SortKey(one.output) for one in projections]
    if distinct:
        keys += [SortKey(one.alias, one.name) for one in projections if one.name and one.alias and not one.aggregate]
    elif group or any(one.aggregate for one in projections):
        keys += [SortKey(key.alias, key.name) for key in group]
    else:
        keys.append(SortKey(*draw(property_)))
    order = [
        SortKey(one.alias, one.name, draw(st.booleans())) for one in draw(st.lists(st.sampled_from(keys), max_size=3))
    ]
    if distinct and group:
        shown = {(one.alias, one.name) for one in projections if not one.aggregate}
        order = [one for one in order if one.name is None or (one.alias, one.name) in shown]
    steps = tuple(Step(one, node) for one, node in zip(edges, nodes[1:], strict=True))
    skip, limit = draw(st.none() | st.integers(0, 2**31)), draw(st.none() | st.integers(1, 10_000))
    return Query(nodes[0], steps, projections, where, distinct, group, tuple(order), skip, limit)


def labels() -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(NAMES, max_size=3, unique=True).map(tuple)


def inline() -> st.SearchStrategy[tuple[PropertyPattern, ...]]:
    one = st.builds(PropertyPattern, NAMES, VALUES)
    return st.lists(one, max_size=2, unique_by=lambda one: one.name).map(tuple)


@st.composite
def edge(draw: st.DrawFn, alias: str) -> EdgePattern:
    least = draw(st.integers(1, 3))
    most = draw(st.integers(least, 16))
    if draw(st.booleans()):
        return EdgePattern(alias, draw(labels()), draw(inline()), draw(st.sampled_from(Direction)))
    return EdgePattern(alias, draw(labels()), (), draw(st.sampled_from(Direction)), least, most)


def conditions(property_: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[Condition]:
    lists = st.lists(VALUES, min_size=1, max_size=4).map(tuple)
    leaf = st.one_of(
        st.builds(lambda p, o, v: Predicate(*p, o, (v,)), property_, st.sampled_from(SINGLE), VALUES),
        st.builds(lambda p, o, v: Predicate(*p, o, (v,)), property_, st.sampled_from(TEXTUAL), TEXTS | st.none()),
        st.builds(lambda p, o: Predicate(*p, o), property_, st.sampled_from([Operator.IS_NULL, Operator.IS_NOT_NULL])),
        st.builds(
            lambda p, o, v: Predicate(*p, o, v), property_, st.sampled_from([Operator.IN, Operator.NOT_IN]), lists
        ),
        st.builds(lambda p, v, w: Predicate(*p, Operator.BETWEEN, (v, w)), property_, VALUES, VALUES),
    )
    return st.recursive(
        leaf,
        lambda inner: st.builds(Negation, inner) | st.builds(Junction, st.sampled_from(Joining), inner, inner),
        max_leaves=8,
    )


@st.composite
def columns(
    draw: st.DrawFn, alias: st.SearchStrategy[str], property_: st.SearchStrategy[tuple[str, str]]
) -> tuple[tuple[GroupKey, ...], tuple[Projection, ...]]:
    """Draw columns with the group keys that they need."""
    plain = st.one_of(st.just((None, None)), st.tuples(alias, st.none()), property_).map(
        lambda one: Projection("", *one)
    )
    functions = st.sampled_from(Aggregate)
    aggregate = st.one_of(
        st.just(Projection("", aggregate=Aggregate.COUNT, rows=True)),
        st.builds(lambda a: Projection("", a, None, Aggregate.COUNT), alias),
        st.builds(lambda p, f: Projection("", *p, f), property_, functions),
    )
    group: tuple[GroupKey, ...] = ()
    if draw(st.booleans()):
        group = tuple(GroupKey(*one) for one in draw(st.lists(property_, min_size=1, max_size=2)))
        keys = [Projection("", key.alias, key.name) for key in group]
        shown = draw(st.lists(st.sampled_from(keys) | aggregate, min_size=1, max_size=3))
    else:
        shown = draw(st.lists(plain, min_size=1, max_size=3) | st.lists(aggregate, min_size=1, max_size=3))
    outputs = draw(st.lists(NAMES, min_size=len(shown), max_size=len(shown), unique=True))
    return group, tuple(
        Projection(output, one.alias, one.name, one.aggregate, one.rows)
        for one, output in zip(shown, outputs, strict=True)
    )


@dataclass
class Writer:
    """Writes a query down, in a way that is drawn, and gathers the parameters that it came to use."""

    draw: st.DrawFn
    parameters: dict[str, object] = field(default_factory=dict[str, object])

    def text(self, query: Query) -> str:
        """Return a text that means the query."""
        return self._glued(self._query(query))

    def _query(self, query: Query) -> list[str]:
        tokens = [self.word("MATCH"), *self._node(query.start)]
        for step in query.steps:
            tokens += (*self._edge(step.edge), *self._node(step.node))
        if query.where:
            tokens += (self.word("WHERE"), *self._condition(query.where))
        tokens += (self.word("RETURN"), *([self.word("DISTINCT")] if query.distinct else []))
        tokens += _joined([self._projection(one) for one in query.projections], ",")
        if query.group:
            keys = [[*self._property(key.alias, key.name)] for key in query.group]
            tokens += (self.word("GROUP"), self.word("BY"), *_joined(keys, ","))
        if query.order:
            tokens += (self.word("ORDER"), self.word("BY"), *_joined([self._sort(key) for key in query.order], ","))
        for word, number in (("SKIP", query.skip), ("LIMIT", query.limit)):
            tokens += [] if number is None else [self.word(word), str(number)]
        return tokens

    def word(self, word: str) -> str:
        """Return a keyword in upper, lower or mixed case."""
        return self.draw(st.sampled_from([word, word.lower(), word.title(), word.swapcase()]))

    def _name(self, name: str, soft: bool = True) -> str:
        """Return a name, in back-ticks if it must be or by chance; where it is soft, a keyword may stand bare."""
        bare = soft or name.upper() not in RESERVED
        return name if bare and self.draw(st.booleans()) else f"`{name}`"

    def _node(self, node: NodePattern) -> list[str]:
        tokens = ["(", self._name(node.alias, soft=False)]
        for label in node.labels:
            tokens += (":", self._name(label))
        return [*tokens, *self._inline(node.properties), ")"]

    def _edge(self, edge: EdgePattern) -> list[str]:
        tokens = ["<-" if edge.direction is Direction.IN else "-", "[", self._name(edge.alias, soft=False)]
        if edge.types:
            tokens += (":", *_joined([[self._name(one)] for one in edge.types], "|"))
        tokens += self._inline(edge.properties)
        if not edge.one or (not edge.properties and self.draw(st.booleans())):
            tokens += ("*", str(edge.least))
            if edge.least != edge.most or self.draw(st.booleans()):
                tokens += ("..", str(edge.most))
        tokens.append("]")
        if edge.direction is not Direction.IN or self.draw(st.booleans()):
            tokens.append("-")
        return [*tokens, ">"] if edge.direction is Direction.OUT else tokens

    def _inline(self, properties: Sequence[PropertyPattern]) -> list[str]:
        if not properties and self.draw(st.booleans()):
            return []
        entries = [[self._name(one.name), ":", *self._value(one.value)] for one in properties]
        return ["{", *_joined(entries, ","), "}"]

    def _condition(self, condition: Condition) -> list[str]:
        match condition:
            case Predicate():
                tokens = self._predicate(condition)
            case Negation(inner):
                tokens = [self.word("NOT"), *self._within(inner, isinstance(inner, Junction))]
            case Junction(joining, left, right):
                loose = joining is Joining.AND and isinstance(left, Junction) and left.joining is Joining.OR
                tight = isinstance(right, Junction) and (joining is Joining.AND or right.joining is Joining.OR)
                tokens = [*self._within(left, loose), self.word(joining), *self._within(right, tight)]
        return tokens

    def _within(self, condition: Condition, must: bool) -> list[str]:
        tokens = self._condition(condition)
        return ["(", *tokens, ")"] if must or self.draw(st.integers(0, 5)) == 0 else tokens

    def _predicate(self, predicate: Predicate) -> list[str]:
        asked = self._property(predicate.alias, predicate.name, soft=False)
        match predicate.operator:
            case Operator.IN | Operator.NOT_IN:
                words = [self.word(word) for word in predicate.operator.split()]
                return [*asked, *words, *self._list(predicate.values)]
            case Operator.BETWEEN:
                least, most = map(self._value, predicate.values)
                return [*asked, self.word("BETWEEN"), *least, self.word("AND"), *most]
            case operator if operator in SINGLE:
                spellings = {Operator.EQ: ["=", "=="], Operator.NE: ["<>", "!="]}
                return [
                    *asked,
                    self.draw(st.sampled_from(spellings.get(operator, [operator]))),
                    *self._value(predicate.values[0]),
                ]
            case operator:
                values = [token for value in predicate.values for token in self._value(value)]
                return [*asked, *(self.word(word) for word in operator.split()), *values]

    def _list(self, values: Sequence[Value]) -> list[str]:
        if self.draw(st.booleans()):
            return self._parameter(list(values))
        return ["[", *_joined([self._value(value) for value in values], ","), "]"]

    def _value(self, value: Value) -> list[str]:
        return self._parameter(value) if self.draw(st.booleans()) else [self._literal(value)]

    def _parameter(self, value: object) -> list[str]:
        name = self.draw(NAMES.filter(lambda name: name not in self.parameters))
        self.parameters[name] = value
        return [":", self._name(name)]

    def _literal(self, value: Value) -> str:
        match value:
            case None:
                return self.word("NULL")
            case bool():
                return self.word(str(value).upper())
            case int():
                return str(value)
            case float():
                spelt = format(Decimal(repr(value)), "f")
                return spelt if "." in spelt else f"{spelt}.{self.draw(st.sampled_from(['', '0']))}"
            case str():
                quote = self.draw(st.sampled_from("'\""))
                return quote + value.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote

    def _property(self, alias: str, name: str, soft: bool = False) -> list[str]:
        return [self._name(alias, soft), ".", self._name(name)]

    def _projection(self, shown: Projection) -> list[str]:
        named = [self.word("AS"), self._name(shown.output)]
        if shown.aggregate is None:
            if shown.alias is None:
                return [self.word("PATH"), *named]
            if shown.name is None:
                return [self._name(shown.alias, soft=False), *named]
            return [*self._property(shown.alias, shown.name), *named]
        word, *distinct = map(self.word, shown.aggregate.split())
        target = ["*"] if shown.alias is None else [self._name(shown.alias, soft=False)]
        target += [] if shown.name is None else [".", self._name(shown.name)]
        return [word, "(", *distinct, *target, ")", *named]

    def _sort(self, key: SortKey) -> list[str]:
        tokens = [self._name(key.alias)] if key.name is None else self._property(key.alias, key.name, soft=True)
        words = ["DESC"] if key.descending else self.draw(st.sampled_from([[], ["ASC"]]))
        return [*tokens, *map(self.word, words)]

    def _glued(self, tokens: Sequence[str]) -> str:
        """Return the tokens with white space between them: any, but some between two words."""
        text = self.draw(st.sampled_from(["", " ", "\n"]))
        for token in tokens:
            if (text and _wordy(text[-1]) and _wordy(token[0])) or self.draw(st.booleans()):
                text += self.draw(SPACES)
            text += token
        return text + self.draw(st.sampled_from(["", " ", "\n"]))


def _wordy(character: str) -> bool:
    return character.isalnum() or character in "_."


def _joined(parts: Sequence[Sequence[str]], mark: str) -> list[str]:
    tokens: list[str] = []
    for part in parts:
        tokens += ([mark] if tokens else []) + [*part]
    return tokens


@st.composite
def written(draw: st.DrawFn, query: Query) -> tuple[str, Mapping[str, object]]:
    """Draw a text of a query, and its parameters."""
    writer = Writer(draw)
    return writer.text(query), writer.parameters

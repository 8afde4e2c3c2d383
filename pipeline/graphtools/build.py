"""From a parse tree to a query: values, names, positions, and what the grammar leaves open about each single construct."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import count
from typing import cast

from lark import Token, Tree
from lark.tree import Meta

from pipeline.errors import Refusal
from pipeline.graphtools.parameters import LEAST_INTEGER, MOST_INTEGER, Given
from pipeline.graphtools.plan import MOST_HOPS
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
from pipeline.graphtools.refusal import Kind, invalid_query

RESERVED = frozenset(
    {
        "MATCH",
        "WHERE",
        "RETURN",
        "DISTINCT",
        "PATH",
        "COUNT",
        "SUM",
        "AVG",
        "MIN",
        "MAX",
        "AS",
        "GROUP",
        "ORDER",
        "BY",
        "ASC",
        "DESC",
        "SKIP",
        "LIMIT",
        "AND",
        "OR",
        "NOT",
        "IS",
        "NULL",
        "IN",
        "BETWEEN",
        "CONTAINS",
        "STARTS",
        "ENDS",
        "WITH",
        "REGEX",
        "TRUE",
        "FALSE",
    }
)
"""Keywords. An element of the pattern is called so only in back-ticks: `RETURN path` would not mean the element."""

MOST_ROWS = 10_000
"""The highest LIMIT of the language. The tools allow none at all."""

_SYMBOLS = {"==": Operator.EQ, "!=": Operator.NE}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MOST_DIGITS = 20


@dataclass(frozen=True, slots=True)
class _Parameter:
    """What a parameter stands for, and where it stands."""

    value: Given
    at: int


@dataclass(frozen=True, slots=True)
class _Property:
    """A property of an element."""

    alias: str
    name: str
    at: int


def build(tree: Tree[Token], text: str, parameters: Mapping[str, Given]) -> Query:
    """Return the query of a parse tree.

    Raises:
        Refusal: a parameter is missing, or a construct says nothing that can be meant.
    """
    return cast("Query", _Builder(text, parameters).made(tree))


class _Builder:
    """A method for each rule of the grammar. It gets the results of the rule's parts, None for each that was left out."""

    def __init__(self, text: str, parameters: Mapping[str, Given]) -> None:
        self._text = text
        self._parameters = parameters

    def made(self, tree: Tree[Token]) -> object:
        """Return the result of a rule. The depth of a tree is bounded by `grammar.MOST_JOINTS`."""
        rule: Callable[..., object] = getattr(self, tree.data)
        return rule(tree.meta, *[self.made(part) if isinstance(part, Tree) else part for part in tree.children])

    def query(
        self,
        meta: Meta,
        pattern: tuple[NodePattern, tuple[Step, ...]],
        where: Condition | None,
        returned: tuple[bool, tuple[Projection, ...]],
        group: tuple[GroupKey, ...] | None,
        order: tuple[SortKey, ...] | None,
        skip: Token | None,
        limit: Token | None,
    ) -> Query:
        (start, steps), (distinct, projections) = pattern, returned
        most = self._integer(limit) if limit else None
        if limit and most not in range(1, MOST_ROWS + 1):
            raise self._refused(f"limit must be between 1 and {MOST_ROWS}", _at(limit))
        first = self._integer(skip) if skip else None
        return Query(start, steps, projections, where, distinct, group or (), order or (), first, most)

    def pattern(
        self, meta: Meta, start: NodePattern, *rest: NodePattern | EdgePattern
    ) -> tuple[NodePattern, tuple[Step, ...]]:
        used = {part.alias for part in (start, *rest)}
        names = {NodePattern: _free("_n", used), EdgePattern: _free("_e", used)}
        first, *others = [
            part if part.alias else replace(part, alias=next(names[type(part)])) for part in (start, *rest)
        ]
        pairs = zip(others[::2], others[1::2], strict=True)
        return cast("NodePattern", first), tuple(
            Step(cast("EdgePattern", edge), cast("NodePattern", node)) for edge, node in pairs
        )

    def node(
        self, meta: Meta, alias: Token | None, labels: tuple[Token, ...], properties: tuple[PropertyPattern, ...] | None
    ) -> NodePattern:
        self._once("duplicate node label", [(_spelt(label), _at(label)) for label in labels])
        self._once("duplicate node property key", [(one.name, one.at) for one in properties or ()])
        return NodePattern(self._alias(alias), tuple(map(_spelt, labels)), properties or (), meta.start_pos)

    def labels(self, meta: Meta, *names: Token) -> tuple[Token, ...]:
        return names

    types = labels

    def both(self, meta: Meta, body: EdgePattern) -> EdgePattern:
        return replace(body, direction=Direction.BOTH, at=meta.start_pos)

    def outgoing(self, meta: Meta, body: EdgePattern, arrow: Token) -> EdgePattern:
        return replace(body, direction=Direction.OUT, at=meta.start_pos)

    def incoming(self, meta: Meta, body: EdgePattern) -> EdgePattern:
        return replace(body, direction=Direction.IN, at=meta.start_pos)

    def both_ways(self, meta: Meta, body: EdgePattern, arrow: Token) -> EdgePattern:
        raise self._refused("edge direction cannot point both ways", _at(arrow), Kind.SYNTAX)

    def body(
        self,
        meta: Meta,
        alias: Token | None,
        types: tuple[Token, ...],
        properties: tuple[PropertyPattern, ...] | None,
        hops: tuple[int, int] | None,
    ) -> EdgePattern:
        self._once("duplicate edge type", [(_spelt(type_), _at(type_)) for type_ in types])
        self._once("duplicate edge property key", [(one.name, one.at) for one in properties or ()])
        least, most = hops or (1, 1)
        if properties and hops:
            raise self._refused("edge property patterns cannot use variable-length hops", properties[0].at)
        return EdgePattern(self._alias(alias), tuple(map(_spelt, types)), properties or (), least=least, most=most)

    def hops(self, meta: Meta, star: Token, least: Token, most: Token | None) -> tuple[int, int]:
        bounds = self._integer(least), self._integer(most or least)
        if not 1 <= bounds[0] <= bounds[1] <= MOST_HOPS:
            raise self._refused(f"hop range must satisfy 1 <= min <= max <= {MOST_HOPS}", _at(least))
        return bounds

    def properties(self, meta: Meta, *entries: PropertyPattern) -> tuple[PropertyPattern, ...]:
        return entries

    def entry(self, meta: Meta, name: Token, value: Token | _Parameter) -> PropertyPattern:
        return PropertyPattern(_spelt(name), self._value(value), _at(name))

    def condition(self, meta: Meta, inner: Condition) -> Condition:
        return inner

    def disjunction(self, meta: Meta, left: Condition, right: Condition) -> Condition:
        return Junction(Joining.OR, left, right)

    def conjunction(self, meta: Meta, left: Condition, right: Condition) -> Condition:
        return Junction(Joining.AND, left, right)

    def negation(self, meta: Meta, word: Token, inner: Condition) -> Condition:
        return Negation(inner)

    def comparison(self, meta: Meta, asked: _Property, symbol: Token, value: Token | _Parameter) -> Predicate:
        operator = _SYMBOLS.get(symbol.value) or Operator(symbol.value)
        return _predicate(asked, operator, self._value(value))

    def nullity(self, meta: Meta, asked: _Property, negated: Token | None, null: Token) -> Predicate:
        return _predicate(asked, Operator.IS_NOT_NULL if negated else Operator.IS_NULL)

    def membership(
        self, meta: Meta, asked: _Property, negated: Token | None, values: tuple[tuple[Value, ...] | None, int]
    ) -> Predicate:
        operator = Operator.NOT_IN if negated else Operator.IN
        found, at = values
        if found is None:
            raise self._refused(f"{operator} values must be a collection parameter", at)
        if not found:
            raise self._refused(f"{operator} values must not be empty", at)
        return _predicate(asked, operator, *found)

    def between(self, meta: Meta, asked: _Property, least: Token | _Parameter, most: Token | _Parameter) -> Predicate:
        return _predicate(asked, Operator.BETWEEN, self._value(least), self._value(most))

    def contains(self, meta: Meta, asked: _Property, word: Token, value: Token | _Parameter) -> Predicate:
        return _predicate(asked, Operator.CONTAINS, self._value(value))

    def starts(self, meta: Meta, asked: _Property, word: Token, value: Token | _Parameter) -> Predicate:
        return _predicate(asked, Operator.STARTS_WITH, self._value(value))

    def ends(self, meta: Meta, asked: _Property, word: Token, value: Token | _Parameter) -> Predicate:
        return _predicate(asked, Operator.ENDS_WITH, self._value(value))

    def regex(self, meta: Meta, asked: _Property, word: Token, value: Token | _Parameter) -> Predicate:
        return _predicate(asked, Operator.REGEX, self._value(value))

    def listed(self, meta: Meta, *values: Token | _Parameter) -> tuple[tuple[Value, ...] | None, int]:
        return tuple(map(self._value, values)), meta.start_pos

    def given(self, meta: Meta, value: Token | _Parameter) -> tuple[tuple[Value, ...] | None, int]:
        found = value.value if isinstance(value, _Parameter) else None
        return found if isinstance(found, tuple) else None, meta.start_pos

    def returned(
        self, meta: Meta, distinct: Token | None, *projections: Projection
    ) -> tuple[bool, tuple[Projection, ...]]:
        return distinct is not None, projections

    def path(self, meta: Meta, word: Token, output: Token | None) -> Projection:
        return Projection(_spelt(output) if output else "path", at=_at(word))

    def element(self, meta: Meta, alias: Token, output: Token | None) -> Projection:
        return Projection(_spelt(output or alias), _spelt(alias), at=_at(alias))

    def column(self, meta: Meta, shown: _Property, output: Token | None) -> Projection:
        return Projection(_spelt(output) if output else shown.name, shown.alias, shown.name, at=shown.at)

    def aggregate(
        self, meta: Meta, word: Token, distinct: Token | None, target: Token | _Property, output: Token | None
    ) -> Projection:
        function = Aggregate(word.upper())
        if distinct and function is not Aggregate.COUNT:
            raise self._refused(f"{function} DISTINCT is not portable", _at(distinct))
        function = Aggregate.COUNT_DISTINCT if distinct else function
        if isinstance(target, _Property):
            name = _spelt(output) if output else target.name
            return Projection(name, target.alias, target.name, function, at=_at(word))
        if function is not Aggregate.COUNT:
            raise self._refused(f"{function.name} requires an aggregate property", _at(target))
        rows = target.type == "STAR"
        name = _spelt(output) if output else "count" if rows else _spelt(target)
        return Projection(name, None if rows else _spelt(target), None, function, rows, _at(word))

    def group(self, meta: Meta, *keys: _Property) -> tuple[GroupKey, ...]:
        return tuple(GroupKey(key.alias, key.name, key.at) for key in keys)

    def order(self, meta: Meta, *keys: SortKey) -> tuple[SortKey, ...]:
        return keys

    def sort(self, meta: Meta, alias: Token, name: Token | None, direction: Token | None) -> SortKey:
        descending = direction is not None and direction.type == "DESC"
        return SortKey(_spelt(alias), _spelt(name) if name else None, descending, _at(alias))

    def property(self, meta: Meta, alias: Token, name: Token) -> _Property:
        return _Property(_spelt(alias), _spelt(name), _at(alias))

    def parameter(self, meta: Meta, name: Token) -> _Parameter:
        if _spelt(name) not in self._parameters:
            raise self._refused(f"missing parameter '{_spelt(name)}'", meta.start_pos, Kind.PARAMETER)
        return _Parameter(self._parameters[_spelt(name)], meta.start_pos)

    def _refused(self, message: str, at: int, kind: Kind = Kind.SEMANTIC) -> Refusal:
        return invalid_query(kind, message, self._text, at)

    def _once(self, message: str, named: Iterable[tuple[str, int]]) -> None:
        seen = set[str]()
        for name, at in named:
            if name in seen:
                raise self._refused(f"{message}: {name}", at)
            seen.add(name)

    def _alias(self, word: Token | None) -> str:
        if word is not None and word.upper() in RESERVED:
            raise self._refused(
                f"{word.upper()} is a keyword; an alias of this name needs back-ticks", _at(word), Kind.SYNTAX
            )
        return _spelt(word) if word else ""

    def _value(self, given: Token | _Parameter) -> Value:
        if isinstance(given, Token):
            return self._literal(given)
        if isinstance(given.value, tuple):
            raise self._refused("a list can only follow IN", given.at, Kind.PARAMETER)
        return given.value

    def _literal(self, token: Token) -> Value:
        match token.type:
            case "STRING":
                return _ESCAPED.sub(r"\1", token[1:-1])
            case "NUMBER" if "." in token:
                return self._double(token)
            case "NUMBER":
                return self._integer(token)
            case "NULL":
                return None
            case _:
                return token.type == "TRUE"

    def _integer(self, token: Token) -> int:
        number = int(token) if len(token) <= _MOST_DIGITS else MOST_INTEGER + 1
        if not LEAST_INTEGER <= number <= MOST_INTEGER:
            raise self._refused("number is not a 64-bit integer", _at(token))
        return number

    def _double(self, token: Token) -> float:
        if not math.isfinite(number := float(token)):
            raise self._refused("number is too large for a DOUBLE", _at(token))
        return number


def _predicate(asked: _Property, operator: Operator, *values: Value) -> Predicate:
    return Predicate(asked.alias, asked.name, operator, values, asked.at)


def _free(prefix: str, used: Set[str]) -> Iterator[str]:
    """Yield names of elements without an alias that no element has."""
    return (name for number in count() if (name := f"{prefix}{number}") not in used)


def _spelt(name: Token) -> str:
    return name.strip("`")


def _at(token: Token) -> int:
    return token.start_pos or 0

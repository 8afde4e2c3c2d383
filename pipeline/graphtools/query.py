"""The syntax tree of a portable MATCH query. `at` is an offset into the text, from 0, and no part of a query's identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

Value = str | int | float | bool | None
"""A literal or the value of a parameter."""


class Direction(StrEnum):
    """Which way an edge is followed, as the pattern is read from left to right."""

    OUT = "OUT"
    IN = "IN"
    BOTH = "BOTH"


class Operator(StrEnum):
    """What a predicate asks."""

    EQ = "="
    NE = "<>"
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="
    IN = "IN"
    NOT_IN = "NOT IN"
    BETWEEN = "BETWEEN"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"
    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTS WITH"
    ENDS_WITH = "ENDS WITH"
    REGEX = "REGEX"


class Aggregate(StrEnum):
    """A function over the rows of a group."""

    COUNT = "COUNT"
    COUNT_DISTINCT = "COUNT DISTINCT"
    SUM = "SUM"
    AVG = "AVG"
    MIN = "MIN"
    MAX = "MAX"


class Joining(StrEnum):
    """How two conditions are joined."""

    AND = "AND"
    OR = "OR"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A property (`name`) against values: none for IS [NOT] NULL, two for BETWEEN, any number for [NOT] IN, else one."""

    alias: str
    name: str
    operator: Operator
    values: tuple[Value, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Junction:
    """Two conditions, joined; chains nest to the left."""

    joining: Joining
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Negation:
    """The opposite of a condition."""

    condition: Condition


Condition = Predicate | Junction | Negation


@dataclass(frozen=True, slots=True)
class PropertyPattern:
    """A property in a node's or edge's braces: it must equal the value."""

    name: str
    value: Value
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NodePattern:
    """A node that carries all of the labels. Nodes without an alias are called `_n0`, `_n1`, …"""

    alias: str
    labels: tuple[str, ...] = ()
    properties: tuple[PropertyPattern, ...] = ()
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EdgePattern:
    """An edge of any of the types, or a path of `least` to `most` of them. Edges without an alias are called `_e0`, `_e1`, …"""

    alias: str
    types: tuple[str, ...] = ()
    properties: tuple[PropertyPattern, ...] = ()
    direction: Direction = Direction.BOTH
    least: int = 1
    most: int = 1
    at: int = field(default=0, compare=False)

    @property
    def one(self) -> bool:
        """Whether it is a single edge: `*1` is a path, if a short one, but is matched and shown as the edge."""
        return self.least == self.most == 1


@dataclass(frozen=True, slots=True)
class Step:
    """An edge and the node behind it."""

    edge: EdgePattern
    node: NodePattern


@dataclass(frozen=True, slots=True)
class Projection:
    """A column of the result.

    A path has no alias, an entity only an alias, a property both; an aggregate has a function, with a property or, for
    COUNT, without (`rows`: COUNT(*), which counts rows).
    """

    output: str
    alias: str | None = None
    name: str | None = None
    aggregate: Aggregate | None = None
    rows: bool = False
    at: int = field(default=0, compare=False)

    @property
    def path(self) -> bool:
        """Whether it is the whole path."""
        return self.alias is None and self.aggregate is None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A property by which rows are grouped."""

    alias: str
    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A property of the pattern, or (without a property) an output column, called `alias` here."""

    alias: str
    name: str | None = None
    descending: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Query:
    """One linear MATCH. `limit` is None where the text has none."""

    start: NodePattern
    steps: tuple[Step, ...]
    projections: tuple[Projection, ...]
    where: Condition | None = None
    distinct: bool = False
    group: tuple[GroupKey, ...] = ()
    order: tuple[SortKey, ...] = ()
    skip: int | None = None
    limit: int | None = None

    @property
    def nodes(self) -> tuple[NodePattern, ...]:
        """All nodes, from left to right."""
        return (self.start, *(step.node for step in self.steps))

    @property
    def edges(self) -> tuple[EdgePattern, ...]:
        """All edges, from left to right."""
        return tuple(step.edge for step in self.steps)

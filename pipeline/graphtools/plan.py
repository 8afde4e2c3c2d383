"""A checked query, in the terms of a store: what every compiler and executor works from, and all that it sees of a schema.

The graph that it is asked of is a view: the entities whose type carries a label of the schema, and the relations that are
edges of it (`EdgeKind`). What is outside of the view is neither matched nor walked through.

The semantics, equal on every backend:

- Matching is Cypher's: all edges of one match differ from each other, those within a path of several hops included; nodes may
  repeat. An edge followed both ways that begins and ends at one node matches once.
- Conditions are three-valued; a match stays where its condition is true. A stored value that is not of the declared type is
  null (`values.conform`).
- Text is compared by code points; CONTAINS, STARTS WITH and ENDS WITH are exact; REGEX is a full match in RE2 syntax. DATE
  and DATETIME are compared by their full form (`values.comparable`). BOOLEAN: false before true.
- COUNT(*) and COUNT of an element count matches, COUNT(DISTINCT element) elements, COUNT of a property its values that are
  not null. SUM of nothing is 0; AVG, MIN, MAX of nothing are null. AVG is a DOUBLE. A SUM of INT64 that needs more than 64 bits
  is QUERY_FAILED. SUM and AVG of DOUBLE are exact to about 15 digits, since the order of addition is open.
- Aggregates without groups give one row, also of no match.
- Order: the keys; then, so that the order is total, the values of the group keys of a query with aggregates or groups; the
  columns from left to right of a DISTINCT one; else the ids of all elements of the pattern, from left to right. Null comes
  last ascending and first descending. Nodes are ordered by id, edges by the ids of their source, their stored type and the id
  of their target, paths by the ids of their elements from left to right, a shorter one first.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.graphtools.query import Aggregate, Direction, Joining, Operator, Value
from schemas.exposed import PropertyType

MOST_HOPS = 16
"""Hops of one edge pattern at most."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node of the pattern: an entity of one of these stored types."""

    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class EdgeKind:
    """Relations of a stored type between entities of these stored types."""

    stored: str
    sources: frozenset[str]
    targets: frozenset[str]


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """An edge of the pattern: a relation of one of these kinds, or a path of `least` to `most` of them."""

    kinds: tuple[EdgeKind, ...]
    direction: Direction
    least: int
    most: int

    @property
    def one(self) -> bool:
        """Whether it is a single edge."""
        return self.least == self.most == 1


@dataclass(frozen=True, slots=True)
class Property:
    """A stored property of an element of the pattern: 0 is the first node, 1 the first edge, 2 the second node, and so on.

    `stored` is a column (`name`, `description`, `mentions`, `chunks` of entities; `weight`, `evidence` of relations) or one of
    the extracted properties. An edge that has properties is a single one.
    """

    element: int
    stored: str
    type: PropertyType


@dataclass(frozen=True, slots=True)
class Predicate:
    """A property against values of its type (None: null), as many as `query.Predicate` says."""

    property: Property
    operator: Operator
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Both:
    """Two conditions, joined."""

    joining: Joining
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    condition: Condition


Condition = Predicate | Both | Not


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result: the path (no element), an element, its property, or an aggregate of one of these.

    COUNT(*) is COUNT without element and property.
    """

    name: str
    element: int | None = None
    property: Property | None = None
    aggregate: Aggregate | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A sort key: a column of the result, by its place from 0, or a property of the pattern."""

    by: int | Property
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a query that was checked; inline properties are part of `where`."""

    nodes: tuple[NodePlan, ...]
    edges: tuple[EdgePlan, ...]
    columns: tuple[Column, ...]
    where: Condition | None = None
    distinct: bool = False
    groups: tuple[Property, ...] = ()
    order: tuple[Order, ...] = ()

    @property
    def aggregated(self) -> bool:
        """Whether rows are groups of matches."""
        return bool(self.groups) or any(column.aggregate is not None for column in self.columns)

"""Whether a query asks only for what a schema exposes, in values of its types; and the plan of a query that does."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.graphtools import plan as planned
from pipeline.graphtools import query
from pipeline.graphtools.exposure import Element, edge_element, edge_types, node_element, node_types
from pipeline.graphtools.plan import Column, EdgeKind, EdgePlan, NodePlan, Order, Plan
from pipeline.graphtools.query import Aggregate, Direction, EdgePattern, Joining, NodePattern, Operator, Query
from pipeline.graphtools.refusal import invalid_argument, not_allowed
from pipeline.graphtools.regex import MOST_CHARACTERS, compiled
from pipeline.graphtools.validate import predicates
from schemas.exposed import EdgeType, GraphSchema, PropertyType

_NUMERIC = frozenset({PropertyType.INT64, PropertyType.DOUBLE})


def check(asked: Query, schema: GraphSchema, hops: int) -> Plan:
    """Return the plan of a query that `parse` returned. A match has `hops` hops at most.

    Raises:
        Refusal: QUERY_NOT_ALLOWED, UNKNOWN_GRAPH_TYPE or INVALID_ARGUMENT, for the first fault in a fixed order.
    """
    if asked.skip is not None or asked.limit is not None:
        raise not_allowed("Omit SKIP and LIMIT; use pageSize and cursor for pagination")
    return _Checker(asked, schema).plan(hops)


class _Checker:
    """The work on one query. `elements` are those of the pattern by alias, `inline` the conditions within it."""

    def __init__(self, asked: Query, schema: GraphSchema) -> None:
        self._asked = asked
        self._schema = schema
        self._elements: dict[str, Element] = {}
        self._inline: list[planned.Condition] = []

    def plan(self, hops: int) -> Plan:
        nodes, edges = self._pattern(hops)
        where = [self._condition(self._asked.where)] if self._asked.where else []
        _check_patterns(self._asked)
        columns = tuple(map(self._column, self._asked.projections))
        order = tuple(map(self._order, self._asked.order))
        groups = tuple(self._property(key.alias, key.name) for key in self._asked.group)
        conditions = [*([_all(self._inline)] if self._inline else []), *where]
        return Plan(
            nodes, edges, columns, _all(conditions) if conditions else None, self._asked.distinct, groups, order
        )

    def _pattern(self, hops: int) -> tuple[tuple[NodePlan, ...], tuple[EdgePlan, ...]]:
        nodes, edges = [self._node(0, self._asked.start)], list[EdgePlan]()
        self._inlined(self._asked.start)
        before, walked = self._asked.start, 0
        for place, step in enumerate(self._asked.steps):
            walked += step.edge.most
            if walked > hops:
                raise not_allowed(f"Query traverses up to {walked} hops; this source allows at most {hops}")
            edges.append(self._edge(2 * place + 1, step.edge))
            nodes.append(self._node(2 * place + 2, step.node))
            self._inlined(step.edge)
            self._inlined(step.node)
            _check_ends(before, step.edge, step.node, edge_types(self._schema, step.edge))
            before = step.node
        return tuple(nodes), tuple(edges)

    def _node(self, place: int, pattern: NodePattern) -> NodePlan:
        types = node_types(self._schema, pattern)
        self._elements[pattern.alias] = node_element(pattern.alias, place, types)
        return NodePlan(frozenset(one for one in types[0].types if all(one in other.types for other in types)))

    def _edge(self, place: int, pattern: EdgePattern) -> EdgePlan:
        types = edge_types(self._schema, pattern)
        self._elements[pattern.alias] = edge_element(pattern.alias, place, types)
        kinds = tuple(kind for one in types for kind in self._kinds(one))
        return EdgePlan(kinds, pattern.direction, pattern.least, pattern.most)

    def _kinds(self, type_: EdgeType) -> list[EdgeKind]:
        sources, targets = self._entities(type_.source_label), self._entities(type_.target_label)
        return [EdgeKind(stored, sources, targets) for stored in sorted(type_.types)]

    def _entities(self, label: str | None) -> frozenset[str]:
        """Return the stored types of the entities that carry a label, or any label."""
        types = [one.types for one in self._schema.node_types if label in (None, one.label)]
        return frozenset[str]().union(*types)

    def _inlined(self, pattern: NodePattern | EdgePattern) -> None:
        for one in pattern.properties:
            exposed = self._elements[pattern.alias].inline(one.name)
            values = exposed.values(Operator.EQ, (one.value,))
            self._inline.append(planned.Predicate(exposed.property, Operator.EQ, values))

    def _condition(self, condition: query.Condition) -> planned.Condition:
        match condition:
            case query.Negation(inner):
                return planned.Not(self._condition(inner))
            case query.Junction(joining, left, right):
                return planned.Both(joining, self._condition(left), self._condition(right))
            case query.Predicate(alias, name, operator, values):
                exposed = self._elements[alias].named(name)
                return planned.Predicate(exposed.property, operator, exposed.values(operator, values))

    def _property(self, alias: str, name: str) -> planned.Property:
        return self._elements[alias].named(name).property

    def _column(self, shown: query.Projection) -> Column:
        if shown.alias is None:
            return Column(shown.output, aggregate=shown.aggregate)
        if shown.name is None:
            return Column(shown.output, self._elements[shown.alias].place, aggregate=shown.aggregate)
        found = self._property(shown.alias, shown.name)
        if shown.aggregate in (Aggregate.SUM, Aggregate.AVG) and found.type not in _NUMERIC:
            raise invalid_argument(
                f"{shown.aggregate} takes INT64 and DOUBLE properties; '{shown.name}' is {found.type}"
            )
        return Column(shown.output, property=found, aggregate=shown.aggregate)

    def _order(self, key: query.SortKey) -> Order:
        shown = self._asked.projections
        if key.name is None:
            return Order([one.output for one in shown].index(key.alias), key.descending)
        found = self._property(key.alias, key.name)
        if not self._asked.distinct:
            return Order(found, key.descending)
        plain = [(one.alias, one.name) if one.aggregate is None else None for one in shown]
        return Order(plain.index((key.alias, key.name)), key.descending)


def _check_ends(before: NodePattern, edge: EdgePattern, after: NodePattern, types: Sequence[EdgeType]) -> None:
    """Check that every type may lead from one node to the other. Of a path of several hops, these are the outer nodes."""
    for one in types:
        if one.source_label is None or one.target_label is None:
            continue
        along = one.source_label in before.labels and one.target_label in after.labels
        against = one.source_label in after.labels and one.target_label in before.labels
        fits = {Direction.OUT: along, Direction.IN: against, Direction.BOTH: along or against}
        if not fits[edge.direction]:
            message = f"Edge type '{one.type}' is incompatible with the declared node labels and direction"
            raise not_allowed(message)


def _check_patterns(asked: Query) -> None:
    """Check the regular expressions; what they may cost to compile is bounded for all of them together."""
    values = [value for one in predicates(asked.where) if one.operator is Operator.REGEX for value in one.values]
    patterns = [value for value in values if isinstance(value, str)]
    if sum(map(len, patterns)) > MOST_CHARACTERS:
        raise invalid_argument(f"The REGEX patterns of a query have at most {MOST_CHARACTERS} characters")
    for pattern in patterns:
        compiled(pattern)


def _all(conditions: Sequence[planned.Condition]) -> planned.Condition:
    """Return what is true where all of the conditions are; halved, so that it nests no deeper than it must."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return planned.Both(Joining.AND, _all(conditions[:middle]), _all(conditions[middle:]))

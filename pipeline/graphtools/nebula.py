"""Plans as nGQL statements of NebulaGraph 3. Tested as text only: no server has ever run them, and there is no executor.

A space holds one graph. An entity is a vertex whose id is the entity's, with one tag: its stored type, whose properties are
the stored ones (columns among them); a relation is an edge of its stored type. DATE and DATETIME are strings, as everywhere.
NebulaGraph matches trails, so no edge is used twice in a match, and it compares text by bytes, which is by code points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import Refusal
from pipeline.graphtools.execution import Bounds
from pipeline.graphtools.plan import Both, Column, Condition, EdgeKind, Not, Plan, Predicate, Property
from pipeline.graphtools.query import Aggregate, Direction, Operator, Value
from pipeline.graphtools.refusal import Code
from pipeline.graphtools.values import DATE_FORM, DATETIME_FORM, FULL, comparable
from schemas.exposed import PropertyType

_COMPARED = {
    Operator.EQ: "==",
    Operator.NE: "!=",
    Operator.GT: ">",
    Operator.GE: ">=",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.IN: "IN",
    Operator.CONTAINS: "CONTAINS",
    Operator.STARTS_WITH: "STARTS WITH",
    Operator.ENDS_WITH: "ENDS WITH",
}
_FORMS = {PropertyType.DATE: DATE_FORM, PropertyType.DATETIME: DATETIME_FORM}

Argument = Value | Sequence[Value]


@dataclass(frozen=True, slots=True)
class Statement:
    """A read-only statement and its parameters. Its first `columns` columns are the plan's, the others only sort."""

    text: str
    parameters: Mapping[str, Argument]
    columns: int


def ngql(plan: Plan, bounds: Bounds) -> Statement:
    """Return the statement that answers a plan.

    Raises:
        Refusal: UNSUPPORTED_FEATURE: a REGEX, which NebulaGraph understands otherwise; DISTINCT groups by a key that is no
            column; or a stored name that its identifiers cannot be.
    """
    return _Compiler(plan).statement(bounds)


class _Compiler:
    """The work on one plan. Elements are called `v0`, `e1`, `v2`, … by their places, the whole match `m`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parameters: dict[str, Argument] = {}

    def statement(self, bounds: Bounds) -> Statement:
        where = " AND ".join(f"({one})" for one in self._conditions())
        columns = [f"{self._column(one)} AS {_quoted(one.name)}" for one in self._plan.columns]
        sorts = list(self._sorts())
        hidden = [f"{expression} AS `sort-{number}`" for number, (expression, _) in enumerate(sorts)]
        distinct = "DISTINCT " if self._plan.distinct else ""
        order = ", ".join(f"`sort-{number}` {direction}" for number, (_, direction) in enumerate(sorts))
        lines = [
            f"MATCH m = {self._pattern()}",
            f"WHERE {where}" if where else "",
            f"RETURN {distinct}{', '.join([*columns, *hidden])}",
            f"ORDER BY {order}" if order else "",
            f"SKIP {bounds.offset} LIMIT {bounds.rows}",
        ]
        return Statement("\n".join(filter(None, lines)), self._parameters, len(columns))

    def _pattern(self) -> str:
        parts = [f"(v0{_tag(self._plan.nodes[0].types)})"]
        for number, edge in enumerate(self._plan.edges):
            types = "|".join(dict.fromkeys(_quoted(kind.stored) for kind in edge.kinds))
            hops = "" if edge.one else f"*{edge.least}..{edge.most}"
            left = "<-" if edge.direction is Direction.IN else "-"
            right = "->" if edge.direction is Direction.OUT else "-"
            node = f"(v{2 * number + 2}{_tag(self._plan.nodes[number + 1].types)})"
            parts += (f"{left}[e{2 * number + 1}:{types}{hops}]{right}", node)
        return "".join(parts)

    def _conditions(self) -> Iterable[str]:
        for number, node in enumerate(self._plan.nodes):
            if len(node.types) != 1:
                yield _tagged(f"v{2 * number}", self._list(node.types))
        kinds = dict.fromkeys(kind for edge in self._plan.edges for kind in edge.kinds)
        if kinds:
            allowed = " OR ".join(map(self._followed, kinds))
            yield f"all(i IN range(0, length(m) - 1) WHERE {allowed})"
        if self._plan.where:
            yield self._condition(self._plan.where)

    def _followed(self, kind: EdgeKind) -> str:
        """Return that the i-th edge is of a kind, whichever way it was followed."""
        edge, left, right = "relationships(m)[i]", "nodes(m)[i]", "nodes(m)[i + 1]"
        stored, sources, targets = self._bound(kind.stored), self._list(kind.sources), self._list(kind.targets)
        ways = [
            f"(src({edge}) == id({source}) AND dst({edge}) == id({target})"
            f" AND {_tagged(source, sources)} AND {_tagged(target, targets)})"
            for source, target in ((left, right), (right, left))
        ]
        return f"(type({edge}) == {stored} AND ({' OR '.join(ways)}))"

    def _list(self, types: Iterable[str]) -> str:
        return self._bound([*sorted(types)])

    def _condition(self, condition: Condition) -> str:
        match condition:
            case Not(inner):
                return f"NOT ({self._condition(inner)})"
            case Both(joining, left, right):
                return f"({self._condition(left)} {joining} {self._condition(right)})"
            case Predicate():
                return self._predicate(condition)

    def _predicate(self, predicate: Predicate) -> str:
        asked, operator = self._property(predicate.property), predicate.operator
        values = [comparable(value, predicate.property.type) for value in predicate.values]
        match operator:
            case Operator.REGEX:
                raise _unsupported("NebulaGraph has no REGEX in RE2 syntax")
            case Operator.IS_NULL | Operator.IS_NOT_NULL:
                return f"{asked} {operator}"
            case Operator.BETWEEN:
                return f"({asked} >= {self._bound(values[0])} AND {asked} <= {self._bound(values[1])})"
            case Operator.NOT_IN:
                return f"NOT ({asked} IN {self._bound([*values])})"
            case Operator.IN:
                return f"{asked} IN {self._bound([*values])}"
            case _:
                return f"{asked} {_COMPARED[operator]} {self._bound(values[0])}"

    def _bound(self, value: Argument) -> str:
        """Return a parameter for a value: none ever stands in the text."""
        name = f"p{len(self._parameters)}"
        self._parameters[name] = value
        return f"${name}"

    def _property(self, wanted: Property) -> str:
        """Return what a property is compared by: null where it is not of its type's form, DATETIME in its full form."""
        stored = self._stored(wanted)
        form = _FORMS.get(wanted.type)
        if form is None:
            return stored
        full = f'left({stored} + substr("{FULL}", length({stored})), {len(FULL)})'
        value = full if wanted.type is PropertyType.DATETIME else stored
        return f"CASE WHEN {stored} =~ {self._bound(form)} THEN {value} END"

    def _stored(self, wanted: Property) -> str:
        name = _quoted(wanted.stored)
        if wanted.element % 2:
            return f"e{wanted.element}.{name}"
        types = sorted(self._plan.nodes[wanted.element // 2].types)
        found = [f"v{wanted.element}.{_quoted(one)}.{name}" for one in types]
        return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})" if found else "NULL"

    def _column(self, column: Column) -> str:
        if column.property:
            value = self._property(column.property)
        elif column.element is None:
            value = "*" if column.aggregate else "m"
        else:
            value = self._name(column.element)
        match column.aggregate:
            case None:
                return value
            case Aggregate.COUNT_DISTINCT:
                return f"count(DISTINCT {value})"
            case Aggregate.SUM:
                return f"coalesce(sum({value}), 0)"
            case _:
                return f"{column.aggregate.lower()}({value})"

    def _sorts(self) -> Iterable[tuple[str, str]]:
        """Yield the sort keys, each an expression and a direction: the plan's, then what makes the order total."""
        for order in self._plan.order:
            by = order.by
            keys = _nullable(self._property(by)) if isinstance(by, Property) else self._of(self._plan.columns[by])
            yield from ((key, "DESC" if order.descending else "ASC") for key in keys)
        yield from ((key, "ASC") for key in self._last())

    def _last(self) -> list[str]:
        plan = self._plan
        if plan.distinct and not {*plan.groups} <= {column.property for column in plan.columns if not column.aggregate}:
            raise _unsupported("NebulaGraph cannot make groups DISTINCT by a key that is not returned")
        if plan.aggregated:
            return [key for one in plan.groups for key in _nullable(self._property(one))]
        if plan.distinct:
            return [key for column in plan.columns for key in self._of(column)]
        return self._elements(range(len(plan.nodes) + len(plan.edges)))

    def _of(self, column: Column) -> list[str]:
        """Return the keys of a column: nodes and edges are ordered by ids."""
        if column.aggregate or column.property:
            return _nullable(self._column(column))
        if column.element is None:
            return self._elements(range(len(self._plan.nodes) + len(self._plan.edges)))
        before = [column.element - 1] if self._several(column.element) else []
        return self._elements([*before, column.element])

    def _elements(self, places: Iterable[int]) -> list[str]:
        keys: list[str] = []
        for place in places:
            name = self._name(place)
            if place % 2 == 0:
                keys.append(f"id({name})")
            elif self._several(place):
                keys.append(f"[r IN {name} | [src(r), type(r), dst(r)]]")
            else:
                keys += (f"src({name})", f"type({name})", f"dst({name})")
        return keys

    def _several(self, place: int) -> bool:
        """Whether an element is an edge of several hops."""
        return place % 2 == 1 and not self._plan.edges[place // 2].one

    @staticmethod
    def _name(place: int) -> str:
        return f"e{place}" if place % 2 else f"v{place}"


def _tagged(node: str, types: str) -> str:
    return f"any(t IN tags({node}) WHERE t IN {types})"


def _tag(types: Sequence[str] | frozenset[str]) -> str:
    return "".join(f":{_quoted(one)}" for one in types) if len(types) == 1 else ""


def _nullable(key: str) -> list[str]:
    """Return the sort keys of what may be null, which comes last ascending."""
    return [f"({key}) IS NULL", key]


def _quoted(name: str) -> str:
    if not name or "`" in name or not name.isprintable():
        raise _unsupported("NebulaGraph cannot name one of the stored types or properties")
    return f"`{name}`"


def _unsupported(message: str) -> Refusal:
    return Refusal(Code.UNSUPPORTED_FEATURE, message)

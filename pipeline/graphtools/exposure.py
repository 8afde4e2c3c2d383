"""What a schema exposes of the elements of a pattern: their properties, and the values that these take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pipeline.errors import Refusal
from pipeline.graphtools.plan import Property
from pipeline.graphtools.query import EdgePattern, NodePattern, Operator, Value
from pipeline.graphtools.refusal import Code, invalid_argument, not_allowed
from pipeline.graphtools.values import conform
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType

TEXT_OPERATORS = frozenset({Operator.CONTAINS, Operator.STARTS_WITH, Operator.ENDS_WITH, Operator.REGEX})
"""Those that look into a text: their values are parts of one, or patterns."""

MOST_TOLD = 20
"""Values of an enumeration that a message lists."""

_FORMS = {
    PropertyType.DATE: "DATE (a text of the form YYYY-MM-DD)",
    PropertyType.DATETIME: "DATETIME (a text of the form YYYY-MM-DDTHH:MM:SS, without a zone)",
}


@dataclass(frozen=True, slots=True)
class Exposed:
    """A property of an element. `allowed` are all the values that it takes, in their order, where these are known."""

    name: str
    property: Property
    allowed: tuple[str, ...] | None = None

    def values(self, operator: Operator, given: Iterable[Value]) -> tuple[Value, ...]:
        """Return values for an operator as values of the property's type.

        Raises:
            Refusal: INVALID_ARGUMENT that names the property and its type.
        """
        if operator in TEXT_OPERATORS and self.property.type is not PropertyType.STRING:
            raise invalid_argument(f"{operator} takes STRING properties; '{self.name}' is {self.property.type}")
        return tuple(None if value is None else self._value(operator, value) for value in given)

    def _value(self, operator: Operator, value: Value) -> Value:
        kind = self.property.type
        conforming = conform(value, kind)
        if conforming is None or (kind in _FORMS and not _in_the_calendar(str(value))):
            raise invalid_argument(f"Property '{self.name}' takes values of the type {_FORMS.get(kind, kind)}")
        if self.allowed is not None and operator not in TEXT_OPERATORS and _spelt(value) not in self.allowed:
            more = ", …" if len(self.allowed) > MOST_TOLD else ""
            told = ", ".join(self.allowed[:MOST_TOLD]) + more
            raise invalid_argument(f"Property '{self.name}' of the type {kind} takes only these values: {told}")
        return conforming


@dataclass(frozen=True, slots=True)
class Element:
    """An element at its place in the pattern, with its properties; None stands for one that its types declare differently."""

    alias: str
    place: int
    properties: Mapping[str, Exposed | None]

    def inline(self, name: str) -> Exposed:
        """Return a property by its name in the braces of the pattern. Raises Refusal."""
        return self._found(name, f"Unknown or unavailable property '{name}'")

    def named(self, name: str) -> Exposed:
        """Return a property by its name behind the alias. Raises Refusal."""
        return self._found(name, f"Property '{name}' is not exposed for alias '{self.alias}'")

    def _found(self, name: str, message: str) -> Exposed:
        if name not in self.properties:
            raise not_allowed(message)
        found = self.properties[name]
        if found is None:
            raise not_allowed(f"Property '{name}' means different things in the types of alias '{self.alias}'")
        return found


def node_types(schema: GraphSchema, pattern: NodePattern) -> list[NodeType]:
    """Return the types of a node that carries all of the labels. Raises Refusal: there is none, or it is unknown."""
    if not pattern.labels:
        raise not_allowed("Every node pattern must declare an exposed label")
    known = {one.label: one for one in schema.node_types}
    return [known[_known(label, known, "node label")] for label in pattern.labels]


def edge_types(schema: GraphSchema, pattern: EdgePattern) -> list[EdgeType]:
    """Return the types of an edge that has any of them. Raises Refusal: there is none, or it is unknown."""
    if not pattern.types:
        raise not_allowed("Every edge pattern must declare an exposed edge type")
    known = {one.type: one for one in schema.edge_types}
    return [known[_known(type_, known, "edge type")] for type_ in pattern.types]


def node_element(alias: str, place: int, types: Sequence[NodeType]) -> Element:
    """Return a node: it carries all labels and has what any of them declares."""
    declared = _declared(types)
    return Element(alias, place, {name: _exposed(place, found, all_of=True) for name, found in declared.items()})


def edge_element(alias: str, place: int, types: Sequence[EdgeType]) -> Element:
    """Return an edge: it has one of the types, and what all of them declare."""
    declared = {name: found for name, found in _declared(types).items() if len(found) == len(types)}
    return Element(alias, place, {name: _exposed(place, found, all_of=False) for name, found in declared.items()})


def _declared(types: Sequence[NodeType] | Sequence[EdgeType]) -> dict[str, list[ExposedProperty]]:
    declared: dict[str, list[ExposedProperty]] = {}
    for one in types:
        for property_ in one.properties:
            declared.setdefault(property_.name, []).append(property_)
    return declared


def _exposed(place: int, declared: Sequence[ExposedProperty], all_of: bool) -> Exposed | None:
    """Return a property that is declared like this, once or more; its values keep to all declarations, or to any."""
    first = declared[0]
    if any((one.column, one.type) != (first.column, first.type) for one in declared):
        return None
    closed = [one.enum_values for one in declared if one.enum_values]
    allowed: tuple[str, ...] | None = None
    if all_of and closed:
        allowed = tuple(value for value in closed[0] if all(value in other for other in closed))
    elif len(closed) == len(declared):
        allowed = tuple(dict.fromkeys(value for values in closed for value in values))
    return Exposed(first.name, Property(place, first.column, first.type), allowed)


def _known(name: str, known: Mapping[str, object], what: str) -> str:
    if name not in known:
        raise Refusal(Code.UNKNOWN_GRAPH_TYPE, f"Unknown {what}: {name}")
    return name


def _in_the_calendar(value: str) -> bool:
    """Whether a DATE or DATETIME of the right form names a day that there is."""
    try:
        date.fromisoformat(value[:10])
    except ValueError:
        return False
    return True


def _spelt(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""What agents may ask of a graph: an allow-list of node and edge types with typed properties, on the wire in camel case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from itertools import product
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

PORTABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""What every name in the language looks like."""

Name = Annotated[str, Field(pattern=PORTABLE, max_length=100)]
Display = Annotated[str, Field(max_length=300)]
Description = Annotated[str, Field(max_length=1000)]


class PropertyType(StrEnum):
    """The type of a property. A stored value of another type counts as null; INT64 is one for DOUBLE, too.

    DATE is `YYYY-MM-DD`, DATETIME a local `YYYY-MM-DDTHH:MM[:SS[.fraction]]` without a zone; both are kept as text.
    """

    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    INT64 = "INT64"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    DATETIME = "DATETIME"


class Camel(BaseModel):
    """Immutable; keys in camel case (or snake case, as input); an unknown key is an error that names it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True
    )


class ExposedProperty(Camel):
    """A property by its public name. `stored` is its name in the store, which nobody else sees; by default the same.

    Every entity has the stored properties `name`, `description`, `mentions` and `chunks`, every relation `weight` and
    `evidence`; the rest is what was extracted. `enum_values`, if there are any, are all the values that may be asked for.
    """

    name: Name
    type: PropertyType = PropertyType.STRING
    required: bool = False
    display_name: Display = ""
    description: Description = ""
    enum_values: tuple[str, ...] = ()
    stored: str = ""

    @property
    def column(self) -> str:
        """Its name in the store."""
        return self.stored or self.name


class NodeType(Camel):
    """A label and the types of entities that carry it (`stored`, verbatim; by default the label itself).

    An entity whose type is in several of them carries all these labels.
    """

    label: Name
    display_name: Display = ""
    description: Description = ""
    properties: tuple[ExposedProperty, ...] = ()
    stored: tuple[str, ...] = ()

    @property
    def types(self) -> frozenset[str]:
        """The types of entities that carry the label."""
        return frozenset(self.stored or (self.label,))


class EdgeType(Camel):
    """A type of edges and the types of relations that are such edges (`stored`, verbatim; by default the type itself).

    A relation is such an edge only if its ends carry the labels that are declared here; where none is declared, any label.
    """

    type: Name
    display_name: Display = ""
    description: Description = ""
    source_label: Name | None = None
    target_label: Name | None = None
    properties: tuple[ExposedProperty, ...] = ()
    stored: tuple[str, ...] = ()

    @property
    def types(self) -> frozenset[str]:
        """The types of relations that may be such edges."""
        return frozenset(self.stored or (self.type,))


class GraphSchema(Camel):
    """An allow-list, not a mirror: what is not in it does not exist for whoever asks through it.

    Declared endpoints are labels of this schema, and no stored type of relations belongs to two types of edges. Labels that
    share a stored type of entities mean the same by a property that they share: such an entity is shown with it once.
    """

    id: str = Field(default="", max_length=200)
    version: str = Field(default="", max_length=100)
    display_name: Display = ""
    description: Description = ""
    node_types: tuple[NodeType, ...] = ()
    edge_types: tuple[EdgeType, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        labels = [node.label for node in self.node_types]
        _no_twice("duplicate node label", labels)
        _no_twice("duplicate edge type", [edge.type for edge in self.edge_types])
        _no_twice("stored type of two edge types", [one for edge in self.edge_types for one in sorted(edge.types)])
        for node in self.node_types:
            _no_twice(f"duplicate property in node {node.label}", [one.name for one in node.properties])
        _no_two_meanings(self.node_types)
        for edge in self.edge_types:
            _no_twice(f"duplicate property in edge {edge.type}", [one.name for one in edge.properties])
            for end in (edge.source_label, edge.target_label):
                if end is not None and end not in labels:
                    raise ValueError(f"edge {edge.type} ends at {end}, which is no node label")
        return self


def _no_twice(what: str, names: list[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{what}: {name}")


def _no_two_meanings(nodes: Iterable[NodeType]) -> None:
    declared: dict[tuple[str, str], tuple[str, ExposedProperty]] = {}
    for node in nodes:
        for stored, one in product(sorted(node.types), node.properties):
            label, first = declared.setdefault((stored, one.name), (node.label, one))
            if (first.column, first.type) != (one.column, one.type):
                both = f"nodes {label} and {node.label}, which share the stored type {stored}"
                raise ValueError(f"property {one.name} is declared differently in {both}")

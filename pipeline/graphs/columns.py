"""How a property graph keeps entities and relations: columns of its own, and the extracted properties beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.errors import InvalidRequest
from pipeline.graphs.parts import check_keys
from schemas.graph import Entity, Relation, Scalar
from schemas.ids import EntityNo

ENTITY_COLUMNS = frozenset(
    {
        "graph_id",
        "no",
        "entity_id",
        "type",
        "key",
        "name",
        "name_start",
        "description",
        "mentions",
        "chunks",
        "fan",
        "degree",
        "links",
    }
    | {"communityPath", "communityId"}
)
RELATION_COLUMNS = frozenset({"graph_id", "type", "weight", "evidence"})

NAME_START = 100
"""Characters (code points, so that none is cut) of a name by which it is looked up: 400 bytes at most, as indexes want."""


def name_start(name: str) -> str:
    """Return what is indexed of a name, in place of the name: that may be too long for an index."""
    return name[:NAME_START]


def check_columns(entities: Iterable[Entity], relations: Iterable[Relation]) -> None:
    """Refuse properties that would change which graph a row belongs to or what it says about itself, and those no store holds.

    Raises:
        InvalidRequest: an entity or relation carries such a one; the message names both.
    """
    for entity in entities:
        _check(f"node {entity.name!r}", entity.properties, ENTITY_COLUMNS)
    for relation in relations:
        _check(f"relationship {relation.type!r}", relation.properties, RELATION_COLUMNS)


def entity_of(row: Mapping[str, Any]) -> Entity:
    """Return the entity of a node, by the names of its columns and properties."""
    return Entity(
        EntityNo(row["no"]),
        row["entity_id"],
        row["type"],
        row["key"],
        row["name"],
        row["description"],
        row["mentions"],
        row["chunks"],
        extracted(row, ENTITY_COLUMNS),
    )


def extracted(row: Mapping[str, Any], columns: frozenset[str]) -> dict[str, Scalar]:
    """Return the extracted properties of a row: those that are no columns."""
    return {key: value for key, value in row.items() if key not in columns}


def _check(what: str, properties: Mapping[str, object], columns: frozenset[str]) -> None:
    check_keys(what, properties)
    for key, value in properties.items():
        if key in columns:
            raise InvalidRequest(f"{what} contains reserved key {key!r}")
        if not key or not isinstance(value, str | int | float):
            raise InvalidRequest(f"{what} contains {key!r}, which is no text, number or truth value by a name")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise InvalidRequest(f"{what} contains {key!r}, a whole number of more than 64 bits")

"""Rows as an agent sees them: JSON values, cut down once more to what the schema exposes, whatever a store returned.

Cells are flat by their type, so a result is never deeper than record, path, node, properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pipeline.graphtools.execution import Cell, Edge, Limit, Node, Path
from pipeline.graphtools.values import conform
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType
from schemas.graph import Scalar

Json = dict[str, object]
"""A JSON object; its keys are in the order in which they are printed."""

RANK = 0
"""Edges that only differ in a rank do not exist here; the field is part of the result's form."""

MOST_DISPLAY, MOST_DESCRIPTION = 300, 1000
"""Characters of a schema's names and descriptions that a model is shown."""


class Presenter:
    """Turns cells into JSON by one schema. What the schema does not expose is not there: neither its name nor its value."""

    def __init__(self, schema: GraphSchema) -> None:
        self._nodes = schema.node_types
        self._edges = {stored: edge for edge in schema.edge_types for stored in edge.types}

    def record(self, names: Sequence[str], row: Sequence[Cell]) -> Json:
        """Return a row by the names of its columns."""
        return {name: self.cell(cell) for name, cell in zip(names, row, strict=True)}

    def cell(self, cell: Cell) -> object:
        """Return a cell; null for a node or edge of a type that is not exposed."""
        match cell:
            case Node():
                return self._node(cell)
            case Edge():
                return self._edge(cell)
            case Path():
                return self._path(cell)
            case _:
                return cell

    def _node(self, node: Node) -> Json | None:
        types = [one for one in self._nodes if node.type in one.types]
        if not types:
            return None
        properties = _exposed((one for kind in types for one in kind.properties), node.properties)
        return {"kind": "node", "id": node.id, "labels": [one.label for one in types], "properties": properties}

    def _edge(self, edge: Edge) -> Json | None:
        kind = self._edges.get(edge.type)
        if kind is None:
            return None
        return {
            "kind": "edge",
            "sourceId": edge.source,
            "type": kind.type,
            "targetId": edge.target,
            "rank": RANK,
            "properties": _exposed(kind.properties, edge.properties),
        }

    def _path(self, path: Path) -> Json:
        """Return each node and edge once, in the order of the path; an edge goes with its ends."""
        nodes = {node.id: shown for node in path.nodes if (shown := self._node(node))}
        edges = {
            (edge.source, edge.type, edge.target): shown
            for edge in path.edges
            if edge.source in nodes and edge.target in nodes and (shown := self._edge(edge))
        }
        return {"kind": "subgraph", "nodes": list(nodes.values()), "edges": list(edges.values())}


def _exposed(properties: Iterable[ExposedProperty], stored: Mapping[str, Scalar]) -> Json:
    """Return the exposed properties that are there, the first of each name; one of another type is null."""
    shown: Json = {}
    for one in properties:
        if one.column in stored:
            shown.setdefault(one.name, conform(stored[one.column], one.type))
    return shown


def metadata(records: int, milliseconds: int, cursor: str, limit: Limit) -> Json:
    """Return what is said about a page; `cursor` is that of the next one, if there is one.

    Where the result is cut short, `limit` names what did it: `pageSize`, or the limit of the source.
    """
    told: Json = {
        "recordCount": records,
        "truncated": bool(cursor or limit),
        "executionTimeMillis": milliseconds,
        "hasNext": bool(cursor),
        "nextCursor": cursor,
    }
    if told["truncated"]:
        told["limit"] = limit.value or "pageSize"
    return told


_UNPRINTABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def cleaned(text: str, most: int) -> str:
    """Return what a model is shown of a text: no control characters but line ends and tabs, no lone surrogates, trimmed."""
    return _UNPRINTABLE.sub("", text)[:most].strip()


def headed(schema: GraphSchema) -> Json:
    """Return what a schema says about itself."""
    return {
        "id": cleaned(schema.id, 200),
        "version": cleaned(schema.version, 100),
        "displayName": cleaned(schema.display_name, MOST_DISPLAY),
        "description": cleaned(schema.description, MOST_DESCRIPTION),
    }


def listed(kind: NodeType | EdgeType) -> Json:
    """Return a type without its properties."""
    named: Json = {"name": kind.label if isinstance(kind, NodeType) else kind.type}
    named |= _explained(kind)
    if isinstance(kind, EdgeType):
        named |= {"sourceLabel": kind.source_label, "targetLabel": kind.target_label}
    return named


def described(kind: NodeType | EdgeType) -> Json:
    """Return a type with its properties."""
    return listed(kind) | {"properties": [_described(one) for one in kind.properties]}


def _described(one: ExposedProperty) -> Json:
    shown: Json = {
        "name": one.name,
        "type": one.type.value,
        "required": one.required,
        **_explained(one),
    }
    return shown | {"enumValues": list(one.enum_values)} if one.enum_values else shown


def _explained(one: NodeType | EdgeType | ExposedProperty) -> Json:
    return {
        "displayName": cleaned(one.display_name, MOST_DISPLAY),
        "description": cleaned(one.description, MOST_DESCRIPTION),
    }

"""A graph as canonical lines, read from whichever store serves it: equal graphs give equal bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.ports import GraphReader
from schemas.graph import Scalar
from schemas.ids import show

PAGE = 2_000
"""Rows read at a time."""


async def graph_lines(reader: GraphReader, graph: GraphRef, deadline: Deadline) -> AsyncGenerator[str, None]:
    """Yield entities, relations and memberships as the export of a whole generation has them, without newlines.

    Entities are ordered by number, relations by their ends and type, memberships by entity.
    """
    number: int | None = None
    while entities := await reader.entities(graph, number, PAGE, deadline):
        for e in entities:
            yield _line(
                "entities",
                entity_no=show(e.entity_no),
                entity_id=e.entity_id,
                type=e.type,
                key=e.key,
                name=e.name,
                description=e.description,
                mentions=e.mentions,
                chunks=e.chunks,
                **_extracted(e.properties),
            )
        number = entities[-1].entity_no
    edge: tuple[int, int, str] | None = None
    while relations := await reader.relations(graph, edge, PAGE, deadline):
        for r in relations:
            ends = {"source_no": show(r.source), "target_no": show(r.target)}
            extracted = _extracted(r.properties)
            yield _line("relations", **ends, type=r.type, weight=r.weight, evidence=r.evidence, **extracted)
        edge = (relations[-1].source, relations[-1].target, relations[-1].type)
    placed: int | None = None
    while paths := await reader.paths(graph, placed, PAGE, deadline):
        for entity, path in paths:
            yield _line("memberships", entity_no=show(entity), path=[show(community) for community in path])
        placed = paths[-1][0]


def _extracted(properties: Mapping[str, Scalar]) -> dict[str, Mapping[str, Scalar]]:
    return {"properties": properties} if properties else {}


def _line(kind: str, **row: Any) -> str:
    return orjson.dumps({"kind": kind, **row}, option=orjson.OPT_SORT_KEYS).decode()

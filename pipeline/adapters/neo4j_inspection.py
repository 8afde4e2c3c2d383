"""Graphs in Neo4j, looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.deadline import Deadline
from pipeline.graphs.columns import RELATION_COLUMNS, entity_of, extracted
from pipeline.graphs.inspection import MAX_EDGES, MAX_MEMBERS, Counts, Edge, Found, Group, Seen, folded, nearest, rings
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.sessions import Sessions
from pipeline.ingest.communities import LEADERS
from pipeline.queries import load_cypher

_LOOK = load_cypher("inspection")


class Neo4jInspector:
    """A `GraphInspector` over graphs that `Neo4jGraph` has written and sealed, which gave every entity its degree.

    The document of an entity of very many chunks is that of the first of those that the walk reads.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def named(self, graph: GraphRef, kind: str | None, text: str, limit: int, deadline: Deadline) -> list[Seen]:
        """See `GraphInspector`."""
        wanted = {"kind": kind, "text": folded(text), "limit": limit}
        return list((await self._picked(_LOOK["pick_named"], graph, wanted, deadline)).entities)

    async def connected(self, graph: GraphRef, text: str, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`."""
        return await self._picked(_LOOK["pick_connected"], graph, {"text": folded(text), "limit": limit}, deadline)

    async def members(self, graph: GraphRef, community: int, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`."""
        return await self._picked(_LOOK["pick_members"], graph, {"community": community, "limit": limit}, deadline)

    async def entity(self, graph: GraphRef, entity_id: str, deadline: Deadline) -> Seen | None:
        """See `GraphInspector`."""
        found = await self._picked(_LOOK["pick_id"], graph, {"entity_id": entity_id}, deadline)
        return found.entities[0] if found.entities else None

    async def reached(self, graph: GraphRef, centre: int, hops: int, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`: a statement for each hop."""

        async def ring(frontier: list[int], seen: list[int], room: int) -> list[int]:
            step = {"frontier": frontier, "seen": seen, "room": room}
            return [row["node"] for row in await self._read(_LOOK["ring"], graph, step, deadline)]

        near = await rings(centre, hops, ring)
        first = {"near": [list(pair) for pair in nearest(near, limit).items()], "total": len(near), "limit": limit}
        return await self._picked(_LOOK["pick_near"], graph, first, deadline)

    async def edges(
        self, graph: GraphRef, sources: Sequence[int], targets: Sequence[int] | None, deadline: Deadline
    ) -> list[Edge]:
        """See `GraphInspector`."""
        ends = {"sources": list(sources), "targets": None if targets is None else list(targets), "limit": MAX_EDGES}
        return [
            _edge(row["source"], row["target"], row["row"])
            for row in await self._read(_LOOK["edges"], graph, ends, deadline)
        ]

    async def groups(self, graph: GraphRef, level: int | None, limit: int, deadline: Deadline) -> list[Group]:
        """See `GraphInspector`."""
        wanted = {"level": level, "limit": limit, "members": MAX_MEMBERS, "leaders": LEADERS}
        return [Group(**row) for row in await self._read(_LOOK["groups"], graph, wanted, deadline)]

    async def counts(self, graph: GraphRef, deadline: Deadline) -> Counts:
        """See `GraphInspector`: one statement."""
        (row,) = await self._read(_LOOK["counts"], graph, {}, deadline)
        return Counts(dict(row["entities"]), dict(row["relations"]), row["communities"])

    async def _picked(self, head: str, graph: GraphRef, parameters: Mapping[str, Any], deadline: Deadline) -> Found:
        rows = await self._read(f"{head}\n{_LOOK['shown']}", graph, parameters, deadline)
        return Found([_seen(row["row"], row["documents"]) for row in rows], rows[0]["total"] if rows else 0)

    async def _read(
        self, query: str, graph: GraphRef, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        database = self._sessions.database_of(graph.corpus)
        return await self._sessions.read(database, query, {"graph_id": graph.graph_id, **parameters}, deadline)


def _seen(row: Mapping[str, Any], documents: Sequence[str]) -> Seen:
    return Seen(entity_of(row), tuple(row.get("communityPath", ())), documents[0] if documents else None)


def _edge(source: str, target: str, row: Mapping[str, Any]) -> Edge:
    return Edge(source, target, row["type"], row["weight"], row["evidence"], extracted(row, RELATION_COLUMNS))

"""Graphs in Neo4j, read: the walk as one statement whose work is bounded, and pages in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.deadline import Deadline
from pipeline.errors import InconsistentGeneration
from pipeline.graphs.columns import RELATION_COLUMNS, entity_of, extracted
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.sessions import Sessions
from pipeline.queries import load_cypher
from pipeline.retrieval.chunks import Floats
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.scored import Scored
from pipeline.retrieval.walk import Limits, WalkResult
from schemas.graph import Entity, Relation
from schemas.ids import EntityNo, graph_join_id

_WALK = load_cypher("walk")
_READ = load_cypher("reader")

FIRST = 4
"""Entities whose chunks are read before it is known which others matter, for each result that is wanted."""

FILTER = 10_000
"""Allowed chunks up to which the server is told of them; with a longer list it returns whatever it finds."""


class Neo4jReader:
    """A `GraphReader` over graphs that `Neo4jGraph` has written and sealed.

    The lists of neighbours and of chunks are as long as they were sealed: `Bounds.fan` and `Bounds.entity_chunks` are not
    read from the limits but where hubs are told.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def expand(
        self,
        graph: GraphRef,
        seeds: Sequence[tuple[int, float]],
        limits: Limits,
        allowed: Ints | None,
        deadline: Deadline,
    ) -> WalkResult:
        """See `GraphReader`: one statement.

        Raises:
            InconsistentGeneration: the graph lacks a seed chunk, or has it under another join id.
        """
        best = Scored.best(*_columns(seeds))
        parameters = {**_bounds(limits), **_seeds(graph, best), **_filter(allowed)}
        (row,) = await self._read(graph, _statement(limits), parameters, deadline)
        if len(row["found"]) < len(best.chunks):
            raise InconsistentGeneration("The graph of this generation lacks a chunk that its dense collection has.")
        own = _scored(row["own"] + row["near"], row["own_scores"] + row["near_scores"], allowed)
        extra = _scored(row["brought"], row["values"], allowed)
        return WalkResult(*own.ranked(extra, limits.top_k), len(best.chunks), row["resolved"], row["cut_short"])

    async def entities(self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline) -> list[Entity]:
        """See `GraphReader`."""
        page = {"after": -1 if after is None else after, "limit": limit}
        return [entity_of(row["row"]) for row in await self._read(graph, _READ["entities"], page, deadline)]

    async def relations(
        self, graph: GraphRef, after: tuple[int, int, str] | None, limit: int, deadline: Deadline
    ) -> list[Relation]:
        """See `GraphReader`."""
        after = after or (-1, -1, "")
        page = {"source": after[0], "target": after[1], "limit": limit}
        rows = await self._read(graph, _READ["relations"], page, deadline)
        found = [_relation(row["source"], row["target"], row["row"]) for row in rows]
        later = [relation for relation in found if _key(relation) > after]
        return sorted(later, key=_key)[:limit]

    async def paths(
        self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline
    ) -> list[tuple[int, tuple[int, ...]]]:
        """See `GraphReader`."""
        page = {"after": -1 if after is None else after, "limit": limit}
        rows = await self._read(graph, _READ["paths"], page, deadline)
        return [(row["no"], tuple(row["path"])) for row in rows]

    async def _read(
        self, graph: GraphRef, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        database = self._sessions.database_of(graph.corpus)
        return await self._sessions.read(database, query, {"graph_id": graph.graph_id, **parameters}, deadline)


def _statement(limits: Limits) -> str:
    """Put the statement together: a step for each hop, and the expansions that are wanted."""
    parts = [_WALK["seeds"], *[_WALK["hop"]] * limits.max_hops, _WALK["reached"], _WALK["chunks"]]
    parts.append(_WALK["window"] if limits.window else _WALK["nothing_near"])
    parts.append(_WALK["communities"] if limits.communities else _WALK["nothing_brought"])
    return "\n".join([*parts, _WALK["results"]])


def _seeds(graph: GraphRef, seeds: Scored) -> dict[str, Any]:
    chunks = seeds.chunks.tolist()
    joins = [graph_join_id(graph.graph_id, chunk) for chunk in chunks]
    rows = zip(chunks, seeds.scores.tolist(), joins, strict=True)
    return {"seeds": [list(row) for row in rows], "seed_ids": chunks}


def _filter(allowed: Ints | None) -> dict[str, Any]:
    """`open_ended`: there is a filter that the server does not know, so nothing it finds is known to be in vain."""
    if allowed is None:
        return {"allowed": None, "open_ended": False}
    told = len(allowed) <= FILTER
    return {"allowed": allowed.tolist() if told else None, "open_ended": not told}


def _bounds(limits: Limits) -> dict[str, Any]:
    bounds = limits.bounds
    return {
        "max_seeds": bounds.seeds,
        "max_hops": limits.max_hops,
        "cap": limits.cap,
        "window": limits.window,
        "top_k": limits.top_k,
        "first": FIRST * limits.top_k,
        "fan": bounds.fan,
        "step_edges": bounds.step_edges,
        "chunk_links": bounds.chunk_links,
        "members": bounds.members,
        "community_links": bounds.community_links,
        "community_chunks": bounds.community_chunks,
    }


def _columns(pairs: Sequence[tuple[int, float]]) -> tuple[Ints, Floats]:
    chunks = np.array([chunk for chunk, _ in pairs], dtype=np.int64)
    return chunks, np.array([score for _, score in pairs], dtype=np.float64)


def _scored(chunks: list[int], scores: list[float], allowed: Ints | None) -> Scored:
    found = Scored.best(np.array(chunks, dtype=np.int64), np.array(scores, dtype=np.float64))
    return found if allowed is None else found.where(np.isin(found.chunks, allowed))


def _key(relation: Relation) -> tuple[int, int, str]:
    return relation.source, relation.target, relation.type


def _relation(source: int, target: int, row: Mapping[str, Any]) -> Relation:
    return Relation(
        EntityNo(source),
        EntityNo(target),
        row["type"],
        row["weight"],
        row["evidence"],
        extracted(row, RELATION_COLUMNS),
    )

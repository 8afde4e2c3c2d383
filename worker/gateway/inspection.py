"""Routes to look at the graph of a corpus: read-only, bounded, and each answer from the one generation that was current."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator
from starlette.responses import Response

from pipeline.deadline import Deadline
from pipeline.errors import GenerationChanged, NotFound
from pipeline.graphs.inspection import (
    MAX_ENTITIES,
    MAX_HOPS,
    MAX_MEMBERS,
    Edge,
    Evidence,
    Found,
    GraphInspector,
    Seen,
    clamped,
    community_of,
    edge_view,
    entity_view,
    group_view,
    part_view,
    sources_view,
    stats_view,
)
from pipeline.graphs.parts import GraphRef
from schemas.corpora import Corpus
from schemas.inspection import (
    Community,
    Entity,
    GraphEntitySourcesResponse,
    GraphNeighborsResponse,
    GraphStats,
    Relationship,
)
from worker.app import Sapwood
from worker.gateway.access import Principal, Scope, require, sapwood_of
from worker.gateway.problems import RESPONSES, problem

CALL = 10.0
"""Seconds that one look may take."""

MAX_GROUPS = 5_000
"""Communities that one answer holds at most."""

MAX_OFFSET = 1 << 31
CORPUS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
CHANGED = "The graph generation changed. Reload this entity's sources."
CHANGED_CODE = "graph_generation_changed"
NO_COMMUNITY = "Community not found"


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


Text = Annotated[str, AfterValidator(_storable)]
EntityId = Annotated[Text, Query(min_length=1, description="The id of an entity, as other answers give it.")]
Inspecting = Annotated[Principal, Depends(require(Scope.INSPECT))]

router = APIRouter(prefix="/api/graph/{corpus_id}", tags=["inspection"], responses=RESPONSES)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the graph of a pinned generation."""

    graph: GraphRef
    run_id: str
    inspector: GraphInspector
    evidence: Evidence
    deadline: Deadline

    async def entity(self, entity_id: str) -> Seen:
        """Return an entity. Raises NotFound."""
        found = await self.inspector.entity(self.graph, entity_id, self.deadline)
        if found is None:
            raise NotFound(_lacking(entity_id))
        return found

    async def part(self, found: Found, limit: int) -> GraphNeighborsResponse:
        """Return entities with all relations among them."""
        numbers = [one.entity.entity_no for one in found.entities]
        edges: list[Edge] = []
        if numbers:
            edges = await self.inspector.edges(self.graph, numbers, numbers, self.deadline)
        return part_view(found, edges, limit)


@asynccontextmanager
async def looking(request: Request, principal: Principal, name: str) -> AsyncGenerator[Look | None, None]:
    """Pin the current generation of a corpus for one look at its graph; None while it has none.

    Raises:
        NotFound: the tenant has no such corpus.
        GenerationChanged: at the end of the block, if what was read was reclaimed meanwhile.
    """
    app = sapwood_of(request, principal)
    if (await _corpus(app, name)).generation is None:
        yield None
        return
    deadline = Deadline.after(CALL)
    async with app.services.pins.pin(app.tenant, name, deadline) as pinned:
        manifest, services = pinned.manifest, app.services
        inspector = services.inspector(manifest.graph_store)
        graph = GraphRef.of(pinned.corpus_id, manifest)
        yield Look(graph, manifest.run_id, inspector, services.evidence, deadline)


async def _corpus(app: Sapwood, name: str) -> Corpus:
    missing = NotFound(f"Corpus not found: {name}")
    if not CORPUS.fullmatch(name):
        raise missing
    try:
        return await app.corpus(name)
    except NotFound:
        raise missing from None


def _promoted(look: Look | None, missing: str) -> Look:
    if look is None:
        raise NotFound(missing)
    return look


def _lacking(entity_id: str) -> str:
    return f"Entity not found in this corpus graph: {entity_id}"


@router.get("/entities")
async def entities(
    request: Request,
    corpus_id: str,
    principal: Inspecting,
    entity_type: Text | None = None,
    q: Text = "",
    limit: int = 100,
) -> list[Entity]:
    """List entities by name; `q` is looked for in names, where `_` and `-` count as spaces. `limit` is taken as 0..2000."""
    most = clamped(limit, 0, MAX_ENTITIES)
    async with looking(request, principal, corpus_id) as look:
        if look is None or not most:
            return []
        found = await look.inspector.named(look.graph, entity_type, q, most, look.deadline)
        return list(map(entity_view, found))


@router.get("/entity")
async def entity(request: Request, corpus_id: str, principal: Inspecting, entity_id: EntityId) -> Entity:
    """Return an entity."""
    async with looking(request, principal, corpus_id) as look:
        return entity_view(await _promoted(look, _lacking(entity_id)).entity(entity_id))


@router.get("/entity/relationships")
async def relationships(
    request: Request, corpus_id: str, principal: Inspecting, entity_id: EntityId
) -> list[Relationship]:
    """List the relationships that start at an entity, up to 50,000; none if there is no such entity."""
    async with looking(request, principal, corpus_id) as given:
        look = _promoted(given, _lacking(entity_id))
        seen = await look.inspector.entity(look.graph, entity_id, look.deadline)
        if seen is None:
            return []
        edges = await look.inspector.edges(look.graph, [seen.entity.entity_no], None, look.deadline)
        return list(map(edge_view, edges))


@router.get("/entity/neighbors")
async def neighbors(
    request: Request, corpus_id: str, principal: Inspecting, entity_id: EntityId, max_hops: int = 2, limit: int = 200
) -> GraphNeighborsResponse:
    """Return the entities around one, which comes first, nearest first, and the relationships among them.

    `max_hops` is taken as 1..5, `limit` as 0..2000. `total_matched` counts up to 20,000 entities.
    """
    hops, most = clamped(max_hops, 1, MAX_HOPS), clamped(limit, 0, MAX_ENTITIES)
    async with looking(request, principal, corpus_id) as given:
        look = _promoted(given, _lacking(entity_id))
        centre = await look.entity(entity_id)
        found = await look.inspector.reached(look.graph, centre.entity.entity_no, hops, max(most, 1), look.deadline)
        return await look.part(Found(found.entities[:most], found.total), most)


@router.get("/entity/sources", response_model=GraphEntitySourcesResponse)
async def sources(
    request: Request,
    corpus_id: str,
    principal: Inspecting,
    entity_id: EntityId,
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    offset: Annotated[int, Query(ge=0)] = 0,
    run_id: str | None = None,
) -> GraphEntitySourcesResponse | Response:
    """Return chunks that mention an entity, each once, by document and place.

    With the `run_id` of an earlier page it answers 409 `graph_generation_changed` once another generation is current.
    """
    page = (min(offset, MAX_OFFSET), limit)
    try:
        async with looking(request, principal, corpus_id) as given:
            look = _promoted(given, _lacking(entity_id))
            if run_id is not None and run_id != look.run_id:
                raise GenerationChanged
            found = await _sources(look, entity_id, *page)
            if (await _corpus(sapwood_of(request, principal), corpus_id)).generation != look.graph.generation:
                raise GenerationChanged
    except GenerationChanged:
        return problem(409, CHANGED, CHANGED_CODE)
    if found is None:
        raise NotFound(_lacking(entity_id))
    return found


async def _sources(look: Look, entity_id: str, offset: int, limit: int) -> GraphEntitySourcesResponse | None:
    seen = await look.inspector.entity(look.graph, entity_id, look.deadline)
    if seen is None:
        return None
    graph = look.graph
    found = await look.evidence.sources(
        graph.corpus_id, graph.generation, seen.entity.entity_no, offset, limit + 1, look.deadline
    )
    return sources_view(entity_id, look.run_id, found, offset, limit)


@router.get("/community/{community_id}/members")
async def members(
    request: Request,
    corpus_id: str,
    principal: Inspecting,
    community_id: str,
    limit: Annotated[int, Query(ge=1, le=MAX_MEMBERS)] = 500,
) -> list[Entity]:
    """List the members of a community, best-connected first; none if there is no such community."""
    number = community_of(community_id)
    async with looking(request, principal, corpus_id) as look:
        if look is None or number is None:
            return []
        found = await look.inspector.members(look.graph, number, limit, look.deadline)
        return list(map(entity_view, found.entities))


@router.get("/community/{community_id}/subgraph")
async def community_subgraph(
    request: Request,
    corpus_id: str,
    principal: Inspecting,
    community_id: str,
    limit: Annotated[int, Query(ge=1, le=MAX_ENTITIES)] = 200,
) -> GraphNeighborsResponse:
    """Return the best-connected members of a community and the relationships among them."""
    number = community_of(community_id)
    async with looking(request, principal, corpus_id) as given:
        look = _promoted(given, NO_COMMUNITY)
        found = Found()
        if number is not None:
            found = await look.inspector.members(look.graph, number, limit, look.deadline)
        if not found.entities:
            raise NotFound(NO_COMMUNITY)
        return await look.part(found, limit)


@router.get("/subgraph")
async def subgraph(
    request: Request,
    corpus_id: str,
    principal: Inspecting,
    limit: Annotated[int, Query(ge=1, le=MAX_ENTITIES)] = 200,
    q: Text = "",
) -> GraphNeighborsResponse:
    """Return the best-connected entities, of all or of those whose names match `q`, and the relationships among them."""
    async with looking(request, principal, corpus_id) as look:
        if look is None:
            return GraphNeighborsResponse(limit=limit)
        return await look.part(await look.inspector.connected(look.graph, q, limit, look.deadline), limit)


@router.get("/communities")
async def communities(
    request: Request,
    corpus_id: str,
    principal: Inspecting,
    level: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_GROUPS)] = 1_000,
) -> list[Community]:
    """List the communities of the finest level that their members have, largest first; of one level only, if given."""
    exact = None if level is None else min(level, MAX_OFFSET - 1)
    async with looking(request, principal, corpus_id) as look:
        if look is None:
            return []
        return list(map(group_view, await look.inspector.groups(look.graph, exact, limit, look.deadline)))


@router.get("/stats")
async def stats(request: Request, corpus_id: str, principal: Inspecting) -> GraphStats:
    """Return what the graph consists of; all zero while no generation was promoted."""
    async with looking(request, principal, corpus_id) as look:
        if look is None:
            return GraphStats(corpus_id=corpus_id)
        counts = await look.inspector.counts(look.graph, look.deadline)
        totals = await look.evidence.totals(look.graph.corpus_id, look.graph.generation, look.deadline)
        return stats_view(corpus_id, counts, *totals)

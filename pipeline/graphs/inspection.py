"""Looking at a graph: what a store is asked for, and what of it goes on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

from pydantic import JsonValue

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.ingest.communities import LEADERS, offline_summary
from schemas import inspection as wire
from schemas.graph import Entity, Scalar
from schemas.ids import CorpusId, parse_id, show

MAX_ENTITIES = 2_000
"""Entities that one answer holds at most."""

MAX_MEMBERS = 5_000
"""Members of a community that one answer holds at most."""

MAX_EDGES = 50_000
"""Relationships that one answer holds at most: the first by source, target and type."""

MAX_HOPS = 5

MAX_TYPES = 1_000
"""Types that a breakdown counts: the most frequent."""

REACH = 20_000
"""Entities that a neighbourhood counts at most, its centre included."""

UNTYPED = "entity"
"""What an entity without a type shows."""

Ring = Callable[[list[int], list[int], int], Awaitable[list[int]]]
"""Given a frontier, what was reached before (the frontier included) and how many are wanted: those next to the frontier."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An entity with its community path, from the coarsest to the finest, and the document of its first chunk by id."""

    entity: Entity
    path: tuple[int, ...] = ()
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The first of the entities that were asked for, in order, and how many there are in all."""

    entities: Sequence[Seen] = ()
    total: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation between two entities by their public ids."""

    source: str
    target: str
    type: str
    weight: float
    evidence: int
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Group:
    """A community: the public ids of its members and the names of the first of them, best-connected first."""

    community: int
    level: int
    size: int
    members: Sequence[str]
    leaders: Sequence[str]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many entities and relations there are of each type, and how many communities of the finest level."""

    entities: Mapping[str, int]
    relations: Mapping[str, int]
    communities: int


@dataclass(frozen=True, slots=True)
class Source:
    """A chunk that mentions an entity; lines count from 1."""

    chunk_id: int
    document: str
    lines: tuple[int, int]
    text: str
    metadata: Mapping[str, Any]


class GraphInspector(Protocol):
    """Looks at the graph of a pinned generation; a graph that is not there is empty. Texts are ordered by code points.

    `text` is searched for in names, as `folded` makes both; empty means all. The degree of an entity is the number of other
    entities that it has relations with. Limits are 1 or more.
    """

    async def named(self, graph: GraphRef, kind: str | None, text: str, limit: int, deadline: Deadline) -> list[Seen]:
        """Return entities, of one type or of all, by name, then id."""
        ...

    async def connected(self, graph: GraphRef, text: str, limit: int, deadline: Deadline) -> Found:
        """Return entities by degree descending, name, id."""
        ...

    async def members(self, graph: GraphRef, community: int, limit: int, deadline: Deadline) -> Found:
        """Return the entities of which this is the finest community, in the same order."""
        ...

    async def entity(self, graph: GraphRef, entity_id: str, deadline: Deadline) -> Seen | None:
        """Return the entity of this public id, or None."""
        ...

    async def reached(self, graph: GraphRef, centre: int, hops: int, limit: int, deadline: Deadline) -> Found:
        """Return the entities that relations lead to from an entity (by number), in any direction.

        The centre comes first; the others by distance, name and id. `total` counts REACH of them at most.
        """
        ...

    async def edges(
        self, graph: GraphRef, sources: Sequence[int], targets: Sequence[int] | None, deadline: Deadline
    ) -> list[Edge]:
        """Return the first MAX_EDGES relations from these entities to those (None: to any), by numbers, then type."""
        ...

    async def groups(self, graph: GraphRef, level: int | None, limit: int, deadline: Deadline) -> list[Group]:
        """Return the finest communities (of one level or all) by size descending, name of the first member, id.

        Members are ordered by degree descending, name as shown, id; MAX_MEMBERS of them at most.
        """
        ...

    async def counts(self, graph: GraphRef, deadline: Deadline) -> Counts:
        """Count all there is."""
        ...


class Evidence(Protocol):
    """What documents say, as a generation sees them: in PostgreSQL, wherever the graph lies."""

    async def sources(
        self, corpus: CorpusId, generation: int, entity: int, offset: int, limit: int, deadline: Deadline
    ) -> list[Source]:
        """Return the chunks that mention an entity (by number), each once, by document and place in it."""
        ...

    async def totals(self, corpus: CorpusId, generation: int, deadline: Deadline) -> tuple[int, int]:
        """Count documents and chunks."""
        ...


def folded(text: str) -> str:
    """Return the form in which names are searched, but for its case: `_` and `-` count as spaces. Blank means no search."""
    return text.replace("_", " ").replace("-", " ") if text.strip() else ""


def clamped(value: int, least: int, most: int) -> int:
    """Return the nearest number within these bounds."""
    return max(least, min(value, most))


def community_of(public: str) -> int | None:
    """Return the number of a community by its wire id; None if no community can have this one."""
    try:
        number = parse_id(public)
    except ValueError:
        return None
    return number if show(number) == public else None


async def rings(centre: int, hops: int, ring: Ring, most: int = REACH) -> dict[int, int]:
    """Return the distance of each entity that is reached, nearest first; no more are looked for once there are `most`."""
    distances, frontier = {centre: 0}, [centre]
    for hop in range(1, hops + 1):
        room = most - len(distances)
        if room <= 0 or not frontier:
            break
        frontier = await ring(frontier, list(distances), room)
        distances.update(dict.fromkeys(frontier, hop))
    return distances


def nearest(near: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return those of the entities by distance that may be among the first `limit`: whole rings, until they are as many."""
    sizes = Counter(near.values())
    rings_up_to = accumulate(sizes[distance] for distance in range(len(sizes)))
    last = next((distance for distance, count in enumerate(rings_up_to) if count >= limit), len(sizes))
    return {entity: distance for entity, distance in near.items() if distance <= last}


def shown(name: str, entity_id: str) -> str:
    """Return what people see of an entity: its name, or its id where it has none."""
    return name or entity_id


def entity_view(seen: Seen) -> wire.Entity:
    """Return an entity as it goes on the wire."""
    one = seen.entity
    path: list[JsonValue] = [show(number) for number in seen.path]
    properties: dict[str, JsonValue] = {key: value for key, value in one.properties.items() if key != "file_path"}
    own = one.properties.get("file_path")
    return wire.Entity(
        entity_id=one.entity_id,
        name=one.name,
        entity_type=one.type or UNTYPED,
        file_path=own if isinstance(own, str) and own else seen.document,
        description=one.description or None,
        properties={
            **properties,
            "mentions": one.mentions,
            "chunks": one.chunks,
            "communityId": path[-1] if path else None,
            "communityPath": path,
        },
    )


def edge_view(edge: Edge) -> wire.Relationship:
    """Return a relation as it goes on the wire; a stored weight of 0 reads as 1. Six decimals are what is stored."""
    return wire.Relationship(
        source_id=edge.source,
        target_id=edge.target,
        relation_type=edge.type,
        weight=clamped_weight(edge.weight),
        properties={**edge.properties, "evidence": edge.evidence},
    )


def clamped_weight(weight: float) -> float:
    """Return a weight in 0..1; none at all means the full one."""
    return round(max(0.0, min(weight, 1.0)), 6) if weight else 1.0


def part_view(found: Found, edges: Sequence[Edge], limit: int) -> wire.GraphNeighborsResponse:
    """Return a part of a graph as it goes on the wire."""
    return wire.GraphNeighborsResponse(
        entities=tuple(map(entity_view, found.entities)),
        relationships=tuple(map(edge_view, edges)),
        total_matched=found.total,
        limit=limit,
    )


def group_view(group: Group) -> wire.Community:
    """Return a community as it goes on the wire, named by its best-connected member."""
    leaders = group.leaders[:LEADERS]
    return wire.Community(
        community_id=show(group.community),
        name=leaders[0],
        summary=offline_summary(group.size, leaders),
        member_ids=tuple(group.members),
        level=group.level,
    )


def sources_view(
    entity_id: str, run_id: str, found: Sequence[Source], offset: int, limit: int
) -> wire.GraphEntitySourcesResponse:
    """Return a page of evidence as it goes on the wire; `found` holds one more than the limit where there is a next page."""
    return wire.GraphEntitySourcesResponse(
        entity_id=entity_id,
        run_id=run_id,
        sources=tuple(
            wire.GraphEntitySource(
                chunk_id=show(one.chunk_id),
                file_path=one.document,
                start_line=max(1, one.lines[0]),
                end_line=max(1, one.lines[1]),
                content=one.text,
                metadata=dict(one.metadata),
            )
            for one in found[:limit]
        ),
        next_offset=offset + limit if len(found) > limit else None,
    )


def stats_view(corpus: str, counts: Counts, documents: int, chunks: int) -> wire.GraphStats:
    """Return the counts as they go on the wire."""
    return wire.GraphStats(
        corpus_id=corpus,
        total_entities=sum(counts.entities.values()),
        total_relationships=sum(counts.relations.values()),
        total_communities=counts.communities,
        total_documents=documents,
        total_chunks=chunks,
        entity_breakdown=most_frequent(counts.entities),
        relationship_breakdown=most_frequent(counts.relations),
    )


def most_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the first MAX_TYPES counts, highest first, ties by type."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_TYPES])

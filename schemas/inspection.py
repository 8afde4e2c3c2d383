"""The graph of a corpus as people inspect it over HTTP: entities, relationships, communities, evidence and counts."""

from __future__ import annotations

from pydantic import Field, JsonValue

from schemas.query import Wire


class Entity(Wire):
    """An entity. An empty name stays empty; whoever shows it falls back to the id.

    `file_path` is the entity's own file, else the document of the first chunk that mentions it, else null. `properties` hold
    what was extracted, and the counts `mentions` and `chunks`, the `communityPath` (from the coarsest community to the finest)
    and the `communityId` (the finest).
    """

    entity_id: str
    name: str = ""
    entity_type: str = Field(min_length=1)
    file_path: str | None = None
    description: str | None = None
    properties: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class Relationship(Wire):
    """A directed relationship between two entities, by their ids. `properties.evidence` counts the chunks that state it."""

    source_id: str
    target_id: str
    relation_type: str
    weight: float = Field(default=1.0, ge=0.0, le=1.0)
    properties: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class GraphNeighborsResponse(Wire):
    """Part of a graph: entities in the order of the route, and all relationships among them, up to 50,000.

    `total_matched` counts the entities before the limit.
    """

    entities: tuple[Entity, ...] = ()
    relationships: tuple[Relationship, ...] = ()
    total_matched: int = 0
    limit: int


class Community(Wire):
    """A community of the finest level that its members have. `level` counts the coarser ones around it.

    `member_ids` are the best-connected first, up to 5,000; the summary counts all.
    """

    community_id: str
    name: str
    summary: str
    member_ids: tuple[str, ...]
    level: int = Field(ge=0)


class GraphEntitySource(Wire):
    """A chunk that mentions an entity; lines count from 1. `metadata` is that of its document."""

    chunk_id: str
    file_path: str
    start_line: int = Field(ge=1)
    end_line: int = Field(ge=1)
    content: str
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    provenance: dict[str, JsonValue] | None = None


class GraphEntitySourcesResponse(Wire):
    """A page of evidence. Give `run_id` and `next_offset` back for the next page; `next_offset` is null at the end."""

    entity_id: str
    run_id: str
    sources: tuple[GraphEntitySource, ...]
    next_offset: int | None = None


class GraphStats(Wire):
    """What a graph consists of. The breakdowns count by type, most frequent first, up to 1,000 types each."""

    corpus_id: str
    total_entities: int = 0
    total_relationships: int = 0
    total_communities: int = 0
    total_documents: int = 0
    total_chunks: int = 0
    entity_breakdown: dict[str, int] = Field(default_factory=dict[str, int])
    relationship_breakdown: dict[str, int] = Field(default_factory=dict[str, int])

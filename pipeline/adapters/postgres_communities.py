"""The graph as community detection reads it, and the communities of a generation: only what differs is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.ingest.communities import Graph, Partition
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import Community
from schemas.ids import CorpusId

_SQL = load("communities")
_MEMBERSHIP = ("corpus_id", "entity_no", "born", "path")
_COMMUNITY = ("corpus_id", "community_id", "level", "born", "parent", "size", "name", "summary")

Row = tuple[int | None, int, str, str]
"""Parent, size, name and summary of a stored community."""


@dataclass(frozen=True, slots=True)
class StoredCommunities:
    """The communities before this number was begun: paths by entity, rows by (id, level)."""

    paths: dict[int, tuple[int, ...]]
    communities: dict[tuple[int, int], Row]

    @property
    def summaries(self) -> dict[int, str]:
        """The summaries by community id."""
        return {community: row[3] for (community, _), row in self.communities.items()}


async def read_graph(tx: Tx, corpus: CorpusId) -> Graph:
    """Return the graph of the generation in the making, once it is derived."""
    entities = await tx.fetch(_SQL["graph_entities"], corpus)
    edges = np.frombuffer(await tx.fetchval(_SQL["graph_edges"], corpus), dtype=">i8").reshape(-1, 3)
    return Graph(
        np.array([row["entity_no"] for row in entities], dtype=np.int64),
        [row["entity_id"] for row in entities],
        [row["name"] for row in entities],
        [row["description"] for row in entities],
        edges.astype(np.int64),
    )


async def stored_communities(tx: Tx, corpus: CorpusId, number: int) -> StoredCommunities:
    """Return what the base of the generation in the making holds."""
    paths = await tx.fetch(_SQL["stored_paths"], corpus, number)
    communities = await tx.fetch(_SQL["stored_communities"], corpus, number)
    return StoredCommunities(
        {row["entity_no"]: tuple(row["path"]) for row in paths},
        {(row["community_id"], row["level"]): tuple(row)[2:] for row in communities},
    )


async def write_communities(
    tx: Tx,
    corpus: CorpusId,
    number: int,
    partition: Partition,
    communities: Sequence[Community],
    stored: StoredCommunities,
) -> int:
    """Write what differs from the stored memberships and communities, end what is gone; return rows touched."""
    await tx.execute(_SQL["reset_communities"], corpus, number)
    paths = dict(zip(partition.entities.tolist(), partition.paths, strict=True))
    rows: dict[tuple[int, int], Row] = {
        (c.community_id, c.level): (c.parent, len(c.members), c.name, c.summary) for c in communities
    }
    ended = [entity for entity, path in stored.paths.items() if paths.get(entity) != path]
    dead = [key for key, row in stored.communities.items() if rows.get(key) != row]
    if ended:
        await tx.execute(_SQL["end_memberships"], corpus, number, ended)
    if dead:
        ids, levels = [key[0] for key in dead], [key[1] for key in dead]
        await tx.execute(_SQL["end_communities"], corpus, number, ids, levels)
    moved = [(corpus, entity, number, path) for entity, path in paths.items() if stored.paths.get(entity) != path]
    new = [(corpus, *key, number, *row) for key, row in rows.items() if stored.communities.get(key) != row]
    await tx.copy("membership", _MEMBERSHIP, moved)
    await tx.copy("community", _COMMUNITY, new)
    return len(ended) + len(dead) + len(moved) + len(new)

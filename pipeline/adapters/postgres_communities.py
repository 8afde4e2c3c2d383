"""The graph as community detection reads it, and the communities of a generation: only what differs is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

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


async def grouped_alike(tx: Tx, corpus: CorpusId, settings: dict[str, Any]) -> bool | None:
    """Whether the current generation was grouped by these settings; None if that is not known."""
    alike: bool | None = await tx.fetchval(_SQL["grouped_alike"], corpus, settings)
    return alike


async def lone_changes(tx: Tx, corpus: CorpusId, number: int) -> list[int] | None:
    """Return the entities whose communities may differ if no relation changed and each of these is a community of its
    own; None if that is not so.
    """
    changed = await tx.fetch(_SQL["changed_nodes"], corpus, number)
    return None if any(row["related"] for row in changed) else [row["entity_no"] for row in changed]


async def read_graph(tx: Tx, corpus: CorpusId, among: Sequence[int] | None = None) -> Graph:
    """Return the graph of the generation in the making, once it is derived; or a few entities without relations."""
    if among is None:
        entities = await tx.fetch(_SQL["graph_entities"], corpus)
        packed = await tx.fetchval(_SQL["graph_edges"], corpus)
    else:
        entities, packed = await tx.fetch(_SQL["graph_among"], corpus, among), b""
    edges = np.frombuffer(packed, dtype=">i8").reshape(-1, 3)
    return await anyio.to_thread.run_sync(_graph, entities, edges)


def _graph(entities: Sequence[Any], edges: NDArray[np.int64]) -> Graph:
    return Graph(
        np.array([row["entity_no"] for row in entities], dtype=np.int64),
        [row["entity_id"] for row in entities],
        [row["name"] for row in entities],
        [row["description"] for row in entities],
        edges.astype(np.int64),
    )


async def stored_communities(
    tx: Tx, corpus: CorpusId, number: int, among: Sequence[int] | None = None
) -> StoredCommunities:
    """Return what the base of the generation in the making holds; or of a few entities and their communities."""
    if among is None:
        paths = await tx.fetch(_SQL["stored_paths"], corpus, number)
        communities = await tx.fetch(_SQL["stored_communities"], corpus, number)
    else:
        paths = await tx.fetch(_SQL["paths_among"], corpus, number, among)
        ids = sorted({community for row in paths for community in row["path"]})
        communities = await tx.fetch(_SQL["communities_among"], corpus, number, ids)
    return await anyio.to_thread.run_sync(_stored, paths, communities)


def _stored(paths: Sequence[Any], communities: Sequence[Any]) -> StoredCommunities:
    return StoredCommunities(
        {entity: tuple(path) for entity, path in paths},
        {(community, level): (parent, size, name, text) for community, level, parent, size, name, text in communities},
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
    diff = await anyio.to_thread.run_sync(_difference, partition, communities, stored)
    if diff.left:
        await tx.execute(_SQL["end_memberships"], corpus, number, diff.left)
    if diff.dead:
        ids, levels = [key[0] for key in diff.dead], [key[1] for key in diff.dead]
        await tx.execute(_SQL["end_communities"], corpus, number, ids, levels)
    await tx.copy("membership", _MEMBERSHIP, ((corpus, entity, number, path) for entity, path in diff.joined))
    await tx.copy("community", _COMMUNITY, ((corpus, *key, number, *row) for key, row in diff.new))
    return len(diff.left) + len(diff.dead) + len(diff.joined) + len(diff.new)


@dataclass(frozen=True, slots=True)
class _Difference:
    """Entities whose stored path ends, communities whose stored row ends, and what begins."""

    left: list[int]
    dead: list[tuple[int, int]]
    joined: list[tuple[int, tuple[int, ...]]]
    new: list[tuple[tuple[int, int], Row]]


def _difference(partition: Partition, communities: Sequence[Community], stored: StoredCommunities) -> _Difference:
    """Compare; for a thread, since there are as many rows as entities."""
    paths: dict[int, tuple[int, ...]] = dict(zip(partition.entities.tolist(), partition.paths, strict=True))
    rows: dict[tuple[int, int], Row] = {
        (c.community_id, c.level): (c.parent, len(c.members), c.name, c.summary) for c in communities
    }
    return _Difference(
        [entity for entity, path in stored.paths.items() if paths.get(entity) != path],
        [key for key, row in stored.communities.items() if rows.get(key) != row],
        [(entity, path) for entity, path in paths.items() if stored.paths.get(entity) != path],
        [(key, row) for key, row in rows.items() if stored.communities.get(key) != row],
    )

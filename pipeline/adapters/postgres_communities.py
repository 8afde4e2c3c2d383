"""The graph as community detection reads it, and the communities of a generation: only what differs is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import numpy as np

from pipeline.ingest.communities import Graph, Ints, Labels, Partition, Path, graph_of
from pipeline.ingest.summaries import Named
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

    paths: dict[int, Path]
    communities: dict[tuple[int, int], Row]

    @property
    def named(self) -> dict[int, Named]:
        """What communities are called, by id."""
        return {community: row[1:] for (community, _), row in self.communities.items()}


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


async def read_graph(tx: Tx, corpus: CorpusId, number: int, among: Sequence[int] | None = None) -> Graph:
    """Return the graph of the generation in the making, once it is derived; or a few entities without relations."""
    touched = await tx.fetchval(_SQL["graph_touched"], corpus, number)
    if among is None:
        entities = _unpacked(await tx.fetchval(_SQL["graph_entities"], corpus))
        edges = await tx.fetchval(_SQL["graph_edges"], corpus)
    else:
        entities, edges = (await read_labels(tx, corpus, np.array(among, dtype=np.int64))).entities, b""
    pairs = _unpacked(edges).reshape(-1, 3)
    return await anyio.to_thread.run_sync(graph_of, entities, pairs, _unpacked(touched))


async def read_labels(tx: Tx, corpus: CorpusId, entities: Ints) -> Labels:
    """Return what those of these entities are called that the generation in the making sees."""
    rows = await tx.fetch(_SQL["labels"], corpus, entities.tolist())
    return Labels(
        np.array([row["entity_no"] for row in rows], dtype=np.int64),
        [row["entity_id"] for row in rows],
        [row["name"] for row in rows],
        [row["description"] for row in rows],
    )


def _unpacked(numbers: bytes) -> Ints:
    return np.frombuffer(numbers, dtype=">i8").astype(np.int64)


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
        {
            entity: path
            for row in paths
            for path in [tuple(row["path"])]
            for entity in _unpacked(row["entities"]).tolist()
        },
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
    joined: list[tuple[int, Path]]
    new: list[tuple[tuple[int, int], Row]]


def _difference(partition: Partition, communities: Sequence[Community], stored: StoredCommunities) -> _Difference:
    """Compare; for a thread, since there are as many rows as entities."""
    paths: dict[int, Path] = dict(zip(partition.entities.tolist(), partition.paths, strict=True))
    rows: dict[tuple[int, int], Row] = {
        (c.community_id, c.level): (c.parent, len(c.members), c.name, c.summary) for c in communities
    }
    return _Difference(
        [entity for entity, path in stored.paths.items() if paths.get(entity) != path],
        [key for key, row in stored.communities.items() if rows.get(key) != row],
        [(entity, path) for entity, path in paths.items() if stored.paths.get(entity) != path],
        [(key, row) for key, row in rows.items() if stored.communities.get(key) != row],
    )

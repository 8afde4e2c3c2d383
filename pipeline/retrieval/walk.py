"""The walk: from the entities of seed chunks along relations to other entities, and on to their chunks.

Every backend of a graph walks exactly like this one: same chunks, same scores, same order. What a walk reads is bounded by
`Bounds`, whatever the graph and the settings; lists are taken whole or not at all, in an order that follows from the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from pipeline.errors import InconsistentGeneration, InvalidRequest
from pipeline.retrieval.chunks import Bools, ChunkTable, Floats, Rows, find
from pipeline.retrieval.graph import Csr, Graph
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.scored import Scored, starts_of
from pipeline.retrieval.snapshot import Snapshot
from schemas.settings import GraphSearchSettings

MAX_SEEDS = 100
"""Seed entities that are walked from: the strongest, ties by number."""

FAN = 250
"""Neighbours of an entity that its list holds: those with most relations, ties by number."""

STEP_EDGES = 1_000
"""Neighbours that one step from one seed entity reads, in whole lists."""

ENTITY_CHUNKS = 1_000
"""Chunks of an entity that its list holds: the first by id."""

CHUNK_LINKS = 10_000
"""Chunks that the entities reached are looked up in, repetitions counted, in whole lists."""

MAX_MEMBERS = 1_000
"""Members of one community that the community expansion looks at: the first by number."""

COMMUNITY_LINKS = 1_000
"""Chunks that the members of one community are looked up in, repetitions counted, in whole lists."""

COMMUNITY_CHUNKS = 10
"""Chunks that one community adds at most."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a walk reads at most, each as the constant says; tests lower them.

    A list is never longer than what is read of lists at a time, so the first one always fits. A store that derives lists
    when it is written fixes `fan` and `entity_chunks` then.
    """

    seeds: int = MAX_SEEDS
    fan: int = FAN
    step_edges: int = STEP_EDGES
    entity_chunks: int = ENTITY_CHUNKS
    chunk_links: int = CHUNK_LINKS
    members: int = MAX_MEMBERS
    community_links: int = COMMUNITY_LINKS
    community_chunks: int = COMMUNITY_CHUNKS

    def __post_init__(self) -> None:
        if self.fan > self.step_edges or self.entity_chunks > min(self.chunk_links, self.community_links):
            raise InvalidRequest("the bounds of a walk must leave room for one whole list")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the settings ask of a walk: hops 0..5, window 0..10, cap 1..1000 related entities for each seed entity."""

    max_hops: int
    window: int
    cap: int
    top_k: int
    communities: bool = False
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        bounds = (("max_hops", self.max_hops, 0, 5), ("chunk_neighbor_window", self.window, 0, 10))
        for name, value, low, high in (*bounds, ("max_related_entities_per_seed", self.cap, 1, 1000)):
            if not low <= value <= high:
                raise InvalidRequest(f"{name} must be between {low} and {high}")

    @classmethod
    def of(cls, settings: GraphSearchSettings) -> Self:
        """Return the limits that a corpus's settings ask for."""
        return cls(
            settings.max_hops,
            settings.chunk_neighbor_window,
            settings.max_related_entities_per_seed,
            settings.top_k,
            settings.include_communities,
        )


@dataclass(frozen=True, slots=True)
class WalkResult:
    """All rows with a score that the first `top_k` have, highest first, ties by row.

    `by_community` marks those that a community scores higher than all else does.

    `resolved_entities` counts the seed entities and those related to them; `cut_short` the seed entities at a hub whose
    neighbours were not all read.
    """

    rows: Rows
    scores: Floats
    by_community: Bools
    seed_chunks: int = 0
    resolved_entities: int = 0
    cut_short: int = 0

    def contested(self, top_k: int, limit: int = 1000) -> Rows:
        """Return the rows, at most `limit`, whose place in the first `top_k` hangs on their similarity."""
        if not len(self.rows):
            return self.rows
        least = self.scores[min(top_k, len(self.rows)) - 1]
        near = self.scores[self.scores >= least]
        same = near[1:] == near[:-1]
        tied = np.flatnonzero(np.concatenate([[False], same]) | np.concatenate([same, [False]]))
        return self.rows[tied[:limit]]

    def settle(self, similarity: Mapping[int, float], top_k: int) -> WalkResult:
        """Break ties by similarity (by row; one without stands behind those with), then by row, and cut to `top_k`."""
        near = np.array([similarity.get(row, -np.inf) for row in self.rows.tolist()], dtype=np.float64)
        order = np.lexsort((self.rows, -near, -self.scores))[:top_k]
        return WalkResult(
            self.rows[order],
            self.scores[order],
            self.by_community[order],
            self.seed_chunks,
            self.resolved_entities,
            self.cut_short,
        )

    @property
    def counters(self) -> dict[str, int]:
        """What the leg reports; the two expansions add up to the candidates here."""
        communities = int(self.by_community.sum())
        return {
            "seed_chunks": self.seed_chunks,
            "resolved_entities": self.resolved_entities,
            "relationship_expansion_hits": len(self.rows) - communities,
            "community_expansion_hits": communities,
            "seeds_cut_short": self.cut_short,
        }


@dataclass(frozen=True, slots=True)
class Reach:
    """What seed entities lead to: `entity` at `distance` from the seed entity at position `seed`; itself at 0 too."""

    seed: Rows
    entity: Rows
    distance: Rows
    cut_short: int = 0


def walk(
    snapshot: Snapshot, seeds: Sequence[tuple[int, float]], limits: Limits, allowed: Bools | None = None
) -> WalkResult:
    """Expand seed chunks (row, score) over relations only, and return the best; settle() breaks ties and cuts.

    A chunk scores the best of `score of the seed entity / (1 + distance)` over the entities it mentions, where a seed
    entity has the best score of its seed chunks; a chunk within the window of such a chunk scores that chunk's score
    over `1 + places between them`. Seed chunks are never results. `allowed` (by row) restricts the results, not the
    way there.
    """
    graph, bounds = snapshot.graph, limits.bounds
    rows = np.array([row for row, _ in seeds], dtype=np.int64)
    entities, strengths = _seed_entities(graph, rows, np.array([score for _, score in seeds]), bounds.seeds)
    reach = related(graph.neighbors, entities, limits)
    reached = Scored.best(reach.entity, strengths[reach.seed] / (1.0 + reach.distance))
    own = _chunks(graph.chunks, reached, bounds).without(rows)
    least = _among(own, allowed).least(limits.top_k)
    own = _spread(own, snapshot.chunks, limits.window, least).without(rows)
    extra = _community_chunks(graph, Scored(entities, strengths), rows, limits, least)
    ranked = _among(own, allowed).ranked(_among(extra, allowed), limits.top_k)
    return WalkResult(*ranked, len(np.unique(rows)), len(reached.chunks), reach.cut_short)


def walk_chunks(
    snapshot: Snapshot, seeds: Sequence[tuple[int, float]], limits: Limits, allowed: Ints | None
) -> WalkResult:
    """Do the same by chunk id, as a `GraphReader` does: seeds, `allowed` and the rows of the result are chunk ids.

    Raises:
        InconsistentGeneration: a seed is no chunk of this generation.
    """
    rows = snapshot.rows(chunk for chunk, _ in seeds).tolist()
    if -1 in rows:
        raise InconsistentGeneration("the graph of this generation lacks a chunk that its dense collection has")
    by_row = [(row, score) for row, (_, score) in zip(rows, seeds, strict=True)]
    found = walk(snapshot, by_row, limits, None if allowed is None else snapshot.mask(allowed))
    return replace(found, rows=snapshot.chunk_ids[found.rows])


def _among(scored: Scored, allowed: Bools | None) -> Scored:
    return scored if allowed is None else scored.where(allowed[scored.chunks])


def _seed_entities(graph: Graph, rows: Rows, scores: Floats, most: int) -> tuple[Rows, Floats]:
    """Return the strongest entities that seed chunks mention, each with the best score of its chunks."""
    owners, mentioned = graph.mentioned.gather(rows)
    found = Scored.best(mentioned, scores[owners])
    kept = np.sort(np.argsort(-found.scores, kind="stable")[:most])
    return found.chunks[kept], found.scores[kept]


def related(neighbors: Csr, seeds: Rows, limits: Limits) -> Reach:
    """Walk from all seed entities (distinct) at once, breadth first, at most `cap` other entities for each.

    The nearest come first, then those with most shortest paths (parallel relations are paths of their own), then by
    entity number. Once a seed has its share it is walked no further. One step of one seed reads the lists of the
    entities before it in this order, as many as fit; a seed that met a list too long or too many counts as cut short.
    """
    n, bounds = max(len(neighbors.offsets) - 1, 1), limits.bounds
    owner, entity, paths = np.arange(len(seeds), dtype=np.int64), seeds, np.ones(len(seeds))
    seen = owner * n + entity
    taken = np.zeros(len(seeds), dtype=np.int64)
    steps = [(owner, entity)]
    cut = np.zeros(len(seeds), dtype=np.bool_)
    for _ in range(limits.max_hops):
        going = taken[owner] < limits.cap
        owner, entity, paths = owner[going], entity[going], paths[going]
        degrees = neighbors.degrees(entity)
        lengths = np.minimum(degrees, bounds.fan)
        fits = _fitting(owner, lengths, bounds.step_edges)
        cut[owner[~fits | (degrees > bounds.fan)]] = True
        origin, at = neighbors.spans(entity, np.where(fits, lengths, 0))
        reached = (owner[origin] * n + neighbors.targets[at]).astype(np.int64)
        order = np.argsort(reached, kind="stable")
        several = (paths[origin] * neighbors.weights[at])[order]
        starts = starts_of(reached[order])
        pairs, paths = reached[order][starts], np.add.reduceat(several, starts) if len(starts) else several
        new = find(seen, pairs) < 0
        pairs, paths = pairs[new], paths[new]
        owner, entity = np.divmod(pairs, n)
        order = np.lexsort((entity, -paths, owner))
        order = order[taken[owner[order]] + _place_in_group(owner[order]) < limits.cap]
        owner, entity, paths = owner[order], entity[order], paths[order]
        taken += np.bincount(owner, minlength=len(seeds))
        seen = np.sort(np.concatenate([seen, owner * n + entity]))
        steps.append((owner, entity))
    distances = [np.full(len(found), distance) for distance, (_, found) in enumerate(steps)]
    owners, entities = (np.concatenate(column) for column in zip(*steps, strict=True))
    return Reach(owners, entities, np.concatenate(distances), int(cut.sum()))


def _place_in_group(groups: Rows) -> Rows:
    """Return the place, from 0, of each element among the neighbouring elements of the same group."""
    starts = starts_of(groups)
    sizes = np.diff(np.append(starts, len(groups)))
    return np.arange(len(groups), dtype=np.int64) - np.repeat(starts, sizes)


def _fitting(groups: Rows, lengths: Rows, most: int) -> Bools:
    """Mark the first elements of each group of neighbouring ones, as many as have lengths that add up to `most`."""
    ends = np.cumsum(lengths)
    starts = np.arange(len(groups)) - _place_in_group(groups)
    fits: Bools = ends - (ends - lengths)[starts] <= most
    return fits


def _chunks(chunks: Csr, entities: Scored, bounds: Bounds) -> Scored:
    """Score the chunks of the entities reached: the lists of the best entities, as many as fit."""
    order = np.argsort(-entities.scores, kind="stable")
    lengths = np.minimum(chunks.degrees(entities.chunks[order]), bounds.entity_chunks)
    order = order[np.cumsum(lengths) <= bounds.chunk_links]
    owners, at = chunks.spans(entities.chunks[order], lengths[: len(order)])
    # The first time that a chunk comes is the best.
    found, first = np.unique(chunks.targets[at].astype(np.int64), return_index=True)
    return Scored(found, entities.scores[order][owners[first]])


def _spread(own: Scored, chunks: ChunkTable, window: int, least: float) -> Scored:
    """Add the neighbours, in their documents, of chunks with a score, where that is at least `least`."""
    parts = [own]
    for step in range(1, window + 1):
        shared = own.scores / (1.0 + step)
        near = np.flatnonzero(shared >= least)
        for direction in (-step, step):
            at, found = chunks.neighbors(own.chunks[near], direction)
            parts.append(Scored(found, shared[near][at]))
    return Scored.best(np.concatenate([part.chunks for part in parts]), np.concatenate([part.scores for part in parts]))


def _community_chunks(graph: Graph, seeds: Scored, seed_rows: Rows, limits: Limits, least: float) -> Scored:
    """Score the best-connected chunks of the communities of seed entities, below those of the last hop.

    Best connected are those that mention most members; ties by row. Seed chunks are passed over, and communities whose
    score would be less than `least`.
    """
    bounds, values = limits.bounds, seeds.scores / (2.0 + limits.max_hops)
    strong = (graph.communities[seeds.chunks] >= 0) & (values >= least) & limits.communities
    finest = find(graph.community_ids, graph.communities[seeds.chunks[strong]])
    best = Scored.best(finest, values[strong])
    lengths = np.minimum(graph.members.degrees(best.chunks), bounds.members)
    owner, where = graph.members.spans(best.chunks, lengths)
    members = graph.members.targets[where].astype(np.int64)
    lengths = np.minimum(graph.chunks.degrees(members), bounds.entity_chunks)
    fits = _fitting(owner, lengths, bounds.community_links)
    origin, where = graph.chunks.spans(members, np.where(fits, lengths, 0))
    n = max(len(graph.mentioned.offsets) - 1, 1)
    pairs, connections = np.unique(owner[origin] * n + graph.chunks.targets[where], return_counts=True)
    owner, rows = np.divmod(pairs, n)
    free = ~np.isin(rows, seed_rows)
    owner, rows, connections = owner[free], rows[free], connections[free]
    order = np.lexsort((rows, -connections, owner))
    order = order[_place_in_group(owner[order]) < bounds.community_chunks]
    return Scored.best(rows[order], best.scores[owner[order]])

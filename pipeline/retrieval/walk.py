"""The walk: from the entities of seed chunks along relations to other entities, and on to their chunks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from pipeline.errors import InvalidRequest
from pipeline.retrieval.chunks import Bools, ChunkTable, Floats, Rows, find
from pipeline.retrieval.graph import Csr, Graph
from pipeline.retrieval.snapshot import Snapshot
from schemas.settings import GraphSearchSettings

EDGE_BUDGET = 100_000
"""Edges read in one step of the walk, shared evenly by the seed entities: what bounds the cost of hubs."""

COMMUNITY_CHUNKS = 10
"""Chunks that one community adds at most."""

MAX_MEMBERS = 1000
"""Members of one community that the community expansion looks at."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a walk: hops 0..5, window 0..10, cap 1..1000 related entities for each seed entity."""

    max_hops: int
    window: int
    cap: int
    top_k: int
    communities: bool = False
    edge_budget: int = EDGE_BUDGET

    def __post_init__(self) -> None:
        bounds = (("max_hops", self.max_hops, 0, 5), ("chunk_neighbor_window", self.window, 0, 10))
        for name, value, low, high in (*bounds, ("max_related_entities_per_seed", self.cap, 1, 1000)):
            if not low <= value <= high:
                raise InvalidRequest(f"{name} must be between {low} and {high}")

    @classmethod
    def of(cls, settings: GraphSearchSettings) -> Self:
        """Return the bounds that a corpus's settings ask for."""
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

    `by_community` marks those that only a community brought in.

    `resolved_entities` counts the seed entities and those related to them; `cut_short` the seed entities at a hub whose
    edges were not all read.
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
    graph = snapshot.graph
    rows = np.array([row for row, _ in seeds], dtype=np.int64)
    owners, mentioned = graph.mentioned.gather(rows)
    entities, at = np.unique(mentioned, return_inverse=True)
    strengths = np.full(len(entities), -np.inf)
    np.maximum.at(strengths, at, np.array([score for _, score in seeds], dtype=np.float64)[owners])
    reach = related(graph.neighbors, entities, limits)
    scores = np.full(len(snapshot.chunk_ids), -np.inf)
    resolved = _score_chunks(scores, graph.chunks, reach, strengths, limits.top_k + len(rows), allowed)
    scores[rows] = -np.inf
    least = _least(scores, limits.top_k, allowed)
    extra = np.full_like(scores, -np.inf)
    if limits.communities:
        _add_communities(extra, graph, (entities, strengths), rows, limits, least)
    _spread(scores, snapshot.chunks, limits.window, least)
    scores[rows] = extra[rows] = -np.inf
    by_community = extra > scores
    np.maximum(scores, extra, out=scores)
    least = max(_least(scores, limits.top_k, allowed), np.finfo(np.float64).min)
    found = np.flatnonzero(scores >= least if allowed is None else (scores >= least) & allowed)
    order = found[np.argsort(-scores[found], kind="stable")]
    return WalkResult(order, scores[order], by_community[order], len(np.unique(rows)), resolved, reach.cut_short)


def _least(scores: Floats, top_k: int, allowed: Bools | None) -> float:
    """Return the `top_k`-th best score, -inf where there are fewer: what is below it need not be looked at."""
    found = scores[np.isfinite(scores) if allowed is None else np.isfinite(scores) & allowed]
    return float(np.partition(found, len(found) - top_k)[len(found) - top_k]) if len(found) >= top_k else -np.inf


def related(neighbors: Csr, seeds: Rows, limits: Limits) -> Reach:
    """Walk from all seed entities (distinct, ascending) at once, breadth first, at most `cap` other entities for each.

    The nearest come first, then those with most shortest paths (parallel relations are paths of their own), then by
    entity number. Once a seed has its share it is walked no further. What one step may read is bounded by the edge
    budget, so a hub costs no more than that; a seed that ran into it counts as cut short.
    """
    n = max(len(neighbors.offsets) - 1, 1)
    owner, entity, paths = np.arange(len(seeds), dtype=np.int64), seeds, np.ones(len(seeds))
    seen = owner * n + entity
    taken = np.zeros(len(seeds), dtype=np.int64)
    steps = [(owner, entity)]
    cut = np.zeros(len(seeds), dtype=np.bool_)
    for _ in range(limits.max_hops):
        going = taken[owner] < limits.cap
        owner, entity = owner[going], entity[going]
        degrees = neighbors.degrees(entity)
        counts = _within_budget(owner, degrees, limits.edge_budget // max(len(seeds), 1))
        cut[owner[counts < degrees]] = True
        origin, at = neighbors.spans(entity, counts)
        reached = (owner[origin] * n + neighbors.targets[at]).astype(np.int64)
        order = np.argsort(reached, kind="stable")
        several = (paths[going][origin] * neighbors.weights[at])[order]
        starts = _starts(reached[order])
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


def _starts(groups: Rows) -> Rows:
    """Return where runs of equal elements begin."""
    first = np.ones(min(len(groups), 1), dtype=np.bool_)
    return np.flatnonzero(np.concatenate([first, groups[1:] != groups[:-1]])).astype(np.int64)


def _place_in_group(groups: Rows) -> Rows:
    """Return the place, from 0, of each element among the neighbouring elements of the same group."""
    starts = _starts(groups)
    sizes = np.diff(np.append(starts, len(groups)))
    return np.arange(len(groups), dtype=np.int64) - np.repeat(starts, sizes)


def _within_budget(groups: Rows, costs: Rows, budget: int) -> Rows:
    """Cut costs, in order, so that those of each group of neighbouring elements add up to `budget` at most."""
    before = np.cumsum(costs) - costs
    starts = np.arange(len(groups)) - _place_in_group(groups)
    capped: Rows = np.clip(budget - (before - before[starts]), 0, costs)
    return capped


def _score_chunks(
    scores: Floats, chunks: Csr, reach: Reach, strengths: Floats, enough: int, allowed: Bools | None
) -> int:
    """Score the chunks of the entities reached, the best entities first, and return how many entities that are.

    It stops when the `enough` best chunks are known: a weaker entity or its chunk's neighbour cannot be among them.
    """
    entities, at = np.unique(reach.entity, return_inverse=True)
    best = np.full(len(entities), -np.inf)
    np.maximum.at(best, at, strengths[reach.seed] / (1.0 + reach.distance))
    order = np.argsort(-best, kind="stable")
    ends = np.searchsorted(np.cumsum(chunks.degrees(entities[order])), enough * 4 ** np.arange(1, 12)) + 1
    for start, end in itertools.pairwise([0, *ends.tolist()]):
        part = order[start:end]
        if len(part) and 0 < best[part[0]] < _least(scores, enough, allowed):
            break
        owners, found = chunks.gather(entities[part])
        np.maximum.at(scores, found, best[part][owners])
    return len(entities)


def _spread(scores: Floats, chunks: ChunkTable, window: int, least: float) -> None:
    """Score the neighbours, in their documents, of the chunks that have a score, where that is at least `least`."""
    rows = np.flatnonzero(np.isfinite(scores)) if window else np.empty(0, dtype=np.int64)
    own = scores[rows]
    for step in range(1, window + 1):
        shared = own / (1.0 + step)
        near = np.flatnonzero(shared >= least)
        for direction in (-step, step):
            at, found = chunks.neighbors(rows[near], direction)
            np.maximum.at(scores, found, shared[near][at])


def _add_communities(
    scores: Floats, graph: Graph, seeds: tuple[Rows, Floats], seed_rows: Rows, limits: Limits, least: float
) -> None:
    """Score the best-connected chunks of the communities of seeds (entities, strengths), below those of the last hop.

    Best connected are those that mention most members; ties by row. Seed chunks are passed over, and communities whose
    score would be less than `least`.
    """
    entities, strengths = seeds
    strong = (graph.communities[entities] >= 0) & (strengths / (2.0 + limits.max_hops) >= least)
    entities, strengths = entities[strong], strengths[strong]
    communities, at = np.unique(find(graph.community_ids, graph.communities[entities]), return_inverse=True)
    best = np.full(len(communities), -np.inf)
    np.maximum.at(best, at, strengths / (2.0 + limits.max_hops))
    owner, where = graph.members.spans(communities, np.minimum(graph.members.degrees(communities), MAX_MEMBERS))
    members = graph.members.targets[where].astype(np.int64)
    counts = _within_budget(owner, graph.chunks.degrees(members), limits.edge_budget // max(len(communities), 1))
    origin, where = graph.chunks.spans(members, counts)
    n = len(scores)
    pairs, connections = np.unique(owner[origin] * n + graph.chunks.targets[where], return_counts=True)
    owner, rows = np.divmod(pairs, max(n, 1))
    free = ~np.isin(rows, seed_rows)
    owner, rows, connections = owner[free], rows[free], connections[free]
    order = np.lexsort((rows, -connections, owner))
    order = order[_place_in_group(owner[order]) < COMMUNITY_CHUNKS]
    np.maximum.at(scores, rows[order], best[owner[order]])

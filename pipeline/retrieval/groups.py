"""HIERARCHICAL: which communities and sections hold most of what a first search found. Pure.

A group scores the sum of the scores of its chunks that were found, over the root of the number of all its chunks: so
neither a large group wins by its size, nor one chunk alone. On MuSiQue and HotpotQA this did better than the best, the mean
and the sum of three, and 20 groups better than 10 or 30.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.retrieval.chunks import Floats, Rows, find
from pipeline.retrieval.graph import Graph
from pipeline.retrieval.outline import Section, flattened
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import ENTITY_CHUNKS, MAX_MEMBERS

GROUPS = 20
"""Groups whose chunks are searched."""

CANDIDATES = 200
"""Communities whose chunks are counted: those whose found chunks score most."""

LINKS = 100_000
"""Links from their members to chunks that are followed for that, repetitions counted: whole communities, as many as fit."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its score, and the ids of its chunks."""

    score: float
    community: bool
    chunks: Sequence[int]


@dataclass(frozen=True, slots=True)
class Groups:
    """The best groups: the ids of all their chunks, ascending, and how many groups of each kind they are."""

    chunks: Ints
    communities: int
    sections: int


def best_groups(
    snapshot: Snapshot, roots: Sequence[Section], scores: Mapping[int, float], communities: bool = True
) -> Groups:
    """Return the best groups for the scores, by chunk id, of what was found; ties go to communities, then to the first.

    `roots` are the documents of what was found. Without `communities`, only sections count.
    """
    found = [*(_communities(snapshot, scores) if communities else ()), *_sections(roots, scores)]
    best = sorted(found, key=lambda group: -group.score)[:GROUPS]
    ids = np.array(sorted({chunk for group in best for chunk in group.chunks}), dtype=np.int64)
    wide = sum(group.community for group in best)
    return Groups(ids, wide, len(best) - wide)


def _sections(roots: Sequence[Section], scores: Mapping[int, float]) -> list[Group]:
    sections = flattened(roots)
    sums = [sum(scores.get(chunk, 0.0) for chunk in section.chunks) for section in sections]
    return [
        Group(total / math.sqrt(len(section.chunks)), False, section.chunks)
        for section, total in zip(sections, sums, strict=True)
        if total > 0
    ]


def _communities(snapshot: Snapshot, scores: Mapping[int, float]) -> list[Group]:
    """Return the best communities of entities that the found chunks mention, each with the chunks that mention it."""
    graph = snapshot.graph
    rows = snapshot.rows(scores)
    values = np.array(list(scores.values()), dtype=np.float64)
    candidates, sums = _candidates(graph, rows[rows >= 0], values[rows >= 0])
    owners, chunks, counted = _chunks(graph, candidates)
    sizes = np.bincount(owners, minlength=counted)
    with_size = sums[:counted] / np.sqrt(np.maximum(sizes, 1))
    order = np.argsort(-with_size, kind="stable")[:GROUPS]
    return [
        Group(float(with_size[at]), True, snapshot.chunk_ids[chunks[owners == at]].tolist()) for at in order.tolist()
    ]


def _candidates(graph: Graph, rows: Rows, values: Floats) -> tuple[Rows, Floats]:
    """Return communities (positions) and the sums of the scores of the found chunks that mention them, best first."""
    owners, entities = graph.mentioned.gather(rows)
    at = find(graph.community_ids, graph.communities[entities])
    n = max(len(graph.community_ids), 1)
    pairs = np.unique(owners[at >= 0] * n + at[at >= 0])
    owners, at = np.divmod(pairs, n)
    sums = np.bincount(at, weights=values[owners], minlength=n).astype(np.float64)
    best = np.argsort(-sums, kind="stable")[:CANDIDATES]
    best = best[sums[best] > 0]
    return best.astype(np.int64), sums[best]


def _chunks(graph: Graph, communities: Rows) -> tuple[Rows, Rows, int]:
    """Return (positions in `communities`, rows) of the chunks that mention a member, each once for each community; and how
    many communities were counted, from the first on.
    """
    owners, where = graph.members.spans(communities, np.minimum(graph.members.degrees(communities), MAX_MEMBERS))
    members = graph.members.targets[where].astype(np.int64)
    lengths = np.minimum(graph.chunks.degrees(members), ENTITY_CHUNKS)
    beyond = owners[np.cumsum(lengths) > LINKS]
    counted = int(beyond[0]) if len(beyond) else len(communities)
    inside = owners < counted
    origin, where = graph.chunks.spans(members[inside], lengths[inside])
    n = max(len(graph.mentioned.offsets) - 1, 1)
    pairs: Rows = np.unique(owners[inside][origin] * n + graph.chunks.targets[where].astype(np.int64))
    return pairs // n, pairs % n, counted

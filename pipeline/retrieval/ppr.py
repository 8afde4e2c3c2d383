"""Personalised PageRank over identity keys and passages (Haveliwala 2002; for retrieval: Gutiérrez et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.retrieval.chunks import Bools, Floats, Rows
from pipeline.retrieval.graph import Csr, Graph, Positions
from pipeline.retrieval.keyword import best
from pipeline.retrieval.seeds import Seed
from schemas.settings import GraphSearchSettings

PASSAGE_MASS = 0.1
"""How much of the restart goes to the seed passages, where there are seed keys too."""

LEAST_SHARE = 1e-5
"""Mass per unit of weight below which it is not passed on; 1 / ((1 - damping) * this) bounds the links followed."""


def ppr(
    graph: Graph,
    seeds: Sequence[Seed],
    passages: Sequence[tuple[int, float]],
    settings: GraphSearchSettings,
    allowed: Bools | None = None,
) -> tuple[Rows, Floats]:
    """Return the `top_k` passages (rows) with most mass and these masses, best first, ties by chunk id.

    `allowed` (by row) restricts the result, not the walk. Without seeds there is no result.
    """
    mass = masses(graph, seeds, passages, settings)
    return best(np.where(allowed, mass, 0.0) if allowed is not None else mass, settings.top_k)


def masses(
    graph: Graph,
    seeds: Sequence[Seed],
    passages: Sequence[tuple[int, float]],
    settings: GraphSearchSettings,
    share: float = PASSAGE_MASS,
) -> Floats:
    """Return how often a walker is at each passage, by row.

    A walker goes from a passage to one of its keys and from a key to one of its passages, by the weight of the link,
    and restarts with probability `1 - damping` at a seed key (by weight) or a seed passage (row, score; by positive
    score, `share` in all where there are seed keys too).
    """
    size = len(graph.chunk_strengths)
    keys = _masses(len(graph.key_strengths), [seed.key for seed in seeds], [seed.weight for seed in seeds])
    chunks = _masses(size, [row for row, _ in passages], [max(score, 0.0) for _, score in passages])
    if keys.any() and chunks.any():
        keys *= 1.0 - share
        chunks *= share
    return _spread(graph, keys, chunks, settings.damping, settings.iterations)


def _masses(size: int, positions: list[int], weights: list[float]) -> Floats:
    total = sum(weights)
    masses = np.bincount(np.array(positions, dtype=np.int64), weights=weights, minlength=size).astype(np.float64)
    return masses / total if total else masses


def _spread(graph: Graph, keys: Floats, chunks: Floats, damping: float, iterations: int) -> Floats:
    """Return the mass of the passages by forward push (Andersen, Chung and Lang 2006), both inputs being used up.

    `keys` and `chunks` hold mass that is not yet passed on. One round passes on that of all keys, then that of all
    passages that have enough of it to matter, so `iterations` steps of a walker are half as many rounds.
    """
    mass = np.zeros_like(chunks)
    active_keys, seeded = np.flatnonzero(keys), np.flatnonzero(chunks)
    for _ in range((iterations + 1) // 2):
        reached = _push(graph.key_chunks, keys, chunks, active_keys, graph.key_strengths, damping)
        active_chunks = np.union1d(seeded, reached) if len(seeded) else reached
        active_chunks = active_chunks[chunks[active_chunks] > LEAST_SHARE * graph.chunk_strengths[active_chunks]]
        mass[active_chunks] += chunks[active_chunks]
        active_keys = _push(graph.keys, chunks, keys, active_chunks, graph.chunk_strengths, damping)
        active_keys = active_keys[keys[active_keys] > LEAST_SHARE * graph.key_strengths[active_keys]]
        seeded = seeded[:0]
        if not len(active_keys):
            break
    return (1.0 - damping) * (mass + chunks)


def _push(lists: Csr, source: Floats, target: Floats, active: Rows, strengths: Positions, damping: float) -> Rows:
    """Pass the mass of the active on to what they are linked to, by weight, and return what was reached, ascending."""
    shares = damping * source[active] / np.maximum(strengths[active], 1)
    source[active] = 0.0
    owners, at = lists.spans(active, lists.degrees(active))
    reached = lists.targets[at]
    np.add.at(target, reached, shares[owners] * lists.weights[at])
    touched = np.zeros(len(target), dtype=np.bool_)
    touched[reached] = True
    return np.flatnonzero(touched).astype(np.int64)

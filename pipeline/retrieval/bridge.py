"""The second step of a question: what the passages it leads to leave open, asked of their neighbours in the graph. Pure.

"What genre is the author of Ghosts known for?" leads to the passage on Ghosts, a *bridge*: it holds "author" and "Ghosts"
and mentions whoever that is. "Genre" is left, and of all that the bridge is linked to, the author's passage holds it. A
PageRank alone does not know what was asked; words and vectors alone do not know who is meant.

On MuSiQue and HotpotQA (see `make bench-quality`), 3 to 10 bridges, and weights from 0.4 to 1, did equally well. Asking
by vectors instead of words did no better, and would cost an embedding for each bridge.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.retrieval.analyzer import term_hash, tokens
from pipeline.retrieval.chunks import Floats, Rows
from pipeline.retrieval.graph import ABOUT, Graph
from pipeline.retrieval.snapshot import Snapshot
from schemas.settings import KeywordSettings

WEIGHT = 0.5
"""What the best possible second step is worth, beside 1 for the passage with most mass."""

LEAST_MASS = 1e-6
"""Part of the highest mass that counts as none; masses are compared by their logarithms."""

LINKS = 500
"""Links that are followed from one bridge at most: whole keys, as many as fit, those in fewest passages first."""

BACK = 0.7
"""Strength of a link to a passage that mentions what the bridge is about; to one about what the bridge mentions it is 1."""


def bridged(snapshot: Snapshot, mass: Floats, question: str, bridges: int, keyword: KeywordSettings) -> Floats:
    """Return a score for each passage, by row: the logarithm of its mass, scaled to 0..1, and its second step.

    Where there is no mass, there is no score. Without bridges no words are looked for.
    """
    highest = float(mass.max(initial=0.0))
    if not highest:
        return mass
    part = mass / highest
    near = np.flatnonzero(part > LEAST_MASS)
    closeness = np.zeros(len(mass), dtype=np.float64)
    closeness[near] = 1.0 - np.log(part[near]) / math.log(LEAST_MASS)
    return closeness + WEIGHT * second_steps(snapshot, question, bridges, keyword) if bridges else closeness


def second_steps(snapshot: Snapshot, question: str, bridges: int, keyword: KeywordSettings) -> Floats:
    """Return for each passage, by row and in 0..1, how well it answers what the best bridge to it leaves open.

    Bridges are the first passages by BM25. A passage scores its own BM25 for the terms that a bridge lacks, as a part of
    the best that the whole question has anywhere; times the strength of its link and the bridge's part of that best.
    """
    steps = np.zeros(len(snapshot.chunk_ids), dtype=np.float64)
    terms = [term_hash(term) for term in tokens(question)]
    rows, scores = snapshot.keyword.search(terms, bridges, None, keyword.k1, keyword.b)
    if not len(rows):
        return steps
    owners, linked, strengths = _neighbors(snapshot.graph, rows)
    lacking = snapshot.keyword.parts(terms, rows, keyword.k1, keyword.b) == 0.0
    answers = snapshot.keyword.parts(terms, linked, keyword.k1, keyword.b)
    answers *= lacking[:, owners]
    shares = scores / scores[0]
    np.maximum.at(steps, linked, shares[owners] * strengths * answers.sum(axis=0) / scores[0])
    return steps


def _neighbors(graph: Graph, rows: Rows) -> tuple[Rows, Rows, Floats]:
    """Return (position in `rows`, row, strength) of the links that lead from these passages to others."""
    owners, at = graph.keys.spans(rows, graph.keys.degrees(rows))
    keys, own = graph.keys.targets[at].astype(np.int64), graph.keys.weights[at] == ABOUT
    sizes = graph.key_chunks.degrees(keys)
    order = np.lexsort((sizes, owners))
    owners, keys, own, sizes = owners[order], keys[order], own[order], sizes[order]
    total = np.cumsum(sizes)
    before = np.searchsorted(owners, owners)  # where the keys of each one's bridge begin
    fits = total - (total - sizes)[before] <= LINKS
    owners, own = owners[fits], own[fits]
    at, where = graph.key_chunks.spans(keys[fits], sizes[fits])
    linked, about = graph.key_chunks.targets[where].astype(np.int64), graph.key_chunks.weights[where] == ABOUT
    strengths = np.where(about, 1.0, np.where(own[at], BACK, 0.0))
    kept = (strengths > 0) & (linked != rows[owners[at]])
    return owners[at][kept], linked[kept], strengths[kept]

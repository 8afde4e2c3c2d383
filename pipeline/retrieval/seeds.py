"""Which names of the graph a question contains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.retrieval.analyzer import term_hash, tokens
from pipeline.retrieval.chunks import find
from pipeline.retrieval.graph import key_number
from pipeline.retrieval.snapshot import Snapshot
from schemas.ids import identity_key

MAX_WORDS = 16
"""Words in the longest name that is looked for."""


@dataclass(frozen=True, slots=True)
class Seed:
    """An identity key (position among the graph's keys) and its weight > 0 in the restart of a walk."""

    key: int
    weight: float


def question_seeds(question: str, snapshot: Snapshot) -> list[Seed]:
    """Return the keys named in a question, longest match first and without overlap, in the order of the question.

    The weight is one over the number of chunks that hold the key's rarest term, or that mention the key if these are
    more: an everyday word that an extractor once took for a name then weighs next to nothing.
    """
    graph = snapshot.graph
    words = identity_key(question).split()
    spans = [(i, i + n) for n in range(min(MAX_WORDS, len(words)), 0, -1) for i in range(len(words) - n + 1)]
    numbers = np.array([key_number(" ".join(words[i:j])) for i, j in spans], dtype=np.int64)
    taken = [False] * len(words)
    found: dict[int, tuple[int, int]] = {}
    for (i, j), key in zip(spans, find(graph.key_numbers, numbers).tolist(), strict=True):
        if key >= 0 and not any(taken[i:j]):
            taken[i:j] = [True] * (j - i)
            found.setdefault(key, (i, j))
    named = sorted(found.items(), key=lambda item: item[1])
    return [Seed(key, 1.0 / _chunks(snapshot, key, " ".join(words[i:j]))) for key, (i, j) in named]


def _chunks(snapshot: Snapshot, key: int, name: str) -> int:
    rarest = min((snapshot.keyword.frequency(term_hash(term)) for term in tokens(name)), default=0)
    offsets = snapshot.graph.key_chunks.offsets
    return max(rarest, int(offsets[key + 1] - offsets[key]), 1)

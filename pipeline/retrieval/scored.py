"""Chunks or entities with scores, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pipeline.retrieval.chunks import Bools, Floats, Rows, find


@dataclass(frozen=True, slots=True)
class Scored:
    """Distinct chunks, ascending, with a score each."""

    chunks: Rows
    scores: Floats

    @classmethod
    def best(cls, chunks: Rows, scores: Floats) -> Self:
        """Give each chunk the best of its scores; chunks come in any order, any number of times."""
        order = np.lexsort((-scores, chunks))
        chunks, scores = chunks[order], scores[order]
        first = starts_of(chunks)
        return cls(chunks[first], scores[first])

    def where(self, kept: Bools) -> Scored:
        """Return those that are marked."""
        return Scored(self.chunks[kept], self.scores[kept])

    def without(self, chunks: Rows) -> Scored:
        """Leave out these chunks."""
        return self.where(~np.isin(self.chunks, chunks))

    def least(self, top_k: int) -> float:
        """Return the `top_k`-th best score, -inf where there are fewer: what is below it need not be looked at."""
        n = len(self.scores)
        return float(np.partition(self.scores, n - top_k)[n - top_k]) if n >= top_k else -np.inf

    def ranked(self, extra: Scored, top_k: int) -> tuple[Rows, Floats, Bools]:
        """Return all that reach the `top_k`-th best, `extra` added, best first, and which owe it to `extra`."""
        both = Scored.best(np.concatenate([self.chunks, extra.chunks]), np.concatenate([self.scores, extra.scores]))
        both = both.where(both.scores >= both.least(top_k))
        order = np.argsort(-both.scores, kind="stable")
        both = Scored(both.chunks[order], both.scores[order])
        at = find(self.chunks, both.chunks)
        own = np.where(at < 0, -np.inf, np.append(self.scores, -np.inf)[at])
        return both.chunks, both.scores, both.scores > own


def starts_of(groups: Rows) -> Rows:
    """Return where runs of equal elements begin."""
    first = np.ones(min(len(groups), 1), dtype=np.bool_)
    return np.flatnonzero(np.concatenate([first, groups[1:] != groups[:-1]])).astype(np.int64)

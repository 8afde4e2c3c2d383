"""BM25 word by word from the formula, over lists: slow, and plain enough to be believed. The measure of other indexes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import anyio.lowlevel

from pipeline.errors import NotFound
from pipeline.retrieval.analyzer import tokens
from schemas.ids import CorpusId

MOST = 255
"""How often a term counts in one chunk at most; all its occurrences count for the length."""


class MemoryKeyword:
    """Keeps the terms of every chunk of every generation."""

    def __init__(self, k1: float, b: float) -> None:
        self._k1 = k1
        self._b = b
        self._generations: dict[tuple[CorpusId, int], dict[int, list[str]]] = {}

    async def publish(self, corpus: CorpusId, chunks: Mapping[int, str]) -> int:
        """Make the next generation of a corpus, with exactly these texts by chunk id; return its number."""
        await anyio.lowlevel.checkpoint()
        number = 1 + sum(known == corpus for known, _ in self._generations)
        self._generations[corpus, number] = {chunk: tokens(text) for chunk, text in chunks.items()}
        return number

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """Return (chunk id, score) of the `k` best chunks that hold a term, best first, ties by chunk id.

        Only chunks in `allowed` (None: all) are returned; the statistics are those of the whole generation.

        Raises:
            NotFound: there is no such generation.
        """
        await anyio.lowlevel.checkpoint()
        chunks = self._generation(corpus, generation)
        wanted = tokens(query)
        scores = {
            chunk: sum(self._part(term, terms, chunks) for term in wanted)
            for chunk, terms in chunks.items()
            if allowed is None or chunk in allowed
        }
        hits = [hit for hit in scores.items() if hit[1] > 0]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]

    def _generation(self, corpus: CorpusId, generation: int) -> dict[int, list[str]]:
        try:
            return self._generations[corpus, generation]
        except KeyError:
            raise NotFound(f"Generation {generation} is not readable.") from None

    def _part(self, term: str, terms: list[str], chunks: dict[int, list[str]]) -> float:
        """Return what a term of the query adds to the score of a chunk."""
        frequency = min(terms.count(term), MOST)
        if not frequency:
            return 0.0
        holders = sum(term in others for others in chunks.values())
        average = sum(map(len, chunks.values())) / len(chunks)
        idf = math.log(1 + (len(chunks) - holders + 0.5) / (holders + 0.5))
        return idf * frequency / (frequency + self._k1 * (1 - self._b + self._b * len(terms) / average))

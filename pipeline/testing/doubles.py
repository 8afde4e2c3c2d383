"""Deterministic stand-ins for models and for the cache that count what they are asked; no network, no clock of their
own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import SapwoodError
from pipeline.ingest.offline import extract
from pipeline.ports import Vectors
from schemas.graph import Extraction
from schemas.ids import CorpusId


class CountingEmbedder:
    """An `EmbeddingProvider` whose vectors follow from the text alone.

    `calls` counts requests, `texts` how often each text was asked for, `busiest` the most requests at one time. Each
    request sleeps for `seconds`. `failures` are raised by the next requests, one each, before any vector is returned.
    """

    paid = True

    def __init__(self, dimension: int = 16, seconds: float = 0.0, failures: Sequence[SapwoodError] = ()) -> None:
        self.fingerprint = f"counting-{dimension}"
        self.dimension = dimension
        self.seconds = seconds
        self.failures = list(failures)
        self.calls = self.busy = self.busiest = 0
        self.texts: Counter[str] = Counter()

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        """Return pseudo-random vectors, or raise the next failure."""
        self.calls += 1
        self.texts.update(texts)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await anyio.sleep(self.seconds)
            if self.failures:
                raise self.failures.pop(0)
            return np.stack([self._vector(text) for text in texts])
        finally:
            self.busy -= 1

    def _vector(self, text: str) -> NDArray[np.float32]:
        seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dimension).astype(np.float32)


class CountingExtractor:
    """An `Extractor` that answers like the offline one, as slowly as a model and as badly as told.

    `texts` counts how often each text was asked for; `answers` overrides what it gets for some texts; `busiest` is
    the most texts at one time. Each text takes `seconds`, and costs one token in and one out.
    """

    paid = True

    def __init__(self, seconds: float = 0.0, answers: Mapping[str, SapwoodError] | None = None) -> None:
        self.fingerprint = "counting-offline"
        self.seconds = seconds
        self.answers = dict(answers or {})
        self.texts: Counter[str] = Counter()
        self.busy = self.busiest = 0

    async def extract(self, texts: Sequence[str], deadline: Deadline) -> list[Extraction | SapwoodError]:
        """Return what the offline extractor finds, text by text."""
        return [await self._one(text) for text in texts]

    async def _one(self, text: str) -> Extraction | SapwoodError:
        self.texts[text] += 1
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await anyio.sleep(self.seconds)
            if text in self.answers:
                return self.answers[text]
            found = extract(text)
            return Extraction(found.mentions, found.facts, 1, 1)
        finally:
            self.busy -= 1


class MemoryCache:
    """A `Cache` and a `ContextCache` in dictionaries."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[CorpusId, str, bytes], str] = {}
        self._vectors: dict[tuple[CorpusId, str, bytes], NDArray[np.float32]] = {}
        self._extractions: dict[tuple[CorpusId, str, bytes], Extraction] = {}

    async def vectors(
        self, corpus: CorpusId, fingerprint: str, hashes: Sequence[bytes]
    ) -> dict[bytes, NDArray[np.float32]]:
        """See `Cache`."""
        await anyio.lowlevel.checkpoint()
        return {
            key: self._vectors[corpus, fingerprint, key]
            for key in hashes
            if (corpus, fingerprint, key) in self._vectors
        }

    async def put_vectors(self, corpus: CorpusId, fingerprint: str, found: dict[bytes, NDArray[np.float32]]) -> None:
        """See `Cache`."""
        await anyio.lowlevel.checkpoint()
        for key, vector in found.items():
            self._vectors.setdefault((corpus, fingerprint, key), vector.copy())

    async def extractions(self, corpus: CorpusId, fingerprint: str, hashes: Sequence[bytes]) -> dict[bytes, Extraction]:
        """See `Cache`."""
        await anyio.lowlevel.checkpoint()
        known = self._extractions
        return {key: known[corpus, fingerprint, key] for key in hashes if (corpus, fingerprint, key) in known}

    async def put_extractions(self, corpus: CorpusId, fingerprint: str, found: dict[bytes, Extraction]) -> None:
        """See `Cache`."""
        await anyio.lowlevel.checkpoint()
        for key, extraction in found.items():
            self._extractions.setdefault((corpus, fingerprint, key), extraction)

    async def contexts(self, corpus: CorpusId, fingerprint: str, places: Sequence[bytes]) -> dict[bytes, str]:
        """See `ContextCache`."""
        await anyio.lowlevel.checkpoint()
        known = self._contexts
        return {place: known[corpus, fingerprint, place] for place in places if (corpus, fingerprint, place) in known}

    async def put_context(
        self, corpus: CorpusId, fingerprint: str, place: bytes, passage_hash: bytes, context: str
    ) -> None:
        """See `ContextCache`."""
        await anyio.lowlevel.checkpoint()
        self._contexts.setdefault((corpus, fingerprint, place), context)

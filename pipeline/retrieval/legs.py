"""What the legs of a query read and return, and two of them: the dense and the keyword leg."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, EmbeddingError, InvalidRequest
from pipeline.ports import DenseIndex, Embedder
from pipeline.retrieval.analyzer import FINGERPRINT, term_hash, tokens
from pipeline.retrieval.chunks import Bools, Floats, Rows
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.snapshot import Snapshot
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.query import QueryRequest
from schemas.settings import CorpusSettings

DEPTH = 50
"""Chunks that the dense and the keyword leg fetch, if no more are asked for."""

Vector = NDArray[np.float32]
T = TypeVar("T")


class PinnedGeneration(Protocol):
    """The generation that a query reads, held by its caller until the query is done."""

    @property
    def corpus_id(self) -> CorpusId:
        """The corpus."""
        ...

    @property
    def manifest(self) -> Manifest:
        """What the generation is made of."""
        ...

    @property
    def settings(self) -> CorpusSettings:
        """How the corpus is searched."""
        ...


class Snapshots(Protocol):
    """Gives the snapshot of a generation."""

    async def get(self, corpus: CorpusId, generation: int, deadline: Deadline) -> Snapshot:
        """Return it, loaded if need be. Raises DeadlineExceeded when that takes too long."""
        ...


@dataclass(frozen=True, slots=True)
class Ranking:
    """(id, score) of one leg, best first, each id once; and what the leg counted on the way.

    Ids are those of chunks, or negative: keys of `passages`, which are shown as they are. Scores are in 0..1 or, where they
    are `relative`, shown as parts of the best one.
    """

    hits: Sequence[tuple[int, float]]
    counters: Mapping[str, int] = field(default_factory=dict[str, int])
    relative: bool = False
    passages: Mapping[int, StoredChunk] = field(default_factory=dict[int, StoredChunk])


@dataclass(frozen=True, slots=True)
class Near(Ranking):
    """The dense ranking, with the query's vector that made it."""

    vector: Vector = field(default_factory=lambda: np.zeros(0, dtype=np.float32))


@dataclass(frozen=True, slots=True)
class Sources:
    """What legs read from. `embedder` returns what made the vectors of a generation; CPU work goes to `threads`."""

    snapshots: Snapshots
    dense: DenseIndex
    embedder: Callable[[Manifest, CorpusSettings], Embedder]
    threads: anyio.CapacityLimiter

    async def snapshot(self, pinned: PinnedGeneration, deadline: Deadline) -> Snapshot:
        """Return the snapshot of a generation. Raises DeadlineExceeded."""
        return await self.snapshots.get(pinned.corpus_id, pinned.manifest.generation, deadline)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what the work returns; it must be short, since nothing ends it before its time."""
        # An abandoned thread ends by itself within milliseconds, and keeps its place in the limiter until then.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self.threads)


@dataclass(frozen=True, slots=True)
class Legs:
    """The dense and the keyword leg of one request. `allowed` are the chunks that pass its filters, None for all."""

    sources: Sources
    pinned: PinnedGeneration
    request: QueryRequest
    allowed: Ints | None

    async def dense(self, deadline: Deadline) -> Near:
        """Rank by cosine similarity to the request's vector or, where it has none, to that of its text.

        Raises:
            InvalidRequest: the request's vector does not fit the generation.
            ConfigurationError: no provider makes vectors like those of the generation.
        """
        if self._nothing:
            return Near(())
        vector = await self._vector(deadline)
        k = max(DEPTH, self.request.top_k)
        found = await self.sources.dense.search(self.pinned.manifest, vector, k, self.allowed, deadline)
        return Near(found, vector=vector)

    async def _vector(self, deadline: Deadline) -> Vector:
        manifest = self.pinned.manifest
        if self.request.vector is not None:
            return checked(self.request.vector, manifest.dimension)
        embedder = self.sources.embedder(manifest, self.pinned.settings)
        if embedder.fingerprint != manifest.embedding:
            raise ConfigurationError(
                f"This generation was embedded by {manifest.embedding}, not by {embedder.fingerprint}; index it again."
            )
        vectors = await embedder.embed([self.request.text], deadline)
        if vectors.shape != (1, manifest.dimension):
            raise EmbeddingError(f"The provider made vectors of shape {vectors.shape}, not (1, {manifest.dimension}).")
        vector: Vector = vectors[0]
        return vector

    async def keyword(self, deadline: Deadline) -> Ranking:
        """Rank by BM25 over the text's terms.

        Raises:
            ConfigurationError: the generation was analysed in another way than this program's.
        """
        if self.pinned.manifest.analyzer != FINGERPRINT:
            analyzer = self.pinned.manifest.analyzer
            raise ConfigurationError(
                f"This generation was analysed by {analyzer}, not by {FINGERPRINT}; index it again."
            )
        if self._nothing:
            return Ranking(())
        snapshot = await self.sources.snapshot(self.pinned, deadline)
        return await self.sources.in_thread(lambda: self._bm25(snapshot))

    @property
    def _nothing(self) -> bool:
        return self.allowed is not None and not len(self.allowed)

    def _bm25(self, snapshot: Snapshot) -> Ranking:
        settings = self.pinned.settings.keyword
        terms = [term_hash(term) for term in tokens(self.request.text)]
        k = max(DEPTH, self.request.top_k)
        mask = masked(snapshot, self.allowed)
        return ranking(snapshot, *snapshot.keyword.search(terms, k, mask, settings.k1, settings.b))


def masked(snapshot: Snapshot, allowed: Ints | None) -> Bools | None:
    """Return which rows are allowed, None for all."""
    return None if allowed is None else snapshot.mask(allowed)


def ranking(snapshot: Snapshot, rows: Rows, scores: Floats, counters: Mapping[str, int] | None = None) -> Ranking:
    """Return the ranking of rows whose scores mean something beside each other only."""
    ids = snapshot.chunk_ids[rows].tolist()
    return Ranking(list(zip(ids, scores.tolist(), strict=True)), counters or {}, relative=True)


def checked(values: Sequence[float], dimension: int) -> Vector:
    """Return a request's vector, L2-normalised; zeros stay zeros, near to nothing.

    Raises:
        InvalidRequest: it has another dimension than the generation, or a value that is no finite number.
    """
    if len(values) != dimension:
        raise InvalidRequest(f"vector has {len(values)} dimensions; this generation has {dimension}")
    vector = np.array(values, dtype=np.float64)
    if not np.isfinite(vector).all():
        raise InvalidRequest("vector holds a value that is no finite number")
    norm = float(np.linalg.norm(vector))
    return (vector / norm if norm else vector).astype(np.float32)

"""The legs of one query: each finds chunks in its own way and returns them ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, EmbeddingError, InconsistentGeneration, InvalidRequest
from pipeline.ports import DenseIndex, Embedder
from pipeline.retrieval.analyzer import FINGERPRINT, term_hash, tokens
from pipeline.retrieval.chunks import Bools, Floats, Rows
from pipeline.retrieval.ppr import ppr
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.seeds import question_seeds
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import Limits, WalkResult, walk
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.query import QueryRequest, Strategy
from schemas.settings import CorpusSettings, GraphSearchSettings

DEPTH = 50
"""Chunks that the dense and the keyword leg fetch, if no more are asked for."""

PASSAGE_SEEDS = 5
"""Dense hits from which a PageRank restarts, beside the names in the question."""

GRAPH_POLICIES = frozenset({"semantic", "code"})
"""Policies under which a generation has a graph."""

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
    """(chunk id, score) of one leg, best first, each chunk once; and what the leg counted on the way."""

    hits: Sequence[tuple[int, float]]
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


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


@dataclass(frozen=True, slots=True)
class Legs:
    """The legs of one request over one generation. `allowed` are the chunks that pass its filters, None for all."""

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
        snapshot = await self._snapshot(deadline)
        return await self._in_thread(lambda: self._bm25(snapshot))

    @property
    def graph_follows_dense(self) -> bool:
        """Whether the graph leg starts from the dense ranking.

        A PageRank that is fused with that ranking does better from the names in the question alone.
        """
        return self.request.strategy is not Strategy.HYBRID or self._graph_settings().ranking == "walk"

    async def graph(self, near: Near | None, deadline: Deadline) -> Ranking:
        """Rank by the graph, from the dense ranking (made here if None) and, by PageRank, the names in the question."""
        settings = self._graph_settings()
        snapshot = await self._snapshot(deadline)
        if not self.graph_follows_dense:
            return await self._in_thread(lambda: self._ppr(snapshot, Ranking(()), settings))
        near = near or await self.dense(deadline)
        if settings.ranking == "ppr":
            return await self._in_thread(lambda: self._ppr(snapshot, near, settings))
        candidates = await self._in_thread(lambda: self._walk(snapshot, near, settings))
        return await self._settled(snapshot, candidates, near.vector, settings.top_k, deadline)

    def _graph_settings(self) -> GraphSearchSettings:
        settings = self.pinned.settings.graph_search
        chosen = {"ranking": self.request.ranking or settings.ranking, "top_k": max(settings.top_k, self.request.top_k)}
        return settings.model_copy(update=chosen)

    def _bm25(self, snapshot: Snapshot) -> Ranking:
        settings = self.pinned.settings.keyword
        terms = [term_hash(term) for term in tokens(self.request.text)]
        k = max(DEPTH, self.request.top_k)
        return _ranking(snapshot, *snapshot.keyword.search(terms, k, self._mask(snapshot), settings.k1, settings.b))

    def _ppr(self, snapshot: Snapshot, near: Ranking, settings: GraphSearchSettings) -> Ranking:
        names = question_seeds(self.request.text, snapshot)
        passages = _rows(snapshot, near.hits[:PASSAGE_SEEDS])
        rows, masses = ppr(snapshot.graph, names, passages, settings, self._mask(snapshot))
        return _ranking(snapshot, rows, masses, {"seed_names": len(names), "seed_chunks": len(passages)})

    def _walk(self, snapshot: Snapshot, near: Ranking, settings: GraphSearchSettings) -> WalkResult:
        limits = Limits.of(settings)
        return walk(snapshot, _rows(snapshot, near.hits[: limits.top_k]), limits, self._mask(snapshot))

    async def _settled(
        self, snapshot: Snapshot, candidates: WalkResult, vector: Vector, top_k: int, deadline: Deadline
    ) -> Ranking:
        """Break the walk's ties by similarity to the query, and cut."""
        rows = np.union1d(candidates.contested(top_k), candidates.rows[:top_k])
        ids = snapshot.chunk_ids[rows].tolist()
        near = await self.sources.dense.similarities(self.pinned.manifest, vector, ids, deadline)
        if len(near) < len(ids):
            raise InconsistentGeneration("graph candidates are missing from the dense collection of their generation")
        by_row = {row: near[chunk] for row, chunk in zip(rows.tolist(), ids, strict=True)}
        settled = candidates.settle(by_row, top_k)
        return _ranking(snapshot, settled.rows, settled.scores, settled.counters)

    async def _snapshot(self, deadline: Deadline) -> Snapshot:
        return await self.sources.snapshots.get(self.pinned.corpus_id, self.pinned.manifest.generation, deadline)

    def _mask(self, snapshot: Snapshot) -> Bools | None:
        return None if self.allowed is None else snapshot.mask(self.allowed)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # An abandoned thread ends by itself within milliseconds, and keeps its place in the limiter until then.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self.sources.threads)


def has_graph(pinned: PinnedGeneration) -> bool:
    """Whether the generation has a graph and the corpus wants it searched."""
    return pinned.manifest.policy in GRAPH_POLICIES and pinned.settings.graph_search.enabled


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


def _rows(snapshot: Snapshot, hits: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the hits by row.

    Raises:
        InconsistentGeneration: a hit is no chunk of this generation.
    """
    rows = snapshot.rows(chunk for chunk, _ in hits).tolist()
    if -1 in rows:
        raise InconsistentGeneration("the dense collection holds a chunk that its generation does not have")
    return [(row, score) for row, (_, score) in zip(rows, hits, strict=True)]


def _ranking(snapshot: Snapshot, rows: Rows, scores: Floats, counters: Mapping[str, int] | None = None) -> Ranking:
    ids = snapshot.chunk_ids[rows].tolist()
    return Ranking(list(zip(ids, scores.tolist(), strict=True)), counters or {})

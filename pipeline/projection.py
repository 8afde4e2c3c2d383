"""The stores outside of PostgreSQL follow a generation while it is built, and nobody reads them before it is published.

PostgreSQL has every row of a corpus in any case. A corpus may have its graph served by another store, and its vectors held by
one; what is written there is named by the generation, repeated safely, and refused once another worker has the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, InconsistentGeneration
from pipeline.generations.rows import DocumentRows
from pipeline.graphs.parts import Clusters, GraphPart, GraphRef, GraphTotals
from pipeline.graphs.ports import GraphStore
from pipeline.ports import DensePoint, DenseStore
from schemas.ids import CorpusId, graph_id, graph_join_id
from schemas.manifest import Manifest
from schemas.runs import Lease
from schemas.settings import CorpusSettings

CALL = 60.0
"""Seconds that one call of a store may take."""

LONG = 3600.0
"""Seconds that a store may take for a whole graph."""

REPORT_SECONDS = 1.0
"""How often a long copy says how far it is, at most."""

Report = Callable[[int, int], Awaitable[None]]
"""Tells of progress: rows done, of how many."""


class Identity(Protocol):
    """What a corpus is called in other stores."""

    @property
    def uid(self) -> str:
        """32 hex digits, unique everywhere."""
        ...

    @property
    def name(self) -> str:
        """The name that people know."""
        ...


class ProjectedRows(Protocol):
    """Reads what the stores follow from PostgreSQL."""

    async def identity(self, corpus: CorpusId, deadline: Deadline) -> Identity:
        """Return what the corpus is called elsewhere."""
        ...

    async def void(self, corpus: CorpusId, number: int, deadline: Deadline) -> tuple[int, ...]:
        """Return the numbers below this one that were begun not long ago and never published."""
        ...

    async def ended_documents(self, corpus: CorpusId, number: int, deadline: Deadline) -> list[str]:
        """Return the documents that a number removed."""
        ...

    async def size(self, corpus: CorpusId, number: int, deadline: Deadline) -> int:
        """Return about how many rows `parts` yields."""
        ...

    def parts(self, corpus: CorpusId, number: int, deadline: Callable[[], Deadline]) -> AsyncGenerator[GraphPart, None]:
        """Yield the graph that a number sees, in parts that can be written in this order."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """What FOLLOW found: vectors that the number sees, and the numbers that do not count; None and none where PostgreSQL has
    the vectors.
    """

    dense_rows: int | None
    void: tuple[int, ...]


class Projection:
    """The stores by the names under which settings ask for them. One that is not configured is missing."""

    def __init__(
        self, rows: ProjectedRows, graphs: Mapping[str, GraphStore], vectors: Mapping[str, DenseStore]
    ) -> None:
        self._rows = rows
        self._graphs = graphs
        self._vectors = vectors

    def check(self, settings: CorpusSettings) -> None:
        """Raise ConfigurationError where the settings name a store that this process was not told of."""
        self._graph(settings)
        self._dense(settings)

    def needed(self, settings: CorpusSettings) -> bool:
        """Whether a corpus with these settings uses a store outside of PostgreSQL."""
        return settings.graph_storage.backend != "postgres" or settings.dense_storage.backend != "pgvector"

    async def write_vectors(
        self, lease: Lease, settings: CorpusSettings, collection: str, documents: Sequence[DocumentRows], number: int
    ) -> None:
        """Write the vectors of a batch under its number, before the transaction that accounts for the batch."""
        store = self._dense(settings)
        if store is None or not documents:
            return
        uid = (await self._rows.identity(lease.corpus_id, _call())).uid
        void = await self._rows.void(lease.corpus_id, number, _call())
        graph = graph_id(uid, number)
        points = [
            DensePoint(chunk.chunk_id, one.document_id, graph_join_id(graph, chunk.chunk_id), vector)
            for one in documents
            for chunk, vector in zip(one.chunks, one.vectors, strict=True)
        ]
        await store.ensure(collection, documents[0].vectors.shape[1], _call())
        await store.write(collection, number, points, void, _call())
        await store.remove(collection, number, [one.document_id for one in documents if not one.chunks], void, _call())

    async def follow_vectors(
        self, corpus: CorpusId, number: int, settings: CorpusSettings, collection: str, dimension: int
    ) -> Followed:
        """End the vectors of what the number removed, and count those that it sees."""
        store = self._dense(settings)
        if store is None:
            return Followed(None, ())
        void = await self._rows.void(corpus, number, _call())
        await store.ensure(collection, dimension, _call())
        await store.remove(collection, number, await self._rows.ended_documents(corpus, number, _call()), void, _call())
        return Followed(await store.count(collection, number, void, _call()), void)

    async def revert_vectors(self, corpus: CorpusId, target: Manifest, number: int) -> Followed:
        """Have a number see the vectors of an earlier generation, before its rows are reverted and published."""
        if target.dense_store == "pgvector":
            return Followed(None, ())
        store = self._named(target.dense_store)
        void = await self._rows.void(corpus, number, _call())
        await store.revert(target.collection, target.generation, number, void, Deadline.after(LONG))
        return Followed(await store.count(target.collection, number, void, _call()), void)

    async def follow_graph(self, lease: Lease, number: int, settings: CorpusSettings, report: Report) -> None:
        """Write the whole graph that the number sees; what an earlier try wrote stays.

        Raises:
            FencedOut: another worker has the run.
            InconsistentGeneration: the store does not hold what it was given.
        """
        store = self._graph(settings)
        if store is None:
            return
        graph = await self._ref(lease.corpus_id, number)
        total = await self._rows.size(lease.corpus_id, number, _call())
        await store.open(graph, lease.fence, _call())
        sent, told = GraphTotals(), anyio.current_time()
        async for part in self._rows.parts(lease.corpus_id, number, _call):
            await store.write(graph, lease.fence, part, _call())
            sent = _with(sent, part)
            if anyio.current_time() > told + REPORT_SECONDS:
                told = anyio.current_time()
                await report(min(sent.chunks + sent.entities + sent.relations, total), total)
        held = await store.seal(graph, lease.fence, Deadline.after(LONG))
        if _rows_of(held) != _rows_of(sent):
            raise InconsistentGeneration("the graph store does not hold the rows that it was given")

    async def cluster(self, corpus: CorpusId, number: int, settings: CorpusSettings) -> Clusters | None:
        """Cluster the entities in the store of the graph; None if that is done by the worker itself."""
        store = self._graph(settings)
        if store is None:
            return None
        return await store.cluster(await self._ref(corpus, number), Deadline.after(LONG))

    async def place(
        self, lease: Lease, number: int, settings: CorpusSettings, paths: Mapping[int, tuple[int, ...]]
    ) -> dict[str, int]:
        """Give the entities in the store of the graph their communities, and return its totals; {} if there is none."""
        store = self._graph(settings)
        if store is None:
            return {}
        graph = await self._ref(lease.corpus_id, number)
        await store.place(graph, lease.fence, paths, Deadline.after(LONG))
        return asdict(await store.totals(graph, _call()))

    async def graph_id(self, corpus: CorpusId, number: int) -> str:
        """Return the id of the graph of a number."""
        return graph_id((await self._rows.identity(corpus, _call())).uid, number)

    async def _ref(self, corpus: CorpusId, number: int) -> GraphRef:
        identity = await self._rows.identity(corpus, _call())
        return GraphRef(corpus, number, identity.name, graph_id(identity.uid, number))

    def _graph(self, settings: CorpusSettings) -> GraphStore | None:
        backend = settings.graph_storage.backend
        if backend == "postgres" or not settings.graph_indexing.enabled:
            return None
        if backend not in self._graphs:
            raise ConfigurationError(
                f"graph_storage.backend is {backend}: set SAPWOOD_GRAPH_NEO4J_URI, _USER and _PASSWORD, "
                "and install the driver: pip install 'sapwood[neo4j]'."
            )
        return self._graphs[backend]

    def _dense(self, settings: CorpusSettings) -> DenseStore | None:
        backend = settings.dense_storage.backend
        return None if backend == "pgvector" else self._named(backend)

    def _named(self, backend: str) -> DenseStore:
        if backend not in self._vectors:
            raise ConfigurationError(f"dense_storage.backend is {backend}: set SAPWOOD_QDRANT_URL.")
        return self._vectors[backend]


def _with(sent: GraphTotals, part: GraphPart) -> GraphTotals:
    return GraphTotals(
        sent.chunks + len(part.chunks),
        sent.entities + len(part.entities),
        sent.relations + len(part.relations),
        sent.mentions + len(part.mentions),
    )


def _rows_of(totals: GraphTotals) -> tuple[int, int, int, int]:
    return totals.chunks, totals.entities, totals.relations, totals.mentions


def _call() -> Deadline:
    return Deadline.after(CALL)

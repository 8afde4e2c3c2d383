"""The query stage: the one way from a question to an answer, for a library call, a queued run and the command line.

text → who serves the graph → filters → legs, all at once → fuse → least score
     → hydrate → distinct texts → cut → neighbours → result
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, StoreRefused
from pipeline.graphs.claims import GraphProvider, GraphQuery, graph_settings
from pipeline.ports import DenseIndex, Embedder
from pipeline.retrieval.board import Board, ranked
from pipeline.retrieval.filters import allowed_chunks
from pipeline.retrieval.hydrate import ChunkStore, Hydrator
from pipeline.retrieval.legs import Legs, Near, PinnedGeneration, Ranking, Snapshots, Sources
from pipeline.retrieval.providers import InMemoryProvider, KnowledgeToolsProvider, Providers
from pipeline.retrieval.results import ResultCache, result_key
from schemas.events import LegDone, Pinned
from schemas.manifest import Manifest
from schemas.query import Leg, LegReport, QueryRequest, QueryResult, Wire
from schemas.settings import CorpusSettings

RESERVE_SHARE = 0.25
"""The part of the time left that the legs leave for fusion and hydration."""
RESERVE_SECONDS = 0.5
"""What they leave at most."""

Emit = Callable[[Wire], Awaitable[None]]


class QueryStage:
    """Answers requests, any number at a time; the CPU work of `threads` of them runs at once.

    `embedder` returns the provider that made the vectors of a generation. `providers` serve graphs, beside the defaults
    and what is installed.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        dense: DenseIndex,
        store: ChunkStore,
        embedder: Callable[[Manifest, CorpusSettings], Embedder],
        results: ResultCache,
        providers: Sequence[GraphProvider] = (),
        threads: int = 2,
    ) -> None:
        self._sources = Sources(snapshots, dense, embedder, anyio.CapacityLimiter(threads))
        self._providers = Providers((InMemoryProvider(self._sources), KnowledgeToolsProvider(), *providers))
        self._store = store
        self._results = results

    async def run(
        self, pinned: PinnedGeneration, request: QueryRequest, deadline: Deadline, emit: Emit | None = None
    ) -> QueryResult:
        """Return the answer from the pinned generation by the deadline; `emit` gets Pinned, and LegDone leg by leg
        unless the answer comes from the cache.

        Scores are in 0..1: HYBRID is the fused rank, SEMANTIC the cosine (negative ones count 0), KEYWORD and a
        PageRank are relative to the best hit, a walk is the cosine of its seed over one more than the distance, and a
        live triple the share of the text's words that it has. A leg that a store or a model failed is named in
        `missing`, as is one that was late.

        Raises:
            DeadlineExceeded: the deadline passed, and the request does not take a part of an answer.
            GraphCapabilityError: nobody serves the graph that GRAPH needs, or several would; also where a part is taken.
            ConfigurationError: an installed graph provider cannot be loaded; that too.
            InvalidRequest: a filter or the vector does not fit.
            SapwoodError: what the legs failed with, if all did, or if the request does not take a part of an answer.
        """
        started = anyio.current_time()
        query = _Query(self._sources, self._store, pinned, request, emit or _nowhere)
        try:
            with anyio.CancelScope(deadline=deadline.at):
                result = await self._serve(query, deadline)
                return result.model_copy(update={"seconds": anyio.current_time() - started})
        except DeadlineExceeded:
            pass  # it may also end the scope above: either way the caller gets what it asked for in that case
        if not request.partial:
            raise DeadlineExceeded()
        return query.board.nothing(pinned.manifest.generation, anyio.current_time() - started)

    async def _serve(self, query: _Query, deadline: Deadline) -> QueryResult:
        if Leg.GRAPH in query.board.legs:
            query.graph = await self._providers.serving(query.pinned, query.request)
            query.board.claimed(query.graph.name if query.graph else None)
        await query.emit(Pinned(generation=query.pinned.manifest.generation))
        if not query.request.cache or (query.graph and query.graph.live):
            return await query.answer(deadline)
        key = result_key(query.pinned.corpus_id, query.pinned.manifest, query.pinned.settings, query.request)
        return await self._results.serve(key, deadline, lambda: query.answer(deadline))


class _Query:
    """One request on its way."""

    def __init__(
        self, sources: Sources, store: ChunkStore, pinned: PinnedGeneration, request: QueryRequest, emit: Emit
    ) -> None:
        self._sources = sources
        self._store = store
        self.pinned = pinned
        self.request = request
        self.emit = emit
        self.board = Board.of(request.strategy)
        self.graph: GraphProvider | None = None
        self._near: Near | None = None
        self._dense_ended = anyio.Event()
        self._announced: set[Leg] = set()

    async def answer(self, deadline: Deadline) -> QueryResult:
        """Compute the answer. Raises DeadlineExceeded where it has no time to show a single hit."""
        started = anyio.current_time()
        corpus, generation = self.pinned.corpus_id, self.pinned.manifest.generation
        legs_deadline = deadline.earlier(min(deadline.remaining() * RESERVE_SHARE, RESERVE_SECONDS))
        allowed = await allowed_chunks(self._store, corpus, generation, self.request, legs_deadline)
        await self._run(Legs(self._sources, self.pinned, self.request, allowed), legs_deadline)
        self.board.judge(self.request.partial)
        best = ranked(self.board, self.request, self.pinned.settings)
        hydrator = Hydrator(self._store, corpus, generation, self.board.passages, self.board.graph_source)
        hits = await hydrator.hits(best, self.request, deadline)
        for leg in self.board.legs:
            if leg not in self._announced:
                await self._announce(self.board.report(leg))
        return self.board.result(generation, hits, anyio.current_time() - started)

    async def _run(self, legs: Legs, deadline: Deadline) -> None:
        """Run the legs until all are done or the deadline is there, announcing each that ends."""
        work: dict[Leg, Callable[[], Awaitable[Ranking]]] = {
            Leg.KEYWORD: lambda: legs.keyword(deadline),
            Leg.DENSE: lambda: self._dense(legs, deadline),
        }
        if self.graph is not None:
            work[Leg.GRAPH] = partial(self.graph.rank, self._graph_query(legs, deadline), deadline)
        send, receive = anyio.create_memory_object_stream[LegReport](len(Leg))
        try:
            with send, receive, anyio.CancelScope(deadline=deadline.at):
                async with anyio.create_task_group() as group:
                    for leg in self.board.legs:
                        group.start_soon(self._leg, leg, work[leg], send.send_nowait)
                    for _ in self.board.legs:
                        await self._announce(await receive.receive())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one ended the others

    async def _announce(self, report: LegReport) -> None:
        self._announced.add(report.leg)
        await self.emit(LegDone(report=report))

    async def _dense(self, legs: Legs, deadline: Deadline) -> Near:
        self._near = await legs.dense(deadline)
        return self._near

    def _graph_query(self, legs: Legs, deadline: Deadline) -> GraphQuery:
        settings = graph_settings(self.pinned, self.request)
        return GraphQuery(self.request, self.pinned, settings, legs.allowed, partial(self._nearest, legs, deadline))

    async def _nearest(self, legs: Legs, deadline: Deadline) -> Near:
        """Return the dense ranking: that of the dense leg, where there is one, and with it what that failed with."""
        if Leg.DENSE not in self.board.legs:
            return await legs.dense(deadline)
        await self._dense_ended.wait()
        if self._near is None:
            raise self.board.errors.get(Leg.DENSE) or DeadlineExceeded()
        return self._near

    async def _leg(self, leg: Leg, work: Callable[[], Awaitable[Ranking]], ended: Callable[[LegReport], None]) -> None:
        """Run one leg and note what it came to, be it that it was late or that a store or model failed it."""
        started = anyio.current_time()
        try:
            ranking = await work()
            self.board.found(leg, ranking, anyio.current_time() - started)
        except DeadlineExceeded:
            self.board.late(leg, anyio.current_time() - started)
        except (DependencyError, StoreRefused) as error:
            self.board.failed(leg, error, anyio.current_time() - started)
        ended(self.board.report(leg))
        if leg is Leg.DENSE:
            self._dense_ended.set()


async def _nowhere(_: Wire) -> None:
    """Take an event that nobody listens for."""

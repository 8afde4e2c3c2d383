"""The query stage: the one way from a question to an answer, for a library call, a queued run and the command line.

text → filters → legs, all at once → fuse → least score → hydrate → distinct texts → cut → neighbours → result
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, StoreRefused
from pipeline.ports import DenseIndex, Embedder
from pipeline.retrieval.board import Board, planned, ranked
from pipeline.retrieval.filters import allowed_chunks
from pipeline.retrieval.hydrate import ChunkStore, Hydrator
from pipeline.retrieval.legs import Legs, PinnedGeneration, Ranking, Snapshots, Sources
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
R = TypeVar("R", bound=Ranking)


class QueryStage:
    """Answers requests, any number at a time; the CPU work of `threads` of them runs at once.

    `embedder` returns the provider that made the vectors of a generation.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        dense: DenseIndex,
        store: ChunkStore,
        embedder: Callable[[Manifest, CorpusSettings], Embedder],
        results: ResultCache,
        threads: int = 2,
    ) -> None:
        self._sources = Sources(snapshots, dense, embedder, anyio.CapacityLimiter(threads))
        self._store = store
        self._results = results

    async def run(
        self, pinned: PinnedGeneration, request: QueryRequest, deadline: Deadline, emit: Emit | None = None
    ) -> QueryResult:
        """Return the answer from the pinned generation by the deadline; `emit` gets Pinned, and LegDone leg by leg
        unless the answer comes from the cache.

        Scores are in 0..1: HYBRID is the fused rank, SEMANTIC the cosine (negative ones count 0), KEYWORD and a
        PageRank are relative to the best hit, and a walk is the cosine of its seed over one more than the distance. A
        leg that a store or a model failed is named in `missing`, as is one that was late.

        Raises:
            DeadlineExceeded: the deadline passed, and the request does not take a part of an answer.
            GraphCapabilityError: GRAPH was asked for where there is no graph.
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
        await query.emit(Pinned(generation=query.pinned.manifest.generation))
        if not query.request.cache:
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
        self.board = Board(planned(request.strategy, pinned))
        self._announced: set[Leg] = set()

    async def answer(self, deadline: Deadline) -> QueryResult:
        """Compute the answer. Raises DeadlineExceeded where it has no time to show a single hit."""
        started = anyio.current_time()
        corpus, generation = self.pinned.corpus_id, self.pinned.manifest.generation
        legs_deadline = deadline.earlier(min(deadline.remaining() * RESERVE_SHARE, RESERVE_SECONDS))
        allowed = await allowed_chunks(self._store, corpus, generation, self.request, legs_deadline)
        if allowed is not None and not len(allowed):
            self.board.nothing_allowed()
        await self._run(Legs(self._sources, self.pinned, self.request, allowed), legs_deadline)
        self.board.judge(self.request.partial)
        best = ranked(self.board, self.request, self.pinned.settings)
        hits = await Hydrator(self._store, corpus, generation).hits(best, self.request, deadline)
        for leg in self.board.legs:
            if leg not in self._announced:
                await self._announce(self.board.report(leg))
        return self.board.result(generation, hits, anyio.current_time() - started)

    async def _run(self, legs: Legs, deadline: Deadline) -> None:
        """Run the legs until all are done or the deadline is there, announcing each that ends."""
        send, receive = anyio.create_memory_object_stream[LegReport](len(Leg))
        wanted = self.board.unreported
        ended = send.send_nowait
        try:
            with send, receive, anyio.CancelScope(deadline=deadline.at):
                async with anyio.create_task_group() as group:
                    if Leg.KEYWORD in wanted:
                        group.start_soon(self._leg, Leg.KEYWORD, lambda: legs.keyword(deadline), ended)
                    if Leg.GRAPH in wanted and not legs.graph_follows_dense:
                        group.start_soon(self._leg, Leg.GRAPH, lambda: legs.graph(None, deadline), ended)
                        group.start_soon(self._leg, Leg.DENSE, lambda: legs.dense(deadline), ended)
                    elif Leg.DENSE in wanted or Leg.GRAPH in wanted:
                        group.start_soon(self._dense_and_graph, legs, wanted, deadline, ended)
                    for _ in wanted:
                        await self._announce(await receive.receive())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first one ended the others

    async def _announce(self, report: LegReport) -> None:
        self._announced.add(report.leg)
        await self.emit(LegDone(report=report))

    async def _dense_and_graph(
        self, legs: Legs, wanted: tuple[Leg, ...], deadline: Deadline, ended: Callable[[LegReport], None]
    ) -> None:
        """Run the dense leg and then the graph leg, which starts from it and fails with it."""
        near = await self._leg(Leg.DENSE, lambda: legs.dense(deadline), ended) if Leg.DENSE in wanted else None
        if Leg.GRAPH in wanted and Leg.DENSE in wanted and near is None:
            ended(self.board.follow(Leg.GRAPH, Leg.DENSE))
        elif Leg.GRAPH in wanted:
            await self._leg(Leg.GRAPH, lambda: legs.graph(near, deadline), ended)

    async def _leg(self, leg: Leg, work: Callable[[], Awaitable[R]], ended: Callable[[LegReport], None]) -> R | None:
        """Run one leg and note what it came to; None if it was late or a store or model failed it."""
        started = anyio.current_time()
        ranking: R | None = None
        try:
            ranking = await work()
            self.board.found(leg, ranking, anyio.current_time() - started)
        except DeadlineExceeded:
            self.board.late(leg, anyio.current_time() - started)
        except (DependencyError, StoreRefused) as error:
            self.board.failed(leg, error, anyio.current_time() - started)
        ended(self.board.report(leg))
        return ranking


async def _nowhere(_: Wire) -> None:
    """Take an event that nobody listens for."""

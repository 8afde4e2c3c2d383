"""The query stage: the one way from a question to an answer, for a library call, a queued run and the command line.

defaults → who assists → who serves the graph → result cache → the stages of the strategy (`query.py`)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, InvalidRequest
from pipeline.graphs.claims import GraphProvider
from pipeline.ingest.clean import clean
from pipeline.ports import DenseIndex, Embedder
from pipeline.retrieval.assistants import Assistants
from pipeline.retrieval.hydrate import ChunkStore
from pipeline.retrieval.legs import PinnedGeneration, Snapshots, Sources
from pipeline.retrieval.providers import InMemoryProvider, KnowledgeToolsProvider, Providers
from pipeline.retrieval.query import Emit, Parts, Query
from pipeline.retrieval.recency import Clock, DateCache
from pipeline.retrieval.results import ResultCache, result_key
from pipeline.retrieval.tally import Tally
from schemas.events import Pinned
from schemas.manifest import Manifest
from schemas.query import Leg, QueryRequest, QueryResult, Strategy, Wire
from schemas.settings import CorpusSettings


class QueryStage:
    """Answers requests, any number at a time; the CPU work of `threads` of them runs at once.

    `embedder` returns the provider that made the vectors of a generation. `providers` serve graphs, beside the defaults
    and what is installed. `assistants` are the models that may be asked; by default only those that are installed.
    `now` is the clock of TEMPORAL, in seconds since 1970.
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
        assistants: Assistants | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        sources = Sources(snapshots, dense, embedder, anyio.CapacityLimiter(threads))
        self._parts = Parts(sources, store, DateCache(store))
        self.graphs = Providers((InMemoryProvider(sources), KnowledgeToolsProvider(), *providers))
        """Who may serve the graph leg."""
        self._results = results
        self._assistants = assistants or Assistants()
        self._now = now

    async def run(
        self, pinned: PinnedGeneration, request: QueryRequest, deadline: Deadline, emit: Emit | None = None
    ) -> QueryResult:
        """Return the answer from the pinned generation by the deadline; `emit` gets Pinned, and LegDone leg by leg
        unless the answer comes from the cache.

        Scores are in 0..1: HYBRID is the fused rank, SEMANTIC the cosine (negative ones count 0), KEYWORD and a
        PageRank are relative to the best hit, a walk is the cosine of its seed over one more than the distance, and a
        live triple the share of the text's words that it has. With an expander, as MULTI_QUERY always has one, it is the
        fused rank over the variants; TEMPORAL is that of HYBRID weighed by recency, HIERARCHICAL and REASONING that of
        HYBRID among the chunks that they chose; a reranker's score takes the place of any. A leg that a store or a model
        failed is named in `missing`, as is one that was late.

        Raises:
            DeadlineExceeded: the deadline passed, and the request does not take a part of an answer.
            ConfigurationError: the strategy or the reranking lacks a model, a provider or a time field, or something
                installed cannot be loaded; also where a part is taken, and before anything is read.
            GraphCapabilityError: nobody serves the graph that GRAPH needs, or several would; that too.
            InvalidRequest: a filter or the vector does not fit, or the text has nothing but what is never seen.
            ModelError: the expander or the navigator failed: without it, this would be another strategy.
            SapwoodError: what the legs failed with, if all did, or if the request does not take a part of an answer.
        """
        started = anyio.current_time()
        tally = Tally.of(request.strategy)
        try:
            with anyio.CancelScope(deadline=deadline.at):
                result = await self._serve(pinned, request, tally, deadline, emit or _nowhere)
                return result.model_copy(update={"seconds": anyio.current_time() - started})
        except DeadlineExceeded:
            pass  # it may also end the scope above: either way the caller gets what it asked for in that case
        if not request.partial:
            raise DeadlineExceeded()
        return tally.nothing(pinned.manifest.generation, anyio.current_time() - started)

    async def _serve(
        self, pinned: PinnedGeneration, asked: QueryRequest, tally: Tally, deadline: Deadline, emit: Emit
    ) -> QueryResult:
        request = with_defaults(asked, pinned.settings, self._now())
        assisting = await self._assistants.serving(request)
        graph = await self.graphs.serving(pinned, request) if Leg.GRAPH in tally.legs else None
        if Leg.GRAPH in tally.legs:
            tally.claimed(graph.name if graph else None)
        await emit(Pinned(generation=pinned.manifest.generation))
        query = Query(self._parts, pinned, request, tally, graph, assisting, emit)
        if not request.cache or (graph and graph.live):
            return await query.answer(deadline)
        who = (*assisting.fingerprints, graph.name if graph else "")
        key = result_key(pinned.corpus_id, pinned.manifest, pinned.settings, request, who)
        return await self._results.serve(key, deadline, lambda: query.answer(deadline))


def with_defaults(request: QueryRequest, settings: CorpusSettings, now: float) -> QueryRequest:
    """Return the request with what it leaves to the corpus and to the clock, and its text as documents are cleaned, so that
    it has the words that they have.

    Raises:
        InvalidRequest: nothing is left of the text.
        ConfigurationError: TEMPORAL has no time field.
    """
    models, text = settings.query_models, clean(request.text)[0]
    if not text.strip():
        raise InvalidRequest("text: there is nothing in it that can be seen")
    filled: dict[str, object] = {
        "text": text,
        "expander": request.expander or models.expander * (request.strategy is Strategy.MULTI_QUERY),
        "navigator_model": request.navigator_model or models.navigator,
        "reranker": request.reranker or models.reranker,
    }
    if request.strategy is Strategy.TEMPORAL:
        filled["temporal"] = Clock.of(request.temporal, settings.temporal, now).wire
    return request.model_copy(update=filled)


async def _nowhere(_: Wire) -> None:
    """Take an event that nobody listens for."""

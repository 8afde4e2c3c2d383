"""One request on its way: the stages of its strategy, one after the other.

expand → filter → narrow (by time, or by groups or a model after a first search) → legs, all at once → fuse → weigh by
recency → least score → distinct texts → rerank → cut → neighbours
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio
import numpy as np

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError
from pipeline.graphs.claims import GraphProvider
from pipeline.retrieval.assistants import Assigned, Assisting, CountedNavigator, Navigator, Spent, heard
from pipeline.retrieval.board import judge, ranked
from pipeline.retrieval.chunks import Floats
from pipeline.retrieval.filters import allowed_chunks
from pipeline.retrieval.fuse import Fused
from pipeline.retrieval.gather import Search, gather
from pipeline.retrieval.groups import best_groups
from pipeline.retrieval.hydrate import ChunkStore, Hydrator
from pipeline.retrieval.legs import Legs, Near, PinnedGeneration, Sources
from pipeline.retrieval.navigation import navigate
from pipeline.retrieval.outline import OUTLINE_CHUNKS, Section, best_documents, scores_of, trees
from pipeline.retrieval.recency import Clock, DateCache, weighed
from pipeline.retrieval.rerank import Best, reranked
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.tally import ALONE, Tally
from pipeline.retrieval.variants import fuse_variants, variants
from schemas.events import LegDone
from schemas.query import Leg, LegReport, QueryRequest, QueryResult, Strategy, Wire

RESERVE_SHARE = 0.25
"""The part of the time left that a stage leaves for those after it."""
RESERVE_SECONDS = 0.5
"""What it leaves at most."""
MODEL_SHARE = 0.5
"""The part of the time left that the stages before a model leave for it, and a model for the searches after it."""

Emit = Callable[[Wire], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What queries read from."""

    sources: Sources
    store: ChunkStore
    dates: DateCache


@dataclass(frozen=True, slots=True)
class _Dated:
    """What TEMPORAL needs after the legs: the times by row of the snapshot."""

    clock: Clock
    snapshot: Snapshot
    times: Floats


class Query:
    """Answers one request, whose defaults are filled in; `tally` has what is done so far, also when it is cut off."""

    def __init__(
        self,
        parts: Parts,
        pinned: PinnedGeneration,
        request: QueryRequest,
        tally: Tally,
        graph: GraphProvider | None,
        assisting: Assisting,
        emit: Emit,
    ) -> None:
        self._parts, self._pinned, self._request = parts, pinned, request
        self._tally, self._graph, self._assisting, self._emit = tally, graph, assisting, emit
        self._corpus, self._generation = pinned.corpus_id, pinned.manifest.generation
        self._dated: _Dated | None = None
        self._vector: tuple[float, ...] | None = request.vector
        self._announced: set[str] = set()

    async def answer(self, deadline: Deadline) -> QueryResult:
        """Compute the answer. Raises DeadlineExceeded where it has no time to show a single hit."""
        started = anyio.current_time()
        before_rerank = _leaving(deadline, MODEL_SHARE) if self._assisting.reranker else deadline
        legs_end = _reserving(before_rerank)
        texts = await self._expanded(legs_end)
        allowed = await self._narrowed(await self._filtered(legs_end), legs_end)
        found = await self._searched(texts, allowed, legs_end)
        found = self._at_least(self._weighed(found))
        hydrator = Hydrator(
            self._parts.store, self._corpus, self._generation, self._tally.passages, self._tally.graph_source
        )
        best = await self._distinct(hydrator, found, deadline)
        best = self._cut(await self._reranked(best, _reserving(deadline)))
        hits = await hydrator.hits(best, self._request, deadline)
        for report in (report for board in self._tally.boards for report in board.reports):
            if report.name not in self._announced:
                await self._announce(report)
        return self._tally.result(self._generation, hits, anyio.current_time() - started)

    async def _expanded(self, deadline: Deadline) -> tuple[str, ...]:
        """Return the question and its variants."""
        question, expander = self._request.text, self._assisting.expander
        if expander is None:
            return (question,)
        started, most, spent = anyio.current_time(), self._request.variants, Spent()

        async def expand(deadline: Deadline) -> Sequence[str]:
            call = partial(expander.provider.expand, expander.model, question, most, deadline)
            return await heard("query expander", call, deadline, spent)

        texts = variants(question, await self._by_model("expand", expand, deadline), most)
        self._tally.stage("expand", 1, len(texts), started, expander.model, spent)
        return texts

    async def _by_model(self, name: str, work: Callable[[Deadline], Awaitable[T]], deadline: Deadline) -> T:
        """Let a model work, and leave time for the searches after it; without it there is no answer."""
        self._tally.underway = name
        result = await work(_leaving(deadline, MODEL_SHARE))
        self._tally.underway = ""
        return result

    async def _filtered(self, deadline: Deadline) -> Ints | None:
        """Return the chunks that pass the request's filters, None for all."""
        started = anyio.current_time()
        allowed = await allowed_chunks(self._parts.store, self._corpus, self._generation, self._request, deadline)
        if allowed is not None:
            self._tally.stage("filter", self._all_chunks, len(allowed), started)
        return allowed

    @property
    def _all_chunks(self) -> int:
        chunks = self._pinned.manifest.stores.get("chunks")
        return chunks.rows if chunks else 0

    async def _narrowed(self, allowed: Ints | None, deadline: Deadline) -> Ints | None:
        """Return the chunks that the strategy searches."""
        match self._request.strategy:
            case Strategy.TEMPORAL:
                return await self._in_time(allowed, deadline)
            case Strategy.HIERARCHICAL:
                return await self._in_groups(allowed, deadline)
            case Strategy.REASONING:
                return await self._in_chosen(allowed, deadline)
            case _:
                return allowed

    async def _in_time(self, allowed: Ints | None, deadline: Deadline) -> Ints:
        """Keep the chunks of documents that have a time, inside the window."""
        started = anyio.current_time()
        clock = Clock.of(self._request.temporal, self._pinned.settings.temporal, 0.0)  # its time is filled in by now
        snapshot = await self._parts.sources.snapshot(self._pinned, deadline)
        dates = await self._parts.dates.get(self._corpus, self._generation, clock.field, deadline)
        times = await self._parts.sources.in_thread(lambda: dates.by_row(snapshot))
        self._dated = _Dated(clock, snapshot, times)
        among = np.ones(len(times), dtype=np.bool_) if allowed is None else snapshot.mask(allowed)
        kept = among & clock.inside(times)
        undated = int((among & np.isnan(times)).sum())
        outside = int(among.sum() - kept.sum()) - undated
        note = f"{undated} without a time in {clock.field!r}, {outside} outside of the window"
        self._tally.stage("window", int(among.sum()), int(kept.sum()), started, note)
        return snapshot.chunk_ids[kept]

    async def _in_groups(self, allowed: Ints | None, deadline: Deadline) -> Ints:
        """Search once for the communities and sections that hold most of what is found, and keep their chunks."""
        found, roots = await self._shortlisted(allowed, deadline)
        started = anyio.current_time()
        snapshot = await self._parts.sources.snapshot(self._pinned, deadline)
        communities = self._pinned.settings.graph_search.enabled
        groups = await self._parts.sources.in_thread(
            lambda: best_groups(snapshot, roots, scores_of(found), communities)
        )
        note = f"{groups.communities} communities, {groups.sections} sections"
        self._tally.stage("groups", len(found), len(groups.chunks), started, note)
        return _both(groups.chunks, allowed)

    async def _in_chosen(self, allowed: Ints | None, deadline: Deadline) -> Ints:
        """Search once for documents, let the navigator walk down their headings, and keep the chunks below its choice."""
        found, roots = await self._shortlisted(allowed, deadline)
        started, navigator = anyio.current_time(), self._assisting.navigator
        if navigator is None:
            raise AssertionError("a query by REASONING is not begun without a navigator")
        spent = Spent()
        counted: Assigned[Navigator] = Assigned(CountedNavigator(navigator.provider, spent), navigator.model)
        walk = partial(navigate, counted, self._request.text, roots)
        journey = await self._by_model("navigate", walk, deadline)
        note = f"{journey.steps} steps to {len(journey.sections)} sections, {journey.left_out} not offered"
        self._tally.stage("navigate", len(found), len(journey.chunks), started, note, spent)
        return _both(journey.chunks, allowed)

    async def _shortlisted(self, allowed: Ints | None, deadline: Deadline) -> tuple[list[Fused], list[Section]]:
        """Return what a first search finds, and the documents of the best of it with their headings."""
        end = _leaving(deadline, MODEL_SHARE)
        (found,) = await self._rankings([(self._request.text, "shortlist")], allowed, end)
        started = anyio.current_time()
        snapshot = await self._parts.sources.snapshot(self._pinned, deadline)
        documents = best_documents(found, snapshot)
        placed = await self._parts.store.outlines(self._corpus, self._generation, documents, OUTLINE_CHUNKS, deadline)
        self._tally.stage("outline", len(found), len(placed), started, f"{len(documents)} documents")
        return found, trees(placed, documents)

    async def _searched(self, texts: Sequence[str], allowed: Ints | None, deadline: Deadline) -> list[Fused]:
        """Return what the legs find for all texts, fused."""
        started = anyio.current_time()
        named = [(text, f"variant-{number}" if number else "") for number, text in enumerate(texts)]
        rankings = await self._rankings(named, allowed, deadline)
        if self._assisting.expander is None:
            return rankings[0]
        fused = fuse_variants(rankings, self._pinned.settings.fusion.rrf_k)
        self._tally.stage("fuse_variants", sum(map(len, rankings)), len(fused), started, f"{len(rankings)} texts")
        return fused

    async def _rankings(
        self, named: Sequence[tuple[str, str]], allowed: Ints | None, deadline: Deadline
    ) -> list[list[Fused]]:
        """Run the legs for each (text, name of the search), all at once, and return the ranking of each.

        Raises:
            SapwoodError: what the legs failed with, where there are not enough left for an answer.
        """
        started = anyio.current_time()
        searches = [self._search(text, of, allowed) for text, of in named]
        await gather(searches, deadline, self._announce)
        boards = [search.board for search in searches]
        judge(boards, self._request.partial)
        near = boards[0].rankings.get(Leg.DENSE)
        if isinstance(near, Near) and len(near.vector):
            self._vector = tuple(near.vector.tolist())  # a second search for the same text need not embed it again
        alone, fusion = ALONE.get(self._request.strategy), self._pinned.settings.fusion
        rankings = [ranked(board, fusion, alone) for board in boards]
        for board, found in zip(boards, rankings, strict=True):
            candidates = sum(len(ranking.hits) for ranking in board.rankings.values())
            self._tally.stage(f"{board.of}.fuse" if board.of else "fuse", candidates, len(found), started)
        return rankings

    def _search(self, text: str, of: str, allowed: Ints | None) -> Search:
        vector = self._vector if text == self._request.text else None
        request = self._request.model_copy(update={"text": text, "vector": vector})
        legs = Legs(self._parts.sources, self._pinned, request, allowed)
        return Search(legs, self._tally.board(of), self._graph)

    async def _announce(self, report: LegReport) -> None:
        self._announced.add(report.name)
        await self._emit(LegDone(report=report))

    def _weighed(self, found: list[Fused]) -> list[Fused]:
        """Combine relevance with recency, where times are known."""
        if self._dated is None:
            return found
        started, clock = anyio.current_time(), self._dated.clock
        result = weighed(found, self._dated.snapshot, self._dated.times, clock)
        self._tally.stage("recency", len(found), len(result), started, f"as of {clock.shown}")
        return result

    def _at_least(self, found: list[Fused]) -> list[Fused]:
        """Drop what is below the least score."""
        least = self._request.min_score
        if not least:
            return found
        started = anyio.current_time()
        kept = [hit for hit in found if hit.score >= least]
        self._tally.stage("min_score", len(found), len(kept), started, f"at least {least}")
        return kept

    async def _distinct(self, hydrator: Hydrator, found: Sequence[Fused], deadline: Deadline) -> Best:
        started = anyio.current_time()
        best, repeated = await hydrator.distinct(found, self._request, deadline)
        self._tally.stage("distinct", len(found), len(best), started, f"{repeated} repeated texts" if repeated else "")
        return best

    async def _reranked(self, best: Best, deadline: Deadline) -> Best:
        """Let the reranker order the best; where it fails or is late and a part is taken, they stay as they are."""
        started, reranker, spent = anyio.current_time(), self._assisting.reranker, Spent()
        if reranker is None:
            return best
        try:
            ordered = await reranked(reranker, self._request.text, best, deadline, spent)
            self._tally.stage("rerank", len(best), len(ordered), started, reranker.model, spent)
            return ordered
        except (DeadlineExceeded, DependencyError) as error:
            if not self._request.partial:
                raise
            self._tally.lost.append("rerank")
            self._tally.stage("rerank", len(best), len(best), started, str(error), spent)
            return best

    def _cut(self, best: Best) -> Best:
        most = self._request.top_n
        if most is None or len(best) <= most:
            return best
        self._tally.stage("top_n", len(best), most, anyio.current_time())
        return best[:most]


def _leaving(deadline: Deadline, share: float) -> Deadline:
    """Return the deadline that leaves this part of the time left."""
    return deadline.earlier(deadline.remaining() * share)


def _reserving(deadline: Deadline) -> Deadline:
    """Return the deadline that leaves time to show what was found."""
    return deadline.earlier(min(deadline.remaining() * RESERVE_SHARE, RESERVE_SECONDS))


def _both(chunks: Ints, allowed: Ints | None) -> Ints:
    return chunks if allowed is None else np.intersect1d(chunks, allowed)

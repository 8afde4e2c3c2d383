"""The query stage over in-memory stores: what each strategy returns, and how it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import (
    DeadlineExceeded,
    GraphCapabilityError,
    InconsistentGeneration,
    InvalidRequest,
    SapwoodError,
    StoreUnavailable,
)
from pipeline.ports import DenseIndex, Vectors
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.stage import QueryStage
from pipeline.testing.corpus import EMBEDDING, MemoryStores, PinnedRows, Rows, chunk, manifest_of, rows_of
from schemas.events import LegDone, Pinned
from schemas.ids import CorpusId, show
from schemas.manifest import Manifest
from schemas.query import QueryRequest, QueryResult, Strategy, Wire
from schemas.settings import CorpusSettings, FusionSettings, GraphSearchSettings

CORPUS = CorpusId(7)
LONG = 30.0
"""Seconds no test here should need."""


def small() -> Rows:
    """Six chunks; the first two are near the vector (1, 0, 0), and only the graph leads from Ada to the fifth."""
    chunks = [
        chunk("a.md", 0, "Ada wrote the engine notes", {"tier": "approved"}),
        chunk("a.md", 1, "the engine ran on steam", {"tier": "approved"}),
        chunk("a.md", 2, "a colophon closes the book", {"tier": "approved"}),
        chunk("b.md", 0, "the engine ran on steam", {"tier": "draft"}),
        chunk("c.md", 0, "Babbage kept a garden", {"tier": "draft"}),
        chunk("d.md", 0, "weather of the south", {"tier": "draft"}),
    ]
    vectors = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0.8, 0.2, 0], [-1, 0, 0], [0, 0, 1]], dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return rows_of(
        chunks,
        vectors,
        entities=[("Ada", "person"), ("Babbage", "person")],
        mentions=np.array([[0, 0], [4, 1]]),
        relations=np.array([[0, 1]]),
    )


@dataclass
class Fixed:
    """An embedder that always returns the same vector."""

    vector: Sequence[float] = (1.0, 0.0, 0.0)
    fingerprint: str = EMBEDDING
    paid: bool = False
    texts: list[str] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        self.texts.extend(texts)
        return np.array([self.vector] * len(texts), dtype=np.float32)


@dataclass
class Stalled:
    """A dense index that never answers, and counts who came and who was made to leave."""

    entered: int = 0
    left: int = 0

    async def search(self, *_: Any) -> list[tuple[int, float]]:
        self.entered += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.left += 1
        raise AssertionError

    async def similarities(self, *_: Any) -> dict[int, float]:
        raise AssertionError


@dataclass
class Broken:
    """A dense index whose server is gone."""

    error: SapwoodError = field(default_factory=lambda: StoreUnavailable("The dense store is away."))

    async def search(self, *_: Any) -> list[tuple[int, float]]:
        raise self.error

    async def similarities(self, *_: Any) -> dict[int, float]:
        raise self.error


class World:
    """A stage over one generation, in which single parts can be replaced."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.stores = MemoryStores({(CORPUS, 3): rows})
        self.embedder = Fixed()
        self.results = ResultCache()
        self.pinned = PinnedRows(CORPUS, manifest_of(rows, CORPUS, 3), CorpusSettings())
        self.events: list[Wire] = []

    def stage(self, dense: Any = None, store: Any = None) -> QueryStage:
        index: DenseIndex = dense or self.stores
        return QueryStage(self.stores, index, store or self.stores, lambda *_: self.embedder, self.results)

    def configured(self, **settings: Any) -> PinnedRows:
        return replace(self.pinned, settings=CorpusSettings(**settings))

    async def emit(self, event: Wire) -> None:
        self.events.append(event)

    async def ask(self, text: str = "Ada engine", pinned: PinnedRows | None = None, **fields: Any) -> QueryResult:
        request = QueryRequest(text=text, **fields)
        return await self.stage().run(pinned or self.pinned, request, Deadline.after(LONG), self.emit)

    def chunk(self, position: int) -> str:
        return show(self.rows.chunks[position].chunk_id)


@pytest.fixture
async def world() -> World:
    return World(small())


async def test_semantic_is_the_dense_leg_alone_with_cosines(world: World) -> None:
    result = await world.ask(strategy=Strategy.SEMANTIC, top_k=3, dedup=False)
    assert [hit.chunk for hit in result.hits] == [world.chunk(0), world.chunk(1), world.chunk(3)]
    assert result.hits[0].score == pytest.approx(1.0)
    assert result.hits[0].streams == ("vector",)
    assert result.hits[0].ranks == {"vector": 1}
    assert result.complete
    assert result.generation == 3


async def test_a_negative_cosine_counts_nothing(world: World) -> None:
    result = await world.ask(strategy=Strategy.SEMANTIC, top_k=6)
    assert result.hits[-1].chunk == world.chunk(4)
    assert result.hits[-1].score == 0.0


async def test_keyword_needs_no_vector_and_scores_its_best_hit_one(world: World) -> None:
    result = await world.ask("steam engine", strategy=Strategy.KEYWORD)
    assert world.embedder.texts == []
    assert result.hits[0].score == 1.0
    assert [leg.leg.value for leg in result.legs] == ["keyword"]


async def test_the_walk_finds_what_only_the_graph_reaches(world: World) -> None:
    settings = GraphSearchSettings(ranking="walk", top_k=5, include_communities=False)
    result = await world.ask(strategy=Strategy.GRAPH, pinned=world.configured(graph_search=settings))
    # The five nearest chunks are seeds, which are no results; Ada's one neighbour is at distance 1.
    assert [(hit.chunk, hit.score) for hit in result.hits] == [(world.chunk(4), 0.5)]
    assert result.legs[0].counters["seed_chunks"] == 5


async def test_pagerank_starts_at_the_names_in_the_question(world: World) -> None:
    result = await world.ask("what did Babbage keep", strategy=Strategy.GRAPH)
    assert result.hits[0].chunk == world.chunk(4)
    assert result.hits[0].score == 1.0
    assert result.legs[0].counters == {"seed_names": 1, "seed_chunks": 5}


async def test_hybrid_fuses_three_streams_and_lists_their_ranks(world: World) -> None:
    result = await world.ask("Ada engine")
    first = result.hits[0]
    assert first.chunk == world.chunk(0)
    assert first.streams == ("bm25", "vector", "graph")
    assert first.score == pytest.approx(1.0)
    assert {leg.state for leg in result.legs} == {"completed"}


async def test_an_empty_stream_does_not_count_in_the_divisor(world: World) -> None:
    result = await world.ask("zzz", pinned=world.configured(graph_search=GraphSearchSettings(enabled=False)))
    assert result.hits[0].score == pytest.approx(1.0)
    assert [leg.state for leg in result.legs] == ["empty", "completed"]
    assert result.complete


async def test_least_score_drops_what_is_below_it(world: World) -> None:
    result = await world.ask(strategy=Strategy.SEMANTIC, min_score=0.95)
    assert [hit.chunk for hit in result.hits] == [world.chunk(0), world.chunk(1), world.chunk(3)][: len(result.hits)]
    assert all(hit.score >= 0.95 for hit in result.hits)


async def test_the_same_text_is_shown_once_and_the_next_one_moves_up(world: World) -> None:
    once = await world.ask(strategy=Strategy.SEMANTIC, top_k=3)
    assert [hit.chunk for hit in once.hits] == [world.chunk(0), world.chunk(1), once.hits[2].chunk]
    assert world.chunk(3) not in {hit.chunk for hit in once.hits}
    assert len(once.hits) == 3


async def test_neighbours_stand_beside_their_hit_in_document_order(world: World) -> None:
    result = await world.ask(strategy=Strategy.SEMANTIC, top_k=1, neighbors=2)
    assert [hit.chunk for hit in result.hits] == [world.chunk(0), world.chunk(1), world.chunk(2)]
    assert [hit.neighbor_of for hit in result.hits] == [None, world.chunk(0), world.chunk(0)]
    assert result.hits[1].streams == ()


async def test_filters_apply_inside_every_leg(world: World) -> None:
    for strategy in Strategy:
        result = await world.ask("Babbage engine", strategy=strategy, filters={"tier": "draft"}, top_k=6)
        assert result.hits, strategy
        assert {hit.metadata["tier"] for hit in result.hits} == {"draft"}, strategy


async def test_document_and_source_are_filter_keys(world: World) -> None:
    assert {hit.document for hit in (await world.ask(filters={"document": "b.md"})).hits} == {"b.md"}
    assert (await world.ask(filters={"source": "/synthetic"})).hits
    with pytest.raises(InvalidRequest, match=r"filters\.document"):
        await world.ask(filters={"document": 3})


async def test_a_filter_that_nothing_passes_means_nothing_not_everything(world: World) -> None:
    result = await world.ask(filters={"tier": "secret"})
    assert result.hits == ()
    assert result.complete
    assert {leg.state for leg in result.legs} == {"empty"}


async def test_a_given_vector_is_used_instead_of_the_text(world: World) -> None:
    result = await world.ask(strategy=Strategy.SEMANTIC, vector=(0.0, 0.0, 5.0), top_k=1)
    assert result.hits[0].chunk == world.chunk(5)
    assert world.embedder.texts == []


@pytest.mark.parametrize("vector", [(1.0, 0.0), (float("nan"), 0.0, 0.0)])
async def test_a_vector_that_does_not_fit_is_an_invalid_request(world: World, vector: tuple[float, ...]) -> None:
    with pytest.raises(InvalidRequest, match="vector"):
        await world.ask(vector=vector)


async def test_graph_without_a_graph_is_an_error_and_hybrid_goes_without(world: World) -> None:
    off = replace(world.pinned, manifest=world.pinned.manifest.model_copy(update={"policy": "off"}))
    with pytest.raises(GraphCapabilityError):
        await world.ask(strategy=Strategy.GRAPH, pinned=off)
    result = await world.ask(pinned=off)
    assert result.complete
    assert [leg.leg.value for leg in result.legs] == ["keyword", "dense"]


async def test_weights_and_the_rank_constant_are_those_of_the_corpus(world: World) -> None:
    alone = world.configured(fusion=FusionSettings(keyword_weight=0, graph_weight=0))
    result = await world.ask(pinned=alone, dedup=False)
    assert [hit.chunk for hit in result.hits][:3] == [world.chunk(0), world.chunk(1), world.chunk(3)]


async def test_events_come_leg_by_leg_after_the_pin(world: World) -> None:
    await world.ask()
    assert world.events[0] == Pinned(generation=3)
    assert sorted(e.report.leg.value for e in world.events[1:] if isinstance(e, LegDone)) == [
        "dense",
        "graph",
        "keyword",
    ]
    assert len(world.events) == 4


async def test_a_leg_that_never_answers_is_named_and_the_others_are_used(world: World) -> None:
    stalled = Stalled()
    request = QueryRequest(text="engine", ranking="walk", cache=False)
    result = await world.stage(stalled).run(world.pinned, request, Deadline.after(0.4), world.emit)
    assert not result.complete
    assert result.missing == ("dense", "graph")
    assert result.hits
    assert {hit.streams for hit in result.hits} == {("bm25",)}
    assert (stalled.entered, stalled.left) == (1, 1)
    assert [leg.state for leg in result.legs] == ["completed", "missing", "missing"]


async def test_without_partial_the_deadline_is_an_error(world: World) -> None:
    request = QueryRequest(text="engine", partial=False)
    with pytest.raises(DeadlineExceeded):
        await world.stage(Stalled()).run(world.pinned, request, Deadline.after(0.4))


async def test_the_callers_cancellation_is_never_an_answer(world: World) -> None:
    stalled, answers = Stalled(), []

    async def ask() -> None:
        answers.append(await world.stage(stalled).run(world.pinned, QueryRequest(text="engine"), Deadline.after(LONG)))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not stalled.entered:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert answers == []
    assert stalled.left == 1


async def test_a_failed_leg_is_named_and_the_others_are_used(world: World) -> None:
    request = QueryRequest(text="engine", ranking="walk")
    result = await world.stage(Broken()).run(world.pinned, request, Deadline.after(LONG), world.emit)
    assert result.missing == ("dense", "graph")
    assert not result.complete
    assert result.hits
    assert result.legs[1].error == "The dense store is away."
    assert len(world.events) == 4


async def test_a_page_rank_that_is_fused_does_not_wait_for_the_dense_leg(world: World) -> None:
    request = QueryRequest(text="engine", ranking="ppr")
    result = await world.stage(Broken()).run(world.pinned, request, Deadline.after(LONG))
    assert result.missing == ("dense",)


async def test_a_failed_leg_is_the_error_where_no_part_is_taken(world: World) -> None:
    with pytest.raises(StoreUnavailable, match="dense store"):
        await world.stage(Broken()).run(world.pinned, QueryRequest(text="x", partial=False), Deadline.after(LONG))


async def test_when_all_legs_fail_the_error_comes_through(world: World) -> None:
    for strategy in (Strategy.SEMANTIC, Strategy.GRAPH):
        with pytest.raises(StoreUnavailable, match="dense store"):
            await world.stage(Broken()).run(
                world.pinned, QueryRequest(text="x", strategy=strategy), Deadline.after(LONG)
            )


async def test_a_defect_is_never_served_as_a_failed_leg(world: World) -> None:
    broken = Broken(InconsistentGeneration())
    with pytest.raises(InconsistentGeneration):
        await world.stage(broken).run(world.pinned, QueryRequest(text="engine"), Deadline.after(LONG))


async def test_a_graph_candidate_that_the_dense_store_lacks_is_an_error(world: World) -> None:
    """W9: not dropped in silence."""

    class Lossy(MemoryStores):
        async def search(
            self, manifest: Manifest, vector: Any, k: int, allowed: Ints | None, deadline: Deadline
        ) -> list[tuple[int, float]]:
            return (await super().search(manifest, vector, k, allowed, deadline))[:1]

        async def similarities(self, *_: Any) -> dict[int, float]:
            return {}

    settings = world.configured(graph_search=GraphSearchSettings(ranking="walk", include_communities=False))
    lossy = Lossy(world.stores.generations)
    request = QueryRequest(text="Ada", strategy=Strategy.GRAPH)
    whole = await world.stage(_OneSeed(world.stores.generations)).run(settings, request, Deadline.after(LONG))
    assert world.chunk(4) in {hit.chunk for hit in whole.hits}
    with pytest.raises(InconsistentGeneration, match="missing from the dense collection"):
        await world.stage(lossy).run(settings, replaced(request, cache=False), Deadline.after(LONG))


class _OneSeed(MemoryStores):
    async def search(
        self, manifest: Manifest, vector: Any, k: int, allowed: Ints | None, deadline: Deadline
    ) -> list[tuple[int, float]]:
        found = await super().search(manifest, vector, k, allowed, deadline)
        return found if allowed is not None else found[:1]


def replaced(request: QueryRequest, **fields: Any) -> QueryRequest:
    return request.model_copy(update=fields)


async def test_a_hit_that_its_generation_does_not_have_is_an_error(world: World) -> None:
    class Empty(MemoryStores):
        async def chunks(
            self, corpus: CorpusId, generation: int, ids: Sequence[int], deadline: Deadline
        ) -> dict[int, StoredChunk]:
            return {}

    with pytest.raises(InconsistentGeneration):
        await world.stage(store=Empty(world.stores.generations)).run(
            world.pinned, QueryRequest(text="engine"), Deadline.after(LONG)
        )


async def test_when_hydration_is_late_no_leg_is_in_the_answer(world: World) -> None:
    class Slow(MemoryStores):
        async def chunks(
            self, corpus: CorpusId, generation: int, ids: Sequence[int], deadline: Deadline
        ) -> dict[int, StoredChunk]:
            await anyio.sleep_forever()
            raise AssertionError

    stage = world.stage(store=Slow(world.stores.generations))
    result = await stage.run(world.pinned, QueryRequest(text="engine"), Deadline.after(0.3))
    assert (result.complete, result.hits) == (False, ())
    assert result.missing == ("keyword", "dense", "graph")
    with pytest.raises(DeadlineExceeded):
        await stage.run(world.pinned, QueryRequest(text="engine", partial=False), Deadline.after(0.3))


async def test_a_late_filter_is_late_for_all_legs(world: World) -> None:
    class Slow(MemoryStores):
        async def allowed(
            self, corpus: CorpusId, generation: int, filters: Mapping[str, Any], deadline: Deadline
        ) -> Ints:
            await anyio.sleep_forever()
            raise AssertionError

    stage = world.stage(store=Slow(world.stores.generations))
    result = await stage.run(world.pinned, QueryRequest(text="x", filters={"tier": "draft"}), Deadline.after(0.2))
    assert not result.complete


async def test_what_emit_raises_reaches_the_caller_as_it_is(world: World) -> None:
    async def refuse(event: Wire) -> None:
        if isinstance(event, LegDone):
            raise StoreUnavailable("The log is away.")

    with pytest.raises(StoreUnavailable, match="log is away"):
        await world.stage().run(world.pinned, QueryRequest(text="engine"), Deadline.after(LONG), refuse)


async def test_the_second_identical_request_is_served_from_the_cache(world: World) -> None:
    first, second = await world.ask(), await world.ask(deadline=3.0)
    assert (first.cached, second.cached) == (False, True)
    assert first.hits == second.hits
    assert len(world.embedder.texts) == 1
    assert not (await world.ask(cache=False)).cached
    assert not (await world.ask(top_k=2)).cached
    assert not (await world.ask(pinned=world.configured(fusion=FusionSettings(rrf_k=10)))).cached


async def test_an_incomplete_answer_is_not_kept(world: World) -> None:
    request = QueryRequest(text="engine")
    assert not (await world.stage(Broken()).run(world.pinned, request, Deadline.after(LONG))).complete
    assert len(world.results) == 0
    again = await world.stage().run(world.pinned, request, Deadline.after(LONG))
    assert again.complete
    assert not again.cached


async def test_identical_requests_at_once_compute_once(world: World) -> None:
    answers: list[QueryResult] = []

    async def ask() -> None:
        answers.append(await world.ask())

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(ask)
    assert len(world.embedder.texts) == 1
    assert sum(answer.cached for answer in answers) == 7


async def test_the_stage_gives_the_same_answer_twice(world: World) -> None:
    one, two = await world.ask(cache=False), await world.ask(cache=False)
    assert one.hits == two.hits

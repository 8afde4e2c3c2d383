"""The query stage over in-memory stores: what each strategy returns, and how it stops."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from pipeline.adapters.memory_graph import MemoryGraph
from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    GraphCapabilityError,
    InconsistentGeneration,
    InvalidRequest,
    SapwoodError,
    StoreUnavailable,
)
from pipeline.graphs.claims import GraphProvider, GraphQuery, Reach
from pipeline.graphs.knowledge import KnowledgeTools
from pipeline.graphs.parts import GraphChunk, GraphMention, GraphPart, GraphRef
from pipeline.ingest.clean import clean
from pipeline.ports import DenseIndex, Vectors
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.legs import Ranking
from pipeline.retrieval.providers import StoreProvider
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.stage import QueryStage
from pipeline.testing.corpus import EMBEDDING, MemoryStores, PinnedRows, Rows, chunk, manifest_of, rows_of, synthetic
from schemas.events import LegDone, Pinned
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, EntityNo, entity_id, identity_key, show
from schemas.manifest import Manifest, StoreCheck
from schemas.query import GraphStream, QueryRequest, QueryResult, Strategy, Wire
from schemas.settings import CorpusSettings, FusionSettings, GraphSearchSettings

CORPUS = CorpusId(7)
LONG = 30.0
"""Seconds no test here should need."""
PLAIN = (Strategy.SEMANTIC, Strategy.KEYWORD, Strategy.HYBRID, Strategy.GRAPH, Strategy.HIERARCHICAL)
"""The strategies that need nothing but the generation."""


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
        self.providers: list[GraphProvider] = []

    def stage(self, dense: Any = None, store: Any = None) -> QueryStage:
        index: DenseIndex = dense or self.stores
        return QueryStage(
            self.stores, index, store or self.stores, lambda *_: self.embedder, self.results, self.providers
        )

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
    for strategy in PLAIN:
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


@pytest.mark.parametrize("strategy", PLAIN)
async def test_where_no_chunk_passes_nobody_is_asked_and_no_text_embedded(world: World, strategy: Strategy) -> None:
    for ranking in ("walk", "ppr"):
        result = await world.ask("Ada", strategy=strategy, filters={"tier": "secret"}, ranking=ranking)
        assert (result.hits, result.complete) == ((), True)
    assert world.embedder.texts == []


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


@pytest.mark.parametrize("ranking", ["walk", "ppr"])
async def test_the_callers_cancellation_is_never_an_answer(world: World, ranking: Literal["walk", "ppr"]) -> None:
    stalled, answers = Stalled(), []
    request = QueryRequest(text="engine", ranking=ranking)

    async def ask() -> None:
        answers.append(await world.stage(stalled).run(world.pinned, request, Deadline.after(LONG)))

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


# --- Who serves the graph, and what it adds. The numbers in the names are those of the specification's cases.


@dataclass
class Consumer:
    """Somebody else's provider over chunks of the generation, which always claims."""

    hits: Sequence[tuple[int, float]] = ()
    name: str = "mine"
    error: SapwoodError | None = None
    default: bool = False
    live: bool = False

    def claims(self, reach: Reach) -> bool:
        return True

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        if self.error:
            raise self.error
        return Ranking(self.hits)


LIVE = ("knowledge-tools",)


async def in_neo4j(world: World) -> MemoryGraph:
    """Put the generation's graph into a graph store, and let the provider of such graphs serve."""
    manifest = world.pinned.manifest.model_copy(update={"graph_store": "neo4j", "graph_id": f"{7:032x}-3"})
    world.pinned = replace(world.pinned, manifest=manifest)
    graph, ref, rows = MemoryGraph(), GraphRef.of(CORPUS, manifest), world.rows
    nos, deadline = [EntityNo(no) for no in rows.entity_nos], Deadline.after(LONG)
    entities = [
        Entity(no, entity_id(kind, identity_key(name)), kind, identity_key(name), name)
        for no, (name, kind) in zip(nos, rows.entities, strict=True)
    ]
    part = GraphPart(
        [GraphChunk(one.chunk_id, one.document, one.ordinal) for one in rows.chunks],
        entities,
        [Relation(nos[a], nos[b], "knows", 1.0, 1) for a, b in rows.relations.tolist()],
        [GraphMention(rows.chunks[c].chunk_id, nos[e]) for c, e in rows.mentions.tolist()],
    )
    await graph.open(ref, 1, deadline)
    await graph.write(ref, 1, part, deadline)
    await graph.seal(ref, 1, deadline)
    await graph.place(ref, 1, dict.fromkeys(nos, (0,)), deadline)
    world.providers.append(StoreProvider("neo4j", graph, world.stores))
    return graph


async def test_g8_hits_are_stamped_by_what_ranked_them_in_the_graph(world: World) -> None:
    result = await world.ask("what did Babbage keep", strategy=Strategy.GRAPH)
    assert {hit.graph_source for hit in result.hits} == {"in-memory"}
    assert result.graph_stream is GraphStream.FUSED
    fused = await world.ask("what did Babbage keep")
    stamps = {("graph" in hit.streams, hit.graph_source) for hit in fused.hits}
    assert stamps == {(True, "in-memory"), (False, None)}


async def test_g9_and_g28_without_documents_live_triples_answer_and_later_ones_too(world: World) -> None:
    counts = {**world.pinned.manifest.stores, "documents": StoreCheck(rows=0, checksum="")}
    bare = replace(world.pinned, manifest=world.pinned.manifest.model_copy(update={"stores": counts}))
    empty = await world.ask("Ada", pinned=bare, strategy=Strategy.GRAPH)
    assert (empty.hits, empty.complete, empty.graph_stream) == ((), True, GraphStream.EMPTY)
    tools = KnowledgeTools()
    tools.kg_add_triple("Ada", "lives in", "London")
    result = await world.ask("Ada", pinned=bare, strategy=Strategy.GRAPH)
    (hit,) = result.hits
    assert (hit.document, hit.text, hit.graph_source) == ("knowledge-tools", "Ada lives in London", "knowledge-tools")
    assert hit.metadata == {"subject": "Ada", "predicate": "lives in", "object": "London"}
    assert (hit.score, hit.ranks) == (1.0, {"graph": 1})


async def test_g11_g28_and_g29_a_fence_keeps_the_live_triples_as_they_are_at_the_moment(world: World) -> None:
    one, two = KnowledgeTools(), KnowledgeTools()

    async def texts() -> list[str]:
        result = await world.ask("Ada", strategy=Strategy.GRAPH, fence=LIVE)
        assert result.complete and not result.cached
        return [hit.text for hit in result.hits]

    assert await texts() == []
    two.kg_add_triple("Ada", "likes", "engines")
    one.kg_add_triple("Ada", "likes", "numbers")
    assert await texts() == ["Ada likes engines", "Ada likes numbers"]
    one.kg_add_triple("Ada", "likes", "music")
    assert await texts() == ["Ada likes engines", "Ada likes numbers", "Ada likes music"]
    del two
    gc.collect()
    assert await texts() == ["Ada likes numbers", "Ada likes music"]
    assert len(world.results) == 0


async def test_a_result_of_the_generation_alone_is_kept(world: World) -> None:
    """The control of the case above."""
    tools = KnowledgeTools()
    assert not (await world.ask("Ada", strategy=Strategy.GRAPH)).cached
    tools.kg_add_triple("Ada", "likes", "music")
    assert (await world.ask("Ada", strategy=Strategy.GRAPH)).cached


async def test_a_result_of_one_provider_is_no_answer_of_another(world: World) -> None:
    first = await world.ask("Ada", strategy=Strategy.GRAPH)
    assert (await world.ask("Ada", strategy=Strategy.GRAPH)).cached
    world.providers = [Consumer([(world.rows.chunks[5].chunk_id, 0.3)])]
    other = await world.ask("Ada", strategy=Strategy.GRAPH)
    assert not other.cached and other.hits != first.hits
    world.providers = []
    assert (await world.ask("Ada", strategy=Strategy.GRAPH)).hits == first.hits


@pytest.mark.parametrize(
    "hidden", ["En\u00adgine", "\u200bengine", "eng\u200dine", "\u2066engine\u2069", "engine\ufe0f\r"]
)
async def test_a_question_has_the_words_that_documents_have(world: World, hidden: str) -> None:
    """What documents lose when they are indexed is lost here too: else a soft hyphen would hide what is asked for."""
    plain = await world.ask("engine", strategy=Strategy.KEYWORD)
    assert plain.hits
    found = await world.ask(hidden, strategy=Strategy.KEYWORD)
    assert [hit.chunk for hit in found.hits] == [hit.chunk for hit in plain.hits]
    await world.ask(f"{hidden} notes", strategy=Strategy.SEMANTIC, cache=False)
    assert world.embedder.texts[-1].lower().split() == ["engine", "notes"]


async def test_scripts_that_are_written_with_joiners_are_asked_as_they_are_indexed() -> None:
    """Documents lose their zero-width non-joiners, so a Persian question must lose them too, and so must one without."""
    written = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # "I want", with the joiner that belongs there
    indexed = clean(written)[0]
    world = World(rows_of([chunk("fa.md", 0, indexed, {})], np.array([[1, 0, 0]], dtype=np.float32)))
    for asked in (written, indexed):
        assert (await world.ask(asked, strategy=Strategy.KEYWORD)).hits


@pytest.mark.parametrize("text", ["\u200b", " \u200d\ufeff ", "\u2060\n"])
async def test_a_question_of_nothing_that_is_seen_is_refused_before_anything_is_read(world: World, text: str) -> None:
    with pytest.raises(InvalidRequest, match="text"):
        await world.ask(text)
    assert world.events == []


async def test_g13_a_graph_that_nobody_serves_is_an_error_also_where_a_part_is_taken(world: World) -> None:
    with pytest.raises(GraphCapabilityError, match="fence"):
        await world.ask("Ada", strategy=Strategy.GRAPH, fence=("nobody",), partial=True)
    assert world.events == []
    assert world.embedder.texts == []


async def test_g18_hybrid_without_a_claimant_has_two_streams(world: World) -> None:
    result = await world.ask("Ada engine", fence=("nobody",))
    assert [leg.leg.value for leg in result.legs] == ["keyword", "dense"]
    assert (result.complete, result.graph_stream) == (True, GraphStream.NOT_CLAIMED)
    assert {hit.streams for hit in result.hits} <= {("bm25", "vector"), ("vector",), ("bm25",)}
    assert {hit.graph_source for hit in result.hits} == {None}
    assert result.hits[0].score == pytest.approx(1.0)


async def test_g19_hybrid_with_one_claimant_fuses_three_streams(world: World) -> None:
    world.providers = [Consumer([(world.rows.chunks[0].chunk_id, 0.3)])]
    result = await world.ask("Ada engine")
    first = result.hits[0]
    assert (first.streams, first.graph_source) == (("bm25", "vector", "graph"), "mine")
    assert first.score == pytest.approx(1.0)
    assert result.graph_stream is GraphStream.FUSED


async def test_g20_two_that_are_no_defaults_are_an_error_of_the_configuration(world: World) -> None:
    await in_neo4j(world)
    world.providers.append(Consumer())
    for strategy in (Strategy.HYBRID, Strategy.GRAPH):
        with pytest.raises(GraphCapabilityError, match="mine, neo4j"):
            await world.ask("Ada", strategy=strategy)
    for strategy in (Strategy.SEMANTIC, Strategy.KEYWORD):
        result = await world.ask("Ada", strategy=strategy)
        assert result.hits and result.graph_stream is None


async def test_g30_first_in_two_streams_beside_an_empty_one_scores_one(world: World) -> None:
    result = await world.ask("notes")
    assert result.graph_stream is GraphStream.EMPTY
    assert result.hits[0].ranks == {"bm25": 1, "vector": 1}
    assert result.hits[0].score == pytest.approx(1.0)


async def test_g31_and_g32_first_in_one_of_three_streams_scores_a_third_and_less_is_dropped(world: World) -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("Ada", "likes", "music")
    result = await world.ask("Ada", fence=LIVE)
    (triple,) = [hit for hit in result.hits if hit.document == "knowledge-tools"]
    assert triple.ranks == {"graph": 1}
    assert triple.score == pytest.approx(1 / 3)
    assert len({stream for hit in result.hits for stream in hit.streams}) == 3
    above = await world.ask("Ada", fence=LIVE, min_score=0.5)
    assert above.hits
    assert "knowledge-tools" not in {hit.document for hit in above.hits}


async def test_g33_a_hit_lists_exactly_the_streams_that_have_it(world: World) -> None:
    request = QueryRequest(text="Babbage garden", cache=False)
    stage = world.stage(_OneSeed(world.stores.generations))
    result = await stage.run(world.pinned, request, Deadline.after(LONG))
    (garden,) = [hit for hit in result.hits if hit.chunk == world.chunk(4)]
    assert garden.streams == ("bm25", "graph")
    assert garden.ranks == {"bm25": 1, "graph": 1}


async def test_g34_an_entity_leads_to_every_chunk_that_mentions_it() -> None:
    world = World(replace(small(), mentions=np.array([[0, 0], [4, 1], [5, 1]])))
    ranked = await world.ask("Babbage", strategy=Strategy.GRAPH, ranking="ppr")
    assert {hit.chunk for hit in ranked.hits} >= {world.chunk(4), world.chunk(5)}
    seeded = world.stage(_OneSeed(world.stores.generations))
    request = QueryRequest(text="Babbage", strategy=Strategy.GRAPH, ranking="walk", cache=False)
    walked = await seeded.run(world.pinned, request, Deadline.after(LONG))
    assert {hit.chunk: hit.score for hit in walked.hits}.items() >= {(world.chunk(4), 0.5), (world.chunk(5), 0.5)}


async def test_live_triples_pass_filters_as_documents_do(world: World) -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("Ada", "likes", "music")
    tools.kg_add_triple("Ada", "knows", "Babbage")

    async def texts(**filters: Any) -> list[str]:
        result = await world.ask("Ada", strategy=Strategy.GRAPH, fence=LIVE, filters=filters)
        return [hit.text for hit in result.hits]

    assert await texts(object="music") == ["Ada likes music"]
    assert await texts(document="knowledge-tools") == ["Ada likes music", "Ada knows Babbage"]
    for nothing in ({"tier": "approved"}, {"document": "a.md"}, {"object": ["music"]}):
        assert await texts(**nothing) == []


async def test_a_triple_that_says_what_a_chunk_says_is_shown_once(world: World) -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("Babbage", "kept", "a garden")
    once = await world.ask("Babbage kept garden", fence=LIVE, top_k=10)
    assert [hit.text for hit in once.hits].count("Babbage kept a garden") == 1
    twice = await world.ask("Babbage kept garden", fence=LIVE, top_k=10, dedup=False)
    assert [hit.text for hit in twice.hits].count("Babbage kept a garden") == 2


async def test_a_triple_has_no_neighbours_and_the_chunk_beside_it_keeps_its_own(world: World) -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("notes", "are", "Ada's")
    result = await world.ask("Ada notes", fence=LIVE, neighbors=1, top_k=2)
    assert {hit.neighbor_of for hit in result.hits} == {None, world.chunk(0)}
    alone = await world.ask("Ada notes", fence=LIVE, neighbors=1, strategy=Strategy.GRAPH)
    assert [hit.text for hit in alone.hits] == ["notes are Ada's"]


async def test_what_a_result_says_goes_over_the_wire_and_back(world: World) -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("Ada", "likes", "music")
    result = await world.ask("Ada", fence=LIVE)
    assert QueryResult.model_validate_json(result.model_dump_json()) == result
    older = result.model_dump(exclude={"graph_stream": True, "hits": {"__all__": {"graph_source"}}})
    assert QueryResult.model_validate(older).graph_stream is None
    assert QueryRequest.model_validate({"text": "x"}).fence == ()


async def test_g14_a_walk_in_neo4j_equals_the_walk_in_memory() -> None:
    """The provider over a graph store, and the one over the snapshot: same chunks, same scores, same order."""
    world = World(synthetic(600, 8))
    await in_neo4j(world)
    for strategy in (Strategy.GRAPH, Strategy.HYBRID):
        for number in range(0, 600, 150):
            vector = tuple(world.rows.vectors[number].tolist())
            for filters in ({}, {"tier": 3}):
                case: dict[str, Any] = {"strategy": strategy, "vector": vector, "filters": filters, "top_k": 20}
                there = await world.ask(f"Entity {number}", **case)
                here = await world.ask(f"Entity {number}", fence=("in-memory",), **case)
                assert {hit.graph_source for hit in there.hits} <= {"neo4j", None}
                assert {hit.graph_source for hit in here.hits} <= {"in-memory", None}
                assert there.graph_stream is here.graph_stream is GraphStream.FUSED
                assert [(h.chunk, h.score, h.ranks) for h in there.hits] == [
                    (h.chunk, h.score, h.ranks) for h in here.hits
                ]
                assert there.legs[-1].counters == here.legs[-1].counters


async def test_a_page_rank_of_a_graph_in_neo4j_is_made_here(world: World) -> None:
    world.pinned = world.configured(graph_search=GraphSearchSettings(top_k=5))
    await in_neo4j(world)
    walked = await world.ask("Babbage", strategy=Strategy.GRAPH)
    assert {hit.graph_source for hit in walked.hits} == {"neo4j"}
    ranked = await world.ask("Babbage", strategy=Strategy.GRAPH, ranking="ppr")
    assert {hit.graph_source for hit in ranked.hits} == {"in-memory"}
    assert "seed_names" in ranked.legs[0].counters


class _Away:
    """A graph store that fails, or never answers."""

    def __init__(self, error: SapwoodError | None) -> None:
        self.error = error
        self.entered = self.left = 0

    async def expand(self, *_: Any) -> Any:
        self.entered += 1
        try:
            if self.error is None:
                await anyio.sleep_forever()
            raise self.error or AssertionError()
        finally:
            self.left += 1

    entities = relations = paths = expand


@pytest.mark.parametrize(
    "error", [StoreUnavailable("The graph store is away."), ConfigurationError("The graph store is away."), None]
)
async def test_a_graph_store_that_is_away_is_the_missing_leg_and_the_rest_is_answered(
    world: World, error: SapwoodError | None
) -> None:
    await in_neo4j(world)
    away = _Away(error)
    world.providers = [StoreProvider("neo4j", away, world.stores)]
    request = QueryRequest(text="Ada engine")
    result = await world.stage().run(world.pinned, request, Deadline.after(LONG if error else 0.6))
    assert (result.complete, result.missing, result.graph_stream) == (False, ("graph",), GraphStream.MISSING)
    assert [leg.state for leg in result.legs] == ["completed", "completed", "failed" if error else "missing"]
    assert result.hits[0].streams == ("bm25", "vector")
    assert (away.entered, away.left) == (1, 1)
    assert len(world.results) == 0
    if error:
        assert result.legs[2].error == "The graph store is away."
        with pytest.raises(StoreUnavailable, match="graph store is away"):
            await world.ask("Ada", strategy=Strategy.GRAPH)
        with pytest.raises(StoreUnavailable, match="graph store is away"):
            await world.ask("Ada", partial=False)


async def test_a_walk_in_neo4j_does_not_start_without_the_dense_leg(world: World) -> None:
    await in_neo4j(world)
    away = _Away(StoreUnavailable("never asked"))
    world.providers = [StoreProvider("neo4j", away, world.stores)]
    result = await world.stage(Broken()).run(world.pinned, QueryRequest(text="Ada"), Deadline.after(LONG))
    assert result.missing == ("dense", "graph")
    assert {leg.error for leg in result.legs} == {"", "The dense store is away."}
    assert away.entered == 0


async def test_a_consumers_failure_is_the_missing_leg_too(world: World) -> None:
    world.providers = [Consumer(error=StoreUnavailable("mine is away"))]
    result = await world.ask("Ada engine")
    assert (result.missing, result.graph_stream) == (("graph",), GraphStream.MISSING)


@pytest.mark.parametrize("stray", [12345, -1])
async def test_a_hit_of_a_provider_that_nobody_knows_is_a_defect(world: World, stray: int) -> None:
    world.providers = [Consumer([(stray, 1.0)])]
    with pytest.raises(InconsistentGeneration):
        await world.ask("Ada", strategy=Strategy.GRAPH)


async def test_strategies_without_a_graph_leg_say_nothing_of_a_graph(world: World) -> None:
    for strategy in (Strategy.SEMANTIC, Strategy.KEYWORD):
        assert (await world.ask("Ada", strategy=strategy, fence=("nobody",))).graph_stream is None
    off = world.configured(graph_search=GraphSearchSettings(enabled=False))
    assert (await world.ask("Ada", pinned=off)).graph_stream is GraphStream.NOT_CLAIMED

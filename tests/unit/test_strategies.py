"""MULTI_QUERY, HIERARCHICAL, TEMPORAL, REASONING and reranking through the query stage.

The numbers in the names are those of the specification's cases. None of the strategies falls back to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    ModelError,
    ModelRefused,
    ProviderUnavailable,
    SapwoodError,
    StoreUnavailable,
)
from pipeline.graphs.knowledge import KnowledgeTools
from pipeline.ingest import paid
from pipeline.retrieval import groups, navigation
from pipeline.retrieval.assistants import Counted
from pipeline.retrieval.rows import Ints
from pipeline.testing.corpus import MemoryStores
from schemas.events import LegDone
from schemas.manifest import Manifest
from schemas.query import GraphStream, Strategy
from tests.strategy_world import (
    BUILT,
    FEES,
    KILN,
    LASER,
    LONG,
    MOVED,
    UNDATED,
    Model,
    World,
    stage,
    texts,
    vector_of,
)

SECRET = "bolt://secret@10.0.0.1"
NEEDY: dict[str, dict[str, Any]] = {
    "multi_query": {"strategy": "multi_query", "expander": "told"},
    "reasoning": {"strategy": "reasoning", "navigator_model": "told"},
    "rerank": {"rerank": True, "reranker": "told"},
}
"""What needs a model, and names one."""
PARTS = {"multi_query": "expander", "reasoning": "navigator", "rerank": "reranker"}
STEPS = {"multi_query": "expand", "reasoning": "navigate", "rerank": "rerank"}


def world_of(need: str, model: Model) -> World:
    return World(**{PARTS[need]: model})


# --- Who assists: before anything else, whatever a request takes in case of failure.


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("need", list(NEEDY))
async def test_r17_r18_and_r19_without_its_provider_a_request_is_an_error_before_anything_is_done(
    need: str, partial: bool
) -> None:
    world = World()
    with pytest.raises(ProviderUnavailable, match="'told'"):
        await world.ask("laser", **NEEDY[need], partial=partial)
    assert (world.events, world.embedder.texts, world.stores.loads) == ([], [], [])
    other = world_of(need, Model(model="another"))
    with pytest.raises(ProviderUnavailable, match="'told'"):
        await other.ask("laser", **NEEDY[need], partial=partial)


@pytest.mark.parametrize("need", list(NEEDY))
async def test_r19_a_blank_model_is_an_error_of_the_configuration(need: str) -> None:
    world = world_of(need, Model(model=""))
    blank = {key: ("" if value == "told" else value) for key, value in NEEDY[need].items()}
    with pytest.raises(ConfigurationError, match="query_models") as caught:
        await world.ask("laser", **blank)
    assert not isinstance(caught.value, ProviderUnavailable)
    assert world.events == []


async def test_what_a_request_leaves_open_the_corpus_says() -> None:
    expander, navigator = Model([["kiln"]]), Model([[1]])
    reranker = Model([[0.5] * 5])
    world = World(expander, navigator, reranker)
    models = world.configured(query_models={"expander": "told", "navigator": "told", "reranker": "told"})
    await world.ask("laser", models, strategy="multi_query")
    await world.ask("laser", models, strategy="reasoning")
    await world.ask("laser", models, rerank=True)
    assert expander.calls and navigator.calls and reranker.calls


@pytest.mark.parametrize("need", ["multi_query", "reasoning"])
@pytest.mark.parametrize(("error", "times"), [(OSError(SECRET), 1), (ModelError("away"), 4), (ModelRefused("no"), 1)])
async def test_r18_a_model_that_fails_is_the_error_and_never_another_strategy(
    need: str, error: Exception, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid, "PAUSE", 0.0)
    model = Model(error=error)
    world = world_of(need, model)
    with pytest.raises(ModelError) as caught:
        await world.ask("laser", **NEEDY[need], partial=True)
    assert "secret" not in str(caught.value)
    assert (model.left, len(world.results)) == (times, 0)


@pytest.mark.parametrize("need", ["multi_query", "reasoning"])
async def test_a_model_that_is_late_is_named_and_there_is_no_answer_without_it(need: str) -> None:
    model = Model(stalls=True)
    world = world_of(need, model)
    result = await world.ask("laser", seconds=0.5, **NEEDY[need])
    assert (result.complete, result.hits) == (False, ())
    assert result.missing[0] == STEPS[need]
    assert {"keyword", "dense"} <= set(result.missing)
    with pytest.raises(DeadlineExceeded):
        await world.ask("laser", seconds=0.5, partial=False, **NEEDY[need])
    assert model.left == len(model.calls) == 2
    assert len(world.results) == 0


@pytest.mark.parametrize("need", list(NEEDY))
async def test_r20_the_callers_cancellation_reaches_the_model_and_is_never_an_answer(need: str) -> None:
    model = Model(stalls=True)
    world, answers = world_of(need, model), list[Any]()

    async def ask() -> None:
        answers.append(await world.ask("laser", **NEEDY[need]))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while not model.calls:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert (answers, model.left) == ([], 1)


@pytest.mark.parametrize("need", list(NEEDY))
async def test_r38_filters_hold_whatever_a_model_says(need: str) -> None:
    answers = {"multi_query": ["kiln room", "pounds"], "reasoning": [1], "rerank": [0.9, 0.8, 0.7]}
    world = world_of(need, Model([answers[need]]))
    case = NEEDY[need] | ({"top_k": 3} if need == "rerank" else {})
    result = await world.ask("laser", **case, filters={"tier": "approved"})
    assert result.hits
    assert {hit.metadata["tier"] for hit in result.hits} == {"approved"}
    assert stage(result, "filter").after == 3


async def test_without_rerank_and_variants_no_model_is_asked() -> None:
    model = Model([["never"]])
    world = World(model, model, model)
    said = world.configured(query_models={"expander": "told", "navigator": "told", "reranker": "told"})
    for strategy in ("semantic", "keyword", "hybrid", "graph", "hierarchical"):
        await world.ask("laser", said, strategy=strategy, navigator_model="told")
    assert model.calls == [], "a corpus says which models assist, not that they do"


# --- MULTI_QUERY, and expansion elsewhere


@pytest.mark.parametrize("strategy", ["semantic", "keyword", "hybrid", "hierarchical", "temporal"])
async def test_any_strategy_has_its_question_asked_in_other_words_where_that_is_asked_for(strategy: str) -> None:
    expander = Model([["kiln degrees"]])
    world = World(expander)
    asked = {**(DATED if strategy == "temporal" else {}), "strategy": strategy, "top_k": 10}
    result = await world.ask("laser cutter", **asked, expander="told")
    assert KILN in texts(result) and expander.calls == [("laser cutter", 3)]
    assert [one.name for one in result.stages].count("expand") == 1
    assert (stage(result, "expand").after, stage(result, "fuse_variants").note) == (2, "2 texts")
    expected = {"semantic": {"vector"}, "keyword": {"bm25"}}.get(strategy, {"bm25", "vector", "graph"})
    assert {stream for hit in result.hits for stream in hit.streams} <= expected, "the strategy stays what it is"


@pytest.mark.parametrize("strategy", ["semantic", "keyword", "hybrid"])
async def test_an_expander_that_fails_or_is_nobodys_is_an_error_under_every_strategy(strategy: str) -> None:
    with pytest.raises(ModelError):
        await World(Model(error=ModelRefused("no"))).ask("laser", strategy=strategy, expander="told")
    world = World(Model())
    with pytest.raises(ProviderUnavailable):
        await world.ask("laser", strategy=strategy, expander="nobody's")
    assert world.events == []


@pytest.mark.parametrize("need", list(NEEDY))
async def test_a_model_that_is_away_for_a_moment_is_asked_again_and_its_tokens_are_counted(
    need: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid, "PAUSE", 0.0)
    answers: dict[str, Any] = {"multi_query": ["kiln"], "reasoning": [1], "rerank": [0.5] * 5}
    model = Busy([Counted(answers[need], 20, 3)], busy=2)
    result = await world_of(need, model).ask("laser", **NEEDY[need])
    found = stage(result, STEPS[need])
    steps = len(model.calls) - 2
    assert (found.input_tokens, found.output_tokens) == (20 * steps, 3 * steps) and steps
    others = [one for one in result.stages if one is not found]
    assert not any(one.input_tokens or one.output_tokens for one in others)


@dataclass
class Busy(Model):
    """Fails the first times."""

    busy: int = 0

    async def _answer(self, *asked: Any) -> Any:
        answer = await super()._answer(*asked)
        if len(self.calls) <= self.busy:
            raise ModelError("busy")
        return answer


async def test_variants_find_what_the_question_does_not_say() -> None:
    world = World(Model([["kiln", "LASER", "", "pounds", "kiln"]]))
    result = await world.ask("laser", strategy="multi_query", expander="told", top_k=10)
    assert {LASER, KILN, FEES} <= set(texts(result))
    assert (stage(result, "expand").before, stage(result, "expand").after) == (1, 3)
    assert sorted({leg.of for leg in result.legs}) == ["", "variant-1", "variant-2"]
    assert result.complete
    assert sum(isinstance(event, LegDone) for event in world.events) == len(result.legs) == 9
    assert stage(result, "fuse_variants").note == "3 texts"
    assert result.graph_stream is GraphStream.EMPTY


async def test_variants_are_bounded_and_the_question_is_always_among_them() -> None:
    model = Model([[f"kiln {n}" for n in range(50)]])
    world = World(model)
    result = await world.ask("laser", strategy="multi_query", expander="told", variants=2)
    assert model.calls == [("laser", 2)]
    assert sorted(world.embedder.texts) == ["kiln 0", "kiln 1", "laser"]
    assert stage(result, "expand").after == 3


async def test_a_given_vector_is_that_of_the_question_alone() -> None:
    world = World(Model([["kiln"]]))
    result = await world.ask("zzz", strategy="multi_query", expander="told", vector=vector_of("pounds"))
    assert world.embedder.texts == ["kiln"]
    assert {FEES, KILN} <= set(texts(result))


class Meeting(MemoryStores):
    """A dense index that answers nobody before so many have come."""

    def __init__(self, stores: MemoryStores, size: int) -> None:
        super().__init__(stores.generations)
        self.__dict__["come"], self.__dict__["size"], self.__dict__["all"] = 0, size, anyio.Event()

    async def search(
        self, manifest: Manifest, vector: Any, k: int, allowed: Ints | None, deadline: Deadline
    ) -> list[tuple[int, float]]:
        state = self.__dict__
        state["come"] += 1
        if state["come"] == state["size"]:
            state["all"].set()
        await state["all"].wait()
        return await super().search(manifest, vector, k, allowed, deadline)


async def test_all_variants_are_searched_at_once() -> None:
    world = World(Model([["kiln", "pounds"]]))
    result = await world.ask("laser", dense=Meeting(world.stores, 3), strategy="multi_query", expander="told")
    assert result.complete
    assert stage(result, "fuse_variants").note == "3 texts"


class Choosy(MemoryStores):
    """A dense index that never answers for the kiln, or fails for it."""

    error: SapwoodError | None = None

    async def search(
        self, manifest: Manifest, vector: Any, k: int, allowed: Ints | None, deadline: Deadline
    ) -> list[tuple[int, float]]:
        if vector[1] > 0.5:
            if self.error:
                raise self.error
            await anyio.sleep_forever()
        return await super().search(manifest, vector, k, allowed, deadline)


class Failing(Choosy):
    error = StoreUnavailable("The dense store is away.")


async def test_a_variant_that_is_late_or_fails_is_named_and_the_others_are_used() -> None:
    world = World(Model([["kiln"]]))
    case: dict[str, Any] = {"strategy": "multi_query", "expander": "told"}
    late = await world.ask("laser", dense=Choosy(world.stores.generations), seconds=0.5, **case)
    failed = await world.ask("laser", dense=Failing(world.stores.generations), **case)
    for result in (late, failed):
        assert (result.complete, result.missing) == (False, ("variant-1.dense",))
        assert LASER in texts(result) and KILN in texts(result)
    assert len(world.results) == 0
    with pytest.raises(StoreUnavailable):
        await world.ask("laser", dense=Failing(world.stores.generations), partial=False, **case)
    with pytest.raises(DeadlineExceeded):
        await world.ask("laser", dense=Choosy(world.stores.generations), partial=False, seconds=0.5, **case)


@pytest.mark.parametrize("answer", [None, "kiln", [1], ["kiln", None], {"queries": []}])
async def test_an_expanders_bad_answer_is_a_model_error(answer: Any) -> None:
    with pytest.raises(ModelError, match="list of texts"):
        await World(Model([answer])).ask("laser", strategy="multi_query", expander="told")


async def test_results_with_other_models_or_numbers_of_variants_are_kept_apart() -> None:
    model = Model([["kiln"]])
    world = World(model)
    case: dict[str, Any] = {"strategy": "multi_query", "expander": "told"}
    assert not (await world.ask("laser", **case)).cached
    assert (await world.ask("laser", **case)).cached
    assert not (await world.ask("laser", **case, variants=1)).cached
    model.fingerprint = "told/2"
    assert not (await world.ask("laser", **case)).cached


# --- HIERARCHICAL


async def test_groups_come_first_then_their_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS", 1)
    world = World()
    result = await world.ask("kiln degrees", strategy="hierarchical", top_k=10)
    found = stage(result, "groups")
    assert found.note == "0 communities, 1 sections"
    assert texts(result)[0] == KILN
    assert len(result.hits) <= found.after < len(world.rows.chunks)
    assert [leg.of for leg in result.legs] == ["shortlist"] * 3 + [""] * 3


async def test_a_section_brings_what_the_first_search_missed() -> None:
    """The fees share no word with the question; they stand below the same document."""
    world = World()
    keyword_only = {"fusion": {"dense_weight": 0.0, "graph_weight": 0.0}}
    result = await world.ask("kiln", world.configured(**keyword_only), strategy="hierarchical", dedup=False)
    assert stage(result, "groups").before == 1
    assert stage(result, "groups").after == 3, "all of the guide"
    assert {hit.document for hit in result.hits} == {"guide.md"}


async def test_the_same_question_has_the_same_answer_and_one_embedding() -> None:
    world = World()
    one = await world.ask("laser room", strategy="hierarchical", cache=False)
    two = await world.ask("laser room", strategy="hierarchical", cache=False)
    assert one.hits == two.hits
    assert world.embedder.texts == ["laser room"] * 2


async def test_a_shortlist_that_lacks_a_leg_says_so() -> None:
    world = World()
    result = await world.ask("kiln", dense=Failing(world.stores.generations), strategy="hierarchical")
    assert result.missing == ("shortlist.dense", "dense")
    assert texts(result)[0] == KILN


# --- TEMPORAL

DATED: dict[str, Any] = {"strategy": "temporal", "temporal": {"field": "date", "half_life_days": 365}}


@pytest.mark.parametrize("partial", [True, False])
async def test_without_a_time_field_temporal_is_an_error_of_the_configuration(partial: bool) -> None:
    world = World()
    with pytest.raises(ConfigurationError, match=r"temporal\.field"):
        await world.ask("laser", strategy="temporal", partial=partial)
    assert (world.events, world.embedder.texts) == ([], [])
    by_corpus = await world.ask("laser", world.configured(temporal={"field": "date"}), strategy="temporal")
    assert by_corpus.hits


async def test_the_newer_of_two_that_are_as_relevant_comes_first_and_the_undated_are_counted() -> None:
    result = await World().ask("laser cutter", **DATED, top_k=10)
    assert texts(result)[0] == MOVED
    assert texts(result).index(LASER) < texts(result).index(BUILT)
    assert UNDATED not in texts(result)
    window = stage(result, "window")
    assert (window.before, window.after) == (7, 5)
    assert window.note == "2 without a time in 'date', 0 outside of the window"
    assert stage(result, "recency").note == "as of 2024-06-01T00:00:00+00:00"


async def test_weight_says_how_much_of_a_score_is_recency() -> None:
    world = World()
    for weight, expected in ((0.0, 1.0), (1.0, 0.5), (0.5, 0.75)):
        clock = {"field": "date", "half_life_days": 152, "weight": weight, "now": "2024-06-01"}
        result = await world.ask("kiln degrees", strategy="temporal", temporal=clock)
        (kiln,) = [hit for hit in result.hits if hit.text == KILN]
        assert kiln.score == pytest.approx(expected), "152 days old"


async def test_the_window_is_half_open_and_holds_inside_the_legs() -> None:
    world = World()
    clock = {"field": "date", "since": "2024-01-01", "until": "2024-06-01"}
    result = await world.ask("laser cutter", strategy="temporal", temporal=clock, top_k=10)
    assert {hit.document for hit in result.hits} == {"guide.md"}
    assert stage(result, "window").note.endswith("2 outside of the window")
    none = await world.ask("laser", strategy="temporal", temporal={"field": "date", "since": "2030-01-01"})
    assert (none.hits, none.complete) == ((), True)


async def test_a_field_that_no_document_has_finds_nothing_and_counts_all() -> None:
    result = await World().ask("laser", strategy="temporal", temporal={"field": "published"})
    assert (result.hits, result.complete) == ((), True)
    assert stage(result, "window").note == "7 without a time in 'published', 0 outside of the window"


async def test_an_answer_is_kept_for_its_time_and_no_longer() -> None:
    world = World()
    assert not (await world.ask("laser", **DATED)).cached
    world.now += 299.0
    assert (await world.ask("laser", **DATED)).cached
    world.now += 2.0
    assert not (await world.ask("laser", **DATED)).cached
    at = {"strategy": "temporal", "temporal": DATED["temporal"] | {"now": "2024-06-01"}}
    assert not (await world.ask("laser", **at, top_k=4)).cached
    world.now += 1e6
    assert (await world.ask("laser", **at, top_k=4)).cached


async def test_the_least_score_is_that_after_recency() -> None:
    result = await World().ask("laser cutter", **DATED, min_score=0.9)
    assert texts(result) == [MOVED]


async def test_a_live_triple_has_no_time() -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("laser", "costs", "pounds")
    result = await World().ask("laser", **DATED, fence=("knowledge-tools",))
    assert "knowledge-tools" not in {hit.document for hit in result.hits}
    recency = stage(result, "recency")
    assert recency.before - recency.after == 1


# --- REASONING


async def test_the_navigator_walks_down_the_headings_and_only_what_is_below_is_searched() -> None:
    navigator = Model([[1], [2]])
    world = World(navigator=navigator)
    result = await world.ask("kiln pounds", strategy="reasoning", navigator_model="told", top_k=10)
    documents, headings = navigator.calls
    assert set(documents) == {"guide.md", "news.md", "old.md", "undated.md", "copy.md"}
    assert headings == ("guide.md > Machines", "guide.md > Fees")
    assert texts(result) == [FEES]
    assert stage(result, "navigate").note == "2 steps to 1 sections, 0 not offered"
    assert result.complete


async def test_a_document_none_of_whose_headings_is_chosen_is_taken_as_a_whole() -> None:
    result = await World(navigator=Model([[1], []])).ask("kiln", strategy="reasoning", navigator_model="told", top_k=10)
    assert {hit.document for hit in result.hits} == {"guide.md"}
    assert len(result.hits) == 3


async def test_a_navigator_that_opens_nothing_finds_nothing() -> None:
    result = await World(navigator=Model([[]])).ask("kiln", strategy="reasoning", navigator_model="told")
    assert (result.hits, result.complete) == ((), True)


async def test_a_walk_is_bounded_in_steps_options_and_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(navigation, "OPTIONS", 2)
    monkeypatch.setattr(navigation, "CHOICES", 1)
    monkeypatch.setattr(navigation, "LEVELS", 1)
    navigator = Model([[1, 2]])
    result = await World(navigator=navigator).ask("kiln", strategy="reasoning", navigator_model="told")
    assert [len(call) for call in navigator.calls] == [2]
    assert stage(result, "navigate").note == "1 steps to 1 sections, 3 not offered"


@pytest.mark.parametrize("answer", [None, "one", [0], [99], [True], [1.0], ["1"], {"open": [1]}, 1])
async def test_a_navigators_bad_answer_is_a_model_error(answer: Any) -> None:
    with pytest.raises(ModelError, match="list of numbers"):
        await World(navigator=Model([answer])).ask("kiln", strategy="reasoning", navigator_model="told")


# --- Reranking

RERANK: dict[str, Any] = {"strategy": "keyword", "rerank": True, "reranker": "told"}


class ByLength(Model):
    """Prefers long passages."""

    async def scores(self, model: str, question: str, passages: Sequence[str], deadline: Deadline) -> Sequence[float]:
        self.calls.append(passages)
        return [len(passage) / 1000 for passage in passages]


async def test_r32_distinct_texts_are_reranked_then_cut_then_kept() -> None:
    reranker = ByLength()
    world = World(reranker=reranker)
    plain = await world.ask("laser room", strategy="keyword", dedup=True)
    result = await world.ask("laser room", **RERANK, top_n=2)
    (seen,) = reranker.calls
    assert [passage.split("\n")[-1] for passage in seen] == texts(plain), "one of the two that say the same"
    assert texts(plain).count(LASER) == 1
    assert [hit.score for hit in result.hits] == sorted((len(p) / 1000 for p in seen), reverse=True)[:2]
    names = [one.name for one in result.stages]
    assert names.index("distinct") < names.index("rerank") < names.index("top_n")
    assert (await world.ask("laser room", **RERANK, top_n=2)).cached
    assert len(reranker.calls) == 1
    assert not (await world.ask("laser room", **RERANK, top_n=3)).cached
    await world.ask("laser room", **RERANK, dedup=False)
    assert sum(passage.endswith(LASER) for passage in reranker.calls[-1]) == 2


async def test_scores_outside_of_0_to_1_become_such_in_the_same_order_and_ties_stay() -> None:
    world = World(reranker=Model([[-3.0, 8.0, 8.0, 0.0]]))
    plain = await world.ask("laser cutter", strategy="keyword", top_k=4)
    result = await world.ask("laser cutter", **RERANK, top_k=4)
    assert texts(result) == [texts(plain)[place] for place in (1, 2, 3, 0)]
    assert all(0.0 < hit.score < 1.0 for hit in result.hits)
    assert result.hits[2].score == 0.5


@pytest.mark.parametrize(
    "model",
    [
        Model([[float("nan")] * 4]),
        Model([[0.5]]),
        Model([None]),
        Model([["a"] * 4]),
        Model(error=OSError(SECRET)),
        Model(stalls=True),
    ],
    ids=["nan", "too few", "nothing", "texts", "fails", "stalls"],
)
async def test_where_the_reranker_fails_the_order_stays_and_the_answer_says_so(model: Model) -> None:
    world, seconds = World(reranker=model), 0.5 if model.stalls else LONG
    plain = await world.ask("laser cutter", strategy="keyword", top_k=4)
    result = await world.ask("laser cutter", **RERANK, top_k=4, top_n=2, seconds=seconds)
    assert (result.complete, result.missing) == (False, ("rerank",))
    assert texts(result) == texts(plain)[:2]
    assert "secret" not in stage(result, "rerank").note
    assert len(world.results) == 1, "the plain one"
    with pytest.raises(DeadlineExceeded if model.stalls else ModelError):
        await world.ask("laser cutter", **RERANK, top_k=4, seconds=seconds, partial=False)


async def test_a_key_that_the_reranker_refuses_is_never_softened() -> None:
    world = World(reranker=Model(error=ConfigurationError("The model endpoint refuses the API key.")))
    with pytest.raises(ConfigurationError, match="API key"):
        await world.ask("laser", **RERANK)


async def test_nothing_found_is_not_reranked() -> None:
    reranker = ByLength()
    result = await World(reranker=reranker).ask("zzz", **RERANK)
    assert (result.hits, result.complete, reranker.calls) == ((), True, [])


async def test_every_strategy_takes_a_reranker() -> None:
    reranker = ByLength()
    world = World(Model([["kiln"]]), Model([[1]]), reranker)
    for strategy in Strategy:
        if strategy is Strategy.GRAPH:
            continue  # this corpus has no graph to find anything in
        more = DATED if strategy is Strategy.TEMPORAL else {"strategy": strategy}
        case = {**more, "expander": "told", "navigator_model": "told", "rerank": True, "reranker": "told"}
        result = await world.ask("laser", **case)
        scores = [hit.score for hit in result.hits]
        assert scores == sorted(scores, reverse=True) and scores
    assert len(reranker.calls) == len(Strategy) - 1


async def test_stages_follow_each_other_in_number() -> None:
    result = await World().ask("laser cutter", filters={"tier": "draft"}, min_score=0.5)
    assert [one.name for one in result.stages] == ["filter", "fuse", "min_score", "distinct"]
    assert stage(result, "filter").before == 7
    assert stage(result, "fuse").after == stage(result, "min_score").before
    assert stage(result, "min_score").after == stage(result, "distinct").before
    assert stage(result, "distinct").after == len(result.hits)
    assert all(one.seconds >= 0 for one in result.stages)

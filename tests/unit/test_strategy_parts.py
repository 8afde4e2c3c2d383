"""The pure parts of the strategies, and how the models that assist a query are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, ModelError, ProviderUnavailable
from pipeline.retrieval import assistants, groups
from pipeline.retrieval.assistants import Assistants
from pipeline.retrieval.fuse import Fused
from pipeline.retrieval.groups import best_groups
from pipeline.retrieval.outline import Placed, flattened, trees
from pipeline.retrieval.prompts import read_cost, read_scores
from pipeline.retrieval.recency import STEP, Clock, DateCache
from pipeline.retrieval.rerank import scores
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.stage import with_defaults
from pipeline.retrieval.variants import fuse_variants, variants
from pipeline.testing.corpus import MemoryStores, synthetic
from schemas.ids import CorpusId
from schemas.moments import moment
from schemas.query import Leg, QueryRequest, QueryResult, Strategy, Temporal
from schemas.settings import CorpusSettings, TemporalSettings, recipe
from tests.plugins import install
from tests.strategy_world import LONG, Model

YEAR_2024 = 1_704_067_200.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-01-01", YEAR_2024),
        ("20240101", YEAR_2024),
        (" 2024-01-01T00:00:00Z ", YEAR_2024),
        ("2024-01-01T01:00:00+01:00", YEAR_2024),
        ("2024-01-01 00:00", YEAR_2024),
        (1_704_067_200, YEAR_2024),
        (" 1704067200", YEAR_2024),
        ("1704067200.0", YEAR_2024),
        (-86_400, -86_400.0),
        ("2024", None),
        ("some day", None),
        ("", None),
        ("2024-13-01", None),
        (True, None),
        (None, None),
        (["2024-01-01"], None),
        (float("nan"), None),
        (float("inf"), None),
        (1e300, None),
        pytest.param(10**400, None, id="huge"),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_what_counts_as_a_time(value: Any, expected: float | None) -> None:
    assert moment(value) == expected


@given(st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.booleans(), st.lists(st.text())))
def test_anything_may_be_asked_for_its_time(value: Any) -> None:
    found = moment(value)
    assert found is None or np.isfinite(found)


def test_a_request_names_times_that_are_none_and_what_needs_rerank() -> None:
    with pytest.raises(ValidationError, match=r"since[\s\S]*ISO 8601"):
        Temporal(since="yesterday")
    with pytest.raises(ValidationError, match="NUL"):
        Temporal(field="a\0b")
    for odd in ({"reranker": "openai"}, {"top_n": 3}):
        with pytest.raises(ValidationError, match="rerank"):
            QueryRequest.model_validate({"text": "x", **odd})
    with pytest.raises(ValidationError, match="strategy"):
        QueryRequest.model_validate({"text": "x", "strategy": "psychic"})


def test_a_request_and_an_answer_of_an_older_program_are_read() -> None:
    old = {"text": "x", "strategy": "hybrid", "top_k": 3}
    new = {"expander", "variants", "navigator_model", "temporal", "rerank", "reranker", "top_n"}
    request = QueryRequest.model_validate(old)
    assert new <= set(request.model_dump())
    result = {
        "generation": 1,
        "complete": True,
        "missing": [],
        "hits": [],
        "legs": [{"leg": "dense", "state": "empty"}],
    }
    assert QueryResult.model_validate(result).stages == ()
    assert CorpusSettings.model_validate({}).temporal.field == ""


def test_what_only_a_query_needs_makes_no_document_be_indexed_again() -> None:
    asked = CorpusSettings.model_validate({"temporal": {"field": "date"}, "query_models": {"expander": "openai"}})
    assert recipe(asked, "f") == recipe(CorpusSettings(), "f")


# --- Variants


def test_the_question_comes_first_and_each_text_once() -> None:
    found = variants("Who  is Ada?", ["who is ada?", " Ada's \n life ", "ada's life", "", "x" * 3000, "a\0b\ud800"], 5)
    assert found == ("Who  is Ada?", "Ada's life", "ab")
    assert variants("q", ["a", "b", "c"], 2) == ("q", "a", "b")
    assert variants("q", [], 2) == ("q",)


def fused(*chunks: int, leg: Leg = Leg.DENSE) -> list[Fused]:
    return [Fused(chunk, 1.0 / rank, {leg: rank}) for rank, chunk in enumerate(chunks, start=1)]


def test_first_in_every_search_scores_one_and_empty_ones_do_not_count() -> None:
    found = fuse_variants([fused(1, 2), fused(1, 3, leg=Leg.KEYWORD), []], 60)
    assert [(hit.chunk_id, hit.score) for hit in found] == [
        (1, pytest.approx(1.0)),
        (2, pytest.approx(61 / 62 / 2)),
        (3, pytest.approx(61 / 62 / 2)),
    ]
    assert list(found[0].ranks.items()) == [(Leg.KEYWORD, 1), (Leg.DENSE, 1)]
    assert fuse_variants([[], []], 60) == []
    assert [hit.score for hit in fuse_variants([[], fused(5)], 60)] == [1.0]


def test_the_question_weighs_as_much_as_all_its_variants_together() -> None:
    found = fuse_variants([fused(1), fused(2), fused(2), fused(2)], 60)
    assert [(hit.chunk_id, hit.score) for hit in found] == [(1, pytest.approx(0.5)), (2, pytest.approx(0.5))]
    assert [hit.chunk_id for hit in fuse_variants([fused(1, 2), fused(2), fused(3)], 60)] == [2, 1, 3]


@given(st.lists(st.lists(st.integers(0, 20), unique=True, max_size=10), min_size=1, max_size=4))
def test_fused_scores_are_in_0_to_1_and_fall(lists: list[list[int]]) -> None:
    found = fuse_variants([fused(*one) for one in lists], 60)
    assert {hit.chunk_id for hit in found} == {chunk for one in lists for chunk in one}
    values = [hit.score for hit in found]
    assert values == sorted(values, reverse=True)
    assert all(0.0 < value <= 1.0 + 1e-9 for value in values)


# --- Recency


def test_now_is_rounded_down_so_that_an_answer_can_be_kept_and_given_times_are_not() -> None:
    settings = TemporalSettings(field="date")
    one, two = (Clock.of(None, settings, YEAR_2024 + seconds) for seconds in (1.0, STEP - 1))
    assert one == two and one.now == YEAR_2024
    assert Clock.of(None, settings, YEAR_2024 + STEP) != one
    fast = Clock.of(Temporal(half_life_days=1 / 86_400), settings, YEAR_2024 + 0.999)
    assert fast.now == pytest.approx(YEAR_2024 + 0.99)
    assert Clock.of(Temporal(now=YEAR_2024 + 7), settings, 0.0).now == YEAR_2024 + 7


def test_a_score_halves_with_the_half_life_and_the_future_is_now() -> None:
    clock = Clock("date", 100.0, 1.0, -np.inf, np.inf, 1000.0)
    assert clock.factors(np.array([1000.0, 900.0, 800.0, 2000.0])).tolist() == [1.0, 0.5, 0.25, 1.0]
    assert clock.inside(np.array([np.nan, 0.0])).tolist() == [False, True]


def test_a_request_with_its_times_filled_in_is_filled_in_the_same() -> None:
    request = QueryRequest(text="x", strategy=Strategy.TEMPORAL, temporal=Temporal(since="2024-01-01"))
    settings = CorpusSettings.model_validate({"temporal": {"field": "date", "weight": 0.3}})
    once = with_defaults(request, settings, YEAR_2024 + 17)
    assert once.temporal == Temporal(field="date", half_life_days=30.0, weight=0.3, since=YEAR_2024, now=YEAR_2024)
    assert with_defaults(once, settings, 5e9) == once


async def test_the_dates_of_a_generation_are_read_once_as_long_as_they_are_held() -> None:
    asked: list[str] = []

    class Counting(MemoryStores):
        async def values(self, corpus: CorpusId, generation: int, field: str, deadline: Deadline) -> dict[str, Any]:
            asked.append(field)
            return await super().values(corpus, generation, field, deadline)

    corpus, deadline = CorpusId(1), Deadline.after(LONG)
    cache = DateCache(Counting({(corpus, 1): synthetic(60, 4)}), most=1)
    for field in ("tier", "tier", "lang", "lang", "tier"):
        found = await cache.get(corpus, 1, field, deadline)
        assert len(found.times) == (0 if field == "lang" else 6)
    assert asked == ["tier", "lang", "tier"]


# --- Sections and communities


def placed(document: str, *headings: tuple[str, ...], first: int = 0) -> list[Placed]:
    return [Placed(first + at, document, "", path) for at, path in enumerate(headings)]


def test_headings_are_a_tree_and_a_section_that_is_all_of_the_one_above_is_none() -> None:
    rows = placed("a", ("T",), ("T", "x"), ("T", "x", "deep"), ("T", "y")) + placed("b", (), first=10)
    roots = trees(rows, ["b", "a", "gone"])
    assert [root.label for root in roots] == ["b", "a"]
    shown = [(section.label, section.chunks) for section in flattened(roots)]
    assert shown == [("b", [10]), ("a", [0, 1, 2, 3]), ("x", [1, 2]), ("deep", [2]), ("y", [3])]


async def snapshot() -> Snapshot:
    rows = synthetic(60, 4)
    return await MemoryStores({(CorpusId(1), 1): rows}).get(CorpusId(1), 1, Deadline.after(LONG))


async def test_many_hits_for_its_size_make_a_group_good() -> None:
    view = await snapshot()
    ids = view.chunk_ids.tolist()
    rows = [Placed(one, "a" if at < 2 else "b", "", ()) for at, one in enumerate(ids)]
    roots = trees(rows, ["a", "b"])
    found = best_groups(view, roots, {ids[0]: 1.0, ids[1]: 1.0, ids[2]: 1.0}, communities=False)
    assert (found.communities, found.sections) == (0, 2)
    assert found.chunks.tolist() == ids
    nothing = best_groups(view, roots, {}, communities=True)
    assert (nothing.communities, nothing.sections, len(nothing.chunks)) == (0, 0, 0)


async def test_a_community_is_the_chunks_that_mention_a_member() -> None:
    view = await snapshot()
    ids = view.chunk_ids.tolist()
    found = best_groups(view, [], {ids[0]: 1.0})
    mentioning = {view.chunk_ids[row] for row in np.unique(view.graph.mentioned.rows()).tolist()}
    assert (found.communities, found.sections) == (1, 0), "all entities are of one community here"
    assert set(found.chunks.tolist()) == mentioning


async def test_communities_are_counted_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await snapshot()
    links = int(view.graph.chunks.degrees(np.arange(len(view.graph.entities))).sum())
    for limit, communities in ((links, 1), (links - 1, 0)):
        monkeypatch.setattr(groups, "LINKS", limit)
        assert best_groups(view, [], {view.chunk_ids[0]: 1.0}).communities == communities


# --- Rerankers' answers


def test_scores_are_taken_as_they_are_or_made_to_fit() -> None:
    assert scores([0.0, 1.0, 0.25], 3) == [0.0, 1.0, 0.25]
    low, middle, high = scores([-1e9, 0, 2], 3)
    assert (low, middle) == (0.0, 0.5)
    assert 0.5 < high < 1.0
    for odd in ([0.1], [float("inf"), 1.0], "ab", None, [0.1, "x"]):
        with pytest.raises(ModelError):
            scores(odd, 2)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {"results": None},
        {"results": [{"index": 0}]},
        {"results": [{"index": 0, "relevance_score": 1}] * 2},
        {"results": [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": "x"}, {"index": 1, "relevance_score": 1}]},
    ],
    ids=range(7),
)
def test_a_reranking_endpoint_that_does_not_score_each_passage_once_is_refused(answer: Any) -> None:
    with pytest.raises(ModelError):
        read_scores(answer, 2)


# --- Who is found


def asking(**fields: Any) -> QueryRequest:
    return QueryRequest.model_validate({"text": "x", **fields})


MULTI: dict[str, Any] = {"strategy": "multi_query", "expander": "told"}

PLUGIN = """
class Mine:
    fingerprint = "mine/1"
    def serves(self, model):
        if model == "bad":
            raise KeyError("secret")
        return model == "mine"
    async def expand(self, model, question, most, deadline):
        return [question + " again"]

def broken():
    raise RuntimeError("secret")

def nothing():
    return object()
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget, before and after, what is installed: a process looks once."""
    assistants.installed.cache_clear()
    yield
    assistants.installed.cache_clear()


@pytest.fixture
def plugin(request: pytest.FixtureRequest, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution whose entry point `theirs` names this object of PLUGIN, where Python finds it."""
    points = [f"theirs = {request.param}"]
    install(monkeypatch, tmp_path, "sapwood_expander_for_tests", PLUGIN, "sapwood.query_expansion", points)


@pytest.mark.parametrize("plugin", ["Mine"], indirect=True)
async def test_an_installed_expander_serves_beside_our_own(plugin: None) -> None:
    found = await Assistants([Model()]).serving(asking(strategy="multi_query", expander="mine"))
    assert found.expander is not None
    assert found.fingerprints == ("mine/1",)
    with pytest.raises(ProviderUnavailable, match="'theirs'"):
        await Assistants([Model()]).serving(asking(strategy="multi_query", expander="theirs"))
    with pytest.raises(ConfigurationError, match="Mine cannot say what it serves") as caught:
        await Assistants().serving(asking(strategy="multi_query", expander="bad"))
    assert "secret" not in str(caught.value)
    assert (await Assistants().serving(asking())).fingerprints == ()


@pytest.mark.parametrize("plugin", ["broken", "nothing", "missing"], indirect=True)
async def test_an_installed_expander_that_is_none_is_an_error(plugin: None) -> None:
    with pytest.raises(ConfigurationError, match=r"sapwood\.query_expansion") as caught:
        await Assistants().serving(asking(**MULTI))
    assert "secret" not in str(caught.value)


async def test_two_that_serve_a_model_are_an_error(fresh: None) -> None:
    with pytest.raises(ConfigurationError, match="several providers"):
        await Assistants([Model(), Model()]).serving(asking(**MULTI))


def test_a_rerankers_cost_is_what_its_endpoint_says() -> None:
    assert read_cost({"usage": {"total_tokens": 12}}) == 12
    for silent in ({}, {"usage": None}, {"usage": {"total_tokens": "many"}}, [], None, 5):
        assert read_cost(silent) == 0

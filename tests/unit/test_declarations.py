"""Roles, agents and their actions; numbers in the names are those of the specification's cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipeline.declare import (
    NO_EXPANSION,
    ActionType,
    Declaration,
    Knowledge,
    KnowledgeType,
    OnFailure,
    Search,
    SearchSettings,
    Strategy,
    Use,
    action,
    agent,
    declaration_of,
    role,
    settled,
)
from pipeline.declare.search import RULES, check_search
from pipeline.errors import ConfigurationError
from schemas.query import QueryRequest

DOCS = Knowledge("docs", path="docs")
WIKI = Knowledge("wiki", type=KnowledgeType.HTTP, path="https://wiki.example")
GRAPH = Knowledge("graph", type=KnowledgeType.GRAPH)


def refused(*words: str) -> pytest.RaisesExc[ConfigurationError]:
    """Expect a refusal whose message holds all these texts."""
    return pytest.RaisesExc(ConfigurationError, check=lambda error: all(word in str(error) for word in words))


def searching(**members: Any) -> Knowledge:
    return Knowledge("docs", search=Search(**members))


def researcher(*knowledge: Knowledge, names: tuple[Knowledge, ...] = ()) -> Declaration:
    """Return a role with this knowledge, and an action that names some of it."""

    @role("Researcher", "Finds things.", knowledge=knowledge)
    class Researcher:
        @action(ActionType.LLM, "Answer.", knowledge=names)
        def answer(self, question: str) -> str:
            return question

    return declaration_of(Researcher)


def settings(*knowledge: Knowledge, names: tuple[Knowledge, ...]) -> SearchSettings:
    search = researcher(*knowledge, names=names).actions["answer"].grounding.search
    assert search is not None
    return search


def test_what_is_not_given_has_its_default() -> None:
    assert settings(DOCS, names=(Knowledge("docs"),)) == SearchSettings(
        strategy=Strategy.SEMANTIC,
        top_k=5,
        min_score=0.0,
        context_window=2_000,
        context_format="[Source: ${source}]\n${content}\n\n",
        include_spec=False,
        on_failure=OnFailure.FAIL,
        deduplicate=True,
        rerank=False,
        query_expansion="",
        cache=True,
        cache_ttl=300.0,
    )
    assert settings(GRAPH, names=(Knowledge("graph"),)).strategy is Strategy.GRAPH
    assert settled(Search(top_k=8)).top_n == 8
    assert settled(Search(query_expansion=NO_EXPANSION)) == SearchSettings()


@pytest.mark.parametrize("member", RULES)
@pytest.mark.parametrize("kind", [tuple, list, set, frozenset])
def test_r4_a_member_of_a_search_has_one_value(member: str, kind: Callable[[Any], object]) -> None:
    with refused("Researcher", "answer", "docs", f"search.{member}", "of 2", "give one value"):
        researcher(DOCS, names=(searching(**{member: kind((5, 6))}),))
    with refused("Researcher", "docs", f"search.{member}", "of 1", "give one value"):
        researcher(Knowledge("docs", path="docs", search=Search(**{member: kind((5,))})))


@pytest.mark.parametrize(
    ("member", "wrong"),
    [
        ("strategy", ["semantic", "BM25", 1]),
        ("top_k", [0, 1_001, 5.0, "5", True]),
        ("min_score", [-0.1, 1.1, float("nan"), "0.5", False]),
        ("context_window", [0, -1, 2e3, 1_000_001]),
        ("context_format", ["", " ", 1, "${source}", "${content} ${autor}", "${content} ${"]),
        ("include_spec", [0, "no"]),
        ("on_failure", ["continue", True]),
        ("deduplicate", [1, "yes"]),
        ("rerank", [1, "small"]),
        ("reranker", ["", " ", 1, "m" * 201]),
        ("top_n", [0, 1_001, "3"]),
        ("query_expansion", ["", False]),
        ("variants", [0, 11]),
        ("query_param", ["", 1]),
        ("navigator_model", ["", "\t", 1]),
        ("time_field", ["", 1, "a\0b", "\ud800"]),
        ("time_weight", [-0.1, 1.5]),
        ("half_life_days", [0, -1, 40_000, float("inf")]),
        ("window_days", [0, float("nan")]),
        ("cache", [0, "on"]),
        ("cache_ttl", [0, -1.0, float("inf"), float("nan"), "300"]),
    ],
)
def test_a_member_of_a_search_keeps_its_bounds(member: str, wrong: list[object]) -> None:
    for value in wrong:
        with refused(f"search.{member}"):
            check_search(Search(**{member: value}))  # type: ignore[arg-type]


def test_members_within_their_bounds_are_taken() -> None:
    given = {
        "strategy": Strategy.TEMPORAL, "top_k": 1_000, "min_score": 1, "context_window": 1, "context_format": "${content}",
        "include_spec": True, "on_failure": OnFailure.CONTINUE, "deduplicate": False, "rerank": True, "reranker": "small",
        "top_n": 1, "query_expansion": "small", "variants": 10, "query_param": "question", "time_field": "date",
        "time_weight": 0.0, "half_life_days": 0.5, "window_days": 7, "cache": True, "cache_ttl": 0.1,
    }  # fmt: skip
    assert {*RULES} - {*given} == {"navigator_model"}
    assert settings(DOCS, names=(searching(**given),)) == SearchSettings(**given)  # type: ignore[arg-type]
    reasoning = Search(strategy=Strategy.REASONING, navigator_model="small")
    assert settled(reasoning).navigator_model == "small"


def test_bm25_is_another_name_of_keyword() -> None:
    assert Strategy.BM25 is Strategy.KEYWORD
    assert "BM25" not in [strategy.name for strategy in Strategy]
    assert settled(Search(strategy=Strategy.BM25)).strategy is Strategy.KEYWORD
    asked = QueryRequest.model_validate_json('{"text": "leave", "strategy": "bm25"}')
    assert (asked.strategy, '"keyword"' in asked.model_dump_json()) == (Strategy.KEYWORD, True)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (Search(strategy=Strategy.TEMPORAL), "TEMPORAL needs search.time_field"),
        (Search(strategy=Strategy.REASONING), "REASONING needs search.navigator_model"),
        (Search(strategy=Strategy.MULTI_QUERY), "MULTI_QUERY needs search.query_expansion"),
        (Search(strategy=Strategy.MULTI_QUERY, query_expansion=NO_EXPANSION), "needs search.query_expansion"),
        (Search(navigator_model="small"), "search.navigator_model is for REASONING"),
        (Search(time_field="date"), "search.time_field is for TEMPORAL"),
        (Search(window_days=7), "search.window_days is for TEMPORAL"),
        (Search(rerank=True), "search.rerank needs a model; name it in search.reranker"),
        (Search(reranker="small"), "search.reranker has no effect without search.rerank"),
        (Search(rerank=False, top_n=3), "search.top_n has no effect without search.rerank"),
        (Search(variants=3), "search.variants has no effect without search.query_expansion"),
        (Search(cache=False, cache_ttl=60.0), "search.cache_ttl has no effect without search.cache"),
        (Search(rerank=True, reranker="small", top_n=6), "search.top_n (6) is more than search.top_k (5)"),
    ],
)
def test_members_that_make_no_search_together_are_refused(search: Search, words: str) -> None:
    with refused("Researcher", "answer", words):
        researcher(DOCS, names=(Knowledge("docs", search=search),))
    with refused("Researcher", words):
        researcher(Knowledge("docs", path="docs", search=search))


def test_a_graph_entry_is_held_to_the_same() -> None:
    with refused("graph", "search.navigator_model is for REASONING, not for GRAPH"):
        researcher(Knowledge("graph", type=KnowledgeType.GRAPH, search=Search(navigator_model="small")))


def test_r5_the_search_of_an_action_replaces_the_declared_one_as_a_whole() -> None:
    declared = Knowledge("docs", path="docs", search=Search(top_k=7, min_score=0.5))
    found = settings(declared, names=(searching(strategy=Strategy.HYBRID),))
    assert (found.strategy, found.top_k, found.min_score) == (Strategy.HYBRID, 5, 0.0)
    assert settings(declared, names=(Knowledge("docs"),)).top_k == 7
    assert settings(declared, names=(searching(),)) == SearchSettings()


@pytest.mark.parametrize("names", [("docs",), ("wiki",), ("docs", "wiki"), ("wiki", "docs")])
def test_r6_what_one_source_gives_goes_for_all(names: tuple[str, ...]) -> None:
    docs = Knowledge("docs", path="docs", search=Search(top_k=9))
    for sources in ((docs, WIKI), (WIKI, docs)):
        assert settings(*sources, names=tuple(Knowledge(name) for name in names)).top_k == 9


def test_r7_sources_of_one_scope_that_contradict_each_other_are_refused() -> None:
    docs = Knowledge("docs", path="docs", search=Search(top_k=5))
    wiki = Knowledge("wiki", type=KnowledgeType.HTTP, path="https://wiki.example", search=Search(top_k=6))
    for sources in ((docs, wiki), (wiki, docs)):
        with refused("Researcher", "search.top_k", "'docs'", "'wiki'", " 5 ", " 6 "):
            researcher(*sources)
    with refused("Researcher", "action 'answer'", "search.top_k", "'docs'", "'wiki'"):
        researcher(DOCS, WIKI, names=(searching(top_k=5), Knowledge("wiki", search=Search(top_k=6))))
    assert researcher(docs, Knowledge("wiki", path="wiki", search=Search(top_k=5))).entries


def test_r8_actions_may_differ() -> None:
    @role("Researcher", "Finds things.", knowledge=[DOCS, WIKI])
    class Researcher:
        @action(ActionType.LLM, "Answer.", knowledge=searching(top_k=5))
        def first(self, question: str) -> None: ...

        @action(ActionType.LLM, "Answer.", knowledge=Knowledge("wiki", search=Search(top_k=6)))
        def second(self, question: str) -> None: ...

    found = {name: one.grounding.search for name, one in declaration_of(Researcher).actions.items()}
    assert found == {"first": settled(Search(top_k=5)), "second": settled(Search(top_k=6))}


def test_what_an_action_says_comes_before_what_the_class_shares() -> None:
    docs = Knowledge("docs", path="docs", search=Search(top_k=5, min_score=0.5))
    found = settings(docs, WIKI, names=(searching(top_k=7), Knowledge("wiki")))
    assert (found.top_k, found.min_score) == (7, 0.5)


def test_entries_that_are_not_searched_have_no_part_in_a_search() -> None:
    docs = Knowledge("docs", path="docs", search=Search(top_k=5))
    graph = Knowledge("graph", type=KnowledgeType.GRAPH, search=Search(top_k=6))
    terms = Knowledge("terms", path="terms", use=Use.DIRECT)
    assert settings(docs, graph, terms, names=(Knowledge("docs"), Knowledge("terms"))).top_k == 5
    assert settings(docs, graph, terms, names=(Knowledge("graph"),)).top_k == 6
    whole = researcher(docs, terms, names=(Knowledge("docs", use=Use.DIRECT), Knowledge("terms")))
    grounding = whole.actions["answer"].grounding
    assert (grounding.search, grounding.sources, grounding.graph) == (None, (), None)
    assert whole.actions["answer"].question is None


def test_r1_r2_the_question_is_the_first_text_or_the_one_that_is_named() -> None:
    @role(
        "Researcher", "Finds things.", knowledge=[Knowledge("docs", path="docs", search=Search(query_param="b")), WIKI]
    )
    class Researcher:
        @action(ActionType.LLM, "Answer.", knowledge=searching())
        def first(self, n: int, a: str, b: str) -> None: ...

        @action(ActionType.LLM, "Answer.", knowledge=searching(query_param="b"))
        def named(self, a: str, b: str) -> None: ...

        @action(ActionType.LLM, "Answer.", knowledge=Knowledge("docs"))
        def declared(self, a: str, b: str) -> None: ...

        @action(ActionType.LLM, "Answer.", knowledge=Knowledge("docs", use=Use.DIRECT))
        def whole(self) -> None: ...

        @action(ActionType.LLM, "Answer.")
        def alone(self) -> None: ...

    found = {name: one.question and one.question.parameter for name, one in declaration_of(Researcher).actions.items()}
    assert found == {"first": "a", "named": "b", "declared": "b", "whole": None, "alone": None}


def test_r3_a_question_that_is_not_there_is_refused_whatever_is_to_happen_on_failure() -> None:
    failing = searching(query_param="zzz", on_failure=OnFailure.CONTINUE)
    with refused("Role 'Researcher'", "action 'answer'", "search.query_param 'zzz'", "question"):
        researcher(DOCS, names=(failing,))
    with refused("Role 'Researcher'", "action 'answer'", "search.query_param 'self'"):
        researcher(DOCS, names=(searching(query_param="self"),))
    with refused("Role 'Researcher'", "action 'count'", "no parameter is a text"):

        @role("Researcher", "Finds things.", knowledge=DOCS)
        class Researcher:
            @action(ActionType.LLM, "Count.", knowledge=searching(on_failure=OnFailure.CONTINUE))
            def count(self, n: int) -> None: ...


@pytest.mark.parametrize("kind", [ActionType.WEB_SERVICE, ActionType.MCP_TOOL])
def test_r10_only_llm_and_local_actions_take_knowledge(kind: ActionType) -> None:
    for failing in (Search(), Search(on_failure=OnFailure.CONTINUE)):
        with refused("answer", kind.name, "LLM and LOCAL"):

            @action(kind, "Answer.", knowledge=Knowledge("docs", search=failing))
            def answer(question: str) -> None: ...

    @role("Researcher", "Finds things.", knowledge=DOCS)
    class Researcher:
        @action(kind, "Ask the service.")
        def ask(self, question: str) -> None: ...

        @action(ActionType.LOCAL, "Look it up.", knowledge=Knowledge("docs"))
        def look(self, question: str) -> None: ...

    found = declaration_of(Researcher).actions
    assert found["ask"].grounding.entries == ()
    assert found["look"].grounding.entries[0].name == "docs"


def test_r16_an_unknown_source_is_refused_whatever_is_to_happen_on_failure() -> None:
    unknown = Knowledge("dosc", search=Search(on_failure=OnFailure.CONTINUE))
    with refused("Role 'Researcher'", "action 'answer'", "'dosc'", "not declared", "docs, wiki"):
        researcher(DOCS, WIKI, names=(unknown,))


def test_r36_chat_is_grounded_by_what_an_agent_declares_to_be_searched_or_shown() -> None:
    terms = Knowledge("terms", path="terms", use=Use.DIRECT)
    steps = Knowledge("steps", path="steps", use=Use.SEQUENTIAL)

    @agent("Helps.", knowledge=[searched := Knowledge("faq", path="faq", search=Search(top_k=3)), terms, steps, GRAPH])
    @role("Researcher", "Finds things.", knowledge=DOCS)
    class Helper:
        pass

    found = declaration_of(Helper)
    assert [entry.name for entry in found.chat.entries] == ["faq", "terms"]
    assert found.chat.search == settled(searched.search or Search())
    assert {entry.name for entry in found.entries} == {"docs", "faq", "terms", "steps", "graph"}
    assert researcher(DOCS).chat.entries == ()


def test_a_chat_of_documents_alone_searches_nothing() -> None:
    @agent("Helps.", knowledge=Knowledge("terms", path="terms", use=Use.DIRECT))
    class Helper:
        pass

    assert declaration_of(Helper).chat.search is None


def test_a_class_that_is_role_and_agent_is_one_scope() -> None:
    def make(first: int, second: int) -> type:
        @agent("Helps.", knowledge=Knowledge("faq", path="faq", search=Search(top_k=first)))
        @role("Researcher", "Finds.", knowledge=Knowledge("docs", path="docs", search=Search(top_k=second)))
        class Both:
            pass

        return Both

    assert declaration_of(make(5, 5)).chat.search == settled(Search(top_k=5))
    with refused("Role 'Researcher' and Agent 'Both'", "search.top_k", "'docs'", "'faq'"):
        make(5, 6)


def test_an_entry_has_one_place() -> None:
    with refused("Role 'Researcher'", "'docs'", "declared twice"):
        researcher(DOCS, DOCS)
    with refused("'docs'", "declared twice"):

        @agent("Helps.", knowledge=DOCS)
        @role("Researcher", "Finds things.", knowledge=DOCS)
        class Both:
            pass


def test_a_role_inherits_entries_and_actions() -> None:
    @role("Researcher", "Finds things.", knowledge=[DOCS, WIKI])
    class Researcher:
        @action(ActionType.LLM, "Answer.", knowledge=searching(top_k=3))
        def answer(self, question: str) -> str:
            return "old"

        @action(ActionType.LOCAL, "Look it up.", knowledge=Knowledge("wiki"))
        def look(self, question: str) -> None: ...

    @role("Senior", "Finds more.", knowledge=Knowledge("docs", path="archive"))
    class Senior(Researcher):
        def answer(self, topic: str) -> str:
            return "new"

        @action(ActionType.LOCAL, "Look twice.", knowledge=Knowledge("docs"))
        def look(self, question: str) -> None: ...

    found = declaration_of(Senior)
    assert [(entry.name, entry.path) for entry in found.entries] == [("docs", "archive"), ("wiki", WIKI.path)]
    assert (found.role and found.role.name, [*found.actions]) == ("Senior", ["answer", "look"])
    answer, look = found.actions["answer"], found.actions["look"]
    assert answer.grounding.search == settled(Search(top_k=3))
    assert answer.question and answer.question.parameter == "topic"
    assert answer.of(Senior())("x") == "new"
    assert (look.description, look.grounding.entries[0].path) == ("Look twice.", "archive")
    assert declaration_of(Researcher).entries[0].path == "docs"


def test_an_heir_without_a_decorator_has_what_its_bases_declare() -> None:
    @role("Researcher", "Finds things.", knowledge=DOCS)
    class Researcher:
        pass

    class Heir(Researcher):
        @action(ActionType.LLM, "Answer.", knowledge=Knowledge("dosc"))
        def answer(self, question: str) -> None: ...

    with refused("Role 'Researcher'", "action 'answer'", "'dosc'"):
        declaration_of(Heir)
    del Heir.answer
    assert declaration_of(Heir).entries == declaration_of(Researcher).entries


def test_an_action_that_is_no_function_any_more_is_refused() -> None:
    @role("Researcher", "Finds things.")
    class Researcher:
        @action(ActionType.LOCAL, "Answer.")
        def answer(self) -> None: ...

    with refused("Role 'Senior'", "answer", "no function any more"):

        @role("Senior", "Finds more.")
        class Senior(Researcher):
            answer = None  # type: ignore[assignment]


def test_methods_of_all_kinds_and_listed_functions_are_actions() -> None:
    @action(ActionType.LOCAL, "Free.", name="free", knowledge=Knowledge("docs"))
    async def anything(topic: str) -> str:
        return topic

    @role("Researcher", "Finds things.", knowledge=DOCS, actions=[anything])
    class Researcher:
        @staticmethod
        @action(ActionType.LOCAL, "Static.", knowledge=Knowledge("docs"))
        def static(text: str) -> str:
            return text

        @action(ActionType.LOCAL, "Static too.", knowledge=Knowledge("docs"))
        @staticmethod
        def outside(text: str) -> str:
            return text

        @classmethod
        @action(ActionType.LOCAL, "Of the class.", knowledge=Knowledge("docs"))
        def of_class(cls, text: str) -> str:
            return cls.__name__ + text

        @action(ActionType.LOCAL, "Asynchronous.", knowledge=Knowledge("docs"))
        async def later(self, text: str) -> str:
            return text

    found = declaration_of(Researcher).actions
    assert [*found] == ["static", "outside", "of_class", "later", "free"]
    assert [one.question and one.question.parameter for one in found.values()] == [
        "text",
        "text",
        "text",
        "text",
        "topic",
    ]
    assert found["static"].of(Researcher())("x") == found["outside"].of(Researcher())("x") == "x"
    assert found["of_class"].of(Researcher())("x") == "Researcherx"
    assert found["free"].of(Researcher()) is anything


def test_names_of_actions_are_there_once() -> None:
    with refused("Role 'Researcher'", "action 'look'", "two of that name"):

        @role("Researcher", "Finds things.")
        class Researcher:
            @action(ActionType.LOCAL, "Look.")
            def look(self) -> None: ...

            @action(ActionType.LOCAL, "Look.", name="look")
            def peek(self) -> None: ...


def plain() -> None: ...


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: role(" ", "Finds."), ("name",)),
        (lambda: role("Researcher", ""), ("description",)),
        (lambda: role("Researcher", "Finds.", actions=[plain]), ("plain", "decorate it with @action")),
        (lambda: agent("Helps.", roles=[int]), ("Agent 'Made'", "int", "decorate it with @role")),
        (lambda: agent("Helps.", roles=[researcher().owner()]), ("Agent 'Made'", "no role")),
        (lambda: agent("Helps.", knowledge=["docs"]), ("Agent 'Made'", "Knowledge entries", "str")),  # type: ignore[list-item]
    ],
)
def test_a_wrong_declaration_is_refused_when_the_class_is_made(
    make: Callable[[], Callable[[type], type]], words: tuple[str, ...]
) -> None:
    with refused(*words):
        make()(type("Made", (), {}))


@pytest.mark.parametrize(
    ("make", "target", "words"),
    [
        (lambda: action("llm", "Answer."), plain, ("plain", "type", "ActionType.LLM")),  # type: ignore[arg-type]
        (lambda: action(ActionType.LLM, " "), plain, ("plain", "description")),
        (lambda: action(ActionType.LLM, "Answer.", name=""), plain, ("plain", "name")),
        (lambda: action(ActionType.LLM, "Answer."), len, ("len", "written in Python")),
        (lambda: action(ActionType.LLM, "Answer.", name="x"), 5, ("x", "function")),
    ],
)
def test_a_wrong_action_is_refused_when_it_is_made(
    make: Callable[[], Callable[[object], object]], target: object, words: tuple[str, ...]
) -> None:
    with refused(*words):
        make()(target)


def test_a_decorator_is_there_once() -> None:
    once = role("Once", "Finds.")(type("Made", (), {}))
    with refused("Role 'Again'", "declared twice"):
        role("Again", "Finds.")(once)
    with refused("once"):
        action(ActionType.LLM, "Again.")(action(ActionType.LLM, "Once.")(lambda: None))


def test_what_declares_nothing_has_no_declaration() -> None:
    with refused("Plain", "neither a role nor an agent"):
        declaration_of(type("Plain", (), {}))


def test_an_agent_has_its_roles_and_its_name() -> None:
    found = researcher(DOCS)

    @agent("Helps.", roles=[found.owner])
    class Helper:
        pass

    assert declaration_of(Helper).roles == (found.owner,)
    assert declaration_of(Helper).title == "Agent 'Helper'"
    assert found.title == "Role 'Researcher'"


def test_decorating_does_no_io(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a source names need not be there, and nobody looks whether it is."""

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a declaration looked for what it names")

    for name in ("open", "os.stat", "os.scandir", "socket.getaddrinfo"):
        monkeypatch.setattr(name if "." in name else f"builtins.{name}", touched)
    gone = Knowledge("docs", path="/no/such/folder", include=("*.md",))
    assert researcher(gone, WIKI, names=(Knowledge("docs"), Knowledge("wiki"))).actions["answer"].grounding.search

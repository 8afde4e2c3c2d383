"""Live triples: tools, their definitions, tokens, bounds, and the union of all live instances."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Literal

import pytest

from pipeline.errors import InvalidRequest
from pipeline.graphs.bag import MAX_CHARS, Triple, ascii_tokens
from pipeline.graphs.knowledge import MAX_RESULTS, KnowledgeTools, search_live, tool_schemas

TOOLS = ["kg_add_triple", "kg_remove_triple", "kg_query", "kg_neighbors"]


def tools_with(*triples: tuple[str, str, str], **limits: int) -> KnowledgeTools:
    tools = KnowledgeTools(**limits)
    for triple in triples:
        tools.kg_add_triple(*triple)
    return tools


def found(query: str, limit: int = 10) -> list[tuple[str, float]]:
    return [(triple.text, score) for triple, score in search_live(query, limit)]


def matches(tools: KnowledgeTools, query: str) -> Any:
    return tools.kg_query(query)["matches"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("İstanbul ofisi", ["stanbul", "ofisi"]),  # G25
        ("東京", []),  # G26
        ("İı", []),  # G26
        ("Auth-Service v2", ["auth", "service", "v2"]),  # G27
        ("\u212aelvin ſtraße Ａuth", ["elvin", "tra", "e", "uth"]),
        ("", []),
    ],
)
def test_g25_to_g27_only_ascii_letters_and_digits_make_tokens(text: str, tokens: list[str]) -> None:
    assert ascii_tokens(text) == tokens


@pytest.mark.parametrize("query", ["東京", "İı", "!?", ""])
def test_g26_a_query_without_tokens_finds_nothing(query: str) -> None:
    tools = tools_with(("東京", "in", "日本"), ("İı", "is", "odd"))
    assert found(query) == []
    assert matches(tools, query) == []


def test_g28_a_triple_is_found_as_soon_as_it_is_added() -> None:
    tools = tools_with(("Ada", "knows", "Babbage"))
    assert found("somerville") == []
    tools.kg_add_triple("Ada", "knows", "Somerville")
    assert found("somerville") == [("Ada knows Somerville", 1.0)]
    tools.kg_remove_triple("Ada", "knows", "Somerville")
    assert found("somerville") == []


def test_g29_two_instances_are_searched_as_one_in_the_order_in_which_triples_were_added() -> None:
    one, two = KnowledgeTools(), KnowledgeTools()
    two.kg_add_triple("Ada", "wrote", "notes")
    one.kg_add_triple("Ada", "knows", "Babbage")
    two.kg_add_triple("Ada", "likes", "engines")
    assert [text for text, _ in found("ada")] == ["Ada wrote notes", "Ada knows Babbage", "Ada likes engines"]


def test_a_tool_sees_its_own_instance_only() -> None:
    one, two = tools_with(("Ada", "wrote", "notes")), tools_with(("Ada", "knows", "Babbage"))
    assert [match["object"] for match in matches(one, "ada")] == ["notes"]
    assert two.kg_neighbors("ada")["total"] == 1


def test_the_same_triple_in_two_instances_is_one_hit_with_the_place_of_the_older_one() -> None:
    first = tools_with(("Ada", "knows", "Babbage"))
    second = tools_with(("Ada", "wrote", "notes"), ("Ada", "knows", "Babbage"))
    assert [text for text, _ in found("ada")] == ["Ada knows Babbage", "Ada wrote notes"]
    first.kg_remove_triple("Ada", "knows", "Babbage")
    assert [text for text, _ in found("ada")] == ["Ada wrote notes", "Ada knows Babbage"]
    assert len(matches(second, "ada")) == 2


def test_a_dropped_instance_disappears() -> None:
    kept, dropped = tools_with(("Ada", "knows", "Babbage")), tools_with(("Ada", "wrote", "notes"))
    assert len(found("ada")) == 2
    del dropped
    gc.collect()  # for interpreters that do not count references
    assert [text for text, _ in found("ada")] == ["Ada knows Babbage"]
    assert kept is not None


def test_instances_that_come_and_go_leave_nothing_behind() -> None:
    from pipeline.graphs import knowledge

    gc.collect()
    before = len(knowledge._live)
    for _ in range(1000):
        tools_with(("Ada", "wrote", "notes"))
    gc.collect()
    assert len(knowledge._live) == before
    assert found("notes") == []


def test_the_score_is_the_share_of_distinct_query_tokens() -> None:
    tools = tools_with(("Ada Lovelace", "wrote", "the notes"), ("Charles", "built", "the engine"))
    assert found("the THE Lovelace notes engine") == [
        ("Ada Lovelace wrote the notes", 0.75),
        ("Charles built the engine", 0.5),
    ]
    assert matches(tools, "lovelace zzz") == [
        {"subject": "Ada Lovelace", "predicate": "wrote", "object": "the notes", "score": 0.5}
    ]


def test_a_limit_cuts_after_ranking() -> None:
    tools = tools_with(("a", "b", "c"), ("a", "b", "d"), ("d", "b", "c"))
    assert found("a c d", 2) == [("a b c", pytest.approx(2 / 3)), ("a b d", pytest.approx(2 / 3))]
    assert len(tools.kg_query("b", 1)["matches"]) == 1  # type: ignore[arg-type]


def test_adding_and_removing_twice_changes_nothing() -> None:
    tools = KnowledgeTools()
    assert tools.kg_add_triple("Ada", "knows", "Babbage") == {"added": True, "triples": 1}
    assert tools.kg_add_triple(" Ada ", "knows\n", "Bab\u200bbage") == {"added": False, "triples": 1}
    assert tools.kg_remove_triple("Ada", "knows", "Babbage") == {"removed": True, "triples": 0}
    assert tools.kg_remove_triple("Ada", "knows", "Babbage") == {"removed": False, "triples": 0}


def test_neighbours_stand_in_either_direction_and_under_any_spelling() -> None:
    tools = tools_with(
        ("Auth Service", "calls", "Database"), ("Gateway", "calls", "the auth-service"), ("Gateway", "calls", "Mail")
    )
    ends = [
        {"predicate": "calls", "direction": "out", "entity": "Database"},
        {"predicate": "calls", "direction": "in", "entity": "Gateway"},
    ]
    assert tools.kg_neighbors("AUTH service") == {"entity": "AUTH service", "neighbors": ends, "total": 2}
    assert tools.kg_neighbors("auth service", 1)["neighbors"] == ends[:1]
    assert tools.kg_neighbors("no\ud800\n body")["entity"] == "no body"
    assert tools.kg_neighbors("nobody") == {"entity": "nobody", "neighbors": [], "total": 0}


def test_names_without_letters_are_entities_of_their_own() -> None:
    tools = tools_with(("!!!", "is", "???"), ("x|y", "in", "C:\\dir"), ("a`b", "is", '"q"'))
    assert tools.kg_neighbors("!!!")["total"] == 1
    assert tools.kg_neighbors("...")["total"] == 0
    assert tools.kg_neighbors("C:\\dir")["total"] == 1
    assert found("x y dir") == [("x|y in C:\\dir", 1.0)]


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (("", "knows", "Babbage"), "subject"),
        (("Ada", " \u200b\n", "Babbage"), "predicate"),
        (("Ada", "knows", "\ud800"), "object"),
        (("Ada", "knows", "x" * (MAX_CHARS + 1)), f"object has {MAX_CHARS + 1} characters"),
    ],
)
def test_a_part_that_is_empty_or_too_long_is_refused_by_name(parts: tuple[str, str, str], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        KnowledgeTools().kg_add_triple(*parts)


def test_a_full_bag_refuses_what_is_new_only() -> None:
    tools = tools_with(("a", "b", "c"), ("d", "e", "f"), max_triples=2)
    with pytest.raises(InvalidRequest, match="2 triples"):
        tools.kg_add_triple("g", "h", "i")
    assert tools.kg_add_triple("a", "b", "c") == {"added": False, "triples": 2}
    tools.kg_remove_triple("a", "b", "c")
    assert tools.kg_add_triple("g", "h", "i")["added"]


@pytest.mark.parametrize("limit", [0, -1, MAX_RESULTS + 1])
def test_a_limit_out_of_bounds_is_refused(limit: int) -> None:
    calls: list[Callable[[str, int], Any]] = [KnowledgeTools().kg_query, KnowledgeTools().kg_neighbors]
    for call in calls:
        with pytest.raises(InvalidRequest, match="limit"):
            call("x", limit)


@pytest.mark.parametrize(("shape", "key"), [("openai", "parameters"), ("anthropic", "input_schema")])
def test_the_definitions_have_the_shape_of_each_api(shape: Literal["openai", "anthropic"], key: str) -> None:
    tools: list[Any] = json.loads(json.dumps(tool_schemas(shape)))
    if shape == "openai":
        assert {tool["type"] for tool in tools} == {"function"}
        tools = [tool["function"] for tool in tools]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert set(tool) == {"name", "description", key}
        assert tool["description"]
        schema = tool[key]
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert set(schema["required"]) <= set(schema["properties"])
        assert all(field["description"] and field["type"] for field in schema["properties"].values())


def test_calls_by_name_do_what_the_methods_do() -> None:
    tools = KnowledgeTools()
    fact = {"subject": "Ada", "predicate": "knows", "object": "Babbage"}
    assert tools.call("kg_add_triple", fact) == {"added": True, "triples": 1}
    assert tools.call("kg_query", json.dumps({"query": "ada"})) == tools.kg_query("ada")
    assert tools.call("kg_neighbors", b'{"entity": "Babbage", "limit": 1}') == tools.kg_neighbors("Babbage", 1)
    assert tools.call("kg_remove_triple", MappingProxyType(fact)) == {"removed": True, "triples": 0}


@pytest.mark.parametrize(
    ("name", "arguments", "code", "named"),
    [
        ("kg_drop", {}, "unknown_tool", "kg_add_triple"),
        ("kg_query", {}, "invalid_arguments", "query"),
        ("kg_query", {"query": "x", "limit": 0}, "invalid_arguments", "limit"),
        ("kg_query", {"query": "x", "depth": 1}, "invalid_arguments", "depth"),
        ("kg_query", "{not json", "invalid_arguments", "JSON"),
        ("kg_query", "[]", "invalid_arguments", "arguments"),
        ("kg_query", None, "invalid_arguments", "arguments"),
        ("kg_query", [("query", "x")], "invalid_arguments", "arguments"),
        ("kg_\ud800", {}, "unknown_tool", "kg_query"),
        ("kg_query", {"query": "\ud800"}, "invalid_arguments", "query"),
        ("kg_neighbors", '{"entity": "\\ud800"}', "invalid_arguments", "arguments"),
        ("kg_add_triple", {"subject": 3, "predicate": "is", "object": "x"}, "invalid_arguments", "subject"),
        ("kg_add_triple", {"subject": " ", "predicate": "is", "object": "x"}, "invalid_arguments", "subject"),
        ("kg_add_triple", {"subject": "x" * 501, "predicate": "is", "object": "x"}, "invalid_arguments", "subject"),
    ],
)
def test_a_bad_call_is_an_answer_that_says_what_to_mend(name: str, arguments: Any, code: str, named: str) -> None:
    answer: Any = KnowledgeTools().call(name, arguments)
    assert answer["error"]["code"] == code
    assert named in answer["error"]["message"]
    assert json.dumps(answer, ensure_ascii=False).encode()


def test_threads_may_change_and_search_at_once() -> None:
    shared, done, owned = KnowledgeTools(), threading.Event(), [KnowledgeTools() for _ in range(4)]

    def write(number: int) -> None:
        for i in range(400):
            owned[number].kg_add_triple(f"w{number}", "counts", str(i))
            shared.kg_add_triple(f"s{number}", "counts", str(i))
            if i % 2:
                shared.kg_remove_triple(f"s{number}", "counts", str(i))

    def read() -> None:
        while not done.is_set():
            assert all(score == 1.0 for _, score in search_live("counts", 50))
            shared.kg_neighbors("s1")

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for writer in [pool.submit(write, number) for number in range(4)]:
            writer.result()
        done.set()
        for reader in readers:
            reader.result()
    left = [triple for triple, _ in search_live("counts", 5000)]
    assert len(left) == 4 * (400 + 200)
    for number in range(4):
        mine = [triple for triple in left if triple.subject == f"s{number}"]
        assert mine == [Triple(f"s{number}", "counts", str(i)) for i in range(0, 400, 2)]


def test_a_hundred_thousand_triples_are_looked_up_not_read() -> None:
    """Bounded by counting: a rare word touches only the triples that have it."""
    tools = KnowledgeTools()
    for i in range(100_000):
        tools.kg_add_triple(f"node {i}", "follows", f"node {i - 1}")
    assert len(tools._bag.with_tokens(["99998"])[0]) == 2
    assert found("node 99998") == [("node 99998 follows node 99997", 1.0), ("node 99999 follows node 99998", 1.0)] + [
        (f"node {i} follows node {i - 1}", 0.5) for i in range(8)
    ]
    with pytest.raises(InvalidRequest, match="100000 triples"):
        tools.kg_add_triple("one", "too", "many")

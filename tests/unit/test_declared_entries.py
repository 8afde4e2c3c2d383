"""What may be declared, named by an action and used in chat; numbers in the names are those of the specification's cases."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.declare import Knowledge, KnowledgeType, Search, Use
from pipeline.declare.entries import SOURCE_MEMBERS, declared, for_chat, named
from pipeline.errors import ConfigurationError
from schemas.query import Strategy

GRAPH = Knowledge("graph", type=KnowledgeType.GRAPH)
HANDBOOK = Knowledge("handbook", path="knowledge/handbook")

SOURCES = {
    "path": Knowledge("x", path="docs"),
    "connection": Knowledge("x", connection="wiki"),
    "query": Knowledge("x", query="all"),
    "format": Knowledge("x", format="md"),
    "include": Knowledge("x", include=("*.md",)),
    "exclude": Knowledge("x", exclude=("drafts/**",)),
    "unit": Knowledge("x", unit="section"),
    "chunk_context": Knowledge("x", chunk_context=True),
    "chunk_context_model": Knowledge("x", chunk_context_model="small"),
    "select": Knowledge("x", select="title"),
    "max_tokens": Knowledge("x", max_tokens=500),
}
"""Each of the eleven members, alone in an entry."""

EMPTY = {
    "path": Knowledge("x", path=""),
    "include": Knowledge("x", include=()),
    "chunk_context": Knowledge("x", chunk_context=False),
    "max_tokens": Knowledge("x", max_tokens=0),
}


def refused(*words: str) -> pytest.RaisesExc[ConfigurationError]:
    """Expect a refusal whose message holds all the words, whole."""
    return pytest.RaisesExc(
        ConfigurationError, check=lambda error: all(re.search(rf"\b{word}\b", str(error)) for word in words)
    )


def as_graph(entry: Knowledge) -> Knowledge:
    return replace(entry, name="graph", type=KnowledgeType.GRAPH)


@pytest.mark.parametrize("search", [None, Search(), Search(strategy=Strategy.GRAPH)])
def test_g1_a_graph_entry_is_searched_by_graph(search: Search | None) -> None:
    (entry,) = declared([replace(GRAPH, search=search)])
    assert entry.search == Search(strategy=Strategy.GRAPH)
    assert entry.use is Use.SEARCH


def test_g1_holds_for_what_an_action_overrides() -> None:
    (entry,) = named(declared([GRAPH]), [Knowledge("graph", search=Search())])
    assert entry.search == Search(strategy=Strategy.GRAPH)


@pytest.mark.parametrize("strategy", [strategy for strategy in Strategy if strategy is not Strategy.GRAPH])
def test_g2_a_graph_entry_with_another_strategy_is_refused(strategy: Strategy) -> None:
    search = Search(strategy=strategy)
    with refused("graph", "search.strategy", "leave out"):
        declared([replace(GRAPH, search=search)])
    with refused("graph", "search.strategy", "leave out"):
        named(declared([GRAPH]), [Knowledge("graph", search=search)])
    assert declared([replace(HANDBOOK, search=search)])[0].search == search


@pytest.mark.parametrize("use", [Use.DIRECT, Use.SEQUENTIAL])
def test_g3_a_graph_entry_that_is_not_searched_is_refused(use: Use) -> None:
    with refused("graph", "use", "leave out"):
        declared([replace(GRAPH, use=use)])
    with refused("graph", "use", "leave out"):
        named(declared([GRAPH]), [Knowledge("graph", use=use)])
    assert declared([replace(HANDBOOK, use=use)])[0].use is use


@pytest.mark.parametrize("member", SOURCES)
def test_g4_a_graph_entry_with_a_member_of_a_source_is_refused(member: str) -> None:
    with refused("graph", f"leave out {member}"):
        declared([as_graph(SOURCES[member])])
    assert declared([SOURCES[member]])[0].given == ("type", "use", member)


@pytest.mark.parametrize("member", EMPTY)
def test_g4_an_empty_value_is_given_too(member: str) -> None:
    with refused("graph", f"leave out {member}"):
        declared([as_graph(EMPTY[member])])


def test_g4_the_members_are_eleven_and_all_that_are_set_are_named_at_once() -> None:
    assert set(SOURCES) == SOURCE_MEMBERS
    assert len(SOURCE_MEMBERS) == 11
    with refused("leave out path, unit"):
        declared([replace(GRAPH, unit="section", path="docs")])


def test_g4_holds_for_what_an_action_overrides() -> None:
    entry = Knowledge("graph", max_tokens=500)
    with refused("graph", "leave out max_tokens"):
        named(declared([GRAPH]), [entry])


def test_g5_an_action_names_one_graph_entry_at_most() -> None:
    declaration = declared([GRAPH, replace(GRAPH, name="people")])
    with refused("graph, people", "keep one"):
        named(declaration, [Knowledge("graph"), Knowledge("people")])
    assert [entry.name for entry in named(declaration, [Knowledge("people")])] == ["people"]


@pytest.mark.parametrize("kind", [KnowledgeType.FILE, KnowledgeType.HTTP, KnowledgeType.MEMORY, None])
@pytest.mark.parametrize("names", [("graph", "docs"), ("docs", "graph")])
def test_g6_an_action_names_no_documents_beside_a_graph_entry(
    kind: KnowledgeType | None, names: tuple[str, ...]
) -> None:
    declaration = declared([GRAPH, Knowledge("docs", type=kind)])
    with refused("graph", "alone", "docs"):
        named(declaration, [Knowledge(name) for name in names])
    for name in names:
        assert [entry.name for entry in named(declaration, [Knowledge(name)])] == [name]


def test_g7_a_chat_turn_ignores_a_graph_entry() -> None:
    direct = replace(HANDBOOK, name="terms", use=Use.DIRECT)
    entries = declared([HANDBOOK, GRAPH, direct])
    assert [entry.name for entry in for_chat(entries)] == ["handbook", "terms"]
    assert for_chat(declared([GRAPH])) == ()


def test_r36_a_chat_turn_ignores_a_sequential_entry() -> None:
    assert for_chat(declared([replace(HANDBOOK, use=Use.SEQUENTIAL)])) == ()


@pytest.mark.parametrize("member", ["type", *(member for member in SOURCES if member != "max_tokens")])
def test_r9_an_action_sets_no_member_of_the_source(member: str) -> None:
    entry = Knowledge("x", type=KnowledgeType.FILE) if member == "type" else SOURCES[member]
    with refused("x", f"may not set {member}", "declared"):
        named(declared([Knowledge("x", path="docs")]), [entry])


def test_an_action_overrides_what_it_may_and_keeps_the_rest() -> None:
    source = replace(HANDBOOK, max_tokens=100, search=Search(strategy=Strategy.KEYWORD))
    declaration = declared([source])
    assert named(declaration, [Knowledge("handbook")]) == declaration
    changed = Knowledge("handbook", use=Use.DIRECT, max_tokens=0, search=Search())
    (entry,) = named(declaration, [changed])
    assert (entry.use, entry.max_tokens, entry.search, entry.path) == (Use.DIRECT, 0, Search(), HANDBOOK.path)


@pytest.mark.parametrize("name", ["handbok", "", "Handbook"])
def test_a_name_that_nobody_declared_is_refused(name: str) -> None:
    with refused("not declared", "handbook, graph"):
        named(declared([HANDBOOK, GRAPH]), [Knowledge(name)])
    with refused("not declared", "none"):
        named((), [Knowledge(name)])


def test_a_name_is_there_once() -> None:
    with refused("handbook", "declared twice", "another name"):
        declared([HANDBOOK, replace(GRAPH, name="handbook")])
    with refused("graph", "named twice", "once"):
        named(declared([GRAPH]), [Knowledge("graph"), Knowledge("graph")])
    with refused("blank name"):
        declared([Knowledge(" ")])


def test_an_entry_is_a_file_to_search_unless_it_says_otherwise() -> None:
    assert declared([HANDBOOK]) == (replace(HANDBOOK, type=KnowledgeType.FILE, use=Use.SEARCH),)
    assert HANDBOOK.given == ("path",)


@given(st.permutations([GRAPH, HANDBOOK, *(replace(entry, name=name) for name, entry in SOURCES.items())]))
def test_a_declaration_keeps_its_order_and_can_be_checked_again(entries: list[Knowledge]) -> None:
    once = declared(entries)
    assert [entry.name for entry in once] == [entry.name for entry in entries]
    assert declared(once) == once

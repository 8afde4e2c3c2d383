"""What may be declared, named by an action and used in chat; numbers in the names are those of the specification's cases."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.declare import Knowledge, KnowledgeType, OnFailure, Search, Unit, Use
from pipeline.declare.entries import SOURCE_MEMBERS, declared, for_chat, named
from pipeline.errors import ConfigurationError
from schemas.query import Strategy

GRAPH = Knowledge("graph", type=KnowledgeType.GRAPH)
HANDBOOK = Knowledge("handbook", path="knowledge/handbook")

SOURCES = {
    "path": Knowledge("x", path="docs"),
    "connection": Knowledge("x", type=KnowledgeType.HTTP, connection="https://wiki.example"),
    "query": Knowledge("x", type=KnowledgeType.HTTP, path="https://wiki.example", query="all"),
    "format": Knowledge("x", path="docs", format="md"),
    "include": Knowledge("x", path="docs", include=("*.md",)),
    "exclude": Knowledge("x", path="docs", exclude=("drafts/**",)),
    "unit": Knowledge("x", path="docs", unit=Unit.SECTION),
    "chunk_context": Knowledge("x", path="docs", chunk_context=True, chunk_context_model="small"),
    "chunk_context_model": Knowledge("x", path="docs", chunk_context=True, chunk_context_model="small"),
    "select": Knowledge("x", path="docs", select="Leave"),
    "max_tokens": Knowledge("x", path="docs", max_tokens=500),
}
"""Each of the eleven members, in a source that has it."""

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


def as_graph(entry: Knowledge, *members: str) -> Knowledge:
    """Return a GRAPH entry with these members of another entry."""
    return replace(GRAPH, **{member: getattr(entry, member) for member in members})


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
        declared([as_graph(SOURCES[member], member)])
    assert member in declared([SOURCES[member]])[0].given


@pytest.mark.parametrize("member", EMPTY)
def test_g4_an_empty_value_is_given_too(member: str) -> None:
    with refused("graph", f"leave out {member}"):
        declared([as_graph(EMPTY[member], member)])


def test_g4_the_members_are_eleven_and_all_that_are_set_are_named_at_once() -> None:
    assert set(SOURCES) == SOURCE_MEMBERS
    assert len(SOURCE_MEMBERS) == 11
    with refused("leave out path, unit"):
        declared([replace(GRAPH, unit=Unit.SECTION, path="docs")])


def test_g4_holds_for_what_an_action_overrides() -> None:
    entry = Knowledge("graph", max_tokens=500)
    with refused("graph", "leave out max_tokens"):
        named(declared([GRAPH]), [entry])


def test_g5_an_action_names_one_graph_entry_at_most() -> None:
    declaration = declared([GRAPH, replace(GRAPH, name="people")])
    with refused("graph, people", "keep one"):
        named(declaration, [Knowledge("graph"), Knowledge("people")])
    assert [entry.name for entry in named(declaration, [Knowledge("people")])] == ["people"]


@pytest.mark.parametrize(
    "docs",
    [
        Knowledge("docs", path="docs"),
        Knowledge("docs", type=KnowledgeType.FILE, path="docs"),
        Knowledge("docs", type=KnowledgeType.HTTP, path="https://wiki.example"),
        Knowledge("docs", type=KnowledgeType.MEMORY),
    ],
)
@pytest.mark.parametrize("names", [("graph", "docs"), ("docs", "graph")])
def test_g6_an_action_names_no_documents_beside_a_graph_entry(docs: Knowledge, names: tuple[str, ...]) -> None:
    declaration = declared([GRAPH, docs])
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
    entry = Knowledge("x", type=KnowledgeType.FILE)
    if member != "type":
        entry = replace(Knowledge("x"), **{member: getattr(SOURCES[member], member)})
    with refused("x", f"may not set {member}", "declared"):
        named(declared([Knowledge("x", path="docs")]), [entry])


def test_an_action_overrides_what_it_may_and_keeps_the_rest() -> None:
    source = replace(HANDBOOK, max_tokens=100, search=Search(strategy=Strategy.KEYWORD))
    declaration = declared([source])
    assert named(declaration, [Knowledge("handbook")]) == declaration
    changed = Knowledge("handbook", use=Use.SEARCH, max_tokens=1, search=Search())
    (entry,) = named(declaration, [changed])
    assert (entry.use, entry.max_tokens, entry.search, entry.path) == (Use.SEARCH, 1, Search(), HANDBOOK.path)


@pytest.mark.parametrize("use", [Use.DIRECT, Use.SEQUENTIAL])
def test_an_entry_that_is_not_searched_has_no_search(use: Use) -> None:
    source = replace(HANDBOOK, search=Search(strategy=Strategy.KEYWORD))
    (entry,) = named(declared([source]), [Knowledge("handbook", use=use)])
    assert (entry.use, entry.search) == (use, None)
    with refused("handbook", "use is SEARCH", "leave"):
        declared([replace(source, use=use)])
    with refused("handbook", "use is SEARCH", "leave"):
        named(declared([HANDBOOK]), [Knowledge("handbook", use=use, search=Search())])


@pytest.mark.parametrize("name", ["handbok", "Handbook"])
def test_r16_a_name_that_nobody_declared_is_refused(name: str) -> None:
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


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (KnowledgeType.FILE, {"connection", "query"}),
        (KnowledgeType.HTTP, {"include", "exclude"}),
        (KnowledgeType.MEMORY, {"path", "connection", "query", "include", "exclude"}),
    ],
)
def test_a_type_has_its_members_and_no_others(kind: KnowledgeType, members: set[str]) -> None:
    place = {KnowledgeType.FILE: "docs", KnowledgeType.HTTP: "https://wiki.example", KnowledgeType.MEMORY: None}[kind]
    plain = Knowledge("x", type=kind, path=place)
    assert declared([plain])
    for member, source in SOURCES.items():
        entry = replace(plain, **{member: getattr(source, member)})
        if member in members:
            with refused("x", kind.name, f"leave out {member}"):
                declared([entry])
        elif member not in ("path", "chunk_context", "chunk_context_model"):
            assert member in declared([entry])[0].given
    assert declared([replace(plain, chunk_context=True, chunk_context_model="small")])


def test_a_source_says_where_it_is() -> None:
    with refused("x", "FILE", "needs a path"):
        declared([Knowledge("x")])
    with refused("x", "path", "only http and https"):
        declared([Knowledge("x", type=KnowledgeType.HTTP)])


@pytest.mark.parametrize(
    ("members", "url"),
    [
        ({"path": "https://wiki.example/leave?raw=1"}, "https://wiki.example/leave?raw=1"),
        ({"connection": "https://wiki.example/a/"}, "https://wiki.example/a/"),
        ({"connection": "https://wiki.example/a/", "path": "b"}, "https://wiki.example/a/b"),
        ({"connection": "https://wiki.example/a/", "path": "/b?x=1", "query": "y=2"}, "https://wiki.example/b?x=1&y=2"),
        ({"path": "http://wiki.example:8080", "query": "y=2"}, "http://wiki.example:8080?y=2"),
    ],
)
def test_the_parts_of_a_url_make_one(members: dict[str, str], url: str) -> None:
    (entry,) = declared([replace(Knowledge("x", type=KnowledgeType.HTTP), **members)])
    assert entry.url == url


@pytest.mark.parametrize(
    "path", ["docs", "ftp://wiki.example", "https://", "https://user:sesame@wiki.example", "https://a b"]
)
def test_what_is_no_url_of_the_web_is_refused_and_not_repeated(path: str) -> None:
    with refused("x", "path", "rule") as caught:
        declared([Knowledge("x", type=KnowledgeType.HTTP, path=path)])
    assert "sesame" not in str(caught.value)


def test_what_may_be_secret_in_a_url_is_in_no_repr() -> None:
    entry = Knowledge("x", type=KnowledgeType.HTTP, connection="https://a.example", path="b?k=sesame", query="t=sesame")
    assert repr(entry) == "Knowledge('x', type=KnowledgeType.HTTP, path=..., connection=..., query=...)"
    assert repr(replace(HANDBOOK, search=Search(top_k=3))) == (
        "Knowledge('handbook', search=Search(top_k=3), path='knowledge/handbook')"
    )


@pytest.mark.parametrize(
    ("suffix", "media_type"),
    [
        (".txt", "text/plain; format=fixed"),
        ("md", "text/markdown"),
        (".JSON", "application/json"),
        ("yaml", "application/yaml"),
        (".csv", "text/csv"),
        ("pdf", "application/pdf"),
        ("py", "text/x-py"),
    ],
)
def test_r15_a_format_that_is_read(suffix: str, media_type: str) -> None:
    assert declared([replace(HANDBOOK, format=suffix)])[0].media_type == media_type


@pytest.mark.parametrize("suffix", ["exe", "mp3", "markdown text", "text/markdown", ".", "../md"])
def test_r15_a_format_that_is_not_read_is_refused_whatever_is_to_happen_on_failure(suffix: str) -> None:
    search = Search(on_failure=OnFailure.CONTINUE)
    with refused("handbook", "format", "none that is read", "md"):
        declared([replace(HANDBOOK, format=suffix, search=search)])


@pytest.mark.parametrize("member", ["include", "exclude"])
@pytest.mark.parametrize("value", ["*.md", ["*.md"], ("",), (1,), ("!",)])
def test_globs_are_a_tuple_of_patterns(member: str, value: object) -> None:
    entry = replace(HANDBOOK, **{member: value})
    with refused("handbook", member):
        declared([entry])


def test_the_context_of_chunks_and_its_model_need_each_other() -> None:
    with refused("handbook", "chunk_context", "name it in chunk_context_model"):
        declared([replace(HANDBOOK, chunk_context=True)])
    for context in (None, False):
        with refused("handbook", "chunk_context_model", "set that"):
            declared([replace(HANDBOOK, chunk_context=context, chunk_context_model="small")])


@pytest.mark.parametrize(
    ("member", "value", "says"),
    [
        ("type", "file", "KnowledgeType.FILE"),
        ("use", "search", "Use.SEARCH"),
        ("unit", "page", "Unit.SECTION"),
        ("search", {"top_k": 5}, "a Search"),
        ("path", " ", "not blank"),
        ("path", ("docs", "wiki"), "tuple of 2"),
        ("select", ["Leave"], "list of 1"),
        ("chunk_context", 1, "True or False"),
        ("max_tokens", 0, "from 1"),
        ("max_tokens", True, "whole number"),
        ("max_tokens", 1.5, "whole number"),
    ],
)
def test_a_member_is_one_value_of_its_kind(member: str, value: object, says: str) -> None:
    with refused("handbook", member, re.escape(says)):
        declared([replace(HANDBOOK, **{member: value})])


def test_what_is_no_entry_is_refused() -> None:
    wrong: list[Knowledge] = ["handbook"]  # type: ignore[list-item]
    with refused("Knowledge", "str"):
        declared(wrong)
    with refused("Knowledge", "str"):
        named(declared([HANDBOOK]), wrong)

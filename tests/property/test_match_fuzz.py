"""Whatever is sent as a query: it is read or refused, with bounded work, and nothing else happens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import Refusal
from pipeline.graphtools import grammar
from pipeline.graphtools.check import check
from pipeline.graphtools.cursor import Cursor, fingerprint
from pipeline.graphtools.parse import parse, prepare
from pipeline.graphtools.refusal import Code
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType
from tests.match_texts import queries, written

prepare()

UNHURRIED = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])

SCHEMA = GraphSchema(
    node_types=(
        NodeType(
            label="Person",
            properties=(ExposedProperty(name="name"), ExposedProperty(name="age", type=PropertyType.INT64)),
        ),
    ),
    edge_types=(EdgeType(type="KNOWS"),),
)
GIVEN: Mapping[str, object] = {"x": 1, "text": "a", "list": [1, None, "a"]}

HEAP = (
    "MATCH WHERE RETURN ORDER BY SKIP LIMIT ASC DESC GROUP HAVING AND OR NOT IN BETWEEN IS NULL AS COUNT SUM DISTINCT "
    "CONTAINS STARTS ENDS WITH REGEX PATH TRUE UNION CALL CREATE ( ) [ ] { } - <- -> : | . .. , * = == != <> >= < ! 1 -1 "
    "2.5 1. 'x' \"y\" `a` ` ' \" \\ ; $ // /* p p.name p.age Person KNOWS :x :list (p:Person) -[:KNOWS]- \u00e9 \u212a \0 "
    "99999999999999999999 \n \u2028 \ud800 \U0001f600"
)
PIECES = HEAP.split(" ")
"""What queries are made of, and what they are not."""

LONG = [
    "(" * 16_000,
    "MATCH " + "(" * 16_000,
    "MATCH (p:Person) WHERE " + "(" * 10_000 + "p.age = 1" + ")" * 6_000,
    "MATCH (p:Person) WHERE " + "NOT " * 4_000 + "p.age = 1 RETURN p",
    "MATCH (p:Person) WHERE " + "NOT(" * 4_000,
    "MATCH (p:Person) WHERE " + "p.age = 1 AND " * 1_100 + "p.age = 1 RETURN p",
    "MATCH (p:Person) WHERE p.age IN [" + "1," * 8_000 + "1] RETURN p",
    "MATCH (p:Person) WHERE p.age = " + "9" * 16_000 + " RETURN p",
    "MATCH (p:Person) WHERE p.age = " + "9" * 16_000 + ". RETURN p",
    "MATCH (p:Person) WHERE p.name = '" + "\\" * 16_000,
    "MATCH (p:Person) WHERE p.name = '" + "\\'" * 8_000,
    "MATCH (p:Person) WHERE p.name = '" + "a" * 16_000,
    "MATCH (p:Person) RETURN `" + "a" * 16_000,
    "MATCH (p" + ":Person" * 2_000 + ") RETURN p",
    "MATCH (p)" + "-[]-()" * 2_500 + " RETURN p",
    "MATCH (p:Person) RETURN " + "p.name," * 2_000,
    "m" * 16_000,
    "MATCH (" + "a" * 16_000 + ") RETURN b",
    "MATCH (p:Person) RETURN p AS `" + "a" * 16_000 + "`",
    " " * 16_384,
    "\n" * 16_000 + "MATCH",
    "MATCH (p:Person) RETURN p" * 600,
    "a" * 1_000_000,
]


def outcome(text: str, parameters: Mapping[str, object] = GIVEN) -> str:
    """Return what becomes of a text: nothing but a plan or a refusal with a code, and for a text a place within it."""
    try:
        query = parse(text, parameters)
        fingerprint("s", "space", query, "g-1")
        hash(query)
        check(query, SCHEMA, 3)
    except Refusal as refusal:
        assert refusal.code in set(Code)
        assert bool(refusal.kind) is (refusal.code == Code.INVALID_QUERY)
        if refusal.kind:
            lines = text.split("\n")
            assert 1 <= refusal.line <= len(lines)
            assert 1 <= refusal.column <= len(lines[refusal.line - 1]) + 1
        assert len(str(refusal)) < 500
        return refusal.code
    return "plan"


@contextmanager
def counted_tokens() -> Iterator[list[int]]:
    """Count the tokens that the lexer is asked for."""
    from lark.lexer import BasicLexer

    count = [0]
    original = BasicLexer.next_token

    def counting(*args: object, **named: object) -> object:
        count[0] += 1
        return original(*args, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BasicLexer, "next_token", counting)
        yield count


@UNHURRIED
@given(st.text(st.characters(), max_size=300))
def test_any_text(text: str) -> None:
    outcome(text)


@UNHURRIED
@given(st.binary(max_size=300))
def test_any_bytes(text: bytes) -> None:
    outcome(text.decode("latin-1"))
    outcome(text.decode("utf-8", "surrogateescape"))


@UNHURRIED
@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(["", " "]))
def test_any_heap_of_pieces(pieces: list[str], between: str) -> None:
    outcome(between.join(pieces))


@UNHURRIED
@given(st.data(), queries())
def test_any_query_with_something_else_within(data: st.DataObject, query: object) -> None:
    text, parameters = data.draw(written(query))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(PIECES)) + text[at + data.draw(st.integers(0, 3)) :]
    outcome(text, parameters)


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_long_and_deep_texts_are_refused_after_a_bounded_number_of_tokens(text: str) -> None:
    with counted_tokens() as count:
        assert outcome(text) in {Code.INVALID_QUERY, Code.UNSUPPORTED_QUERY}
    assert count[0] <= grammar.MOST_TOKENS + 2


@pytest.mark.parametrize("room", [250, 400])
def test_what_is_read_needs_no_deep_stack(room: int) -> None:
    """The deepest conditions that are allowed are read, checked and compared with little room left on the stack."""
    deepest = "MATCH (p:Person) WHERE {} RETURN p"
    texts = [
        deepest.format("NOT " * grammar.MOST_JOINTS + "p.age = 1"),
        deepest.format("p.age IS NULL AND " * (grammar.MOST_TOKENS // 6 - 3) + "p.age = 1"),
        deepest.format("(" * 200 + "p.age = 1" + ")" * 200),
    ]

    def frames() -> int:
        frame, depth = sys._getframe(), 0
        while frame := frame.f_back:
            depth += 1
        return depth

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(frames() + room)
    try:
        assert [outcome(text) for text in texts] == ["plan"] * len(texts)
    finally:
        sys.setrecursionlimit(before)


@UNHURRIED
@given(st.text(max_size=40) | st.from_regex(r"offset:-?[0-9]{0,20}:?[0-9a-f]{0,18}", fullmatch=True))
def test_any_cursor(text: str) -> None:
    try:
        cursor = Cursor.read(text)
    except Refusal as refusal:
        assert refusal.code in {Code.INVALID_ARGUMENT, Code.UNSUPPORTED_FEATURE}
    else:
        assert str(cursor) == text.strip()
        assert cursor.offset >= 0

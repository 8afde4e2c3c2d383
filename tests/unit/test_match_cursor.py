"""Cursors: the cases Q63–Q68, and the fingerprints of the framework that the language comes from."""

from __future__ import annotations

import pytest

from pipeline.errors import Refusal
from pipeline.graphtools.cursor import Cursor, fingerprint, query_fingerprint
from pipeline.graphtools.parse import parse
from pipeline.graphtools.query import Query
from pipeline.graphtools.refusal import answer

PERSON = "MATCH (p:Person) RETURN p"


def mark(text: str, source: str = "s", space: str = "space", graph_id: str = "g-1", **parameters: object) -> str:
    return fingerprint(source, space, parse(text, parameters), graph_id)


def refused(text: str) -> str:
    with pytest.raises(Refusal) as caught:
        Cursor.read(text)
    return answer(caught.value)


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        (PERSON, "4d86e20a163c70a6"),
        ("MATCH (p:Person) RETURN p.name AS name ORDER BY p.name", "7683a91fddf55edd"),
    ],
)
def test_the_fingerprint_of_a_query_alone_is_the_golden_one(text: str, golden: str) -> None:
    assert query_fingerprint(parse(text, {})) == golden


def test_q63_another_query_has_another_fingerprint() -> None:
    assert mark(PERSON) != mark("MATCH (c:Company) RETURN c")


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("match ( p:`Person` )\nwhere p.name == 'x' return p", {}),
        ("MATCH (p:Person) WHERE p.name = :name RETURN p", {"name": "x", "unused": 1}),
        ('MATCH (p:Person) WHERE (p.name = "x") RETURN p AS p', {}),
    ],
)
def test_q64_spelling_and_parameters_do_not_matter(text: str, parameters: dict[str, object]) -> None:
    assert mark(text, **parameters) == mark("MATCH (p:Person) WHERE p.name = 'x' RETURN p")


def test_q65_a_cursor_of_a_store() -> None:
    message = "Portable default paging only understands offset cursors"
    assert refused("backend-token") == f"Error: UNSUPPORTED_FEATURE: {message}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("offset:x", id="Q66a"),
        pytest.param("offset:3:", id="Q66b"),
        pytest.param("offset:3", id="Q67-D5"),
        "offset:",
        "offset:3:4d86e20a163c70a",
        "offset:3:4D86E20A163C70A6",
        "offset:3:4d86e20a163c70a6:",
        "offset:+3:4d86e20a163c70a6",
        "offset:03:4d86e20a163c70a6",
        "offset:٣:4d86e20a163c70a6",
        f"offset:{'9' * 5000}:4d86e20a163c70a6",
    ],
)
def test_what_is_no_cursor_or_bound_to_no_query_is_refused(text: str) -> None:
    assert refused(text) == "Error: INVALID_ARGUMENT: invalid graph page cursor"


def test_no_page_begins_before_the_first_row() -> None:
    assert refused("offset:-1:4d86e20a163c70a6") == "Error: INVALID_ARGUMENT: offset must not be negative"


def test_a_cursor_reads_as_it_was_written() -> None:
    for offset in (0, 1, 10**14):
        cursor = Cursor(offset, mark(PERSON))
        assert Cursor.read(f" {cursor}\n") == cursor
    assert str(Cursor(20, "4d86e20a163c70a6")) == "offset:20:4d86e20a163c70a6"


def test_q68_the_order_of_properties_in_braces_does_not_matter_that_of_lists_does() -> None:
    assert mark("MATCH (p:P {a: 1, b: 2}) RETURN p") == mark("MATCH (p:P {b: 2, a: 1}) RETURN p")
    text = "MATCH (p:P) WHERE p.a IN :x RETURN p"
    assert mark(text, x=[1, 2]) != mark(text, x=[2, 1])


def test_d5_source_space_generation_and_values_are_covered() -> None:
    text = "MATCH (p:P) WHERE p.a = :x RETURN p"
    marks = [
        mark(text, x=1),
        mark(text, x=1.0),
        mark(text, x="1"),
        mark(text, x=True),
        mark(text, x=None),
        mark(text, x="<null>"),
        mark(text, x=1, source="t"),
        mark(text, x=1, space="other"),
        mark(text, x=1, graph_id="g-2"),
    ]
    assert len(set(marks)) == len(marks)
    assert all(len(one) == 16 for one in marks)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("MATCH (p:A) WHERE p.a IN ['1', '2'] RETURN p", "MATCH (p:A) WHERE p.a IN ['1;2:2'] RETURN p"),
        ("MATCH (p:A) WHERE p.a IS NULL RETURN p", "MATCH (p:A) WHERE p.a IS NOT NULL RETURN p"),
        ("MATCH (p:A) WHERE p.a = NULL RETURN p", "MATCH (p:A) WHERE p.a IS NULL RETURN p"),
        ("MATCH (p:A) WHERE p.a IN [null] RETURN p", "MATCH (p:A) WHERE p.a IN [null, null] RETURN p"),
        ("MATCH (p:A:B) RETURN p", "MATCH (p:A {B: null}) RETURN p"),
        ("MATCH (p:A)-[r:X]->(q:B) RETURN p", "MATCH (p:A)<-[r:X]-(q:B) RETURN p"),
        ("MATCH (p:A)-[r:X*1..2]->(q:B) RETURN p", "MATCH (p:A)-[r:X*2]->(q:B) RETURN p"),
        ("MATCH (p:A) RETURN COUNT(*) AS n", "MATCH (p:A) RETURN COUNT(p) AS n"),
        ("MATCH (p:A) RETURN COUNT(p.a) AS n", "MATCH (p:A) RETURN COUNT(DISTINCT p.a) AS n"),
        ("MATCH (p:A) RETURN p.a ORDER BY a", "MATCH (p:A) RETURN p.a ORDER BY p.a"),
        ("MATCH (p:A) RETURN p.a ORDER BY a", "MATCH (p:A) RETURN p.a ORDER BY a DESC"),
        ("MATCH (p:A) WHERE NOT p.a = 1 RETURN p", "MATCH (p:A) WHERE p.a = 1 RETURN p"),
    ],
)
def test_queries_that_look_alike_are_told_apart(first: str, second: str) -> None:
    assert mark(first) != mark(second)
    assert isinstance(parse(first, {}), Query)

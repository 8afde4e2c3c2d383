"""Entities and properties of ready-made triples: what a line may say, and what is refused by its place."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest

from pipeline.errors import DocumentError
from pipeline.generations.rows import stored
from pipeline.graphs.columns import ENTITY_COLUMNS, RELATION_COLUMNS
from pipeline.graphs.parts import RESERVED
from pipeline.ingest.prepare import unpickled
from pipeline.ingest.properties import MAX_NAME, MAX_TEXT
from pipeline.ingest.stages import Prepared, Request, prepare
from pipeline.ingest.triples import Named, Triple, parse_triples, read_record
from schemas.documents import Item, Passage, Source, SourceKind
from schemas.graph import MAX_PROPERTIES, Extraction, Fact, Mention
from schemas.settings import ChunkSettings


def line(**more: Any) -> bytes:
    return orjson.dumps({"document": "d", "passage": "Ada knew Babbage.", "triples": [], **more})


def passage(**more: Any) -> Passage:
    (found,) = parse_triples("d", line(**more)).passages
    return found


def prepared(data: bytes, size: int) -> Prepared:
    item = Item("d", Source(SourceKind.TRIPLES, "/x"), "/x")
    (found,) = prepare([Request(item, data, "", ChunkSettings(max_chars=size))])
    assert isinstance(found, Prepared)
    return found


def test_a_line_names_entities_and_says_what_they_are() -> None:
    """What is listed and what triples end at are one mention; the place is that of the name in the text, if it is there."""
    found = passage(
        triples=[["Ada", "knew", "Babbage"]],
        entities=[
            {"name": "Ada", "type": "Person", "description": " A mathematician. ", "properties": {"born": 1815}},
            {"name": "London"},
        ],
        types={"Babbage": "Person"},
    )
    assert found.mentions == (
        Mention("Ada", "Person", 0, 3, description="A mathematician.", properties={"born": 1815}),
        Mention("Babbage", "Person", 9, 16),
        Mention("London", "Entity"),
    )
    assert found.facts == (Fact("Ada", "Person", "knew", "Babbage", "Person"),)


def test_types_come_before_those_of_entities_and_the_first_of_these_before_others() -> None:
    """For the ends of triples; a listed entity is of its own type."""
    listed = [{"name": "Ada", "type": "A"}, {"name": "Ada", "type": "B"}, {"name": "Bob", "type": "C"}]
    found = passage(triples=[["Ada", "r", "Bob"]], entities=listed, types={"Bob": "D"})
    assert [(one.subject_type, one.object_type) for one in found.facts] == [("A", "D")]
    assert {(one.name, one.type) for one in found.mentions} == {("Ada", "A"), ("Ada", "B"), ("Bob", "C"), ("Bob", "D")}


def test_a_triple_can_be_an_object_with_properties() -> None:
    """Beside lists; equal triples with other properties are two facts, and minus zero is zero."""
    one = {"subject": " Ada", "predicate": "knew", "object": "Babbage"}
    triples = [one, ["Ada", "knew", "Babbage"], one | {"properties": {"since": -0.0, "note": "a\0b\r\n", "ok": True}}]
    first, second = passage(triples=triples).facts
    assert (first.properties, second.properties) == ({}, {"since": 0.0, "note": "ab\n", "ok": True})
    assert str(second.properties["since"]) == "0.0"


def test_what_is_said_twice_counts_once() -> None:
    """The first value of each property and the first description that is not empty."""
    found = passage(
        entities=[
            {"name": "Ada", "properties": {"a": 1, "b": 1}},
            {"name": "Ada", "description": "x", "properties": {"b": 2, "c": 2}},
        ]
    )
    assert found.mentions == (Mention("Ada", "Entity", 0, 3, description="x", properties={"a": 1, "b": 1, "c": 2}),)


def test_a_record_without_them_is_as_it_was() -> None:
    record = read_record(line(triples=[["Ada", "knew", "Babbage"]]))
    assert (record.triples, record.entities, record.types) == ((Triple("Ada", "knew", "Babbage"),), (), {})
    assert read_record(line(entities=[{"name": "A", "type": "T"}])).entities == (Named("A", "T"),)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"entities": {}}, "`entities` must be a list"),
    ({"entities": None}, "`entities` must be a list"),
    ({"entities": [{"name": "a"}, "b"]}, "`entities[1]` must be an object"),
    ({"entities": [{"name": " "}]}, "`entities[0].name` must be a string"),
    ({"entities": [{}]}, "`entities[0].name` must be a string"),
    ({"entities": [{"name": "a", "type": ""}]}, "`entities[0].type` must be a string"),
    ({"entities": [{"name": "a", "description": 1}]}, "`entities[0].description` must be a string"),
    ({"entities": [{"name": "a", "properties": []}]}, "`entities[0].properties` must be an object"),
    ({"entities": [{"name": "a", "properties": {"x": None}}]}, "`entities[0].properties.x` must be"),
    ({"entities": [{"name": "a", "properties": {"x": [1]}}]}, "`entities[0].properties.x` must be"),
    ({"entities": [{"name": "a", "properties": {"x": 2**63}}]}, "`entities[0].properties.x` must be"),
    ({"entities": [{"name": "a", "properties": {"x y": 1}}]}, "`entities[0].properties` has a name that is no"),
    ({"entities": [{"name": "a", "properties": {"": 1}}]}, "`entities[0].properties` has a name that is no"),
    ({"entities": [{"name": "a", "properties": {"x" * (MAX_NAME + 1): 1}}]}, "has a name that is no identifier"),
    ({"entities": [{"name": "a", "properties": {"x": "é" * (MAX_TEXT // 2) + "x"}}]}, "`entities[0].properties.x`"),
    ({"triples": [{"subject": "a", "predicate": "b"}]}, "`triples[0].object` must be a string"),
    (
        {"triples": [["a", "b", "c"], {"subject": 1, "predicate": "b", "object": "c"}]},
        "`triples[1].subject` must be",
    ),
    (
        {"triples": [{"subject": "a", "predicate": "b", "object": "c", "properties": {"weight": 1}}]},
        "`triples[0].properties.weight` is a reserved name",
    ),
]


@pytest.mark.parametrize(("more", "said"), BAD)
def test_what_cannot_be_stored_is_refused_by_its_place(more: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_record(line(**more))
    assert said in str(caught.value)


@pytest.mark.parametrize("name", sorted(RESERVED | ENTITY_COLUMNS | RELATION_COLUMNS))
def test_names_that_say_what_a_row_is_are_reserved(name: str) -> None:
    """Exactly where a store would refuse them."""
    with_entity = line(entities=[{"name": "a", "properties": {name: 1}}])
    with_triple = line(triples=[{"subject": "a", "predicate": "b", "object": "c", "properties": {name: 1}}])
    for data, reserved in ((with_entity, RESERVED | ENTITY_COLUMNS), (with_triple, RESERVED | RELATION_COLUMNS)):
        if name in reserved:
            with pytest.raises(DocumentError, match="reserved"):
                read_record(data)
        else:
            read_record(data)


def test_the_bounds_are_met_exactly() -> None:
    """As many, as long and as large as may be; an identifier of any script."""
    largest = {f"größe_東京_{n}": "x" * MAX_TEXT for n in range(MAX_PROPERTIES - 3)}
    extremes = {"x" * MAX_NAME: 2**63 - 1, "least": -(2**63), "real": 1.7976931348623157e308}
    (one,) = read_record(line(entities=[{"name": "a", "properties": largest | extremes}])).entities
    assert one.properties == largest | extremes
    with pytest.raises(DocumentError, match="65 properties, of which 64"):
        read_record(line(entities=[{"name": "a", "properties": largest | extremes | {"one_more": 1}}]))


def test_they_go_where_their_entity_is_told_of_when_a_passage_is_cut() -> None:
    """Every part that mentions the entity for the sake of a fact says of it what the passage says."""
    text = f"Ada knew Babbage. {'More words. ' * 8}Ada met Faraday."
    data = line(
        passage=text,
        triples=[["Ada", "knew", "Babbage"], {"subject": "Ada", "predicate": "met", "object": "Faraday"}],
        entities=[{"name": "Ada", "description": "x", "properties": {"born": 1815}}],
    )
    found = prepared(data, 60)
    told = [m for one in found.ready for m in one.mentions if m.name == "Ada"]
    assert len(found.chunks) > 1 and len(told) == 2
    assert {(m.description, m.properties["born"]) for m in told} == {("x", 1815)}
    for chunk, one in zip(found.chunks, found.ready, strict=True):
        assert all(m.start < 0 or chunk.text[m.start : m.end] == m.name for m in one.mentions)


def test_children_answer_with_them() -> None:
    """Through the unpickler that makes nothing but our own values; a mention without properties takes no byte for them."""
    bare = Mention("Ada", "Person", 0, 3)
    told = replace(bare, properties={"born": 1815, "height": 1.5, "known": True, "of": "x"})
    fact = Fact("Ada", "Person", "knew", "Ada", "Person", properties={"since": 1833})
    found = replace(prepared(line(), 60), ready=(Extraction((bare, told), (fact,)),))
    assert unpickled(pickle.dumps([found])) == [found]
    assert bare.__reduce__()[1] == ("Ada", "Person", 0, 3, "text", "")
    assert hash(told) == hash(bare) and told != bare


def test_numbers_are_stored_in_the_form_that_they_keep() -> None:
    """As decimals: what a float is shows in its point alone, and that of a large one would be lost in its exponent."""
    largest = sys.float_info.max
    values = {
        "a": 1e16,
        "b": -1.5e300,
        "c": largest,
        "d": 1e15,
        "e": 1e-7,
        "f": 10**16,
        "g": 1.0,
        "h": True,
        "i": "1e16",
    }
    written = orjson.dumps(stored(values)).decode()
    assert "e+" not in written.replace('"1e16"', "")
    assert repr(orjson.loads(written)) == repr(values)

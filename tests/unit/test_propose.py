"""A proposed allow-list: portable names, ends that predominate, types of values; whatever was found, it is a schema."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pipeline.graphtools.propose import Ends, Findings, PropertyCount, TypeCount, pascal, propose, snake
from schemas.exposed import PORTABLE, EdgeType, GraphSchema, PropertyType


def test_names_are_made_from_stored_types() -> None:
    labels = ("Work of Art", "work_of_art", "person", "ORG", "Café", "2nd thing", "人", "", "a" * 500)
    assert [pascal(one) for one in labels[:8]] == [
        "WorkOfArt", "WorkOfArt", "Person", "ORG", "Cafe", "_2ndThing", "Entity", "Entity",
    ]  # fmt: skip
    assert len(pascal(labels[8])) <= 100
    types = ("works at", "worksAt", "WORKS_AT", "is-a", "3 of", "→")
    assert [snake(one) for one in types] == ["WORKS_AT", "WORKS_AT", "WORKS_AT", "IS_A", "_3_OF", "RELATED_TO"]


def proposed(found: Findings) -> GraphSchema:
    return propose("handbook", "7", found)


def test_names_that_collide_are_numbered_and_each_keeps_its_stored_type() -> None:
    found = Findings([TypeCount("Work of Art", 9), TypeCount("work_of_art", 2), TypeCount("WorkOfArt2", 1)])
    nodes = proposed(found).node_types
    assert [(one.label, one.stored) for one in nodes] == [
        ("WorkOfArt", ("Work of Art",)),
        ("WorkOfArt2", ("work_of_art",)),
        ("WorkOfArt22", ("WorkOfArt2",)),
    ]
    assert nodes[0].description == "9 entities."


def edge(rows: int, between: int, target: str = "Company") -> EdgeType:
    found = Findings(
        [TypeCount("Person", 5), TypeCount("Company", 5)],
        [TypeCount("works at", rows)],
        ends=[Ends("works at", "Person", target, between)],
    )
    return proposed(found).edge_types[0]


def test_ends_are_declared_where_one_pair_predominates() -> None:
    """What is then left out is said; a pair of a type that is not in the proposal cannot be declared."""
    assert (edge(10, 10).source_label, edge(10, 10).target_label) == ("Person", "Company")
    assert edge(10, 10).description == "10 relations."
    assert edge(10, 9).target_label == "Company"
    assert edge(10, 9).description.startswith("10 relations. 1 of them go between other labels")
    assert (edge(10, 8).source_label, edge(10, 8).target_label) == (None, None)
    assert edge(10, 10, "Rare").source_label is None


def test_properties_have_the_type_of_most_values() -> None:
    counts = [
        PropertyCount("node", "T", "age", 10, numbers=10, integers=10, example="3"),
        PropertyCount("node", "T", "height", 10, numbers=10, integers=4),
        PropertyCount("node", "T", "alive", 10, booleans=10),
        PropertyCount("node", "T", "born on", 10, dates=10),
        PropertyCount("node", "T", "seen", 10, datetimes=10),
        PropertyCount("node", "T", "mixed", 10, booleans=3, numbers=1),
        PropertyCount("node", "T", "born-on", 9, dates=8),
        PropertyCount("node", "T", "name", 10),  # a column hides it
        PropertyCount("edge", "T", "since", 10, dates=10),
    ]
    [node] = proposed(Findings([TypeCount("T", 10)], properties=counts)).node_types
    assert [one.name for one in node.properties[:4]] == ["name", "description", "mentions", "chunks"]
    found = {one.name: one for one in node.properties[4:]}
    assert {name: one.type for name, one in found.items()} == {
        "age": PropertyType.INT64,
        "height": PropertyType.DOUBLE,
        "alive": PropertyType.BOOLEAN,
        "born_on": PropertyType.DATE,
        "seen": PropertyType.DATETIME,
        "mixed": PropertyType.STRING,
        "born_on2": PropertyType.STRING,  # one value is no date, and would be lost
    }
    assert (found["born_on"].stored, found["born_on2"].stored, found["age"].stored) == ("born on", "born-on", "")
    assert found["age"].description == "10 values, for example 3."
    assert found["mixed"].description == "10 values. 4 of them are of another type and count as missing."


texts = st.text(max_size=30)
found_types = st.lists(st.tuples(texts, st.integers(1, 99)), max_size=8, unique_by=lambda one: one[0])


@given(found_types, found_types, st.lists(st.tuples(texts, texts), max_size=8, unique=True))
def test_whatever_was_found_makes_a_schema(
    entities: list[tuple[str, int]], relations: list[tuple[str, int]], names: list[tuple[str, str]]
) -> None:
    found = Findings(
        [TypeCount(*one) for one in entities],
        [TypeCount(*one) for one in relations],
        [PropertyCount("node", owner, name, 1) for owner, name in names],
        [Ends(kind, entities[0][0], entities[-1][0], rows) for kind, rows in relations if entities],
    )
    schema = proposed(found)
    assert schema == proposed(found) == GraphSchema.model_validate_json(schema.model_dump_json(exclude_defaults=True))
    assert [next(iter(one.types)) for one in schema.node_types] == [kind for kind, _ in entities]
    made = [one.label for one in schema.node_types] + [one.type for one in schema.edge_types]
    assert all(re.fullmatch(PORTABLE, name) for name in made)

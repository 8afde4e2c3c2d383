"""What of a graph goes on the wire, and in which form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.graphs.inspection import (
    MAX_TYPES,
    Edge,
    Group,
    Seen,
    clamped,
    community_of,
    edge_view,
    entity_view,
    folded,
    group_view,
    most_frequent,
    nearest,
    rings,
)
from schemas.graph import Entity
from schemas.ids import EntityNo, show


def entity(**given: object) -> Entity:
    fields = {"type": "Person", "name": "Ada", "description": "Who.", "mentions": 3, "chunks": 2, **given}
    return Entity(EntityNo(1), "person:1", key="ada", **fields)  # type: ignore[arg-type]


def test_an_entity_shows_its_own_file_before_that_of_its_chunk() -> None:
    own = entity(properties={"file_path": "a.py", "lang": "python"})
    assert entity_view(Seen(own, (), "b.py")).file_path == "a.py"
    assert "file_path" not in entity_view(Seen(own)).properties
    assert entity_view(Seen(own)).properties["lang"] == "python"
    assert entity_view(Seen(entity(properties={"file_path": ""}), (), "b.py")).file_path == "b.py"
    assert entity_view(Seen(entity())).file_path is None


def test_what_is_empty_stays_empty() -> None:
    shown = entity_view(Seen(entity(name="", description="", type="")))
    assert (shown.name, shown.description, shown.entity_type) == ("", None, "entity")
    assert shown.properties == {"mentions": 3, "chunks": 2, "communityId": None, "communityPath": []}
    assert entity_view(Seen(entity(), (1, 2**62))).properties["communityId"] == show(2**62)


@pytest.mark.parametrize(
    ("stored", "seen"), [(0.0, 1.0), (1.0, 1.0), (0.5, 0.5), (0.8999999761581421, 0.9), (7.0, 1.0), (-1.0, 0.0)]
)
def test_a_weight_of_zero_reads_as_one(stored: float, seen: float) -> None:
    edge = Edge("a", "b", "LOCATED_AT", stored, 4, {"since": 1969})
    assert edge_view(edge).weight == seen
    assert edge_view(edge).properties == {"since": 1969, "evidence": 4}


def test_a_community_is_described_by_its_first_members() -> None:
    group = Group(7, 1, 8, [f"id{n}" for n in range(8)], ["a", "b", "c", "d", "e"])
    shown = group_view(group)
    assert shown.summary == "8 related entities around a: a, b, c, d, e, +3 more"
    assert (shown.community_id, shown.name, shown.level, len(shown.member_ids)) == (show(7), "a", 1, 8)


@given(st.integers(0, 2**63 - 1))
def test_the_wire_id_of_a_community_leads_back_to_it(number: int) -> None:
    assert community_of(show(number)) == number


@pytest.mark.parametrize(
    "text", ["", "7", "ffffffffffffffff", "0123456789ABCDEF", "0x23456789abcdef", "0123456789abcdeg"]
)
def test_what_is_no_community_id_names_none(text: str) -> None:
    assert community_of(text) is None


def test_searching_folds_separators() -> None:
    assert folded("a_b-c d") == "a b c d"
    assert (folded(" "), folded("")) == ("", "")


@given(st.integers(), st.integers(-9, 9), st.integers(0, 9))
def test_a_clamped_number_is_within_bounds_and_the_nearest(value: int, least: int, more: int) -> None:
    found = clamped(value, least, least + more)
    assert least <= found <= least + more
    assert found == value or not least <= value <= least + more


def test_a_breakdown_is_of_the_most_frequent_types() -> None:
    counts = {**{f"type {n:05}": 1 for n in range(MAX_TYPES)}, "often": 9}
    found = most_frequent(counts)
    assert (len(found), next(iter(found)), f"type {MAX_TYPES - 1:05}" in found) == (MAX_TYPES, "often", False)


def test_the_nearest_are_whole_rings_until_they_are_enough() -> None:
    near = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
    assert [len(nearest(near, limit)) for limit in (1, 2, 3, 4, 5, 6, 99)] == [1, 3, 3, 5, 5, 6, 6]
    assert nearest(near, 2) == {0: 0, 1: 1, 2: 1}


async def test_rings_stop_at_the_end_and_at_the_bound() -> None:
    asked: list[int] = []

    async def line(frontier: list[int], seen: list[int], room: int) -> list[int]:
        asked.append(room)
        return [number + 1 for number in frontier if number < 3][:room]

    assert await rings(0, 5, line) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert len(asked) == 4
    assert await rings(0, 5, line, most=3) == {0: 0, 1: 1, 2: 2}
    assert asked[-2:] == [2, 1]
    assert await rings(0, 0, line) == {0: 0}

"""Ids follow from content, and two spellings of a name share a key (cases G21 to G24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import chunk_id, entity_id, entity_no, identity_key, number_of, parse_id, show, stands_alone, text_hash


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Auth Service", "auth service"),
        ("the auth service", "auth service"),
        ("The  Auth-Service", "auth service"),
        ("İstanbul", "i stanbul"),
        ("ılık", "ılık"),
        ("東京", "東京"),
        ("Ａｕｔｈ", "auth"),
        ("ﬁle", "file"),
        ("Theory", "theory"),
        ("An apple", "apple"),
        ("A", "a"),
        ("the", "the"),
        ("C++", "c"),
        ("C#", "c"),
        ("!!!", ""),
    ],
)
def test_g21_to_g24_identity_keys(name: str, key: str) -> None:
    assert identity_key(name) == key


@given(st.text(max_size=60))
def test_a_key_is_the_key_of_itself_once_its_article_is_gone(name: str) -> None:
    key = identity_key(name)
    assert key.split() == key.split(" ") or key == ""
    assert identity_key(f"  {name}!  ") == key or key == ""


def test_composed_and_decomposed_letters_are_one_name() -> None:
    assert identity_key("Mu\u0308ller") == identity_key("M\u00fcller")


def test_public_entity_ids_are_the_golden_ones() -> None:
    assert entity_id("Character", identity_key("林默")) == "character:30488b0d0f1361fa4044bdf5"
    assert entity_id("Person", identity_key("Ａlice  Smith")) == "person:c1e4a519e393b70fa2c79cab"
    assert entity_id("Person", identity_key("alice smith")) == "person:c1e4a519e393b70fa2c79cab"


def test_homographs_of_two_types_are_two_entities() -> None:
    fruit, company = entity_id("Fruit", "apple"), entity_id("Company", "apple")
    assert fruit != company
    assert entity_no(fruit) != entity_no(company)


@given(st.integers(0, 2**63 - 1))
def test_the_wire_form_of_a_number_leads_back_to_it(number: int) -> None:
    assert parse_id(show(number)) == number


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_different_parts_never_run_into_each_other(one: list[str], other: list[str]) -> None:
    assert (number_of(*one) == number_of(*other)) == (one == other)


def test_the_same_text_twice_in_a_document_is_two_chunks() -> None:
    assert chunk_id("a", "text", 0) != chunk_id("a", "text", 1)
    assert chunk_id("a", "text", 0) != chunk_id("b", "text", 0)


def test_a_lone_surrogate_can_be_hashed() -> None:
    assert len(text_hash("\ud800")) == 16


CODE = st.builds(
    "{}.py{}".format, st.text(min_size=1, max_size=8), st.sampled_from(["", "::f", "::C.f", f"::{'ab' * 12}"])
)


@given(CODE)
def test_the_key_of_source_code_is_its_public_id(key: str) -> None:
    assert stands_alone(key)
    assert entity_id("function", key) == entity_id("class", key) == key
    assert entity_no(key) == number_of("entity", key)


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_identity_key_never_stands_alone(kind: str, name: str) -> None:
    key = identity_key(name)
    assert not stands_alone(key)
    public = entity_id(kind, key)
    assert public.endswith(":" + public[-24:])
    if not public[:-24].endswith("::"):
        assert entity_no(public) == int(public[-24:-8], 16) & ((1 << 63) - 1)


def test_names_that_look_like_digests_are_different_entities() -> None:
    name = "deadbeef" * 3
    assert entity_no(f"a.py::{name}") != entity_no(f"b.py::{name}")

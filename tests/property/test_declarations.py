"""Whatever several entries say of one search: it is merged to the same, in any order, or refused."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.declare import Knowledge, OnFailure, Search, SearchSettings, Strategy, settled
from pipeline.declare.entries import declared
from pipeline.declare.grounding import for_action, shared
from pipeline.declare.search import RULES, check_search, merged
from pipeline.errors import ConfigurationError

VALUES: dict[str, tuple[Any, Any]] = {
    "strategy": (Strategy.SEMANTIC, Strategy.HYBRID),
    "top_k": (5, 6),
    "min_score": (0.0, 0.5),
    "context_window": (500, 2_000),
    "context_format": ("${content}", "${source}: ${content}"),
    "include_spec": (False, True),
    "on_failure": (OnFailure.FAIL, OnFailure.CONTINUE),
    "deduplicate": (False, True),
    "rerank": (False, True),
    "reranker": ("small", "large"),
    "top_n": (1, 2),
    "query_expansion": ("none", "small"),
    "variants": (1, 2),
    "query_param": ("question", "topic"),
    "navigator_model": ("small", "large"),
    "time_field": ("date", "published"),
    "time_weight": (0.0, 1.0),
    "half_life_days": (1.0, 7.0),
    "window_days": (30.0, 365.0),
    "cache": (False, True),
    "cache_ttl": (1.0, 300.0),
}
"""Two values of each member."""


@st.composite
def searches(draw: st.DrawFn) -> list[Search]:
    """Return what up to five entries say: often the same, sometimes not."""
    members = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=6))
    firsts = st.sampled_from((0, 0, 0, 0, 1))
    said = st.dictionaries(st.sampled_from(members), firsts) if members else st.just({})
    entries = draw(st.lists(said, max_size=5))
    return [Search(**{member: VALUES[member][which] for member, which in one.items()}) for one in entries]


def together(found: list[Search]) -> Search | None:
    """Return what these make together; None for a conflict."""
    try:
        return merged((f"entry {number}", search) for number, search in enumerate(found))
    except ConfigurationError:
        return None


def contradict(one: Search, other: Search) -> bool:
    return any(other.given.get(member, value) != value for member, value in one.given.items())


def test_every_member_is_there() -> None:
    assert set(VALUES) == set(RULES)
    for member, values in VALUES.items():
        for value in values:
            check_search(Search(**{member: value}))


@given(searches())
def test_what_is_merged_is_all_that_was_said_or_a_conflict(found: list[Search]) -> None:
    whole = together(found)
    assert (whole is None) == any(contradict(one, other) for one, other in combinations(found, 2))
    if whole is not None:
        said = [pair for search in found for pair in search.given.items()]
        assert set(whole.given.items()) == set(said)


@given(searches(), st.randoms(use_true_random=False))
def test_the_order_of_entries_does_not_matter(found: list[Search], random: Any) -> None:
    shuffled = random.sample(found, len(found))
    assert together(found) == together(shuffled)


@given(searches())
def test_what_is_merged_can_be_merged_again(found: list[Search]) -> None:
    whole = together(found)
    if whole is not None:
        assert together([whole]) == together([whole, whole]) == together([*found, whole]) == whole
        assert together([Search(), *found, Search()]) == whole


@given(searches(), st.integers(0, 5))
def test_what_is_merged_in_parts_is_the_same(found: list[Search], cut: int) -> None:
    parts = [together(found[:cut]), together(found[cut:])]
    whole = together([part for part in parts if part is not None]) if None not in parts else None
    assert whole == together(found)


@given(searches())
def test_settings_have_what_is_given_and_can_be_settled_again(found: list[Search]) -> None:
    whole = together(found)
    if whole is None:
        return
    try:
        settings = settled(whole)
    except ConfigurationError:
        return
    assert isinstance(settings, SearchSettings)
    given = {member: value for member, value in whole.given.items() if value != "none"}
    assert given.items() <= {member: getattr(settings, member) for member in VALUES}.items()


@given(searches(), st.randoms(use_true_random=False))
def test_a_declaration_says_the_same_in_any_order(found: list[Search], random: Any) -> None:
    """An action that names all entries and overrides none is searched as the class declares, or both are refused."""
    entries = [Knowledge(f"entry {number}", path="docs", search=search) for number, search in enumerate(found)]
    shuffled = random.sample(entries, len(entries))
    names = [Knowledge(entry.name) for entry in random.sample(entries, len(entries))]
    try:
        expected = settled(shared(declared(entries)))
    except ConfigurationError:
        with pytest.raises(ConfigurationError):
            shared(declared(shuffled))
        return
    assert settled(shared(declared(shuffled))) == expected
    assert for_action(declared(shuffled), names).search == (expected if entries else None)


@given(searches(), st.sampled_from(sorted(VALUES)))
def test_an_own_search_is_whole_whatever_is_declared(found: list[Search], member: str) -> None:
    declaration = declared(
        Knowledge(f"entry {number}", path="docs", search=search) for number, search in enumerate(found or [Search()])
    )
    own = Search(top_k=3)
    names = [Knowledge(entry.name, search=own) for entry in declaration]
    search = for_action(declaration, names).search
    assert search == settled(own)
    assert getattr(search, member) == getattr(settled(own), member)

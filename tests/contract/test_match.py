"""The contract of portable MATCH, on every store that answers it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from pipeline.adapters.postgres_pool import open_pool
from pipeline.graphtools import sql_pattern, sql_rows
from pipeline.graphtools.parse import prepare
from pipeline.graphtools.sql_pattern import Pattern
from pipeline.testing.match_contract import MatchContract
from tests.match_stores import MemoryStore, PostgresStore

prepare()


class TestMemoryMatch(MatchContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


@pytest.fixture(scope="module")
async def postgres(module_database: str) -> AsyncIterator[PostgresStore]:
    async with open_pool(module_database) as pool:
        yield PostgresStore(pool)


class TestPostgresMatch(MatchContract):
    @pytest.fixture
    def store(self, postgres: PostgresStore) -> PostgresStore:
        return postgres


def without_uniqueness(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pattern, "_others", lambda *_: ())


def with_loops_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql_pattern, "_once", lambda *_: [])


def without_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pattern, "_ends", lambda *_: "")


def with_moments_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql_pattern, "compared", lambda value, _: value)


def without_a_total_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql_rows, "_element_key", lambda *_: [])


CASES = [
    (without_uniqueness, "test_no_edge_is_in_a_match_twice_but_nodes_may_be"),
    (without_uniqueness, "test_edges_differ_between_paths_and_within_them"),
    (with_loops_twice, "test_an_edge_counts_once"),
    (without_ends, "test_an_edge_is_one_of_the_view_by_both_of_its_ends"),
    (with_moments_as_they_are, "test_moments_are_compared_by_their_full_form"),
    (without_a_total_order, "test_rows_without_a_key_are_ordered_by_all_elements"),
]


@pytest.mark.parametrize(("fault", "case"), CASES)
async def test_a_store_that_is_wrong_is_found_out(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], case: str
) -> None:
    """The cases can fail."""
    await getattr(MatchContract(), case)(postgres)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        await getattr(MatchContract(), case)(postgres)

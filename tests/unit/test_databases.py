"""The name of a corpus's database, as C2 has it and as far as Neo4j takes it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigurationError
from pipeline.graphs.databases import database_name, sanitised


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Sales", "sales"),
        ("a--b  c", "a_b_c"),
        ("__x__", "x"),
        ("2024.report", "db_2024_report"),
        ("Größe", "gr_e"),
        ("x" * 70, "x" * 63),
        ("9" * 70, "db_" + "9" * 60),
    ],
)
def test_a_name_is_sanitised(name: str, expected: str) -> None:
    assert sanitised(name) == expected


@pytest.mark.parametrize("name", ["", "___", "日本", "-.-"])
def test_a_name_of_which_nothing_is_left_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no letter or digit"):
        sanitised(name)


@pytest.mark.parametrize(
    ("corpus", "prefix", "expected"),
    [
        ("Sales_2024", "sapwood_", "sapwood-sales-2024"),
        ("Sales_2024", "", "sales-2024"),
        ("2024", "", "db-2024"),
        ("2024", "Team.A_", "team.a-db-2024"),
        ("system", "sapwood_", "sapwood-system"),
    ],
)
def test_neo4j_gets_dashes(corpus: str, prefix: str, expected: str) -> None:
    assert database_name(corpus, prefix) == expected


@pytest.mark.parametrize(("corpus", "prefix"), [("ab", ""), ("systems", ""), ("x", "1"), ("x", "a b"), ("x", "ä_")])
def test_a_name_that_neo4j_refuses_is_refused_before(corpus: str, prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        database_name(corpus, prefix)


@given(st.text(min_size=1, max_size=80))
def test_what_is_accepted_is_accepted_by_neo4j(corpus: str) -> None:
    try:
        name = database_name(corpus, "sapwood_")
    except ConfigurationError:
        assert not re.search("[a-z0-9]", corpus.lower())
    else:
        assert re.fullmatch("[a-z][a-z0-9.-]{2,62}", name)

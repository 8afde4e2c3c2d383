"""The contract of portable MATCH on Neo4j, and against the reference by random queries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from pipeline.adapters.neo4j_driver import Neo4j
from pipeline.adapters.neo4j_match import Neo4jMatch
from pipeline.deadline import Deadline
from pipeline.graphs.sessions import TakerT
from pipeline.graphtools.parse import prepare
from pipeline.testing.match_contract import MatchContract
from tests.match_neo4j import Neo4jStore, open_store
from tests.neo4j_server import Neo4jServer
from tests.property.test_match_differential import Drawn, Tally, agree_anew, asked, laws, tally

__all__ = ["tally"]  # a fixture

prepare()


@pytest.fixture(scope="module")
async def neo4j(neo4j_server: Neo4jServer) -> AsyncIterator[Neo4jStore]:
    async with open_store(neo4j_server) as opened:
        yield opened


class TestNeo4jMatch(MatchContract):
    @pytest.fixture
    def store(self, neo4j: Neo4jStore) -> Neo4jStore:
        return neo4j


@settings(laws, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(asked())
async def test_neo4j_answers_as_the_reference_does(neo4j: Neo4jStore, tally: Tally, drawn: Drawn) -> None:
    await agree_anew(neo4j, drawn, tally)


class Altered:
    """Feeds from statements that somebody has written otherwise."""

    def __init__(self, sessions: Neo4j, part: str, instead: str) -> None:
        self._sessions = sessions
        self._part = part
        self._instead = instead

    async def feed(
        self,
        database: str,
        query: str,
        parameters: Mapping[str, Any],
        begin: Callable[[], TakerT],
        fetch: int,
        deadline: Deadline,
    ) -> TakerT:
        text = query.replace(self._part, self._instead)
        return await self._sessions.feed(database, text, parameters, begin, fetch, deadline)

    def database_of(self, corpus: str) -> str:
        return self._sessions.database_of(corpus)


class AlteredStore(Neo4jStore):
    """A store whose statements say something else."""

    altered: tuple[str, str] = ("", "")

    @property
    def executor(self) -> Neo4jMatch:
        """See `MatchStore`."""
        return Neo4jMatch(Altered(self.sessions, *self.altered))


CONTRACT = MatchContract()
MUTANTS = {
    (" {graph_id: $graph_id}", ""): CONTRACT.test_a_graph_is_not_another,
    ("v2.type", "'place'"): CONTRACT.test_an_edge_is_one_of_the_view_by_both_of_its_ends,
    (" LIMIT $steps", " LIMIT 1"): CONTRACT.test_sums_and_means,
    ("]->(", "]-("): CONTRACT.test_no_edge_is_in_a_match_twice_but_nodes_may_be,
    (" = false)", " = true)"): CONTRACT.test_conditions_have_three_values,
    ("count(DISTINCT ", "count("): CONTRACT.test_what_is_counted,
    ("% 4294967296)", "% 3)"): CONTRACT.test_sums_and_means,
    (" DESC", ""): CONTRACT.test_null_comes_last_and_descending_first,
    ("ORDER BY v0.entity_id", "ORDER BY v2.entity_id"): CONTRACT.test_rows_without_a_key_are_ordered_by_all_elements,
    ("SKIP $offset", "SKIP 0"): CONTRACT.test_pages_put_together_are_the_whole,
}


@pytest.mark.parametrize("altered", MUTANTS, ids=lambda one: one[0].strip())
async def test_the_contract_notices_a_statement_that_says_something_else(
    neo4j: Neo4jStore, altered: tuple[str, str]
) -> None:
    store = AlteredStore(neo4j.sessions)
    store.altered = altered
    try:
        with pytest.raises(AssertionError):
            await MUTANTS[altered](store)
    finally:
        await store.close()

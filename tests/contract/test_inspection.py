"""The contract of looking at graphs, on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.adapters.neo4j_inspection import Neo4jInspector
from pipeline.adapters.neo4j_reader import Neo4jReader
from pipeline.adapters.postgres_graph import PostgresGraph
from pipeline.adapters.postgres_inspection import PostgresEvidence, PostgresInspector
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.graphs.inspection import edge_view, entity_view
from pipeline.testing.graph_worlds import StoreWorld, soon, whole
from pipeline.testing.inspection_contract import GraphInspectorContract
from tests.contract.postgres_graphs import Loaded, PostgresWorld
from tests.neo4j_server import Neo4jServer


class TestPostgresInspector(GraphInspectorContract):
    @pytest.fixture
    async def pool(self, database: str) -> AsyncIterator[Pool]:
        async with open_pool(database) as pool:
            yield pool

    @pytest.fixture
    def world(self, pool: Pool) -> PostgresWorld:
        return PostgresWorld(pool, PostgresGraph(pool, Loaded(PostgresSnapshots(pool))))

    @pytest.fixture
    def inspector(self, pool: Pool) -> PostgresInspector:
        return PostgresInspector(pool)

    async def test_w21_w22_w23_evidence_is_by_document_and_place_and_counts_once(
        self, world: PostgresWorld, pool: Pool
    ) -> None:
        graph = await world.publish(
            "evidence", whole({3: [1], 2: [1], 9: [1], 4: [2]}, documents={"b": [9], "a": [3, 2], "c": [4]}, alone=[3])
        )
        async with pool.transaction(soon()) as tx:
            await tx.execute("insert into mention select * from mention where corpus_id = $1", graph.corpus_id)
        evidence = PostgresEvidence(pool)

        async def page(entity: int, offset: int, limit: int) -> list[int]:
            found = await evidence.sources(graph.corpus_id, graph.generation, entity, offset, limit, soon())
            assert all(one.text == "some text" and one.lines == (1, 1) for one in found)
            return [one.chunk_id for one in found]

        assert [await page(1, 0, 9), await page(1, 0, 2), await page(1, 2, 2)] == [[3, 2, 9], [3, 2], [9]]
        assert [await page(1, 9, 9), await page(3, 0, 9), await page(77, 0, 9)] == [[], [], []]
        assert await evidence.totals(graph.corpus_id, graph.generation, soon()) == (3, 4)

        later = await world.publish("evidence", whole({2: [1]}, documents={"a": [2]}))
        assert len(await evidence.sources(later.corpus_id, later.generation, 1, 0, 9, soon())) == 1
        assert await evidence.totals(later.corpus_id, later.generation, soon()) == (1, 1)


@pytest.fixture(scope="module")
async def sessions(neo4j_server: Neo4jServer) -> AsyncIterator[Neo4j]:
    async with open_neo4j(neo4j_server.config()) as opened:
        yield opened


class TestNeo4jInspector(GraphInspectorContract):
    @pytest.fixture
    async def world(self, sessions: Neo4j) -> AsyncIterator[StoreWorld]:
        world = StoreWorld(Neo4jGraph(sessions, GdsLeiden(sessions)), Neo4jReader(sessions))
        yield world
        await world.close()

    @pytest.fixture
    def inspector(self, sessions: Neo4j) -> Neo4jInspector:
        return Neo4jInspector(sessions)

    async def test_extracted_properties_are_shown_and_those_of_the_store_are_not(
        self, world: StoreWorld, inspector: Neo4jInspector
    ) -> None:
        """An entity's own file is shown rather than that of its chunk."""
        given = whole({10: [1]}, [(1, 2)])
        part = replace(
            given.part,
            entities=[
                replace(given.part.entities[0], properties={"file_path": "a.py", "lines": 7}),
                given.part.entities[1],
            ],
            relations=[replace(given.part.relations[0], properties={"since": 1969, "certain": True})],
        )
        graph = await world.publish("properties", replace(given, part=part))
        first, second = (entity_view(one) for one in await inspector.named(graph, None, "", 9, soon()))
        assert (first.file_path, second.file_path) == ("a.py", None)
        assert set(first.properties) - set(second.properties) == {"lines"}
        assert set(second.properties) == {"mentions", "chunks", "communityId", "communityPath"}
        (edge,) = await inspector.edges(graph, [1], None, soon())
        assert edge_view(edge).properties == {"since": 1969, "certain": True, "evidence": 1}

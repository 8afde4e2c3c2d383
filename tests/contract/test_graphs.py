"""The graph contracts in every backend, and machines that compare each with a plain model."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from random import Random

import pytest
from hypothesis import given, settings

from pipeline.adapters.memory_graph import MemoryGraph
from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.adapters.neo4j_reader import Neo4jReader
from pipeline.adapters.postgres_graph import PostgresGraph
from pipeline.adapters.postgres_pool import open_pool
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.deadline import Deadline
from pipeline.errors import InconsistentGeneration
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.plain import PlainGraph
from pipeline.retrieval.snapshots import open_snapshots
from pipeline.retrieval.walk import Bounds
from pipeline.testing.graph_contract import FINE, SMALL, GraphReaderContract
from pipeline.testing.graph_model import READER_OPS, STORE_OPS, GraphMachine, Op, StoreMachine, operations
from pipeline.testing.graph_store_contract import GraphStoreContract
from pipeline.testing.graph_worlds import StoreWorld, contents
from schemas.graph import Relation
from tests.contract.postgres_graphs import Loaded, PostgresWorld
from tests.neo4j_server import Neo4jServer

SERVER = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=FINE)
_names = itertools.count(1)


async def drive(machine: GraphMachine, ops: list[Op]) -> None:
    for op in ops:
        await machine.do(op)
    await machine.check()


def memory() -> StoreWorld:
    graphs = MemoryGraph()
    return StoreWorld(graphs, graphs)


class TestMemoryReader(GraphReaderContract):
    @pytest.fixture
    def world(self) -> StoreWorld:
        return memory()


class TestMemoryStore(GraphStoreContract):
    @pytest.fixture
    def world(self) -> StoreWorld:
        return memory()


@settings(deadline=None)
@given(ops=operations(STORE_OPS, 60))
async def test_memory_is_as_the_model_says_after_any_operations(ops: list[Op]) -> None:
    world = memory()
    await drive(StoreMachine(world, "machine", stores=world), ops)


class Unfenced(MemoryGraph):
    """Obeys whoever comes."""

    def _own(self, graph: GraphRef, fence: int) -> PlainGraph:
        return self._graphs[graph.graph_id].rows if graph.graph_id in self._graphs else PlainGraph()


class Mixing(MemoryGraph):
    """Reads the newest generation whatever is asked for."""

    def _rows(self, graph: GraphRef) -> PlainGraph:
        return list(self._graphs.values())[-1].rows


class Hoarding(MemoryGraph):
    """Does not drop."""

    async def drop(self, corpus: str, graph_id: str, deadline: Deadline) -> int:
        return 0


class Hasty(MemoryGraph):
    """Loses the last of each page."""

    async def relations(
        self, graph: GraphRef, after: tuple[int, int, str] | None, limit: int, deadline: Deadline
    ) -> list[Relation]:
        return (await super().relations(graph, after, limit + 1, deadline))[:-1]


@pytest.mark.parametrize("broken", [MemoryGraph, Unfenced, Mixing, Hoarding, Hasty])
async def test_the_model_notices_a_store_that_is_broken(broken: type[MemoryGraph]) -> None:
    """And nothing in one that is not."""
    dice, graphs = Random(19), broken()
    world = StoreWorld(graphs, graphs)
    ops = [(dice.choice(STORE_OPS), dice.randrange(31), dice.randrange(31)) for _ in range(300)]
    noticed: AbstractContextManager[object] = pytest.raises((AssertionError, InconsistentGeneration))
    if broken is MemoryGraph:
        noticed = nullcontext()
    with noticed:
        await drive(StoreMachine(world, "machine", stores=world), ops)


class TestPostgresReader(GraphReaderContract):
    @pytest.fixture
    async def world(self, database: str) -> AsyncIterator[PostgresWorld]:
        async with open_pool(database) as pool:
            yield PostgresWorld(pool, PostgresGraph(pool, Loaded(PostgresSnapshots(pool))))

    async def test_generations_share_the_rows_that_did_not_change(self, world: PostgresWorld) -> None:
        """Else the suite would say little about versions."""
        part = SMALL.part
        documents = {chunk.document for chunk in part.chunks}
        rows = sum(map(len, (documents, part.chunks, part.entities, part.relations, SMALL.paths)))
        for times in range(3):
            graph = await world.publish("shared", SMALL)
            assert await contents(world.reader, graph) == SMALL.contents
            assert world.shared == times * rows


@SERVER
@given(ops=operations(READER_OPS, 60))
async def test_postgres_is_as_the_model_says_after_any_operations(database: str, ops: list[Op]) -> None:
    async with open_pool(database) as pool, open_snapshots(PostgresSnapshots(pool), 1 << 28) as snapshots:
        world = PostgresWorld(pool, PostgresGraph(pool, snapshots))
        await drive(GraphMachine(world, f"machine{next(_names)}"), ops)


@pytest.fixture(scope="module")
async def sessions(neo4j_server: Neo4jServer) -> AsyncIterator[Neo4j]:
    async with open_neo4j(neo4j_server.config()) as opened:
        yield opened


@pytest.fixture
async def neo4j(sessions: Neo4j) -> AsyncIterator[StoreWorld]:
    def store(bounds: Bounds) -> Neo4jGraph:
        return Neo4jGraph(sessions, GdsLeiden(sessions), bounds.fan, bounds.entity_chunks)

    world = StoreWorld(store(Bounds()), Neo4jReader(sessions), store)
    yield world
    await world.close()


class TestNeo4jReader(GraphReaderContract):
    @pytest.fixture
    def world(self, neo4j: StoreWorld) -> StoreWorld:
        return neo4j


class TestNeo4jStore(GraphStoreContract):
    @pytest.fixture
    def world(self, neo4j: StoreWorld) -> StoreWorld:
        return neo4j


@SERVER
@given(ops=operations(STORE_OPS, 40))
async def test_neo4j_is_as_the_model_says_after_any_operations(neo4j: StoreWorld, ops: list[Op]) -> None:
    await drive(StoreMachine(neo4j, f"machine{next(_names)}", stores=neo4j), ops)

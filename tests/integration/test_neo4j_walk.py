"""The walk on a real Neo4j: every form of its statement, what it reads at most, and what it never reads.

That it answers like plain Python on generated graphs is in the contract suite.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pipeline.adapters import neo4j_reader
from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.adapters.neo4j_reader import Neo4jReader
from pipeline.deadline import Deadline
from pipeline.errors import InconsistentGeneration
from pipeline.graphs.parts import GraphRef
from pipeline.retrieval.walk import Bounds, Limits
from pipeline.testing.graph_worlds import StoreWorld, Whole, shown, soon, whole
from tests.neo4j_server import Neo4jServer

A, B, C, D = 1, 2, 3, 4
LIMITS = Limits(max_hops=2, window=1, cap=50, top_k=30, communities=True)
SEEK = {"NodeUniqueIndexSeek", "NodeIndexSeek"}
LEAVES = {"Argument", "Unwind", "EmptyRow"}


@dataclass(frozen=True, slots=True)
class Watched:
    """Sessions that keep the last statement with its parameters."""

    sessions: Any
    seen: list[tuple[str, dict[str, Any]]]

    def database_of(self, corpus: str) -> str:
        return str(self.sessions.database_of(corpus))

    async def write(self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline) -> Any:
        return await self.sessions.write(database, query, parameters, deadline)

    async def read(self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline) -> Any:
        self.seen.append((query, dict(parameters)))
        return await self.sessions.read(database, query, parameters, deadline)


@dataclass(frozen=True, slots=True)
class Place:
    """A world on the server, what its reader asked, and a look from outside."""

    world: StoreWorld
    watched: Watched
    server: Neo4jServer

    async def run(self, query: str, **parameters: Any) -> Any:
        """Run a statement past the adapters and return its summary."""
        async with self.server.raw() as driver:
            return (await driver.execute_query(query, parameters, database_=self.server.database)).summary

    async def work(self, graph: GraphRef, seeds: list[tuple[int, float]], limits: Limits) -> list[dict[str, Any]]:
        """Return the operators of the plan that a walk was made by, with the rows and hits of each."""
        self.watched.seen.clear()
        await self.world.reader.expand(graph, seeds, limits, None, soon())
        ((query, parameters),) = self.watched.seen
        return list(operators((await self.run(f"PROFILE {query}", **parameters)).profile))


def operators(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("children", []):
        yield from operators(child)


def name(operator: dict[str, Any]) -> str:
    return str(operator["operatorType"]).partition("(")[0].partition("@")[0]


def hits(plan: list[dict[str, Any]]) -> int:
    return sum(operator.get("dbHits", 0) for operator in plan)


@pytest.fixture
async def place(neo4j_server: Neo4jServer) -> AsyncIterator[Place]:
    async with open_neo4j(neo4j_server.config()) as sessions:
        watched = Watched(sessions, [])

        def store(bounds: Bounds) -> Neo4jGraph:
            return Neo4jGraph(sessions, GdsLeiden(sessions), bounds.fan, bounds.entity_chunks)

        world = StoreWorld(store(Bounds()), Neo4jReader(watched), store)
        try:
            yield Place(world, watched, neo4j_server)
        finally:
            await world.close()


def crowded() -> Whole:
    """Return a graph of some hundred rows in which every bound can be run into."""
    random = np.random.default_rng(4)

    def some(n: int, most: int) -> list[int]:
        """Return numbers of which the low ones are much more frequent."""
        return [int(number) for number in most * random.random(n) ** 3]

    mentions: dict[int, list[int]] = {chunk: [] for chunk in range(200)}
    for chunk, number in zip(random.integers(0, 200, 500).tolist(), some(500, 120), strict=True):
        mentions[chunk].append(number)
    edges = [(a, b, f"t{n % 3}") for n, (a, b) in enumerate(zip(some(400, 120), some(400, 120), strict=True))]
    documents = {f"d{n}": list(range(n, 200, 10)) for n in range(10)}
    return whole(
        {chunk: sorted(set(named)) for chunk, named in mentions.items()},
        sorted(set(edges)),
        documents=documents,
        alone=range(120),
        paths={n: (n % 2, 1000 + n % 7) for n in range(120)},
    )


BOUNDS = (
    Bounds(),
    Bounds(
        seeds=6,
        fan=8,
        step_edges=24,
        entity_chunks=5,
        chunk_links=40,
        members=9,
        community_links=20,
        community_chunks=3,
    ),
)


@pytest.mark.parametrize("bounds", BOUNDS)
async def test_every_form_of_the_statement_answers_like_plain_python(
    place: Place, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hops 0 to 5, with and without window, communities and filter, told to the server or not; few and many seeds."""
    wanted = crowded()
    graph = await place.world.bounded(bounds).publish("crowd", wanted)
    plain = wanted.plain
    for hops, window, communities, filtered in itertools.product(range(6), (0, 3), (False, True), (None, 0, 1_000)):
        limits = Limits(hops, window, 7 + 60 * (hops % 2), 10, communities, bounds)
        stride = 1 + (window > 0)
        seeds = [(chunk, 0.7 - chunk / 100) for chunk in range(5 * hops, 5 * hops + 30 * stride, stride)]
        seeds = seeds[:3] if hops == 2 else seeds
        allowed = None if filtered is None else np.arange(0, 200, 3)
        monkeypatch.setattr(neo4j_reader, "FILTER", filtered)
        found = await place.world.reader.expand(graph, seeds, limits, allowed, soon())
        assert shown(found) == shown(plain.expand(seeds, limits, None if allowed is None else set(allowed.tolist())))
        assert len(found.rows) > 0


async def test_w10_counters_of_one_seed_one_relation_and_one_hit_beside_another_generation(place: Place) -> None:
    other = whole({10: [A, B], 20: [A], 30: [B]}, [(A, B), (B, C)])
    await place.world.publish("corpus", other)
    graph = await place.world.publish("corpus", whole({10: [A], 20: [B]}, [(A, B)]))
    await place.world.publish("corpus", other)
    found = await place.world.reader.expand(graph, [(10, 1.0)], LIMITS, None, soon())
    assert found.rows.tolist() == [20]
    assert found.counters == {
        "seed_chunks": 1,
        "resolved_entities": 2,
        "relationship_expansion_hits": 1,
        "community_expansion_hits": 0,
        "seeds_cut_short": 0,
    }


async def test_a_seed_under_another_join_id_is_an_inconsistent_generation(place: Place) -> None:
    """C1: the join is checked on both sides. As it was, the same question is answered."""
    graph = await place.world.publish("joined", whole({10: [A], 20: [A]}))
    found = await place.world.reader.expand(graph, [(10, 1.0)], LIMITS, None, soon())
    assert found.rows.tolist() == [20]
    rename = "MATCH (c:SapwoodChunk {graph_id: $graph_id, id: 10}) SET c.graph_join_id = $join"
    await place.run(rename, graph_id=graph.graph_id, join=f"{graph.graph_id[:-1]}2:{10:016x}")
    with pytest.raises(InconsistentGeneration, match="lacks a chunk"):
        await place.world.reader.expand(graph, [(10, 1.0)], LIMITS, None, soon())
    await place.run(rename, graph_id=graph.graph_id, join=f"{graph.graph_id}:{10:016x}")
    assert (await place.world.reader.expand(graph, [(10, 1.0)], LIMITS, None, soon())).rows.tolist() == [20]


STRAYS = """
MATCH (a:SapwoodEntity {graph_id: $one, no: 1}), (f:SapwoodEntity {graph_id: $two, no: 2})
MATCH (c:SapwoodChunk {graph_id: $one, id: 10}), (g:SapwoodChunk {graph_id: $two, id: 30})
CREATE (a)-[:NEAR {graph_id: $one, weight: 9, rank: 0}]->(f), (a)-[:FROM_CHUNK {graph_id: $one}]->(g),
    (f)-[:FROM_CHUNK {graph_id: $one}]->(c), (a)-[:RELATES {graph_id: $one, type: 'x', weight: 1.0, evidence: 1}]->(f)
CREATE (c)-[:NEXT_CHUNK {graph_id: $one}]->(g)
"""


async def test_nothing_of_another_graph_is_read_even_where_it_is_tied_to_this_one(place: Place) -> None:
    """Such ties keep a graph from being published; should there be any, walks and pages pass them by."""
    ours = whole({10: [A], 20: [A], 21: []}, documents={"d": [20, 21]}, paths={A: (5,)})
    theirs = whole({10: [A], 30: [B], 31: [B]}, [(A, B)], documents={"d": [30, 31]}, paths={A: (5,), B: (5,)})
    one, two = await place.world.publish("ours", ours), await place.world.publish("theirs", theirs)
    before = shown(await place.world.reader.expand(one, [(10, 1.0)], LIMITS, None, soon()))
    assert [row[0] for row in before[0]] == [20, 21]
    await place.run(STRAYS, one=one.graph_id, two=two.graph_id)
    assert shown(await place.world.reader.expand(one, [(10, 1.0)], LIMITS, None, soon())) == before
    assert await place.world.reader.relations(one, None, 9, soon()) == []


async def test_nodes_are_sought_by_index_only(place: Place) -> None:
    """No label is scanned, whatever the form of the statement; a small graph is no excuse."""
    graph = await place.world.publish("sought", crowded())
    for hops, window, communities in itertools.product(range(6), (0, 3), (False, True)):
        asked = replace(LIMITS, max_hops=hops, window=window, communities=communities)
        plan = await place.work(graph, [(chunk, 0.5) for chunk in range(20)], asked)
        leaves = {name(operator) for operator in plan if not operator.get("children")}
        assert leaves <= SEEK | LEAVES, leaves


async def test_a_larger_hub_costs_no_more(place: Place) -> None:
    """One of twice as many neighbours, chunks and companions in its community than a walk reads costs the same."""
    cost: list[int] = []
    for size in (1_100, 2_200):
        spokes = [(A, n) for n in range(100, 100 + size)]
        crowd = {n: [A] for n in range(10_000, 10_000 + size)}
        paths = dict.fromkeys([A, *range(100, 100 + size)], (7,))
        graph = await place.world.publish(f"hub{size}", whole({1: [A], **crowd}, spokes, paths=paths))
        asked = replace(LIMITS, cap=1000, top_k=2000)
        cost.append(hits(await place.work(graph, [(1, 1.0)], asked)))
    assert cost[0] == cost[1]

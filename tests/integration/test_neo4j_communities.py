"""Communities by Leiden in Neo4j: the contract, what they have to do with ours, and what is left behind: nothing."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import numpy as np
import pytest

from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, InconsistentGeneration, StoreUnavailable
from pipeline.graphs.parts import GraphPart, GraphRef
from pipeline.ingest.communities import Partition, detect, partition
from pipeline.queries import load_cypher
from pipeline.testing.communities_contract import CommunitiesContract, Edge, Find, caves, check
from pipeline.testing.partitions import adjusted_rand, modularity
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, EntityNo
from tests.neo4j_server import Neo4jServer

CYPHER = load_cypher("communities")
FENCE = 1


def soon() -> Deadline:
    return Deadline.after(60)


def rows(nodes: Sequence[int], edges: Sequence[Edge]) -> GraphPart:
    entities = [Entity(EntityNo(n), f"thing:{n:x}", "thing", f"key {n}", f"Name {n}") for n in nodes]
    return GraphPart(
        entities=entities, relations=[Relation(EntityNo(s), EntityNo(t), kind, 1.0, e) for s, t, kind, e in edges]
    )


@pytest.fixture
async def sessions(neo4j_server: Neo4jServer) -> AsyncIterator[Neo4j]:
    async with open_neo4j(neo4j_server.config()) as opened:
        yield opened


class Place:
    """Graphs of one test, each with a uid of its own."""

    def __init__(self, sessions: Neo4j) -> None:
        self.sessions = sessions
        self.store = Neo4jGraph(sessions, GdsLeiden(sessions))
        self.made: list[GraphRef] = []

    async def graph(self, nodes: Sequence[int], edges: Sequence[Edge], size: int = 10_000) -> GraphRef:
        """Write and seal a graph, in parts of this many relations."""
        graph = GraphRef(CorpusId(1), 1, "communities", f"{uuid.uuid4().hex}-1")
        self.made.append(graph)
        await self.store.open(graph, FENCE, soon())
        whole = rows(nodes, edges)
        await self.store.write(graph, FENCE, GraphPart(entities=whole.entities), soon())
        for start in range(0, len(edges), size):
            part = GraphPart(relations=whole.relations[start : start + size])
            await self.store.write(graph, FENCE, part, soon())
        await self.store.seal(graph, FENCE, soon())
        return graph

    async def projections(self) -> list[str]:
        listed = "CALL gds.graph.list() YIELD graphName RETURN graphName AS name"
        return [row["name"] for row in await self.ask(listed)]

    async def ask(self, query: str, **values: Any) -> list[dict[str, Any]]:
        database = self.sessions.database_of("communities")
        return await self.sessions.write(database, query, values, soon())


@pytest.fixture
async def place(sessions: Neo4j) -> AsyncIterator[Place]:
    made = Place(sessions)
    yield made
    for graph in made.made:
        await made.store.drop(graph.corpus, graph.graph_id, soon())


class TestGds(CommunitiesContract):
    @pytest.fixture
    def find(self, place: Place) -> Find:
        async def find(nodes: Sequence[int], edges: Sequence[Edge]) -> Partition:
            graph = await place.graph(nodes, edges)
            clusters = await place.store.cluster(graph, soon())
            found = partition(np.array(list(nodes), dtype=np.int64), clusters)
            paths = dict(zip(found.entities.tolist(), found.paths, strict=True))
            await place.store.place(graph, FENCE, paths, soon())
            assert (await place.store.totals(graph, soon())).placed == len(nodes)
            assert await place.projections() == []
            return found

        return find


async def test_w33_the_same_graph_has_the_same_clusters_however_it_came_to_be(place: Place) -> None:
    """Another order of rows, in small parts, among nodes and relations that were deleted: to the last label."""
    edges = caves(40, 6)
    nodes = list(range(240))
    first = await place.graph(nodes, edges)
    going = await place.graph(nodes[::2], [])
    between = await place.graph(nodes, edges[::3])
    await place.store.drop(going.corpus, going.graph_id, soon())
    second = await place.graph(nodes[::-1], edges[::-1], 50)
    await place.store.drop(between.corpus, between.graph_id, soon())
    third = await place.graph(nodes[1::2] + nodes[::2], edges[1::2] + edges[::2], 70)
    found = [await place.store.cluster(graph, soon()) for graph in (first, first, second, third)]
    assert all(one == found[0] for one in found)
    assert found[0].paths.keys() == set(nodes)


async def test_the_order_of_projected_pairs_is_what_that_hangs_on(place: Place) -> None:
    """The negative control: unsorted, the library finds something else for the same graph."""
    edges = caves(300, 6, seed=3)
    graph = await place.graph(range(1800), edges)
    backwards = CYPHER["project"].replace("ORDER BY low, high", "ORDER BY high DESC, low DESC")
    assert backwards != CYPHER["project"]
    found: list[dict[int, list[int]]] = []
    for turn, query in enumerate((CYPHER["project"], CYPHER["project"], backwards)):
        name = f"sapwood_{uuid.uuid4().hex}"
        await place.ask(query, graph_id=graph.graph_id, name=name)
        await place.ask(CYPHER["leiden"], name=name, seed=19)
        found.append({row["no"]: row["levels"] for row in await place.ask(CYPHER["levels"], name=name)})
        await place.ask(CYPHER["drop_projection"], name=name)
        assert len(found[turn]) == 1800
    assert found[0] == found[1] != found[2]


async def test_both_implementations_agree_on_planted_communities(place: Place) -> None:
    """On 60 caves: both find them, and are as modular as each other."""
    edges = caves(60, 8)
    nodes = np.arange(480)
    ours = detect(nodes, np.array([(s, t, e) for s, t, _, e in edges]), 10)
    theirs = partition(nodes, await place.store.cluster(await place.graph(range(480), edges), soon()))
    check(theirs, range(480))
    weighted = np.array([(s, t, e) for s, t, _, e in edges])
    top = [[path[0] for path in one.paths] for one in (ours, theirs)]
    last = [[path[-1] for path in one.paths] for one in (ours, theirs)]
    measured = [modularity(nodes, weighted, labels) for labels in top]
    assert measured == pytest.approx([ours.modularity, theirs.modularity])
    assert abs(measured[0] - measured[1]) < 0.05
    assert adjusted_rand(*top) > 0.5
    assert adjusted_rand(last[1], [n // 8 for n in range(480)]) > 0.9


async def test_w31_without_relations_the_library_is_not_asked(place: Place) -> None:
    """So it need not be there."""
    graph = await place.graph([1, 2], [(1, 1, "self", 1)])
    clusters = await GdsLeiden(Instead(place.sessions, {"has_gds": []})).cluster(graph, soon())
    assert (clusters.paths, clusters.modularity) == ({}, 0.0)


class Instead:
    """Sessions in which some statements have another answer, or fail."""

    def __init__(self, sessions: Neo4j, answers: Mapping[str, list[dict[str, Any]] | Exception]) -> None:
        self.sessions = sessions
        self.answers = {CYPHER[name]: answer for name, answer in answers.items()}
        self.asked: list[str] = []

    async def read(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        return await self.sessions.read(database, query, parameters, deadline)

    async def write(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        self.asked.append(query)
        answer = self.answers.get(query)
        if isinstance(answer, Exception):
            raise answer
        return await self.sessions.write(database, query, parameters, deadline) if answer is None else answer

    def database_of(self, corpus: str) -> str:
        return self.sessions.database_of(corpus)


@pytest.mark.parametrize(
    ("answers", "found"),
    [({"has_gds": []}, "none"), ({"gds_version": [{"version": "2.12.4"}]}, "2.12.4")],
    ids=["missing", "2.12"],
)
async def test_w32_another_version_of_the_library_is_refused(
    place: Place, answers: dict[str, list[dict[str, Any]]], found: str
) -> None:
    graph = await place.graph([1, 2], [(1, 2, "knows", 1)])
    with pytest.raises(ConfigurationError, match=rf"GDS 2\.13\.x is required for Leiden; found {found}$"):
        await GdsLeiden(Instead(place.sessions, answers)).cluster(graph, soon())


async def test_w34_projections_have_names_of_their_own(place: Place) -> None:
    graph = await place.graph([1, 2], [(1, 2, "knows", 1)])
    names: list[str] = []

    class Listening(Instead):
        async def write(
            self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
        ) -> list[dict[str, Any]]:
            names.extend([parameters["name"]] if query == CYPHER["project"] else [])
            return await super().write(database, query, parameters, deadline)

    for _ in range(2):
        await GdsLeiden(Listening(place.sessions, {})).cluster(graph, soon())
    first, second = names
    assert first != second
    assert all(name.startswith("sapwood_") and len(name) == 40 and int(name[8:], 16) for name in names)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("leiden", StoreUnavailable("The graph store is down.")),
        ("levels", StoreUnavailable("The graph store is down.")),
        ("levels", [{"no": 1, "levels": [1]}]),
        ("levels", [{"no": 1, "levels": [1]}, {"no": 2, "levels": []}]),
    ],
    ids=["failed", "failed late", "one is missing", "one is empty"],
)
async def test_whatever_happens_the_projection_is_gone(place: Place, name: str, answer: Any) -> None:
    """And what comes out is complete or an error."""
    graph = await place.graph([1, 2], [(1, 2, "knows", 1)])
    error = StoreUnavailable if isinstance(answer, Exception) else InconsistentGeneration
    text = "down" if isinstance(answer, Exception) else r"properties: eligible=2 paths=1 ids=\d written=\d$"
    with pytest.raises(error, match=text):
        await GdsLeiden(Instead(place.sessions, {name: answer})).cluster(graph, soon())
    assert await place.projections() == []


async def test_a_cancelled_clustering_leaves_no_projection(place: Place) -> None:
    graph = await place.graph([1, 2], [(1, 2, "knows", 1)])
    reached = anyio.Event()

    class Stuck(Instead):
        async def write(
            self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
        ) -> list[dict[str, Any]]:
            found = await super().write(database, query, parameters, deadline)
            if query == CYPHER["project"]:
                assert len(await place.projections()) == 1
                reached.set()
                await anyio.sleep_forever()
            return found

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(GdsLeiden(Stuck(place.sessions, {})).cluster, graph, soon())
        await reached.wait()
        tasks.cancel_scope.cancel()
    assert await place.projections() == []


async def test_a_projection_that_cannot_be_dropped_is_an_error_only_if_nothing_else_was(place: Place) -> None:
    graph = await place.graph([1, 2], [(1, 2, "knows", 1)])
    stays, first = StoreUnavailable("It stays."), StoreUnavailable("The graph store is down.")
    for answers, text in (({"drop_projection": stays}, "stays"), ({"leiden": first, "drop_projection": stays}, "down")):
        with pytest.raises(StoreUnavailable, match=text):
            await GdsLeiden(Instead(place.sessions, answers)).cluster(graph, soon())
        (left,) = await place.projections()
        await place.ask(CYPHER["drop_projection"], name=left)


async def test_what_killed_workers_left_is_dropped_when_it_is_old(place: Place) -> None:
    """Ours only, by the form of the name; a young one may be in use."""
    graph = await place.graph([1, 2], [(1, 2, "knows", 1)])
    ours, others = f"sapwood_{uuid.uuid4().hex}", f"somebody_{uuid.uuid4().hex}"
    for name in (ours, others):
        await place.ask(CYPHER["project"], graph_id=graph.graph_id, name=name)
    leiden = GdsLeiden(place.sessions)
    await leiden.cluster(graph, soon())
    assert set(await place.projections()) == {ours, others}
    aged = GdsLeiden(Instead(place.sessions, {"stale_projections": await old(place)}))
    await aged.cluster(graph, soon())
    assert await place.projections() == [others]
    await place.ask(CYPHER["drop_projection"], name=others)


async def old(place: Place) -> list[dict[str, Any]]:
    """Return what would be stale if everything were old."""
    return await place.ask(CYPHER["stale_projections"], seconds=-1)

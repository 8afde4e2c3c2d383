"""What is particular about graphs in Neo4j: fences under concurrency, what lies in the database, and what is left there."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from pipeline.adapters import neo4j_graph
from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.deadline import Deadline
from pipeline.errors import FencedOut, InvalidRequest
from pipeline.graphs.columns import ENTITY_COLUMNS, RELATION_COLUMNS
from pipeline.graphs.parts import RESERVED, GraphChunk, GraphMention, GraphPart, GraphRef, GraphTotals
from pipeline.queries import load_cypher
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, EntityNo, graph_join_id
from tests.neo4j_server import Neo4jServer

CYPHER = load_cypher("graph")
NODES = "MATCH (n) WHERE n.graph_id = $graph_id RETURN count(n) AS nodes"


def soon() -> Deadline:
    return Deadline.after(60)


def entity(number: int, **properties: Any) -> Entity:
    return Entity(EntityNo(number), f"thing:{number:x}", "a`b", f"key {number}", "C:\\dir", properties=properties)


def relation(source: int, target: int, kind: str = "knows", **properties: Any) -> Relation:
    return Relation(EntityNo(source), EntityNo(target), kind, 0.5, 2, properties)


SMALL = GraphPart(
    [GraphChunk(10, "d", 1), GraphChunk(20, "d", 0), GraphChunk(30, "d", 2), GraphChunk(40, "e", 0)],
    [entity(number) for number in range(1, 6)],
    [
        relation(1, 2),
        relation(2, 1),
        relation(1, 2, "attribute, process"),
        relation(1, 3),
        relation(3, 3),
        relation(4, 1),
    ],
    [GraphMention(10, 1), GraphMention(10, 1), GraphMention(20, 1), GraphMention(30, 1), GraphMention(40, 2)],
)
TOTALS = GraphTotals(chunks=4, entities=5, relations=6, mentions=4)
PATHS = {number: (7, number % 2) for number in range(1, 6)}


@pytest.fixture
async def sessions(neo4j_server: Neo4jServer) -> AsyncIterator[Neo4j]:
    async with open_neo4j(neo4j_server.config()) as opened:
        yield opened


class Place:
    """A store and graphs of one test, each with a uid of its own."""

    def __init__(self, sessions: Neo4j) -> None:
        self.sessions = sessions
        self.made: list[GraphRef] = []
        self.store = self.other()

    def other(self, **bounds: int) -> Neo4jGraph:
        return Neo4jGraph(self.sessions, GdsLeiden(self.sessions), **bounds)

    async def graph(self, part: GraphPart = SMALL, store: Neo4jGraph | None = None) -> GraphRef:
        """Open, write and seal a graph with fence 1."""
        graph = GraphRef(CorpusId(1), 1, "graphs", f"{uuid.uuid4().hex}-1")
        self.made.append(graph)
        store = store or self.store
        await store.open(graph, 1, soon())
        await store.write(graph, 1, part, soon())
        await store.seal(graph, 1, soon())
        return graph

    async def ask(self, query: str, graph: GraphRef | None = None, **values: Any) -> list[dict[str, Any]]:
        scope = {"graph_id": graph.graph_id} if graph else {}
        return await self.sessions.write(self.sessions.database_of("graphs"), query, {**scope, **values}, soon())


@pytest.fixture
async def place(sessions: Neo4j) -> AsyncIterator[Place]:
    made = Place(sessions)
    yield made
    for graph in made.made:
        await made.store.drop(graph.corpus, graph.graph_id, soon())
        assert (await made.ask(NODES, graph))[0]["nodes"] == 0


# What lies in the database


async def test_what_a_sealed_graph_is_made_of(place: Place) -> None:
    """Every node and relationship is stamped; lists of neighbours, chunks in order, and nothing else."""
    graph = await place.graph()
    stamps = "MATCH (n)-[r]->(m) WHERE n.graph_id = $graph_id RETURN DISTINCT r.graph_id AS r, m.graph_id AS m"
    assert await place.ask(stamps, graph) == [{"r": graph.graph_id, "m": graph.graph_id}]
    kinds = "MATCH (n)-[r]->() WHERE n.graph_id = $graph_id RETURN type(r) AS kind, count(*) AS n ORDER BY kind"
    assert {row["kind"]: row["n"] for row in await place.ask(kinds, graph)} == {
        "FROM_CHUNK": 4, "NEAR": 6, "NEXT_CHUNK": 2, "RELATES": 6,
    }  # fmt: skip
    near = (
        "MATCH (e:SapwoodEntity {graph_id: $graph_id})-[r:NEAR]->(n) "
        "RETURN e.no AS e, r.rank AS rank, n.no AS n, r.weight AS weight ORDER BY e, rank"
    )
    found = [tuple(row.values()) for row in await place.ask(near, graph)]
    assert found == [(1, 0, 2, 3), (1, 1, 3, 1), (1, 2, 4, 1), (2, 0, 1, 3), (3, 0, 1, 1), (4, 0, 1, 1)]
    counts = (
        "MATCH (e:SapwoodEntity {graph_id: $graph_id}) "
        "RETURN e.no AS e, e.fan AS fan, e.degree AS degree, e.links AS links ORDER BY e"
    )
    assert [tuple(row.values()) for row in await place.ask(counts, graph)] == [
        (1, 3, 3, 3), (2, 1, 1, 1), (3, 1, 1, 0), (4, 1, 1, 0), (5, 0, 0, 0),
    ]  # fmt: skip
    path = "MATCH (a)-[:NEXT_CHUNK]->(b) WHERE a.graph_id = $graph_id RETURN a.id AS a, b.id AS b, a.graph_join_id AS j"
    found = sorted(tuple(row.values()) for row in await place.ask(path, graph))
    assert found == [(10, 30, graph_join_id(graph.graph_id, 10)), (20, 10, graph_join_id(graph.graph_id, 20))]


async def test_what_was_extracted_makes_no_label_and_no_type(place: Place) -> None:
    """Types, and names of properties, are data, so nobody can inject a token or use them up."""
    hostile = "x`) DETACH DELETE n //"
    part = GraphPart(
        entities=[entity(1, **{hostile: "C:\\dir", "x|y": 1.5}), entity(2)],
        relations=[relation(1, 2, hostile, **{hostile: 1})],
    )
    graph = await place.graph(part)
    found = await place.ask("MATCH (e {graph_id: $graph_id, no: 1})-[r:RELATES]->() RETURN e, labels(e) AS l, r", graph)
    assert found[0]["l"] == ["SapwoodEntity"]
    assert found[0]["e"][hostile] == "C:\\dir"
    labels = "CALL db.labels() YIELD label AS name RETURN name"
    types = "CALL db.relationshipTypes() YIELD relationshipType AS name RETURN name"
    for names in (labels, types):
        assert not [row for row in await place.ask(names) if hostile in row["name"] or "`" in row["name"]]


async def test_the_schema_is_made_once_and_is_there_when_a_graph_is_open(place: Place) -> None:
    await place.graph()
    await place.other().open(place.made[0], 1, soon())
    states = await place.ask("SHOW INDEXES YIELD name, state WHERE name STARTS WITH 'sapwood_' RETURN name, state")
    assert {row["name"] for row in states} == {
        "sapwood_graph", "sapwood_entity", "sapwood_chunk", "sapwood_graph_uid", "sapwood_entity_type",
        "sapwood_entity_community", "sapwood_entity_id", "sapwood_entity_name", "sapwood_chunk_place",
    }  # fmt: skip
    assert {row["state"] for row in states} == {"ONLINE"}


@pytest.mark.parametrize("key", sorted(RESERVED | ENTITY_COLUMNS))
async def test_w47_keys_of_ours_are_refused_before_any_statement(place: Place, key: str) -> None:
    """Nothing is asked of the server, so there need not be one."""
    store = Neo4jGraph(None, None)  # type: ignore[arg-type]
    graph = GraphRef(CorpusId(1), 1, "graphs", f"{uuid.uuid4().hex}-1")
    parts = [GraphPart(entities=[entity(1, **{key: "x"})])]
    if key in RESERVED | RELATION_COLUMNS:
        parts.append(GraphPart(relations=[relation(1, 2, **{key: "x"})]))
    for part in parts:
        with pytest.raises(InvalidRequest, match=f"contains reserved .*{key}"):
            await store.write(graph, 1, part, soon())


@pytest.mark.parametrize(
    "properties", [{"": 1}, {"x": None}, {"x": [1]}, {"x": {}}, {"x": 2**63}, {"x": b"y"}], ids=repr
)
async def test_only_scalars_with_a_name_are_properties(place: Place, properties: dict[str, Any]) -> None:
    """They are refused before any statement; their like is stored as it is."""
    store = Neo4jGraph(None, None)  # type: ignore[arg-type]
    graph = GraphRef(CorpusId(1), 1, "graphs", f"{uuid.uuid4().hex}-1")
    for part in (
        GraphPart(entities=[entity(1, **properties)]),
        GraphPart(relations=[relation(1, 1, "knows", **properties)]),
    ):
        with pytest.raises(InvalidRequest, match=r"'(C:\\\\dir|knows)' contains"):
            await store.write(graph, 1, part, soon())
    kept = {"x": 2**63 - 1, "y": -(2**63), "z": 0.1, " ": "", "on": False}
    graph = await place.graph(GraphPart(entities=[entity(1, **kept)]))
    (found,) = await place.ask("MATCH (e:SapwoodEntity {graph_id: $graph_id}) RETURN properties(e) AS kept", graph)
    assert {key: found["kept"][key] for key in kept} == kept


@pytest.mark.parametrize("start", ["", "n" * 99, "n" * 98 + "\U0001f600"], ids=["short", "cut", "cut after a pair"])
async def test_a_name_of_any_length_is_kept_whole_and_looked_up_by_its_start(place: Place, start: str) -> None:
    """An index takes some 8 kB; a character of four bytes, which is two of UTF-16, is in the start or is not."""
    name = f"{start}\U0001f600" + "\U0001f600" * 5_000
    assert len(name.encode()) > 20_000
    graph = await place.graph(GraphPart(entities=[replace(entity(1), name=name), entity(2)]))
    look = "MATCH (e:SapwoodEntity {graph_id: $graph_id, name_start: $start}) RETURN e.name AS name, e.no AS no"
    assert await place.ask(look, graph, start=name[:100]) == [{"name": name, "no": 1}]
    assert await place.ask(look, graph, start="C:\\dir") == [{"name": "C:\\dir", "no": 2}]


async def test_the_registry_knows_whether_names_can_be_looked_up(place: Place) -> None:
    """Not where an earlier release has written an entity of the graph, however much of it is new."""
    looked_up = "MATCH (g:SapwoodGraph {graph_id: $graph_id}) RETURN g.has_name_starts AS has"
    graph = await place.graph()
    assert await place.ask(looked_up, graph) == [{"has": True}]
    await place.ask("MATCH (e:SapwoodEntity {graph_id: $graph_id, no: 3}) REMOVE e.name_start", graph)
    await place.store.write(graph, 1, SMALL, soon())
    await place.store.seal(graph, 1, soon())
    assert await place.ask(looked_up, graph) == [{"has": False}]


# Bounds


async def test_an_entity_of_many_chunks_is_tied_to_the_first_of_them(place: Place) -> None:
    """However the rest comes in, before or after a seal; and a mention written again makes no second one."""
    store = place.other(entity_chunks=3)
    chunks = [GraphChunk(number, "d", number) for number in range(10)]
    late = [GraphMention(number, 1) for number in range(5, 10)]
    early = [GraphMention(number, 1) for number in range(5)]
    graph = await place.graph(GraphPart(chunks, [entity(1)], [], late), store)
    ties = (
        "MATCH (:SapwoodEntity {graph_id: $graph_id})-[r]->(c:SapwoodChunk) "
        "RETURN type(r) AS kind, c.id AS id, r.graph_id = $graph_id AS ours ORDER BY id"
    )

    async def tied() -> tuple[list[int], list[int]]:
        found = await place.ask(ties, graph)
        assert all(row["ours"] for row in found)
        kinds = ("FROM_CHUNK", "FROM_CHUNK_MORE")
        first, more = ([row["id"] for row in found if row["kind"] == kind] for kind in kinds)
        return first, more

    assert await tied() == ([5, 6, 7], [8, 9])
    await store.write(graph, 1, GraphPart(mentions=[*early, *late]), soon())
    assert await tied() == ([0, 1, 2, 3, 4, 5, 6, 7], [8, 9])
    for _ in range(2):
        assert (await store.seal(graph, 1, soon())).mentions == 10
        assert await tied() == ([0, 1, 2], [3, 4, 5, 6, 7, 8, 9])
    (row,) = await place.ask("MATCH (e:SapwoodEntity {graph_id: $graph_id}) RETURN e.links AS links", graph)
    assert row["links"] == 3


async def test_a_hub_has_a_list_of_bounded_length(place: Place) -> None:
    """Those with most relations, then the lowest numbers; its degree says how many there are."""
    store = place.other(fan=3)
    spokes = [relation(0, leaf) for leaf in range(1, 9)] + [relation(7, 0), relation(8, 0), relation(8, 0, "likes")]
    graph = await place.graph(GraphPart(entities=[entity(n) for n in range(9)], relations=spokes), store)
    near = (
        "MATCH (e:SapwoodEntity {graph_id: $graph_id, no: 0})-[r:NEAR]->(n) "
        "RETURN n.no AS n, r.weight AS weight, e.degree AS degree, e.fan AS fan ORDER BY r.rank"
    )
    assert [tuple(row.values()) for row in await place.ask(near, graph)] == [(8, 3, 8, 3), (7, 2, 8, 3), (1, 1, 8, 3)]


async def test_work_is_done_in_pages_of_any_size(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of many pages is sealed, counted, placed and dropped like one of a single page."""
    for size in (1, 2, 3):
        for name in ("PAGE", "LOOK", "TIES", "BATCH"):
            monkeypatch.setattr(neo4j_graph, name, size)
        graph = await place.graph()
        assert await place.store.totals(graph, soon()) == TOTALS
        await place.store.place(graph, 1, PATHS, soon())
        assert (await place.store.totals(graph, soon())).placed == 5
        near = "MATCH (e {graph_id: $graph_id})-[r:NEAR]->() RETURN count(r) AS near"
        assert (await place.ask(near, graph))[0]["near"] == 6
        assert await place.store.drop("graphs", graph.graph_id, soon()) == 9
        assert (await place.ask(NODES, graph))[0]["nodes"] == 0


async def test_statements_read_the_pages_they_are_asked_for(place: Place) -> None:
    """No plan scans the nodes of all graphs, sorts more than a page, or reads to the end behind a limit."""
    await place.graph()
    values: dict[str, Any] = dict.fromkeys(("after", "page", "ties", "fan", "most", "fence", "no", "id"), 1)
    values |= {key: [] for key in ("rows", "chunks", "entities", "relations", "mentions", "entity_ends", "chunk_ends")}
    paged = {"seal_chunks", "seal_entities", "totals_chunks", "totals_entities"}
    fenced = {"write", "count_entities", "place", "demote_links", "promote_links", "seal_chunks", "seal_entities"}
    fenced |= {"seal_names"}
    for name in paged | fenced | {"many_links", "last_link", "drop_chunks", "drop_entities", "graphs"}:
        query = f"{CYPHER['hold']}\n{CYPHER[name]}" if name in fenced else CYPHER[name]
        operators = await plan(place, query, {**values, "graph_id": "0", "uid": "0"})
        assert not [one for one in operators if "LabelScan" in one or "AllNodesScan" in one or "Exhaustive" in one], (
            name
        )
        assert name not in paged or ("Limit" in operators and "Top" not in operators), name


async def plan(place: Place, query: str, values: Mapping[str, Any]) -> list[str]:
    """Return the operators of a statement's plan."""
    driver = place.sessions._driver  # type: ignore[attr-defined]
    async with driver.session(database=place.sessions.database_of("graphs")) as session:
        result = await session.run(f"EXPLAIN {query}", dict(values))
        summary = await result.consume()
    todo, found = [summary.plan], []
    while todo:
        one = todo.pop()
        found.append(one["operatorType"].partition("@")[0])
        todo += one.get("children", [])
    return found


# What should not be there


async def test_strays_are_counted(place: Place) -> None:
    """Nodes of other graphs that are tied to ours, in either direction, and relationships with a stamp that does not fit."""
    graph, other = await place.graph(), await place.graph()
    assert (await place.store.totals(graph, soon())).stray_nodes == 0
    both = "MATCH (a:SapwoodEntity {graph_id: $graph_id, no: 1}), (b:SapwoodEntity {graph_id: $other, no: 1})"
    for statement in (
        "CREATE (a)-[:RELATES {graph_id: $graph_id}]->(b)",
        "CREATE (b)-[:RELATES {graph_id: $other}]->(a)",
    ):
        await place.ask(f"{both} {statement}", graph, other=other.graph_id)
    await place.ask(
        "MATCH (c:SapwoodChunk {graph_id: $graph_id, id: 10}) CREATE (c)-[:NEXT_CHUNK]->(:Stray {n: 1})", graph
    )
    await place.ask(
        "MATCH (:SapwoodEntity {graph_id: $graph_id, no: 1})-[r:RELATES]->({no: 3}) SET r.graph_id = 'another'", graph
    )
    await place.ask(
        "MATCH (:SapwoodEntity {graph_id: $graph_id, no: 3})-[r:RELATES]->({no: 3}) REMOVE r.graph_id", graph
    )
    found = await place.store.totals(graph, soon())
    assert (found.stray_nodes, found.stray_relations) == (2, 5)
    foreign = await place.store.totals(other, soon())
    assert (foreign.stray_nodes, foreign.stray_relations) == (1, 2)
    await place.ask("MATCH (n:Stray) DETACH DELETE n")


# Fences


async def test_a_write_waits_for_a_takeover_and_then_finds_itself_fenced_out(place: Place, sessions: Neo4j) -> None:
    """The lock comes before the look: without that the write reads the old fence and goes through."""
    graph = await place.graph(GraphPart())
    driver = sessions._driver  # type: ignore[attr-defined]
    outcomes: dict[str, str] = {}

    async def attempt(name: str, query: str) -> None:
        values = {"graph_id": graph.graph_id, "fence": 1, "no": len(name)}
        found = await place.sessions.write(sessions.database_of("graphs"), query, values, soon())
        outcomes[name] = "went through" if found else "fenced out"

    create = "CREATE (:SapwoodEntity {graph_id: $graph_id, no: $no}) RETURN 1 AS done"
    blind = (
        "MATCH (g:SapwoodGraph {graph_id: $graph_id}) "
        "WITH g, g.fence AS seen SET g.held = true WITH g, seen WHERE seen = $fence"
    )
    async with driver.session(database=sessions.database_of("graphs")) as session:
        takeover = await session.begin_transaction()
        await (await takeover.run(CYPHER["open"], {**scope(graph), "fence": 2})).consume()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attempt, "held", f"{CYPHER['hold']} {create}")
            tasks.start_soon(attempt, "blind", f"{blind} {create}")
            await waiting(place, 2)
            await takeover.commit()
    assert outcomes == {"held": "fenced out", "blind": "went through"}


def scope(graph: GraphRef) -> dict[str, Any]:
    return {"graph_id": graph.graph_id, "uid": graph.uid, "corpus": graph.corpus, "generation": graph.generation}


async def waiting(place: Place, count: int) -> None:
    """Return when so many transactions wait for a lock."""
    blocked = "SHOW TRANSACTIONS YIELD status WHERE status STARTS WITH 'Blocked' RETURN count(*) AS n"
    with anyio.fail_after(30):
        while (await place.ask(blocked))[0]["n"] < count:  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def test_writers_with_old_fences_change_nothing_while_a_graph_changes_hands(place: Place) -> None:
    """Fences race; whoever wrote last under a fence did so before the next one opened the graph."""
    graph = await place.graph(GraphPart())

    async def work(fence: int) -> None:
        try:
            await place.store.open(graph, fence, soon())
            for turn in itertools.count():
                await place.store.write(graph, fence, GraphPart(entities=[entity(fence * 1000 + turn)]), soon())
                if turn == 5 and fence == 5:
                    return
        except FencedOut:
            return

    async with anyio.create_task_group() as tasks:
        for fence in range(2, 6):
            tasks.start_soon(work, fence)
    won = [
        row["no"] for row in await place.ask("MATCH (e:SapwoodEntity {graph_id: $graph_id}) RETURN e.no AS no", graph)
    ]
    assert {5000 + turn for turn in range(6)} <= set(won)
    before = len(won)
    for fence in range(1, 5):
        with pytest.raises(FencedOut):
            await place.store.write(graph, fence, GraphPart(entities=[entity(1)]), soon())
    assert (await place.store.totals(graph, soon())).entities == before


# Dropping


class Breaking:
    """Sessions that break off after some writes."""

    def __init__(self, sessions: Neo4j, writes: int) -> None:
        self.sessions = sessions
        self.left = writes

    async def read(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        return await self.sessions.read(database, query, parameters, deadline)

    async def write(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("killed")
        return await self.sessions.write(database, query, parameters, deadline)

    def database_of(self, corpus: str) -> str:
        return self.sessions.database_of(corpus)


async def test_an_interrupted_drop_is_taken_up_and_no_zombie_comes_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off after each of its transactions: until the last one the graph is listed and closed to writers."""
    monkeypatch.setattr(neo4j_graph, "PAGE", 2)
    monkeypatch.setattr(neo4j_graph, "TIES", 3)
    neighbour = await place.graph()
    for writes in itertools.count(1):
        graph = await place.graph()
        try:
            await Neo4jGraph(Breaking(place.sessions, writes), GdsLeiden(place.sessions)).drop(
                "graphs", graph.graph_id, soon()
            )
        except ConnectionError:
            assert await place.store.graphs("graphs", graph.uid, soon()) == [graph.graph_id]
            for fence in (1, 2):
                with pytest.raises(FencedOut):
                    await place.store.open(graph, fence, soon())
            with pytest.raises(FencedOut):
                await place.store.write(graph, 1, SMALL, soon())
            await place.store.drop("graphs", graph.graph_id, soon())
        else:
            break
        assert await place.store.graphs("graphs", graph.uid, soon()) == []
        assert (await place.ask(NODES, graph))[0]["nodes"] == 0
        with pytest.raises(FencedOut):
            await place.store.write(graph, 1, SMALL, soon())
    assert writes > 5
    assert await place.store.totals(neighbour, soon()) == TOTALS

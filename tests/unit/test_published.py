"""Published graphs as sources: the store that a generation's manifest names answers for it, PostgreSQL where that is unknown."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from pipeline.deadline import Deadline
from pipeline.errors import NotFound, Refusal
from pipeline.generations.pins import Pinned
from pipeline.graphtools.definitions import QUERY
from pipeline.graphtools.execution import MatchExecutor, Node
from pipeline.graphtools.memory import MemoryMatch, PropertyGraph
from pipeline.graphtools.published import Registered, sources_of
from pipeline.graphtools.tools import KnowledgeGraphTools
from schemas.exposed import ExposedProperty, GraphSchema, NodeType
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.published import GraphLimits, Publication, PublishedGraph
from schemas.settings import CorpusSettings

UID = "0" * 32
SCHEMA = GraphSchema(node_types=(NodeType(label="T", properties=(ExposedProperty(name="name"),)),))
ASK = {"knowledgeSourceName": "g", "expression": "MATCH (t:T) RETURN t.name AS name ORDER BY name", "parameters": {}}


def manifest(number: int, store: str) -> Manifest:
    return Manifest(
        corpus="c",
        generation=number,
        run_id="r",
        collection="",
        dimension=1,
        graph_id=f"{UID}-{number}",
        graph_store=store,
        policy="",
        embedding="",
        extraction="",
        analyzer="",
        stores={},
        outcomes={},
        communities=0,
        levels=0,
        modularity=0.0,
        promoted_at="",
    )


class Place:
    """A registry with one publication, and the pins of its corpus's generations; `held` are those that are pinned now."""

    def __init__(self, stores: Sequence[str]) -> None:
        self.manifests = {number: manifest(number, store) for number, store in enumerate(stores, 1)}
        self.held: list[int] = []
        graph = PublishedGraph(
            name="g",
            corpus="c",
            graph_schema=SCHEMA,
            limits=GraphLimits(page_size=1, max_page_size=5, max_hops=2, deadline=7, steps=99),
            demand_disclosure=False,
            created_at="",
            updated_at="",
        )
        self.found = Registered(graph, CorpusId(3), b"s" * 16)

    async def publish(self, tenant: str, name: str, what: Publication, deadline: Deadline) -> PublishedGraph:
        raise NotImplementedError

    async def listing(self, tenant: str, deadline: Deadline) -> list[Registered]:
        return [self.found] if tenant == "red" else []

    async def get(self, tenant: str, name: str, deadline: Deadline) -> Registered:
        raise NotImplementedError

    async def remove(self, tenant: str, name: str, deadline: Deadline) -> None:
        raise NotImplementedError

    async def retained(self, corpus: CorpusId, deadline: Deadline) -> Sequence[Manifest]:
        assert corpus == self.found.corpus_id
        return list(self.manifests.values())[::-1]

    @asynccontextmanager
    async def pin(
        self, tenant: str, name: str, deadline: Deadline, number: int | None = None
    ) -> AsyncGenerator[Pinned, None]:
        assert (tenant, name) == ("red", "c")
        wanted = number or max(self.manifests)
        if wanted not in self.manifests:
            raise NotFound()
        self.held.append(wanted)
        try:
            yield Pinned(CorpusId(3), self.manifests[wanted], CorpusSettings())
        finally:
            self.held.remove(wanted)


def store(name: str) -> MatchExecutor:
    """A store whose graphs, of three generations, say where they lie."""
    graphs = {
        f"{UID}-{number}": PropertyGraph.of([Node(f"{at}", "T", {"name": f"{name} {number} {at}"}) for at in "ab"], [])
        for number in (1, 2, 3)
    }
    return MemoryMatch(graphs)


async def tools(place: Place, *stores: str, tenant: str = "red") -> KnowledgeGraphTools:
    executors = {name: store(name) for name in stores}
    return KnowledgeGraphTools(await sources_of(tenant, place, place, executors, Deadline.after(10)))


async def names(found: KnowledgeGraphTools, **more: object) -> list[str]:
    told = json.loads(json.dumps(await found.run(QUERY, {**ASK, "pageSize": 5, **more})))
    return [one["name"] for one in told["records"]]


async def test_the_store_of_the_manifest_answers() -> None:
    assert await names(await tools(Place(["postgres"]), "postgres", "neo4j")) == ["postgres 1 a", "postgres 1 b"]
    assert await names(await tools(Place(["neo4j"]), "postgres", "neo4j")) == ["neo4j 1 a", "neo4j 1 b"]
    assert await names(await tools(Place(["neo4j"]), "postgres")) == ["postgres 1 a", "postgres 1 b"]


async def test_pages_follow_their_generation_into_its_store() -> None:
    """A corpus that has moved to another store meanwhile goes on answering from where the first page came from."""
    place = Place(["neo4j"])
    found = await tools(place, "postgres", "neo4j")
    page = json.loads(json.dumps(await found.run(QUERY, ASK)))
    assert [one["name"] for one in page["records"]] == ["neo4j 1 a"]
    place.manifests[2] = manifest(2, "postgres")
    cursor = {"cursor": page["metadata"]["nextCursor"], "pageSize": None}
    assert await names(await tools(place, "postgres", "neo4j"), **cursor) == ["neo4j 1 b"]
    assert await names(found) == ["postgres 2 a", "postgres 2 b"]
    del place.manifests[1]
    told = await found.call(QUERY, {**ASK, **cursor})
    assert told.startswith("Error: INVALID_ARGUMENT: graph page cursor")
    assert place.held == []


async def test_a_source_has_the_limits_that_were_published() -> None:
    [source] = await sources_of("red", Place(["postgres"]), Place(["postgres"]), {}, Deadline.after(10))
    assert (source.default_page_size, source.max_page_size, source.max_hops) == (1, 5, 2)
    assert (source.timeout, source.steps, source.space, source.disclosure) == (7.0, 99, "corpus_3", None)
    assert "ssss" not in repr(Place(["postgres"]).found), "the secret of its tokens"
    found = await tools(Place(["postgres"]), "postgres", tenant="green")
    with pytest.raises(Refusal, match="Unknown knowledge source 'g'"):
        await found.run(QUERY, ASK)

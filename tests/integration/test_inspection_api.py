"""Looking at graphs over HTTP, on both stores: routes, bounds, orders and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import anyio
import orjson
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.errors import Unauthorized
from pipeline.graphs.inspection import Evidence, Source
from pipeline.tenancy import apart
from schemas.ids import CorpusId
from schemas.runs import RunState
from schemas.settings import CorpusSettings, GraphStorageSettings
from tests.neo4j_server import Neo4jServer
from worker.app import Sapwood, open_sapwood
from worker.gateway import inspection
from worker.gateway.access import Principal, Scope
from worker.gateway.keys import Apart
from worker.gateway.problems import install
from worker.settings import WorkerSettings

STORES = ["postgres", "neo4j"]
NOBODY = "thing:00000000000000ff00000000"
LISTS = ("entities", "community/0123456789abcdef/members", "communities")
OF_ENTITIES = ("entity", "entity/relationships", "entity/neighbors", "entity/sources")
ROUTES = (*LISTS, *OF_ENTITIES, "community/0123456789abcdef/subgraph", "subgraph", "stats")
LINES: list[dict[str, Any]] = [
    {
        "document": f"note-{number}",
        "title": "Saturn V",
        "passage": f"Note {number}: Saturn V was launched from Pad 39A.",
        "triples": [["Saturn V", "LOCATED_AT", "Pad 39A"]],
        "types": {"Saturn V": "Topic", "Pad 39A": "LaunchSite"},
        "metadata": {"year": 1960 + number},
    }
    for number in (1, 2, 3)
] + [
    {
        "document": "people",
        "title": "Ada_Lovelace",
        "passage": "Ada_Lovelace knows Charles Babbage, who made the Analytical-Engine.",
        "triples": [["Ada_Lovelace", "knows", "Charles Babbage"], ["Charles Babbage", "a`b", "Analytical-Engine"]],
        "types": {"Ada_Lovelace": "Person", "Charles Babbage": "Person", "Analytical-Engine": "attribute, process"},
    }
]


class Door:
    """Lets in who says a tenant and a scope."""

    async def principal(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthorized
        tenant, _, scope = authorization.partition(" ")
        return Principal(tenant, "key", frozenset({Scope(scope)}))


@dataclass
class Client:
    """Asks about one corpus as one tenant."""

    http: AsyncClient
    api: FastAPI
    app: Sapwood
    corpus: str = "rockets"
    headers: dict[str, str] = field(default_factory=lambda: {"authorization": "default inspect"})

    async def ask(self, path: str, **given: Any) -> Response:
        return await self.http.get(f"/api/graph/{self.corpus}/{path}", params=given, headers=self.headers)

    async def get(self, path: str, **given: Any) -> Any:
        found = await self.ask(path, **given)
        assert found.status_code == 200, found.text
        return found.json()

    async def refused(self, status: int, path: str, **given: Any) -> dict[str, Any]:
        found = await self.ask(path, **given)
        assert found.status_code == status, found.text
        assert found.headers["content-type"] == "application/problem+json"
        body: dict[str, Any] = found.json()
        return body

    async def id_of(self, name: str) -> str:
        (one,) = await self.get("entities", q=name)
        return str(one["entity_id"])


async def indexed(app: Sapwood, folder: Path, lines: Sequence[dict[str, Any]], store: str, corpus: str) -> None:
    await anyio.Path(folder / "lines.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    settings = CorpusSettings(graph_storage=GraphStorageSettings.model_validate({"backend": store}))
    run = await app.index(corpus, [str(folder / "lines.jsonl")], settings=settings)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error


class Opens(Protocol):
    """Opens the application with a store, and a client of its routes."""

    def __call__(self, store: str, **changes: Any) -> AbstractAsyncContextManager[Client]: ...


@pytest.fixture
def opens(database: str, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Opens:
    @asynccontextmanager
    async def opened(store: str, **changes: Any) -> AsyncIterator[Client]:
        given: dict[str, Any] = {}
        if store == "neo4j":
            server: Neo4jServer = request.getfixturevalue("neo4j_server")
            given = {
                "graph_neo4j_uri": server.uri,
                "graph_neo4j_user": server.user,
                "graph_neo4j_password": SecretStr(server.password),
                "graph_neo4j_database": server.database,
            }
        urls = {"database_url": SecretStr(database), "redis_url": SecretStr(redis_url)}
        async with open_sapwood(WorkerSettings(home=tmp_path, **{**urls, **given, **changes})) as app:
            api = FastAPI()
            api.include_router(inspection.router)
            install(api)
            api.add_middleware(Apart)
            api.state.services, api.state.authenticator = app.services, Door()
            async with AsyncClient(transport=ASGITransport(api), base_url="http://test") as http:
                yield Client(http, api, app)

    return opened


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Both stores, and the server of the second only where it is asked for."""
    if request.param == "neo4j":
        request.getfixturevalue("neo4j_server")
    return str(request.param)


async def test_each_route_answers_from_the_graph(opens: Opens, store: str, tmp_path: Path) -> None:
    """W15, W16, W18, W20, W30, W50: the whole of a small corpus by its routes."""
    async with opens(store) as client:
        await indexed(client.app, tmp_path, LINES, store, "rockets")
        names = [one["name"] for one in await client.get("entities")]
        assert names == sorted(names) == ["Ada_Lovelace", "Analytical-Engine", "Charles Babbage", "Pad 39A", "Saturn V"]
        assert [one["name"] for one in await client.get("entities", entity_type="LaunchSite")] == ["Pad 39A"]
        assert [one["name"] for one in await client.get("entities", q="analytical engine")] == ["Analytical-Engine"]
        assert [len(await client.get("entities", limit=n)) for n in (-1, 0, 1, 10**30)] == [0, 0, 1, 5]

        rocket = await client.id_of("saturn")
        found = await client.get("entity", entity_id=rocket)
        assert (found["entity_type"], found["file_path"] in {"note-1", "note-2", "note-3"}) == ("Topic", True)
        assert found["properties"]["communityId"] == found["properties"]["communityPath"][-1]
        pad = await client.id_of("pad 39a")
        (edge,) = await client.get("entity/relationships", entity_id=rocket)
        assert (edge["source_id"], edge["target_id"], edge["relation_type"]) == (rocket, pad, "LOCATED_AT")
        assert (edge["weight"], edge["properties"]["evidence"]) == (1.0, 3)
        assert await client.get("entity/relationships", entity_id=pad) == []
        assert await client.get("entity/relationships", entity_id=NOBODY) == []

        ada, babbage = await client.id_of("Ada Lovelace"), await client.id_of("Babbage")
        near = await client.get("entity/neighbors", entity_id=ada)
        assert [one["name"] for one in near["entities"]] == ["Ada_Lovelace", "Charles Babbage", "Analytical-Engine"]
        assert (len(near["relationships"]), near["total_matched"], near["limit"]) == (2, 3, 200)
        assert {one["relation_type"] for one in near["relationships"]} == {"knows", "a`b"}
        one = await client.get("entity/neighbors", entity_id=ada, limit=1)
        assert ([e["entity_id"] for e in one["entities"]], one["total_matched"], one["limit"]) == ([ada], 3, 1)
        for hops, limit, expected in ((-3, 10**30, (2, 2, 2000)), (99, -1, (0, 3, 0)), (1, 200, (2, 2, 200))):
            near = await client.get("entity/neighbors", entity_id=ada, max_hops=hops, limit=limit)
            assert (len(near["entities"]), near["total_matched"], near["limit"]) == expected

        part = await client.get("subgraph", limit=3)
        assert [one["name"] for one in part["entities"]] == ["Charles Babbage", "Ada_Lovelace", "Analytical-Engine"]
        assert (len(part["relationships"]), part["total_matched"]) == (2, 5)
        part = await client.get("subgraph", q="A")
        assert (part["total_matched"], len(part["relationships"])) == (5, 3)
        assert (await client.get("subgraph", q="nothing like it"))["entities"] == []

        groups = await client.get("communities")
        assert [(len(one["member_ids"]), one["level"]) for one in groups] == [(3, 0), (2, 0)]
        assert groups[0]["summary"].startswith(
            "3 related entities around Charles Babbage: Charles Babbage, Ada_Lovelace"
        )
        assert await client.get("communities", level=0) == groups
        assert [await client.get("communities", level=n) for n in (1, 10**30)] == [[], []]
        assert groups[0]["member_ids"][0] == babbage
        members = await client.get(f"community/{groups[0]['community_id']}/members")
        assert [one["entity_id"] for one in members] == groups[0]["member_ids"]
        part = await client.get(f"community/{groups[0]['community_id']}/subgraph", limit=1)
        assert ([one["entity_id"] for one in part["entities"]], part["total_matched"]) == ([babbage], 3)
        assert await client.get("stats") == {
            "corpus_id": "rockets",
            "total_entities": 5,
            "total_relationships": 3,
            "total_communities": 2,
            "total_documents": 4,
            "total_chunks": 4,
            "entity_breakdown": {"Person": 2, "LaunchSite": 1, "Topic": 1, "attribute, process": 1},
            "relationship_breakdown": {"LOCATED_AT": 1, "a`b": 1, "knows": 1},
        }


async def test_evidence_is_paged_within_one_generation(opens: Opens, store: str, tmp_path: Path) -> None:
    """W21 to W24 and W26: pages, their end, and that none of them mixes generations."""
    async with opens(store) as client:
        await indexed(client.app, tmp_path, LINES, store, "rockets")
        rocket = await client.id_of("saturn")
        page = await client.get("entity/sources", entity_id=rocket, limit=2)
        assert [one["file_path"] for one in page["sources"]] == ["note-1", "note-2"]
        assert page["sources"][0]["content"] == LINES[0]["passage"]
        assert [(one["start_line"], one["end_line"], one["provenance"]) for one in page["sources"]] == [
            (1, 1, None)
        ] * 2
        assert page["sources"][0]["metadata"]["year"] == 1961
        assert page["next_offset"] == 2
        run = page["run_id"]
        rest = await client.get("entity/sources", entity_id=rocket, limit=2, offset=2, run_id=run)
        assert ([one["file_path"] for one in rest["sources"]], rest["next_offset"]) == (["note-3"], None)
        for offset in (3, 10**30):
            past = await client.get("entity/sources", entity_id=rocket, offset=offset, run_id=run)
            assert (past["sources"], past["next_offset"]) == ([], None)

        await indexed(client.app, tmp_path, LINES[1:], store, "rockets")
        for asked in (rocket, NOBODY):
            problem = await client.refused(409, "entity/sources", entity_id=asked, run_id=run)
            assert (problem["code"], problem["detail"]) == (inspection.CHANGED_CODE, inspection.CHANGED)
        page = await client.get("entity/sources", entity_id=rocket)
        assert (len(page["sources"]), page["run_id"] == run) == (2, False)
        assert (
            NOBODY in (await client.refused(404, "entity/sources", entity_id=NOBODY, run_id=page["run_id"]))["detail"]
        )


@dataclass
class Interrupted:
    """Evidence during whose search another generation is promoted."""

    inner: Evidence
    app: Sapwood
    folder: Path

    async def sources(
        self, corpus: CorpusId, generation: int, entity: int, offset: int, limit: int, deadline: Deadline
    ) -> list[Source]:
        found = await self.inner.sources(corpus, generation, entity, offset, limit, deadline)
        with apart():  # a worker promotes it, not the request
            await indexed(self.app, self.folder, LINES[generation:], "postgres", "rockets")
        return found

    async def totals(self, corpus: CorpusId, generation: int, deadline: Deadline) -> tuple[int, int]:
        return await self.inner.totals(corpus, generation, deadline)


async def test_w26_a_promotion_during_the_search_is_told(opens: Opens, tmp_path: Path) -> None:
    """Also where nothing is found; and the page before it, which nobody disturbed, is answered."""
    async with opens("postgres") as client:
        await indexed(client.app, tmp_path, LINES, "postgres", "rockets")
        rocket = await client.id_of("saturn")
        await client.get("entity/sources", entity_id=rocket)
        services = client.app.services
        client.api.state.services = replace(services, evidence=Interrupted(services.evidence, client.app, tmp_path))
        for offset in (0, 9):
            problem = await client.refused(409, "entity/sources", entity_id=rocket, offset=offset)
            assert (problem["code"], problem["detail"]) == (inspection.CHANGED_CODE, inspection.CHANGED)


async def test_w11_w12_a_corpus_without_a_graph_and_none_at_all(opens: Opens) -> None:
    """Lists are empty, an entity is missing, and a corpus that is not there is told on every route."""
    async with opens("postgres") as client:
        await client.app.create_corpus("rockets")
        assert [await client.get(route) for route in LISTS] == [[], [], []]
        for route in OF_ENTITIES:
            assert NOBODY in (await client.refused(404, route, entity_id=NOBODY))["detail"]
        assert (await client.refused(404, "community/1/subgraph"))["detail"] == "Community not found"
        nothing = {"entities": [], "relationships": [], "total_matched": 0, "limit": 7}
        assert await client.get("subgraph", limit=7) == nothing
        stats = await client.get("stats")
        assert stats.pop("corpus_id") == "rockets"
        assert not any(stats.values())
        for corpus, headers in (
            ("nowhere", client.headers),
            ("%00", client.headers),
            ("rockets", {"authorization": "stranger inspect"}),
        ):
            other = replace(client, corpus=corpus, headers=headers)
            for route in ROUTES:
                problem = await other.refused(404, route, entity_id=NOBODY)
                assert problem["detail"].startswith("Corpus not found: "), route


async def test_w14_w25_what_is_out_of_bounds_is_refused(opens: Opens, tmp_path: Path) -> None:
    """By 422 with the field, before anything is read; an unknown entity or community by 404 with its id."""
    async with opens("postgres") as client:
        await indexed(client.app, tmp_path, LINES, "postgres", "rockets")
        for route in ("entity", "entity/neighbors", "entity/sources"):
            assert NOBODY in (await client.refused(404, route, entity_id=NOBODY))["detail"]
        for route in OF_ENTITIES:
            await client.refused(422, route)
            await client.refused(422, route, entity_id="")
            await client.refused(422, route, entity_id="a\0b")
        wrong: dict[str, list[dict[str, Any]]] = {
            "entity/sources": [{"limit": 0}, {"limit": 101}, {"offset": -1}, {"limit": "many"}],
            "community/0123456789abcdef/members": [{"limit": 0}, {"limit": 5001}],
            "community/0123456789abcdef/subgraph": [{"limit": 0}, {"limit": 2001}],
            "subgraph": [{"limit": 0}, {"limit": 2001}, {"q": "\0"}],
            "communities": [{"level": -1}, {"limit": 0}],
            "entities": [{"limit": "x"}, {"entity_type": "\0"}],
        }
        for route, cases in wrong.items():
            for given in cases:
                problem = await client.refused(422, route, **{"entity_id": NOBODY, **given})
                assert next(iter(given)) in problem["detail"]
        for unknown in ("0123456789abcdef", "ffffffffffffffff", "1", "0123456789ABCDEF", "x' or 1=1"):
            assert await client.get(f"community/{unknown}/members") == []
            assert (await client.refused(404, f"community/{unknown}/subgraph"))["detail"] == "Community not found"


async def test_a_key_needs_the_scope(opens: Opens) -> None:
    async with opens("postgres") as client:
        await client.app.create_corpus("rockets")
        for headers, status in (({}, 401), ({"authorization": "default query"}, 403)):
            other = replace(client, headers=headers)
            for route in ROUTES:
                await other.refused(status, route, entity_id=NOBODY)


async def test_a_store_that_is_down_is_told_by_its_role(
    opens: Opens, tmp_path: Path, neo4j_server: Neo4jServer
) -> None:
    """Not as an empty graph, and without its address; evidence needs it too, since it has the entities."""
    async with opens("neo4j") as client:
        await indexed(client.app, tmp_path, LINES, "neo4j", "rockets")
    async with opens("neo4j", graph_neo4j_uri="bolt://127.0.0.1:9") as client:
        for route in ROUTES:
            problem = await client.refused(503, route, entity_id=NOBODY)
            assert "graph store" in problem["detail"]
            assert "127.0.0.1" not in problem["detail"]
    async with opens("postgres") as client:
        for route in ROUTES:
            assert "SAPWOOD_GRAPH_NEO4J_URI" in (await client.refused(422, route, entity_id=NOBODY))["detail"]

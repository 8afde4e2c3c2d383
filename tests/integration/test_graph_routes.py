"""Graphs for agents over HTTP: proposed, published, asked, taken away; and each tenant's are its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound
from pipeline.graphtools.definitions import DESCRIBE, QUERY
from pipeline.tenancy import act_for, apart
from schemas.exposed import GraphSchema
from schemas.published import Publication
from schemas.settings import CorpusSettings, GraphStorageSettings
from tests.cli_driver import HANDBOOK
from tests.gateway_driver import Gateway, running, settings
from tests.integration.test_gateway_routes import Names
from tests.neo4j_server import Neo4jServer
from tests.published import TEAMS, publish, stuck
from worker.app import Sapwood

ROWS = "select count(*) from sapwood.knowledge_source"


def key(tenant: str, *scopes: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tenant}:{','.join(scopes)}"}


RED, GREEN, BOSS = key("red", "query", "inspect"), key("green", "query", "inspect"), key("red", "admin")


def match(expression: str = TEAMS, **more: Any) -> dict[str, Any]:
    return {"expression": expression, **more}


async def two_tenants(gateway: Gateway) -> dict[str, Sapwood]:
    for tenant in ("red", "green"):
        await gateway.app.services.keys.create_tenant(tenant, Deadline.after(30))
    return {tenant: Sapwood(gateway.app.services, tenant) for tenant in ("red", "green")}


async def test_a_graph_from_its_proposal_to_its_end(tmp_path: Path, database: str, redis_url: str) -> None:
    given = settings(tmp_path, database, redis_url, gateway_auth="keys")
    async with running(given, Names()) as gateway:
        apps, ok = await two_tenants(gateway), gateway.ok
        run = await apps["red"].index("handbook", [str(HANDBOOK)])
        await ok("GET", "/v1/corpora/handbook/graph-schema", 404, headers=RED)
        await apps["red"].work(run.run_id)
        schema = await ok("GET", "/v1/corpora/handbook/graph-schema", headers=RED)
        assert GraphSchema.model_validate(schema) == await apps["red"].graphs.propose("handbook")

        order = {"corpus": "handbook", "description": "Teams", "graph_schema": schema, "limits": {"max_hops": 2}}
        await ok("PUT", "/v1/graphs/workshop", 403, headers=RED, json=order)
        await ok("PUT", "/v1/graphs/workshop", 404, headers=BOSS, json={**order, "corpus": "missing"})
        bad = {**order, "graph_schema": {"nodeTypes": [{"label": "A B"}]}}
        problem = await ok("PUT", "/v1/graphs/workshop", 422, headers=BOSS, json=bad)
        assert problem["errors"][0]["field"] == "body.graph_schema.nodeTypes.0.label"
        made = await ok("PUT", "/v1/graphs/workshop", headers=BOSS, json=order)
        assert (made["name"], made["limits"]["max_hops"], made["limits"]["page_size"]) == ("workshop", 2, 20)
        assert await ok("GET", "/v1/graphs", headers=RED) == [made]
        assert await ok("GET", "/v1/graphs/workshop", headers=RED) == made
        await ok("GET", "/v1/graphs", 403, headers=BOSS)

        page = await ok("POST", "/v1/graphs/workshop/match", headers=RED, json=match(page_size=3))
        rest = await ok(
            "POST",
            "/v1/graphs/workshop/match",
            headers=RED,
            json=match(page_size=3, cursor=page["metadata"]["nextCursor"]),
        )
        assert (len(page["records"]), len(rest["records"]), rest["metadata"]["hasNext"]) == (3, 2, False)
        await ok("POST", "/v1/graphs/workshop/match", 403, headers=BOSS, json=match())

        await ok("DELETE", "/v1/graphs/workshop", 403, headers=RED)
        await ok("DELETE", "/v1/graphs/workshop", 204, headers=BOSS)
        await ok("DELETE", "/v1/graphs/workshop", 404, headers=BOSS)
        gone = await ok("POST", "/v1/graphs/workshop/match", 404, headers=RED, json=match())
        assert gone["code"] == "UNKNOWN_KNOWLEDGE_SOURCE"


REFUSED = [
    ("MATCH (a:Organization) RETURN a.secret AS s", 403, "QUERY_NOT_ALLOWED", 0, 0),
    ("MATCH (a:Nobody) RETURN a", 422, "UNKNOWN_GRAPH_TYPE", 0, 0),
    ("MATCH (a:Organization)\nWHERE a.name = \nRETURN a", 422, "INVALID_QUERY", 3, 1),
    ("OPTIONAL MATCH (a:Organization) RETURN a", 422, "UNSUPPORTED_QUERY", 1, 1),
    ("MATCH (a:Organization) WHERE a.name = :name RETURN a", 422, "INVALID_QUERY", 1, 39),
]


async def test_refusals_say_what_and_where(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await publish(gateway.app)
        for expression, status, code, line, column in REFUSED:
            told = await gateway.ok("POST", "/v1/graphs/workshop/match", status, json=match(expression))
            assert (told["code"], told["line"], told["column"]) == (code, line, column), told
            assert (told["status"], told["title"]) == (status, code)
        answer = await gateway.http.post("/v1/graphs/workshop/match", json=match("MATCH"))
        assert answer.headers["content-type"] == "application/problem+json"
        await gateway.ok("POST", "/v1/graphs/workshop/match", 422, json=match(tenant="red"))


async def test_what_is_another_tenants_is_not_there(tmp_path: Path, database: str, redis_url: str) -> None:
    """Neither by its name, nor by its corpus, nor by a page of it; and row security holds below all that."""
    given = settings(tmp_path, database, redis_url, gateway_auth="keys")
    async with running(given, Names()) as gateway:
        apps, ok = await two_tenants(gateway), gateway.ok
        await publish(apps["red"])
        page = await ok("POST", "/v1/graphs/workshop/match", headers=RED, json=match(page_size=2))
        published = await ok("GET", "/v1/graphs/workshop", headers=RED)
        order = {"corpus": "handbook", "graph_schema": published["graph_schema"]}
        boss = key("green", "admin")
        assert await ok("GET", "/v1/graphs", headers=GREEN) == []
        for method, path, caller, body in (
            ("GET", "/v1/graphs/workshop", GREEN, None),
            ("DELETE", "/v1/graphs/workshop", boss, None),
            ("PUT", "/v1/graphs/mine", boss, order),
            ("GET", "/v1/corpora/handbook/graph-schema", GREEN, None),
            ("POST", "/v1/graphs/workshop/match", GREEN, match()),
            ("POST", "/v1/graphs/workshop/match", GREEN, match(cursor=page["metadata"]["nextCursor"], page_size=2)),
        ):
            told = await ok(method, path, 404, headers=caller, json=body)
            assert "Team" not in json.dumps(told)

        await publish(apps["green"])
        await ok("DELETE", "/v1/graphs/workshop", 204, headers=boss)
        assert await ok("GET", "/v1/graphs/workshop", headers=RED) == published

        with apart():
            act_for("green")
            agents = gateway.app.services.agents
            assert await agents.published.listing("red", Deadline.after(30)) == []
            with pytest.raises(NotFound):
                await agents.published.remove("red", "workshop", Deadline.after(30))


async def test_pages_come_from_the_generation_of_the_first(tmp_path: Path, database: str, redis_url: str) -> None:
    """Though another one is promoted in between; once it is no longer kept, the cursor says so."""
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await publish(gateway.app)
        folder = anyio.Path(tmp_path) / "more"
        await folder.mkdir()
        await (folder / "a.md").write_text("# Teams\n\nThe Aardvark Team is part of the Workshop Department.\n")
        asked = match(page_size=2)
        page = await gateway.ok("POST", "/v1/graphs/workshop/match", json=asked)
        following = {**asked, "cursor": page["metadata"]["nextCursor"]}
        run = await gateway.app.index("handbook", [str(HANDBOOK), str(folder)])
        assert (await gateway.app.work(run.run_id)).generation == 2
        fresh = await gateway.ok("POST", "/v1/graphs/workshop/match", json=asked)
        assert fresh["records"][0]["team"] == "Aardvark Team"
        second = await gateway.ok("POST", "/v1/graphs/workshop/match", json=following)
        whole = [*page["records"], *second["records"]]
        assert "Aardvark Team" not in {one["team"] for one in whole} and len({one["team"] for one in whole}) == 4

        with anyio.fail_after(60):
            while not (await gateway.app.gc("handbook", 1))["generations"]:  # noqa: ASYNC110 - pins last some seconds
                await anyio.sleep(0.5)
        stale = await gateway.ok("POST", "/v1/graphs/workshop/match", 422, json=following)
        assert stale["code"] == "INVALID_ARGUMENT" and "cursor" in stale["detail"]


async def test_with_demanded_disclosure_types_are_described_first(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """The token is good in any process, since its secret is kept with the publication, and for that source alone."""
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await publish(gateway.app)
        graphs = gateway.app.graphs
        open_ = await graphs.get("workshop")
        what = Publication.model_validate({name: getattr(open_, name) for name in Publication.model_fields})
        await graphs.publish("shy", what.model_copy(update={"demand_disclosure": True}))
        path = "/v1/graphs/shy/match"
        assert "disclosureToken is required" in (await gateway.ok("POST", path, 422, json=match()))["detail"]
        named = {"knowledgeSourceName": "shy", "nodeLabels": ["Organization"], "edgeTypes": ["PART_OF"]}
        token = (await (await graphs.tools()).run(DESCRIBE, named))["disclosureToken"]
        assert len((await gateway.ok("POST", path, json=match(disclosure_token=token)))["records"]) == 5
        assert len((await gateway.ok("POST", "/v1/graphs/workshop/match", json=match()))["records"]) == 5
        tools = (await graphs.tools()).definitions("anthropic")
        assert "disclosureToken" in json.dumps(tools[2]) and tools[2]["name"] == QUERY
        assert "secret" not in json.dumps(await gateway.ok("GET", "/v1/graphs"))


async def test_a_client_that_leaves_ends_its_query_in_the_database(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await publish(gateway.app)
        async with stuck(database) as held:
            async with anyio.create_task_group() as group:

                async def ask() -> None:
                    await gateway.http.post("/v1/graphs/workshop/match", json=match())

                group.start_soon(ask)
                await held.until(waiting=1)
                group.cancel_scope.cancel()
            await held.until(waiting=0)


async def test_a_deadline_ends_a_query_in_the_database(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await publish(gateway.app)
        found = await gateway.app.graphs.get("workshop")
        what = Publication.model_validate({name: getattr(found, name) for name in Publication.model_fields})
        limits = what.limits.model_copy(update={"deadline": 0.5})
        await gateway.app.graphs.publish("workshop", what.model_copy(update={"limits": limits}))
        async with stuck(database) as held:
            late = await gateway.ok("POST", "/v1/graphs/workshop/match", 504, json=match())
            assert late["code"] == "QUERY_TIMEOUT"
            await held.until(waiting=0)


async def test_nothing_is_left_of_a_corpus_and_a_tenant_has_so_many(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        app = gateway.app
        await publish(app)
        monkeypatch.setattr("pipeline.adapters.postgres_sources.MOST", 2)
        found = await app.graphs.get("workshop")
        what = Publication.model_validate({name: getattr(found, name) for name in Publication.model_fields})
        await app.graphs.publish("second", what)
        with pytest.raises(Conflict, match="has published 2 graphs already"):
            await app.graphs.publish("third", what)
        again = await app.graphs.publish("second", what.model_copy(update={"description": "other"}))
        assert again.description == "other" and again.created_at < again.updated_at
        connection = await asyncpg.connect(database)
        try:
            assert await connection.fetchval(ROWS) == 2
            await app.delete_corpus("handbook")
            assert await connection.fetchval(ROWS) == 0
        finally:
            await connection.close()


async def test_a_graph_in_neo4j_is_asked_there(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """The same records as from PostgreSQL, which is locked meanwhile: whoever answers has no need of it."""
    given = settings(
        tmp_path,
        database,
        redis_url,
        graph_neo4j_uri=neo4j_server.uri,
        graph_neo4j_user=neo4j_server.user,
        graph_neo4j_password=SecretStr(neo4j_server.password),
        graph_neo4j_database=neo4j_server.database,
    )
    async with running(given) as gateway:
        await publish(gateway.app)
        expected = await gateway.ok("POST", "/v1/graphs/workshop/match", json=match())
        await gateway.app.set_settings("handbook", CorpusSettings(graph_storage=GraphStorageSettings(backend="neo4j")))
        run = await gateway.app.work((await gateway.app.index("handbook")).run_id)
        assert (await gateway.app.generations("handbook"))[0]["manifest"]["graph_store"] == "neo4j", run
        async with stuck(database):
            found = await gateway.ok("POST", "/v1/graphs/workshop/match", json=match())
        assert found["records"] == expected["records"] and len(found["records"]) == 5
        await gateway.app.delete_corpus("handbook")

"""Source code asked about: over HTTP on both stores, by agents through the ready-made allow-list, and found by its graph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.errors import Unauthorized
from pipeline.graphtools.definitions import QUERY
from pipeline.graphtools.ready import CODE
from schemas.published import Publication
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunState
from schemas.settings import CorpusSettings, GraphIndexingSettings, GraphStorageSettings
from tests.neo4j_server import Neo4jServer
from worker.app import Sapwood, open_sapwood
from worker.gateway import code
from worker.gateway.access import Principal, Scope
from worker.gateway.keys import Apart
from worker.gateway.problems import install
from worker.settings import WorkerSettings

STORES = ["postgres", "neo4j"]
FILES = {
    "pkg/__init__.py": "from pkg.store import Store\n",
    "pkg/base.py": 'class Base:\n    """What all have."""\n\n    def close(self):\n        pass\n',
    "pkg/store.py": (
        "import os\n\nfrom pkg.base import Base\n\n\nclass Store(Base):\n    def add_event(self, event):\n"
        "        self.flush()\n\n    def flush(self):\n        return os.getcwd()\n"
    ),
    "main.py": "from pkg import Store\n\n\ndef run():\n    store = Store()\n    store.add_event(1)\n\n\nrun()\n",
    "notes.md": "# Notes\n\nThe lighthouse keeper adds oil every evening.\n",
}


class Door:
    """Lets in who says a tenant and a scope."""

    async def principal(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthorized
        tenant, _, scope = authorization.partition(" ")
        return Principal(tenant, "key", frozenset({Scope(scope)}))


class Client:
    """Asks about one corpus."""

    def __init__(self, http: AsyncClient, app: Sapwood) -> None:
        self.http, self.app = http, app

    async def ask(self, question: str, who: str | None = "default inspect", **given: Any) -> Response:
        headers = {"authorization": who} if who else {}
        return await self.http.get(f"/api/graph/repo/code/{question}", params=given, headers=headers)

    async def found(self, question: str, symbol: str, **given: Any) -> list[tuple[str, str]]:
        answer = await self.ask(question, symbol=symbol, **given)
        assert answer.status_code == 200, answer.text
        return [(one["symbol"]["entity_id"], f"{one['path']}:{one['line']}") for one in answer.json()["references"]]


class Opens(Protocol):
    """Opens the application and a client of the route."""

    def __call__(self, store: str) -> AbstractAsyncContextManager[Client]: ...


@pytest.fixture
def opens(database: str, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Opens:
    @asynccontextmanager
    async def opened(store: str) -> AsyncIterator[Client]:
        given: dict[str, Any] = {"database_url": SecretStr(database), "redis_url": SecretStr(redis_url)}
        if store == "neo4j":
            server: Neo4jServer = request.getfixturevalue("neo4j_server")
            given |= {
                "graph_neo4j_uri": server.uri,
                "graph_neo4j_user": server.user,
                "graph_neo4j_password": SecretStr(server.password),
                "graph_neo4j_database": server.database,
            }
        async with open_sapwood(WorkerSettings(home=tmp_path / "home", **given)) as app:
            api = FastAPI()
            api.include_router(code.router)
            install(api)
            api.add_middleware(Apart)
            api.state.services, api.state.authenticator = app.services, Door()
            async with AsyncClient(transport=ASGITransport(api), base_url="http://test") as http:
                yield Client(http, app)

    return opened


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Both stores, and the server of the second only where it is asked for."""
    if request.param == "neo4j":
        request.getfixturevalue("neo4j_server")
    return str(request.param)


async def indexed(app: Sapwood, folder: Path, files: Mapping[str, str], store: str) -> None:
    for name, text in files.items():
        path = anyio.Path(folder / "repo" / name)
        await path.parent.mkdir(parents=True, exist_ok=True)
        await path.write_text(text)
    settings = CorpusSettings(
        graph_storage=GraphStorageSettings.model_validate({"backend": store}),
        graph_indexing=GraphIndexingSettings(build_code_graph=True),
    )
    run = await app.index("repo", [str(folder / "repo")], settings=settings)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error


async def test_questions_are_answered_alike_on_both_stores(opens: Opens, store: str, tmp_path: Path) -> None:
    """With the line that states each reference; a re-export, an inherited class and a constructor among them."""
    async with opens(store) as client:
        missing = await client.ask("callers", symbol="run")
        assert missing.status_code == 404
        await indexed(client.app, tmp_path, FILES, store)
        assert await client.found("callers", "add_event") == [("main.py::run", "main.py:6")]
        assert await client.found("callers", "getcwd", depth=3) == [
            ("pkg/store.py::Store.flush", "pkg/store.py:11"), ("pkg/store.py::Store.add_event", "pkg/store.py:8"),
            ("main.py::run", "main.py:6"),
        ]  # fmt: skip
        assert await client.found("callees", "run") == [
            ("pkg/store.py::Store", "main.py:5"), ("pkg/store.py::Store.add_event", "main.py:6"),
        ]  # fmt: skip
        assert await client.found("bases", "Store") == [("pkg/base.py::Base", "pkg/store.py:6")]
        assert await client.found("subclasses", "Base") == [("pkg/store.py::Store", "pkg/store.py:6")]
        assert await client.found("importers", "pkg/base.py") == [("pkg/store.py", "pkg/store.py:3")]
        assert [end for end, _ in await client.found("path", "main.py", to="os.getcwd")] == [
            "main.py::run", "pkg/store.py::Store.add_event", "pkg/store.py::Store.flush", "external::os.getcwd",
        ]  # fmt: skip
        answer = (await client.ask("symbols", symbol="pkg/store.py::Store")).json()
        assert [(one["name"], one["kind"], one["line"]) for one in answer["symbols"]] == [
            ("add_event", "method", 7), ("flush", "method", 10),
        ]  # fmt: skip

        for question, status, given in (
            ("callers", 404, {"symbol": "nobody"}), ("callers", 422, {"symbol": "main.py"}), ("path", 422, {"symbol": "run"}),
            ("callers", 422, {}), ("callers", 422, {"symbol": "run", "depth": 99}), ("authors", 422, {"symbol": "run"}),
            ("callers", 422, {"symbol": "a\0b"}),
        ):  # fmt: skip
            refused = await client.ask(question, **given)
            assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        for who, status in ((None, 401), ("default query", 403), ("other inspect", 404)):
            assert (await client.ask("callers", who, symbol="run")).status_code == status


async def test_agents_ask_through_the_ready_made_allow_list(opens: Opens, store: str, tmp_path: Path) -> None:
    """Labels and types are those of code, in the language that agents speak."""
    async with opens(store) as client:
        await indexed(client.app, tmp_path, FILES, store)
        await client.app.graphs.publish("repo", Publication(corpus="repo", graph_schema=CODE))
        tools = await client.app.graphs.tools()

        async def match(expression: str) -> list[dict[str, Any]]:
            asked = {"knowledgeSourceName": "repo", "expression": expression}
            told = dict(await tools.run(QUERY, asked, Deadline.never()))
            return list(told["records"])

        assert await match(
            "MATCH (f:Function)-[c:CALLS]->(m:Method) RETURN f.name AS caller, c.line AS line, m.qualname AS callee"
        ) == [{"caller": "run", "line": 6, "callee": "Store.add_event"}]
        assert await match("MATCH (a:Class)-[:INHERITS]->(b:Class) RETURN a.name AS a, b.doc AS doc") == [
            {"a": "Store", "doc": "What all have."}
        ]
        assert {
            one["name"] for one in await match("MATCH (m:Module)-[:IMPORTS]->(e:External) RETURN e.name AS name")
        } == {"os"}


async def test_an_identifier_leads_to_its_callers_by_the_graph(opens: Opens, tmp_path: Path) -> None:
    """The definition first, then whoever calls it, though the caller's text does not name what was asked for."""
    files = {
        **FILES,
        "alias.py": "from pkg.store import Store\n\nput = Store.add_event\n",
        "far.py": "from alias import put\n\n\ndef late(store):\n    put(store, 2)\n",
        **{f"other{n}.py": f"def other{n}():\n    return {n}\n" for n in range(30)},
    }
    async with opens("postgres") as client:
        await indexed(client.app, tmp_path, files, "postgres")
        for strategy in (Strategy.GRAPH, Strategy.HYBRID):
            asked = QueryRequest(text="add_event", strategy=strategy, top_k=10, deadline=30)
            answer = await client.app.query("repo", asked)
            by_graph = [hit.document for hit in answer.hits if "graph" in hit.streams]
            assert {"pkg/store.py", "main.py", "far.py"} <= set(by_graph)
            assert strategy is Strategy.HYBRID or by_graph[0] == "pkg/store.py"
        plain = await client.app.query("repo", QueryRequest(text="add_event", strategy=Strategy.KEYWORD, top_k=10))
        assert "far.py" not in {hit.document for hit in plain.hits}  # the control: words do not lead there


async def test_documents_beside_the_code_are_found_and_are_no_entities(opens: Opens, tmp_path: Path) -> None:
    """Markdown is searched as text."""
    async with opens("postgres") as client:
        await indexed(client.app, tmp_path, FILES, "postgres")
        answer = await client.app.query("repo", QueryRequest(text="lighthouse oil", top_k=3))
        assert answer.hits[0].document == "notes.md"
        assert (await client.ask("symbols", symbol="notes.md")).json()["symbols"] == []

"""The OpenAPI document is valid and whole, and no generated request gets an answer that it does not announce."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
import schemathesis
from fastapi import Depends, FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from schemathesis.core.result import Ok

from pipeline.deadline import Deadline
from pipeline.errors import Unauthorized
from schemas.keys import ApiKey
from schemas.query import QueryRequest
from tests.cli_driver import HANDBOOK
from tests.figures import say
from tests.gateway_driver import PATIENCE, settings
from tests.openapi_explorer import Wanted, explored
from worker.app import open_sapwood
from worker.compose import Services
from worker.gateway import problems
from worker.gateway.access import Principal, Scope, require
from worker.gateway.app import create_app
from worker.gateway.server import Server, config, listening
from worker.settings import WorkerSettings

KEY = "Bearer the-right-one"
STREAM_SECONDS = 0.3
"""After which a stream is told that the server stops; those of a corpus have no end of their own."""

OPEN_TO_ALL = {"get /livez", "get /readyz"}
METHODS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True, slots=True)
class OneKey:
    """Admits whoever shows the one key, with all scopes, for the tenant `default`; `careless`, whoever comes."""

    careless: bool = False

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        if authorization != KEY and not self.careless:
            raise Unauthorized()
        return Principal("default", "key", frozenset(Scope))


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway with something in it, and names of what there is."""

    app: FastAPI
    url: str
    known: Mapping[str, Sequence[str | int]]


@asynccontextmanager
async def place(tmp_path: Path, database: str, redis_url: str, careless: bool = False) -> AsyncGenerator[Place, None]:
    """Serve a corpus of two generations, a few that may be deleted, and runs that ended or wait."""
    fast = {"gateway_requests_per_second": 100_000.0, "gateway_failures_per_second": 100_000.0}
    given = settings(tmp_path, database, redis_url, gateway_auth="keys", **fast)
    with listening(given) as (sock, url):
        async with open_sapwood(given) as sapwood, anyio.create_task_group() as group:
            runs: list[str] = []
            for _ in range(2):
                runs.append((await sapwood.work((await sapwood.index("handbook", [str(HANDBOOK)])).run_id)).run_id)
                await anyio.to_thread.run_sync(
                    partial((tmp_path / "more.md").write_text, "# More\n\nMore is in Bath.\n")
                )
            runs.append((await sapwood.enqueue_query("handbook", QueryRequest(text="Where?", deadline=3600.0))).run_id)
            await sapwood.services.keys.create_tenant("red", Deadline.after(10))
            spare = [f"spare-{number}" for number in range(20)]
            for name in spare:
                await sapwood.create_corpus(name)
            app = served(sapwood.services, given, OneKey(careless))
            server = Server(config(app, given), anyio.Event())
            ended = anyio.Event()

            async def serve() -> None:
                await server.serve(sockets=[sock])
                ended.set()

            group.start_soon(serve)
            group.start_soon(end_streams, app)
            entities = [one async for one in sapwood.export_graph("handbook")]
            try:
                known = {"corpus": ["handbook"], "run": runs, "spare": spare, "entity": ids(entities)}
                keys = [await new_key(sapwood.services) for _ in range(5)]
                yield Place(app, url, known | {"file": ["a.md"], "generation": [1, 2], "key": keys, "tenant": ["red"]})
            finally:
                server.should_exit = True
                with anyio.move_on_after(PATIENCE, shield=True):
                    await ended.wait()
                group.cancel_scope.cancel()


async def new_key(services: Services) -> str:
    """Return the public id of a key that may be revoked."""
    key, soon = ApiKey.new(), Deadline.after(10)
    await services.keys.add(
        key.key_id, key.hash(), tenant="default", name="", scopes=[Scope.QUERY], seconds=None, deadline=soon
    )
    return key.key_id


def ids(lines: list[str]) -> list[str]:
    """Return the ids of some entities of an exported graph."""
    return [one["entity_id"] for one in map(json.loads, lines) if "entity_id" in one][:20]


def served(services: Services, given: WorkerSettings, door: OneKey) -> FastAPI:
    """Return the application; it takes uploads, as a gateway with the embedded database does."""
    return create_app(services, door, given.model_copy(update={"database_url": None}))


async def end_streams(app: FastAPI) -> None:
    """Tell those streams that are open that the server stops, again and again."""
    while True:
        before, app.state.pace = app.state.pace, replace(app.state.pace, closing=anyio.Event())
        before.closing.set()
        await anyio.sleep(STREAM_SECONDS)


def operations(app: FastAPI) -> dict[str, dict[str, Any]]:
    """Return all operations of the document as `method /path/{parameter}`."""
    return {
        f"{method} {path}": operation
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    }


async def test_no_generated_request_gets_an_answer_that_is_not_announced(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Every operation, valid and invalid requests, with the key and without: no error of ours, and what comes is documented."""
    async with place(tmp_path, database, redis_url) as where:
        found = await explored(Wanted(where.url, KEY, where.known))
        answered = {label for label, answers in found.answers.items() if "2xx" in answers}
        everything = set(operations(where.app))
        say(
            request,
            f"{found.requests} generated requests to {len(found.answers)} operations: {len(found.faults)} faults",
        )
        assert not found.faults, "\n\n".join(f"{name}\n{text}" for name, text in found.faults.items())
        assert set(found.answers) == everything, "an operation that was not asked for proves nothing"
        assert len(answered) >= 0.7 * len(everything), f"only refusals were seen of {everything - answered}"


async def test_a_route_that_breaks_its_word_is_found_out(tmp_path: Path, database: str, redis_url: str) -> None:
    """The negative control: each check finds the route that was made to fail it, and a door that is open to all."""
    async with place(tmp_path, database, redis_url, careless=True) as where:
        add_broken_routes(where.app)
        found = await explored(Wanted(where.url, KEY, where.known, "/broken", 12))
    assert set(found.faults) >= {
        "get /broken/error: not_a_server_error",
        "get /broken/status: status_code_conformance",
        "get /broken/type: content_type_conformance",
        "get /broken/body: response_schema_conformance",
        "get /broken/good: ignored_auth",
    }, found


class Promised(BaseModel):
    """What the broken routes announce."""

    number: int


def add_broken_routes(app: FastAPI) -> None:
    """Add a route for each way in which one may not do what the document says."""
    asked = [Depends(require(Scope.INSPECT))]

    async def error(number: int = 0) -> Promised:
        raise RuntimeError("a fault of ours")

    async def status() -> Response:
        return JSONResponse({"number": 1}, 418)

    async def of_type() -> Response:
        return PlainTextResponse("1")

    async def body() -> Response:
        return JSONResponse({"number": "many"})

    async def good() -> Promised:
        return Promised(number=1)

    for name, route in {"error": error, "status": status, "type": of_type, "body": body, "good": good}.items():
        app.add_api_route(f"/broken/{name}", route, response_model=Promised, dependencies=asked)


def test_the_document_is_valid() -> None:
    """By the schema of its own version of OpenAPI, with every reference there."""
    document: dict[str, Any] = described().openapi()
    assert document["openapi"].startswith("3.1")
    schema: Any = schemathesis.openapi.from_dict(document)
    schema.validate()
    assert all(isinstance(one, Ok) for one in schema.get_all_operations())
    broken: dict[str, Any] = document | {"paths": {"/x": {"get": {"responses": {"200": {}}}}}}
    with pytest.raises(Exception, match="description"):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_operation_says_what_it_does_and_who_may() -> None:
    """A summary, a description, an id and a group; its errors as problems; and the key, but for the probes."""
    app = described()
    document, ids_ = app.openapi(), set[str]()
    for name, operation in operations(app).items():
        assert operation["summary"] and operation["description"] and operation["tags"], name
        assert operation["operationId"] not in ids_, name
        ids_.add(operation["operationId"])
        assert ("security" in operation) == (name in OPEN_TO_ALL), name
        assert operation.get("security", document["security"]) == ([] if name in OPEN_TO_ALL else [{"key": []}]), name
        responses = operation["responses"]
        assert {"401", "403", "404", "422", "429", "5XX"} <= set(responses), name
        assert any(status.startswith("2") for status in responses), name
        for status, response in responses.items():
            assert response["description"], (name, status)
            if status >= "4":
                assert set(response["content"]) == {problems.MEDIA_TYPE}, (name, status)
    assert document["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}


def described() -> FastAPI:
    """Return an application to be described, over no services."""
    return create_app(cast("Services", None), OneKey())

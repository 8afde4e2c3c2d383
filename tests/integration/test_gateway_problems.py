"""The gateway's errors: one table, problem details everywhere, and nothing in them that nobody should see."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI, Request

from pipeline import errors
from pipeline.errors import ConfigurationError, Refused, SapwoodError, TooMany
from worker.compose import Services
from worker.gateway import problems
from worker.gateway.app import create_app
from worker.gateway.local import Everybody, check_places, is_loopback, needs_keys
from worker.settings import WorkerSettings, load

SECRET = "correct-horse-battery"


def tree(error: type[SapwoodError] = SapwoodError) -> Iterator[type[SapwoodError]]:
    yield error
    for child in error.__subclasses__():
        yield from tree(child)


def given(**values: str) -> WorkerSettings:
    return load({f"SAPWOOD_GATEWAY_{name.upper()}": value for name, value in values.items()})


def app(settings: WorkerSettings | None = None) -> FastAPI:
    """The application over no services at all: what is refused never reaches them."""
    return create_app(cast("Services", None), Everybody(), settings)


@asynccontextmanager
async def client(of: FastAPI) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(of, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as found:
        yield found


def is_problem(response: httpx.Response, status: int, code: str = "") -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status, body
    assert response.headers["content-type"] == "application/problem+json"
    assert (body["status"], body["type"]) == (status, "about:blank")
    assert body["title"] and body["detail"]
    assert not code or body["code"] == code
    return body


@pytest.mark.parametrize("error", list(tree()), ids=lambda error: error.__name__)
async def test_every_error_of_the_tree_is_a_problem(error: type[SapwoodError]) -> None:
    """Each class, raised in a route, becomes its status, by the table or by its nearest parent in it."""
    special = {errors.PromotionRefused: (("code",),), errors.Refusal: ("INVALID_QUERY", "Mend the thing.")}
    made = error(*special.get(error, ("Mend the thing.",)))  # type: ignore[arg-type]
    of = app()

    @of.get("/raise")
    async def fail(request: Request) -> None:
        raise made

    async with client(of) as http:
        body = is_problem(await http.get("/raise"), problems.status_of(error), error.__name__)
    assert body["status"] >= 400
    assert (
        error.__mro__[1] not in problems.STATUS
        or error in problems.STATUS
        or (problems.status_of(error) == problems.status_of(error.__mro__[1]))
    )


def test_the_table_holds_classes_of_the_tree_only() -> None:
    assert set(problems.STATUS) <= set(tree())
    assert problems.STATUS[SapwoodError] == 500


async def test_what_went_wrong_inside_says_nothing_of_it() -> None:
    """Neither an unforeseen error nor a fault of ours puts its text, a traceback or a path into the body."""
    of = app()

    @of.get("/crash")
    async def crash() -> None:
        raise RuntimeError(f"postgresql://me:{SECRET}@db.example/x")

    @of.get("/fault")
    async def fault() -> None:
        raise errors.StoreRefused(f"statement {SECRET}")

    async with client(of) as http:
        for path in ("/crash", "/fault"):
            response = await http.get(path)
            is_problem(response, 500)
            for hidden in (SECRET, "Traceback", "db.example", ".py"):
                assert hidden not in response.text


async def test_unknown_routes_methods_and_bodies_are_problems_too() -> None:
    async with client(app()) as http:
        is_problem(await http.get("/nothing/here"), 404, "NotFound")
        is_problem(await http.delete("/v1/corpora"), 405, "MethodNotAllowed")
        body = is_problem(await http.post("/v1/corpora/c/query", json={"text": "x", "top_k": 0}), 422, "InvalidRequest")
        assert [one["field"] for one in body["errors"]] == ["body.top_k"]
        is_problem(await http.post("/v1/corpora/c/query", content=b"{"), 422)
        is_problem(await http.get("/v1/runs/no!such!id"), 422)
        is_problem(await http.get("/v1/corpora/%00"), 422)
        is_problem(await http.post("/v1/corpora", json={"name": "c", "unknown": 1}), 422)


@pytest.mark.parametrize(
    "value",
    ['{"text": "x", "filters": {"a": "\\u0000"}}', '{"text": "x", "filters": {"\\ud800": 1}}',
     '{"text": "x", "filters": {"a": [{"b": 1e999}]}}', '{"text": "x", "filters": {"a": 18446744073709551616}}',
     '{"text": "x", "filters": ' + '{"a":' * 300 + "1" + "}" * 301],
)  # fmt: skip
async def test_what_no_store_can_keep_is_refused(value: str) -> None:
    async with client(app()) as http:
        headers = {"content-type": "application/json"}
        is_problem(await http.post("/v1/corpora/c/query", content=value, headers=headers), 422, "InvalidRequest")


async def test_a_body_over_the_limit_is_refused_announced_or_not() -> None:
    async def parts() -> AsyncGenerator[bytes, None]:
        for _ in range(5):
            yield b" " * 1000

    async with client(app(given(max_body_bytes="2000"))) as http:
        is_problem(await http.post("/v1/corpora", content=b" " * 2001), 413)
        is_problem(await http.post("/v1/corpora", content=parts(), headers={"content-type": "application/json"}), 413)
        is_problem(await http.post("/v1/corpora", content=b" " * 2000), 422)


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}])
async def test_without_keys_a_foreign_page_or_name_is_refused(headers: dict[str, str]) -> None:
    """A name that points here, and a page that calls here; with keys both may be what they like."""
    async with client(app()) as http:
        is_problem(await http.get("/v1/nothing", headers=headers), 403, "Refused")
        response = await http.get("/v1/nothing", headers={"origin": "http://127.0.0.1:8321"})
        is_problem(response, 404)
        assert not [name for name in response.headers if name.startswith("access-control")]
    async with client(app(given(auth="keys"))) as http:
        is_problem(await http.get("/v1/nothing", headers=headers), 404)


def test_nobody_is_let_in_without_a_key_from_elsewhere() -> None:
    assert not needs_keys(given())
    assert needs_keys(given(auth="keys"))
    assert needs_keys(given(listen="0.0.0.0:8321"))
    assert not needs_keys(given(listen="[::1]:8321"))
    for listen in ("0.0.0.0:8321", "[::]:8321", "10.0.0.1:8321", "gateway.example:8321"):
        with pytest.raises(ConfigurationError, match="SAPWOOD_GATEWAY_AUTH"):
            needs_keys(given(auth="none", listen=listen))
    assert not is_loopback("127.0.0.1.evil.example")
    assert not is_loopback("")


def test_with_keys_files_are_read_below_the_roots_alone(tmp_path: Path) -> None:
    """Below the tenant's own folder, that is: a neighbour's is as foreign as /etc."""
    top, root = tmp_path / "top", tmp_path / "top" / "red"
    root.mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    settings = given(auth="keys", source_roots=f"{top}:/nonexistent")
    check_places([str(root), f"{root}/a.md", f"triples:{root}/a.jsonl", "https://example.org/x"], settings, "red")
    check_places(["git+https://example.org/x@main"], settings, "red")
    for place in (
        "/etc/passwd", str(top), f"{top}/blue/x", f"{root}/../blue", f"{root}/out/other", f"triples:{tmp_path}/x", f"{root}2/x",
        f"git+file://{root}", f"git+{root}", f"git+/..{root}", f"git+FILE://{root}",
    ):  # fmt: skip
        with pytest.raises(Refused, match="path rule"):
            check_places([place], settings, "red")
        check_places([place], given(), "red")  # without keys a caller is who runs the command line
    for tenant in ("blue", "", ".", "..", "red/.."):
        with pytest.raises(Refused):
            check_places([str(root)], settings, tenant)
    with pytest.raises(Refused):
        check_places([str(root)], given(auth="keys"), "red")


async def test_the_description_is_complete() -> None:
    """Every route has a summary, a description, a model for its answer, and problems for its errors."""
    async with client(app()) as http:
        found = (await http.get("/openapi.json")).json()
    ours = {path: one for path, one in found["paths"].items() if path.startswith("/v1") or path.endswith("z")}
    assert len(ours) > 15
    for path, operations in ours.items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"] and operation["tags"], where
            for status, response in operation["responses"].items():
                assert response["description"], where
                kinds = response.get("content", {})
                if status >= "4":
                    assert list(kinds) == ["application/problem+json"], where
                    assert kinds["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
                elif status != "204":
                    assert all(kind["schema"] for kind in kinds.values()) and kinds, where
    assert found["security"] == [{"key": []}]


def test_too_many_says_when_to_come_again() -> None:
    assert problems.problem_of(TooMany("x", 2.1)).headers["retry-after"] == "3"
    assert problems.problem_of(errors.Unauthorized()).headers["www-authenticate"] == "Bearer"
    assert problems.problem_of(errors.StoreUnavailable()).headers["retry-after"] == "1"

"""Keys, tenants and limits over HTTP: by whom, for whom, and how soon a limit holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from pipeline.deadline import Deadline
from schemas.keys import ApiKey, Scope
from tests.cli_driver import HANDBOOK
from tests.gateway_driver import Gateway, running, settings
from worker.app import open_sapwood
from worker.gateway.keys import REMEMBER, KeyAuthenticator

QUESTION = {"text": "Who may use the laser cutter?", "deadline": 20.0}
TENANTS = ("red", "blue")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Office:
    """A gateway that asks for keys, whose memory of them is as old as the test wants."""

    def __init__(self, gateway: Gateway, clock: Clock) -> None:
        self.gateway = gateway
        self.clock = clock

    async def first(self, tenant: str, *scopes: Scope) -> dict[str, str]:
        """Return the headers of a key that is made as by the command line."""
        key = ApiKey.new()
        await self.gateway.app.services.keys.add(
            key.key_id, key.hash(), tenant=tenant, name="", scopes=scopes, seconds=None, deadline=Deadline.after(5)
        )
        return bearer(key.reveal())

    async def ok(self, method: str, path: str, status: int, headers: dict[str, str], **more: Any) -> Any:
        return await self.gateway.ok(method, path, status, headers=headers, **more)

    def forget(self) -> None:
        """Let the seconds pass in which the gateway remembers a key."""
        self.clock.now += REMEMBER


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def opened(tmp_path: Path, database: str, redis_url: str, **more: Any) -> AsyncGenerator[Office, None]:
    """Serve with keys; `red` and `blue` are tenants beside `default`."""
    clock = Clock()
    more = {"gateway_auth": "keys", "gateway_failures_per_second": 1000.0, **more}
    given = settings(tmp_path, database, redis_url, **more)
    async with open_sapwood(given) as app:
        for tenant in TENANTS:
            await app.services.keys.create_tenant(tenant, Deadline.after(5))
        async with running(given, KeyAuthenticator(app.services.keys, clock)) as gateway:
            yield Office(gateway, clock)


async def test_an_admin_makes_lists_and_ends_the_keys_of_its_own_tenant(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """From one admin key to a key that asks: shown once, with what it may, and gone within seconds of its end."""
    async with opened(tmp_path, database, redis_url) as office:
        ok, admin = office.ok, await office.first("red", Scope.ADMIN)
        order = {"name": "ci", "scopes": ["query", "index", "query"], "expires_in": 3600}
        response = await office.gateway.http.post("/v1/keys", json=order, headers=admin)
        assert (response.status_code, response.headers["cache-control"]) == (201, "no-store")
        made = response.json()
        assert (made["tenant"], made["name"], made["scopes"]) == ("red", "ci", ["index", "query"])
        assert made["expires_at"] > made["created_at"] and not made["ended"]
        secret = made.pop("key")
        listed = await ok("GET", "/v1/keys", 200, admin)
        assert [one["key_id"] for one in listed][1:] == [made["key_id"]] and made in listed
        assert ApiKey.parse(secret) is not None and secret not in str(listed)

        who = await ok("GET", "/v1/whoami", 200, bearer(secret))
        assert (who["tenant"], who["key_id"], who["scopes"]) == ("red", made["key_id"], ["index", "query"])
        assert who["limits"]["open_runs"] == 1000
        await ok("POST", "/v1/corpora", 201, bearer(secret), json={"name": "c"})
        for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", f"/v1/keys/{made['key_id']}")):
            refused = await ok(method, path, 403, bearer(secret), json=order if method == "POST" else None)
            assert "`admin`" in refused["detail"]

        ended = await ok("DELETE", f"/v1/keys/{made['key_id']}", 200, admin)
        assert ended["ended"] and await ok("DELETE", f"/v1/keys/{made['key_id']}", 200, admin) == ended
        office.forget()
        await ok("GET", "/v1/whoami", 401, bearer(secret))
        await ok("DELETE", f"/v1/keys/{'0' * 16}", 404, admin)
        for bad in (
            {"scopes": []},
            {"scopes": ["all"]},
            {"scopes": ["query"], "expires_in": 0},
            {"scopes": ["query"], "x": 1},
        ):
            await ok("POST", "/v1/keys", 422, admin, json=bad)


async def test_an_admin_of_one_tenant_is_nothing_to_another(tmp_path: Path, database: str, redis_url: str) -> None:
    """Neither by the id of a foreign key nor by the other's name; and tenants and limits are for operators."""
    async with opened(tmp_path, database, redis_url) as office:
        ok, red, blue = office.ok, await office.first("red", *Scope), await office.first("blue", *Scope)
        theirs = (await ok("GET", "/v1/whoami", 200, blue))["key_id"]
        await ok("DELETE", f"/v1/keys/{theirs}", 404, red)
        assert {one["tenant"] for one in await ok("GET", "/v1/keys", 200, red)} == {"red"}
        refusals = [
            await ok("GET", "/v1/keys?tenant=blue", 403, red),
            await ok("GET", "/v1/keys?tenant=absent", 403, red),
            await ok("POST", "/v1/keys?tenant=blue", 403, red, json={"scopes": ["query"]}),
            await ok("DELETE", f"/v1/keys/{theirs}?tenant=blue", 403, red),
            await ok("GET", "/v1/tenants", 403, red),
            await ok("POST", "/v1/tenants", 403, red, json={"name": "green"}),
            await ok("PUT", "/v1/tenants/red/limits", 403, red, json={"open_runs": 10_000}),
        ]
        assert len({one["detail"] for one in refusals}) == 1, "and none tells whether there is such a tenant"
        assert "blue" not in str(refusals)
        office.forget()
        await ok("GET", "/v1/whoami", 200, blue)


async def test_an_operator_makes_a_tenant_gives_it_a_key_and_limits_and_sees_none_of_its_corpora(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    async with opened(tmp_path, database, redis_url) as office:
        ok, operator = office.ok, await office.first("default", *Scope)
        made = await ok("POST", "/v1/tenants", 201, operator, json={"name": "green", "limits": {"streams": 3}})
        assert (made["name"], made["limits"]["streams"], made["limits"]["open_runs"]) == ("green", 3, None)
        await ok("POST", "/v1/tenants", 409, operator, json={"name": "green"})
        for name in ("", "a/b", "-a", "a\n"):
            await ok("POST", "/v1/tenants", 422, operator, json={"name": name})
        key = (await ok("POST", "/v1/keys?tenant=green", 201, operator, json={"scopes": ["index", "query"]}))["key"]
        await ok("POST", "/v1/corpora", 201, bearer(key), json={"name": "secret"})
        assert await ok("GET", "/v1/corpora", 200, operator) == []
        await ok("GET", "/v1/corpora/secret", 404, operator)
        tenants = await ok("GET", "/v1/tenants", 200, operator)
        assert [(one["name"], one["corpora"], one["keys"]) for one in tenants] == [
            ("blue", 0, 0), ("default", 0, 1), ("green", 1, 1), ("red", 0, 0),
        ]  # fmt: skip
        await ok("PUT", "/v1/tenants/absent/limits", 404, operator, json={})
        await ok("PUT", "/v1/tenants/green/limits", 422, operator, json={"of_tomorrow": 1})
        assert (await ok("GET", "/v1/keys?tenant=green", 200, operator))[0]["scopes"] == ["index", "query"]
        await ok("POST", "/v1/keys?tenant=absent", 404, operator, json={"scopes": ["query"]})


async def test_limits_of_a_tenant_hold_within_seconds_and_for_it_alone(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """All four, each seen to refuse; what is not set is the gateway's own, and so it is again when it is taken away."""
    async with opened(tmp_path, database, redis_url) as office:
        ok, http = office.ok, office.gateway.http
        operator, red, blue = [await office.first(one, *Scope) for one in ("default", *TENANTS)]

        async def limit(**limits: float) -> None:
            await ok("PUT", "/v1/tenants/red/limits", 200, operator, json=limits)
            office.forget()
            found = (await ok("GET", "/v1/whoami", 200, red))["limits"]
            assert {name: found[name] for name in limits} == limits

        for headers in (red, blue):
            await ok("POST", "/v1/corpora", 201, headers, json={"name": "c"})
        await limit(open_runs=1)
        run = (await ok("POST", "/v1/corpora/c/query-runs", 202, red, json=QUESTION))["run_id"]
        assert "1 runs" in (await ok("POST", "/v1/corpora/c/query-runs", 429, red, json=QUESTION))["detail"]
        for _ in range(2):
            await ok("POST", "/v1/corpora/c/query-runs", 202, blue, json=QUESTION)

        await limit(streams=1, direct_queries=0)
        async with http.stream("GET", f"/v1/runs/{run}/events", headers=red) as stream:
            assert stream.status_code == 200
            await ok("GET", "/v1/corpora/c/events", 429, red)
            await ok("GET", "/v1/corpora/c/export", 429, red)
        await ok("POST", "/v1/corpora/c/query", 429, red, json=QUESTION)
        await ok("POST", "/v1/corpora/c/query", 404, blue, json=QUESTION)
        await ok("POST", "/v1/corpora/c/query-runs", 202, red, json=QUESTION)

        await limit(requests_per_second=1)
        found = [(await http.get("/v1/whoami", headers=red)).status_code for _ in range(4)]
        assert 429 in found
        assert {(await http.get("/v1/whoami", headers=blue)).status_code for _ in range(4)} == {200}
        await ok("PUT", "/v1/tenants/red/limits", 200, operator, json={})
        office.forget()
        assert (await http.get("/v1/whoami", headers=blue)).status_code == 200
        with anyio.fail_after(20):
            while (answer := await http.get("/v1/whoami", headers=red)).status_code == 429:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        assert answer.json()["limits"]["requests_per_second"] == 10_000


async def test_a_limit_that_only_a_newer_program_knows_shuts_nobody_out(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    async with opened(tmp_path, database, redis_url) as office:
        async with office.gateway.app.services.pool.connection(Deadline.after(5)) as tx:
            await tx.execute("update tenant set limits = $1 where name = 'red'", {"of_tomorrow": 1, "streams": 7})
        red, operator = await office.first("red", Scope.QUERY), await office.first("default", Scope.ADMIN)
        assert (await office.ok("GET", "/v1/whoami", 200, red))["limits"]["streams"] == 7
        assert len(await office.ok("GET", "/v1/tenants", 200, operator)) == 3


async def test_a_key_that_works_goes_on_while_somebody_behind_its_address_tries_others(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """The attempts get 429 before the database is asked; the known key is let in, also after its seconds are over."""
    async with opened(tmp_path, database, redis_url, gateway_failures_per_second=0.5) as office:
        red, stranger = await office.first("red", Scope.QUERY), await office.first("red", Scope.QUERY)
        await office.ok("GET", "/v1/whoami", 200, red)
        http = office.gateway.http
        found = [(await http.get("/v1/whoami", headers=bearer(ApiKey.new().reveal()))).status_code for _ in range(12)]
        assert set(found) == {401, 429} and found[-1] == 429
        assert (await http.get("/v1/whoami", headers=stranger)).status_code == 429, (
            "as the docstring of `Failures` says"
        )
        office.forget()
        assert (await http.get("/v1/whoami", headers=red)).status_code == 200


@pytest.mark.parametrize("path", ["index-runs", "query-runs"])
async def test_a_key_of_another_request_is_refused_and_nothing_changes(
    tmp_path: Path, database: str, redis_url: str, path: str
) -> None:
    """The same words in another order of names are the same request; settings of a refused one are not taken over."""
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await gateway.ok("POST", "/v1/corpora", 201, json={"name": "c"})
        index = path == "index-runs"
        first: dict[str, Any] = {"sources": [str(HANDBOOK)], "include": ["*.md"]} if index else QUESTION
        other: dict[str, Any] = {**first, "settings": {"chunk": {"max_chars": 555}}} if index else {**first, "top_k": 2}
        key = {"idempotency-key": "k"}
        run = await gateway.ok("POST", f"/v1/corpora/c/{path}", 202, json=first, headers=key)
        again = dict(reversed(first.items()))
        assert (await gateway.ok("POST", f"/v1/corpora/c/{path}", 202, json=again, headers=key)) == run
        refused = await gateway.ok("POST", f"/v1/corpora/c/{path}", 422, json=other, headers=key)
        assert "another request" in refused["detail"]
        assert (await gateway.ok("GET", "/v1/corpora/c"))["settings"]["chunk"]["max_chars"] != 555
        assert len(await gateway.ok("GET", "/v1/corpora/c/runs")) == 1
        await gateway.ok("POST", f"/v1/corpora/c/{path}", 202, json=other, headers={"idempotency-key": "l"})


async def test_an_export_is_that_of_the_command_line_and_names_a_generation_or_the_graph(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        ok, app = gateway.ok, gateway.app
        await ok("POST", "/v1/corpora", 201, json={"name": "c"})
        await ok("GET", "/v1/corpora/c/export", 404)
        await ok("GET", "/v1/corpora/absent/export", 404)
        for _ in range(2):
            run = await ok("POST", "/v1/corpora/c/index-runs", 202, json={"sources": [str(HANDBOOK)]})
            await app.work(run["run_id"])
            await ok("PUT", "/v1/corpora/c/settings", json={"settings": {"chunk": {"max_chars": 900}}})
        for query, expected in (
            ({}, [line async for line in app.export("c")]),
            ({"generation": 1}, [line async for line in app.export("c", 1)]),
            ({"graph": "true"}, [line async for line in app.export_graph("c")]),
        ):
            answer = await gateway.http.get("/v1/corpora/c/export", params=query)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
            assert answer.text.splitlines() == expected and len(expected) > 10, query
        await ok("GET", "/v1/corpora/c/export", 404, params={"generation": 77})
        await ok("GET", "/v1/corpora/c/export", 422, params={"generation": 1, "graph": "true"})

"""Webhooks over HTTP: made, shown, rotated, tried out, repeated, by a tenant's admin and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import Unauthorized
from schemas.events import TERMINAL_TYPES
from tests.gateway_driver import Gateway, running, settings
from tests.webhook_receiver import Receiver, receiving
from worker.gateway.access import Principal, Scope
from worker.metrics import Metrics
from worker.webhooks import deliver_webhooks

PRIVATE = {"webhooks_private_networks": "127.0.0.0/8"}
ROUTES = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/rotate"),
    ("POST", "/test"),
    ("POST", "/deliveries/1/retry"),
]


class Names:
    """Admits whoever says a tenant and scopes: `Bearer red:admin`."""

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        tenant, _, scopes = (authorization or "").removeprefix("Bearer ").partition(":")
        if not tenant:
            raise Unauthorized()
        return Principal(tenant, tenant, frozenset(Scope(one) for one in scopes.split(",") if one))


def url(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/in"


def key(tenant: str, scopes: str = "admin") -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {tenant}:{scopes}"}}


async def delivered(gateway: Gateway, path: str, count: int) -> list[dict[str, Any]]:
    """Deliver until the newest `count` deliveries were made."""
    parts = gateway.app.services.webhooks
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(deliver_webhooks, parts.deliveries, parts.sender, Metrics())
            while True:
                found: list[dict[str, Any]] = (await gateway.ok("GET", path))["deliveries"]
                if [one["state"] for one in found] == ["delivered"] * count:
                    break
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()
    return found


async def test_a_webhook_from_its_making_to_its_end(tmp_path: Path, database: str, redis_url: str) -> None:
    async with (
        receiving() as receiver,
        running(settings(tmp_path, database, redis_url, **PRIVATE)) as gateway,
    ):
        ok = gateway.ok
        made = await gateway.http.post("/v1/webhooks", json={"url": url(receiver)})
        assert made.status_code == 201 and made.headers["cache-control"] == "no-store"
        first = made.json()
        path = made.headers["location"]
        assert path == f"/v1/webhooks/{first['webhook_id']}"
        assert (first["corpus"], first["kinds"], set(first["events"])) == (None, ["index", "query"], TERMINAL_TYPES)
        secret = first.pop("secret")
        assert secret.startswith("whsec_")
        assert await ok("GET", "/v1/webhooks") == [first]
        assert await ok("GET", path) == {**first, "deliveries": []}

        queued = await ok("POST", f"{path}/test", 202)
        assert (queued["type"], queued["state"], queued["attempts"]) == ("ping", "pending", 0)
        [ping] = await delivered(gateway, path, 1)
        assert (ping["message_id"], ping["status"]) == (queued["message_id"], 204)
        second = (await ok("POST", f"{path}/rotate"))["secret"]
        await ok("POST", f"{path}/deliveries/{ping['delivery_id']}/retry", 202)
        await delivered(gateway, path, 1)
        assert receiver.ids == [ping["message_id"]] * 2
        assert [one.verified(secret) for one in receiver.got] == [True, True]
        assert [one.verified(second) for one in receiver.got] == [False, True]

        await ok("POST", "/v1/corpora", 201, json={"name": "c"})
        run = await ok("POST", "/v1/corpora/c/query-runs", 202, json={"text": "Where?"})
        await ok("POST", f"/v1/runs/{run['run_id']}/cancel", 202)
        [cancelled, _] = await delivered(gateway, path, 2)
        assert (cancelled["type"], cancelled["run_id"], cancelled["seq"]) == ("cancelled", run["run_id"], 2)
        assert receiver.got[-1].json["run_id"] == run["run_id"] and receiver.got[-1].verified(second)

        off = await ok("PATCH", path, json={"enabled": False})
        assert (off["enabled"], off["disabled_reason"]) == (False, "disabled by request")
        await ok("POST", f"{path}/test", 409)
        assert (await ok("PATCH", path, json={"enabled": True}))["enabled"]
        shown = (await gateway.http.get(path)).text + (await gateway.http.get("/v1/webhooks")).text
        assert secret not in shown and second not in shown and "whsec" not in shown
        await ok("DELETE", path, 204)
        for method, rest in ROUTES:
            await ok(method, path + rest, 404, json={"enabled": True} if method == "PATCH" else None)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"url": "http://10.0.0.1/"}, "address rule"),
        ({"url": "http://169.254.169.254/"}, "address rule"),
        ({"url": "https://me:word@example.org/"}, "credential rule"),
        ({"url": "ftp://example.org/"}, "scheme rule"),
        ({"url": ""}, "url"),
        ({"url": "https://example.org/" + "x" * 3000}, "url"),
        ({}, "url"),
        ({"url": "https://example.org/", "events": []}, "events"),
        ({"url": "https://example.org/", "events": ["started"]}, "events"),
        ({"url": "https://example.org/", "kinds": ["batch"]}, "kinds"),
        ({"url": "https://example.org/", "secret": "mine"}, "secret"),
    ],
)
async def test_what_is_not_right_is_said_and_makes_nothing(
    tmp_path: Path, database: str, redis_url: str, order: dict[str, Any], said: str
) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        problem = await gateway.ok("POST", "/v1/webhooks", 422, json=order)
        assert said in problem["detail"]
        await gateway.ok("POST", "/v1/webhooks", 404, json={"url": "https://example.org/", "corpus": "missing"})
        await gateway.ok("GET", "/v1/webhooks/nonsense", 422)
        assert await gateway.ok("GET", "/v1/webhooks") == []


async def test_it_takes_an_admin_of_the_tenant(tmp_path: Path, database: str, redis_url: str) -> None:
    """All other scopes together are refused; another tenant's webhook is as one that does not exist."""
    given = settings(tmp_path, database, redis_url, gateway_auth="keys")
    async with running(given, Names()) as gateway:
        ok = gateway.ok
        for tenant in ("red", "green"):
            await gateway.app.services.keys.create_tenant(tenant, Deadline.after(10))
        order = {"json": {"url": "https://example.org/hook"}}
        made = await ok("POST", "/v1/webhooks", 201, **order, **key("green"))
        path = f"/v1/webhooks/{made['webhook_id']}"
        queued = await ok("POST", f"{path}/test", 202, **key("green"))
        routes = [(method, path + rest.replace("1", str(queued["delivery_id"]))) for method, rest in ROUTES]
        for method, place in [("GET", "/v1/webhooks"), ("POST", "/v1/webhooks"), *routes]:
            await ok(method, place, 401, **order)
            await ok(method, place, 403, **order, **key("green", "index,query,inspect"))
        for method, place in routes:
            body = {"json": {"enabled": False}} if method == "PATCH" else {}
            foreign = await gateway.http.request(method, place, **body, **key("red"))
            absent = await gateway.http.request(
                method, place.replace(made["webhook_id"], "wh_0123456789abcdef"), **body, **key("red")
            )
            assert foreign.status_code == absent.status_code == 404, (method, place)
            assert foreign.text.replace(made["webhook_id"], "wh_0123456789abcdef") == absent.text
        assert await ok("GET", "/v1/webhooks", **key("red")) == []
        [left] = await ok("GET", "/v1/webhooks", **key("green"))
        assert left["enabled"] and left["rotating_until"] is None

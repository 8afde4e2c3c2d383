"""MCP through the gateway, message by message: whose a session is, how many there are, and what a client that leaves ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import Unauthorized
from pipeline.graphtools.definitions import QUERY
from tests.gateway_driver import PATIENCE, Gateway, running, settings
from tests.published import TEAMS, publish, stuck
from worker.app import Sapwood
from worker.gateway.access import Principal, Scope
from worker.mcp import http as sessions

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
ASK = {"name": QUERY, "arguments": {"knowledgeSourceName": "workshop", "expression": TEAMS, "parameters": {}}}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def message(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Names:
    """Admits whoever says a tenant, a key and scopes: `Bearer red/first:index,query`."""

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        who, _, scopes = (authorization or "").removeprefix("Bearer ").partition(":")
        if not scopes:
            raise Unauthorized()
        return Principal(who.partition("/")[0], who, frozenset(map(Scope, scopes.split(","))))


class Talk:
    """One client of the older era, with its key and its session."""

    def __init__(self, gateway: Gateway, key: str, session: str = "") -> None:
        self._http = gateway.http
        self.headers = {**ACCEPT, "authorization": f"Bearer {key}"}
        if session:
            self.headers["mcp-session-id"] = session

    async def send(self, body: dict[str, Any], **headers: str) -> httpx.Response:
        return await self._http.post("/mcp", json=body, headers={**self.headers, **headers})

    async def begin(self) -> str:
        """Shake hands and return the session."""
        answer = await self.send(message(1, "initialize", HANDSHAKE))
        assert answer.status_code == 200, answer.text
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        done = await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert done.status_code == 202
        return answer.headers["mcp-session-id"]


def keyed(tmp_path: Path, database: str, redis_url: str, **more: Any) -> Any:
    return settings(tmp_path, database, redis_url, gateway_auth="keys", **more)


async def test_a_session_is_for_the_key_that_opened_it(tmp_path: Path, database: str, redis_url: str) -> None:
    """Another tenant's key, and another key of the tenant, hear what they hear of a session that does not exist."""
    async with running(keyed(tmp_path, database, redis_url), Names()) as gateway:
        session = await Talk(gateway, "red:query").begin()
        ask = message(2, "tools/list", {})
        assert (await Talk(gateway, "red:query", session).send(ask)).status_code == 200
        absent = await Talk(gateway, "red:query", "0" * 32).send(ask)
        for key in ("green:query", "red/second:query"):
            other = await Talk(gateway, key, session).send(ask)
            assert (other.status_code, other.text) == (absent.status_code, absent.text) == (404, absent.text)
            left = await gateway.http.delete("/mcp", headers=Talk(gateway, key, session).headers)
            assert left.status_code == 404
        assert (await Talk(gateway, "red:query", session).send(ask)).status_code == 200
        for key, status in (("nobody", 401), ("red:index", 403), ("red:inspect,admin", 403)):
            assert (await Talk(gateway, key, session).send(ask)).status_code == status
        ended = await gateway.http.delete("/mcp", headers=Talk(gateway, "red:query", session).headers)
        assert ended.status_code == 200
        assert (await Talk(gateway, "red:query", session).send(ask)).status_code == 404


async def test_sessions_are_so_many_for_each_tenant_and_end_when_idle(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 3.0)
    async with running(keyed(tmp_path, database, redis_url), Names()) as gateway:
        red = [Talk(gateway, "red:query") for _ in range(3)]
        [await talk.begin() for talk in red[:2]]
        full = await red[2].send(message(1, "initialize", HANDSHAKE))
        assert full.status_code == 503
        await Talk(gateway, "green:query").begin()
        with anyio.fail_after(PATIENCE):
            while (await red[2].send(message(1, "initialize", HANDSHAKE))).status_code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.2)
        assert (await red[0].send(message(2, "tools/list", {}))).status_code == 404


@pytest.mark.parametrize("era", ["2025-06-18", "2026-07-28"])
async def test_a_client_that_leaves_ends_its_query_in_the_database(
    tmp_path: Path, database: str, redis_url: str, era: str
) -> None:
    async with running(keyed(tmp_path, database, redis_url), Names()) as gateway:
        await gateway.app.services.keys.create_tenant("red", soon())
        await publish(Sapwood(gateway.app.services, "red"))
        talk, ask = Talk(gateway, "red:query"), message(2, "tools/call", ASK)
        headers: dict[str, str] = {}
        if era < "2026":
            await talk.begin()
        else:
            ask["params"] = {**ASK, "_meta": envelope(era)}
            headers = {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": QUERY}
        async with stuck(database) as held:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: talk.send(ask, **headers))
                await held.until(waiting=1)
                group.cancel_scope.cancel()
            await held.until(waiting=0)
        answer = await talk.send(ask, **headers)
        assert answer.status_code == 200 and "Electronics Team" in answer.text


def envelope(era: str) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol"
    return {f"{prefix}/protocolVersion": era, f"{prefix}/clientCapabilities": {}}


def soon() -> Deadline:
    return Deadline.after(PATIENCE)


async def test_a_cancelled_request_ends_in_the_database(tmp_path: Path, database: str, redis_url: str) -> None:
    """By the notification of the older era, sent beside the request; another session cannot send it."""
    async with running(keyed(tmp_path, database, redis_url), Names()) as gateway:
        await gateway.app.services.keys.create_tenant("red", soon())
        await publish(Sapwood(gateway.app.services, "red"))
        talk, other = Talk(gateway, "red:query"), Talk(gateway, "red:query")
        await talk.begin()
        await other.begin()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        answers: list[str] = []

        async def ask() -> None:
            answers.append((await talk.send(message(2, "tools/call", ASK))).text)

        async with stuck(database) as held, anyio.create_task_group() as group:
            group.start_soon(ask)
            await held.until(waiting=1)
            assert (await other.send(cancel)).status_code == 202
            await held.until(waiting=1)
            assert (await talk.send(cancel)).status_code == 202
            await held.until(waiting=0)
        assert "cancelled" in answers[0].lower() and "Electronics Team" not in answers[0]


async def test_pages_of_elsewhere_and_names_of_elsewhere_are_refused(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """With keys and without: by us before the protocol is spoken, and on this machine by the SDK too."""
    hello = message(1, "initialize", HANDSHAKE)
    async with running(keyed(tmp_path, database, redis_url), Names()) as gateway:
        talk = Talk(gateway, "red:query")
        assert (await talk.send(hello, origin="https://evil.example")).status_code == 403
        own = str(gateway.http.base_url).rstrip("/")
        assert (await talk.send(hello, origin=own)).status_code == 200
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        talk = Talk(gateway, "anybody")
        assert (await talk.send(hello, host="evil.example")).status_code == 403
        assert (await talk.send(hello, origin="https://evil.example")).status_code == 403
        assert (await talk.send(hello)).status_code == 200


async def test_calls_count_as_direct_queries_and_listeners_as_streams(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    given = keyed(tmp_path, database, redis_url, gateway_direct_queries=1, gateway_streams=1)
    async with running(given, Names()) as gateway:
        await gateway.app.services.keys.create_tenant("red", soon())
        await publish(Sapwood(gateway.app.services, "red"))
        talk, other = Talk(gateway, "red:query"), Talk(gateway, "red:query")
        await talk.begin()
        await other.begin()
        async with stuck(database) as held, anyio.create_task_group() as group:
            group.start_soon(talk.send, message(2, "tools/call", ASK))
            await held.until(waiting=1)
            busy = (await other.send(message(2, "tools/call", ASK))).text
            assert "Error: TooMany: " in busy
            group.cancel_scope.cancel()
        async with gateway.http.stream("GET", "/mcp", headers=talk.headers) as listening:
            assert listening.status_code == 200
            refused = await gateway.http.get("/mcp", headers=other.headers)
            assert (refused.status_code, json.loads(refused.text)["code"]) == (429, "TooMany")


async def test_listeners_end_with_the_gateway(tmp_path: Path, database: str, redis_url: str) -> None:
    """At once: it does not wait for those who only listen."""
    async with running(keyed(tmp_path, database, redis_url), Names()) as gateway:
        talk = Talk(gateway, "red:query")
        await talk.begin()
        async with gateway.http.stream("GET", "/mcp", headers=talk.headers) as listening:
            assert listening.status_code == 200
            gateway.server.should_exit = True
            try:
                async for _ in listening.aiter_bytes():
                    pass
            except httpx.RemoteProtocolError:
                pass  # cut off rather than ended: it is over all the same

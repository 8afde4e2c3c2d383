"""A gateway in the test's own process: real services, a real server on a free port, and a client that reads events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
from pydantic import SecretStr

from worker.app import Sapwood, open_sapwood
from worker.gateway.access import Authenticator
from worker.gateway.app import create_app
from worker.gateway.local import Everybody
from worker.gateway.server import Server, config, listening
from worker.settings import WorkerSettings

PATIENCE = 60.0
"""Seconds after which a test gives up; nothing is asserted about times."""


@dataclass(frozen=True, slots=True)
class Said:
    """One server-sent event."""

    id: str
    event: str
    data: dict[str, Any]


@dataclass
class Gateway:
    """A running gateway and the application behind it."""

    http: httpx.AsyncClient
    app: Sapwood
    server: Server

    async def ok(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        """Ask and insist on the status; return the JSON."""
        response = await self.http.request(method, path, **more)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    @asynccontextmanager
    async def events(
        self, path: str, last: str | None = None, method: str = "GET", **more: Any
    ) -> AsyncGenerator[AsyncGenerator[Said, None], None]:
        """Connect and yield the events as they come; leaving the block closes the connection."""
        headers = {"accept": "text/event-stream"} | ({} if last is None else {"last-event-id": last})
        async with self.http.stream(method, path, headers=headers, **more) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            async with aclosing(said(response)) as found:
                yield found

    async def all(self, path: str, last: str | None = None, **more: Any) -> list[Said]:
        """Return the events up to the end of the stream."""
        async with self.events(path, last, **more) as events:
            return [event async for event in events]


async def said(response: httpx.Response) -> AsyncGenerator[Said, None]:
    """Parse a stream of server-sent events."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            yield Said(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
            fields = {}


def settings(home: Path, database: str, redis_url: str, **more: Any) -> WorkerSettings:
    """Return the settings of a gateway on a free port of this machine."""
    return WorkerSettings(
        home=home,
        database_url=SecretStr(database),
        redis_url=SecretStr(redis_url),
        **{"gateway_listen": "127.0.0.1:0", "gateway_requests_per_second": 10_000.0, **more},
    )


@asynccontextmanager
async def running(given: WorkerSettings, authenticator: Authenticator | None = None) -> AsyncGenerator[Gateway, None]:
    """Serve in this loop until the end of the block."""
    with listening(given) as (sock, url):
        async with open_sapwood(given) as app, anyio.create_task_group() as group:
            of = create_app(app.services, authenticator or Everybody(), given)
            server = Server(config(of, given), of.state.pace.closing)
            ended = anyio.Event()
            await group.start(of.state.mcp.run)

            async def serve() -> None:
                await server.serve(sockets=[sock])
                ended.set()

            group.start_soon(serve)
            async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http:
                try:
                    with anyio.fail_after(PATIENCE):
                        yield Gateway(http, app, server)
                finally:
                    server.should_exit = True  # also when the test failed: it must not be cut off in the middle
                    with anyio.move_on_after(PATIENCE, shield=True):
                        await ended.wait()
                    group.cancel_scope.cancel()

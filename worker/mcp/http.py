"""MCP over HTTP, below the gateway's keys: sessions that end, and belong to the key that opened them.

Each tenant has a session manager of its own, so that another tenant's sessions do not even exist in it; within the tenant
the SDK refuses a session to any key but the one that opened it. The SDK is loaded when the first client comes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import Receive, Scope, Send

from pipeline.errors import StoreUnavailable
from worker.app import Sapwood
from worker.compose import Services
from worker.gateway.access import Principal
from worker.mcp.command import need_mcp
from worker.mcp.toolbox import Toolbox

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

MOST_SESSIONS = 200
"""Sessions of one tenant in this process that are open at a time."""

IDLE_SECONDS = 15 * 60.0
"""Seconds without a request after which a session ends."""

MOST_SECONDS = 3600.0
"""Seconds of one exchange at most; a client that listens for longer connects again, with a key that is then looked at."""

_LOCAL = ("127.0.0.1", "localhost", "[::1]")

Hold = Callable[[str], AbstractContextManager[None]]
"""Returns what is held while a tool works for a tenant; it raises TooMany."""


class McpSessions:
    """The sessions of all tenants in this process. They are served while `run` is; `closing` ends those who only listen.

    `local` says that the gateway serves this machine alone: the SDK then looks at the headers Host and Origin, too.
    """

    def __init__(self, services: Services, hold: Hold, body: int, local: bool, closing: anyio.Event) -> None:
        self._services = services
        self._hold = hold
        self._body = body
        self._local = local
        self._closing = closing
        self._lock = anyio.Lock()
        self._managers: dict[str, StreamableHTTPSessionManager] = {}
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve sessions until cancelled, which ends them and what is under way in them."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    async def exchange(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a caller who was admitted.

        Raises:
            MissingExtra: this installation lacks the protocol.
            StoreUnavailable: the gateway is about to end.
        """
        manager = await self._manager(principal.tenant)
        async with anyio.create_task_group() as group:
            if scope["method"] == "GET":
                group.start_soon(self._until_closing, group.cancel_scope)
            with anyio.move_on_after(MOST_SECONDS):
                await manager.handle_request({**scope, "user": _user(principal)}, receive, send)
            group.cancel_scope.cancel()

    async def _until_closing(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()

    async def _manager(self, tenant: str) -> StreamableHTTPSessionManager:
        async with self._lock:
            if tenant not in self._managers:
                await anyio.to_thread.run_sync(need_mcp)
                if self._group is None:
                    raise StoreUnavailable("Sessions are not served now; try again.")
                manager = self._made(tenant)
                await self._group.start(partial(_served, manager))
                self._managers[tenant] = manager
            return self._managers[tenant]

    def _made(self, tenant: str) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from worker.mcp.server import make_server

        security = None
        if self._local:
            hosts = [host + port for host in _LOCAL for port in ("", ":*")]
            security = TransportSecuritySettings(
                allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
            )
        return StreamableHTTPSessionManager(
            make_server(Toolbox(Sapwood(self._services, tenant)), partial(self._hold, tenant)),
            security_settings=security,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=self._body,
            max_sessions=MOST_SESSIONS,
        )


async def _served(
    manager: StreamableHTTPSessionManager, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()


def _user(principal: Principal) -> object:
    """Return the caller as the SDK compares it with who opened a session; the key's secret is not in it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=principal.key_id, scopes=[], subject=principal.tenant))

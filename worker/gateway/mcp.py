"""The route of MCP: whoever may ask questions may use the tools of agents."""

from __future__ import annotations

from contextlib import nullcontext
from typing import cast
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipeline.errors import Forbidden, MissingExtra
from worker.gateway.access import Principal
from worker.gateway.limits import Limits
from worker.gateway.orders import Asking
from worker.gateway.problems import problem
from worker.mcp.http import McpSessions

router = APIRouter(tags=["mcp"])


class Exchange(Response):
    """An answer that the protocol gives by itself."""

    def __init__(self, sessions: McpSessions, principal: Principal, limits: Limits) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers()
        self._sessions = sessions
        self._principal = principal
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond. Who listens holds one of the tenant's streams meanwhile."""
        listens = scope["method"] == "GET"
        try:
            with self._limits.stream(self._principal.tenant) if listens else nullcontext():
                await self._sessions.exchange(self._principal, scope, receive, send)
        except MissingExtra as error:
            await problem(501, str(error), "MissingExtra")(scope, receive, send)


@router.api_route("/mcp", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def mcp(request: Request, principal: Asking) -> Response:
    """Speak the Model Context Protocol (streamable HTTP). A page of another origin may not."""
    _check_origin(request)
    return Exchange(cast("McpSessions", request.app.state.mcp), principal, cast("Limits", request.app.state.limits))


def _check_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Forbidden("origin rule: a page of another origin may not speak MCP with this gateway")

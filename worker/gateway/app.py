"""The application: routers, limits, errors and the description of it all. It thinks nothing: parse, call, render."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from worker.compose import Services
from worker.gateway import (
    admin,
    code,
    corpora,
    graphs,
    inspection,
    mcp,
    probes,
    problems,
    queries,
    runs,
    uploads,
    webhooks,
)
from worker.gateway.access import Authenticator, check_routes
from worker.gateway.explorer import routes as explorer
from worker.gateway.guard import Guard
from worker.gateway.keys import Apart, KeyAuthenticator
from worker.gateway.limits import Failures, Limits, RateLimited
from worker.gateway.local import needs_keys
from worker.gateway.sse import Pace
from worker.mcp.http import McpSessions
from worker.settings import WorkerSettings, load


def _version() -> str:
    try:
        return version("sapwood")
    except PackageNotFoundError:
        return "0"


VERSION = _version()
"""Read once, since it is a look at files."""

_PROBLEM = {"$ref": "#/components/schemas/Problem"}

ROUTERS: tuple[APIRouter, ...] = (
    probes.router,
    corpora.router,
    uploads.router,
    runs.router,
    queries.router,
    inspection.router,
    code.router,
    admin.router,
    webhooks.router,
    graphs.router,
    mcp.router,
    explorer.router,
)
"""The routers of the gateway; a new one is one more entry."""


class Gateway(FastAPI):
    """An application whose description shows errors as problem details and keys as bearer tokens."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            made = get_openapi(title=self.title, version=self.version, routes=self.routes)
            for operation in (one for path in made["paths"].values() for one in path.values()):
                for status, response in operation["responses"].items():
                    if status >= "4" and "content" in response:
                        response["content"] = {problems.MEDIA_TYPE: {"schema": _PROBLEM}}
            made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"key": []}]
            self.openapi_schema = made
        return self.openapi_schema


def create_app(services: Services, authenticator: Authenticator, settings: WorkerSettings | None = None) -> FastAPI:
    """Return the application over open services; whoever made those closes them after it.

    Raises:
        ConfigurationError: the settings let everybody in on an address that others can reach, or a route asks for no scope.
    """
    settings = load({}) if settings is None else settings
    app = Gateway(title="Sapwood", version=VERSION, docs_url=None, redoc_url=None)
    limits = Limits(settings)
    app.state.services = services
    app.state.settings = settings
    app.state.limits = limits
    app.state.authenticator = RateLimited(authenticator, limits)
    app.state.pace = Pace(settings.gateway_heartbeat_seconds, settings.gateway_send_seconds, anyio.Event())
    local, body = not needs_keys(settings), settings.gateway_max_body_bytes
    app.state.mcp = McpSessions(services, limits.query, body, local, app.state.pace.closing)
    problems.install(app)
    app.add_middleware(
        Guard,
        limit=body,
        local=local,
        failures=Failures(settings.gateway_failures_per_second),
        familiar=authenticator.familiar if isinstance(authenticator, KeyAuthenticator) else _nobody_is,
    )
    app.add_middleware(Apart)
    for router in ROUTERS:
        app.include_router(router, responses=problems.RESPONSES)
    check_routes(app.routes)
    return app


def _nobody_is(_: str | None) -> bool:
    return False

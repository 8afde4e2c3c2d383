"""Who asks, and what they may do: every route states its scopes, and sees the corpora of its caller's tenant alone.

Nothing is open by forgetting. A request begins for nobody (`Apart`), for whom the database has no row; `require` admits a
caller, and from then on the request acts for the caller's tenant. A route that asks for no scope and is not among the open
ones is refused when the application is made (`check_routes`), and the guard lets no answer of such a route out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from pipeline.errors import ConfigurationError, Forbidden
from pipeline.tenancy import act_for
from schemas.keys import Scope as Scope
from schemas.keys import TenantLimits
from worker.app import Sapwood
from worker.compose import Services

OPEN = frozenset({"/", "/livez", "/readyz", "/openapi.json", "/explorer"})
"""The paths that anybody may ask for, beside the files of the explorer: probes, the description, and a page without data."""


def is_open(path: str) -> bool:
    """Whether anybody may ask for this path. Its route acts for nobody all the same."""
    return path in OPEN or path.startswith("/explorer/")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is behind a request. `key_id` is the public part of the key, for logs; `limits` are the tenant's own."""

    tenant: str
    key_id: str
    scopes: frozenset[Scope]
    limits: TenantLimits = field(default_factory=TenantLimits)


class Authenticator(Protocol):
    """Tells who is behind the value of an `Authorization` header."""

    async def principal(self, authorization: str | None) -> Principal:
        """Return who it is. Raises Unauthorized, always with the same words."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """A dependency that admits callers with one of these scopes, and returns who they are. Made by `require`."""

    scopes: tuple[Scope, ...]

    async def __call__(self, request: Request) -> Principal:
        """Have the request act for the caller's tenant from now on. Raises Unauthorized or Forbidden."""
        authenticator = cast("Authenticator", request.app.state.authenticator)
        found = await authenticator.principal(request.headers.get("authorization"))
        if not found.scopes.intersection(self.scopes):
            raise Forbidden(f"This key lacks the scope {' or '.join(f'`{scope}`' for scope in self.scopes)}.")
        act_for(found.tenant)
        request.state.principal = found
        return found


def require(*scopes: Scope) -> Admission:
    """Return a dependency that admits callers with one of these scopes.

    Raises:
        Unauthorized: nobody that is known.
        Forbidden: the key lacks the scope.
    """
    return Admission(scopes)


def check_routes(routes: Iterable[BaseRoute]) -> None:
    """Check that every route asks for a scope or is open on purpose. Raises ConfigurationError, which names the others."""
    unguarded = [_name(route) for route in _leaves(routes) if not _guarded(route)]
    if unguarded:
        raise ConfigurationError(f"Routes of the gateway that ask for no scope: {', '.join(unguarded)}.")


def sapwood_of(request: Request, principal: Principal) -> Sapwood:
    """Return the application for the caller's tenant."""
    return Sapwood(cast("Services", request.app.state.services), principal.tenant)


def _leaves(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Yield the routes, those of included routers too, which newer versions of FastAPI keep as they are."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from _leaves(inner.routes)


def _guarded(route: BaseRoute) -> bool:
    return is_open(getattr(route, "path", "")) or (isinstance(route, APIRoute) and _admits(route.dependant))


def _admits(dependant: Dependant) -> bool:
    return isinstance(dependant.call, Admission) or any(map(_admits, dependant.dependencies))


def _name(route: BaseRoute) -> str:
    return str(getattr(route, "path", "") or type(route).__name__)

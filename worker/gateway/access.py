"""Who asks, and what they may do: every route states its scope, and sees the corpora of its caller's tenant alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, cast

from fastapi import Request

from pipeline.errors import Forbidden
from schemas.keys import Scope as Scope
from worker.app import Sapwood
from worker.compose import Services


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is behind a request. `key_id` is the public part of the key, for logs and limits."""

    tenant: str
    key_id: str
    scopes: frozenset[Scope]


class Authenticator(Protocol):
    """Tells who is behind the value of an `Authorization` header."""

    async def principal(self, authorization: str | None) -> Principal:
        """Return who it is. Raises Unauthorized, always with the same words."""
        ...


def require(scope: Scope) -> Callable[[Request], Awaitable[Principal]]:
    """Return a dependency that admits callers with this scope, and returns who they are.

    Raises:
        Unauthorized: nobody that is known.
        Forbidden: the key lacks the scope.
    """

    async def check(request: Request) -> Principal:
        authenticator = cast("Authenticator", request.app.state.authenticator)
        found = await authenticator.principal(request.headers.get("authorization"))
        if scope not in found.scopes:
            raise Forbidden(f"This key lacks the scope `{scope}`.")
        return found

    return check


def sapwood_of(request: Request, principal: Principal) -> Sapwood:
    """Return the application for the caller's tenant."""
    return Sapwood(cast("Services", request.app.state.services), principal.tenant)

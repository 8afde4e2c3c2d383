"""What every request passes first: the limit of its body, the rules of a gateway without keys, and the access log.

It is also the last that an answer passes: what a route says to somebody whom it did not admit does not leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.errors import TooMany
from pipeline.ingest.folders import MAX_BYTES
from worker.gateway.access import is_open
from worker.gateway.limits import Failures
from worker.gateway.local import is_loopback
from worker.gateway.problems import OURS, problem, problem_of

QUIET = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are asked for all the time and not logged."""

Familiar = Callable[[str | None], bool]
"""Tells whether the value of an `Authorization` header was found to be good before."""

_TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_log = structlog.get_logger(__name__)


class Guard:
    """ASGI middleware. A body has at most `limit` bytes, an uploaded file as many as a document.

    `local` says that anybody is admitted, so that only this machine's own pages may call. A browser lets any page send
    requests to a loopback address, and a name can be made to point there: so the host that was called and the page that
    calls must both be of this machine.

    An answer that is no error goes to admitted callers alone, but for the open paths. Attempts that fail are counted by
    the address they come from; over the rate, only `familiar` keys are looked at.
    """

    def __init__(self, app: ASGIApp, *, limit: int, local: bool, failures: Failures, familiar: Familiar) -> None:
        self._app = app
        self._limit = limit
        self._local = local
        self._failures = failures
        self._familiar = familiar

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), int(HTTPStatus.INTERNAL_SERVER_ERROR)
        caller: dict[str, object] = scope.setdefault("state", {})  # where `Admission` leaves the principal
        open_, unguarded = is_open(scope["path"]), False

        async def noted(message: Message) -> None:
            nonlocal status, unguarded
            if message["type"] == "http.response.start" and not unguarded:
                unguarded = message["status"] < 300 and "principal" not in caller and not open_
                status = int(HTTPStatus.INTERNAL_SERVER_ERROR) if unguarded else message["status"]
                if unguarded:
                    _log.error("route.unguarded", method=scope["method"], path=scope["path"])
                    await problem(status, OURS, "InternalServerError")(scope, receive, send)
            if not unguarded:
                await send(message)

        try:
            limit = MAX_BYTES if scope["method"] == "PUT" and "/files/" in scope["path"] else self._limit
            refusal = self._refusal(Headers(scope=scope), limit) or self._throttle(scope)
            await (refusal or self._app)(scope, _bounded(receive, limit), noted)
        finally:
            if status == HTTPStatus.UNAUTHORIZED:
                self._failures.note(_address(scope))
            if scope["path"] not in QUIET:  # headers and query are not logged: they may hold what nobody should see
                seconds = round(time.monotonic() - started, 4)
                _log.info("request", method=scope["method"], path=scope["path"], status=status, seconds=seconds)

    def _throttle(self, scope: Scope) -> Response | None:
        if is_open(scope["path"]) or self._familiar(Headers(scope=scope).get("authorization")):
            return None
        try:
            self._failures.check(_address(scope))
        except TooMany as error:
            return problem_of(error)
        return None

    def _refusal(self, headers: Headers, limit: int) -> Response | None:
        if self._local and not _of_this_machine(headers):
            return problem(403, "Without keys the gateway serves this machine alone.", "Refused")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limit:
            return problem(_TOO_LARGE, _too_large(limit), "Refused")
        return None


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _bounded(receive: Receive, limit: int) -> Receive:
    got = 0

    async def read() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > limit:
            raise HTTPException(_TOO_LARGE, _too_large(limit))
        return message

    return read


def _too_large(limit: int) -> str:
    return f"size rule: this body has {limit} bytes at most"


def _of_this_machine(headers: Headers) -> bool:
    called = urlsplit(f"//{headers.get('host', '')}").hostname
    origin = headers.get("origin")
    return is_loopback(called or "") and (origin is None or is_loopback(urlsplit(origin).hostname or ""))

"""Nothing is open by forgetting: a route that asks for no scope does not start, does not answer, and sees no row."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, cast

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import StreamingResponse
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from pipeline.errors import ConfigurationError, TooMany, Unauthorized
from pipeline.tenancy import EVERYBODY, NOBODY, acting_for
from worker.compose import Services
from worker.gateway import app as gateway
from worker.gateway.access import OPEN, Principal, Scope, check_routes, is_open, require
from worker.gateway.app import create_app
from worker.gateway.limits import ADDRESSES, FAILURES_BURST, Failures
from worker.settings import load

WORDS = "what nobody should read"
SEEN: list[str] = []


class OneKey:
    """Admits `Bearer right`, for the tenant `red` and the scope `query`."""

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        if authorization != "Bearer right":
            raise Unauthorized()
        return Principal("red", "k", frozenset({Scope.QUERY}))


def application(**values: str) -> FastAPI:
    """The application over no services at all."""
    environment = {f"SAPWOOD_GATEWAY_{name.upper()}": value for name, value in {"auth": "keys", **values}.items()}
    return create_app(cast("Services", None), OneKey(), load(environment))


@asynccontextmanager
async def client(of: FastAPI, address: str = "10.0.0.1") -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(of, raise_app_exceptions=False, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as found:
        yield found


async def forgetful() -> str:
    SEEN.append(acting_for())
    return WORDS


async def stream() -> StreamingResponse:
    async def body() -> AsyncGenerator[str, None]:
        for _ in range(3):
            yield WORDS

    return StreamingResponse(body())


async def plain(_: Request) -> Response:
    return PlainTextResponse(WORDS)


async def mounted(scope: Connection, receive: Receive, send: Send) -> None:
    await PlainTextResponse(WORDS)(scope, receive, send)


async def nested(_: Annotated[Principal, Depends(require(Scope.QUERY))]) -> None:
    """A dependency that admits."""


FORGETFUL: dict[str, Callable[[APIRouter], None]] = {
    "/forgetful": lambda router: router.add_api_route("/forgetful", forgetful),
    "/stream": lambda router: router.add_api_route("/stream", stream),
    "/plain": lambda router: router.routes.append(Route("/plain", plain)),
    "/mounted": lambda router: router.routes.append(Mount("/mounted", mounted)),
    "/explorers": lambda router: router.add_api_route("/explorers", forgetful),
}
"""Routes of all kinds that ask for no scope."""


@pytest.mark.parametrize("path", FORGETFUL)
def test_a_route_that_asks_for_no_scope_does_not_start(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that an included router includes in its turn; the message names it."""
    inner, outer = APIRouter(), APIRouter()
    FORGETFUL[path](inner)
    outer.include_router(inner)
    for router in (inner, outer):
        monkeypatch.setattr(gateway, "ROUTERS", (*gateway.ROUTERS, router))
        with pytest.raises(ConfigurationError, match=f"no scope: .*{path}"):
            application()
        monkeypatch.undo()


def test_a_route_that_asks_does_and_so_does_one_that_is_open_on_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: in the signature, in the list of dependencies, of the router, and behind another dependency."""
    asks = Depends(require(Scope.QUERY))
    one, two = APIRouter(), APIRouter(dependencies=[asks])
    one.add_api_route("/listed", forgetful, dependencies=[asks])
    one.add_api_route("/nested", forgetful, dependencies=[Depends(nested)])
    one.add_api_route("/explorer/page.js", forgetful)
    two.add_api_route("/of-the-router", forgetful)
    monkeypatch.setattr(gateway, "ROUTERS", (*gateway.ROUTERS, one, two))
    application()


def test_what_is_open_is_little() -> None:
    """Probes, the description, and the page without data; a new one is a decision, and is made here."""
    assert {"/", "/livez", "/readyz", "/openapi.json", "/explorer"} == OPEN
    assert not [path for path in ("/v1", "/explorers", "/v1/explorer/", "/livez/", "") if is_open(path)]
    with pytest.raises(ConfigurationError, match="Mount"):
        check_routes([Mount("", mounted)])


@pytest.mark.parametrize("path", FORGETFUL)
async def test_a_route_that_was_added_later_answers_nobody_and_sees_nothing(path: str) -> None:
    """With a key or without; what it says does not leave, and what it would read is nobody's."""
    of, router = application(), APIRouter()
    FORGETFUL[path](router)
    if path in ("/plain", "/mounted"):
        of.router.routes.extend(router.routes)
    else:
        of.include_router(router)
    of.add_api_route("/guarded", forgetful, dependencies=[Depends(require(Scope.QUERY))])
    SEEN.clear()
    async with client(of) as http:
        for headers in ({}, {"authorization": "Bearer right"}):
            answer = await http.get("/mounted/x" if path == "/mounted" else path, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
            assert WORDS not in answer.text
        guarded = await http.get("/guarded", headers={"authorization": "Bearer right"})
        assert (guarded.status_code, guarded.json()) == (200, WORDS)
        assert (await http.get("/guarded")).status_code == 401
        assert (await http.get("/openapi.json")).status_code == 200
    assert SEEN[-1] == "red", "who is admitted acts for its tenant"
    assert set(SEEN[:-1]) <= {NOBODY}
    assert acting_for() == EVERYBODY


async def test_failed_attempts_from_one_address_are_bounded_and_count_for_nobody_else() -> None:
    """Over the rate there is 429 with a time; a neighbour's attempts, errors of others and open paths cost nothing."""
    of = application(failures_per_second="0.5")
    most = int(0.5 * FAILURES_BURST)
    async with client(of) as http, client(of, "10.0.0.2") as neighbour:
        for _ in range(3 * most):
            assert (await http.get("/v1/whoami", headers={"authorization": "Bearer right"})).status_code == 200
            assert (await http.get("/nothing/here")).status_code == 404
        found = [(await http.get("/v1/whoami")) for _ in range(most + 3)]
        assert [one.status_code for one in found] == [401] * most + [429] * 3
        assert int(found[-1].headers["retry-after"]) >= 1
        assert (await neighbour.get("/v1/whoami")).status_code == 401
        assert (await http.get("/openapi.json")).status_code == 200


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=60), st.sampled_from([0.5, 1.0, 7.0]))
def test_failures_are_let_through_up_to_the_rate_and_whoever_waits_may_try(
    turns: list[tuple[float, bool]], rate: float
) -> None:
    clock = Clock()
    one, failed = Failures(rate, clock), 0
    for pause, fails in turns:
        clock.now += pause
        try:
            one.check("a")
        except TooMany as error:
            clock.now += error.retry_after
            one.check("a")
        if fails:
            one.note("a")
            failed += 1
        assert failed <= max(1.0, rate * FAILURES_BURST) + (clock.now - 100.0) * rate + 1e-3


def test_addresses_are_bounded_in_number_and_an_ipv6_network_is_one() -> None:
    clock = Clock()
    one = Failures(0.01, clock)
    one.note("2001:db8::1")
    for address in ("2001:db8::2", "2001:db8::ffff:1"):
        with pytest.raises(TooMany):
            one.check(address)
    for address in ("2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1", ""):
        one.check(address)
    for number in range(ADDRESSES):
        one.note(f"somewhere-{number}")
    one.check("2001:db8::2")  # forgotten
    with pytest.raises(TooMany):
        one.check(f"somewhere-{ADDRESSES - 1}")

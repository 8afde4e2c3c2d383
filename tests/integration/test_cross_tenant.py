"""Generated requests across tenants, through the application and the gateway's routes: each sees its own, or nothing."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from fastapi import FastAPI
from starlette.types import Message

from pipeline.adapters.postgres_corpora import PostgresCorpora
from pipeline.deadline import Deadline
from pipeline.errors import NotFound
from pipeline.tenancy import act_for, apart
from schemas.corpora import Corpus
from schemas.keys import ApiKey, Scope
from tests.figures import say
from tests.integration.test_tenants import ASK, BY_CORPUS, BY_RUN, TENANTS, Town, listed, mark, routes, soon, town
from worker.app import Sapwood
from worker.gateway.app import create_app
from worker.gateway.keys import KeyAuthenticator
from worker.settings import load

REQUESTS = int(os.environ.get("SAPWOOD_CROSS_TENANT_REQUESTS") or 1200)
"""How many generated requests are made; half through the application, half through the gateway."""

AT_ONCE = 8
Call = Callable[[Sapwood, str], Awaitable[object]]

RESUMED: Mapping[str, Call] = {
    "subscribe, resumed": lambda app, run: listed(app.subscribe(run, 1)),
    "events, resumed": lambda app, run: app.events(run, 1),
}
RESUMED_CORPUS: Mapping[str, Call] = {
    "corpus_events, resumed": lambda app, corpus: app.corpus_events(corpus, 1),
    "query, uncached": lambda app, corpus: app.query(corpus, ASK.model_copy(update={"cache": False})),
}


@dataclass
class Seen:
    """What the requests met; `foreign` are those that showed what is another's."""

    asked: Counter[str] = field(default_factory=Counter[str])
    shown: Counter[str] = field(default_factory=Counter[str])
    hidden: int = 0
    foreign: list[str] = field(default_factory=list[str])

    def note(self, what: str, caller: str, text: str, absent: bool) -> None:
        """Look for marks of others in an answer; and for any answer at all where there should be none."""
        self.asked[what] += 1
        self.shown[what] += mark(caller) in text
        self.hidden += absent
        if (absent and text) or any(mark(other) in text for other in TENANTS if other != caller):
            self.foreign.append(f"{caller}: {what}")


async def many(ask: Callable[[random.Random], Awaitable[None]], requests: int) -> None:
    """Make so many requests, several at a time."""

    async def some(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(requests // AT_ONCE):
            await ask(rng)

    async with anyio.create_task_group() as group:
        for seed in range(AT_ONCE):
            group.start_soon(some, seed)


def by_application(place: Town, seen: Seen, walls: tuple[bool, ...] = (False, True)) -> Callable[..., Awaitable[None]]:
    """Return a request to the application: any read of any tenant's thing, with the second wall or without it."""
    by_run, by_corpus = {**BY_RUN, **RESUMED}, {**BY_CORPUS, **RESUMED_CORPUS}

    async def ask(rng: random.Random) -> None:
        caller, owner = rng.choice(TENANTS), rng.choice(TENANTS)
        if rng.random() < 0.5:
            name, call = rng.choice(list(by_run.items()))
            target, absent = rng.choice(place.runs[owner]), caller != owner
        else:
            name, call = rng.choice(list(by_corpus.items()))
            target = rng.choice(["shared", f"only-{owner}"])
            absent = target != "shared" and caller != owner
        with apart():
            if rng.choice(walls):
                act_for(caller)
            try:
                text = repr(await call(place.of(caller), target))
            except NotFound:
                text = "" if absent else "it is not found"
        seen.note(name, caller, text, absent)

    return ask


@dataclass(frozen=True, slots=True)
class Door:
    """The gateway of the town, a key for each tenant, and what each has that can be named."""

    app: FastAPI
    keys: dict[str, ApiKey]
    named: dict[str, dict[str, list[str]]]

    async def ask(
        self, tenant: str, method: str, path: str, headers: Mapping[str, str], body: object
    ) -> tuple[int, str]:
        """Call the application with the tenant's key; return status and text. A stream is left once it has said something."""
        target, _, query = path.partition("?")
        content = b"" if body is None else json.dumps(body).encode()
        given = {"authorization": f"Bearer {self.keys[tenant].reveal()}", "content-type": "application/json", **headers}
        scope: dict[str, Any] = {
            "type": "http", "http_version": "1.1", "method": method.upper(), "scheme": "http", "path": target,
            "raw_path": target.encode(), "query_string": query.encode(), "root_path": "", "server": ("gateway", 80),
            "client": ("127.0.0.1", 1), "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        pending, enough, parts, status = [content], anyio.Event(), [b""], 0

        async def receive() -> Message:
            if pending:
                return {"type": "http.request", "body": pending.pop(), "more_body": False}
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))
            if not message.get("more_body", True) or len(parts) > 3:
                enough.set()

        await self.app(scope, receive, send)
        return status, b"".join(parts).decode()


@asynccontextmanager
async def door(place: Town) -> AsyncGenerator[Door, None]:
    """Open the gateway, in process; its streams say something at least twenty times a second."""
    services, keys = place.of("red").services, {tenant: ApiKey.new() for tenant in TENANTS}
    for tenant, key in keys.items():
        await services.keys.add(
            key.key_id, key.hash(), tenant=tenant, name=mark(tenant), scopes=[*Scope], seconds=None, deadline=soon()
        )
    limits = {f"SAPWOOD_GATEWAY_{name}": "100000" for name in ("REQUESTS_PER_SECOND", "FAILURES_PER_SECOND")}
    settings = load({"SAPWOOD_GATEWAY_AUTH": "keys", "SAPWOOD_GATEWAY_HEARTBEAT_SECONDS": "0.05", **limits})
    named: dict[str, dict[str, list[str]]] = {}
    for tenant, app in place.apps.items():
        lines = [json.loads(line) for line in await listed(app.export_graph("shared"))]
        groups = await app.communities("shared")
        named[tenant] = {
            "entity_id": [line["entity_id"] for line in lines if "entity_id" in line],
            "community_id": [str(group["community_id"]) for group in groups],
            "run_id": place.runs[tenant],
            "corpus": ["shared", f"only-{tenant}"],
            "corpus_id": ["shared", f"only-{tenant}"],
            "tenant": [tenant],
        }
    yield Door(create_app(services, KeyAuthenticator(services.keys), settings), keys, named)


def by_gateway(place: Door, seen: Seen) -> Callable[..., Awaitable[None]]:
    """Return a request to any route that reads, as the OpenAPI document lists them, with names of one of the tenants."""
    reads = [route for route in routes(place.app) if route.startswith("get ") or route.endswith("/query")]

    async def ask(rng: random.Random) -> None:
        caller, owner = rng.choice(TENANTS), rng.choice(TENANTS)
        route = rng.choice(reads)
        method, _, path = route.partition(" ")
        chosen = {name: rng.choice(values) for name, values in place.named[owner].items()}
        if rng.random() < 0.3:  # a corpus of one's own, and things of another's in it
            chosen |= {"corpus": "shared", "corpus_id": "shared"}
        path = re.sub(r"\{(\w+)[^}]*\}", lambda found: chosen.get(found[1], "0123456789abcdef"), path)
        query = {"entity_id": chosen["entity_id"], "tenant": owner, "q": mark(owner), "after": rng.choice((0, 1))}
        headers = {"last-event-id": str(rng.choice((1, 2)))} if rng.random() < 0.5 else {}
        body = {"text": f"Where is the {mark(owner)} Tower?", "cache": rng.random() < 0.7} if method == "post" else None
        if "/documents" in path:
            query["after"] = ""
        status, text = await place.ask(caller, method, f"{path}?{urlencode(query)}", headers, body)
        named = "run_id}" in route or f"/only-{owner}" in path
        absent = caller != owner and named
        refused = status in (403, 404)
        seen.note(route, caller, "" if refused or status == 422 else text, absent)
        assert status < 500, (route, text)

    return ask


async def test_generated_requests_across_tenants_show_no_foreign_row(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Any read by any tenant of anything, resumed and cached ones too, many at the same time: its own, or not found."""
    async with town(tmp_path, database, redis_url) as place, door(place) as gateway:
        inside, outside = Seen(), Seen()
        await many(by_application(place, inside), REQUESTS // 2)
        await many(by_gateway(gateway, outside), REQUESTS // 2)
        total, hidden = inside.asked.total() + outside.asked.total(), inside.hidden + outside.hidden
        foreign = inside.foreign + outside.foreign
        say(request, f"{total} requests, {hidden} of them for foreign things: {len(foreign)} foreign rows")
    assert not foreign
    silent = {name for name in inside.asked if not inside.shown[name]}
    assert not silent & {"query", "export", "export_graph", "sources", "corpus_events", "events", "outcomes"}, silent
    speaking = {route for route in outside.asked if outside.shown[route]}
    assert len(speaking) >= 10, f"reads that never show a mark prove nothing: {speaking}"
    assert {route for route in speaking if "events" in route or "/api/graph" in route or route.endswith("query")}


async def test_with_the_predicate_removed_the_checker_finds_foreign_rows(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: corpora are looked up in anybody's name. The database's own wall still hides them all."""
    real = PostgresCorpora.get

    async def of_anybody(self: PostgresCorpora, tenant: str, name: str, deadline: Deadline) -> Corpus:
        for other in TENANTS[::-1]:
            try:
                return await real(self, other, name, deadline)
            except NotFound:
                continue
        return await real(self, tenant, name, deadline)

    async with town(tmp_path, database, redis_url) as place:
        monkeypatch.setattr(PostgresCorpora, "get", of_anybody)
        unwalled, walled = Seen(), Seen()
        await many(by_application(place, unwalled, (False,)), 160)
        await many(by_application(place, walled, (True,)), 160)
    assert len({line.partition(": ")[2] for line in unwalled.foreign}) >= 3, unwalled.foreign
    assert not walled.foreign

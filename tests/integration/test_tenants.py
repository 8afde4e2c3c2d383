"""No method of the application and no route of the gateway shows a tenant what is another's, or lets it change it."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.errors import EventsExpired, NotFound
from pipeline.feeds import Entry
from pipeline.tenancy import EVERYBODY, act_for, acting_for, apart
from schemas.ids import CorpusId, RunId
from schemas.keys import ApiKey, Scope
from schemas.query import QueryRequest
from schemas.runs import RunState
from schemas.settings import CorpusSettings
from worker.app import Sapwood, open_sapwood
from worker.gateway.access import require
from worker.gateway.app import create_app
from worker.gateway.keys import KeyAuthenticator
from worker.settings import WorkerSettings, load

TENANTS = ("red", "green", "blue")


def soon() -> Deadline:
    return Deadline.after(10)


def settings(tmp_path: Path, database: str, redis_url: str) -> WorkerSettings:
    return WorkerSettings(home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url))


ASK = QueryRequest(text="Where is the tower located?")


async def listed(items: AsyncGenerator[Any, None], most: int = 1000) -> list[Any]:
    """Return the first of the items, and leave the rest."""
    found: list[Any] = []
    async with aclosing(items):
        async for item in items:
            found.append(item)
            if len(found) == most:
                break
    return found


Call = Callable[[Sapwood, str], Awaitable[object]]

BY_CORPUS: Mapping[str, Call] = {
    "corpus": lambda app, corpus: app.corpus(corpus),
    "sources": lambda app, corpus: app.sources(corpus),
    "query": lambda app, corpus: app.query(corpus, ASK),
    "subscribe_corpus": lambda app, corpus: listed(app.subscribe_corpus(corpus), 3),
    "corpus_events": lambda app, corpus: app.corpus_events(corpus),
    "runs": lambda app, corpus: app.runs(corpus),
    "generations": lambda app, corpus: app.generations(corpus),
    "communities": lambda app, corpus: app.communities(corpus),
    "export": lambda app, corpus: listed(app.export(corpus)),
    "export_graph": lambda app, corpus: listed(app.export_graph(corpus)),
}
"""Reads that name a corpus."""

BY_RUN: Mapping[str, Call] = {
    "info": lambda app, run: app.info(run),
    "subscribe": lambda app, run: listed(app.subscribe(run)),
    "events": lambda app, run: app.events(run),
    "accounting": lambda app, run: app.accounting(run),
    "outcomes": lambda app, run: app.outcomes(run),
}
"""Reads that name a run."""

WRITES_BY_CORPUS: Mapping[str, Call] = {
    "set_settings": lambda app, corpus: app.set_settings(corpus, CorpusSettings()),
    "delete_corpus": lambda app, corpus: app.delete_corpus(corpus),
    "index": lambda app, corpus: app.index(corpus),
    "enqueue_query": lambda app, corpus: app.enqueue_query(corpus, ASK),
    "rollback": lambda app, corpus: app.rollback(corpus, 1),
    "gc": lambda app, corpus: app.gc(corpus, 1),
}
"""What changes something of a corpus that must be there."""

WRITES_BY_RUN: Mapping[str, Call] = {
    "work": lambda app, run: app.work(run),
    "cancel": lambda app, run: app.cancel(run, "mine now"),
    "request_cancel": lambda app, run: app.request_cancel(run, "mine now"),
}
"""What changes something of a run."""

NAME_NOTHING_FOREIGN = {
    "corpora": "lists the tenant's own; see the test of listings",
    "open_runs": "counts the tenant's own; see the test of listings",
    "create_corpus": "makes the tenant's own corpus of that name; see the test of equal names",
    "settings_of": "the defaults where there is no such corpus; see the test of equal names",
    "index_summary": "takes a run that was read before; see the test of foreign things",
    "changes": "watches folders of this machine; knows no tenant",
    "forget_uploads": "takes the id of a corpus that was read before",
}
"""Methods that can not be given another tenant's corpus or run."""


def public() -> set[str]:
    return {name for name, _ in inspect.getmembers(Sapwood, callable) if not name.startswith("_")}


def test_every_public_method_is_in_one_table() -> None:
    """A new method has to say how it keeps tenants apart."""
    tables = [set(table) for table in (BY_CORPUS, BY_RUN, WRITES_BY_CORPUS, WRITES_BY_RUN, NAME_NOTHING_FOREIGN)]
    named = set[str]().union(*tables)
    assert public() - named == set(), "not in a table"
    assert named - public() == set(), "no longer there"
    assert sum(map(len, tables)) == len(named)


@dataclass
class Town:
    """Tenants who all have a corpus `shared`, and each one that the others have not, with their own mark in all texts."""

    apps: dict[str, Sapwood]
    runs: dict[str, list[str]]
    open: dict[str, str]

    def of(self, tenant: str) -> Sapwood:
        return self.apps[tenant]


def mark(tenant: str) -> str:
    return f"Mark{tenant}"


@asynccontextmanager
async def town(tmp_path: Path, database: str, redis_url: str) -> AsyncGenerator[Town, None]:
    """Index two corpora of each tenant, answer a queued question, and leave another one in the queue."""
    async with open_sapwood(settings(tmp_path, database, redis_url)) as first:
        found = Town({}, {}, {})
        for tenant in TENANTS:
            await first.services.keys.create_tenant(tenant, soon())
            app = found.apps[tenant] = Sapwood(first.services, tenant)
            folder = anyio.Path(tmp_path / mark(tenant))
            await folder.mkdir()
            for number in range(3):
                text = f"# Towers\n\nThe {mark(tenant)} Tower is located in {mark(tenant)}ville, number {number}.\n"
                await (folder / f"{mark(tenant)}-{number}.md").write_text(text)
            ended = [
                await app.work((await app.index(corpus, [str(folder)])).run_id)
                for corpus in ("shared", f"only-{tenant}")
            ]
            ended.append(await app.work((await app.enqueue_query("shared", ASK)).run_id))
            assert {run.state for run in ended} == {RunState.COMPLETED}, ended
            found.runs[tenant] = [run.run_id for run in ended]
        later = ASK.model_copy(update={"deadline": 3600.0})  # nobody works on these
        found.open = {tenant: (await app.enqueue_query("shared", later)).run_id for tenant, app in found.apps.items()}
        yield found


async def refused(call: Awaitable[object]) -> str:
    """Insist that it is not found; return the words."""
    with pytest.raises(NotFound) as caught:
        await call
    return str(caught.value)


async def test_what_is_another_tenants_is_not_there(tmp_path: Path, database: str, redis_url: str) -> None:
    """Reads and writes by its name or id get the words for a thing that does not exist, and nothing of it has changed."""
    async with town(tmp_path, database, redis_url) as place:
        green, red = place.of("green"), place.of("red")
        before = [await listed(green.export(corpus)) for corpus in ("shared", "only-green")]
        for call in [*BY_CORPUS.values(), *WRITES_BY_CORPUS.values()]:
            words = await refused(call(red, "only-green"))
            assert words.replace("only-green", "absent") == await refused(call(red, "absent"))
        for run in [*place.runs["green"], place.open["green"]]:
            for call in [*BY_RUN.values(), *WRITES_BY_RUN.values()]:
                words = await refused(call(red, run))
                assert words.replace(run, "absent") == await refused(call(red, "absent"))
            await refused(red.index_summary(await green.info(run)))
        assert [await listed(green.export(corpus)) for corpus in ("shared", "only-green")] == before
        assert (await green.info(place.open["green"])).state is RunState.QUEUED
        assert all([await call(green, "only-green") for call in BY_CORPUS.values()]), "its own tenant sees all of it"
        assert all([await call(green, place.runs["green"][0]) for call in BY_RUN.values()])


async def test_corpora_of_equal_names_are_apart(tmp_path: Path, database: str, redis_url: str) -> None:
    """What one tenant does to `shared` is nothing to the other's."""
    async with town(tmp_path, database, redis_url) as place:
        green, red = place.of("green"), place.of("red")
        before = await listed(green.export("shared"))
        changed = CorpusSettings.model_validate({"chunk": {"max_chars": 777}})
        await red.create_corpus("shared", changed)
        assert (await red.settings_of("shared")).chunk.max_chars == 777
        assert (await green.settings_of("shared")).chunk.max_chars != 777
        await red.create_corpus("only-green")
        assert (await red.corpus("only-green")).corpus_id != (await green.corpus("only-green")).corpus_id
        await red.delete_corpus("shared")
        await refused(red.corpus("shared"))
        assert await listed(green.export("shared")) == before


async def test_listings_show_the_tenants_own(tmp_path: Path, database: str, redis_url: str) -> None:
    async with town(tmp_path, database, redis_url) as place:
        for tenant, app in place.apps.items():
            assert [one.name for one in await app.corpora()] == [f"only-{tenant}", "shared"]
            assert await app.open_runs(100) == 1
        assert await Sapwood(place.of("red").services, "default").corpora() == []


async def test_statements_without_a_tenant_reach_its_rows_alone(tmp_path: Path, database: str, redis_url: str) -> None:
    """Reads by the id of a foreign corpus or run, as if the application had forgotten to ask whose it is."""
    async with town(tmp_path, database, redis_url) as place:
        services, run = place.of("red").services, RunId(place.runs["green"][0])
        corpus = (await place.of("green").corpus("shared")).corpus_id

        async def reads() -> list[object]:
            return [
                await services.corpora.sources(corpus, soon()),
                await services.corpora.known(corpus, soon()),
                await services.corpora.communities(corpus, 1, 10, soon()),
                await services.corpora.accounting(run, 10, soon()),
                await services.generations.list(corpus, soon()),
                await services.runs.list(corpus, 10),
            ]

        assert all(await reads()), "without the wall they find what they ask for"
        assert await services.events.read(run, 0, 10)
        with apart():
            act_for("red")
            assert await reads() == [[], {}, [], ({}, []), [], []]
            with pytest.raises(EventsExpired):
                await services.events.read(run, 0, 10)
            with pytest.raises(NotFound):
                await services.runs.info(run)
            with pytest.raises(NotFound):
                await services.runs.cancel(RunId(place.open["green"]), "")
        assert (await place.of("green").info(place.open["green"])).state is RunState.QUEUED


async def test_a_feed_that_is_open_is_open_to_its_tenant_alone(tmp_path: Path, database: str, redis_url: str) -> None:
    """Its memory, the stream and the log hold what green follows; red, who knows the ids, gets nothing from any of them."""
    async with town(tmp_path, database, redis_url) as place:
        services, run = place.of("green").services, RunId(place.open["green"])
        corpus = (await place.of("green").corpus("shared")).corpus_id

        async def first(tenant: str, feed: AsyncGenerator[Sequence[Entry], None]) -> Sequence[Entry]:
            with apart():
                act_for(tenant)
                return await anext(feed)

        async with aclosing(services.feeds.run(run)) as own, aclosing(services.feeds.corpus(corpus)) as whole:
            assert (await first("green", own))[0].event.run_id == run
            assert len(await first("green", whole)) > 1
            for after in (0, 1):
                with pytest.raises(EventsExpired):
                    await first("red", services.feeds.run(run, after))
            with pytest.raises(EventsExpired):
                await first("red", services.feeds.corpus(corpus, 1))
            silent = services.feeds.corpus(corpus, 0)
            with anyio.move_on_after(1.0):  # from its beginning, a corpus that is not there has nothing to say
                raise AssertionError(await first("red", silent))
            await silent.aclose()
            assert services.feeds.followed == 2
            await place.of("green").request_cancel(run)
            assert (await first("green", own))[-1].event.terminal
            assert {entry.event.run_id for entry in await first("green", whole)} == {run}
        assert services.feeds.followed == 0


BODIES: Mapping[str, dict[str, Any]] = {
    "post /v1/corpora/{corpus}/query": {"text": "Where?"},
    "post /v1/corpora/{corpus}/query-runs": {"text": "Where?"},
    "post /v1/corpora/{corpus}/rollback": {"generation": 1},
    "put /v1/corpora/{corpus}/settings": {"settings": {}},
}
"""What a route needs to get as far as looking for the corpus or run."""

OPEN_TO_ALL = {"get /livez", "get /readyz"}
OF_TENANTS = {
    "get /v1/whoami",
    "get /v1/keys",
    "post /v1/keys",
    "get /v1/tenants",
    "post /v1/tenants",
    "put /v1/tenants/{tenant}/limits",
}
"""Routes of keys and tenants; see `test_admin_routes.py`."""
OF_WEBHOOKS = {
    "get /v1/webhooks",
    "post /v1/webhooks",
    "get /v1/webhooks/{webhook_id}",
    "patch /v1/webhooks/{webhook_id}",
    "delete /v1/webhooks/{webhook_id}",
    "post /v1/webhooks/{webhook_id}/rotate",
    "post /v1/webhooks/{webhook_id}/test",
    "post /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/retry",
}
"""See `test_webhook_routes.py`."""
OF_GRAPHS = {
    "get /v1/graphs",
    "get /v1/graphs/{name}",
    "put /v1/graphs/{name}",
    "delete /v1/graphs/{name}",
    "post /v1/graphs/{name}/match",
}
"""See `test_graph_routes.py`."""
NAMES_NOTHING = OPEN_TO_ALL | OF_TENANTS | OF_WEBHOOKS | OF_GRAPHS | {"get /v1/corpora", "post /v1/corpora"}
"""Routes that name no corpus or run that must be there."""


def routes(app: FastAPI) -> list[str]:
    """Return all routes of the gateway, as `method /path/{parameter}`."""
    paths: dict[str, dict[str, Any]] = app.openapi()["paths"]
    return [f"{method} {path}" for path, methods in paths.items() for method in methods]


@dataclass
class Caller:
    """Calls a gateway with a key, or without."""

    client: httpx.AsyncClient
    key: ApiKey | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key.reveal()}"}

    async def call(self, route: str, corpus: str, run: str) -> httpx.Response:
        method, _, path = route.partition(" ")
        path = path.replace("{corpus}", corpus).replace("{corpus_id}", corpus).replace("{run_id}", run)
        path = re.sub(r"\{.*?\}", "0123456789abcdef", path.replace("{question}", "callers"))
        query = {"entity_id": "place:0123456789abcdef01234567"} if "/entity" in path else {"symbol": "fire"}
        return await self.client.request(method, path, headers=self.headers, params=query, json=BODIES.get(route))


@asynccontextmanager
async def gateway(place: Town, tenant: str, *scopes: Scope) -> AsyncGenerator[tuple[FastAPI, Caller], None]:
    """Give the gateway of the town, and a caller with a key of this tenant."""
    services, key = place.of(tenant).services, ApiKey.new()
    await services.keys.add(
        key.key_id, key.hash(), tenant=tenant, name="", scopes=scopes, seconds=None, deadline=soon()
    )
    limits = ("REQUESTS_PER_SECOND", "FAILURES_PER_SECOND")
    settings = load({"SAPWOOD_GATEWAY_AUTH": "keys", **{f"SAPWOOD_GATEWAY_{name}": "10000" for name in limits}})
    app = create_app(services, KeyAuthenticator(services.keys), settings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield app, Caller(client, key)


async def test_over_http_what_is_another_tenants_is_not_there(tmp_path: Path, database: str, redis_url: str) -> None:
    """Every route of the OpenAPI document, with the name and the run of another tenant: 404, as for what does not exist."""
    async with town(tmp_path, database, redis_url) as place, gateway(place, "red", *Scope) as (app, red):
        run, absent = place.open["green"], "0" * len(place.open["green"])
        for route in routes(app):
            if route in NAMES_NOTHING:
                continue
            foreign = await red.call(route, "only-green", run)
            nothing = await red.call(route, "only-grey", absent)
            assert (foreign.status_code, nothing.status_code) == (404, 404), (route, foreign.text)
            assert foreign.text.replace("only-green", "only-grey").replace(run, absent) == nothing.text, route
        assert (await place.of("green").info(place.open["green"])).state is RunState.QUEUED
        listed = (await red.call("get /v1/corpora", "", "")).json()
        assert [one["name"] for one in listed] == ["only-red", "shared"]
        assert (await red.call("get /v1/corpora/{corpus}", "only-red", "")).status_code == 200, "its own is there"


async def test_over_http_nobody_gets_in_without_a_key(tmp_path: Path, database: str, redis_url: str) -> None:
    """Every route but the probes: no key, a wrong one and a revoked one get the same answer, before anything is looked for."""
    async with town(tmp_path, database, redis_url) as place, gateway(place, "red", *Scope) as (app, red):
        assert red.key is not None
        await place.of("red").services.keys.revoke(red.key.key_id, "red", soon())
        callers = [Caller(red.client), Caller(red.client, ApiKey.new()), red]
        for route in routes(app):
            if route in OPEN_TO_ALL:
                continue
            answers = [await caller.call(route, "shared", place.runs["red"][0]) for caller in callers]
            assert {answer.status_code for answer in answers} == {401}, (route, [a.text for a in answers])
            assert len({answer.text for answer in answers}) == 1
            assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}


async def test_over_http_a_tenant_can_do_all_there_is_to_do(tmp_path: Path, database: str, redis_url: str) -> None:
    """Behind row-level security every order works on the tenant's own: nothing needs rights that its role has not."""
    async with town(tmp_path, database, redis_url) as place, gateway(place, "red", *Scope) as (_, red):
        app, folder = place.of("red"), anyio.Path(tmp_path / mark("red"))

        async def did(route: str, status: int, run: str = "") -> Any:
            answer = await red.call(route, "shared", run)
            assert answer.status_code == status, (route, answer.text)
            return answer.json() if answer.content else None

        await (folder / "new.md").write_text("The Harbour Crane is located in Bristol.\n")
        run = await did("post /v1/corpora/{corpus}/index-runs", 202)
        assert (await app.work(run["run_id"])).generation == 2
        assert (await did("get /v1/runs/{run_id}", 200, run["run_id"]))["state"] == "completed"
        assert (await did("post /v1/corpora/{corpus}/query", 200))["hits"]
        queued = await did("post /v1/corpora/{corpus}/query-runs", 202)
        assert (await did("post /v1/runs/{run_id}/cancel", 202, queued["run_id"]))["state"] == "cancelled"
        assert (await did("post /v1/corpora/{corpus}/rollback", 200))["generation"] == 3
        await did("put /v1/corpora/{corpus}/settings", 200)
        await did("post /v1/corpora/{corpus}/gc", 200)
        assert (await did("get /api/graph/{corpus_id}/stats", 200))["total_entities"] > 0
        await did("delete /v1/corpora/{corpus}", 204)
        await did("get /v1/corpora/{corpus}", 404)
        made = await red.client.post("/v1/corpora", json={"name": "shared"}, headers=red.headers)
        assert made.status_code == 201
        assert {one.name for one in await place.of("green").corpora()} == {"only-green", "shared"}


async def test_a_route_that_forgets_whose_corpus_it_is_shows_nothing(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """The key of a request decides what the database shows it, in the answer's stream too, and only as long as it lasts."""
    async with town(tmp_path, database, redis_url) as place, gateway(place, "red", *Scope) as (app, red):
        services = place.of("red").services
        green = (await place.of("green").corpus("shared")).corpus_id
        own = (await place.of("red").corpus("shared")).corpus_id

        async def sources(corpus: int) -> str:
            return "\n".join(source.location for source in await services.corpora.sources(CorpusId(corpus), soon()))

        seen: list[bool] = []

        async def careless(corpus: int) -> StreamingResponse:
            before = await sources(corpus)
            seen.append(bool(before))

            async def body() -> AsyncGenerator[str, None]:
                yield f"{before}|"
                yield await sources(corpus)

            return StreamingResponse(body())

        app.add_api_route("/careless/{corpus}", careless, dependencies=[Depends(require(Scope.INSPECT))])
        app.add_api_route("/open/{corpus}", careless)
        answers = [
            await red.client.get(path, headers=red.headers)
            for path in (f"/careless/{own}", f"/careless/{green}", f"/open/{green}", f"/open/{own}")
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 500, 500], [one.text for one in answers]
        assert answers[0].text.count(mark("red")) == 2, "before the answer began, and in its stream"
        assert answers[1].text == "|"
        assert not [one.text for one in answers[2:] if "|" in one.text or mark("") in one.text], "nothing of it leaves"
        assert seen == [mark("red") in answers[0].text, False, False, False], "nor did it ever see anything"
        assert acting_for() == EVERYBODY

"""The routes over real servers: what the command line offers, over HTTP, and each tenant on its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.errors import Unauthorized
from tests.cli_driver import HANDBOOK
from tests.gateway_driver import Gateway, running, settings
from worker.gateway.access import Principal, Scope

QUESTION = {"text": "Who may use the laser cutter?", "deadline": 20.0}


class Names:
    """Admits whoever says a tenant and scopes: `Bearer red:index,query`."""

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        tenant, _, scopes = (authorization or "").removeprefix("Bearer ").partition(":")
        if not tenant:
            raise Unauthorized()
        return Principal(tenant, tenant, frozenset(Scope(one) for one in scopes.split(",") if one))


async def index(gateway: Gateway, corpus: str, *sources: str) -> str:
    """Index and return the run, once it has ended."""
    run = await gateway.ok("POST", f"/v1/corpora/{corpus}/index-runs", 202, json={"sources": sources})
    await gateway.app.work(run["run_id"])
    return str(run["run_id"])


async def test_a_corpus_from_its_making_to_its_end(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        http, ok = gateway.http, gateway.ok
        made = await http.post("/v1/corpora", json={"name": "handbook", "settings": {"chunk": {"max_chars": 800}}})
        assert (made.status_code, made.headers["location"]) == (201, "/v1/corpora/handbook")
        await ok("POST", "/v1/corpora", 409, json={"name": "handbook"})
        shown = await ok("GET", "/v1/corpora/handbook")
        assert (shown["generation"], shown["sources"]) == (None, [])
        assert shown["settings"]["chunk"]["max_chars"] == 800
        await ok("PUT", "/v1/corpora/handbook/settings", json={"settings": {"chunk": {"max_chars": 900}}})
        await ok("PUT", "/v1/corpora/missing/settings", 404, json={"settings": {}})
        await ok("POST", "/v1/corpora/handbook/index-runs", 422)

        first = await index(gateway, "handbook", str(HANDBOOK))
        shown = await ok("GET", "/v1/corpora/handbook")
        assert (shown["generation"], shown["settings"]["chunk"]["max_chars"]) == (1, 900)
        assert [source["location"] for source in shown["sources"]] == [str(HANDBOOK)]
        run = await ok("GET", f"/v1/runs/{first}")
        assert (run["state"], run["kind"], run["generation"]) == ("completed", "index", 1)

        answer = await ok("POST", "/v1/corpora/handbook/query", json=QUESTION)
        assert answer["complete"] and answer["hits"] and answer["generation"] == 1
        assert await ok("GET", "/v1/corpora/handbook/communities", params={"limit": 3})

        await ok("PUT", "/v1/corpora/handbook/settings", json={"settings": {}})
        second = await index(gateway, "handbook")
        assert [one["run_id"] for one in await ok("GET", "/v1/corpora/handbook/runs")] == [second, first]
        numbers = [(one["number"], one["state"]) for one in await ok("GET", "/v1/corpora/handbook/generations")]
        assert numbers == [(2, "current"), (1, "superseded")]
        assert (await ok("POST", "/v1/corpora/handbook/rollback", json={"generation": 1}))["generation"] == 3
        await ok("POST", "/v1/corpora/handbook/rollback", 404, json={"generation": 77})
        assert await ok("POST", "/v1/corpora/handbook/gc", json={"keep": 1})
        assert [one["name"] for one in await ok("GET", "/v1/corpora")] == ["handbook"]
        for method, path in (("PUT", "/a.md"), ("GET", ""), ("DELETE", "/a.md")):
            refused = await ok(method, f"/v1/corpora/handbook/files{path}", 422)
            assert (refused["code"], "embedded" in refused["detail"]) == ("Refused", True)
        await ok("DELETE", "/v1/corpora/handbook", 204)
        await ok("GET", "/v1/corpora/handbook", 404)
        await ok("GET", f"/v1/runs/{first}", 404)


async def test_every_document_is_accounted_for_page_by_page(tmp_path: Path, database: str, redis_url: str) -> None:
    folder = anyio.Path(tmp_path / "docs")
    await folder.mkdir()
    for number in range(7):
        await (folder / f"{number}.md").write_text(f"The Crane {number} is located in Bristol.\n")
    await (folder / "empty.md").write_text("")
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        run = await index(gateway, "c", str(folder))
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = await gateway.ok("GET", f"/v1/runs/{run}/documents", params={"after": after, "limit": 3})
            seen += [one["document_id"] for one in page["documents"]]
            after = page["next"]
        assert seen == sorted([f"{number}.md" for number in range(7)] + ["empty.md"])
        assert sum(page["counts"].values()) == 8
        only = await gateway.ok("GET", f"/v1/runs/{run}/documents", params={"outcome": "empty"})
        assert [(one["document_id"], bool(one["reason"])) for one in only["documents"]] == [("empty.md", True)]


async def test_the_same_key_gives_the_same_run(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        await gateway.ok("POST", "/v1/corpora", 201, json={"name": "c"})
        path, order = "/v1/corpora/c/index-runs", {"sources": [str(HANDBOOK)]}
        runs = [
            (await gateway.ok("POST", path, 202, json=order, headers={"idempotency-key": key}))["run_id"]
            for key in ("a", "a", "b")
        ]
        assert runs[0] == runs[1] != runs[2]
        await gateway.ok("POST", "/v1/corpora/c/query-runs", 422, json=QUESTION, headers={"idempotency-key": "a"})
        await gateway.ok("POST", path, 422, json=order, headers={"idempotency-key": ""})


async def test_a_full_queue_refuses_before_anything_is_enqueued(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url, gateway_open_runs=2)) as gateway:
        await gateway.ok("POST", "/v1/corpora", 201, json={"name": "c"})
        runs = [await gateway.ok("POST", "/v1/corpora/c/query-runs", 202, json=QUESTION) for _ in range(2)]
        refused = await gateway.http.post("/v1/corpora/c/query-runs", json=QUESTION)
        assert (refused.status_code, refused.json()["code"]) == (429, "TooMany")
        assert int(refused.headers["retry-after"]) >= 1
        order = {"sources": [str(HANDBOOK)]}
        await gateway.ok("POST", "/v1/corpora/new/index-runs", 429, json=order)
        await gateway.ok("GET", "/v1/corpora/new", 404)
        assert len(await gateway.ok("GET", "/v1/corpora/c/runs")) == 2
        cancelled = await gateway.ok("POST", f"/v1/runs/{runs[0]['run_id']}/cancel", 202, json={"reason": "enough"})
        assert cancelled["state"] == "cancelled"
        await gateway.ok("POST", "/v1/corpora/c/query-runs", 202, json=QUESTION)


async def test_a_rate_over_the_limit_is_refused(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url, gateway_requests_per_second=1.0)) as gateway:
        found = [(await gateway.http.get("/v1/corpora")).status_code for _ in range(3)]
        assert 429 in found[1:]
        await gateway.ok("GET", "/livez")


async def test_a_tenant_sees_nothing_of_another_and_a_scope_is_not_passed(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    mine = tmp_path / "roots" / "red" / "handbook"
    await anyio.to_thread.run_sync(shutil.copytree, HANDBOOK, mine)
    given = settings(tmp_path, database, redis_url, gateway_auth="keys", gateway_source_roots=str(tmp_path / "roots"))
    async with running(given, Names()) as gateway:
        ok = gateway.ok
        for tenant in ("red", "blue"):
            await gateway.app.services.keys.create_tenant(tenant, Deadline.after(5))
        red, blue = {"authorization": "Bearer red:index,query"}, {"authorization": "Bearer blue:index,query,inspect"}
        await ok("POST", "/v1/corpora", 201, json={"name": "c"}, headers=red)
        await ok("POST", "/v1/corpora", 201, json={"name": "c"}, headers=blue)
        order = {"sources": [str(mine)]}
        await ok("POST", "/v1/corpora/c/index-runs", 422, json=order, headers={"authorization": "Bearer blue:index"})
        run = (await ok("POST", "/v1/corpora/c/index-runs", 202, json=order, headers=red))["run_id"]
        question = (await ok("POST", "/v1/corpora/c/query-runs", 202, json=QUESTION, headers=red))["run_id"]
        for method, path in (
            ("GET", ""), ("GET", "/events"), ("GET", "/documents"), ("POST", "/cancel"),
        ):  # fmt: skip
            await ok(method, f"/v1/runs/{run}{path}", 404, headers=blue)
        assert await ok("GET", "/v1/corpora/c/runs", headers=blue) == []
        await ok("POST", "/v1/corpora/c/index-runs", 422, json={"sources": ["/etc"]}, headers=red)

        await ok("GET", "/v1/corpora", 401)
        indexer, asker = {"authorization": "Bearer red:index"}, {"authorization": "Bearer red:query"}
        await ok("POST", "/v1/corpora/c/query", 403, json=QUESTION, headers=indexer)
        await ok("POST", "/v1/corpora/c/query-runs", 403, json=QUESTION, headers=indexer)
        await ok("GET", f"/v1/runs/{question}/events", 403, headers=indexer)
        await ok("GET", "/v1/corpora/c/events", 403, headers=indexer)
        await ok("POST", f"/v1/runs/{question}/cancel", 403, headers=indexer)
        await ok("POST", f"/v1/runs/{run}/cancel", 403, headers=asker)
        await ok("POST", "/v1/corpora/c/index-runs", 403, json=order, headers=asker)
        await ok("DELETE", "/v1/corpora/c", 403, headers=asker)
        await ok("GET", "/v1/corpora", 403, headers={"authorization": "Bearer red:admin"})
        await ok("DELETE", "/v1/corpora/c", 204, headers=blue)
        await ok("GET", "/v1/corpora/c", headers=red)


async def test_the_probes_mean_something(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        assert (await gateway.ok("GET", "/livez"))["status"] == "alive"
        assert (await gateway.ok("GET", "/readyz"))["status"] == "ready"
        gateway.app.services.vitals.loop_lag = 60.0
        await gateway.ok("GET", "/readyz", 503)
        await gateway.ok("GET", "/livez")
    nowhere = settings(tmp_path, database, "unix:///nonexistent/valkey.sock")
    async with running(nowhere) as gateway:
        body = await gateway.ok("GET", "/readyz", 503)
        assert (body["code"], "nonexistent" in str(body)) == ("StoreUnavailable", False)
        await gateway.ok("GET", "/livez")

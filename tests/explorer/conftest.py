"""Gateways with something to look at, as processes, and a browser to look with: each once for all tests here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import httpx
import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.cli_driver import HANDBOOK, Cli, finished
from tests.explorer.browser import PATIENCE, Visitor, launched, visitor
from worker.embedded import Endpoints

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
"""A name that takes the page over wherever it becomes markup."""

TRIPLES = [
    {
        "document": "<b>notes</b>",
        "title": "<script>document.title='owned'</script>",
        "passage": f"{HOSTILE} was made by Mallory.\n<svg onload=\"document.title='owned'\">",
        "triples": [[HOSTILE, "<i>MADE_BY</i>", "Mallory"], ["Mallory", "KNOWS", "javascript:document.title='owned'"]],
        "types": {HOSTILE: "<u>Thing</u>", "Mallory": "Person"},
    }
]


@dataclass(frozen=True)
class Site:
    """A database with corpora, and a gateway over it that needs no key and works on runs."""

    url: str
    cli: Cli
    database: str

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON of a path; in a test, for a thread."""
        found = httpx.get(f"{self.url}/{path}", params=params, timeout=60, trust_env=False)
        assert found.status_code == 200, found.text
        return found.json()

    def index(self, corpus: str, *sources: str, url: str = "") -> str:
        """Enqueue an index run and return its id; in a test, for a thread."""
        path = f"{url or self.url}/v1/corpora/{corpus}/index-runs"
        run = httpx.post(path, json={"sources": sources}, timeout=60, trust_env=False)
        assert run.status_code == 202, run.text
        return str(run.json()["run_id"])


@contextmanager
def serving(cli: Cli, *words: str, port: int = 0) -> Iterator[str]:
    """Run `sapwood gateway` on a port until the end of the block; it must then end by itself."""
    process = cli.given(SAPWOOD_GATEWAY_LISTEN=f"127.0.0.1:{port}").start("gateway", *words, "--json")
    try:
        assert process.stdout is not None
        url = next((found["url"] for line in process.stdout if "url" in (found := json.loads(line))), None)
        assert url, finished(process).err
        yield url
    finally:
        ended(process)


def ended(process: subprocess.Popen[str]) -> None:
    """End a gateway that we started."""
    process.send_signal(signal.SIGTERM)
    done = finished(process)
    assert done.code == 0, done.err[-3000:]


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="session")
async def explorer_database(servers: Endpoints, template: str) -> AsyncIterator[str]:
    """Return the URL of a migrated database for all tests here."""
    name = f"explorer_{os.getpid()}"
    connection = await asyncpg.connect(servers.database_url)
    try:
        await connection.execute(f"create database {name} template {template}")
        yield servers.database_url.replace("@/sapwood?", f"@/{name}?")
        await connection.execute(f"drop database if exists {name} with (force)")
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def site(servers: Endpoints, explorer_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the handbook with a broken and an empty document in it, hostile triples, and a corpus with nothing in it."""
    home = tmp_path_factory.mktemp("explorer")
    cli = Cli(
        home,
        {
            "SAPWOOD_DATABASE_URL": explorer_database,
            "SAPWOOD_REDIS_URL": servers.redis_url,
            "SAPWOOD_LOG_LEVEL": "error",  # nobody reads what a process here says before its end
            "SAPWOOD_GATEWAY_GRACE_SECONDS": "2",
        },
    )
    folder = home / "handbook"
    shutil.copytree(HANDBOOK, folder)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 this is no document")
    (folder / "nothing.md").write_text("")
    (home / "hostile.jsonl").write_text("".join(json.dumps(line) + "\n" for line in TRIPLES))
    with serving(cli, "--work") as url:
        made = Site(url, cli, explorer_database)
        httpx.post(f"{url}/v1/corpora", json={"name": "blank"}, timeout=60, trust_env=False).raise_for_status()
        for corpus, source in (("handbook", str(folder)), ("hostile", f"triples:{home / 'hostile.jsonl'}")):
            _completed(made, made.index(corpus, source))
        yield made


@pytest.fixture(scope="session")
def locked_site(site: Site) -> Iterator[str]:
    """Return the URL of a gateway over the same corpora that asks everybody for a key."""
    with serving(site.cli.given(SAPWOOD_GATEWAY_AUTH="keys")) as url:
        yield url


@pytest.fixture(scope="session")
def keys(site: Site) -> dict[str, str]:
    """Return a key that may look and ask, `reader`, and one that may only index, `indexer`."""
    here = replace(site.cli, inside=True)
    scopes = {"reader": ("--scope", "query", "--scope", "inspect"), "indexer": ("--scope", "index")}
    return {who: here.ok("key", "create", *words, "--json").json["key"] for who, words in scopes.items()}


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start Chromium once."""
    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        found = await launched(playwright)
        yield found
        await found.close()


@pytest.fixture
async def visit(browser: Browser, site: Site) -> AsyncIterator[Visitor]:
    """Open pages; an error in the console of any fails the test."""
    async with visitor(browser, site.url) as opened:
        yield opened


def _completed(site: Site, run_id: str) -> None:
    for _ in range(600):
        run = site.get(f"v1/runs/{run_id}")
        if run["state"] == "completed":
            return
        assert run["state"] in ("queued", "running", "waiting"), run
        time.sleep(0.1)
    raise AssertionError(f"{run_id} did not end")

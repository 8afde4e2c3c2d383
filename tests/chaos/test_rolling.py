"""A fleet of workers is replaced one by one under load, as a deployment does it: nothing fails, and no attempt is spent."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

import anyio
import asyncpg
import pytest
from anyio import to_thread
from anyio.abc import Process
from pydantic import SecretStr

from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunState
from schemas.settings import CorpusSettings, ExtractionSettings
from tests.cli_driver import ROOT, Cli
from tests.figures import say
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

TERMS = int(os.environ.get("SAPWOOD_ROLLING_TERMS") or 10)
"""How many workers are replaced."""

WORKERS = 2
CORPORA = ("one", "two")
DOCUMENTS = 20
QUESTIONS = 3
"""Questions that wait or are answered at any moment."""

PATIENCE = 180.0
PAID = CorpusSettings(extraction=ExtractionSettings(provider="openai", model="stub"))
COUNTS = """
select sum(crash_count) as crashes, sum(retry_count) as retries, sum(shutdown_count) as shutdowns,
    count(*) filter (where state <> 'completed') as unfinished
from sapwood.run where kind = any($1)
"""


@dataclass
class Fleet:
    """Worker processes over one database, a model that takes its time, and what was asked for."""

    home: Path
    variables: dict[str, str]
    model: OpenAIStub
    workers: list[Process] = field(default_factory=list[Process])
    codes: list[int] = field(default_factory=list[int])
    runs: list[str] = field(default_factory=list[str])
    started: int = 0

    async def start(self) -> None:
        """Start a worker and wait until it works: it shows its pulse."""
        self.started += 1
        pulse = anyio.Path(self.home / f"pulse-{self.started}.json")
        environment = Cli(self.home, {**self.variables, "SAPWOOD_HEALTH_FILE": str(pulse)}).environment
        command = [sys.executable, "-m", "worker", "worker"]
        process = await anyio.open_process(command, cwd=ROOT, env=environment, stdout=None, stderr=None)
        self.workers.append(process)
        with anyio.fail_after(PATIENCE / 3):
            while not await pulse.exists():
                assert process.returncode is None, "a worker ended by itself"
                await anyio.sleep(0.05)

    async def end_oldest(self, signal: Signals) -> None:
        """Send the signal to the oldest worker and wait for its end."""
        oldest = self.workers.pop(0)
        oldest.send_signal(signal)
        with anyio.fail_after(PATIENCE / 3):
            self.codes.append(await oldest.wait())
        await oldest.aclose()

    async def write(self, corpus: str, version: int) -> str:
        """Lay the folder of a corpus out anew and return its path."""
        folder = self.home / corpus

        def lay() -> None:
            folder.mkdir(exist_ok=True)
            for number in range(DOCUMENTS):
                text = (
                    f"The Crane Number {number} is located in Bristol. It was painted in round {version} of {corpus}."
                )
                (folder / f"{number:03}.md").write_text(f"# Crane {number}\n\n{text}\n")

        await to_thread.run_sync(lay)
        return str(folder)

    async def build(self, app: Sapwood, corpus: str, enough: anyio.Event) -> None:
        """Index a corpus again and again, each time with all documents changed."""
        version = 0
        while not enough.is_set():
            version += 1
            run = await app.index(corpus, [await self.write(corpus, version)], settings=PAID)
            self.runs.append(run.run_id)
            await followed(app, run.run_id)

    async def ask(self, app: Sapwood, enough: anyio.Event, chance: random.Random) -> None:
        """Ask one question after the other through the queue."""
        question = QueryRequest(text="Where is the crane?", strategy=Strategy.KEYWORD, cache=False, deadline=600.0)
        while not enough.is_set():
            run = await app.enqueue_query("asked", question)
            self.runs.append(run.run_id)
            await followed(app, run.run_id)
            await anyio.sleep(chance.uniform(0.1, 0.4))


async def followed(app: Sapwood, run: str) -> None:
    """Follow a run to its end: its events are 1..N, and there is one end, which is no failure."""
    with anyio.fail_after(PATIENCE):
        events = [event async for event in app.subscribe(run)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), run
    assert [event.terminal for event in events] == [False] * (len(events) - 1) + [True], run
    assert events[-1].body.type in ("promoted", "completed"), events[-1]


@asynccontextmanager
async def fleet(
    tmp_path: Path, database: str, redis_url: str, lease: float
) -> AsyncGenerator[tuple[Fleet, Sapwood], None]:
    """Open the application beside an empty fleet; leave no worker behind."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(serving(OpenAIStub()))
        model.seconds = 0.15
        variables = {
            "SAPWOOD_DATABASE_URL": database,
            "SAPWOOD_REDIS_URL": redis_url,
            "SAPWOOD_OPENAI_BASE_URL": model.url,
            "SAPWOOD_OPENAI_API_KEY": "stub",
            "SAPWOOD_OPENAI_MODEL": "stub",
            "SAPWOOD_MODEL_CONCURRENCY": "4",
            "SAPWOOD_LEASE_SECONDS": str(lease),
        }
        settings = WorkerSettings(
            home=tmp_path,
            database_url=SecretStr(database),
            redis_url=SecretStr(redis_url),
            openai_base_url=model.url,
            openai_api_key=SecretStr("stub"),
            openai_model="stub",
        )
        app = await stack.enter_async_context(open_sapwood(settings))
        found = Fleet(tmp_path, variables, model)
        try:
            yield found, app
        finally:
            with anyio.move_on_after(20, shield=True):
                for process in found.workers:
                    if process.returncode is None:
                        process.kill()
                    await process.aclose()


async def counts(database: str, *kinds: str) -> dict[str, Any]:
    """Return what the units of these kinds have spent."""
    connection = await asyncpg.connect(database)
    try:
        return dict(await connection.fetchrow(COUNTS, list(kinds)) or {})
    finally:
        await connection.close()


async def test_a_fleet_is_replaced_under_load_and_spends_no_attempt(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Start one, stop the oldest, many times: exit code 0, all runs completed, all questions answered, each once."""
    async with fleet(tmp_path, database, redis_url, lease=15.0) as (here, app):
        run = await app.index("asked", [await here.write("asked", 0)])
        assert (await app.work(run.run_id)).state is RunState.COMPLETED
        for _ in range(WORKERS):
            await here.start()
        enough = anyio.Event()
        async with anyio.create_task_group() as clients:
            for corpus in CORPORA:
                clients.start_soon(here.build, app, corpus, enough)
            for seed in range(QUESTIONS):
                clients.start_soon(here.ask, app, enough, random.Random(seed))
            for _ in range(TERMS):
                await here.start()
                await here.end_oldest(SIGTERM)
            enough.set()
        spent = await counts(database, "index", "batch", "query")
        states = [(await app.info(run)).state for run in here.runs]
    say(request, f"{len(here.codes)} SIGTERMs, {len(here.runs)} runs, {spent['shutdowns']} units handed back")
    assert here.codes == [0] * TERMS
    assert set(states) == {RunState.COMPLETED}
    assert (spent["crashes"], spent["retries"], spent["unfinished"]) == (0, 0, 0)
    assert spent["shutdowns"] > 0, "no worker had anything under way: nothing was proved"


async def test_a_worker_that_is_killed_spends_an_attempt(tmp_path: Path, database: str, redis_url: str) -> None:
    """The negative control: the same counts tell a crash from a shutdown."""
    async with fleet(tmp_path, database, redis_url, lease=1.0) as (here, app):
        await here.start()
        run = await app.index("killed", [await here.write("killed", 0)], settings=PAID)
        while here.model.texts.total() < 4:  # noqa: ASYNC110 - a counter tells nobody
            await anyio.sleep(0.01)
        await here.end_oldest(SIGKILL)
        await here.start()
        await followed(app, run.run_id)
        spent = await counts(database, "index", "batch")
    assert here.codes == [-SIGKILL]
    assert spent["crashes"] > 0 and spent["unfinished"] == 0, spent

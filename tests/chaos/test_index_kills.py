"""Workers killed at random moments, and one paused past its lease: the run ends as if nothing had happened."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import anyio
import asyncpg
import psutil
import pytest
from anyio import to_thread
from anyio.abc import Process
from pydantic import SecretStr

from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunInfo, RunState
from schemas.settings import CorpusSettings, ExtractionSettings
from tests.cli_driver import ROOT, Cli, say
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

CORPUS, CLEAN = "chaos", "clean"
KILLS = 20
CONCURRENCY = 2
SEED = 20
PATIENCE = 150.0
"""Seconds after which a run that does not end fails the test."""

PAID = CorpusSettings(extraction=ExtractionSettings(provider="openai", model="stub"))
ROUND = re.compile(r"round (\d+)")
UNFENCED = (str(ROOT / "tests" / "chaos" / "unfenced_worker.py"),)
WORKER = ("-m", "worker", "worker")


@dataclass
class Reader:
    """Asks all the time and keeps what came: (generation, rounds named in the texts)."""

    answers: list[tuple[int, frozenset[int]]] = field(default_factory=list[tuple[int, frozenset[int]]])

    async def read(self, app: Sapwood) -> None:
        request = QueryRequest(
            text="crane painted in round", strategy=Strategy.KEYWORD, top_k=5, cache=False, dedup=False
        )
        while True:
            result = await app.query(CORPUS, request)
            rounds = frozenset(int(number) for hit in result.hits for number in ROUND.findall(hit.text))
            self.answers.append((result.generation, rounds))
            await anyio.sleep(0.1)


@dataclass
class World:
    """One database, one model, one folder, and the worker processes of a test."""

    database: str
    redis_url: str
    home: Path
    model: OpenAIStub
    spawned: set[psutil.Process] = field(default_factory=set[psutil.Process])

    @property
    def folder(self) -> Path:
        return self.home / "folder"

    @property
    def asked(self) -> int:
        """How often the model was asked to read a text."""
        return self.model.texts.total()

    @property
    def settings(self) -> WorkerSettings:
        return WorkerSettings(
            home=self.home,
            database_url=SecretStr(self.database),
            redis_url=SecretStr(self.redis_url),
            openai_base_url=self.model.url,
            openai_api_key=SecretStr("stub"),
            openai_model="stub",
        )

    def write(self, round_number: int, documents: int) -> None:
        """Lay the folder out anew; every text is of this round and like no other."""
        self.folder.mkdir(exist_ok=True)
        for number in range(documents):
            text = f"The Crane Number {number} is located in Bristol. It was painted in round {round_number}."
            (self.folder / f"{number:03}.md").write_text(f"# Crane {number}\n\n{text}\n")

    async def start(self, program: tuple[str, ...] = WORKER, jobs: int = 4) -> Process:
        """Start a worker process."""
        environment = Cli(
            self.home,
            {
                "SAPWOOD_DATABASE_URL": self.database,
                "SAPWOOD_REDIS_URL": self.redis_url,
                "SAPWOOD_OPENAI_BASE_URL": self.model.url,
                "SAPWOOD_OPENAI_API_KEY": "stub",
                "SAPWOOD_OPENAI_MODEL": "stub",
                "SAPWOOD_MODEL_CONCURRENCY": str(CONCURRENCY),
                "SAPWOOD_MAX_JOBS": str(jobs),
                "SAPWOOD_LEASE_SECONDS": "1",
                "SAPWOOD_SWEEP_SECONDS": "0.3",
                "SAPWOOD_MAX_CRASHES": "100",
            },
        ).environment
        return await anyio.open_process([sys.executable, *program], cwd=ROOT, env=environment, stdout=None, stderr=None)

    async def kill(self, process: Process) -> None:
        """End a worker the hard way, and remember what it had started."""
        if process.returncode is None:
            self.spawned |= set(await to_thread.run_sync(children, process.pid))
            process.send_signal(SIGKILL)
        await process.wait()

    async def orphans(self) -> list[psutil.Process]:
        """What killed workers left running after a while."""
        return (await to_thread.run_sync(lambda: psutil.wait_procs(list(self.spawned), timeout=10)))[1]


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@asynccontextmanager
async def world(tmp_path: Path, database: str, redis_url: str, documents: int) -> AsyncIterator[tuple[World, Sapwood]]:
    """A corpus at round 0, and the folder already at round 1."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(serving(OpenAIStub()))
        here = World(database, redis_url, tmp_path, model)
        await to_thread.run_sync(here.write, 0, documents)
        app = await stack.enter_async_context(open_sapwood(here.settings))
        await app.create_corpus(CORPUS, PAID)
        await complete(app, CORPUS, here.folder)
        await to_thread.run_sync(here.write, 1, documents)
        yield here, app


async def complete(app: Sapwood, corpus: str, folder: Path) -> None:
    """Index undisturbed, in this process."""
    run = await app.index(corpus, [str(folder)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error


async def ended(app: Sapwood, run: RunInfo) -> RunInfo:
    """Wait for the end of a run; its events are dense and the last is the only terminal one."""
    with anyio.fail_after(PATIENCE):
        events = [event async for event in app.subscribe(run.run_id, after=0)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.terminal for event in events] == [False] * (len(events) - 1) + [True]
    return await app.info(run.run_id)


async def faults(app: Sapwood, run: RunInfo, folder: Path, documents: int) -> list[str]:
    """The checker: what is wrong with a disturbed run, compared with an undisturbed one of the same folder."""
    found: list[str] = []
    if run.state is not RunState.COMPLETED:
        return [f"the run ended as {run.state}: {run.error}"]
    outcomes, _ = await app.accounting(run.run_id)
    if outcomes != {"indexed": documents}:
        found.append(f"the accounting says {outcomes}")
    await app.create_corpus(CLEAN, PAID)
    await complete(app, CLEAN, folder)
    disturbed, clean = [[line async for line in app.export(corpus, None)][1:] for corpus in (CORPUS, CLEAN)]
    if disturbed != clean:
        found.append(f"{len(set(disturbed) ^ set(clean))} lines differ of {len(disturbed)} and {len(clean)}")
    return found


async def kill_at_random(here: World, app: Sapwood, run: RunInfo) -> int:
    """Keep two workers, killing and replacing one at random moments until the run is done; return the kills."""
    chance = random.Random(SEED)
    workers = [await here.start(), await here.start()]
    kills = 0
    try:
        while kills < KILLS and not (await app.info(run.run_id)).state.terminal:
            await anyio.sleep(chance.uniform(0.3, 2.0))
            victim = chance.randrange(2)
            await here.kill(workers[victim])
            kills += 1
            workers[victim] = await here.start()
        here.model.seconds = 0.0
        await ended(app, run)
    finally:
        for process in workers:
            process.terminate()
            await process.wait()
    return kills


async def test_a_run_survives_twenty_kills(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Complete, equal to a clean run, only calls in flight are repeated, and the old generation answers throughout."""
    documents = 240
    async with world(tmp_path, database, redis_url, documents) as (here, app):
        reader, before = Reader(), here.asked
        here.model.seconds = 0.3
        async with anyio.create_task_group() as group:
            group.start_soon(reader.read, app)
            run = await app.index(CORPUS, [str(here.folder)])
            kills = await kill_at_random(here, app, run)
            await anyio.sleep(0.3)
            group.cancel_scope.cancel()
        repeated = here.asked - before - documents
        info = await app.info(run.run_id)
        old = sum(answer[0] == 1 for answer in reader.answers)
        say(
            request,
            f"{kills} kills: {repeated} calls repeated; {old} answers of the old generation",
        )
        assert kills == KILLS, "the run ended before all kills were done"
        assert await faults(app, info, here.folder, documents) == []
        assert 0 <= repeated <= kills * CONCURRENCY
        assert set(reader.answers) == {(1, frozenset({0})), (info.generation, frozenset({1}))}
        assert await here.orphans() == []


async def paused(here: World, app: Sapwood, database: str, program: tuple[str, ...]) -> RunInfo:
    """Pause a worker within a batch, let others do that batch, and wake it while another batch is still being done.

    To have the paused worker's batch done before another one, a second worker is killed within its batch after that.
    """
    here.model.seconds = 0.05
    run = await app.index(CORPUS, [str(here.folder)])
    connection = await asyncpg.connect(database)
    workers: list[Process] = []
    try:
        with anyio.fail_after(PATIENCE):
            zombie = await here.start(program, jobs=1)
            workers.append(zombie)
            first = await until(connection, run, "state = 'running'")
            await calls(here, 10)
            zombie.send_signal(SIGSTOP)
            victim = await here.start(program, jobs=1)
            workers.append(victim)
            await until(connection, run, f"run_id = '{first}' and fence > 1")
            await until(connection, run, f"run_id <> '{first}' and state = 'running'")
            await calls(here, 10)
            await here.kill(victim)
            workers.append(await here.start(program, jobs=1))
            await until(connection, run, f"run_id = '{first}' and state = 'completed'")
            await until(connection, run, f"run_id <> '{first}' and state <> 'completed'")
            zombie.send_signal(SIGCONT)
        with anyio.move_on_after(40):
            return await ended(app, run)
        return await app.info(run.run_id)
    finally:
        await connection.close()
        for process in workers:
            await here.kill(process)


async def until(connection: asyncpg.Connection[Any], run: RunInfo, condition: str) -> str:
    """Wait until a batch of the run is so, and return its id."""
    query = f"select run_id from sapwood.run where root_id = $1 and run_id <> root_id and {condition} order by run_id"
    while (found := await connection.fetchval(query, run.run_id)) is None:  # noqa: ASYNC110 - a row tells nobody
        await anyio.sleep(0.01)
    return str(found)


async def calls(here: World, more: int) -> None:
    """Wait until the model was asked some more times."""
    goal = here.asked + more
    while here.asked < goal:  # noqa: ASYNC110 - a counter tells nobody
        await anyio.sleep(0.01)


async def test_a_worker_that_wakes_up_too_late_changes_nothing(tmp_path: Path, database: str, redis_url: str) -> None:
    """A worker is stopped past its lease and others do its batch: when it goes on, its writes are refused."""
    async with world(tmp_path, database, redis_url, 200) as (here, app):
        info = await paused(here, app, database, WORKER)
        assert await faults(app, info, here.folder, 200) == []


async def test_without_the_fence_the_checker_finds_faults(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """The negative control: the same, with the fence switched off, and the same checker must complain."""
    async with world(tmp_path, database, redis_url, 200) as (here, app):
        info = await paused(here, app, database, UNFENCED)
        found = await faults(app, info, here.folder, 200)
        say(request, f"without the fence: {'; '.join(found)}")
        assert found

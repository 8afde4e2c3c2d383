"""Workers killed at random moments, and one paused past its lease: the run ends as if nothing had happened."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import AsyncIterator, Mapping
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
from tests.cli_driver import ROOT, Cli
from tests.figures import say
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

CORPUS, CLEAN = "chaos", "clean"
KILLS = 20
CONCURRENCY = 2
SEED = 20
HELD = "Crane Number 191 "
"""In the last document of the third of four batches."""

WAKING = 6.0
"""Seconds in which a worker that was paused does what it is going to do."""

PATIENCE = 300.0
"""Seconds after which a run that does not end fails the test."""

PAID = CorpusSettings(extraction=ExtractionSettings(provider="openai", model="stub"))
ROUND = re.compile(r"round (\d+)")
UNFENCED = ("-m", "tests.chaos.unfenced_worker")
WORKER = ("-m", "worker", "worker")


@dataclass
class Model(OpenAIStub):
    """A model that can hold back its answer about one text."""

    held: str = ""
    release: anyio.Event = field(default_factory=anyio.Event)

    async def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """See `OpenAIStub`."""
        if self.held and self.held.encode() in body:
            await self.release.wait()
        return await super().respond(path, headers, body)


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

    async def hear(self, generation: int | None) -> None:
        """Wait until the newest answer is from this generation, or has had the time to be."""
        with anyio.move_on_after(PATIENCE):
            while self.answers[-1][0] != generation:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.02)


@dataclass
class World:
    """One database, one model, one folder, and the worker processes of a test."""

    database: str
    redis_url: str
    home: Path
    model: Model
    spawned: set[psutil.Process] = field(default_factory=set[psutil.Process])
    workers: list[Process] = field(default_factory=list[Process])

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
                "SAPWOOD_INDEX_JOBS": str(jobs),
                "SAPWOOD_LEASE_SECONDS": "1",
                "SAPWOOD_MAX_CRASHES": "100",
            },
        ).environment
        command = [sys.executable, *program]
        process = await anyio.open_process(command, cwd=ROOT, env=environment, stdout=None, stderr=None)
        self.workers.append(process)
        return process

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
        model = await stack.enter_async_context(serving(Model()))
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
            await reader.hear((await app.info(run.run_id)).generation)
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
    """Pause a worker within its batches, let another do them, and wake it while one last batch waits for the model."""
    here.model.seconds = 0.02
    here.model.held = HELD
    run = await app.index(CORPUS, [str(here.folder)])
    connection = await asyncpg.connect(database)
    try:
        with anyio.fail_after(PATIENCE / 2):
            zombie = await here.start(program)
            await until(here, connection, run, "kind = 'batch' and state = 'running'")
            goal = here.asked + 50
            while here.asked < goal:  # noqa: ASYNC110 - a counter tells nobody
                await anyio.sleep(0.01)
            zombie.send_signal(SIGSTOP)
            await here.start(program)
            await until(here, connection, run, "kind = 'index' and state = 'waiting' and pending = 1")
            zombie.send_signal(SIGCONT)
            with anyio.move_on_after(WAKING):
                await until(here, connection, run, "kind = 'index' and state <> 'waiting'")
            here.model.release.set()
        with anyio.move_on_after(40):
            return await ended(app, run)
        return await app.info(run.run_id)
    finally:
        await connection.close()
        for process in here.workers:
            await here.kill(process)


async def until(here: World, connection: asyncpg.Connection[Any], run: RunInfo, condition: str) -> None:
    """Wait until the run or one of its batches is so."""
    query = (
        f"select bool_or({condition}) as so, bool_or(state = 'failed') as failed from sapwood.run where root_id = $1"
    )
    while not (found := await connection.fetchrow(query, run.run_id))["so"]:
        assert not found["failed"]
        assert all(process.returncode in (None, -SIGKILL) for process in here.workers), "a worker ended by itself"
        await anyio.sleep(0.01)


async def test_a_worker_that_wakes_up_too_late_changes_nothing(tmp_path: Path, database: str, redis_url: str) -> None:
    """A worker is stopped past its lease and another does its batches: when it goes on, its writes are refused."""
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

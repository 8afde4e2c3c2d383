"""Workers killed and frozen, the queue flushed: nothing lost, nothing done twice, no gap for anybody who follows."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

import anyio
from anyio.abc import Process, TaskGroup
from redis.asyncio import Redis

from pipeline.adapters.arq_doorbell import open_doorbell
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.redis_streams import open_streams
from pipeline.deadline import Deadline
from pipeline.events import open_herald
from pipeline.feeds import Feeds, open_feeds
from schemas.ids import CorpusId, RunId
from schemas.runs import RunKind, RunState

ROOT = Path(__file__).resolve().parents[2]
STEPS = 10
LEASE = 1.0
WORKERS = 3
PATIENCE = 300.0


@dataclass
class Fleet:
    """Worker processes of one test, and what is done to them."""

    database: str
    redis_url: str
    mode: str
    processes: list[Process] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    started: int = 0
    names: dict[int, str] = field(default_factory=dict)

    async def start(self) -> Process:
        self.started += 1
        program = [sys.executable, str(ROOT / "tests/chaos/toy_worker.py"), self.database, self.redis_url]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [*program, f"w{self.started}", str(LEASE), self.mode]
        process = await anyio.open_process(command, env=environment, stdout=None, stderr=None)
        self.names[process.pid] = f"w{self.started}"
        return process

    async def disturb(self, chance: random.Random, redis: Redis, group: TaskGroup) -> None:
        """Kill, freeze and flush at random moments, until cancelled."""
        while True:
            await anyio.sleep(chance.uniform(0.3, 0.8))
            what = chance.choice(("kill", "freeze", "freeze", "flush"))
            number = chance.randrange(len(self.processes))
            self.faults[what] += 1
            if what == "flush":
                await redis.flushdb()
            elif what == "kill":
                self.processes[number].send_signal(SIGKILL)
                await self.processes[number].wait()
                self.processes[number] = await self.start()
            else:
                group.start_soon(freeze, self.processes[number])

    async def stop(self) -> dict[str, int]:
        """Ask all to stop and return their exit codes by name."""
        for process in self.processes:
            process.send_signal(SIGCONT)
            process.send_signal(SIGTERM)
        with anyio.fail_after(20):
            return {self.names[process.pid]: await process.wait() for process in self.processes}


async def freeze(process: Process) -> None:
    """Stop a process for longer than its lease."""
    if process.returncode is None:
        process.send_signal(SIGSTOP)
        await anyio.sleep(LEASE * 1.8)
        if process.returncode is None:
            process.send_signal(SIGCONT)


@asynccontextmanager
async def fleet(database: str, redis_url: str, mode: str) -> AsyncGenerator[Fleet, None]:
    """Start the workers, and leave none behind."""
    found = Fleet(database, redis_url, mode)
    try:
        for _ in range(WORKERS):
            found.processes.append(await found.start())
        yield found
    finally:
        with anyio.move_on_after(20, shield=True):
            for process in found.processes:
                if process.returncode is None:
                    process.kill()
                await process.aclose()


async def follow(feeds: Feeds, run_id: RunId, chance: random.Random) -> None:
    """A client that leaves now and then and resumes: it must see 1..N, each once, and then the end."""
    last, ended = 0, False
    while not ended:
        leave_after = chance.randint(1, 6)
        async with aclosing(feeds.run(run_id, last)) as found:
            async for entries in found:
                for entry in entries[:leave_after]:
                    assert entry.place == last + 1, (run_id, last, entry.place)
                    last, ended, leave_after = entry.place, entry.event.terminal, leave_after - 1
                if not leave_after:
                    break


async def duplicates(pool: Pool) -> int:
    async with pool.connection(Deadline.after(10)) as tx:
        return await tx.fetchval("select count(*) - count(distinct (run_id, step)) from effect")


async def chaos(database: str, redis_url: str, mode: str, runs: int, seed: int) -> tuple[int, int, Counter[str]]:
    """Return the effects that were lost and the ones that happened twice, and the faults."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        pool, stream = await enter(open_pool(database, 12)), await enter(open_streams(redis_url))
        log, bell = PostgresEvents(pool), await enter(open_doorbell(redis_url))
        herald, redis = await enter(open_herald(log, stream, bell)), await enter(Redis.from_url(redis_url))
        feeds = await enter(open_feeds(log, stream))
        async with pool.transaction(Deadline.after(5)) as tx:
            await tx.execute("create table effect (run_id text, step int, owner text)")
            corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id"))
        store = PostgresRuns(pool, herald, owner="client")
        workers = await enter(fleet(database, redis_url, mode))
        async with anyio.create_task_group() as faults:
            faults.start_soon(workers.disturb, chance, redis, faults)
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as clients:
                    for _ in range(runs):
                        run = await store.submit(corpus, RunKind.QUERY, {})
                        if mode == "fenced":
                            clients.start_soon(follow, feeds, run.run_id, chance)
                        await anyio.sleep(chance.uniform(0, 0.1))
                await all_ended(store, corpus, runs)
            faults.cancel_scope.cancel()
        found = await store.list(corpus, runs + 1)
        assert [run.state for run in found] == [RunState.COMPLETED] * runs
        async with pool.connection(Deadline.after(10)) as tx:
            lost = runs * STEPS - await tx.fetchval("select count(distinct (run_id, step)) from effect")
        async with pool.connection(Deadline.after(10)) as tx:
            busy = {row["owner"] for row in await tx.fetch("select distinct owner from effect")}
        codes = await workers.stop()
        # One that was started a moment ago may be told to stop before it listens to signals: it holds nothing yet.
        assert all(code == 0 or (code == -SIGTERM and name not in busy) for name, code in codes.items()), codes
        return lost, await duplicates(pool), workers.faults


async def all_ended(store: PostgresRuns, corpus: CorpusId, runs: int) -> None:
    while not all(run.state.terminal for run in await store.list(corpus, runs + 1)):  # noqa: ASYNC110
        await anyio.sleep(0.1)


async def test_nothing_is_lost_or_done_twice_under_kills_freezes_and_flushes(database: str, redis_url: str) -> None:
    lost, twice, faults = await chaos(database, redis_url, "fenced", 120, seed=7)
    assert min(faults["kill"], faults["freeze"]) > 0, faults
    assert (lost, twice) == (0, 0), faults


async def test_without_the_fence_the_same_chaos_is_found_out(database: str, redis_url: str) -> None:
    """The negative control: a checker that never fires proves nothing."""
    _, twice, faults = await chaos(database, redis_url, "unfenced", 120, seed=7)
    assert twice > 0, faults

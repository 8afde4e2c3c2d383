"""Figures of the run protocol: what a step costs, how soon the first event comes, how soon a killed worker is replaced.

Run as `python tests/bench/run_protocol.py DATABASE_URL REDIS_URL` on a migrated database that may be filled.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import anyio
from anyio.abc import Process

from pipeline.adapters.arq_doorbell import open_doorbell
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.redis_streams import open_streams
from pipeline.deadline import Deadline
from pipeline.events import open_herald
from pipeline.feeds import open_feeds
from schemas.events import Progress
from schemas.ids import CorpusId
from schemas.runs import Lease, RunKind

ROOT = Path(__file__).resolve().parents[2]
LEASE = 2.0
KILLS = 20


def line(name: str, seconds: list[float], target: str) -> None:
    ordered = sorted(seconds)
    p50, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
    print(f"{name:<44} p50 {p50 * 1000:8.1f} ms   p95 {p95 * 1000:8.1f} ms   n {len(seconds):4}   target {target}")


async def steps(runs: PostgresRuns, corpus: CorpusId, claims: list[float], checkpoints: list[float]) -> None:
    for _ in range(100):
        run = await runs.submit(corpus, RunKind.QUERY, {})
        started = time.perf_counter()
        lease: Lease | None = await runs.claim(run.run_id, 1, [RunKind.QUERY])
        claims.append(time.perf_counter() - started)
        for step in range(5):
            assert lease is not None
            started = time.perf_counter()
            async with runs.fenced(lease) as tx:
                tx.event(Progress(stage="s", done=step, total=5))
                tx.advance(step + 1)
            checkpoints.append(time.perf_counter() - started)
            lease = tx.outlook()
        await runs.cancel(run.run_id, "")


async def start(database: str, redis_url: str, name: str) -> Process:
    program = [sys.executable, str(ROOT / "tests/chaos/toy_worker.py"), database, redis_url, name, str(LEASE), "fenced"]
    return await anyio.open_process(program, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=None, stderr=None)


async def resume(database: str, redis_url: str, owner_of: Callable[[], object], found: list[float]) -> None:
    """Kill the owner of a running unit again and again, and time how long until another has it."""
    workers = {f"k{number}": await start(database, redis_url, f"k{number}") for number in range(2)}
    try:
        for number in range(2, KILLS + 2):
            owner = ""
            while owner not in workers:
                owner = str(await owner_of())  # type: ignore[misc]
                await anyio.sleep(0.01)
            await anyio.sleep(0.5)
            killed = time.perf_counter()
            owner = str(await owner_of())  # type: ignore[misc]
            if owner not in workers:
                continue
            workers[owner].send_signal(SIGKILL)
            while (new := str(await owner_of())) in ("", owner, "None"):  # type: ignore[misc]  # noqa: ASYNC110
                await anyio.sleep(0.01)
            found.append(time.perf_counter() - killed)
            assert new in workers
            await workers.pop(owner).wait()
            workers[f"k{number}"] = await start(database, redis_url, f"k{number}")
            await anyio.sleep(1.5)
    finally:
        for process in workers.values():
            process.kill()
            await process.wait()


async def main(database: str, redis_url: str) -> None:
    async with (
        open_pool(database, 12) as pool,
        open_streams(redis_url) as stream,
        open_doorbell(redis_url) as bell,
        open_herald(log := PostgresEvents(pool), stream, bell) as herald,
        open_feeds(log, stream) as feeds,
    ):
        async with pool.transaction(Deadline.after(5)) as tx:
            await tx.execute("create table if not exists effect (run_id text, step int, owner text)")
            name = f"b{secrets.token_hex(4)}"
            corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", name))
        runs = PostgresRuns(pool, herald, owner="bench", lease_seconds=30, max_crashes=1000)
        claims, checkpoints, first = list[float](), list[float](), list[float]()
        await steps(runs, corpus, claims, checkpoints)
        line("claim", claims, "")
        line("one fenced step: checkpoint + event + commit", checkpoints, "p50 <= 3 ms")
        for _ in range(200):
            began = time.perf_counter()
            run = await runs.submit(corpus, RunKind.QUERY, {})
            async for _ in feeds.run(run.run_id):
                first.append(time.perf_counter() - began)
                break
            await runs.cancel(run.run_id, "")
        line("submit -> first event at a subscriber", first, "p95 <= 50 ms")
        run = await runs.submit(corpus, RunKind.QUERY, {"steps": 100_000})

        async def owner() -> object:
            async with pool.connection(Deadline.after(5)) as tx:
                return await tx.fetchval("select owner from run where run_id = $1", run.run_id)

        back: list[float] = []
        await resume(database, redis_url, owner, back)
        line(f"kill -9 -> owned by another ({LEASE:.0f} s lease)", back, "p50 <= 2.5 s, p95 <= 5 s")
        await runs.cancel(run.run_id, "")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])

"""How soon the first event comes, and how soon a killed worker is replaced."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from signal import SIGKILL

import anyio

from pipeline.deadline import Deadline
from schemas.query import QueryRequest
from tests.bench.bench import PAID, Bench, asked, folder_of, indexed, opened, ready, stub, worker
from worker.app import Sapwood

OWNER = """
select run_id, owner from sapwood.run where root_id = $1 and state = 'running' and run_id <> root_id limit 1
"""
TAKEN = """
select exists (select from sapwood.run where run_id = $1 and owner not in ('', $2) and state in ('running', 'completed'))
"""


async def run(bench: Bench) -> None:
    """Measure both."""
    async with opened(bench) as app:
        await indexed(app, "events", await folder_of(bench, "events", 20))
        async with worker(bench):
            await ready(app, 1)
            await first_events(bench, app, 20 if bench.quick else 200)
    await resumed(bench, 4 if bench.quick else 20)


async def first_events(bench: Bench, app: Sapwood, tries: int) -> None:
    """Ask an idle worker process, and follow the question from here."""
    first, started, answered, baseline = list[float](), list[float](), list[float](), list[float]()
    for number in range(tries):
        await anyio.sleep(0.1)
        began = time.perf_counter()
        await asked(app, "select 1")
        baseline.append(time.perf_counter() - began)
        began = time.perf_counter()
        run = await app.enqueue_query("events", QueryRequest(text=f"Who lives in number {number}?", cache=False))
        async for event in app.subscribe(run.run_id):
            kept = {"queued": first, "started": started, "completed": answered}.get(event.body.type)
            if kept is not None:
                kept.append(time.perf_counter() - began)
    bench.times("a round trip to the database (baseline)", baseline, {50: None})
    bench.times("submit → first event, idle", first, {95: 50})
    bench.times("submit → first event of the worker process", started, {50: None, 95: None})
    bench.times("submit → answer from the worker process", answered, {50: None, 95: None})


async def resumed(bench: Bench, kills: int) -> None:
    """Kill the worker that has the only batch of a run, again and again; another takes the batch over."""
    folder = await folder_of(bench, "resumed", 60)
    seconds: list[float] = []
    async with stub(0.5) as model, opened(bench, **model.settings) as app, AsyncExitStack() as stack:
        settings = {**model.settings, "model_concurrency": 1}
        spare = [await stack.enter_async_context(worker(bench, **settings)) for _ in range(2)]
        for number in range(kills):
            await ready(app, 2)
            await app.create_corpus(f"resumed-{number}", PAID)
            run = await app.index(f"resumed-{number}", [str(folder)])
            unit, owner = await batch_of(app, run.run_id)
            victim = next(process for process in spare if str(process.pid) == owner.split("-")[-2])
            await anyio.sleep(0.3)
            victim.send_signal(SIGKILL)
            killed = time.perf_counter()
            while not await asked(app, TAKEN, unit, owner):  # noqa: ASYNC110 - a row tells nobody
                await anyio.sleep(0.01)
            seconds.append(time.perf_counter() - killed)
            spare[spare.index(victim)] = await stack.enter_async_context(worker(bench, **settings))
            await app.cancel(run.run_id)
    bench.times("kill -9 → work resumed elsewhere", seconds, {50: 2500, 95: 5000}, "lease 2 s")


async def batch_of(app: Sapwood, root: str) -> tuple[str, str]:
    """The batch under way, and its owner."""
    with anyio.fail_after(60):
        while True:
            async with app.services.pool.connection(Deadline.after(10)) as tx:
                if row := await tx.fetchrow(OWNER, root):
                    return row["run_id"], row["owner"]
            await anyio.sleep(0.01)

"""Work that is bound by a model: how busy its slots are, what a kill costs in calls, and what a second worker brings."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from signal import SIGKILL

import anyio

from schemas.settings import CorpusSettings
from tests.bench.bench import PAID, Bench, Figure, finished, folder_of, indexed, load, opened, ready, stub, worker
from worker.app import Sapwood

SECONDS = 0.2
"""What one call takes."""

SLOTS = 16


async def run(bench: Bench) -> None:
    """Measure all three, each over a stub of its own."""
    await busy(bench, 320 if bench.quick else 960)
    await killed(bench, 500 if bench.quick else 1000)
    await scaled(bench, 512 if bench.quick else 1024)


async def busy(bench: Bench, documents: int) -> None:
    """Index in this process; the ideal is all calls one after the other in every slot."""
    folder = await folder_of(bench, f"slots-{documents}", documents)
    async with stub(SECONDS) as model, opened(bench, **model.settings, model_concurrency=SLOTS) as app:
        spent = time.process_time()
        run = await indexed(app, "slots", folder, PAID)
        spent = time.process_time() - spent
        seconds = (await app.index_summary(run))["seconds"]
        calls = (await model.seen())["calls"]
    ideal = calls * SECONDS / SLOTS
    shown = f"{seconds / ideal:.2f} ({seconds:.1f} s ÷ {ideal:.1f} s, {calls} calls)"
    note = f"{spent * 1000 / calls:.1f} ms of processor a call in this process; load {load()}"
    bench.add(Figure("model slots kept busy: wall ÷ ideal, 16 slots, 0.2 s", shown, seconds / ideal, 1.1, note=note))


async def killed(bench: Bench, documents: int) -> None:
    """Kill the only worker half-way, start another, and count the calls."""
    folder = await folder_of(bench, f"killed-{documents}", documents)
    async with stub(SECONDS) as model, opened(bench, **model.settings) as app, AsyncExitStack() as stack:
        await indexed(app, "clean", folder, PAID)
        clean = (await model.seen())["calls"]
        await app.create_corpus("killed", PAID)
        first = await stack.enter_async_context(worker(bench, **model.settings, model_concurrency=SLOTS))
        await ready(app, 1)
        run = await app.index("killed", [str(folder)])
        while (await model.seen())["calls"] < 1.5 * clean:  # noqa: ASYNC110 - a counter tells nobody
            await anyio.sleep(0.02)
        first.send_signal(SIGKILL)
        await stack.enter_async_context(worker(bench, **model.settings, model_concurrency=SLOTS))
        await ended(app, run.run_id)
        paid = (await model.seen())["calls"] - clean
    shown = f"{paid / clean:.3f} ({paid} ÷ {clean} calls)"
    bench.add(Figure("kill -9 and resume: model calls ÷ clean run", shown, paid / clean, 1.02))


async def scaled(bench: Bench, documents: int) -> None:
    """The same run by one worker process and by two."""
    folder = await folder_of(bench, f"scaled-{documents}", documents)
    times = [await alone(bench, folder, workers) for workers in (1, 2)]
    shown = f"{times[0] / times[1]:.2f} ({times[0]:.1f} s ÷ {times[1]:.1f} s, 8 slots each)"
    bench.add(Figure("two workers ÷ one, bound by the model", shown, times[0] / times[1], 1.9, at_least=True))


async def alone(bench: Bench, folder: object, workers: int, settings: CorpusSettings = PAID) -> float:
    """Seconds from the first to the last event of a run by so many worker processes."""
    async with stub(SECONDS) as model, opened(bench, **model.settings) as app, AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(worker(bench, **model.settings, model_concurrency=8))
        await ready(app, workers)
        await app.create_corpus(f"scaled-{workers}", settings)
        run = await app.index(f"scaled-{workers}", [str(folder)])
        await ended(app, run.run_id)
        seconds: float = (await app.index_summary(run))["seconds"]
        return seconds


async def ended(app: Sapwood, run_id: str) -> None:
    """Wait for the end of a run that others work on."""
    async for _ in app.subscribe(run_id):
        pass
    finished(await app.info(run_id))

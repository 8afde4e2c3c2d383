"""How late an answer is at its deadline, with healthy servers and with a frozen one, and how soon a cancelled run is over."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import asyncpg
from anyio import to_thread

from pipeline.errors import SapwoodError
from schemas.query import QueryRequest
from schemas.runs import RunState
from tests.bench.bench import PAID, Bench, asked, folder_of, home_of, indexed, opened, ready, stub, worker
from tests.chaos.test_frozen import frozen
from worker import embedded
from worker.app import Sapwood

CORPUS = "stopping"
WAITING = """
select count(*) from pg_stat_activity
where application_name = 'sapwood' and wait_event_type = 'Lock' and query like '%first_line%'
"""
"""Statements that read the texts of an answer; the garbage collector waits for the table too."""


async def run(bench: Bench) -> None:
    """Measure all four."""
    async with opened(bench) as app:
        await indexed(app, CORPUS, await folder_of(bench, "stopping", 500))
        await app.query(CORPUS, QueryRequest(text="warm"))
        await healthy(bench, app, 50 if bench.quick else 300)
        async with worker(bench):
            await ready(app, 1)
            warm = await app.enqueue_query(CORPUS, QueryRequest(text="warm"))
            async for _ in app.subscribe(warm.run_id):
                pass
            await cancelled_queries(bench, app, 10 if bench.quick else 40)
        await cancelled_indexing(bench, 3 if bench.quick else 10)
        await frozen_store(bench, app, 5 if bench.quick else 40)


async def overshoot(app: Sapwood, deadline: float, number: int) -> float:
    """Seconds by which an answer, whole or in part, or an error comes after its deadline; 0 if it is in time."""
    request = QueryRequest(text=f"Who was born in number {number}?", deadline=deadline, cache=False)
    started = time.perf_counter()
    with suppress(SapwoodError):  # an error is an answer too: what counts is when
        await app.query(CORPUS, request)
    return max(0.0, time.perf_counter() - started - deadline)


async def healthy(bench: Bench, app: Sapwood, tries: int) -> None:
    """Deadlines that are too short, and deadlines while another transaction holds the chunks."""
    short = [await overshoot(app, 0.001 + 0.0001 * (number % 100), number) for number in range(tries)]
    bench.times("deadline overshoot, deadlines of 1–11 ms", short, {99: 50})
    async with locked(bench, "chunk"):
        waiting = [await overshoot(app, 0.05, number) for number in range(tries // 2)]
    bench.times("deadline overshoot, a table locked by others", waiting, {99: 50})


@asynccontextmanager
async def locked(bench: Bench, table: str) -> AsyncGenerator[None]:
    """Hold a table, so that every statement that touches it waits in the server."""
    connection = await asyncpg.connect(embedded.endpoints(home_of(bench)).database_url)
    try:
        async with connection.transaction():
            await connection.execute(f"lock table sapwood.{table} in access exclusive mode")
            yield
    finally:
        await connection.close()


async def cancelled_queries(bench: Bench, app: Sapwood, tries: int) -> None:
    """Cancel questions whose statements wait in the server, in a worker process of their own."""
    seconds: list[float] = []
    async with locked(bench, "chunk"):
        for number in range(tries):
            request = QueryRequest(text=f"Where is number {number}?", deadline=60, cache=False)
            run = await app.enqueue_query(CORPUS, request)
            await until(app, 1)
            started = time.perf_counter()
            info = await app.cancel(run.run_id)
            await until(app, 0)
            seconds.append(time.perf_counter() - started)
            assert info.state is RunState.CANCELLED
    bench.times("cancel a query → all stopped, server too", seconds, {95: 200})


async def until(app: Sapwood, count: int) -> None:
    """Wait until so many statements of ours wait, or none."""
    with anyio.fail_after(30):
        while min(1, await asked(app, WAITING)) != count:  # noqa: ASYNC110 - a server tells nobody
            await anyio.sleep(0.002)


async def cancelled_indexing(bench: Bench, tries: int) -> None:
    """Cancel index runs while a worker process waits for sixteen answers of its model, up to the final event."""
    folder = await folder_of(bench, "cancelled", 60)
    seconds: list[float] = []
    async with stub(20) as model, opened(bench, **model.settings) as app, worker(bench, **model.settings):
        await app.create_corpus("cancelled", PAID)
        await ready(app, 1)
        for _ in range(tries):
            run = await app.index("cancelled", [str(folder)])
            before = (await model.seen())["calls"]
            while (await model.seen())["calls"] < before + 16:  # noqa: ASYNC110 - a counter tells nobody
                await anyio.sleep(0.01)
            started = time.perf_counter()
            info = await app.cancel(run.run_id)
            seconds.append(time.perf_counter() - started)
            assert info.state is RunState.CANCELLED
    bench.times("cancel an index run in its model calls → all stopped", seconds, {95: 200})


async def frozen_store(bench: Bench, app: Sapwood, tries: int) -> None:
    """A deadline of 300 ms while every process of PostgreSQL is stopped."""
    seconds: list[float] = []
    for number in range(tries):
        freezer = frozen(home_of(bench))
        await to_thread.run_sync(freezer.__enter__)
        try:
            seconds.append(await overshoot(app, 0.3, number))
        finally:
            await to_thread.run_sync(freezer.__exit__, None, None, None)
        found = await app.query(CORPUS, QueryRequest(text="whole again?", deadline=30, cache=False))
        assert found.complete
    bench.times("deadline overshoot, PostgreSQL frozen", seconds, {99: 500}, "deadline 300 ms")

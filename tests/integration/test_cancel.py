"""Cancelling a query and an index run: both end with their event, and nothing goes on, not even in the database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from pydantic import SecretStr

from schemas.events import Event
from schemas.query import QueryRequest
from schemas.runs import RunInfo, RunState
from tests.figures import say
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

CORPUS = "stopping"
PATIENCE = 30.0
"""Seconds after which a test gives up; nothing is asserted about times."""

WAITING = """
select pid, query from pg_stat_activity
where datname = current_database() and application_name = 'sapwood' and wait_event_type = 'Lock'
"""
OPEN = """
select query from pg_stat_activity
where datname = current_database() and application_name = 'sapwood' and state in ('active', 'idle in transaction')
    and now() - state_change > interval '400 ms'
"""


@asynccontextmanager
async def locked(database: str, table: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Hold a table so that every statement that touches it waits in the server; yield a connection to watch them with.

    A second one, for within a transaction the server shows the same list of statements again and again.
    """
    holder, watcher = await asyncpg.connect(database), await asyncpg.connect(database)
    try:
        async with holder.transaction():
            await holder.execute(f"lock table sapwood.{table} in access exclusive mode")
            yield watcher
    finally:
        await holder.close()
        await watcher.close()


async def until(connection: asyncpg.Connection[Any], statement: str, holds: Callable[[list[Any]], bool]) -> list[Any]:
    """Wait until what the server says of its statements is so."""
    with anyio.fail_after(PATIENCE):
        while not holds(found := await connection.fetch(statement)):  # noqa: ASYNC110 - a server tells nobody
            await anyio.sleep(0.01)
    return found


async def last(app: Sapwood, run: RunInfo) -> Event:
    """The terminal event of a run."""
    with anyio.fail_after(PATIENCE):
        return [event async for event in app.subscribe(run.run_id, after=0)][-1]


async def corpus(app: Sapwood, folder: Path) -> None:
    """Have something to ask and to index."""
    path = anyio.Path(folder)
    await path.mkdir()
    for number in range(80):
        await (path / f"{number}.md").write_text(f"The Crane Number {number} is located in Bristol.\n")
    run = await app.index(CORPUS, [str(folder)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error


def settings(tmp_path: Path, database: str, redis_url: str) -> WorkerSettings:
    return WorkerSettings(home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url))


async def stopped(app: Sapwood, run: RunInfo, watcher: asyncpg.Connection[Any]) -> str:
    """Cancel while a statement of the run waits in the server; say when the statement, and when the run, was gone."""
    waiting = {row["pid"] for row in await until(watcher, WAITING, bool)}
    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        group.start_soon(app.cancel, run.run_id, "enough")
        await until(watcher, WAITING, lambda found: not waiting & {row["pid"] for row in found})
        server = time.perf_counter() - started
    whole = time.perf_counter() - started
    return f"cancelled: its statement gone after {server * 1000:.0f} ms, all of it after {whole * 1000:.0f} ms"


async def test_a_cancelled_query_stops_in_the_server_too(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """A query that waits for a table is cancelled: its statement vanishes, and its last event says so."""
    async with open_sapwood(settings(tmp_path, database, redis_url)) as app:
        await corpus(app, tmp_path / "folder")
        async with locked(database, "chunk") as watcher, anyio.create_task_group() as group:
            run = await app.enqueue_query(CORPUS, QueryRequest(text="Where is crane number 7?", deadline=PATIENCE * 2))
            group.start_soon(app.work, run.run_id)
            say(request, await stopped(app, run, watcher))
            assert (await last(app, run)).body.model_dump() == {"type": "cancelled", "reason": "enough"}
        assert (await app.info(run.run_id)).state is RunState.CANCELLED
        answer = await app.query(CORPUS, QueryRequest(text="Where is crane number 7?"))
        assert answer.complete


async def test_a_cancelled_index_run_leaves_the_old_generation_and_nothing_of_its_own(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Cancelled while its batch waits to write: the run ends, its rows are undone, and the next run does all of it."""
    folder = tmp_path / "folder"
    async with open_sapwood(settings(tmp_path, database, redis_url)) as app:
        await corpus(app, folder)
        before = [line async for line in app.export(CORPUS, None)]
        for number in range(80):
            await anyio.Path(folder / f"{number}.md").write_text(f"The Crane Number {number} was made by Stothert.\n")
        run = await app.index(CORPUS, [str(folder)])
        async with anyio.create_task_group() as group:
            async with locked(database, "mention") as watcher:
                group.start_soon(app.work, run.run_id)
                waited = await stopped(app, run, watcher)
            say(request, waited)
            assert (await last(app, run)).body.model_dump() == {"type": "cancelled", "reason": "enough"}
        assert [line async for line in app.export(CORPUS, None)] == before
        again = await app.index(CORPUS, [str(folder)])
        info = await app.work(again.run_id)
        assert (info.state, info.generation) == (RunState.COMPLETED, 3)
        watcher = await asyncpg.connect(database)
        try:
            await until(watcher, OPEN, lambda found: not found)
            for table in ("document", "chunk", "mention", "fact", "entity", "relation", "membership", "community"):
                left = await watcher.fetchval(f"select count(*) from sapwood.{table} where born = $1 or died = $1", 2)
                assert left == 0, table
        finally:
            await watcher.close()

"""Index workers and query workers: each leaves the other's work alone, and finds its own though the other heard the ring."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from schemas.query import QueryRequest
from schemas.runs import RunState
from tests.chaos.test_health import READY, worker
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings, load


def settings(database: str, redis_url: str, home: Path) -> WorkerSettings:
    urls = {"SAPWOOD_DATABASE_URL": database, "SAPWOOD_REDIS_URL": redis_url}
    return load({"SAPWOOD_HOME": str(home), **urls})


async def ended(app: Sapwood, run_id: str) -> RunState:
    with anyio.fail_after(60):
        while not (info := await app.info(run_id)).state.terminal:  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return info.state


async def test_each_kind_of_worker_does_its_own_work_alone(database: str, redis_url: str, tmp_path: Path) -> None:
    folder = anyio.Path(tmp_path / "folder")
    await folder.mkdir()
    await (folder / "crane.md").write_text("The Crane Team runs the Harbour Crane.\n")
    question = QueryRequest(text="Who runs the crane?", deadline=60)
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_sapwood(settings(database, redis_url, tmp_path)))
        first = await app.index("roles", [str(folder)])
        await app.work(first.run_id)
        asking = await stack.enter_async_context(
            worker(database, redis_url, tmp_path / "asking", SAPWOOD_INDEX_JOBS="0")
        )
        await asking.until(READY, 0)

        await (folder / "tug.md").write_text("The Tug Team runs the Harbour Tug.\n")
        index = await app.index("roles", [str(folder)])
        for _ in range(3):
            query = await app.enqueue_query("roles", question)
            assert await ended(app, query.run_id) is RunState.COMPLETED
        assert (await app.info(index.run_id)).state is RunState.QUEUED

        async with worker(database, redis_url, tmp_path / "indexing", SAPWOOD_QUERY_JOBS="0"):
            assert await ended(app, index.run_id) is RunState.COMPLETED
            asking.process.terminate()
            await asking.process.wait()
            left = await app.enqueue_query("roles", question)
            again = await app.index("roles", [str(folder)])
            await ended(app, again.run_id)
            assert (await app.info(left.run_id)).state is RunState.QUEUED

"""A real worker and its probes: healthy, frozen, and cut off from its database."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM

import anyio
from anyio import to_thread
from anyio.abc import Process

from pipeline.adapters.postgres_migrations import migrate
from tests.chaos.test_frozen import frozen
from worker import embedded
from worker.health import LIVE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
LIVE, READY = (), ("--ready",)


class Probed:
    """A worker process, and what its probes say."""

    def __init__(self, process: Process, environment: dict[str, str]) -> None:
        self.process = process
        self._environment = environment

    async def probe(self, arguments: tuple[str, ...]) -> tuple[int, str]:
        """The exit code and the line of a probe."""
        command = [sys.executable, "-m", "worker.health", *arguments]
        done = await anyio.run_process(command, env=self._environment, check=False)
        return done.returncode, done.stdout.decode().strip()

    async def until(self, arguments: tuple[str, ...], code: int) -> str:
        """Probe as a kubelet does until it is this code; the line that came with it."""
        with anyio.fail_after(LIVE_SECONDS + 60):
            while True:
                found, line = await self.probe(arguments)
                if found == code:
                    return line
                await anyio.sleep(0.2)


@asynccontextmanager
async def worker(database: str, redis_url: str, home: Path, **variables: str) -> AsyncGenerator[Probed, None]:
    """Run `sapwood worker` and leave none behind."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "SAPWOOD_HOME": str(home),
        "SAPWOOD_HEALTH_FILE": str(home / "health" / "worker.json"),
        "SAPWOOD_DATABASE_URL": database,
        "SAPWOOD_REDIS_URL": redis_url,
        **variables,
    }
    process = await anyio.open_process(
        [sys.executable, "-m", "worker", "worker"], env=environment, stdout=None, stderr=None
    )
    try:
        yield Probed(process, environment)
    finally:
        with anyio.move_on_after(20, shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def test_a_worker_is_healthy_until_it_leaves(database: str, redis_url: str, tmp_path: Path) -> None:
    async with worker(database, redis_url, tmp_path) as found:
        assert (await found.probe(LIVE))[0] == 1  # it has not begun
        assert "last round" in await found.until(READY, 0)
        assert (await found.probe(LIVE))[0] == 0
        found.process.send_signal(SIGTERM)
        with anyio.fail_after(30):
            assert await found.process.wait() == 0
        assert await found.probe(LIVE) == (1, "no worker keeps a pulse here")


async def test_a_frozen_worker_is_not_alive_and_one_that_goes_on_is(
    database: str, redis_url: str, tmp_path: Path
) -> None:
    async with worker(database, redis_url, tmp_path) as found:
        await found.until(READY, 0)
        found.process.send_signal(SIGSTOP)
        try:
            assert "no pulse" in await found.until(LIVE, 1)
        finally:
            found.process.send_signal(SIGCONT)
        await found.until(READY, 0)


async def test_without_its_database_a_worker_lives_but_is_not_ready(tmp_path: Path) -> None:
    """A restart would not mend that: liveness holds while readiness is lost, and readiness comes back by itself."""
    home = tmp_path / "home"
    endpoints = await to_thread.run_sync(embedded.up, home)
    try:
        await migrate(endpoints.database_url)
        async with worker(endpoints.database_url, endpoints.redis_url, tmp_path) as found:
            await found.until(READY, 0)
            freezer = frozen(home)
            await to_thread.run_sync(freezer.__enter__)
            try:
                assert "the database has not answered" in await found.until(READY, 1)
                assert (await found.probe(LIVE))[0] == 0
            finally:
                await to_thread.run_sync(freezer.__exit__, None, None, None)
            await found.until(READY, 0)
    finally:
        await to_thread.run_sync(embedded.down, home)

"""A real Neo4j for tests, by the commands that `deploy/neo4j` gives to everybody."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import anyio
import pytest
from neo4j import AsyncDriver, AsyncGraphDatabase

from pipeline.adapters.neo4j_driver import Neo4jConfig

DEPLOY = Path(__file__).resolve().parents[1] / "deploy/neo4j"
LACKING = 3
"""The exit code of `up` where what it needs is missing and can not be had."""

PATIENCE = 30.0
"""Seconds after which a test gives up; nothing is asserted about times."""

OPEN = """
SHOW TRANSACTIONS YIELD currentQuery, database, status
WHERE NOT currentQuery CONTAINS 'SHOW TRANSACTIONS' AND database <> 'system'
RETURN currentQuery AS query
"""


@dataclass(frozen=True)
class Neo4jServer:
    """A server of a test's own, and how to reach it."""

    uri: str
    user: str
    password: str = field(repr=False)
    database: str
    data: Path
    pid: int

    def config(self, **changes: Any) -> Neo4jConfig:
        """Return what our driver needs, with some of it changed."""
        return replace(Neo4jConfig(self.uri, self.user, self.password, self.database), **changes)

    def raw(self) -> AsyncDriver:
        """Return a driver as it comes, to look at the server from outside."""
        return AsyncGraphDatabase.driver(self.uri, auth=(self.user, self.password), max_connection_pool_size=5)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process, so that it neither answers nor hangs up, and let it go on at the end."""
        os.kill(self.pid, SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, SIGCONT)

    async def open_transactions(self) -> list[str]:
        """Return the statements of all transactions on the server but the one that asks."""
        async with self.raw() as driver:
            found = await driver.execute_query(OPEN, database_=self.database)
        return [row["query"] for row in found.records]

    async def wait_for(self, waiting: int, part: str) -> None:
        """Wait until exactly so many transactions have `part` in their statement."""
        with anyio.fail_after(PATIENCE):
            while sum(part in query for query in await self.open_transactions()) != waiting:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.05)

    @asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of a node `:Lock {name}`: `WAITS` waits for it in the server."""
        async with self.raw() as driver, driver.session(database=self.database) as session:
            await (await session.run("MERGE (n:Lock {name: $name})", name=name)).consume()
            transaction = await session.begin_transaction()
            await (await transaction.run("MATCH (n:Lock {name: $name}) SET n.held = true", name=name)).consume()
            try:
                yield
            finally:
                with anyio.move_on_after(PATIENCE, shield=True):
                    await transaction.rollback()


WAITS = "MATCH (n:Lock {name: $name}) SET n.waited = 1 RETURN n.waited AS waited"
"""A write that waits where the node is `locked`."""


@contextmanager
def running(data: Path, *, database: str = "neo4j", heap: str = "1g", gds: bool = True) -> Iterator[Neo4jServer]:
    """Run a server in an empty folder. It takes about 10 s and 650 MB, so have no more than two at once.

    Where Java is missing and can not be installed the test is skipped with what to install; in CI it fails.
    """
    try:
        _start(data, ["--database", database, "--heap", heap, *([] if gds else ["--without-gds"])])
        lines = (data / "env").read_text().splitlines()
        env = dict(line.removeprefix("export SAPWOOD_GRAPH_NEO4J_").split("=", 1) for line in lines)
        pid = int((data / "pid").read_text())
        yield Neo4jServer(env["URI"], env["USER"], env["PASSWORD"], env["DATABASE"], data, pid)
    finally:
        subprocess.run([DEPLOY / "down", "--data", data], check=True, capture_output=True, timeout=60)


def _start(data: Path, options: list[str]) -> None:
    run = subprocess.run(
        [DEPLOY / "up", "--data", data, "--quick", "--owner", str(os.getpid()), *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if run.returncode == LACKING:
        cannot(f"there is no Neo4j to test with. {run.stderr}")
    if run.returncode != 0:
        pytest.fail(f"Neo4j did not start. {run.stderr}", pytrace=False)


def cannot(reason: str) -> None:
    """End a test for which this machine lacks something: loudly skipped, and in CI a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)

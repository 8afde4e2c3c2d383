"""Real servers for all tests: one embedded PostgreSQL and Valkey per session, a fresh database per test."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from redis.asyncio import Redis

from tests.figures import Figures
from tests.neo4j_server import Neo4jServer, running
from worker import embedded
from worker.embedded import Endpoints

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "sapwood_template"
LONG = {"acceptance", "chaos", "contract", "explorer", "property"}
"""The rooms whose files take long: a minute or two, of which those of some rooms wait and those of others compute."""

UNSAFE_BUT_FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "128MB",
}
MEMORY, ROOM = Path("/dev/shm"), 2 << 30
"""A file system in memory, as Linux has it, and the free bytes from which on the servers of all test processes fit into it."""

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Print figures where there is a terminal: not in the processes that only run tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Figures(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what stays until the end: every module, and thousands of tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes share the files, let them begin with the long ones, a room in its turn, and end with the quick ones."""
    if not hasattr(config, "workerinput"):
        return
    turns: dict[str, dict[Path, int]] = {}
    for item in items:
        files = turns.setdefault(item.path.parent.name, {})
        files.setdefault(item.path, len(files))

    def place(item: pytest.Item) -> tuple[int, int]:
        room = item.path.parent.name
        if room in LONG:
            return 0, turns[room][item.path]
        return (1 if room == "integration" else 2), 0

    items.sort(key=place)


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Make a blocking call on the event loop an error."""
    with blockbuster_ctx() as detector:
        # asyncpg looks for ~/.pgpass and ~/.postgresql/* each time it connects.
        for function in detector.functions.values():
            function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_dsn_and_args"})
        yield detector


@pytest.fixture(scope="session")
def quick_folder() -> Iterator[Path]:
    """Return a folder for what servers keep: in memory where that has room, as no disk is as quick to copy a database."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    with TemporaryDirectory("", "sapwood-tests-", MEMORY if roomy else None, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def servers(quick_folder: Path) -> Iterator[Endpoints]:
    """Start both servers once, without the durability that a test's data does not need, and stop them at the end."""
    home = quick_folder / "servers"
    try:
        yield embedded.up(home, UNSAFE_BUT_FAST)
    finally:
        embedded.down(home)


@pytest.fixture(scope="session")
async def template(servers: Endpoints) -> str:
    """Return the name of a database with every migration applied and nobody connected, to be copied per test."""
    from pipeline.adapters.postgres_migrations import migrate

    await _execute(servers.database_url, f"create database {TEMPLATE}")
    await migrate(_sibling(servers.database_url, TEMPLATE))
    return TEMPLATE


@pytest.fixture
async def database(servers: Endpoints, template: str) -> AsyncIterator[str]:
    """Return the URL of a migrated database that is this test's alone."""
    async with _fresh(servers, template) as url:
        yield url


@pytest.fixture(scope="module")
async def module_database(servers: Endpoints, template: str) -> AsyncIterator[str]:
    """Return the URL of a migrated database for the tests of a module, which keep apart what they put into it."""
    async with _fresh(servers, template) as url:
        yield url


@pytest.fixture
async def redis_url(servers: Endpoints) -> str:
    """Return the URL of an empty logical database; a test's neighbours have another one."""
    url = servers.redis_url.replace("db=0", f"db={next(_numbers) % 15 + 1}")
    async with Redis.from_url(url) as client:
        await client.flushdb()
    return url


@pytest.fixture(scope="session")
def neo4j_server(quick_folder: Path) -> Iterator[Neo4jServer]:
    """Start a Neo4j with Graph Data Science, once and only where a test asks for it; all tests share its one database."""
    with running(quick_folder / "neo4j") as server:
        yield server


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the evaluation data, which is not part of the project."""
    folder = Path(os.environ.get("SAPWOOD_SHARED") or ROOT.parent / "shared") / "data"
    if not folder.is_dir():
        pytest.skip(f"the evaluation data is not at {folder}; set SAPWOOD_SHARED to the folder that holds `data`")
    return folder


@asynccontextmanager
async def _fresh(servers: Endpoints, template: str) -> AsyncGenerator[str, None]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    # Copied as files, not logged block by block: a sixth of the time where nothing has to reach a disk.
    await _execute(servers.database_url, f"create database {name} template {template} strategy file_copy")
    yield _sibling(servers.database_url, name)
    await _execute(servers.database_url, f"drop database if exists {name} with (force)")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _sibling(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return url.replace("@/sapwood?", f"@/{name}?")

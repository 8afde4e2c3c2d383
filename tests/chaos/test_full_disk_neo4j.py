"""Neo4j on a disk that fills up: an error that says so, nothing committed is lost, and room and a restart mend it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.deadline import Deadline
from pipeline.errors import StoreUnavailable
from tests.neo4j_server import PATIENCE, Neo4jServer, running

SMALL, LARGE = "40m", "400m"
WRITES = 200
"""More of them than the small disk can hold."""

WRITE = "UNWIND range(1, 2000) AS number CREATE (:Fat {text: $text, number: number})"
COUNT = "MATCH (n:Fat) RETURN count(n) AS found"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, in memory. Where it may not be mounted, as in many containers, the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("a disk that fills up needs the command mount")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a disk that fills up needs the right to mount one: {mounted.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


async def fill(db: Neo4j) -> int:
    """Return how many writes were committed before the first that was not."""
    for number in range(WRITES):
        try:
            await db.write("neo4j", WRITE, {"text": "x" * 300}, Deadline.after(PATIENCE))
        except StoreUnavailable as error:
            assert "disk" in str(error)
            assert "xxx" not in str(error)
            return number
    return WRITES


async def count(server: Neo4jServer) -> int:
    async with open_neo4j(server.config()) as db:
        return (await db.read("neo4j", COUNT, {}, Deadline.after(PATIENCE)))[0]["found"]


async def test_a_full_disk(disk: Path) -> None:
    full = running(disk, heap="512m", gds=False)
    server = await to_thread.run_sync(full.__enter__)
    try:
        with anyio.fail_after(PATIENCE * 2):
            async with open_neo4j(server.config()) as db:
                committed = await fill(db)
                assert 0 < committed < WRITES
                with pytest.raises(StoreUnavailable, match="disk"):  # the database stays shut, for reads too
                    await db.read("neo4j", COUNT, {}, Deadline.after(PATIENCE))
    finally:
        await to_thread.run_sync(full.__exit__, None, None, None)
    await anyio.run_process(["mount", "-o", f"remount,size={LARGE}", str(disk)])
    again = running(disk, heap="512m", gds=False)
    server = await to_thread.run_sync(again.__enter__)
    try:
        assert await count(server) == committed * 2000
    finally:
        await to_thread.run_sync(again.__exit__, None, None, None)

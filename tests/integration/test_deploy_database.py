"""What a cluster asks of the database: whether it is migrated, and how much work is queued."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import asyncpg
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import StoreUnavailable
from tests.manifests import K8S, documents, of_kind
from worker.compose import apply_migrations
from worker.doctor import await_schema

ROOT = Path(__file__).resolve().parents[2]
SCALED = of_kind(documents(K8S / "components/keda/scaled-object.yaml"), "ScaledObject")[0]
COUNT = SCALED["spec"]["triggers"][0]["metadata"]["query"]


async def test_who_waits_for_the_schema_goes_on_once_it_is_there(database: str) -> None:
    """Workers of a fresh cluster start beside the migration."""
    await _run(database, "drop schema sapwood cascade")
    waited = anyio.Event()

    async def wait() -> None:
        await await_schema(database, Deadline.after(60))
        waited.set()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(0.3)
        assert not waited.is_set()
        await apply_migrations(database)
        with anyio.fail_after(30):
            await waited.wait()


async def test_a_newer_schema_keeps_nobody_waiting(database: str) -> None:
    """A pod of the last release that is moved during a rollout must come up again."""
    await _run(database, "insert into sapwood.schema_migration (version, checksum) values (9999, '')")
    await await_schema(database, Deadline.after(30))


async def test_who_waited_in_vain_says_so(database: str) -> None:
    await _run(database, "delete from sapwood.schema_migration where version = 1")
    with pytest.raises(StoreUnavailable, match="sapwood migrate"):
        await await_schema(database, Deadline.after(0.1))
    with pytest.raises(StoreUnavailable):
        await await_schema("postgresql://127.0.0.1:1/none", Deadline.after(0.1))


@pytest.mark.parametrize(("missing", "code"), [(False, 0), (True, 1)])
async def test_the_command_of_the_init_container(database: str, tmp_path: Path, missing: bool, code: int) -> None:
    if missing:
        await _run(database, "delete from sapwood.schema_migration where version = 1")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "SAPWOOD_HOME": str(tmp_path),
        "SAPWOOD_DATABASE_URL": database,
    }
    done = await anyio.run_process(
        [sys.executable, "-m", "worker", "migrate", "--wait", "1"], env=environment, check=False
    )
    assert done.returncode == code, done.stderr
    assert not missing or b"sapwood migrate" in done.stderr


async def test_the_autoscaler_counts_what_index_workers_can_work_on(database: str) -> None:
    """Due and running units of index runs; not the root that waits for them, a retry to come, a query, or what is over."""
    assert await _run(database, COUNT) == 0.0
    await _run(
        database,
        """
        insert into sapwood.corpus (tenant, name) values ('default', 'queue');
        insert into sapwood.run (run_id, root_id, corpus_id, kind, state, queued_at)
        select run_id, 'root', (select corpus_id from sapwood.corpus where name = 'queue'), kind, state, now() + later
        from (values ('root', 'index', 'waiting', '0'::interval), ('due', 'batch', 'queued', '-1 second'),
            ('working', 'batch', 'running', '0'), ('next', 'index', 'queued', '-1 hour'),
            ('retry', 'batch', 'queued', '1 hour'), ('over', 'batch', 'completed', '0'),
            ('asked', 'query', 'queued', '-1 second')) as made (run_id, kind, state, later)
        """,
    )
    assert await _run(database, COUNT) == 3.0


async def _run(database: str, statement: str) -> object:
    """Run a statement, or several without a result; the first value of what comes back."""
    connection = await asyncpg.connect(database)
    try:
        if statement.lstrip().startswith("select"):
            return await connection.fetchval(statement)
        return await connection.execute(statement)
    finally:
        await connection.close()

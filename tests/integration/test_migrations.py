"""Migrations: once each, by any number of processes, and never over a changed or newer schema."""

from __future__ import annotations

import anyio
import asyncpg
import pytest

from pipeline.adapters.postgres_migrations import available, migrate
from pipeline.errors import ConfigurationError, StoreUnavailable


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_processes_that_start_together_apply_each_file_once(database: str) -> None:
    await execute(database, "drop schema sapwood cascade")
    applied: list[list[str]] = []

    async def start() -> None:
        applied.append(await migrate(database))

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(start)
    names = [migration.name for migration in await anyio.to_thread.run_sync(available)]
    assert sorted(applied) == [[], [], [], names]


async def test_a_changed_file_and_a_newer_schema_are_refused(database: str) -> None:
    await execute(database, "update sapwood.schema_migration set checksum = 'x' where version = 1")
    with pytest.raises(ConfigurationError, match=r"0001_core\.sql was changed"):
        await migrate(database)
    await execute(
        database,
        "insert into sapwood.schema_migration values (9999, 'x')",
        "delete from sapwood.schema_migration where version = 1",
    )
    with pytest.raises(ConfigurationError, match="9999"):
        await migrate(database)


async def test_an_unreachable_database_is_named_by_its_role_only() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await migrate("postgresql://someone:secret@/x?host=/nonexistent")
    assert "secret" not in str(caught.value)

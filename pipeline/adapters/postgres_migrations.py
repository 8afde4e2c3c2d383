"""Schema migrations: ordered SQL files, a checksum table, and a lock, so that many processes may start at once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.to_thread
import asyncpg

from pipeline.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

_LOCK = 0x5A9_00D
"""The key of the advisory lock, which a direct connection holds through all files and which ends with the process."""

_CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name and its SQL."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the SQL, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def available() -> list[Migration]:
    """Return the shipped migrations in order."""
    folder = files("pipeline") / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(int(name.split("_", 1)[0]), name, (folder / name).read_text("utf-8")) for name in names]


def pending(shipped: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """Return what is still to apply, given the checksums of what is applied.

    Raises:
        ConfigurationError: an applied file was changed since, or the database is newer than this program.
    """
    known = {migration.version: migration for migration in shipped}
    for version, checksum in sorted(applied.items()):
        if version not in known:
            raise ConfigurationError(
                f"The database has migration {version:04d}, which is newer than this program; update it."
            )
        if known[version].checksum != checksum:
            raise ConfigurationError(
                f"Migration {known[version].name} was changed after it was applied; restore the file."
            )
    return [migration for migration in shipped if migration.version not in applied]


async def migrate(dsn: str) -> list[str]:
    """Bring the database up to this program and return the names of the files that were applied now, in order.

    Raises:
        ConfigurationError: see `pending`, or the database refuses a migration.
        StoreUnavailable: the database cannot be reached, or another process holds the lock for more than a minute.
    """
    shipped = await anyio.to_thread.run_sync(available)
    async with _direct(dsn) as connection:
        await _prepare(connection)
        rows = await connection.fetch("select version, checksum from sapwood.schema_migration")
        todo = pending(shipped, {row["version"]: row["checksum"] for row in rows})
        for migration in todo:
            await _apply(connection, migration)
    return [migration.name for migration in todo]


async def _prepare(connection: Connection) -> None:
    await connection.execute("set lock_timeout = '60s'; set search_path = sapwood, public")
    await connection.execute("select pg_advisory_lock($1)", _LOCK)
    await connection.execute(
        """create schema if not exists sapwood;
        create extension if not exists vector;
        create table if not exists sapwood.schema_migration (
            version int primary key, checksum text not null, applied_at timestamptz not null default clock_timestamp()
        )"""
    )


async def _apply(connection: Connection, migration: Migration) -> None:
    try:
        async with connection.transaction():
            # A short wait: better to fail and be run again than to queue every reader behind this lock request.
            await connection.execute("set local lock_timeout = '5s'")
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into sapwood.schema_migration (version, checksum) values ($1, $2)",
                migration.version,
                migration.checksum,
            )
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailable(f"The database is too busy for migration {migration.name}; try again.") from error
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"The database refused migration {migration.name} ({error.sqlstate}).") from error


@asynccontextmanager
async def _direct(dsn: str) -> AsyncGenerator[Connection, None]:
    """Open a connection of our own: an advisory lock must not travel through a pool."""
    try:
        connection = await asyncpg.connect(
            dsn, timeout=_CONNECT_SECONDS, server_settings={"application_name": "sapwood-migrate"}
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable("The database cannot be reached for the migration.") from error
    try:
        yield connection
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.LockNotAvailableError) as error:
        raise StoreUnavailable("The database did not finish the migration.") from error
    finally:
        with anyio.move_on_after(_GRACE_SECONDS, shield=True):
            await connection.close(timeout=_GRACE_SECONDS)

"""`sapwood doctor`: what is wrong with this installation, and how to mend it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from typing import Protocol, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from pipeline.deadline import Deadline
from pipeline.errors import SapwoodError, StoreUnavailable
from worker import embedded
from worker.compose.stores import verify_graph_store
from worker.log import Redaction
from worker.settings import WorkerSettings, misspelt

EXTRAS = {"local": "wordllama", "nlp": "spacy", "neo4j": "neo4j", "qdrant": "qdrant_client", "mcp": "mcp"}
FREE_BYTES = 1 << 30
SKEW_SECONDS = 2.0
PROBE_SECONDS = 5.0
ROW_SECURITY = 5
"""The migration that keeps tenants apart in the database."""
WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `cure` says what to do and is empty where nothing needs doing; no field holds a secret."""

    name: str
    ok: bool
    detail: str
    cure: str = ""


_LOOSE = """
select array_agg(quote_ident(c.relname) order by c.relname) from pg_class c
where c.relnamespace = 'sapwood'::regnamespace and c.relkind in ('r', 'p')
    and exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'of_tenant')
    and not (c.relrowsecurity and c.relforcerowsecurity)
"""
"""Tables with a policy for tenants that does not hold."""


class Database(Protocol):
    """As much of a connection as the checks need."""

    async def fetchval(self, query: str, /) -> object:
        """Return the first column of the first row; None when there is no row."""
        ...


class Cache(Protocol):
    """As much of a Redis client as the checks need."""

    async def info(self, section: str = ..., /) -> Mapping[str, object]:
        """Return one section of what the server says of itself, or the usual ones."""
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


class CacheFactory(Protocol):
    """The typed face of `redis.asyncio.Redis`."""

    def from_url(
        self, url: str, *, socket_timeout: float, socket_connect_timeout: float, decode_responses: bool
    ) -> Cache:
        """Return a client; nothing is connected yet."""
        ...


async def diagnose(settings: WorkerSettings) -> list[Check]:
    """Look at everything and return the findings in a fixed order; embedded servers are started, as a test.

    Never raises for what it finds: a server that does not answer within seconds is a failed check.
    """
    hide = Redaction(settings.secrets)
    local = await anyio.to_thread.run_sync(_local, settings)
    urls, started = await _urls(settings)
    found = [*local, *started]
    if "database" in urls:
        found += await _probe("database", urls["database"], _database)
    if "redis" in urls:
        found += await _probe("redis", urls["redis"], _redis)
    found += await _graph_store(settings)
    return [replace(check, detail=hide.text(check.detail), cure=_cure(check)) for check in found]


def _cure(check: Check) -> str:
    return "" if check.ok and check.name != "extras" else check.cure


def _local(settings: WorkerSettings) -> list[Check]:
    return [_python(), *_extras(), _environment(os.environ), *(_home(settings) if settings.embedded else [])]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "Use Python 3.11 or newer.")


def _extras() -> list[Check]:
    present = [name for name, module in EXTRAS.items() if find_spec(module) is not None]
    missing = [name for name in EXTRAS if name not in present]
    cure = f"Only where a corpus asks for one: pip install 'sapwood[{','.join(missing)}]'" if missing else ""
    return [Check("extras", True, f"installed: {', '.join(present) or 'none'}", cure)]


def _environment(environ: Mapping[str, str]) -> Check:
    wrong = misspelt(environ)
    cure = " ".join(f"Did you mean {meant} where it says {name}?" for name, meant in wrong.items())
    return Check(
        "environment", not wrong, f"not a setting: {', '.join(wrong)}" if wrong else "no misspelt setting", cure
    )


def _home(settings: WorkerSettings) -> list[Check]:
    free = embedded.free_bytes(settings.home)
    detail = f"{free / (1 << 30):.1f} GiB free for {settings.home}"
    return [Check("disk", free >= FREE_BYTES, detail, "Free at least 1 GiB, or set SAPWOOD_HOME to another disk.")]


async def _urls(settings: WorkerSettings) -> tuple[dict[str, str], list[Check]]:
    """Return the servers' URLs, as far as they can be had, and what starting the embedded ones showed."""
    given = {"database": settings.database_url, "redis": settings.redis_url}
    urls = {name: url.get_secret_value() for name, url in given.items() if url is not None}
    if not settings.embedded:
        return urls, []
    try:
        endpoints = await anyio.to_thread.run_sync(embedded.up, settings.home)
    except SapwoodError as error:
        return urls, [Check("embedded", False, str(error), "See the message; then `sapwood up`.")]
    ours = {"database": endpoints.database_url, "redis": endpoints.redis_url}
    return ours | urls, [Check("embedded", True, f"servers run in {settings.home}")]


async def _probe(name: str, url: str, look: Callable[[str], Awaitable[list[Check]]]) -> list[Check]:
    """Run one server's checks; any failure to answer is one failed check that names the setting."""
    place = urlsplit(url).hostname or "a local socket"
    cure = f"Start it, or correct SAPWOOD_{name.upper()}_URL."
    try:
        with anyio.fail_after(PROBE_SECONDS):
            return await look(url)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, RedisError) as error:
        return [Check(name, False, f"no answer from {place}: {type(error).__name__} {error}".strip(), cure)]


@asynccontextmanager
async def _connection(url: str) -> AsyncGenerator[Database]:
    connection = await asyncpg.connect(url, timeout=PROBE_SECONDS)
    try:
        yield cast("Database", connection)
    finally:
        with anyio.move_on_after(1.0, shield=True):
            await connection.close(timeout=1.0)


async def _database(url: str) -> list[Check]:
    async with _connection(url) as connection:
        return [
            await _postgres(connection),
            await _vector(connection),
            await _migrations(connection),
            *await _row_security(connection),
            await _clock(connection),
        ]


async def _postgres(connection: Database) -> Check:
    number = int(str(await connection.fetchval("show server_version_num")))
    return Check("database", number >= 160_000, f"PostgreSQL {number // 10_000}", "Use PostgreSQL 16 or newer.")


async def _vector(connection: Database) -> Check:
    installed = await connection.fetchval("select extversion from pg_extension where extname = 'vector'")
    offered = await connection.fetchval("select default_version from pg_available_extensions where name = 'vector'")
    version = str(installed or offered or "")
    ok = bool(version) and tuple(int(part) for part in version.split(".")[:2]) >= (0, 8)
    cure = "Install pgvector 0.8 or newer, then `alter extension vector update`."
    return Check("pgvector", ok, version or "not installed", "" if ok else cure)


async def _migrations(connection: Database) -> Check:
    shipped = await anyio.to_thread.run_sync(_shipped)
    applied = await _applied(connection)
    if applied - shipped:
        return Check("migrations", False, "the database is newer than this program", "Update sapwood.")
    detail = f"{len(applied)} of {len(shipped)} applied"
    return Check("migrations", applied == shipped, detail, "Run `sapwood migrate`.")


async def _row_security(connection: Database) -> list[Check]:
    """Look whether tenants are kept apart; before the migration that sees to it there is nothing to look at."""
    if ROW_SECURITY not in await _applied(connection):
        return []
    login = str(await connection.fetchval("select quote_ident(current_user)"))
    may = bool(await connection.fetchval("select pg_has_role(current_user, 'sapwood_tenant', 'set')"))
    role = Check(
        "tenant role",
        may,
        f"{login} may {'' if may else 'not '}act for one tenant",
        f"As the owner of the role: `grant sapwood_tenant to {login} with inherit false, set true`.",
    )
    loose = cast("list[str]", await connection.fetchval(_LOOSE) or [])
    cure = "; ".join(
        f"alter table sapwood.{name} enable row level security, force row level security" for name in loose[:3]
    )
    detail = f"not behind its policies: {', '.join(loose)}" if loose else "every table is behind its policies"
    return [role, Check("row security", not loose, detail, f"As the owner: `{cure}`." if cure else "")]


async def _applied(connection: Database) -> set[int]:
    if not await connection.fetchval("select to_regclass('sapwood.schema_migration') is not null"):
        return set()
    query = "select array_agg(version) from sapwood.schema_migration"
    return set(cast("list[int] | None", await connection.fetchval(query)) or [])


async def await_schema(url: str, deadline: Deadline) -> None:
    """Return once the database has every migration of this program; it may be newer, and away for a while.

    Raises:
        StoreUnavailable: that did not come true before the deadline.
    """
    shipped = await anyio.to_thread.run_sync(_shipped)
    while deadline.remaining() > 0:
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with _connection(url) as connection:
                if await _applied(connection) >= shipped:
                    return
        await anyio.sleep(min(WAIT_SECONDS, max(0.0, deadline.remaining())))
    raise StoreUnavailable("The database was not migrated in time; run `sapwood migrate`, or look at why it failed.")


def _shipped() -> set[int]:
    names = (entry.name for entry in (files("pipeline") / "sql" / "migrations").iterdir())
    return {int(name.partition("_")[0]) for name in names if name.endswith(".sql")}


async def _clock(connection: Database) -> Check:
    """Compare the two clocks at the middle of a round trip."""
    before = time.time()
    there = float(str(await connection.fetchval("select extract(epoch from clock_timestamp())")))
    after = time.time()
    skew = abs(there - (before + after) / 2)
    detail = f"{skew:.1f} s from the database's clock"
    return Check("clock", skew <= SKEW_SECONDS, detail, "Synchronise the clocks (NTP).")


async def _graph_store(settings: WorkerSettings) -> list[Check]:
    """Look at Neo4j where there is one; corpora without it are none the worse for what is wrong with it."""
    if settings.graph_neo4j_uri is None:
        return []
    cure = "Start it, or correct SAPWOOD_GRAPH_NEO4J_URI, _USER, _PASSWORD and _DATABASE."
    try:
        await verify_graph_store(settings, settings.graph_neo4j_uri, Deadline.after(PROBE_SECONDS))
    except SapwoodError as error:
        return [Check("neo4j", False, str(error), cure)]
    return [Check("neo4j", True, "Neo4j 5 with GDS 2.13")]


def _client(factory: CacheFactory, url: str) -> Cache:
    limit = PROBE_SECONDS
    return factory.from_url(url, socket_timeout=limit, socket_connect_timeout=limit, decode_responses=True)


async def _redis(url: str) -> list[Check]:
    client = _client(cast("CacheFactory", Redis), url)
    try:
        about, memory = await client.info(), await client.info("memory")
    finally:
        with anyio.move_on_after(1.0, shield=True):
            await client.aclose()
    version = str(about.get("valkey_version") or about["redis_version"])
    policy = str(memory.get("maxmemory_policy", "unknown"))
    return [
        Check("redis", int(version.partition(".")[0]) >= 7, version, "Use Valkey or Redis 7 or newer."),
        Check("eviction", policy == "noeviction", policy, "Set maxmemory-policy to noeviction, or events can vanish."),
    ]

"""`sapwood doctor`: what is wrong with this installation, and how to mend it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
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
from pipeline.ingest.fetched import LEAST_GIT, git_version
from pipeline.ingest.pruning import held_in
from schemas.settings import EmbeddingSettings
from worker import embedded
from worker.compose.models import onnx_of, tokenizer_of
from worker.compose.stores import verify_graph_store
from worker.log import Redaction
from worker.settings import WorkerSettings, misspelt

EXTRAS = {
    "local": ("embeddings by WordLlama", "wordllama"),
    "onnx": ("embeddings by a model in a folder", "onnxruntime", "tokenizers"),
    "tokens": ("exact counts of tokens", "tokenizers"),
    "nlp": ("extraction by spaCy", "spacy"),
    "neo4j": ("graphs in Neo4j", "neo4j"),
    "qdrant": ("vectors in Qdrant", "qdrant_client"),
    "mcp": ("agents over MCP", "mcp"),
    "otel": ("spans by OpenTelemetry", "opentelemetry.sdk"),
}
"""What each is for, and the modules that it brings."""

HINTS = frozenset({"extras", "git"})
"""Checks whose cure is told though nothing is wrong: who needs what is missing knows how to get it."""

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


_ASKED = """
select array_agg(distinct coalesce(settings #>> '{embedding,model}', '')) from sapwood.corpus
where settings #>> '{embedding,provider}' = 'onnx'
"""
_ONNX_CURE = (
    "A corpus asks for it: put the folder there on every worker, set SAPWOOD_MODELS_ROOT to the folder that has all models, "
    "and `pip install 'sapwood[onnx]'`."
)


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
    found = [*local, await _git(), *started]
    if "database" in urls:
        found += await _probe("database", urls["database"], partial(_database, settings))
    if "redis" in urls:
        found += await _probe("redis", urls["redis"], _redis)
    found += await _graph_store(settings)
    return [replace(check, detail=hide.text(check.detail), cure=_cure(check)) for check in found]


def _cure(check: Check) -> str:
    return "" if check.ok and check.name not in HINTS else check.cure


def _local(settings: WorkerSettings) -> list[Check]:
    return [
        _python(),
        *_extras(),
        _environment(os.environ),
        *(_home(settings) if settings.embedded else []),
        *_tokenizer(settings),
        *_models(settings),
        *_repositories(settings),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "Use Python 3.11 or newer.")


def _extras() -> list[Check]:
    present = [name for name, (_, *modules) in EXTRAS.items() if all(find_spec(module) for module in modules)]
    missing = [name for name in EXTRAS if name not in present]
    uses = ", ".join(f"{name} ({EXTRAS[name][0]})" for name in missing)
    cure = f"Only where it is asked for: {uses}: pip install 'sapwood[{','.join(missing)}]'" if missing else ""
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


def _tokenizer(settings: WorkerSettings) -> list[Check]:
    """Load the file that counts tokens, if there is one: it has a few MiB."""
    if settings.tokenizer_file is None:
        return []
    try:
        tokenizer_of(settings)()
    except SapwoodError as error:
        return [Check("tokenizer", False, str(error), "Correct SAPWOOD_TOKENIZER_FILE, or do what the message says.")]
    return [Check("tokenizer", True, str(settings.tokenizer_file))]


def _models(settings: WorkerSettings) -> list[Check]:
    """Look which models lie below the folder for them."""
    if settings.models_root is None:
        return []
    if not settings.models_root.is_dir():
        cure = "Make it, or correct SAPWOOD_MODELS_ROOT."
        return [Check("models", False, f"{settings.models_root} is no folder", cure)]
    found = sorted(
        str(file.parent.relative_to(settings.models_root)) for file in settings.models_root.glob("*/model.onnx")
    )
    return [Check("models", True, f"in {settings.models_root}: {', '.join(found) or 'none'}")]


def _repositories(settings: WorkerSettings) -> list[Check]:
    """Say what the fetched repositories come to; workers see to it that it stays within bounds."""
    held = held_in(settings.repositories)
    if not held:
        return []
    size = sum(one.size for one in held)
    detail = f"{len(held)} fetched, {_mib(size)} of at most {_mib(settings.git_cache_bytes)}"
    return [Check("repositories", True, f"{detail}, in {settings.repositories}")]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


async def _git() -> Check:
    """Look whether repositories can be read; nothing else needs git."""
    least = ".".join(map(str, LEAST_GIT))
    cure = f"Only for repositories as sources: install git {least} or newer."
    try:
        version = await git_version(Deadline.after(PROBE_SECONDS))
    except SapwoodError:
        return Check("git", True, "not installed", cure)
    text = ".".join(map(str, version))
    if version < LEAST_GIT:
        return Check("git", True, f"{text}, which reads repositories on this machine, but may fetch none", cure)
    return Check("git", True, text)


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


async def _database(settings: WorkerSettings, url: str) -> list[Check]:
    async with _connection(url) as connection:
        return [
            await _postgres(connection),
            await _vector(connection),
            await _migrations(connection),
            *await _row_security(connection),
            await _clock(connection),
            *await _asked_models(settings, connection),
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


async def _asked_models(settings: WorkerSettings, connection: Database) -> list[Check]:
    """Look at the models that corpora ask for by their folders, as a worker with these settings would."""
    if not await _applied(connection):
        return []
    asked = cast("list[str]", await connection.fetchval(_ASKED) or [])
    return [await anyio.to_thread.run_sync(_asked_model, settings, one) for one in asked]


def _asked_model(settings: WorkerSettings, model: str) -> Check:
    name = model or "(none named)"
    try:
        embedder = onnx_of(EmbeddingSettings(provider="onnx", model=model), settings)
    except SapwoodError as error:
        return Check("onnx model", False, f"{name}: {error}", _ONNX_CURE)
    return Check("onnx model", True, f"{name}: {embedder.fingerprint}")


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

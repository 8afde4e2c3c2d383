"""Sessions with a Neo4j server that can be left at any moment: a deadline holds even when the server is frozen.

The driver closes a connection whose work is cancelled, and with it the server ends the transaction; so all there is to do is
to run every call under a scope. Waiting for a connection happens here, in the caller's own task, and not in the driver's
pool, which wakes nobody when a connection that was being opened is given up.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, MissingDatabase, MissingExtra, StoreUnavailable
from pipeline.graphs.databases import database_name
from pipeline.graphs.neo4j_errors import ours
from pipeline.graphs.sessions import TakerT
from pipeline.queries import load_cypher

_CYPHER = load_cypher("server")

READ_CAP = 60.0
"""Seconds that a read may take when the deadline leaves more."""

WRITE_CAP = 600.0
"""The same for a write, which may be the clustering of a whole graph."""

CONNECT_CAP = 5.0
"""Seconds to wait for a free connection, or for the server to answer a new one."""

READ_RETRIES, WRITE_RETRIES = 1.0, 5.0
"""Seconds after the first try in which the driver begins another one, where it judges that this may help."""

FIRST_PAUSE = 0.1
"""Seconds before the second try; each pause is twice as long as the one before."""

SCHEMES = {f"{name}{security}" for name in ("bolt", "neo4j") for security in ("", "+s", "+ssc")}

TURN = 200
"""Records after which others have their turn: the driver unpacks some 20,000 in a second, and what is there already without
a pause."""

CLOSE_GRACE = 1.0
"""Seconds that saying goodbye to the server may take."""

ALL = -1
"""How many records travel at a time where they are collected anyway."""

_SERVER_SLACK = 1.0
"""How much later than the client the server gives up by itself: only when the client is gone."""

_SYSTEM = "system"


class _Result(Protocol):
    def __aiter__(self) -> AsyncIterator[Mapping[str, Any]]: ...

    async def consume(self) -> object: ...


class _Runs(Protocol):
    """A transaction or a session of the driver, whose own types are unknown in parts."""

    async def run(self, query: str, parameters: dict[str, Any]) -> _Result: ...


_Work: TypeAlias = Callable[[_Runs], Awaitable[TakerT]]


class _Session(_Runs, Protocol):
    async def execute_read(self, work: _Work[TakerT]) -> TakerT: ...

    async def execute_write(self, work: _Work[TakerT]) -> TakerT: ...


class _Driver(Protocol):
    def session(
        self, *, database: str, fetch_size: int, max_transaction_retry_time: float
    ) -> AbstractAsyncContextManager[_Session]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Neo4jConfig:
    """Where the server is and which databases are used.

    Attributes:
        mode: `shared`: all graphs are in `database`. `per_corpus`: each corpus has a database, named by `prefix` and its name.
        auto_create: whether a corpus's database is created with its first write; Community can not.
        pool_size: how many statements run at once; others wait.
    """

    uri: str
    user: str
    password: str = field(repr=False)
    database: str = "neo4j"
    mode: Literal["shared", "per_corpus"] = "shared"
    prefix: str = "sapwood_"
    auto_create: bool = True
    pool_size: int = 20


class Neo4j:
    """`Sessions` with one server; safe to leave at any await, by any number of tasks."""

    def __init__(self, driver: _Driver, config: Neo4jConfig) -> None:
        self._driver = driver
        self._config = config
        self._slots = anyio.CapacityLimiter(config.pool_size)

    @property
    def busy(self) -> int:
        """How many connections are lent now."""
        return self._slots.borrowed_tokens

    def database_of(self, corpus: str) -> str:
        """See `Sessions`."""
        if self._config.mode == "shared":
            return self._config.database
        return database_name(corpus, self._config.prefix)

    async def read(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        """See `Sessions`."""
        return (await self.feed(database, query, parameters, _Records, ALL, deadline)).records

    async def feed(
        self,
        database: str,
        query: str,
        parameters: Mapping[str, Any],
        begin: Callable[[], TakerT],
        fetch: int,
        deadline: Deadline,
    ) -> TakerT:
        """See `Feeds`."""
        async with self._session(database, deadline, READ_CAP, READ_RETRIES, fetch) as session:
            return await session.execute_read(_work(query, parameters, deadline.budget(READ_CAP), begin))

    async def write(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        """See `Sessions`. Creates the database of a corpus where it is missing and may be created.

        Raises:
            StoreUnavailable: also at the commit, which then may or may not have happened.
            DeadlineExceeded: likewise.
            ConfigurationError: the server cannot create the database; the message says what can be done.
        """
        try:
            return await self._write(database, query, parameters, deadline)
        except MissingDatabase:
            if not self._config.auto_create or self._config.mode == "shared":
                raise
        await self._create(database, deadline)
        return await self._write(database, query, parameters, deadline)

    async def verify(self, deadline: Deadline) -> None:
        """Check that the server is there, lets us in, and is one whose behaviour is known; and in `shared`, its database.

        Raises:
            ConfigurationError: the login, the database or the version is not right.
            StoreUnavailable: the server cannot be reached now.
        """
        database = self._config.database if self._config.mode == "shared" else _SYSTEM
        check_version((await self.read(database, _CYPHER["components"], {}, deadline))[0]["version"])

    async def _write(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        async with self._session(database, deadline, WRITE_CAP, WRITE_RETRIES) as session:
            work = _work(query, parameters, deadline.budget(WRITE_CAP), _Records)
            return (await session.execute_write(work)).records

    async def _create(self, database: str, deadline: Deadline) -> None:
        async with self._session(_SYSTEM, deadline, WRITE_CAP, WRITE_RETRIES) as session:
            result = await session.run(_CYPHER["create_database"], {"name": database})
            await result.consume()

    @asynccontextmanager
    async def _session(
        self, database: str, deadline: Deadline, cap: float, retries: float, fetch: int = ALL
    ) -> AsyncGenerator[_Session, None]:
        """Lend a session until the deadline, or for the cap; whatever runs then is cut off together with its connection."""
        with translated(deadline), anyio.fail_after(deadline.budget(cap)):
            async with (
                self._slot(),
                self._driver.session(
                    database=database, fetch_size=fetch, max_transaction_retry_time=retries
                ) as session,
            ):
                yield session

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None, None]:
        with anyio.move_on_after(CONNECT_CAP) as waiting:
            await self._slots.acquire()
        if waiting.cancelled_caught:
            raise StoreUnavailable(
                f"All {self._config.pool_size} connections to the graph store are busy; enlarge the pool, or ask less at once."
            )
        try:
            yield
        finally:
            self._slots.release()


class _Records:
    """Keeps all records of a statement."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, record: Mapping[str, Any], /) -> None:
        self.records.append(dict(record))


def _work(
    query: str, parameters: Mapping[str, Any], seconds: float, begin: Callable[[], TakerT]
) -> Callable[[_Runs], Awaitable[TakerT]]:
    """Return one statement as the driver's unit of work, which it may run again; the server ends it by itself as well."""
    from neo4j import unit_of_work

    @unit_of_work(timeout=seconds + _SERVER_SLACK)
    async def work(tx: _Runs) -> TakerT:
        result = await tx.run(query, dict(parameters))
        taker, taken = begin(), 0
        async for record in result:
            taker.add(record)
            taken += 1
            if not taken % TURN:
                await anyio.lowlevel.checkpoint()
        return taker

    return work


def check_version(version: str) -> None:
    """Refuse a server whose behaviour is not known. Raises ConfigurationError."""
    if version.partition(".")[0] != "5":
        raise ConfigurationError(f"Neo4j 5.x is required for the graph store; found {version}.")


@contextmanager
def translated(deadline: Deadline) -> Generator[None, None, None]:
    """Turn what the driver raises into our errors; what took too long is the deadline's if nothing of it is left."""
    try:
        yield
    except Exception as error:
        found = ours(error, passed=deadline.remaining() <= 0.001)
        if found is None:
            raise
        raise found from error


@asynccontextmanager
async def open_neo4j(config: Neo4jConfig) -> AsyncGenerator[Neo4j, None]:
    """Open the driver; it connects when it is first asked, so the server may be down.

    Raises:
        MissingExtra: the driver is not installed.
        ConfigurationError: the address is not valid.
    """
    if config.uri.partition("://")[0] not in SCHEMES:
        raise ConfigurationError(
            f"SAPWOOD_GRAPH_NEO4J_URI: it must start with one of {', '.join(sorted(SCHEMES))}, then `://`."
        )
    try:
        await anyio.to_thread.run_sync(import_module, "neo4j")
    except ImportError:
        raise MissingExtra("graph_storage.backend: `neo4j` needs `pip install sapwood[neo4j]`.") from None
    logging.getLogger("neo4j").setLevel(
        logging.CRITICAL
    )  # its messages hold addresses; every failure is raised besides
    with translated(Deadline.never()):
        driver = _connected(config)
    try:
        yield Neo4j(driver, config)
    finally:
        with anyio.move_on_after(CLOSE_GRACE, shield=True):
            await driver.close()


def _connected(config: Neo4jConfig) -> _Driver:
    connect = cast("Callable[..., _Driver]", import_module("neo4j").AsyncGraphDatabase.driver)
    return connect(
        config.uri,
        auth=(config.user, config.password),
        max_connection_pool_size=config.pool_size,
        # A cancellation during the farewell of a connection that is too old would leave its place in the pool taken.
        max_connection_lifetime=-1,
        connection_timeout=CONNECT_CAP,
        connection_acquisition_timeout=CONNECT_CAP,
        initial_retry_delay=FIRST_PAUSE,
        keep_alive=True,
        notifications_min_severity="OFF",
        telemetry_disabled=True,
    )

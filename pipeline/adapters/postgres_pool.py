"""Connections to PostgreSQL that can be left at any moment: a deadline holds even when the server is frozen.

Three rules make it so. Waiting for a slot happens in the caller's own task, under a scope, so a cancellation can not
lose a connection that was just acquired. Every statement has a client-side timeout, every transaction server-side ones.
After an error a connection goes back to the pool only if the server soon confirms that it is clean; else it is cut.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import asyncpg
import numpy as np
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, Duplicate, SapwoodError, StoreRefused, StoreUnavailable
from pipeline.ports import Tx
from pipeline.tenancy import EVERYBODY, acting_for

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    Direct: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Direct = asyncpg.Connection

STATEMENT_CAP = 60.0
"""Seconds that one statement may take when the deadline leaves more."""

MAINTENANCE_CAP = 6 * 3600.0
"""The same for the build of an index."""

ACQUIRE_CAP = 5.0
"""Seconds to wait for a free connection, or for the server to answer a new one."""

RELEASE_GRACE = 0.25
"""Seconds that the server has to confirm that a left connection is clean."""

_SERVER_SLACK_MS = 1000
"""How much later than the client the server gives up by itself: only when the client is gone."""

_SESSION = {
    "application_name": "sapwood",
    "search_path": "sapwood, public",
    "jit": "off",
    "client_connection_check_interval": "500ms",  # a statement ends soon after its worker was killed
    "statement_timeout": str(int(STATEMENT_CAP * 1000) + _SERVER_SLACK_MS),
    "idle_in_transaction_session_timeout": str(int(STATEMENT_CAP * 1000)),
}

_RETRYABLE = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidTransactionStateError,
)


_ASSUME = "select set_config('role', $1, false), set_config('sapwood.tenant', $2, false)"
_TENANT_ROLE = "sapwood_tenant"


_BROKEN = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver raises, the last where a connection is cut at the very moment at which it is used."""


class Session(Direct):
    """A connection that knows for whom it works: a role and a setting of the session, changed only where they differ."""

    __slots__ = ("_tenant",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tenant: str | None = EVERYBODY

    async def assume(self, tenant: str, seconds: float) -> None:
        """Show, from now on, the rows of this tenant alone, or all. Needs to be in no transaction."""
        if tenant == self._tenant:
            return
        self._tenant = None  # unknown, until the server has said so
        await self.fetchrow(_ASSUME, _TENANT_ROLE if tenant else "none", tenant, timeout=seconds)
        self._tenant = tenant


class Statements:
    """A `Tx` over one connection, bounded by one deadline."""

    def __init__(self, connection: Connection, deadline: Deadline, cap: float = STATEMENT_CAP) -> None:
        self._connection = connection
        self._deadline = deadline
        self._cap = cap

    async def execute(self, query: str, *args: Any) -> str:
        """See `Tx`."""
        with translated(self._deadline):
            return await self._connection.execute(query, *args, timeout=self._budget())

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """See `Tx`."""
        with translated(self._deadline):
            return await self._connection.fetch(query, *args, timeout=self._budget())

    async def fetchrow(self, query: str, *args: Any) -> Any:
        """See `Tx`."""
        with translated(self._deadline):
            return await self._connection.fetchrow(query, *args, timeout=self._budget())

    async def fetchval(self, query: str, *args: Any) -> Any:
        """See `Tx`."""
        with translated(self._deadline):
            return await self._connection.fetchval(query, *args, timeout=self._budget())

    async def copy(self, table: str, columns: Sequence[str], records: Iterable[Sequence[Any]]) -> None:
        """See `Tx`."""
        rows = cast("Any", records)  # asyncpg's stubs ask for tuples; it takes any sequence
        with translated(self._deadline):
            await self._connection.copy_records_to_table(table, records=rows, columns=columns, timeout=self._budget())

    def _budget(self) -> float:
        return self._deadline.budget(self._cap)


class Pool:
    """A bounded set of connections; safe to leave at any await.

    What is lent to a task that acts for a tenant shows it the rows of that tenant alone: see `pipeline/tenancy.py`.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @asynccontextmanager
    async def connection(self, deadline: Deadline) -> AsyncGenerator[Tx, None]:
        """Lend a connection for reads: each statement is a transaction of its own and one round trip."""
        async with self._lent(deadline, acting_for()) as connection:
            yield Statements(connection, deadline)

    @asynccontextmanager
    async def transaction(self, deadline: Deadline) -> AsyncGenerator[Tx, None]:
        """Lend a transaction that commits at the end of the block, and rolls back if anything is raised.

        Raises:
            StoreUnavailable: also at the end of the block; then the commit may or may not have happened.
            DeadlineExceeded: likewise.
        """
        async with self._lent(deadline, acting_for()) as connection:
            statements = Statements(connection, deadline)
            await statements.execute(_begin(deadline))
            yield statements
            await statements.execute("commit")

    @asynccontextmanager
    async def maintenance(self, deadline: Deadline) -> AsyncGenerator[Tx, None]:
        """Lend a connection for what may take as long as the deadline allows, such as the build of an index.

        Each statement is a transaction of its own; session settings are free to be changed.
        """
        async with self._lent(deadline, EVERYBODY) as connection:
            statements = Statements(connection, deadline, MAINTENANCE_CAP)
            try:
                await statements.execute(f"set statement_timeout = {int(MAINTENANCE_CAP * 1000)}")
                yield statements
            finally:
                _cut(connection)  # its settings are of no use to others

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncGenerator[MemoryObjectReceiveStream[str], None]:
        """Lend a connection that listens; the stream holds the payloads and ends when the connection is lost.

        A reader that lags loses payloads: they only ever speed up what a row says as well.
        """
        send, receive = anyio.create_memory_object_stream[str](1024)

        def heard(*args: Any) -> None:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                send.send_nowait(str(args[3]))

        def lost(*_: Any) -> None:
            send.close()

        with send, receive, translated(Deadline.never()):
            async with self._lent(Deadline.never(), EVERYBODY) as connection:
                connection.add_termination_listener(lost)
                try:
                    await connection.add_listener(channel, heard)
                    yield receive
                finally:
                    _cut(connection)  # cheaper and surer than to unlisten, in whatever state it is

    @asynccontextmanager
    async def _lent(self, deadline: Deadline, tenant: str) -> AsyncGenerator[Connection, None]:
        connection = await self._acquire(deadline)
        clean = False
        try:
            with translated(deadline):
                await cast("Session", connection).assume(tenant, deadline.budget(STATEMENT_CAP))
            yield connection
            clean = _idle(connection)
        finally:
            if clean:
                await self._give_back(connection)
            else:
                await self._settle(connection)

    async def _acquire(self, deadline: Deadline) -> Connection:
        with translated(deadline), anyio.fail_after(deadline.budget(ACQUIRE_CAP)):
            return await self._pool.acquire()

    async def _give_back(self, connection: Connection) -> None:
        """Return a clean connection; no round trip is needed: the only session state that changes is checked when it is lent."""
        with anyio.move_on_after(RELEASE_GRACE, shield=True):
            await self._pool.release(connection, timeout=RELEASE_GRACE)

    async def _settle(self, connection: Connection) -> None:
        """Return a connection in an unknown state: let the server cancel and roll back, or cut it."""
        try:
            with anyio.move_on_after(RELEASE_GRACE, shield=True):
                # The rollback waits until the server has confirmed the cancellation of what was running.
                if not connection.is_closed():
                    await connection.execute("rollback", timeout=RELEASE_GRACE)
                await self._pool.release(connection, timeout=RELEASE_GRACE)
                return
        except _BROKEN:
            # Whatever it was, the error that brought us here is on its way; the connection is of no more use.
            pass
        finally:
            _cut(connection)


def _idle(connection: Connection) -> bool:
    """Tell whether the connection is open and in no transaction; one that closed itself is already detached."""
    try:
        return not connection.is_closed() and not connection.is_in_transaction()
    except asyncpg.InterfaceError:
        return False


def _cut(connection: Connection) -> None:
    """Close the socket at once; nothing happens to a connection that was given back."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def _begin(deadline: Deadline) -> str:
    """Open a transaction and bound it on the server, in one round trip; the numbers are our own."""
    left = min(deadline.remaining(), STATEMENT_CAP)
    ms = max(1, int(left * 1000)) + _SERVER_SLACK_MS
    whole = "" if deadline.remaining() > STATEMENT_CAP else f"; set local transaction_timeout = {ms + _SERVER_SLACK_MS}"
    return f"begin; set local statement_timeout = {ms}; set local idle_in_transaction_session_timeout = {ms}{whole}"


@contextmanager
def translated(deadline: Deadline) -> Generator[None, None, None]:
    """Turn what the driver raises into our errors; a timeout is the deadline's if nothing of it is left."""
    try:
        yield
    except _BROKEN as error:
        raise _ours(error, deadline) from error


def _ours(error: Exception, deadline: Deadline) -> SapwoodError:
    slow = isinstance(error, TimeoutError | asyncpg.QueryCanceledError)
    if slow and deadline.remaining() <= 0.001:
        return DeadlineExceeded()
    if isinstance(error, asyncpg.UniqueViolationError):
        return Duplicate(error.constraint_name or "")
    if isinstance(error, _RETRYABLE):
        return StoreUnavailable(f"The database gave up a statement ({error.sqlstate}); it may be tried again.")
    if isinstance(error, asyncpg.PostgresError):
        return StoreRefused(f"The database refused a statement ({error.sqlstate}).")
    if isinstance(error, ValueError):  # asyncpg.DataError and its like: the value never left this process
        return StoreRefused("A value does not fit its column or parameter.")
    return StoreUnavailable("The database cannot be reached or did not answer.")


def _write_jsonb(value: Any) -> bytes:
    return b"\x01" + orjson.dumps(value)  # the version byte of the binary format


def _read_jsonb(data: bytes) -> Any:
    return orjson.loads(memoryview(data)[1:])


async def _prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Read and write JSON as Python objects."""
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", format="binary", encoder=_write_jsonb, decoder=_read_jsonb
    )
    await _prepare_vectors(connection)


_HALFVEC = "select n.nspname from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.typname = 'halfvec'"


async def _prepare_vectors(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Read and write pgvector's halfvec as arrays; before the first migration there is no such type."""
    schema = await connection.fetchval(_HALFVEC)
    if schema is not None:
        await connection.set_type_codec(
            "halfvec", schema=schema, format="binary", encoder=_encode_halfvec, decoder=_decode_halfvec
        )


def _encode_halfvec(vector: NDArray[np.floating[Any]]) -> bytes:
    return len(vector).to_bytes(2, "big") + b"\0\0" + vector.astype(">f2").tobytes()


def _decode_halfvec(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data, dtype=">f2", offset=4).astype(np.float32)


async def _keep(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Reset nothing on release: all settings are local to a transaction, and no session lock is ever taken here."""


@asynccontextmanager
async def open_pool(dsn: str, size: int = 8) -> AsyncGenerator[Pool, None]:
    """Open a pool of at most `size` connections, made when they are needed and closed after a minute of idleness.

    Raises:
        StoreUnavailable: the database cannot be reached now.
    """
    with translated(Deadline.never()):
        pool = await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=size,
            max_inactive_connection_lifetime=60.0,
            command_timeout=STATEMENT_CAP,
            timeout=ACQUIRE_CAP,
            statement_cache_size=512,
            server_settings=_SESSION,
            connection_class=Session,
            init=_prepare,
            reset=_keep,
        )
    try:
        ours = Pool(pool)
        async with ours.connection(Deadline.after(ACQUIRE_CAP)) as tx:
            await tx.fetchval("select 1")
        yield ours
    finally:
        with anyio.move_on_after(RELEASE_GRACE * 4, shield=True):
            await pool.close()
        pool.terminate()

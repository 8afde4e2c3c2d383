"""The live copy of event logs in Valkey or Redis: a stream for each run, with ids `<seq>-0`, so a retry adds nothing.

Two clients: commands have a short socket timeout and no retries of the driver's own; blocking reads block for a second
at most, well within the socket timeout of their client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import anyio
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from pipeline.errors import StoreUnavailable
from schemas.events import Event
from schemas.ids import RunId

BLOCK_MS = 1000
"""How long one read waits for news; zero would mean for ever."""

_PAGE = 500
_GRACE_SECONDS = 1.0


class RedisStreams:
    """An `EventStream`. A stream lives for `keep_seconds` after its last event."""

    def __init__(self, commands: Redis, reads: Redis, prefix: str, keep_seconds: int) -> None:
        self._commands = commands
        self._reads = reads
        self._prefix = prefix
        self._keep_seconds = keep_seconds

    async def publish(self, events: Sequence[Event]) -> None:
        """See `EventStream`."""
        with _translated():
            pipe = self._commands.pipeline(transaction=False)
            for event in events:
                pipe.xadd(self._key(event.run_id), {"e": event.model_dump_json()}, id=f"{event.seq}-0")
            for run_id in {event.run_id for event in events}:
                pipe.expire(self._key(run_id), self._keep_seconds)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, RedisError) and "equal or smaller" not in str(answer):
                    raise answer

    async def follow(self, run_id: RunId, after: int) -> AsyncGenerator[Event | None, None]:
        """See `EventStream`. Raises StoreUnavailable."""
        key, last = self._key(run_id), f"{after}-0"
        while True:
            with _translated():
                answer = await self._reads.xread({key: last}, count=_PAGE, block=BLOCK_MS)
            if not answer:
                yield None
                continue
            for entry, fields in answer[0][1]:
                yield Event.model_validate_json(fields[b"e"])
                last = entry

    async def ping(self) -> None:
        """Ask whether the server answers. Raises StoreUnavailable."""
        with _translated():
            await cast("Any", self._commands).ping()  # redis-py leaves the type of its answer open

    def _key(self, run_id: str) -> str:
        return f"{self._prefix}:events:{run_id}"


@contextmanager
def _translated() -> Generator[None, None, None]:
    try:
        yield
    except ResponseError as error:
        raise StoreUnavailable("The event stream refused a command.") from error
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailable("The event stream cannot be reached.") from error


def _client(url: str, connections: int, socket_timeout: float) -> Redis:
    """Make a client with every option set: the defaults differ between major versions of the driver."""
    pool = cast("Any", BlockingConnectionPool).from_url(
        url,
        max_connections=connections,
        timeout=socket_timeout,
        socket_timeout=socket_timeout,
        socket_connect_timeout=1.0,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        retry_on_error=[],
        health_check_interval=0,
        protocol=2,
        decode_responses=False,
    )
    return Redis(connection_pool=pool)


@asynccontextmanager
async def open_streams(
    url: str, *, prefix: str = "sapwood", keep_seconds: int = 86_400, followers: int = 1000
) -> AsyncGenerator[RedisStreams, None]:
    """Open the streams; nothing is connected before it is used. At most so many followers read at a time."""
    commands, reads = _client(url, 32, 1.0), _client(url, followers, BLOCK_MS / 1000 + 2.0)
    try:
        yield RedisStreams(commands, reads, prefix, keep_seconds)
    finally:
        for client in (commands, reads):
            with anyio.move_on_after(_GRACE_SECONDS, shield=True):
                await client.aclose(close_connection_pool=True)

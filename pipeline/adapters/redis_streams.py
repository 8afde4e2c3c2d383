"""The live copy of event logs in Valkey or Redis: a stream for each run, with ids `<seq>-0`, so a retry adds nothing.

Two clients: commands have a short socket timeout and no retries of the driver's own; the one that listens blocks for a
second at most, well within its socket timeout.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import anyio
from pydantic import ValidationError
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from pipeline.errors import StoreUnavailable
from schemas.events import Event
from schemas.ids import RunId

BLOCK_MS = 1000
"""How long one read waits for news; zero would mean for ever."""

_HEARD = 4000
"""Events that one read of all streams returns at most, or one of each."""

_DOOR_SECONDS = 60
_GRACE_SECONDS = 1.0


class RedisStreams:
    """An `EventStream`, and its `StreamReader`. A stream lives for `keep_seconds` after its last event."""

    def __init__(self, commands: Redis, listening: Redis, prefix: str, keep_seconds: int) -> None:
        self._commands = commands
        self._listening = listening
        self._prefix = prefix
        self._keep_seconds = keep_seconds
        self._door = f"{prefix}:door:{secrets.token_hex(8)}"
        self._knocked: bytes | str = "0-0"

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

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        """See `StreamReader`."""
        with _translated():
            entries = await self._commands.xrange(self._key(run_id), min=f"{after + 1}-0", count=limit)
        return _events(entries)

    async def listen(self, after: Mapping[RunId, int]) -> list[Event]:
        """See `StreamReader`."""
        places: dict[Any, Any] = {self._key(run_id): f"{number}-0" for run_id, number in after.items()}
        places[self._door] = self._knocked
        with _translated():
            answer = await self._listening.xread(places, count=max(1, _HEARD // len(places)), block=BLOCK_MS)
        found: list[Event] = []
        for key, entries in answer or ():
            if key == self._door.encode():
                self._knocked = entries[-1][0]
            else:
                found += _events(entries)
        return found

    async def wake(self) -> None:
        """See `StreamReader`. A key of this process's own, so that no right is needed but to its keys."""
        with _translated():
            pipe = self._commands.pipeline(transaction=False)
            pipe.xadd(self._door, {"k": b""}, maxlen=1, approximate=False)
            pipe.expire(self._door, _DOOR_SECONDS)
            await pipe.execute()

    async def ping(self) -> None:
        """Ask whether the server answers. Raises StoreUnavailable."""
        with _translated():
            await cast("Any", self._commands).ping()  # redis-py leaves the type of its answer open

    def _key(self, run_id: str) -> str:
        return f"{self._prefix}:events:{run_id}"


def _events(entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> list[Event]:
    """Return entries as events. Raises StoreUnavailable where one is not ours: then the log is read instead."""
    try:
        return [Event.model_validate_json(fields[b"e"]) for _, fields in entries]
    except (KeyError, ValidationError) as error:
        raise StoreUnavailable("The event stream holds what this version cannot read.") from error


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
    url: str, *, prefix: str = "sapwood", keep_seconds: int = 86_400
) -> AsyncGenerator[RedisStreams, None]:
    """Open the streams; nothing is connected before it is used. All that is followed is listened to on one connection."""
    commands, listening = _client(url, 32, 1.0), _client(url, 1, BLOCK_MS / 1000 + 2.0)
    try:
        yield RedisStreams(commands, listening, prefix, keep_seconds)
    finally:
        for client in (commands, listening):
            with anyio.move_on_after(_GRACE_SECONDS, shield=True):
                await client.aclose(close_connection_pool=True)

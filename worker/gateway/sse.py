"""Server-sent events: a response that speaks while it has something to say, and ends when it has not or nobody listens.

Nothing is buffered here: the producer waits for the client. A client that takes nothing for a while loses its connection
and, since every event has an id, no event: it comes back with `Last-Event-ID`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import orjson
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipeline.errors import EventsExpired, SapwoodError
from worker.gateway.presence import until_gone

RETRY_MS = 1000
"""How long a browser waits before it connects again."""

MEDIA_TYPE = "text/event-stream"
DESCRIBED: dict[str, Any] = {
    MEDIA_TYPE: {
        "schema": {
            "type": "object",
            "description": "One server-sent event of the stream.",
            "properties": {
                "event": {"type": "string", "description": "What happened: the `type` of the event."},
                "data": {"type": "string", "contentMediaType": "application/json", "description": "The event."},
                "id": {"type": "string", "description": "What a client sends as Last-Event-ID to go on after it."},
            },
            "required": ["event", "data"],
        }
    }
}
"""How a stream is described: before OpenAPI 3.2 the schema of this media type is that of each event."""

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_log = structlog.get_logger(__name__)

TOGETHER = 64 * 1024
"""Characters of events after which they are sent, though there are more."""

Said = tuple[str, str, str | None]
"""The name, the data (one line) and the id of an event."""


class Say(Protocol):
    """Sends events, and returns when the client may be sent more."""

    async def __call__(self, name: str, data: str, id_: str | None, /) -> None:
        """Send one."""
        ...

    async def together(self, events: Iterable[Said], /) -> None:
        """Send these with few writes."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between signs of life, and those that a client may take nothing; `closing` is set when the server stops."""

    heartbeat: float
    send: float
    closing: anyio.Event


class EventStream(Response):
    """Sends what `produce` says. `held` is entered while the stream lasts.

    `produce` is cancelled when the client leaves, is too slow, or the server stops. If it raises EventsExpired, the last
    event is `reset` with an empty id: whoever connects again begins with what is still there.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self, produce: Callable[[Say], Awaitable[None]], pace: Pace, held: AbstractContextManager[None]
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)
        self._produce = produce
        self._pace = pace
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond."""
        with self._held:
            group = anyio.create_task_group()
            line = _Line(send, self._pace.send, group.cancel_scope)
            async with group:
                await line.start(self.raw_headers)
                group.start_soon(_watch, line, receive)
                group.start_soon(_beat, line, self._pace, group.cancel_scope)
                await self._speak(line)
                group.cancel_scope.cancel()
            await line.end()

    async def _speak(self, line: _Line) -> None:
        await line.write(f"retry: {RETRY_MS}\n\n")
        try:
            await self._produce(line)
        except EventsExpired as error:
            await line("reset", orjson.dumps({"detail": str(error)}).decode(), "")
        except SapwoodError as error:  # the client connects again, and hears why if it lasts
            _log.warning("gateway.stream_ended", code=type(error).__name__, error=str(error))


class _Line:
    """The way to one client; `scope` is cancelled when it is lost."""

    def __init__(self, send: Send, seconds: float, scope: anyio.CancelScope) -> None:
        self._send = send
        self._seconds = seconds
        self._scope = scope
        self._one_at_a_time = anyio.Lock(fast_acquire=True)
        self._lost = False
        self.said = 0

    def lose(self) -> None:
        """Give the client up."""
        self._lost = True
        self._scope.cancel()

    async def start(self, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def __call__(self, name: str, data: str, id_: str | None, /) -> None:
        """See `Say`."""
        await self.write(_frame(name, data, id_))

    async def together(self, events: Iterable[Said], /) -> None:
        """See `Say`."""
        frames, length = list[str](), 0
        for event in events:
            frames.append(_frame(*event))
            length += len(frames[-1])
            if length >= TOGETHER:
                await self.write("".join(frames))
                frames, length = [], 0
        if frames:
            await self.write("".join(frames))

    async def write(self, text: str) -> None:
        """Send a part; a client that does not take it in time is lost."""
        async with self._one_at_a_time:
            with anyio.move_on_after(self._seconds) as scope:
                await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        self.said += 1
        if scope.cancelled_caught:
            _log.info("gateway.slow_client")
            self.lose()

    async def end(self) -> None:
        """End the response properly; a lost client's connection is cut by the server instead."""
        if not self._lost:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _frame(name: str, data: str, id_: str | None) -> str:
    identity = "" if id_ is None else f"id: {id_}\n"
    return f"{identity}event: {name}\ndata: {data}\n\n"


async def _watch(line: _Line, receive: Receive) -> None:
    await until_gone(receive)
    line.lose()


async def _beat(line: _Line, pace: Pace, scope: anyio.CancelScope) -> None:
    """Give a sign of life whenever nothing was said for a while, until the server stops: then leave."""
    while not pace.closing.is_set():
        said = line.said
        with anyio.move_on_after(pace.heartbeat) as quiet:
            await pace.closing.wait()
        if quiet.cancelled_caught and line.said == said:
            await line.write(":\n\n")
    scope.cancel()

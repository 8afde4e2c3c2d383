"""Answers of many lines: sent as they are read, ended when the client leaves or takes nothing, and never cut in silence."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pipeline.errors import SapwoodError
from worker.gateway.presence import until_gone
from worker.gateway.problems import problem_of

MEDIA_TYPE = "application/x-ndjson"

PART_BYTES = 1 << 16
"""Lines are sent together once they have so many bytes."""

_log = structlog.get_logger(__name__)


class JsonLines(Response):
    """Sends the lines that `read` yields. `held` is entered while the answer lasts.

    What goes wrong before the first line is a problem; later, the connection is cut, so that no client takes a part for the
    whole. `read` is closed when the client leaves, or takes nothing for `seconds`.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self, read: Callable[[], AsyncGenerator[str, None]], seconds: float, held: AbstractContextManager[None]
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store"})
        self._read = read
        self._seconds = seconds
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond."""
        refusal: Response | None = None
        with self._held:
            group = anyio.create_task_group()

            async def watch() -> None:
                await until_gone(receive)
                group.cancel_scope.cancel()

            async with group:
                group.start_soon(watch)
                refusal = await self._speak(send)
                group.cancel_scope.cancel()
        if refusal is not None:
            await refusal(scope, receive, send)

    async def _speak(self, send: Send) -> Response | None:
        """Send everything; return a problem instead if there is no first line."""
        started = False

        async def out(body: bytes, more: bool) -> None:
            nonlocal started
            with anyio.fail_after(self._seconds):
                if not started:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": body, "more_body": more})

        try:
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    await out(part, more=True)
            await out(b"", more=False)
        except SapwoodError as error:
            if not started:
                return problem_of(error)
            _log.warning("gateway.lines_cut", code=type(error).__name__, error=str(error))
        except TimeoutError:
            _log.info("gateway.slow_client")
        return None

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        lines: list[bytes] = []
        size = 0
        async with aclosing(self._read()) as read:
            async for line in read:
                lines.append(line.encode("utf-8", "replace") + b"\n")
                size += len(lines[-1])
                if size >= PART_BYTES:
                    yield b"".join(lines)
                    lines, size = [], 0
        if lines:
            yield b"".join(lines)

"""Events on their way to people: the herald that spreads the word after a commit. Who hears it: `feeds.py`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import structlog

from pipeline.errors import DeadlineExceeded, DependencyError
from pipeline.ports import Doorbell, EventStream, Outbox
from schemas.ids import RunId

PAGE = 500
"""Events read at a time."""

_PAUSE_SECONDS = 1.0
_DRAIN_SECONDS = 1.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BackgroundHerald:
    """A `Herald` that works beside its callers. It keeps each run once, so a burst of commits costs few rounds."""

    _outbox: Outbox
    _stream: EventStream
    _doorbell: Doorbell
    _rings: dict[RunId, int] = field(default_factory=dict[RunId, int])
    _runs: dict[RunId, None] = field(default_factory=dict[RunId, None])
    _news: anyio.Event = field(default_factory=anyio.Event)

    def ring(self, run_id: RunId, fence: int) -> None:
        """See `Herald`."""
        self._rings[run_id] = fence
        self._news.set()

    def publish(self, run_id: RunId) -> None:
        """See `Herald`."""
        self._runs[run_id] = None
        self._news.set()

    async def spread(self) -> None:
        """Spread the word, until cancelled. What a server that is away does not hear, the workers' sweeps repeat."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            try:
                await self._round()
            except (DependencyError, DeadlineExceeded) as error:
                _log.warning("herald.paused", error=str(error))
                await anyio.sleep(_PAUSE_SECONDS)
                self._rings.clear()
                self._runs.clear()

    async def _round(self) -> None:
        while self._runs or self._rings:
            # Rings first: work starts sooner, and its events follow anyway.
            if self._rings:
                run_id = next(iter(self._rings))
                await self._doorbell.ring(run_id, self._rings.pop(run_id))
            else:
                run_id = next(iter(self._runs))
                del self._runs[run_id]
                while await self._outbox.relay(run_id, self._stream, alone=False) >= PAGE:
                    pass

    async def drain(self) -> None:
        """Spread what is still known, before the process ends."""
        await self._round()


@asynccontextmanager
async def open_herald(
    outbox: Outbox, stream: EventStream, doorbell: Doorbell
) -> AsyncGenerator[BackgroundHerald, None]:
    """Run a herald beside the block; at the end it has a second to finish."""
    herald = BackgroundHerald(outbox, stream, doorbell)
    async with anyio.create_task_group() as group:
        group.start_soon(herald.spread)
        try:
            yield herald
        finally:
            group.cancel_scope.cancel()
            with anyio.move_on_after(_DRAIN_SECONDS, shield=True):
                await _quietly(herald.drain)


async def relay_rest(outbox: Outbox, stream: EventStream) -> int:
    """Publish what no herald did and return the number of events; each run by one process at a time."""
    copied = 0
    for run_id in await outbox.unpublished(PAGE):
        copied += await outbox.relay(run_id, stream, alone=True)
    return copied


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except (DependencyError, DeadlineExceeded) as error:
        _log.warning("herald.not_drained", error=str(error))

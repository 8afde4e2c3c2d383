"""Events on their way to people: the herald that spreads the word after a commit, and subscriptions without gaps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import structlog

from pipeline.errors import DependencyError
from pipeline.ports import Doorbell, EventLog, EventStream, Outbox
from schemas.events import Event
from schemas.ids import CorpusId, RunId

PAGE = 500
"""Events read at a time."""

POLL_SECONDS = 0.2
"""How often a subscription looks into the log where there is no live stream."""

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
            except DependencyError as error:
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


async def subscribe(log: EventLog, stream: EventStream, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
    """Yield the events of a run with `seq > after`, each once, in order, up to its final event.

    The live stream makes it fast and may fail, lag or be flushed at any moment: whatever it lacks comes from the log.

    Raises:
        EventsExpired: the run, or an event after `after`, is beyond retention.
    """
    last, ended = after, False
    while not ended:
        page = await log.read(run_id, last, PAGE)
        for event in page:
            last, ended = event.seq, event.terminal
            yield event
        if ended or len(page) == PAGE:
            continue
        if not page:
            newest, over = await log.end_of(run_id)
            if newest > last:
                continue
            if over:
                return
        async with aclosing(_live(stream, run_id, last)) as live:
            async for event in live:
                last, ended = event.seq, event.terminal
                yield event
                if ended:
                    break


async def _live(stream: EventStream, run_id: RunId, last: int) -> AsyncGenerator[Event, None]:
    """Yield what the stream has next to `last`, and end at a gap, at a pause, or when the stream is away."""
    try:
        async with aclosing(stream.follow(run_id, last)) as entries:
            async for event in entries:
                if event is None or event.seq > last + 1:
                    return
                if event.seq == last + 1:
                    last = event.seq
                    yield event
    except DependencyError:
        await anyio.sleep(POLL_SECONDS)


async def subscribe_corpus(log: EventLog, corpus: CorpusId, after: int = 0) -> AsyncGenerator[tuple[int, Event], None]:
    """Yield the events of all runs of a corpus with their positions above `after`, in commit order, without end.

    Raises:
        EventsExpired: events after `after` are beyond retention.
    """
    while True:
        page = await log.read_corpus(corpus, after, PAGE)
        for position, event in page:
            after = position
            yield position, event
        if len(page) < PAGE:
            await anyio.sleep(POLL_SECONDS)


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except DependencyError as error:
        _log.warning("herald.not_drained", error=str(error))

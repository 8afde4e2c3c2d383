"""Subscriptions: whatever one process follows shares one reader of the stream, one look at the log, and its memory.

A feed is a run, or a corpus, that somebody follows here. It keeps the newest events in memory; its subscribers read them
at their own pace, and who is behind that memory reads pages. What the stream lacks, for whatever reason, comes from the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, Protocol, TypeVar, cast

import anyio
import structlog

from pipeline.errors import DependencyError, EventsExpired, SapwoodError
from pipeline.flights import Flights
from pipeline.ports import EventLog
from pipeline.tenancy import acting_for, apart
from schemas.events import Event
from schemas.ids import CorpusId, RunId

PAGE = 200
"""Events read at a time."""

TAIL_EVENTS = 512
"""Events that a feed keeps."""

TAIL_LENGTH = 256 * 1024
"""Characters of JSON that they have together, but for the newest, which is kept however long it is."""

LOOK_SECONDS = 0.2
"""How often the log is asked for what is new where no stream tells."""

IDLE_SECONDS = 1.0
"""How often it is asked while the stream can be read: something may have been lost on the way there."""

OUTAGE_SECONDS = 5.0
"""How long the log may not answer before subscribers are told."""

READS = 4
"""Statements at a time for those who come back: a thousand of them wait here, in order, and not for the pool's connections,
which others need too and where the time to wait is short."""

_NUDGE_SECONDS = 0.02

_log = structlog.get_logger(__name__)

K = TypeVar("K")
T = TypeVar("T")


class StreamReader(Protocol):
    """The live copy of event logs. It may be flushed or trimmed at any moment, which shows by the dense sequence."""

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        """Return what there is of a run after a number, in order; the first of it may be missing, or all.

        Raises StoreUnavailable.
        """
        ...

    async def listen(self, after: Mapping[RunId, int]) -> list[Event]:
        """Return what comes in these runs after these numbers, in each run's order; wait about a second for any of it.

        For one caller at a time. Raises StoreUnavailable.
        """
        ...

    async def wake(self) -> None:
        """Have `listen` return soon, now or when it is called next. Raises StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """An event at its place: its number in a run, or its position in a corpus. `text` is its JSON, for all to share."""

    place: int
    event: Event
    text: str

    @classmethod
    def of(cls, place: int, event: Event) -> Entry:
        """Render an event."""
        return cls(place, event, event.model_dump_json())


class Tail:
    """The newest entries of a log without a hole: all those with `floor < place <= newest`."""

    def __init__(self, place: int) -> None:
        self.floor = self.newest = place
        self._entries: list[Entry] = []
        self._length = 0

    def holds(self, place: int) -> bool:
        """Tell whether it has what comes next after a place."""
        return self.floor <= place < self.newest

    def after(self, place: int) -> list[Entry]:
        """Return the entries after a place that is not below the floor."""
        return self._entries[bisect_right(self._entries, place, key=lambda entry: entry.place) :]

    def learn(self, after: int, page: Sequence[Entry]) -> None:
        """Take what is of use of a page, which has all entries from `after` up to its last."""
        if page and after <= self.newest:
            self._append([entry for entry in page if entry.place > self.newest])
        if page and after < self.floor <= page[-1].place:
            self._prepend(after, [entry for entry in page if entry.place <= self.floor])

    def _append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self._length += len(entry.text)
            self.newest = entry.place
        gone, most = 0, len(self._entries) - 1
        while gone < most and (most + 1 - gone > TAIL_EVENTS or self._length > TAIL_LENGTH):
            self.floor = self._entries[gone].place
            self._length -= len(self._entries[gone].text)
            gone += 1
        del self._entries[:gone]

    def _prepend(self, after: int, entries: list[Entry]) -> None:
        fit = 0
        for entry in reversed(entries):
            if len(self._entries) + fit >= TAIL_EVENTS or self._length + len(entry.text) > TAIL_LENGTH:
                break
            self._length += len(entry.text)
            fit += 1
        rest = len(entries) - fit
        self._entries[:0] = entries[rest:]
        self.floor = entries[rest - 1].place if rest else after


class News:
    """Wakes all who wait, each time there is something new."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def tell(self) -> None:
        """Wake them."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait for what comes next."""
        await self._event.wait()


@dataclass(slots=True)
class Feed:
    """What somebody follows. `ends` says that its log has an end.

    `end` returns how far the log is and whether it has ended, and `page` what follows a place. Both are called in the
    task of a subscriber, and so for its tenant: no feed opens, and nothing is read, but for who may see it.
    """

    end: Callable[[], Awaitable[tuple[int, bool]]]
    page: Callable[[int], Awaitable[list[Entry]]]
    ends: bool
    subscribers: int = 0
    tail: Tail | None = None
    known: int = 0
    over: bool = False
    _trouble: SapwoodError | None = None
    _news: News = field(default_factory=News)
    _opening: Flights[bool] = field(default_factory=Flights[bool])
    _reading: Flights[list[Entry]] = field(default_factory=Flights[list[Entry]])

    async def open(self, after: int) -> bool:
        """Begin at this place, or where the log ends; return False if the feed is open already. Raises EventsExpired."""
        return self.tail is None and await self._opening.once(0, lambda: self._open(after))

    async def _open(self, after: int) -> bool:
        self.known, self.over = await self.end()
        self.tail = Tail(min(after, self.known))
        return True

    def hear(self, event: Event) -> None:
        """Take what the stream says of a run; after a gap, what lacks is read page by page."""
        if self.tail is not None:
            if event.seq == self.tail.newest + 1:
                self._learn(self.tail, self.tail.newest, [Entry.of(event.seq, event)])
            self.told(event.seq, event.terminal)

    def told(self, known: int, over: bool) -> None:
        """Take what the log says: how far it is, and whether it has ended."""
        self.known, self.over, self._trouble = max(self.known, known), self.over or over, None
        if self.over or (self.tail is not None and self.known > self.tail.newest):
            self._news.tell()

    def fail(self, error: SapwoodError) -> None:
        """Have those who wait raise this error."""
        self._trouble = error
        self._news.tell()

    async def next(self, place: int) -> Sequence[Entry]:
        """Return the first entries after a place, as soon as there are any; none at the end. The feed is open.

        Raises:
            EventsExpired: some of them are beyond retention.
            DependencyError: the log cannot be read.
        """
        tail = self.tail
        assert tail is not None, "the feed is open"
        while not tail.holds(place):
            if place < self.known:
                page = await self._reading.once(place, lambda: self._read(tail, place))
                if page:
                    return page
            elif self.over:
                return ()
            if self._trouble is not None:
                raise self._trouble.with_traceback(None)
            await self._news.wait()
        return tail.after(place)

    async def _read(self, tail: Tail, place: int) -> list[Entry]:
        page = await self.page(place)
        self._learn(tail, place, page)
        return page

    def _learn(self, tail: Tail, after: int, page: Sequence[Entry]) -> None:
        before = tail.newest, self.over
        tail.learn(after, page)
        # A page that is not next to the tail says all the same how far the log is: who is at its end must not stop short.
        self.known = max(self.known, tail.newest, page[-1].place if page else 0)
        self.over = self.over or bool(page and self.ends and page[-1].event.terminal)
        if (tail.newest, self.over) != before:
            self._news.tell()


class Feeds:
    """All that this process follows. Made by `open_feeds`.

    A feed is of one tenant and closes with its last subscriber. `came` counts events by where they came from: `live` from
    the stream as they were said, later from the `stream` or from the `log`.
    """

    def __init__(self, log: EventLog, stream: StreamReader) -> None:
        self._log = log
        self._stream = stream
        self._runs: dict[tuple[str, RunId], Feed] = {}
        self._corpora: dict[tuple[str, CorpusId], Feed] = {}
        self._reads = anyio.CapacityLimiter(READS)
        self._asked = Flights[Any]()
        self._live = True
        self._joins = 0
        self._joined = News()
        self.came = Counter[str]()

    @property
    def followed(self) -> int:
        """How many runs and corpora somebody follows here."""
        return len(self._runs) + len(self._corpora)

    def run(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the events of a run with `seq > after`, each once, in order, up to its final event; as many as there are.

        The live stream makes it fast and may fail, lag or be flushed at any moment: whatever it lacks comes from the log.

        Raises:
            EventsExpired: the run, or an event after `after`, is beyond retention; or it is not the tenant's.
            SapwoodError: the log cannot be read.
        """

        def feed() -> Feed:
            return Feed(partial(self._run_end, run_id), partial(self._run_page, run_id), ends=True)

        return self._follow(self._runs, run_id, feed, after)

    def corpus(self, corpus: CorpusId, after: int = 0) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the events of all runs of a corpus with positions above `after`, in commit order, without end.

        As many at a time as there are.

        Raises:
            EventsExpired: events after `after` are beyond retention; or the corpus is not the tenant's.
            SapwoodError: the log cannot be read.
        """

        def feed() -> Feed:
            return Feed(partial(self._corpus_end, corpus), partial(self._corpus_page, corpus), ends=False)

        return self._follow(self._corpora, corpus, feed, after)

    async def _follow(
        self, feeds: dict[tuple[str, K], Feed], what: K, make: Callable[[], Feed], after: int
    ) -> AsyncGenerator[Sequence[Entry], None]:
        with _place(feeds, (acting_for(), what), make) as feed:
            if await feed.open(after):
                self._joins += 1
                self._joined.tell()
            while entries := await feed.next(after):
                after = entries[-1].place
                yield entries

    async def ask(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns, which a subscription needs to know first: done once for all who ask meanwhile.

        Few such things are done at a time. The key holds the tenant.
        """

        async def limited() -> T:
            async with self._reads:
                return await work()

        return cast("T", await self._asked.once(key, limited))

    async def _run_end(self, run_id: RunId) -> tuple[int, bool]:
        async with self._reads:
            return await self._log.end_of(run_id)

    async def _run_page(self, run_id: RunId, after: int) -> list[Entry]:
        async with self._reads:
            if self._live and (copied := _dense(after, await self._copied(run_id, after))):
                self.came["stream"] += len(copied)
                return [Entry.of(event.seq, event) for event in copied]
            events = await self._log.read(run_id, after, PAGE)
        self.came["log"] += len(events)
        return [Entry.of(event.seq, event) for event in events]

    async def _copied(self, run_id: RunId, after: int) -> list[Event]:
        try:
            return await self._stream.read(run_id, after, PAGE)
        except DependencyError:
            self._live = False  # until the stream is heard again
            return []

    async def _corpus_end(self, corpus: CorpusId) -> tuple[int, bool]:
        async with self._reads:
            return (await self._log.positions([corpus])).get(corpus, 0), False

    async def _corpus_page(self, corpus: CorpusId, after: int) -> list[Entry]:
        async with self._reads:
            pairs = await self._log.read_corpus(corpus, after, PAGE)
        self.came["log"] += len(pairs)
        return [Entry.of(position, event) for position, event in pairs]

    async def listen(self) -> None:
        """Hear what the stream says of all runs that are followed, until cancelled."""
        while True:
            followed = self._followed()
            if not followed:
                await self._joined.wait()
                continue
            try:
                # What is known to be there is read as a page, so that a gap is met once.
                events = await self._stream.listen(
                    {run_id: min(feed.known for feed in feeds) for run_id, feeds in followed.items()}
                )
            except DependencyError:
                self._live = False
                await anyio.sleep(LOOK_SECONDS)
                continue
            self._live = True
            self.came["live"] += len(events)
            for event in events:
                for feed in followed.get(RunId(event.run_id), ()):
                    feed.hear(event)

    def _followed(self) -> Mapping[RunId, list[Feed]]:
        """Return the feeds of runs that go on, by their run."""
        found: defaultdict[RunId, list[Feed]] = defaultdict(list)
        for (_, run_id), feed in self._runs.items():
            if feed.tail is not None and not feed.over:
                found[run_id].append(feed)
        return found

    async def nudge(self) -> None:
        """Have the stream listened to anew whenever a run is followed that was not before, until cancelled."""
        seen = 0
        while True:
            while seen == self._joins:
                await self._joined.wait()
            seen = self._joins
            with suppress(DependencyError):
                await self._stream.wake()
            await anyio.sleep(_NUDGE_SECONDS)  # those who come together are one

    async def look_at_runs(self) -> None:
        """Ask the log again and again how far the runs are that are followed, until cancelled."""
        await self._look(self._runs, self._log.ends, lambda: IDLE_SECONDS if self._live else LOOK_SECONDS)

    async def look_at_corpora(self) -> None:
        """Ask the log again and again how far the corpora are that are followed, until cancelled."""

        async def ends(corpora: Collection[CorpusId]) -> Mapping[CorpusId, tuple[int, bool]]:
            return {corpus: (known, False) for corpus, known in (await self._log.positions(corpora)).items()}

        await self._look(self._corpora, ends, lambda: LOOK_SECONDS)

    async def _look(
        self,
        feeds: Mapping[tuple[str, K], Feed],
        ends: Callable[[Collection[K]], Awaitable[Mapping[K, tuple[int, bool]]]],
        pause: Callable[[], float],
    ) -> None:
        answered = anyio.current_time()
        while True:
            while not feeds:
                await self._joined.wait()
                answered = anyio.current_time()
            await anyio.sleep(pause())
            asked = [(what, feed) for (_, what), feed in feeds.items() if feed.tail is not None and not feed.over]
            if not asked:
                answered = anyio.current_time()
                continue
            try:
                found = await ends({what for what, _ in asked})
            except SapwoodError as error:
                _log.warning("feeds.look", code=type(error).__name__, error=str(error))
                if anyio.current_time() - answered >= OUTAGE_SECONDS:
                    for _, feed in asked:
                        feed.fail(error)
                continue
            answered = anyio.current_time()
            for what, feed in asked:
                if what in found:
                    feed.told(*found[what])
                else:
                    feed.fail(EventsExpired())


@contextmanager
def _place(
    feeds: dict[tuple[str, K], Feed], key: tuple[str, K], make: Callable[[], Feed]
) -> Generator[Feed, None, None]:
    """Lend the feed of this key, made if there is none; the last to leave takes it away."""
    feed = feeds.get(key) or feeds.setdefault(key, make())
    feed.subscribers += 1
    try:
        yield feed
    finally:
        feed.subscribers -= 1
        if not feed.subscribers:
            del feeds[key]


def _dense(after: int, events: Sequence[Event]) -> list[Event]:
    """Return those of the first events that follow `after` without a hole."""
    numbered = takewhile(lambda pair: pair[0] == pair[1].seq, enumerate(events, after + 1))
    return [event for _, event in numbered]


@asynccontextmanager
async def open_feeds(log: EventLog, stream: StreamReader) -> AsyncGenerator[Feeds, None]:
    """Serve subscriptions during the block. What works for all of them works for no tenant."""
    feeds = Feeds(log, stream)
    async with anyio.create_task_group() as group:
        with apart():
            for work in (feeds.listen, feeds.nudge, feeds.look_at_runs, feeds.look_at_corpora):
                group.start_soon(work)
        try:
            yield feeds
        finally:
            group.cancel_scope.cancel()

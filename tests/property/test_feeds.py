"""Subscriptions over a stream that does its worst: each subscriber sees what follows its place, once and in order."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline import feeds as module
from pipeline.adapters import memory_events
from pipeline.adapters.memory_events import MemoryEvents, MemoryStream
from pipeline.errors import DependencyError, EventsExpired, StoreUnavailable
from pipeline.feeds import TAIL_EVENTS, TAIL_LENGTH, Entry, Feed, Feeds, Tail, open_feeds
from schemas.events import Event, Progress, Unchanged
from schemas.ids import CorpusId, RunId

CORPUS = CorpusId(1)
LAST = Unchanged(generation=1, outcomes={})
PATIENCE = 30.0
MOMENT = 0.002


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for what a stream has lost."""
    for name in ("LOOK_SECONDS", "IDLE_SECONDS", "_NUDGE_SECONDS"):
        monkeypatch.setattr(module, name, MOMENT)
    monkeypatch.setattr(memory_events, "BLOCK_SECONDS", MOMENT)


class HostileStream(MemoryStream):
    """Loses, repeats, holds back and reorders events, and cannot always be reached."""

    def __init__(self, chance: random.Random, malice: float) -> None:
        super().__init__()
        self._chance = chance
        self._malice = malice

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        return self._spoilt(await super().read(run_id, after, limit))

    async def listen(self, after: Mapping[RunId, int]) -> list[Event]:
        return self._spoilt(await super().listen(after))

    async def wake(self) -> None:
        self._spoilt([])
        await super().wake()

    def _spoilt(self, events: list[Event]) -> list[Event]:
        if self._chance.random() > self._malice:
            return events
        what = self._chance.randrange(5)
        if what == 0:
            raise StoreUnavailable()
        kept = [event for event in events if self._chance.random() < 0.5]
        return [[], kept, events + kept, events[::-1]][what - 1]


class WeakLog(MemoryEvents):
    """Cannot always be read."""

    weakness = 0.0
    chance = random.Random(0)

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        self._fail()
        return await super().read(run_id, after, min(limit, 7))

    async def read_corpus(self, corpus: CorpusId, after: int, limit: int) -> list[tuple[int, Event]]:
        self._fail()
        return await super().read_corpus(corpus, after, min(limit, 7))

    async def ends(self, runs: Collection[RunId]) -> Mapping[RunId, tuple[int, bool]]:
        self._fail()
        return await super().ends(runs)

    def _fail(self) -> None:
        if self.chance.random() < self.weakness:
            raise StoreUnavailable()


@dataclass
class Stage:
    """A log with a writer, a stream that is told of it now and then, and the subscriptions over both."""

    log: WeakLog
    stream: MemoryStream
    feeds: Feeds
    chance: random.Random

    async def say(self, run: RunId, count: int, *, last: bool = False) -> None:
        for number in range(count):
            async with self.log.saying(run, Progress(stage="s", done=number, total=0)):
                pass
        if last:
            async with self.log.saying(run, LAST, end=True):
                pass

    async def relay(self, run: RunId) -> None:
        await self.stream.publish(await MemoryEvents.read(self.log, run, 0, 10_000))

    async def follow(self, run: RunId, after: int) -> list[int]:
        """Follow a run to its end; leave and come back, of one's own will or because the log cannot be read."""
        got: list[int] = []
        ended = False
        while not ended:
            patience = self.chance.randint(1, 12)
            try:
                async with aclosing(self.feeds.run(run, got[-1] if got else after)) as found:
                    async for entries in found:
                        got += [entry.place for entry in entries[:patience]]
                        ended = any(entry.event.terminal for entry in entries[:patience])
                        patience -= len(entries)
                        if ended or patience <= 0:
                            break
                        if self.chance.random() < 0.2:  # slow
                            await anyio.sleep(MOMENT * 3)
                    else:
                        ended = True
            except DependencyError:
                await anyio.lowlevel.checkpoint()
        return got

    async def follow_corpus(self, most: int) -> list[tuple[int, Event]]:
        got: list[tuple[int, Event]] = []
        while len(got) < most:
            try:
                async with aclosing(self.feeds.corpus(CORPUS, got[-1][0] if got else 0)) as found:
                    async for entries in found:
                        got += [(entry.place, entry.event) for entry in entries]
                        if len(got) >= most or self.chance.random() < 0.1:
                            break
            except DependencyError:
                await anyio.lowlevel.checkpoint()
        return got


@asynccontextmanager
async def stage(seed: int = 0, malice: float = 0.0, weakness: float = 0.0) -> AsyncGenerator[Stage, None]:
    chance = random.Random(seed)
    log, stream = WeakLog({CORPUS: "c"}), HostileStream(chance, malice)
    log.chance = chance
    async with open_feeds(log, stream) as feeds:
        log.weakness = weakness
        with anyio.fail_after(PATIENCE):
            yield Stage(log, stream, feeds, chance)


Deed = tuple[str, int]

DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 12)),
        st.tuples(st.just("relay"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("join"), st.integers(0, 40)),
        st.tuples(st.just("pause"), st.integers(0, 3)),
    ),
    max_size=25,
)


def play(deeds: Sequence[Deed], seed: int, malice: float, weakness: float) -> None:
    """Have a run say these things while it and its corpus are followed, and insist on what each subscriber saw."""

    async def act() -> None:
        async with stage(seed, malice, weakness) as on:
            run, other = await on.log.start(CORPUS), await on.log.start(CORPUS)
            seen: list[tuple[int, list[int]]] = []
            total = sum(count for deed, count in deeds if deed == "say") + 1
            said = 0

            async def one(after: int) -> None:
                seen.append((after, await on.follow(run, after)))

            async def all_runs() -> None:
                followed = await on.follow_corpus(total + 1)
                assert followed == await MemoryEvents.read_corpus(on.log, CORPUS, 0, 10_000)

            async with anyio.create_task_group() as group:
                group.start_soon(one, 0)
                group.start_soon(all_runs)
                for deed, count in deeds:
                    if deed == "say":
                        await on.say(run, count)
                        said += count
                    elif deed == "relay":
                        await on.relay(run)
                    elif deed == "flush":
                        await on.stream.flush()
                    elif deed == "join":
                        group.start_soon(one, min(count, said))
                    else:
                        await anyio.sleep(count * MOMENT)
                await on.say(run, 0, last=True)
                await on.say(other, 0, last=True)
                if on.chance.random() < 0.5:
                    await on.relay(run)
            assert [got for _, got in seen] == [list(range(after + 1, total + 1)) for after, _ in seen]
            assert on.feeds.followed == 0

    anyio.run(act)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deeds=DEEDS,
    seed=st.integers(0, 2**32),
    malice=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    weakness=st.sampled_from([0.0, 0.2]),
    tail=st.sampled_from([1, 3, TAIL_EVENTS]),
)
def test_each_sees_its_suffix_once_whatever_the_stream_does(
    deeds: list[Deed], seed: int, malice: float, weakness: float, tail: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TAIL_EVENTS", tail)
        play(deeds, seed, malice, weakness)


def trusting(self: Tail, after: int, page: Sequence[Entry]) -> None:
    """Takes what it is shown for all there is."""
    self._append([entry for entry in page if entry.place > self.newest])


def doubting(self: Feed, event: Event) -> None:
    """Passes a gap over in silence, in the hope of a better one."""
    if self.tail is not None:
        self.tail.learn(event.seq - 1, [Entry.of(event.seq, event)])
        self.tail.newest = self.known = max(self.known, event.seq)
        self.told(event.seq, event.terminal)


@pytest.mark.parametrize(("part", "method", "broken"), [(Tail, "learn", trusting), (Feed, "hear", doubting)])
def test_feeds_that_trust_the_stream_are_found_out(
    monkeypatch: pytest.MonkeyPatch, part: type, method: str, broken: Callable[..., None]
) -> None:
    """The negative control: the same deeds, the same insistence."""
    monkeypatch.setattr(part, method, broken)
    deeds = [("say", 3), ("relay", 0), ("pause", 1), ("join", 1), ("say", 5), ("relay", 0), ("pause", 2), ("join", 4)]
    with pytest.raises(BaseException) as caught:
        for seed in range(1000):
            play(deeds, seed, malice=0.9, weakness=0.0)
    assert caught.group_contains(AssertionError) or caught.errisinstance(AssertionError)


def entries(places: Sequence[int], length: int = 1) -> list[Entry]:
    """Entries of a log; an event plays no part in a tail but by its length."""
    event = Event(
        run_id="r", corpus="c", seq=1, at="2000-01-01T00:00:00+00:00", body=Progress(stage="", done=0, total=0)
    )
    return [Entry(place, event, "x" * length) for place in places]


@settings(max_examples=300, deadline=None)
@given(
    log=st.lists(st.integers(1, 3000), unique=True, max_size=60).map(sorted),
    begin=st.integers(0, 3000),
    pages=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 30)), max_size=30),
    length=st.sampled_from([1, TAIL_LENGTH // 8, TAIL_LENGTH + 1]),
)
def test_a_tail_has_no_hole_and_no_more_than_its_share(
    log: list[int], begin: int, pages: list[tuple[int, int]], length: int
) -> None:
    """Whatever pages it is shown in whatever order."""
    tail = Tail(begin)
    for after, count in pages:
        tail.learn(after, entries([place for place in log if place > after][:count], length))
        assert tail.floor <= tail.newest
        held = [entry.place for entry in tail.after(tail.floor)]
        assert held == [place for place in log if tail.floor < place <= tail.newest]
        assert len(held) <= max(1, min(TAIL_EVENTS, TAIL_LENGTH // length))
        assert not held or tail.holds(tail.floor)


async def test_a_subscriber_that_does_not_read_holds_up_nobody_and_costs_no_memory() -> None:
    """It has what it was given last; the rest waits in the log, and it gets that when it reads on."""
    async with stage() as on:
        run = await on.log.start(CORPUS)
        await on.say(run, 1)
        async with aclosing(on.feeds.run(run)) as slow:
            got = [entry.place for entry in await anext(slow)]
            fast: list[int] = []
            async with anyio.create_task_group() as group:

                async def follow() -> None:
                    fast.extend(await on.follow(run, 0))

                group.start_soon(follow)
                for _ in range(4):
                    await on.say(run, TAIL_EVENTS // 2)
                    await on.relay(run)
                await on.say(run, 0, last=True)
            assert fast == list(range(1, TAIL_EVENTS * 2 + 3))
            (feed,) = on.feeds._runs.values()
            assert feed.tail is not None and feed.tail.newest - feed.tail.floor == TAIL_EVENTS
            got += [entry.place async for some in slow for entry in some]
        assert got == fast
        assert on.feeds.followed == 0


async def test_a_crowd_that_comes_back_after_a_flush_reads_each_page_once() -> None:
    """A thousand at the same place are one reader of the log."""
    reads = 0

    class Counted(WeakLog):
        async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
            nonlocal reads
            reads += 1
            return await super().read(run_id, after, limit)

    log, stream = Counted({CORPUS: "c"}), MemoryStream()
    async with open_feeds(log, stream) as feeds:
        on = Stage(log, stream, feeds, random.Random(0))
        run = await log.start(CORPUS)
        await on.say(run, 20, last=True)
        seen: list[list[int]] = []

        async def one() -> None:
            async with aclosing(feeds.run(run, 2)) as found:
                seen.append([entry.place async for some in found for entry in some])

        async with anyio.create_task_group() as group:
            for _ in range(1000):
                group.start_soon(one)
    assert seen == [list(range(3, 22))] * 1000
    assert reads <= 5, "three pages of seven"


async def test_an_outage_of_the_log_is_told_to_those_who_wait_and_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OUTAGE_SECONDS", MOMENT * 5)
    async with stage() as on:
        run = await on.log.start(CORPUS)
        await on.say(run, 1)
        async with aclosing(on.feeds.run(run)) as found:
            assert len(await anext(found)) == 1
            on.log.weakness = 1.0
            with pytest.raises(StoreUnavailable):
                await anext(found)
        on.log.weakness = 0.0
        await on.say(run, 0, last=True)
        assert await on.follow(run, 1) == [2]


async def test_a_run_that_retention_removes_is_said_to_be_gone() -> None:
    async with stage() as on:
        run = await on.log.start(CORPUS)
        await on.say(run, 1, last=True)
        await on.log.forget(CORPUS)
        for after in (0, 1, 99):
            with pytest.raises(EventsExpired):
                await on.follow(run, after)
        assert on.feeds.followed == 0


async def test_the_first_to_come_may_leave_at_any_moment() -> None:
    """Whoever opens a feed or reads a page for others is cancelled; the next one does it."""
    for patience in range(12):
        async with stage() as on:
            run = await on.log.start(CORPUS)
            await on.say(run, 3, last=True)
            seen: list[list[int]] = []

            async def one(on: Stage = on, run: RunId = run, seen: list[list[int]] = seen) -> None:
                seen.append(await on.follow(run, 0))

            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as first:
                        first.start_soon(one)
                        await anyio.lowlevel.checkpoint()
                        for _ in range(5):
                            group.start_soon(one)
                        for _ in range(patience):
                            await anyio.lowlevel.checkpoint()
                        scope.cancel()
            assert seen.count([1, 2, 3, 4]) == len(seen) >= 5
            assert on.feeds.followed == 0


async def test_who_is_before_the_end_that_another_has_read_sees_the_rest() -> None:
    """The page with the end is not next to the feed's memory, so that it is not kept there."""
    log = MemoryEvents({CORPUS: "c"})
    run = await log.start(CORPUS)
    for number in range(12):
        async with log.saying(run, Progress(stage="s", done=number, total=0)):
            pass

    async def page(after: int) -> list[Entry]:
        return [Entry.of(event.seq, event) for event in await log.read(run, after, 100)]

    feed = Feed(lambda: log.end_of(run), page, ends=True)
    await feed.open(3)
    known = feed.known
    async with log.saying(run, Progress(stage="s", done=12, total=0)):
        pass
    async with log.saying(run, LAST, end=True):
        pass
    whole = [entry.place for entry in await page(0)]
    assert [entry.place for entry in await feed.next(known - 1)] == whole[known - 1 :]
    assert [entry.place for entry in await feed.next(known)] == whole[known:] != []

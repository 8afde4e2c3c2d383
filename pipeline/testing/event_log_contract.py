"""What every `EventLog` must do. Inherit, and give `log`, its `writer` and two distinct `corpora` as fixtures.

A backend may begin a run with events of its own, so the suite counts from where a run stands after it was started.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Protocol

import anyio
import anyio.lowlevel

from pipeline.errors import EventsExpired, FencedOut
from pipeline.ports import EventLog
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.expecting import raises
from schemas.events import Event, Failed, Progress, Unchanged
from schemas.ids import CorpusId, RunId
from schemas.query import Wire

LAST = Unchanged(generation=1, outcomes={})

Positions = list[tuple[int, Event]]


class EventWriter(Protocol):
    """How runs get events. A run has one writer at a time, but for `say_at_once`."""

    async def start(self, corpus: CorpusId) -> RunId:
        """Make a run that is under way."""
        ...

    def saying(self, run_id: RunId, *bodies: Wire, end: bool = False) -> AbstractAsyncContextManager[None]:
        """Append these events as one at the end of the block, unless it is left with an error.

        What decides the place among other runs is taken at the start of the block. `end` ends the run, whose last body is
        then a final one. Raises FencedOut at the end of the block if the run has ended before.
        """
        ...

    async def say_at_once(self, run_id: RunId, count: int) -> None:
        """Append so many `Progress` events to one run, each from a writer of its own, all at the same time."""
        ...

    async def forget(self, corpus: CorpusId) -> None:
        """Let retention remove all runs of the corpus that have ended."""
        ...


def word(number: int = 0, stage: str = "s") -> Progress:
    """Return an event that is told from others by its number."""
    return Progress(stage=stage, done=number, total=0)


async def say(writer: EventWriter, run_id: RunId, *bodies: Wire, end: bool = False) -> None:
    """Append these events."""
    async with writer.saying(run_id, *bodies, end=end):
        pass


async def whole(log: EventLog, run_id: RunId) -> list[Event]:
    """Return all events of a run, which must be dense from 1."""
    events = await log.read(run_id, 0, 10_000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), events
    return events


async def numbers(log: EventLog, run_id: RunId) -> list[int]:
    """Return what a run's words were told from each other by."""
    return [event.body.done for event in await whole(log, run_id) if isinstance(event.body, Progress)]


async def history(log: EventLog, corpus: CorpusId, page: int = 10_000, after: int = 0) -> Positions:
    """Return the events of a corpus after a position, read page by page; positions must grow."""
    found: Positions = []
    while more := await log.read_corpus(corpus, after, page):
        assert len(more) <= page
        found += more
        after = more[-1][0]
    positions = [position for position, _ in found]
    assert positions == sorted(set(positions)), positions
    return found


class EventLogContract:
    """The suite."""

    async def test_sequence_numbers_are_dense_from_one(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """However many events a commit brings; each keeps its run, its body and a time that does not go back."""
        run = await writer.start(corpora[0])
        begun = len(await whole(log, run))
        for first in range(0, 12, 3):
            await say(writer, run, *(word(first + n) for n in range(3)))
        await say(writer, run, LAST, end=True)
        events = await whole(log, run)
        assert [event.body for event in events[begun:]] == [*(word(n) for n in range(12)), LAST]
        assert {event.run_id for event in events} == {run}
        times = [datetime.fromisoformat(event.at) for event in events]
        assert times == sorted(times) and all(time.tzinfo is not None for time in times)

    async def test_pages_add_up_to_the_whole(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Without a hole and without a repetition, whatever the size of a page."""
        run = await writer.start(corpora[0])
        await say(writer, run, *(word(n) for n in range(10)))
        events = await whole(log, run)
        for limit in (1, 2, 3, len(events), len(events) + 1, 10_000):
            found: list[Event] = []
            while page := await log.read(run, len(found), limit):
                assert len(page) <= limit
                found += page
            assert found == events
        for after in range(len(events)):
            assert await log.read(run, after, 1) == events[after : after + 1]

    async def test_there_is_nothing_after_the_end(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Reading from the end on, from far beyond it, or nothing at all is no error."""
        run = await writer.start(corpora[0])
        await say(writer, run, word(), LAST, end=True)
        last = len(await whole(log, run))
        for after in (last, last + 1, 2**40):
            assert await log.read(run, after, 10) == []
        assert await log.read(run, 0, 0) == []

    async def test_the_end_is_told(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The last number, and that no event follows, which then is a final one."""
        run = await writer.start(corpora[0])
        await say(writer, run, word())
        last = (await whole(log, run))[-1]
        assert await log.end_of(run) == (last.seq, False) and not last.terminal
        await say(writer, run, LAST, end=True)
        last = (await whole(log, run))[-1]
        assert await log.end_of(run) == (last.seq, True) and last.terminal

    async def test_how_far_many_are_is_told_at_once(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Runs and corpora that are unknown are missing; a corpus is no further than it can be read, or once could."""
        assert await log.ends([]) == {} and await log.positions([]) == {}
        assert await log.positions([*corpora, CorpusId(10**6)]) == dict.fromkeys(corpora, 0)
        one, two = await writer.start(corpora[0]), await writer.start(corpora[0])
        await say(writer, one, word(1))
        await say(writer, two, word(2), LAST, end=True)
        ends = await log.ends([one, two, RunId("never")])
        assert ends == {run: (len(await whole(log, run)), run == two) for run in (one, two)}
        async with writer.saying(one, word(3)):
            await say(writer, await writer.start(corpora[1]), word(4))
            for corpus in corpora:
                shown = await history(log, corpus)
                assert (await log.positions([corpus]))[corpus] == (shown[-1][0] if shown else 0)
        reached = await log.positions(corpora)
        assert reached == {corpus: (await history(log, corpus))[-1][0] for corpus in corpora}
        await say(writer, one, LAST, end=True)
        reached = await log.positions(corpora)
        await writer.forget(corpora[0])
        assert await log.positions(corpora) == reached and await log.ends([one, two]) == {}

    async def test_a_run_that_ended_says_no_more(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A late writer is refused and leaves no trace."""
        run = await writer.start(corpora[0])
        await say(writer, run, LAST, end=True)
        before = await whole(log, run)
        await raises(FencedOut, say(writer, run, word()))
        await raises(FencedOut, say(writer, run, LAST, end=True))
        assert await whole(log, run) == before

    async def test_an_unknown_run_is_beyond_retention(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """There is no telling one that never was from one that is gone."""
        await writer.start(corpora[0])
        for unknown in (RunId("never"), RunId(""), RunId("nev%_'\";--")):
            await raises(EventsExpired, log.end_of(unknown))
            await raises(EventsExpired, log.read(unknown, 0, 10))
            await raises(EventsExpired, log.read(unknown, 5, 10))

    async def test_what_is_beyond_retention_is_said_to_be_so(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A removed run is never an empty one; in its corpus, reading goes on from the start or from later positions."""
        gone, kept = await writer.start(corpora[0]), await writer.start(corpora[0])
        await say(writer, gone, word(), LAST, end=True)
        early = (await history(log, corpora[0]))[0][0]
        await say(writer, kept, word(7))
        late = (await history(log, corpora[0]))[-1][0]
        await writer.forget(corpora[0])
        for after in (0, 1, 99):
            await raises(EventsExpired, log.read(gone, after, 10))
        await raises(EventsExpired, log.end_of(gone))
        await raises(EventsExpired, log.read_corpus(corpora[0], early, 10))
        assert {event.run_id for _, event in await history(log, corpora[0])} == {kept}
        assert await log.read_corpus(corpora[0], late, 10) == []
        await say(writer, kept, word(8))
        assert [event.body for _, event in await log.read_corpus(corpora[0], late, 10)] == [word(8)]

    async def test_a_run_that_is_under_way_is_kept(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Retention begins with the end; doing it twice does no more."""
        run, other = await writer.start(corpora[0]), await writer.start(corpora[1])
        await say(writer, other, LAST, end=True)
        events, foreign = await whole(log, run), await whole(log, other)
        for _ in range(2):
            await writer.forget(corpora[0])
            assert (await whole(log, run), await whole(log, other)) == (events, foreign)

    async def test_an_abandoned_block_leaves_no_hole(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Neither in the run nor for readers of the corpus, and what follows gets the next number."""
        run = await writer.start(corpora[0])
        before = await whole(log, run)

        async def abandoned() -> None:
            async with writer.saying(run, word(1), word(2)):
                raise KeyError("abandoned")

        await raises(KeyError, abandoned())
        assert await whole(log, run) == before
        await say(writer, run, word(3))
        assert await numbers(log, run) == [3]
        assert [event for _, event in await history(log, corpora[0])] == await whole(log, run)

    async def test_nothing_is_read_before_its_commit(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """And then all of it at once."""
        run = await writer.start(corpora[0])
        before = await whole(log, run)
        async with writer.saying(run, word(1), word(2)):
            assert await whole(log, run) == before
            assert await log.end_of(run) == (len(before), False)
        assert await numbers(log, run) == [1, 2]

    async def test_a_corpus_is_read_in_one_order(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Positions grow over all runs, each run's events are in its own order, and pages add up."""
        runs = [await writer.start(corpora[0]) for _ in range(3)]
        for turn in range(4):
            for run in runs:
                await say(writer, run, word(turn), word(turn + 10))
        found = await history(log, corpora[0])
        for run in runs:
            assert [event for _, event in found if event.run_id == run] == await whole(log, run)
        for page in (1, 2, 5, len(found)):
            assert await history(log, corpora[0], page) == found
        for at in (0, 3, len(found) - 1):
            assert await history(log, corpora[0], after=found[at][0]) == found[at + 1 :]
        assert await log.read_corpus(corpora[0], found[-1][0], 10) == []

    async def test_a_commit_that_comes_late_is_not_passed_over(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Who began first and commits last is seen by a reader that read meanwhile and goes on from where it was."""
        slow, fast = await writer.start(corpora[0]), await writer.start(corpora[0])
        seen = await history(log, corpora[0])
        async with writer.saying(slow, word(1)):
            await say(writer, fast, word(2))
            seen += await history(log, corpora[0], after=seen[-1][0] if seen else 0)
        seen += await history(log, corpora[0], after=seen[-1][0] if seen else 0)
        said = {event.body.done for _, event in seen if isinstance(event.body, Progress)}
        assert said == {1, 2}
        assert seen == await history(log, corpora[0])

    async def test_a_reader_beside_many_writers_sees_each_event_once(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Eight runs speak at once while the corpus is read in small pages."""
        runs = [await writer.start(corpora[0]) for _ in range(8)]
        seen: Positions = []

        async def speak(run: RunId) -> None:
            for turn in range(5):
                await say(writer, run, word(turn), word(turn))
            await say(writer, run, LAST, end=True)

        async def follow() -> None:
            while sum(event.terminal for _, event in seen) < len(runs):
                seen.extend(await log.read_corpus(corpora[0], seen[-1][0] if seen else 0, 3))
                await anyio.lowlevel.checkpoint()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                for run in runs:
                    group.start_soon(speak, run)
        assert seen == await history(log, corpora[0])
        for run in runs:
            assert [event for _, event in seen if event.run_id == run] == await whole(log, run)

    async def test_many_writers_of_one_run_leave_no_hole(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Their events get distinct, dense numbers."""
        run = await writer.start(corpora[0])
        await writer.say_at_once(run, 12)
        assert sorted(await numbers(log, run)) == list(range(12))

    async def test_bodies_come_back_as_they_were(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Long ones, scripts of all kinds, quotes, control characters and separators of lines."""
        odd = [
            "",
            "x" * 1_000_000,
            "Zoë 東京 🦉 \U0010fffd",
            "'\"\\`$1 %s {}",
            "\x01\x1f\x7f\u2028\u2029\ufeff",
            "\r\n\t",
        ]
        run = await writer.start(corpora[0])
        begun = len(await whole(log, run))
        bodies = [word(2**62, text) for text in odd]
        end = Failed(code="ModelError", message="".join(odd))
        await say(writer, run, *bodies)
        await say(writer, run, end, end=True)
        assert [event.body for event in (await whole(log, run))[begun:]] == [*bodies, end]

    async def test_reading_changes_nothing(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The same page is the same page, also after more was said."""
        run = await writer.start(corpora[0])
        await say(writer, run, word(1), word(2))
        page, positions = await log.read(run, 0, 2), await log.read_corpus(corpora[0], 0, 2)
        assert await log.read(run, 0, 2) == page
        await say(writer, run, word(3), LAST, end=True)
        assert await log.read(run, 0, 2) == page
        assert await log.read_corpus(corpora[0], 0, 2) == positions

    async def test_runs_and_corpora_are_apart(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Nothing of one is read through another; a corpus without events, or that is none, has none."""
        assert await log.read_corpus(corpora[0], 0, 10) == [] and await log.read_corpus(CorpusId(10**6), 0, 10) == []
        one, two, foreign = [await writer.start(corpus) for corpus in (corpora[0], corpora[0], corpora[1])]
        for number, run in enumerate((one, two, foreign)):
            await say(writer, run, word(number))
        assert [await numbers(log, run) for run in (one, two, foreign)] == [[0], [1], [2]]
        mine, other = await history(log, corpora[0]), await history(log, corpora[1])
        assert {event.run_id for _, event in mine} == {one, two}
        assert {event.run_id for _, event in other} == {foreign}
        assert len({event.corpus for _, event in mine}) == 1 and mine[0][1].corpus != other[0][1].corpus
        await say(writer, foreign, LAST, end=True)
        await writer.forget(corpora[1])
        assert await history(log, corpora[0]) == mine

    async def test_reading_may_be_left_at_any_await(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The next reader gets all of it."""
        run = await writer.start(corpora[0])
        await say(writer, run, word(1), word(2))
        events, positions = await whole(log, run), await history(log, corpora[0])
        assert await cancelled_at_each_await(partial(log.read, run, 0, 100)) == events
        assert await cancelled_at_each_await(partial(log.end_of, run)) == (len(events), False)
        assert await cancelled_at_each_await(partial(log.ends, [run])) == {run: (len(events), False)}
        assert await cancelled_at_each_await(partial(log.positions, [corpora[0]])) == {corpora[0]: positions[-1][0]}
        assert await cancelled_at_each_await(partial(log.read_corpus, corpora[0], 0, 100)) == positions

    async def test_appending_may_be_left_at_any_await(
        self, log: EventLog, writer: EventWriter, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """All events of the block are there, or none; a writer that looks before it repeats says them once."""
        run, other = await writer.start(corpora[0]), await writer.start(corpora[0])

        async def append() -> None:
            if not await numbers(log, run):
                await say(writer, run, word(1), word(2))

        async def all_or_none() -> None:
            assert await numbers(log, run) in ([], [1, 2])
            await say(writer, other, word())

        await cancelled_at_each_await(append, all_or_none)
        assert await numbers(log, run) == [1, 2]
        found = await history(log, corpora[0])
        assert [event for _, event in found if event.run_id == run] == await whole(log, run)

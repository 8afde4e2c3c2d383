"""What every `EventStream` with its `StreamReader` must do.

Inherit, and give a `stream` whose `listen` waits for minutes, and a way to `flush` it.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import anyio

from pipeline.feeds import StreamReader
from pipeline.ports import EventStream
from pipeline.testing.cancelling import cancelled_at_each_await
from schemas.events import Event, Progress
from schemas.ids import RunId

Flush = Callable[[], Awaitable[object]]

PATIENCE = 20.0
"""Seconds after which a call that should not wait is taken for one that does."""

_runs = itertools.count(1)


class Stream(EventStream, StreamReader, Protocol):
    """Both sides of it."""


def new_run() -> RunId:
    """Return the id of a run that nobody has spoken of."""
    return RunId(f"run-{next(_runs)}")


def said(run_id: RunId, *numbers: int) -> list[Event]:
    """Return events of a run with these numbers."""
    at = "2000-01-01T00:00:00+00:00"
    return [
        Event(run_id=run_id, corpus="c", seq=n, at=at, body=Progress(stage="Zoë 東京 🦉", done=n, total=0))
        for n in numbers
    ]


class EventStreamContract:
    """The suite."""

    async def test_what_was_published_is_read_in_order_and_in_parts(self, stream: Stream) -> None:
        """From any place, as many as are asked for; of another run, or after the end, nothing."""
        run = new_run()
        events = said(run, *range(1, 9))
        await stream.publish(events[:3])
        await stream.publish(events[3:])
        for after in range(10):
            assert await stream.read(run, after, 100) == events[after:]
            assert await stream.read(run, after, 2) == events[after : after + 2]
        assert await stream.read(run, 2**62, 2) == await stream.read(new_run(), 0, 100) == []

    async def test_publishing_again_adds_nothing(self, stream: Stream) -> None:
        """However much of it is there already."""
        run = new_run()
        for numbers in ((1, 2), (1, 2), (2, 3), (1, 2, 3, 4), (3,)):
            await stream.publish(said(run, *numbers))
        assert await stream.read(run, 0, 100) == said(run, 1, 2, 3, 4)

    async def test_what_is_there_already_is_heard_at_once(self, stream: Stream) -> None:
        """Of all runs that are asked for, from their places, and of no other."""
        runs = [new_run() for _ in range(50)]
        for run in runs:
            await stream.publish(said(run, 1, 2, 3))
        heard: list[Event] = []
        places = {run: index % 4 for index, run in enumerate(runs[:40])}
        with anyio.fail_after(PATIENCE):
            while any(place < 3 for place in places.values()):
                for event in await stream.listen(places):
                    assert event.seq == places[RunId(event.run_id)] + 1
                    places[RunId(event.run_id)] = event.seq
                    heard.append(event)
        assert len(heard) == 10 * (3 + 2 + 1)

    async def test_what_comes_is_heard_when_it_comes(self, stream: Stream) -> None:
        """Whoever listens waits for it, and hears all of it."""
        run, quiet = new_run(), new_run()
        heard: list[Event] = []

        async def listen() -> None:
            while len(heard) < 5:
                heard.extend(await stream.listen({quiet: 0, run: len(heard)}))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                for number in range(1, 6):
                    await anyio.sleep(0.01)
                    await stream.publish(said(run, number))
        assert heard == said(run, 1, 2, 3, 4, 5)

    async def test_waking_ends_the_wait(self, stream: Stream) -> None:
        """Of one who listens, or who is about to; whoever listens to nothing at all can be woken, too."""
        for places in ({}, {new_run(): 0}):
            with anyio.fail_after(PATIENCE):
                await stream.wake()
                assert await stream.listen(places) == []
                async with anyio.create_task_group() as group:
                    group.start_soon(stream.listen, places)
                    await anyio.sleep(0.05)
                    await stream.wake()

    async def test_a_flush_is_forgetting(self, stream: Stream, flush: Flush) -> None:
        """What comes after it is heard, and nothing is put in the place of what went."""
        run = new_run()
        await stream.publish(said(run, 1, 2))
        await stream.wake()
        await flush()
        assert await stream.read(run, 0, 100) == []
        await stream.publish(said(run, 3))
        assert await stream.read(run, 0, 100) == said(run, 3)
        with anyio.fail_after(PATIENCE):
            heard = list[Event]()
            while not heard:
                heard = await stream.listen({run: 1})
            assert heard == said(run, 3)
            await stream.wake()
            assert await stream.listen({run: 3}) == []

    async def test_listening_may_be_left_at_any_await(self, stream: Stream) -> None:
        """The next to listen hears all of it, and can be woken."""
        run = new_run()
        await stream.publish(said(run, 1, 2))
        await stream.wake()
        assert await cancelled_at_each_await(partial(stream.read, run, 0, 100)) == said(run, 1, 2)
        heard = await cancelled_at_each_await(partial(stream.listen, {run: 0}))
        assert heard == said(run, 1, 2)
        with anyio.move_on_after(0.05):
            await stream.listen({run: 2})
        with anyio.fail_after(PATIENCE):
            await stream.wake()
            assert await stream.listen({run: 2}) == []

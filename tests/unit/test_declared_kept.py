"""Results that are kept: fresh, stale, bounded, and searched for once."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from pipeline.deadline import Deadline
from pipeline.declare.kept import Found, KeptResults
from pipeline.errors import DeadlineExceeded, StoreUnavailable
from schemas.query import Hit

HIT = Hit(document="a.md", chunk="1", lines=(1, 1), text="a", score=1.0, streams=(), ranks={})
FOUND = Found((HIT,), 3)


class Finder:
    """Finds after a while, and counts."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.begun, self.ended = seconds, 0, 0

    async def __call__(self) -> Found:
        self.begun += 1
        await anyio.sleep(self.seconds)
        self.ended += 1
        return FOUND


async def test_a_result_is_fresh_in_its_generation_and_stale_in_any() -> None:
    kept, find = KeptResults(), Finder()
    for _ in range(2):
        assert await kept.serve("k", 3, 60.0, Deadline.after(5), find) == FOUND
    assert find.ended == 1
    assert kept.fresh("k", 4) is None and kept.fresh("other", 3) is None
    assert kept.stale("k") == Found((HIT,), 3, stale=True) and kept.stale("other") is None


async def test_the_least_used_goes_first() -> None:
    kept, find = KeptResults(2), Finder()
    for key in ("a", "b", "a", "c"):
        await kept.serve(key, 3, 60.0, Deadline.after(5), find)
    assert len(kept) == 2 and kept.stale("b") is None and kept.stale("a") and kept.stale("c")


async def test_many_who_ask_at_once_search_once_and_share_a_failure() -> None:
    kept, find, failures = KeptResults(), Finder(0.01), list[str]()

    async def failing() -> Found:
        await find()
        raise StoreUnavailable

    async def ask() -> None:
        with pytest.raises(StoreUnavailable):
            await kept.serve("k", 3, 60.0, Deadline.after(5), failing)
        failures.append("seen")

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(ask)
    assert (len(failures), find.begun, len(kept)) == (50, 1, 0)


async def test_who_waits_has_a_deadline_of_its_own() -> None:
    kept, slow, quick = KeptResults(), Finder(0.2), Finder()

    async def out_of_time() -> Found:
        await slow()
        raise DeadlineExceeded

    async def first() -> None:
        with pytest.raises(DeadlineExceeded):
            await kept.serve("k", 3, 60.0, Deadline.after(5), out_of_time)

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        while not slow.begun:
            await anyio.lowlevel.checkpoint()
        assert await kept.serve("k", 3, 60.0, Deadline.after(5), quick) == FOUND
    assert (slow.ended, quick.ended) == (1, 1)


async def test_when_the_one_who_searches_is_cancelled_the_next_begins() -> None:
    kept, endless, quick, found = KeptResults(), Finder(600.0), Finder(), list[Found]()

    async def ask(find: Finder) -> None:
        found.append(await kept.serve("k", 3, 60.0, Deadline.after(5), find))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(ask, endless)
                while not endless.begun:
                    await anyio.lowlevel.checkpoint()
                group.start_soon(ask, quick)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
    assert found == [FOUND] and (endless.begun, endless.ended, quick.ended) == (1, 0, 1)

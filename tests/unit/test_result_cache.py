"""The result cache: complete results only, bounded, and never a reason to wait in vain."""

from __future__ import annotations

import anyio
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import StoreUnavailable
from pipeline.retrieval.results import ResultCache
from schemas.query import Hit, QueryResult

LONG = 30.0


def result(text: str = "x", complete: bool = True) -> QueryResult:
    hit = Hit(document="d", chunk="0" * 16, lines=(1, 1), text=text, score=1.0, streams=(), ranks={})
    return QueryResult(generation=1, complete=complete, missing=() if complete else ("dense",), hits=(hit,))


async def serve(cache: ResultCache, key: bytes, answer: QueryResult) -> QueryResult:
    async def compute() -> QueryResult:
        return answer

    return await cache.serve(key, Deadline.after(LONG), compute)


async def test_a_result_is_kept_for_its_time() -> None:
    cache = ResultCache(ttl=0.0)
    assert not (await serve(cache, b"k", result())).cached
    assert not (await serve(cache, b"k", result())).cached
    lasting = ResultCache()
    assert not (await serve(lasting, b"k", result())).cached
    assert (await serve(lasting, b"k", result("other"))).hits[0].text == "x"


async def test_entries_and_bytes_are_bounded() -> None:
    cache = ResultCache(max_entries=2)
    for key in (b"a", b"b", b"a", b"c"):
        await serve(cache, key, result())
    assert len(cache) == 2
    assert (await serve(cache, b"a", result())).cached
    assert not (await serve(cache, b"b", result())).cached
    small = ResultCache(max_bytes=10_000)
    await serve(small, b"a", result("y" * 6000))
    await serve(small, b"b", result("z" * 6000))
    assert len(small) == 1
    await serve(small, b"c", result("z" * 60_000))
    assert len(small) == 0


async def test_the_next_in_line_computes_when_the_first_one_fails_or_leaves() -> None:
    cache = ResultCache()
    calls: list[str] = []

    async def fail() -> QueryResult:
        calls.append("fail")
        await anyio.sleep(0.01)
        raise StoreUnavailable

    async def hang() -> QueryResult:
        calls.append("hang")
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as group:

        async def first() -> None:
            with pytest.raises(StoreUnavailable):
                await cache.serve(b"k", Deadline.after(LONG), fail)

        group.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        assert (await serve(cache, b"k", result())).complete
    async with anyio.create_task_group() as group:

        async def leaver() -> None:
            with anyio.move_on_after(0.01):
                await cache.serve(b"l", Deadline.after(LONG), hang)

        group.start_soon(leaver)
        await anyio.wait_all_tasks_blocked()
        assert (await serve(cache, b"l", result())).complete
    assert calls == ["fail", "hang"]


async def test_nobody_waits_for_more_than_half_of_the_time_left() -> None:
    cache = ResultCache()
    async with anyio.create_task_group() as group:

        async def hang() -> QueryResult:
            await anyio.sleep_forever()
            raise AssertionError

        async def compute() -> QueryResult:
            return result()

        group.start_soon(cache.serve, b"k", Deadline.after(LONG), hang)
        await anyio.wait_all_tasks_blocked()
        assert (await cache.serve(b"k", Deadline.after(0.2), compute)).complete
        group.cancel_scope.cancel()


async def test_an_incomplete_result_is_computed_again() -> None:
    cache = ResultCache()
    await serve(cache, b"k", result(complete=False))
    assert not (await serve(cache, b"k", result())).cached

"""The tool that cancels at each await is itself exact: it stops where it says, once each, and hides nothing."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from pipeline.testing.cancelling import cancelled_at_each_await, overtaken_at_await


async def test_each_suspension_is_cancelled_once_and_then_the_result_comes() -> None:
    reached: list[int] = []
    checks: list[int] = []

    async def operation() -> str:
        reached.append(0)
        for step in (1, 2, 3):
            await anyio.sleep(0 if step == 2 else 0.001)
            reached.append(step)
        return "done"

    async def check() -> None:
        checks.append(len(reached))
        await anyio.lowlevel.checkpoint()

    assert await cancelled_at_each_await(operation, check) == "done"
    assert reached == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert checks == [1, 3, 6]


async def test_the_caller_is_not_cancelled_and_cleanup_in_a_shield_is_let_through() -> None:
    cleaned = 0

    async def operation() -> int:
        nonlocal cleaned
        try:
            await anyio.sleep(0.001)
        finally:
            with anyio.move_on_after(1, shield=True):
                await anyio.sleep(0.001)
                cleaned += 1
        return cleaned

    assert await cancelled_at_each_await(operation) == 2
    await anyio.lowlevel.checkpoint()


async def test_children_are_cancelled_too() -> None:
    ended: list[bool] = []

    async def child() -> None:
        try:
            await anyio.sleep(0.002)
        except BaseException:
            ended.append(False)
            raise
        ended.append(True)

    async def operation() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(child)

    await cancelled_at_each_await(operation)
    assert ended[-2:] == [True, True]


async def test_what_does_not_suspend_completes_at_once() -> None:
    async def operation() -> int:
        return 7

    assert await cancelled_at_each_await(operation) == 7


async def test_a_swallowed_cancellation_and_an_error_are_not_hidden() -> None:
    async def swallows() -> None:
        try:
            await anyio.sleep(0.001)
        except BaseException:
            return

    async def check() -> None:
        raise KeyError("check")

    async def fails() -> None:
        await anyio.sleep(0.001)
        raise ValueError("operation")

    with pytest.raises(AssertionError, match="suspension 1"):
        await cancelled_at_each_await(swallows)
    with pytest.raises(KeyError, match="check"):
        await cancelled_at_each_await(lambda: anyio.sleep(0.001), check)
    with pytest.raises(ValueError, match="operation"):
        await cancelled_at_each_await(fails)


async def test_something_else_happens_at_each_await() -> None:
    seen: list[tuple[int, bool]] = []

    async def operation() -> int:
        start = len(seen)
        await anyio.lowlevel.checkpoint()
        middle = len(seen)
        await anyio.sleep(0.001)
        return 10 * (middle - start) + len(seen) - start

    for at in (1, 2, 3):

        async def other(at: int = at) -> None:
            await anyio.sleep(0.002)
            seen.append((at, True))

        assert await overtaken_at_await(operation, at, other) == ({1: 11, 2: 1, 3: 0}[at], at < 3)
    assert seen == [(1, True), (2, True)]


async def test_what_waits_for_the_operation_does_not_stop_it() -> None:
    lock, order = anyio.Lock(), list[str]()

    async def operation() -> None:
        async with lock:
            await anyio.lowlevel.checkpoint()
            order.append("operation")

    async def other() -> None:
        async with lock:
            order.append("other")

    await overtaken_at_await(operation, 2, other)
    assert order == ["operation", "other"]

"""The bridge from native cancellation to cancel scopes."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from worker.cancellation import bridged


@pytest.mark.parametrize("cancels", [1, 2, 5])
async def test_cleanup_survives_any_number_of_native_cancels(cancels: int) -> None:
    """The work's shielded cleanup is finished before the cancellation goes on."""
    started, steps = anyio.Event(), list[str]()

    async def work() -> None:
        started.set()
        try:
            await anyio.sleep(30)
        finally:
            with anyio.move_on_after(5, shield=True):
                await anyio.sleep(0.05)
                steps.append("cleaned")

    task = asyncio.get_running_loop().create_task(bridged(work))  # natively, as arq does
    await started.wait()
    for _ in range(cancels):
        task.cancel()
        await anyio.sleep(0.005)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["cleaned"]


async def test_results_and_errors_pass_through() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise KeyError("x")

    assert await bridged(answer) == 42
    with pytest.raises(KeyError):
        await bridged(fail)


async def test_a_cancel_together_with_a_deadline_inside_is_not_lost() -> None:
    """anyio before 4.16 could swallow both when they came in one turn of the loop."""

    async def work() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep(1)
        await anyio.sleep(30)

    task = asyncio.get_running_loop().create_task(bridged(work))  # natively, as arq does
    await anyio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_native_timeout_ends_the_work() -> None:
    """arq ends a job that takes too long natively; the work behind the bridge is stopped by it, too."""
    stopped = anyio.Event()

    async def work() -> None:
        try:
            await anyio.sleep(30)
        finally:
            stopped.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await bridged(work)
    assert stopped.is_set()

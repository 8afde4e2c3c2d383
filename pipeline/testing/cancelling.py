"""Cancels an operation at its first await, then at its second, and so on, until it completes: it must survive them all.

Also lets something else happen at such a moment: races, one interleaving after the other instead of by luck.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")

MOST_AWAITS = 10_000
"""An operation that suspends more often is taken for one that never completes."""

MOMENT = 0.05
"""Seconds after which an operation that was overtaken goes on, since what overtook it may wait for it."""


async def cancelled_at_each_await(
    operation: Callable[[], Awaitable[T]], check: Callable[[], Awaitable[None]] | None = None
) -> T:
    """Call `operation` anew until it completes, cancelling the n-th call at its n-th suspension; return its result.

    `operation` makes a fresh awaitable each time, so what the cancelled calls did adds up unless it is idempotent.
    `check` runs after each cancelled call, not after the completed one. An await that does not suspend is none where a
    cancellation could come; one in a shield lets the cancellation pass to the next await outside of it, and if there is
    none, the operation has completed. An error of the operation or of the check is raised as it is.

    Raises:
        AssertionError: a call was cancelled and completed all the same, or it never completes.
    """
    for at in range(1, MOST_AWAITS + 1):
        with anyio.CancelScope() as scope:

            async def cancel(scope: anyio.CancelScope = scope) -> None:
                scope.cancel()

            call = _Stepped(operation(), at, cancel)
            result = await call
            if call.hit:
                raise AssertionError(f"The operation swallowed its cancellation at suspension {at}.")
            return result
        if check is not None:
            await check()
    raise AssertionError(f"The operation does not complete within {MOST_AWAITS} suspensions.")


async def overtaken_at_await(
    operation: Callable[[], Awaitable[T]], at: int, other: Callable[[], Awaitable[None]]
) -> tuple[T, bool]:
    """Run `operation`, and `other` while it is suspended for the `at`-th time; return the result and whether it came to that.

    `operation` goes on when `other` is done, or after a moment if that waits for something `operation` holds; then both
    end as they can. Count `at` up from 1 until the answer is False.
    """
    done, group, results = anyio.Event(), anyio.create_task_group(), list[T]()

    async def overtake() -> None:
        await other()
        done.set()

    async def pause() -> None:
        group.start_soon(overtake)
        with anyio.move_on_after(MOMENT, shield=True):
            await done.wait()

    call = _Stepped(operation(), at, pause)
    async with group:
        results.append(await call)
    return results[0], call.reached


class _Stepped(Generic[T]):
    """Awaits something step by step, and `act` too before it goes on from its `at`-th suspension.

    `reached` tells whether it came to that, `hit` whether an exception of the loop was thrown into it since.
    """

    def __init__(self, awaitable: Awaitable[T], at: int, act: Callable[[], Awaitable[None]]) -> None:
        self._awaitable = awaitable
        self._at = at
        self._act = act
        self.reached = False
        self.hit = False

    def __await__(self) -> Generator[object, None, T]:
        steps: Generator[object, None, T] = self._awaitable.__await__()
        thrown: BaseException | None = None
        suspensions = 0
        while True:
            try:
                waits_for = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            suspensions += 1
            thrown = None
            try:
                if suspensions == self._at:
                    self.reached = True
                    yield from self._act().__await__()
                yield waits_for
            except BaseException as error:
                thrown, self.hit = error, self.reached

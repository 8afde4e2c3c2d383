"""Work that costs money or time: tried again within bounds, spread over shared slots, kept as soon as it is done."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from pipeline.deadline import Deadline
from pipeline.errors import ModelError, SapwoodError

T = TypeVar("T")

ATTEMPTS = 4
"""How often a call is made at most."""

PAUSE = 0.5
"""Seconds before the second attempt, doubled for each further one; jitter takes up to half of it off."""

SAVE_GRACE = 5.0
"""Seconds that a finished call may take to be kept although its run is being cancelled."""


async def retried(call: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
    """Make a call, again after a pause where its error is retryable and the deadline leaves room for it.

    Raises:
        SapwoodError: the last attempt's.
    """
    attempt = 1
    while True:
        try:
            return await call()
        except SapwoodError as error:
            pause = PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
            if isinstance(error, ModelError):
                pause = max(pause, error.retry_after)
            if not error.retryable or attempt == ATTEMPTS or pause >= deadline.remaining():
                raise
        attempt += 1
        await anyio.sleep(pause)


async def spread(
    work: Callable[[T], Awaitable[None]],
    items: Sequence[T],
    limiter: anyio.CapacityLimiter,
    turn: anyio.Lock | None = None,
) -> None:
    """Do work on all items, in order of start, as many at a time as there are slots.

    `work` takes a slot of the limiter itself, for the part that needs one. There are twice as many tasks as slots, so
    that the next call starts at once while a finished one is being kept; several batches may share one limiter. Those
    that share a `turn` begin their items one batch after the other: so they do not end together and leave the slots
    empty, but the next one fills them while the one before ends.

    Raises:
        SapwoodError: of the first item that raised one; the others are then cancelled.
    """
    waiting, failures, begun = iter(items), list[SapwoodError](), anyio.Event()

    async def take(tasks: TaskGroup) -> None:
        try:
            for item in waiting:
                await work(item)
            begun.set()
        except SapwoodError as error:
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks, turn or nullcontext():
        for _ in range(min(len(items), 2 * int(min(max(1, limiter.total_tokens), len(items))))):
            tasks.start_soon(take, tasks)
        if items and turn:
            await begun.wait()
    if failures:
        raise failures[0]


async def kept(save: Awaitable[None]) -> None:
    """Finish saving what was paid for, even while the caller is being cancelled, for a moment."""
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE):
        await save


def firsts(hashes: Iterable[bytes]) -> dict[bytes, int]:
    """Return where each distinct hash stands first."""
    found: dict[bytes, int] = {}
    for at, key in enumerate(hashes):
        found.setdefault(key, at)
    return found

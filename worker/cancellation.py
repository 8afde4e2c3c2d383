"""The one bridge from native task cancellation, which arq uses, to the cancel scopes that all our code is made for.

An anyio shield holds against scopes only: a second native cancel kills a shielded cleanup. So the work runs in a task
of its own that nobody cancels natively; each native cancel of the waiting task becomes a cancel of the work's scope,
and the waiting goes on until the work's own bounded cleanup is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def bridged(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()` and return its result or raise its error.

    Raises:
        CancelledError: this task was cancelled natively, once or more; the work was stopped and its cleanup is done.
    """
    scope = anyio.CancelScope()
    results: list[T] = []

    async def scoped() -> None:
        with scope:
            results.append(await work())

    task = asyncio.create_task(scoped())
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            scope.cancel()
    if cancelled:
        if not task.cancelled():
            task.exception()  # looked at: the cancellation comes first
        raise asyncio.CancelledError
    task.result()
    return results[0]

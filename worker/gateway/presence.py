"""Whether the client is still there: work that is done for it alone ends when it leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.types import Receive

from pipeline.errors import RunCancelled, SapwoodError

T = TypeVar("T")


async def until_gone(receive: Receive) -> None:
    """Wait until the client has left; what it still sends is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Return what the work returns; it is cancelled when the client leaves. The body must have been read.

    Raises:
        RunCancelled: the client left; nobody will read the answer.
        SapwoodError: what the work raised.
    """
    outcome: list[T | SapwoodError] = []

    async def watch() -> None:
        await until_gone(receive)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            outcome.append(await work())
        except SapwoodError as error:  # not through the group, which would wrap it
            outcome.append(error)
        group.cancel_scope.cancel()
    found = outcome[0] if outcome else RunCancelled("The client left.")
    if isinstance(found, SapwoodError):
        raise found
    return found

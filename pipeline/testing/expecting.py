"""How contract suites say that something must fail, without a test framework in shipped code."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


async def raises(kind: type[E], awaitable: Awaitable[object]) -> E:
    """Await and return the error of this kind that comes of it; another error is raised as it is.

    Raises:
        AssertionError: nothing was raised.
    """
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was to be raised.")

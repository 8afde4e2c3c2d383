"""One piece of work for all who ask for the same thing while it is under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from pipeline.errors import SapwoodError

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    """Work under way. `landed` with neither a result nor an error: whoever did it was cancelled."""

    landed: anyio.Event = field(default_factory=anyio.Event)
    results: list[T] = field(default_factory=list[T])
    error: SapwoodError | None = None


class Flights(Generic[T]):
    """Work by keys. Nothing is remembered once it is done, so that whoever comes later has it done anew."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Flight[T]] = {}

    async def once(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns, or what it returns to somebody who began it before with the same key.

        It is done in the task of the first; if that is cancelled, by the next. Errors of ours are shared, too.
        """
        while (flight := self._under_way.get(key)) is not None:
            await flight.landed.wait()
            if flight.error is not None:
                raise flight.error.with_traceback(None)  # else each of them would lengthen it
            if flight.results:
                return flight.results[0]
        return await self._fly(key, work)

    async def _fly(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        flight = self._under_way[key] = _Flight[T]()
        try:
            flight.results.append(await work())
        except SapwoodError as error:
            flight.error = error
            raise
        finally:
            del self._under_way[key]
            flight.landed.set()
        return flight.results[0]

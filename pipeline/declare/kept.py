"""What was found before, for those who ask the same: fresh for a while, and stale for those who take that."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

import anyio

from pipeline.deadline import Deadline
from pipeline.declare.context import Rendered
from pipeline.errors import DeadlineExceeded
from pipeline.flights import Flights
from schemas.query import Hit

MAX_RESULTS = 1024
"""Results that a process keeps, up to a thousand documents each."""


@dataclass(frozen=True, slots=True)
class Found:
    """Documents that were found while a binding, by its number, held.

    `stale` says that they are older than their TTL, or than what was loaded last. `texts` has what was made of them before, by
    the way in which they are shown.
    """

    hits: tuple[Hit, ...]
    binding: int
    stale: bool = False
    texts: dict[Hashable, Rendered] = field(default_factory=dict[Hashable, Rendered], compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class _Kept:
    found: Found
    until: float


class KeptResults:
    """The last `most` results by key. One that is no longer fresh stays, for want of a better one."""

    def __init__(self, most: int = MAX_RESULTS) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._flights: Flights[Found] = Flights()

    def __len__(self) -> int:
        return len(self._kept)

    def fresh(self, key: Hashable, binding: int) -> Found | None:
        """Return what was found under this binding and is within its TTL."""
        kept = self._kept.get(key)
        if kept is None or kept.found.binding != binding or kept.until <= anyio.current_time():
            return None
        self._kept.move_to_end(key)
        return kept.found

    def stale(self, key: Hashable) -> Found | None:
        """Return what was found at any time, labelled stale."""
        kept = self._kept.get(key)
        return Found(kept.found.hits, kept.found.binding, stale=True) if kept else None

    async def serve(
        self, key: Hashable, binding: int, ttl: float, deadline: Deadline, find: Callable[[], Awaitable[Found]]
    ) -> Found:
        """Return what is fresh or else what `find` returns, which is done once for all who ask meanwhile.

        Whoever waits has the deadline of nobody but itself: where the one who searches runs out of time, the next begins.
        """
        while True:
            if (found := self.fresh(key, binding)) is not None:
                return found
            mine: list[bool] = []

            async def work(mine: list[bool] = mine) -> Found:
                mine.append(True)
                return self._keep(key, await find(), ttl)

            try:
                return await self._flights.once((key, binding), work)
            except DeadlineExceeded:
                if mine or not deadline.remaining():
                    raise

    def _keep(self, key: Hashable, found: Found, ttl: float) -> Found:
        self._kept[key] = _Kept(found, anyio.current_time() + ttl)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found

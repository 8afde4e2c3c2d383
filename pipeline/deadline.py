"""One absolute deadline, made once at the edge and handed down; below it nothing takes a relative timeout."""

from __future__ import annotations

import math
from dataclasses import dataclass

import anyio

from pipeline.errors import DeadlineExceeded

FLOOR = 0.02
"""Seconds below which no store call is started: zero means *infinite* to three drivers."""


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A point on the event loop's monotonic clock, in seconds. Deadlines are ordered, so `min` combines them."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline this many seconds from now."""
        return cls(anyio.current_time() + seconds)

    @classmethod
    def never(cls) -> Deadline:
        """Return the deadline that never comes; a store call still gets its own cap."""
        return cls(math.inf)

    def remaining(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self.at - anyio.current_time())

    def budget(self, cap: float) -> float:
        """Return the seconds a store call may take: what remains, at most `cap`.

        Raises:
            DeadlineExceeded: less than the floor is left; the call must not be started.
        """
        left = min(self.remaining(), cap)
        if left < FLOOR:
            raise DeadlineExceeded()
        return left

    def earlier(self, seconds: float) -> Deadline:
        """Return the deadline this much sooner: what a stage must leave for those after it."""
        return Deadline(self.at - seconds)

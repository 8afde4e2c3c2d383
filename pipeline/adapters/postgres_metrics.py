"""What the rows say of the whole installation, for whoever watches it: one bounded query."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.ports import Tx
from pipeline.queries import load

_SQL = load("metrics")

QUEUE_LIMIT = 10_000
"""Queued units that are looked at, the longest queued first: a depth is never reported beyond this."""


class Connections(Protocol):
    """Lends connections; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresStanding:
    """Reads the gauges of one database."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def read(self, deadline: Deadline) -> Sequence[tuple[str, str, str, float]]:
        """Return (gauge, kind of unit or empty, state or empty, value); what is zero may be left out.

        Raises:
            StoreUnavailable: the database cannot be reached.
            DeadlineExceeded: it did not answer in time.
        """
        async with self._pool.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["standing"], QUEUE_LIMIT)
        return [(row["gauge"], row["kind"], row["state"], row["value"]) for row in rows]

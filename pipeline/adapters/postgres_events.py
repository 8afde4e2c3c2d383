"""The event log and outbox in PostgreSQL: the whole truth about what happened, in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pipeline.deadline import Deadline
from pipeline.errors import EventsExpired
from pipeline.ports import Database, EventStream
from pipeline.queries import load
from schemas.events import Event
from schemas.ids import CorpusId, RunId

_SQL = load("events")

CALL = 5.0
"""Seconds for one read of the log, or for one round of the relay."""

RELAY_PAGE = 500
"""Events that one round of the relay copies."""


class PostgresEvents:
    """An `EventLog` and an `Outbox`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        """See `EventLog`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            events = [_event(row) for row in await tx.fetch(_SQL["read"], run_id, after, limit)]
            known = bool(events) or bool(await tx.fetch(_SQL["ends"], [run_id]))
        if not known or (events and events[0].seq != after + 1):
            raise EventsExpired()
        return events

    async def end_of(self, run_id: RunId) -> tuple[int, bool]:
        """See `EventLog`."""
        found = await self.ends([run_id])
        if run_id not in found:
            raise EventsExpired()
        return found[run_id]

    async def ends(self, runs: Collection[RunId]) -> Mapping[RunId, tuple[int, bool]]:
        """See `EventLog`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            rows = await tx.fetch(_SQL["ends"], list(runs))
        return {RunId(row["run_id"]): (row["seq"], row["ended"]) for row in rows}

    async def read_corpus(self, corpus: CorpusId, after: int, limit: int) -> list[tuple[int, Event]]:
        """See `EventLog`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            rows = await tx.fetch(_SQL["read_corpus"], corpus, after, limit)
            floor = await tx.fetchval(_SQL["floor"], corpus) if after else 0
        if floor is None or after < floor:
            raise EventsExpired()
        return [(row["corpus_seq"], _event(row)) for row in rows]

    async def positions(self, corpora: Collection[CorpusId]) -> Mapping[CorpusId, int]:
        """See `EventLog`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            rows = await tx.fetch(_SQL["positions"], list(corpora))
        return {CorpusId(row["corpus_id"]): row["position"] for row in rows}

    async def unpublished(self, limit: int) -> list[RunId]:
        """See `Outbox`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            return [RunId(row["run_id"]) for row in await tx.fetch(_SQL["unpublished"], limit)]

    async def relay(self, run_id: RunId, stream: EventStream, *, alone: bool) -> int:
        """See `Outbox`."""
        async with self._database.transaction(Deadline.after(CALL)) as tx:
            if alone and not await tx.fetchval(_SQL["only_me"], run_id):
                return 0
            events = [_event(row) for row in await tx.fetch(_SQL["backlog"], run_id, RELAY_PAGE)]
            if events:
                await stream.publish(events)
                await tx.execute(_SQL["published"], run_id, events[-1].seq)
        return len(events)

    async def expire(self, corpus: CorpusId, days: float, limit: int) -> int:
        """Remove runs that ended more than this many days ago, with their events; return how many, batches included."""
        async with self._database.transaction(Deadline.after(CALL * 4)) as tx:
            return int((await tx.execute(_SQL["expire"], corpus, days, limit)).rsplit(" ", 1)[1])


def _event(row: Any) -> Event:
    return Event(run_id=row["run_id"], corpus=row["corpus"], seq=row["seq"], at=row["at"].isoformat(), body=row["body"])

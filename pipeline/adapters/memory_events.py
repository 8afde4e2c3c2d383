"""An event log in lists, of one process: dense numbers in each run, and positions that no reader passes over."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
import anyio.lowlevel

from pipeline.errors import EventsExpired, FencedOut
from schemas.events import Event, Progress
from schemas.ids import CorpusId, RunId
from schemas.query import Wire

WIDTH = 1 << 20
"""Positions that one commit may take."""

BLOCK_SECONDS = 0.2
"""How long one look at the stream waits for news."""


@dataclass(slots=True)
class _Run:
    corpus: CorpusId
    events: list[Event] = field(default_factory=list[Event])
    positions: list[int] = field(default_factory=list[int])
    ended: bool = False


class MemoryEvents:
    """An `EventLog` with its writer. `names` are those of the corpora."""

    def __init__(self, names: Mapping[CorpusId, str]) -> None:
        self._names = names
        self._runs: dict[RunId, _Run] = {}
        self._floors: dict[CorpusId, int] = {}
        self._open: set[int] = set()
        self._tickets = itertools.count(1)

    async def start(self, corpus: CorpusId) -> RunId:
        """Make a run without events."""
        await anyio.lowlevel.checkpoint()
        run_id = RunId(f"run-{next(self._tickets)}")
        self._runs[run_id] = _Run(corpus)
        return run_id

    @asynccontextmanager
    async def saying(self, run_id: RunId, *bodies: Wire, end: bool = False) -> AsyncGenerator[None, None]:
        """Append these events as one at the end of the block, unless it is left with an error; `end` ends the run.

        Their positions are taken at the start; until the end, readers of the corpus see none that is higher.

        Raises:
            FencedOut: at the end of the block: the run has ended before.
        """
        ticket = next(self._tickets)
        self._open.add(ticket)
        try:
            await anyio.lowlevel.checkpoint()
            yield
            await anyio.lowlevel.checkpoint()
            self._append(self._runs[run_id], run_id, ticket, bodies, end)
        finally:
            self._open.discard(ticket)

    async def say_at_once(self, run_id: RunId, count: int) -> None:
        """Append so many `Progress` events, each from a task of its own."""

        async def one(number: int) -> None:
            async with self.saying(run_id, Progress(stage="s", done=number, total=count)):
                pass

        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(one, number)

    async def forget(self, corpus: CorpusId) -> None:
        """Remove the runs of a corpus that have ended, and remember the position reached."""
        await anyio.lowlevel.checkpoint()
        for run_id, run in list(self._runs.items()):
            if run.corpus == corpus and run.ended:
                self._floors[corpus] = max(self._floors.get(corpus, 0), *run.positions)
                del self._runs[run_id]

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        """See `EventLog`."""
        await anyio.lowlevel.checkpoint()
        return self._known(run_id).events[after : after + limit]

    async def end_of(self, run_id: RunId) -> tuple[int, bool]:
        """See `EventLog`."""
        await anyio.lowlevel.checkpoint()
        run = self._known(run_id)
        return len(run.events), run.ended

    async def ends(self, runs: Collection[RunId]) -> Mapping[RunId, tuple[int, bool]]:
        """See `EventLog`."""
        await anyio.lowlevel.checkpoint()
        return {run: (len(self._runs[run].events), self._runs[run].ended) for run in runs if run in self._runs}

    async def read_corpus(self, corpus: CorpusId, after: int, limit: int) -> list[tuple[int, Event]]:
        """See `EventLog`."""
        await anyio.lowlevel.checkpoint()
        if 0 < after < self._floors.get(corpus, 0):
            raise EventsExpired()
        runs = [run for run in self._runs.values() if run.corpus == corpus]
        said = [pair for run in runs for pair in zip(run.positions, run.events, strict=True)]
        return sorted((p for p in said if after < p[0] < self._horizon()), key=lambda pair: pair[0])[:limit]

    async def positions(self, corpora: Collection[CorpusId]) -> Mapping[CorpusId, int]:
        """See `EventLog`."""
        await anyio.lowlevel.checkpoint()
        found = {corpus: self._floors.get(corpus, 0) for corpus in corpora if corpus in self._names}
        for run in self._runs.values():
            if run.corpus in found:
                found[run.corpus] = max(found[run.corpus], *(p for p in run.positions if p < self._horizon()), 0)
        return found

    def _horizon(self) -> float:
        """Return the position below which nothing can be added any more."""
        return min(self._open, default=float("inf")) * WIDTH

    def _known(self, run_id: RunId) -> _Run:
        if run_id not in self._runs:
            raise EventsExpired()
        return self._runs[run_id]

    def _append(self, run: _Run, run_id: RunId, ticket: int, bodies: tuple[Wire, ...], end: bool) -> None:
        if run.ended:
            raise FencedOut()
        run.ended = end
        for ordinal, body in enumerate(bodies):
            at = datetime.now(UTC).isoformat()
            seq = len(run.events) + 1
            event = {"run_id": run_id, "corpus": self._names[run.corpus], "seq": seq, "at": at, "body": body}
            run.events.append(Event.model_validate(event))
            run.positions.append(ticket * WIDTH + ordinal)


class MemoryStream:
    """An `EventStream` and its `StreamReader` in lists, of one process."""

    def __init__(self) -> None:
        self._runs: dict[RunId, list[Event]] = {}
        self._news = anyio.Event()

    async def publish(self, events: Sequence[Event]) -> None:
        """See `EventStream`."""
        await anyio.lowlevel.checkpoint()
        for event in events:
            entries = self._runs.setdefault(RunId(event.run_id), [])
            if not entries or event.seq > entries[-1].seq:
                entries.append(event)
        self._news.set()

    async def flush(self) -> None:
        """Forget everything."""
        await anyio.lowlevel.checkpoint()
        self._runs.clear()

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        """See `StreamReader`."""
        await anyio.lowlevel.checkpoint()
        return self._after(run_id, after)[:limit]

    async def listen(self, after: Mapping[RunId, int]) -> list[Event]:
        """See `StreamReader`."""
        if not (found := self._beyond(after)):
            with anyio.move_on_after(BLOCK_SECONDS):
                await self._news.wait()
            found = self._beyond(after)
        self._news = anyio.Event()
        await anyio.lowlevel.checkpoint()
        return found

    async def wake(self) -> None:
        """See `StreamReader`."""
        await anyio.lowlevel.checkpoint()
        self._news.set()

    def _beyond(self, after: Mapping[RunId, int]) -> list[Event]:
        return [event for run, number in after.items() for event in self._after(run, number)]

    def _after(self, run_id: RunId, after: int) -> list[Event]:
        return [event for event in self._runs.get(run_id, ()) if event.seq > after]

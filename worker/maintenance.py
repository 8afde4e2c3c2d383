"""What a process does beside its work: renew pins, warm snapshots, build dense indexes, collect garbage, forget old runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, SapwoodError
from pipeline.generations.pins import LEASE
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from worker.metrics import Metrics

COLLECT_SECONDS = 2.0
"""Pause between two rounds of the garbage collector."""

PRUNE_SECONDS = 300.0
CALL = 60.0
OUTSIDE_CALL = 600.0
INDEX_SECONDS = 3600.0
EXPIRE_LIMIT = 1000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Promotions:
    """Generations that were promoted by this process and not yet looked after; a bounded list, the newest stay."""

    _waiting: deque[tuple[CorpusId, int]] = field(default_factory=lambda: deque[tuple[CorpusId, int]](maxlen=1000))
    _news: anyio.Event = field(default_factory=anyio.Event)

    def promoted(self, corpus: CorpusId, number: int) -> None:
        """Note a promotion."""
        self._waiting.append((corpus, number))
        self._news.set()

    async def next(self) -> tuple[CorpusId, int]:
        """Wait for the next one."""
        while not self._waiting:
            self._news = anyio.Event()
            await self._news.wait()
        return self._waiting.popleft()


class Pins(Protocol):
    """The pins of this process."""

    async def renew(self, deadline: Deadline) -> None:
        """Extend those that have readers."""
        ...


class Manifests(Protocol):
    """Reads manifests."""

    async def manifest(self, corpus: CorpusId, number: int, deadline: Deadline) -> Manifest:
        """Return that of a readable generation. Raises NotFound."""
        ...


class Indexes(Protocol):
    """Dense indexes."""

    async def ensure_index(self, manifest: Manifest, deadline: Deadline) -> bool:
        """Build the approximate index of a collection that has outgrown the exact scan."""
        ...


class Snapshots(Protocol):
    """The snapshots of this process."""

    async def warm(self, corpus: CorpusId, generation: int) -> None:
        """Load one before anybody asks."""
        ...


class Reclaimed(Protocol):
    """What one pass took away in PostgreSQL."""

    @property
    def generations(self) -> Sequence[int]:
        """Numbers that were closed to readers."""
        ...

    @property
    def rows(self) -> Mapping[str, int]:
        """Rows by table."""
        ...


class Cleared(Protocol):
    """What one pass took away in other stores."""

    @property
    def graphs(self) -> Mapping[str, int]:
        """Graphs with their nodes."""
        ...

    @property
    def vectors(self) -> int:
        """Versions of vectors."""
        ...


class Collector(Protocol):
    """The garbage collector."""

    async def corpora(self, deadline: Deadline) -> list[tuple[CorpusId, int, float]]:
        """Return every corpus with the number of generations it keeps, and the days for which it keeps runs."""
        ...

    async def collect(self, corpus: CorpusId, keep: int, deadline: Deadline) -> Reclaimed:
        """Make one pass over a corpus."""
        ...


class Outside(Protocol):
    """The garbage collector of the other stores."""

    @property
    def stores(self) -> bool:
        """Whether there is any."""
        ...

    async def collect(self, corpus: CorpusId, deadline: Deadline) -> Cleared:
        """Make one pass over a corpus."""
        ...

    async def inter(self, deadline: Deadline) -> None:
        """Take away what deleted corpora left."""
        ...


class Runs(Protocol):
    """Forgets old runs."""

    async def expire(self, corpus: CorpusId, days: float, limit: int) -> int:
        """Remove runs that ended more than this many days ago."""
        ...


class Repositories(Protocol):
    """The cache of fetched repositories."""

    async def prune(self, deadline: Deadline) -> int:
        """Remove what is too much, and return its bytes."""
        ...


async def keep_pins(pins: Pins) -> None:
    """Renew the pins of this process, until cancelled."""
    await every(LEASE / 3, "pins", lambda: pins.renew(Deadline.after(LEASE / 3)))


async def look_after(promotions: Promotions, manifests: Manifests, snapshots: Snapshots, indexes: Indexes) -> None:
    """Warm the snapshot of each promoted generation, and see to its dense index, until cancelled."""
    while True:
        corpus, number = await promotions.next()
        try:
            await snapshots.warm(corpus, number)
            manifest = await manifests.manifest(corpus, number, Deadline.after(CALL))
            await indexes.ensure_index(manifest, Deadline.after(INDEX_SECONDS))
        except SapwoodError as error:  # whatever it is, the next query meets it too, and says so
            _log.warning("maintenance.promoted", error=str(error))


async def collect_garbage(collector: Collector, outside: Outside, runs: Runs, metrics: Metrics) -> None:
    """Collect what nobody can see any more, in all corpora and all stores, until cancelled.

    A store outside of PostgreSQL that is away holds up nothing but itself.
    """

    async def inside() -> None:
        for corpus, keep, days in await collector.corpora(Deadline.after(CALL)):
            found = await collector.collect(corpus, keep, Deadline.after(CALL))
            metrics.collected(len(found.generations), sum(found.rows.values()))
            await runs.expire(corpus, days, EXPIRE_LIMIT)

    async def beyond() -> None:
        for corpus, _, _ in await collector.corpora(Deadline.after(CALL)):
            try:
                found = await outside.collect(corpus, Deadline.after(OUTSIDE_CALL))
                metrics.cleared(len(found.graphs), found.vectors)
            except SapwoodError as error:  # whatever is wrong with a store of one corpus, the others have theirs
                _log.warning("maintenance.outside", corpus=corpus, error=str(error))
        await outside.inter(Deadline.after(OUTSIDE_CALL))

    async with anyio.create_task_group() as group:
        group.start_soon(every, COLLECT_SECONDS, "garbage", inside)
        if outside.stores:
            group.start_soon(every, COLLECT_SECONDS, "outside", beyond)


async def prune_repositories(repositories: Repositories) -> None:
    """Keep the cache of fetched repositories of this machine within bounds, until cancelled."""
    await every(PRUNE_SECONDS, "repositories", lambda: repositories.prune(Deadline.after(CALL)))


async def every(seconds: float, name: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do some work again and again with a pause between; a server that is away is met with another try."""
    while True:
        await anyio.sleep(seconds)
        try:
            await work()
        except (DependencyError, DeadlineExceeded) as error:
            _log.warning(f"maintenance.{name}", error=str(error))

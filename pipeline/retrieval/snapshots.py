"""The snapshots that a process holds: loaded once however many ask, bounded in bytes, never stale."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, GenerationChanged, StoreUnavailable
from pipeline.ports import SnapshotSource
from pipeline.retrieval.snapshot import Snapshot
from pipeline.tenancy import apart
from schemas.ids import CorpusId

LOAD_SECONDS = 300.0
"""What a load may take; those who wait for it have deadlines of their own."""

LOADS = 2
"""Loads at a time: each holds its rows once more than the finished snapshot does."""

GENERATIONS = 2
"""Generations of a corpus that are kept: the current one, and the one that queries under way still read."""

_Key = tuple[CorpusId, int]


@dataclass(slots=True)
class _Load:
    """A load under way. When `done` is set and there is neither a snapshot nor an error, the cache was closed."""

    done: anyio.Event = field(default_factory=anyio.Event)
    snapshot: Snapshot | None = None
    error: Exception | None = None


class SnapshotCache:
    """Snapshots by (corpus, generation), made by `open_snapshots`. A generation never changes, so nor does an entry.

    `loads` counts those that were loaded.
    """

    def __init__(self, source: SnapshotSource, max_bytes: int, group: TaskGroup) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._group = group
        self._slots = anyio.CapacityLimiter(LOADS)
        self._held: OrderedDict[_Key, tuple[Snapshot, int]] = OrderedDict()
        self._loads: dict[_Key, _Load] = {}
        self.loads = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the snapshots held; arrays that two generations share count twice."""
        return sum(size for _, size in self._held.values())

    @property
    def held(self) -> tuple[_Key, ...]:
        """What is held, least recently used first."""
        return tuple(self._held)

    async def get(self, corpus: CorpusId, generation: int, deadline: Deadline) -> Snapshot:
        """Return the snapshot, loading it if need be. A load goes on when those who wait for it leave.

        Raises:
            DeadlineExceeded: it was not loaded in time.
            SapwoodError: what the source raised.
        """
        key = (corpus, generation)
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key][0]
        load = self._loads.get(key) or self._start(key)
        with anyio.CancelScope(deadline=deadline.at):
            await load.done.wait()
        if load.error is not None:
            raise load.error
        if load.snapshot is not None:
            return load.snapshot
        raise StoreUnavailable("The snapshots are closed.") if load.done.is_set() else DeadlineExceeded()

    async def warm(self, corpus: CorpusId, generation: int) -> None:
        """Load a generation ahead of its first query, as when it is promoted. Raises what `get` raises."""
        await self.get(corpus, generation, Deadline.after(LOAD_SECONDS))

    def forget(self, corpus: CorpusId) -> None:
        """Drop all snapshots of a corpus that was deleted."""
        for key in [key for key in self._held if key[0] == corpus]:
            del self._held[key]

    def _start(self, key: _Key) -> _Load:
        load = self._loads[key] = _Load()
        with apart():  # whoever asks first, all who ask later get the same
            self._group.start_soon(self._load, key, load)
        return load

    async def _load(self, key: _Key, load: _Load) -> None:
        try:
            async with self._slots:
                load.snapshot = await self._build(*key)
            self._keep(key, load.snapshot)
            self.loads += 1
        except Exception as error:
            load.error = error  # belongs to those who wait, not to the cache
        finally:
            del self._loads[key]
            load.done.set()

    async def _build(self, corpus: CorpusId, generation: int) -> Snapshot:
        """Apply what changed to the nearest earlier snapshot that is held, or load all where that is not possible."""
        deadline = Deadline.after(LOAD_SECONDS)
        base = self._nearest(corpus, generation)
        try:
            delta = await self._source.delta(corpus, base.generation, generation, deadline)
        except GenerationChanged:
            base = Snapshot.empty()
            delta = await self._source.delta(corpus, 0, generation, deadline)
        return await anyio.to_thread.run_sync(base.apply, delta, abandon_on_cancel=True)

    def _nearest(self, corpus: CorpusId, generation: int) -> Snapshot:
        earlier = [held for (c, number), (held, _) in self._held.items() if c == corpus and number < generation]
        return max(earlier, key=lambda held: held.generation, default=Snapshot.empty())

    def _keep(self, key: _Key, snapshot: Snapshot) -> None:
        self._held[key] = (snapshot, snapshot.nbytes)
        numbers = sorted((number for corpus, number in self._held if corpus == key[0]), reverse=True)
        for number in numbers[GENERATIONS:]:
            del self._held[key[0], number]
        total = self.nbytes
        while total > self._max_bytes and len(self._held) > 1:
            _, (_, size) = self._held.popitem(last=False)
            total -= size


@asynccontextmanager
async def open_snapshots(source: SnapshotSource, max_bytes: int) -> AsyncGenerator[SnapshotCache, None]:
    """Open a cache of at most `max_bytes`, or of one snapshot where that alone is larger; loads end with the block."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield SnapshotCache(source, max_bytes, group)
        except Exception as error:
            failure = error  # the block's own: it must not leave as a group of one
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure

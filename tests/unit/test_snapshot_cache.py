"""The snapshots a process holds: loaded once, whoever leaves; bounded; built on the one before."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, GenerationChanged, StoreUnavailable
from pipeline.retrieval.rows import Delta
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.snapshots import SnapshotCache, open_snapshots
from pipeline.testing.corpus import MemoryStores, synthetic
from schemas.ids import CorpusId

ONE, TWO, THREE = CorpusId(1), CorpusId(2), CorpusId(3)
LONG = 30.0


@dataclass
class Gated:
    """A source that answers when it is let, and may lose a generation."""

    stores: MemoryStores
    gate: anyio.Event = field(default_factory=anyio.Event)
    reclaimed: set[int] = field(default_factory=set)
    error: Exception | None = None

    async def delta(self, corpus: CorpusId, since: int, generation: int, deadline: Deadline) -> Delta:
        if since in self.reclaimed:
            raise GenerationChanged()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return await self.stores.delta(corpus, since, generation, deadline)


@pytest.fixture
async def source() -> Gated:
    rows = {number: synthetic(40, 4, seed=number) for number in range(1, 6)}
    gated = Gated(MemoryStores({(corpus, number): rows[number] for corpus in (ONE, TWO, THREE) for number in rows}))
    gated.gate.set()
    return gated


def loads(source: Gated) -> list[tuple[int, int]]:
    return source.stores.loads


async def test_requests_at_once_share_one_load(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as cache:
        found: list[Snapshot] = []

        async def get() -> None:
            found.append(await cache.get(ONE, 1, Deadline.after(LONG)))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(get)
        assert loads(source) == [(0, 1)]
        assert all(snapshot is found[0] for snapshot in found)


async def test_a_waiter_who_is_cancelled_does_not_end_the_load(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as cache:
        source.gate = anyio.Event()
        with anyio.move_on_after(0.01) as scope:
            await cache.get(ONE, 1, Deadline.after(LONG))
        assert scope.cancelled_caught
        with pytest.raises(DeadlineExceeded):
            await cache.get(ONE, 1, Deadline.after(0.01))
        source.gate.set()
        assert (await cache.get(ONE, 1, Deadline.after(LONG))).generation == 1
        assert loads(source) == [(0, 1)]


async def test_the_next_generation_is_built_on_the_nearest_earlier_one(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as cache:
        for number in (1, 2, 4):
            await cache.get(ONE, number, Deadline.after(LONG))
        built = await cache.get(ONE, 3, Deadline.after(LONG))
        assert loads(source) == [(0, 1), (1, 2), (2, 4), (2, 3)]
        alone = Snapshot.empty().apply(await source.stores.delta(ONE, 0, 3, Deadline.after(LONG)))
        assert built.chunk_ids.tolist() == alone.chunk_ids.tolist()


async def test_where_the_earlier_one_is_reclaimed_all_is_loaded(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as cache:
        await cache.get(ONE, 1, Deadline.after(LONG))
        source.reclaimed.add(1)
        assert (await cache.get(ONE, 2, Deadline.after(LONG))).generation == 2
        assert loads(source) == [(0, 1), (0, 2)]


async def test_the_last_two_generations_of_a_corpus_are_kept(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as cache:
        for number in (1, 2, 3):
            await cache.warm(ONE, number)
        await cache.warm(TWO, 1)
        assert cache.held == ((ONE, 2), (ONE, 3), (TWO, 1))
        cache.forget(ONE)
        assert cache.held == ((TWO, 1),)


async def test_bytes_are_bounded_and_the_least_recently_used_goes(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as unbounded:
        one = (await unbounded.get(ONE, 1, Deadline.after(LONG))).nbytes
    async with open_snapshots(source, one * 5 // 2) as cache:
        await cache.get(ONE, 1, Deadline.after(LONG))
        await cache.get(TWO, 1, Deadline.after(LONG))
        await cache.get(ONE, 1, Deadline.after(LONG))
        await cache.get(THREE, 1, Deadline.after(LONG))
        assert cache.held == ((ONE, 1), (THREE, 1))
        assert cache.nbytes <= one * 5 // 2
    async with open_snapshots(source, 1) as tiny:
        await tiny.get(ONE, 1, Deadline.after(LONG))
        assert tiny.held == ((ONE, 1),)


async def test_a_failed_load_is_told_to_those_who_wait_and_tried_again(source: Gated) -> None:
    async with open_snapshots(source, 1 << 30) as cache:
        source.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            await cache.get(ONE, 1, Deadline.after(LONG))
        source.error = None
        assert (await cache.get(ONE, 1, Deadline.after(LONG))).generation == 1


async def test_a_closed_cache_lets_nobody_wait(source: Gated) -> None:
    source.gate = anyio.Event()
    errors: list[Exception] = []

    async def get(cache: SnapshotCache) -> None:
        try:
            await cache.get(ONE, 1, Deadline.after(LONG))
        except StoreUnavailable as error:
            errors.append(error)

    async with anyio.create_task_group() as group, open_snapshots(source, 1 << 20) as cache:
        group.start_soon(get, cache)
        await anyio.wait_all_tasks_blocked()
    assert len(errors) == 1


async def test_an_error_in_the_block_leaves_it_as_it_is(source: Gated) -> None:
    with pytest.raises(StoreUnavailable):
        async with open_snapshots(source, 1 << 20):
            raise StoreUnavailable

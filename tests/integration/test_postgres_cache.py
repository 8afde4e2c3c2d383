"""The cache in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import numpy as np
import pytest

from pipeline.adapters.postgres_cache import PostgresCache, pack, unpack
from pipeline.adapters.postgres_pool import open_pool
from pipeline.testing.cache_contract import FULL, CacheContract, ContextCacheContract
from schemas.graph import Extraction
from schemas.ids import CorpusId, text_hash


@pytest.fixture
async def cache(database: str) -> AsyncIterator[PostgresCache]:
    async with open_pool(database) as pool:
        yield PostgresCache(pool)


class TestPostgresCache(CacheContract, ContextCacheContract):
    """The contracts, on rows."""

    @pytest.fixture
    def corpora(self) -> tuple[CorpusId, CorpusId]:
        return CorpusId(1), CorpusId(2)


def test_packing_keeps_every_field() -> None:
    """Also of an empty extraction."""
    assert unpack(pack(FULL)) == FULL and unpack(pack(Extraction())) == Extraction()


async def test_two_writers_of_the_same_texts_do_not_block_each_other_for_ever(cache: PostgresCache) -> None:
    """Rows are written in one order, so there is no deadlock, and one value of each text stays."""
    keys = [text_hash(str(n)) for n in range(500)]

    async def write(order: list[bytes], value: float) -> None:
        await cache.put_vectors(CorpusId(1), "m", {key: np.array([value], np.float32) for key in order})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, keys, 1.0)
        tasks.start_soon(write, keys[::-1], 2.0)
    assert len(await cache.vectors(CorpusId(1), "m", keys)) == 500

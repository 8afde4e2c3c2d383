"""The dense contracts in every backend."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings

from pipeline.adapters.memory_dense import MemoryDense
from pipeline.adapters.pgvector_dense import PgvectorDense
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.qdrant_dense import Client, QdrantDense, open_client, open_qdrant
from pipeline.generations.manifest import collection_name
from pipeline.testing.dense_contract import DenseIndexContract
from pipeline.testing.dense_model import DenseMachine, Op, operations
from pipeline.testing.dense_store_contract import DenseStoreContract, Rows
from pipeline.testing.dense_worlds import (
    DIMENSION,
    EMBEDDING,
    DenseWorld,
    Documents,
    ExternalWorld,
    collection,
    described,
    history,
    soon,
    versions,
)
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from tests.qdrant_server import engine


class PgvectorWorld:
    """A table of versions for each corpus, filled by hand."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.index = PgvectorDense(pool)

    async def follow(self, corpus: int, steps: Sequence[Documents]) -> list[Manifest]:
        async with self.pool.transaction(soon()) as tx:
            number = await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", f"c{corpus}")
            name = collection_name(CorpusId(number), EMBEDDING)
            await tx.fetchval("select ensure_collection($1, $2, $3, $4)", number, name, EMBEDDING, DIMENSION)
            await tx.copy(name, ("chunk_id", "born", "died", "embedding"), versions(steps))
        return [described(name, number, len(seen)) for number, seen in enumerate(history(steps), 1)]


class TestMemoryIndex(DenseIndexContract):
    @pytest.fixture
    def world(self) -> DenseWorld:
        return ExternalWorld(MemoryDense())


class TestPgvectorIndex(DenseIndexContract):
    @pytest.fixture
    async def world(self, database: str) -> AsyncIterator[DenseWorld]:
        async with open_pool(database) as pool:
            yield PgvectorWorld(pool)


class TestQdrantLocalIndex(DenseIndexContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[DenseWorld]:
        async with open_qdrant(":memory:") as store:
            yield ExternalWorld(store)


class TestQdrantEngineIndex(DenseIndexContract):
    @pytest.fixture
    async def world(self) -> AsyncIterator[DenseWorld]:
        async with engine() as (url, _), open_qdrant(url) as store:
            yield ExternalWorld(store)


class TestMemoryStore(DenseStoreContract):
    @pytest.fixture
    def store(self) -> MemoryDense:
        return MemoryDense()

    @pytest.fixture
    def rows(self, store: MemoryDense) -> Rows:
        async def counted(collection: str) -> int:
            return store.rows(collection)

        return counted


class QdrantStoreContract(DenseStoreContract):
    @pytest.fixture
    def store(self, client: Client) -> QdrantDense:
        return QdrantDense(client)

    @pytest.fixture
    def rows(self, client: Client) -> Rows:
        async def counted(collection: str) -> int:
            return (await client.call(lambda _: client.qdrant.count(collection), soon())).count

        return counted


class TestQdrantLocalStore(QdrantStoreContract):
    @pytest.fixture
    async def client(self) -> AsyncIterator[Client]:
        async with open_client(":memory:", None) as client:
            yield client


class TestQdrantEngineStore(QdrantStoreContract):
    @pytest.fixture
    async def client(self) -> AsyncIterator[Client]:
        async with engine() as (url, _), open_client(url, None) as client:
            yield client


_corpora = itertools.count(20_000)


@settings(deadline=None, max_examples=200)
@given(ops=operations(40))
async def test_memory_is_as_the_model_says_after_any_operations(ops: list[Op]) -> None:
    await DenseMachine(MemoryDense(), collection(next(_corpora))).run(ops)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(ops=operations(40))
async def test_qdrant_local_is_as_the_model_says_after_any_operations(ops: list[Op]) -> None:
    async with open_qdrant(":memory:") as store:
        await DenseMachine(store, collection(next(_corpora))).run(ops)


@settings(deadline=None, max_examples=10, derandomize=True)
@given(ops=operations(40))
async def test_qdrant_engine_is_as_the_model_says_after_any_operations(ops: list[Op]) -> None:
    async with engine() as (url, _), open_qdrant(url) as store:
        await DenseMachine(store, collection(next(_corpora))).run(ops)

"""Nearest neighbours by pgvector, in one table of half-precision vectors for each collection.

Small collections, and small filters, are scanned: exact, and a few milliseconds. Larger ones go through an HNSW index,
which is searched until enough rows that this generation sees are found; if it gives up before that, the scan decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import isnan
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import Duplicate, InconsistentGeneration
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.manifest import Manifest

_SQL = load("dense")
_NAME = re.compile(r"dense_[0-9]{1,10}_[0-9a-f]{12}")

EXACT_ROWS = 20_000
"""Vectors up to which a scan answers."""

INDEXED_DIMENSIONS = 4_000
"""The widest half-precision vector that pgvector can index."""


class Database(Protocol):
    """Lends connections and transactions; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block."""
        ...

    def maintenance(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection for statements that take long, with session settings of its own."""
        ...


@dataclass(frozen=True, slots=True)
class _Question:
    """The parameters of a search; `allowed` None means all."""

    collection: str
    vector: NDArray[np.float32]
    generation: int
    k: int
    allowed: list[int] | None

    def statement(self, unfiltered: str, filtered: str) -> tuple[str, list[Any]]:
        """Return that one of the two statements which fits, and its parameters."""
        values: list[Any] = [self.vector, self.generation, self.k]
        if self.allowed is None:
            return _statement(unfiltered, self.collection), values
        return _statement(filtered, self.collection), [*values, self.allowed]


class PgvectorDense:
    """A `DenseIndex` over the collections of one database."""

    def __init__(self, database: Database, exact_rows: int = EXACT_ROWS) -> None:
        self._database = database
        self._exact_rows = exact_rows
        self._known: set[tuple[str, str, int]] = set()

    async def search(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        k: int,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        """See `DenseIndex`. A vector without a direction (all zeros) is near to nothing."""
        rows = manifest.stores["dense"].rows
        candidates = rows if allowed is None else min(rows, len(allowed))
        if not candidates or not vector.any():
            return []
        chunks = None if allowed is None else allowed.tolist()
        question = _Question(manifest.collection, vector, manifest.generation, k, chunks)
        if candidates > self._exact_rows and manifest.dimension <= INDEXED_DIMENSIONS:
            found = await self._nearest(manifest, question, deadline)
            if len(found) >= min(k, candidates):
                return found
        async with self._database.connection(deadline) as tx:
            await self._check(tx, manifest)
            statement, values = question.statement("exact", "exact_among")
            return _ranked(await tx.fetch(statement, *values))

    async def similarities(
        self, manifest: Manifest, vector: NDArray[np.float32], chunks: Sequence[int], deadline: Deadline
    ) -> dict[int, float]:
        """See `DenseIndex`."""
        if not chunks:
            return {}
        async with self._database.connection(deadline) as tx:
            await self._check(tx, manifest)
            statement = _statement("similarities", manifest.collection)
            return dict(_ranked(await tx.fetch(statement, vector, manifest.generation, list(chunks))))

    async def ensure_index(self, manifest: Manifest, deadline: Deadline) -> bool:
        """Build the index where the collection has outgrown the scan; return whether this call built it.

        It takes about 0.3 ms a vector and blocks neither readers nor writers. One that broke off is made anew; one that
        somebody else is making is left alone.
        """
        if manifest.dense_store != "pgvector" or not await self._lacks_index(manifest, deadline):
            return False
        async with self._database.maintenance(deadline) as tx:
            await tx.execute(_SQL["set_build"])
            try:
                await tx.execute(_statement("drop_index", manifest.collection))
                await tx.execute(_statement("create_index", manifest.collection))
            except Duplicate:
                return False
        return True

    async def _lacks_index(self, manifest: Manifest, deadline: Deadline) -> bool:
        if manifest.dimension > INDEXED_DIMENSIONS:
            return False
        async with self._database.connection(deadline) as tx:
            await self._check(tx, manifest)
            grown: bool = await tx.fetchval(_statement("more_than", manifest.collection), self._exact_rows)
            state = await tx.fetchrow(_SQL["index_state"], f"{manifest.collection}_hnsw")
        return grown and not state["ready"] and not state["under_way"]

    async def _nearest(self, manifest: Manifest, question: _Question, deadline: Deadline) -> list[tuple[int, float]]:
        async with self._database.transaction(deadline) as tx:
            await self._check(tx, manifest)
            await tx.fetchrow(_SQL["set_scan"], str(min(1000, max(150, 3 * question.k))))
            statement, values = question.statement("nearest", "nearest_among")
            return _ranked(await tx.fetch(statement, *values))

    async def _check(self, tx: Tx, manifest: Manifest) -> None:
        """Make sure, once for each collection, that the catalogue knows it as the manifest does."""
        claim = (manifest.collection, manifest.embedding, manifest.dimension)
        if claim in self._known:
            return
        row = await tx.fetchrow(_SQL["collection"], manifest.collection)
        if row is None or (row["embedding"], row["dimension"]) != claim[1:]:
            raise InconsistentGeneration("the dense collection is not the one that the manifest describes")
        self._known.add(claim)


def _statement(name: str, collection: str) -> str:
    """Return the statement over this collection.

    A table cannot be a parameter. What replaces the placeholder matches a pattern without quote, space or capital,
    so it is an identifier and nothing else; that it is a collection too, `_check` has looked up before.
    """
    if not _NAME.fullmatch(collection):
        raise InconsistentGeneration("the manifest names no dense collection")
    return _SQL[name].replace("dense_collection", collection)


def _ranked(rows: Sequence[Any]) -> list[tuple[int, float]]:
    """Return (chunk id, similarity); a stored vector of zeros has no cosine and is similar to nothing."""
    return [(row["chunk_id"], 0.0 if isnan(row["similarity"]) else row["similarity"]) for row in rows]

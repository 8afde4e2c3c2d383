"""Chunks of a generation, as answers show and filters select them, from PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import numpy as np

from pipeline.deadline import Deadline
from pipeline.ports import Tx
from pipeline.queries import load
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.outline import Placed
from pipeline.retrieval.rows import Ints
from schemas.ids import CorpusId

_SQL = load("hydrate")


class Connections(Protocol):
    """Lends connections for single reads; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresChunks:
    """A `ChunkStore` over one database."""

    def __init__(self, database: Connections) -> None:
        self._database = database

    async def allowed(self, corpus: CorpusId, generation: int, filters: Mapping[str, Any], deadline: Deadline) -> Ints:
        """See `ChunkStore`."""
        metadata = {key: value for key, value in filters.items() if key not in ("document", "source")}
        values = (filters.get("document"), filters.get("source"), metadata)
        async with self._database.connection(deadline) as tx:
            packed = await tx.fetchval(_SQL["allowed_chunks"], corpus, generation, *values)
        return np.frombuffer(packed, dtype=">i8").astype(np.int64)

    async def chunks(
        self, corpus: CorpusId, generation: int, ids: Sequence[int], deadline: Deadline
    ) -> dict[int, StoredChunk]:
        """See `ChunkStore`."""
        async with self._database.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["chunks"], corpus, generation, list(ids))
        return {row["chunk_id"]: _chunk(row) for row in rows}

    async def neighbors(
        self, corpus: CorpusId, generation: int, places: Sequence[tuple[str, int]], window: int, deadline: Deadline
    ) -> list[StoredChunk]:
        """See `ChunkStore`."""
        documents, ordinals = [document for document, _ in places], [ordinal for _, ordinal in places]
        async with self._database.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["neighbors"], corpus, generation, documents, ordinals, window)
        return [_chunk(row) for row in rows]

    async def outlines(
        self, corpus: CorpusId, generation: int, documents: Sequence[str], most: int, deadline: Deadline
    ) -> list[Placed]:
        """See `ChunkStore`."""
        async with self._database.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["outlines"], corpus, generation, list(documents), most)
        return [Placed(row["chunk_id"], row["document_id"], row["title"], tuple(row["headings"])) for row in rows]

    async def values(self, corpus: CorpusId, generation: int, field: str, deadline: Deadline) -> dict[str, Any]:
        """See `ChunkStore`."""
        async with self._database.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["values"], corpus, generation, field)
        return {row["document_id"]: row["value"] for row in rows}


def _chunk(row: Any) -> StoredChunk:
    return StoredChunk(
        chunk_id=row["chunk_id"],
        document=row["document_id"],
        ordinal=row["ordinal"],
        text=row["text"],
        text_hash=row["text_hash"],
        lines=(row["first_line"], row["last_line"]),
        headings=tuple(row["headings"]),
        title=row["title"],
        metadata=row["metadata"],
    )

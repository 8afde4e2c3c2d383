"""Generations as columns, read from PostgreSQL: all of one, or only what changed since an earlier one.

Identifiers are uniform 63-bit hashes, so equal ranges of them are pages of about equal size, and memory stays bounded
without an order, a cursor or a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import GenerationChanged, NotFound
from pipeline.ports import Tx
from pipeline.queries import load
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, Ints, MentionRows, RelationRows
from schemas.ids import CorpusId, identity_key

_SQL = load("snapshot")

CHUNKS_PAGE = 32_768
"""Chunks in a page, with their mentions: some tens of megabytes."""
ROWS_PAGE = 262_144
"""Entities or relations in a page: some megabytes."""

_LAST_ID = (1 << 63) - 1
_ID = np.dtype(">i8")
_CHUNK = np.dtype([("chunk_id", ">i8"), ("ordinal", ">i4"), ("length", ">i4")])
_LINK = np.dtype([("chunk_id", ">i8"), ("entity_no", ">i8"), ("about", ">i2")])
_PAIR = np.dtype([("one", ">i8"), ("two", ">i8")])
_RELATION = np.dtype([("source", ">i8"), ("target", ">i8"), ("weight", ">f4")])


class Transactions(Protocol):
    """Opens transactions; the pool does."""

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block."""
        ...


class PostgresSnapshots:
    """A `SnapshotSource` over one database."""

    def __init__(self, pool: Transactions) -> None:
        self._pool = pool

    async def delta(self, corpus: CorpusId, since: int, generation: int, deadline: Deadline) -> Delta:
        """See `SnapshotSource`.

        Raises:
            GenerationChanged: rows of `since` are already reclaimed, so the difference can no longer be told.
            NotFound: `generation` is not readable.
        """
        async with self._pool.transaction(deadline) as tx:
            await tx.execute(_SQL["begin_load"])
            await _check(tx, corpus, since, generation)
            return await _read(tx, corpus, since, generation)


async def _check(tx: Tx, corpus: CorpusId, since: int, generation: int) -> None:
    found = {row["number"] for row in await tx.fetch(_SQL["readable"], corpus, [since, generation])}
    if generation not in found:
        raise NotFound(f"Generation {generation} is not readable.")
    if since and since not in found:
        raise GenerationChanged(f"Generation {since} is reclaimed.")


async def _read(tx: Tx, corpus: CorpusId, since: int, generation: int) -> Delta:
    span = (corpus, since, generation)
    sizes = await tx.fetchrow(_SQL["sizes"], *span)
    chunks, mentions = await _chunks(tx, span, sizes["chunks"])
    entities = [await tx.fetchrow(_SQL["born_entities"], *span, *page) for page in _pages(sizes["entities"], ROWS_PAGE)]
    relations: list[Any] = []
    for page in _pages(sizes["relations"], ROWS_PAGE):
        relations.extend(await tx.fetch(_SQL["born_relations"], *span, *page))
    return Delta(
        generation=generation,
        dead_chunks=_numbers([await tx.fetchval(_SQL["dead_chunks"], *span)], _ID).astype(np.int64),
        dead_entities=_numbers([await tx.fetchval(_SQL["dead_entities"], *span)], _ID).astype(np.int64),
        dead_relations=_relations(await tx.fetch(_SQL["dead_relations"], *span)),
        chunks=chunks,
        mentions=mentions,
        entities=_entities(entities),
        relations=_relations(relations),
    )


async def _chunks(tx: Tx, span: tuple[CorpusId, int, int], size: int) -> tuple[ChunkRows, MentionRows]:
    """Read the new chunks and their mentions, page by page; without new chunks there are no new mentions."""
    pages: list[Any] = []
    pairs: list[bytes] = []
    for page in _pages(size, CHUNKS_PAGE) if size else ():
        pages.append(await tx.fetchrow(_SQL["born_chunks"], *span, *page))
        pairs.append(await tx.fetchval(_SQL["born_mentions"], *span, *page))
    numbers = _numbers([page["numbers"] for page in pages], _CHUNK)
    links = _numbers(pairs, _LINK)
    # Equal names become one object: there are many more chunks than documents.
    names: dict[str, str] = {}
    chunks = ChunkRows(
        chunk_id=numbers["chunk_id"].astype(np.int64),
        document=[names.setdefault(name, name) for page in pages for name in page["documents"]],
        ordinal=numbers["ordinal"].astype(np.int32),
        length=numbers["length"].astype(np.int32),
        terms=[terms for page in pages for terms in page["terms"]],
    )
    about = links["about"].astype(np.bool_)
    return chunks, MentionRows(links["chunk_id"].astype(np.int64), links["entity_no"].astype(np.int64), about)


def _pages(rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the inclusive ranges of ids that cut this many rows into pages of about this size; at least one."""
    count = max(1, -(-rows // size))
    bounds = [_LAST_ID * part // count for part in range(count + 1)]
    for part in range(count):
        yield bounds[part] + (1 if part else 0), bounds[part + 1]


def _numbers(parts: Iterable[bytes], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(b"".join(parts), dtype=dtype)


def _entities(pages: Sequence[Any]) -> EntityRows:
    numbers = _numbers([page["numbers"] for page in pages], _PAIR)
    pairs = [pair for page in pages for pair in zip(page["keys"], page["names"], strict=True)]
    keys = [key if name is None else identity_key(name) or key for key, name in pairs]
    return EntityRows(numbers["one"].astype(np.int64), keys, numbers["two"].astype(np.int64))


def _relations(rows: Sequence[Any]) -> RelationRows:
    parts = [np.frombuffer(row["numbers"], dtype=_RELATION) for row in rows]
    numbers = np.concatenate([np.empty(0, dtype=_RELATION), *parts])
    types: list[str] = []
    for row, part in zip(rows, parts, strict=True):
        types += [row["type"]] * len(part)
    source: Ints = numbers["source"].astype(np.int64)
    return RelationRows(source, numbers["target"].astype(np.int64), types, numbers["weight"].astype(np.float32))

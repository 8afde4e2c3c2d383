"""What the stores outside of PostgreSQL have to follow: the rows of a generation, page by page, and what may go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import NotFound
from pipeline.graphs.parts import GraphChunk, GraphMention, GraphPart
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, EntityNo

_SQL = load("projection")

PAGE = 4_000
"""Rows of one part: a driver packs them in some 0.1 s, in which nothing else has its turn."""

_BEFORE = -1
"""Less than any id."""


class Connections(Protocol):
    """Lends connections; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """What a corpus is called in other stores: `uid` (32 hex digits) is unique everywhere, `name` for people."""

    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Kept:
    """See `generations.outside.Kept`."""

    uid: str
    name: str
    graph_ids: frozenset[str]
    graph_stores: tuple[str, ...]
    numbers: tuple[int, ...]
    last: int
    void: tuple[int, ...]
    collections: dict[str, str]


@dataclass(frozen=True, slots=True)
class Buried:
    """See `generations.outside.Buried`."""

    uid: str
    name: str
    collections: dict[str, str]
    graph_stores: tuple[str, ...]
    cold: bool


class PostgresProjection:
    """Reads what other stores follow. Each page is one statement on a connection of its own."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def identity(self, corpus: CorpusId, deadline: Deadline) -> Identity:
        """Return what the corpus is called elsewhere. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["identity"], corpus)
        if row is None:
            raise NotFound("The corpus is gone.")
        return Identity(row["uid"], row["name"])

    async def void(self, corpus: CorpusId, number: int, deadline: Deadline) -> tuple[int, ...]:
        """Return the numbers below this one, of the last day, that were begun and never published."""
        async with self._pool.connection(deadline) as tx:
            return tuple(row["number"] for row in await tx.fetch(_SQL["void"], corpus, number))

    async def ended_documents(self, corpus: CorpusId, number: int, deadline: Deadline) -> list[str]:
        """Return the documents that a number removed."""
        async with self._pool.connection(deadline) as tx:
            return [row["document_id"] for row in await tx.fetch(_SQL["ended_documents"], corpus, number)]

    async def size(self, corpus: CorpusId, number: int, deadline: Deadline) -> int:
        """Return about how many rows `parts` will yield, its mentions left out."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["sizes"], corpus, number)
        return int(row["chunks"] + row["entities"] + row["relations"])

    async def parts(
        self, corpus: CorpusId, number: int, deadline: Callable[[], Deadline]
    ) -> AsyncGenerator[GraphPart, None]:
        """Yield the graph that a number sees: chunks and entities, then what joins them. `deadline` is that of one page."""
        async for rows in self._pages("chunks", (corpus, number), (_BEFORE,), deadline):
            yield GraphPart(chunks=[GraphChunk(*row) for row in rows])
        async for rows in self._pages("entities", (corpus, number), (_BEFORE,), deadline):
            yield GraphPart(entities=[Entity(*row) for row in rows])
        async for rows in self._pages("relations", (corpus, number), (_BEFORE, _BEFORE, ""), deadline):
            yield GraphPart(relations=[Relation(EntityNo(r[0]), EntityNo(r[1]), *r[2:]) for r in rows])
        async for rows in self._pages("mentions", (corpus, number), (_BEFORE, _BEFORE), deadline):
            yield GraphPart(mentions=[GraphMention(*row) for row in rows])

    async def _pages(
        self, query: str, scope: tuple[int, int], after: tuple[Any, ...], deadline: Callable[[], Deadline]
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield pages in the order of their first columns, which `after` continues."""
        while True:
            async with self._pool.connection(deadline()) as tx:
                rows = await tx.fetch(_SQL[query], *scope, *after, PAGE)
            if rows:
                yield rows
            if len(rows) < PAGE:
                return
            after = tuple(rows[-1])[: len(after)]

    async def kept(self, corpus: CorpusId, deadline: Deadline) -> Kept | None:
        """Return what must stay of a corpus in other stores; None if it is gone."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["kept"], corpus)
        if row is None:
            return None
        numbers, void = tuple(row["numbers"]), tuple(row["void"])
        graphs, stores = frozenset(row["graph_ids"]), tuple(row["graph_stores"])
        return Kept(row["uid"], row["name"], graphs, stores, numbers, row["last"], void, dict(row["collections"]))

    async def buried(self, deadline: Deadline) -> list[Buried]:
        """Return what deleted corpora may have left behind, oldest first, up to 100 of them."""
        async with self._pool.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["buried"])
        return [Buried(r["uid"], r["name"], dict(r["collections"]), tuple(r["graph_stores"]), r["cold"]) for r in rows]

    async def forget_buried(self, uid: str, deadline: Deadline) -> None:
        """Forget a deleted corpus of which nothing can be left."""
        async with self._pool.connection(deadline) as tx:
            await tx.execute(_SQL["forget_buried"], uid)

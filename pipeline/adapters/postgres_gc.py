"""Taking away what no reader can see any more: aborted builds, and generations beyond retention that nobody holds.

Everything here is idempotent, works in batches that commit by themselves, and may run in several workers at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.ids import CorpusId

_SQL = load("gc")

BATCH = 10_000
"""Rows that one transaction deletes at most."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What one pass took away: generation numbers, rows by table, dense tables, cached rows."""

    generations: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    rows: dict[str, int] = field(default_factory=dict[str, int])
    collections: tuple[str, ...] = ()
    cached: int = 0


class Transactions(Protocol):
    """Opens transactions; the pool does."""

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block."""
        ...


DropOutside = Callable[[str, str, Deadline], Awaitable[bool]]
"""Drops a collection in another store, by store and name; whether this process has that store."""


class PostgresCollector:
    """The garbage collector of one database."""

    def __init__(self, pool: Transactions, drop_outside: DropOutside | None = None) -> None:
        self._pool = pool
        self._drop_outside = drop_outside or _nothing_outside
        self._swept: dict[CorpusId, int] = {}

    async def corpora(self, deadline: Deadline) -> list[tuple[CorpusId, int, float]]:
        """Return every corpus with how many generations, and how many days of runs and events, it keeps."""
        async with self._pool.transaction(deadline) as tx:
            rows = await tx.fetch(_SQL["all_corpora"])
        return [(CorpusId(row["corpus_id"]), row["keep"], row["days"]) for row in rows]

    async def collect(self, corpus: CorpusId, keep: int, deadline: Deadline) -> Reclaimed:
        """Make one pass over a corpus of which the newest `keep` generations stay readable (the current one always)."""
        aborted = await self.abort_orphans(corpus, deadline)
        generations = await self._close_surplus(corpus, keep, deadline)
        rows = await self._reclaim(corpus, deadline)
        cached = await self._forget_cached(corpus, "chunk" in rows, deadline)
        return Reclaimed(generations, aborted, rows, await self._drop_collections(corpus, deadline), cached)

    async def abort(self, corpus: CorpusId, number: int, deadline: Deadline) -> None:
        """Undo an open build: delete what it bore and revive what it killed. It must not be running any more.

        Readers notice nothing. The number stays `building` until all is undone, so an interrupted abort is taken up
        again; one that is not open is left alone.
        """
        async with self._pool.transaction(deadline) as tx:
            if await tx.fetchval(_SQL["building"], corpus, number) is None:
                return
            tables = [row["name"] for row in await tx.fetch(_SQL["versioned_tables"], corpus)]
        for table in tables:
            while await self._step("undo_rows", deadline, table, corpus, number, BATCH):
                pass
        async with self._pool.transaction(deadline) as tx:
            await tx.execute(_SQL["close_aborted"], corpus, number)

    async def abort_orphans(self, corpus: CorpusId, deadline: Deadline) -> tuple[int, ...]:
        """Undo the builds whose runs have ended without completing them; return their numbers."""
        async with self._pool.transaction(deadline) as tx:
            numbers = tuple(row["number"] for row in await tx.fetch(_SQL["orphans"], corpus))
        for number in numbers:
            await self.abort(corpus, number, deadline)
        return numbers

    async def _close_surplus(self, corpus: CorpusId, keep: int, deadline: Deadline) -> tuple[int, ...]:
        async with self._pool.transaction(deadline) as tx:
            await tx.execute(_SQL["expired_pins"], corpus)
            candidates = [row["number"] for row in await tx.fetch(_SQL["surplus"], corpus, keep)]
        return tuple([number for number in candidates if await self._close(corpus, number, deadline)])

    async def _close(self, corpus: CorpusId, number: int, deadline: Deadline) -> bool:
        """Close a generation to readers; two statements, so that the second sees the pins taken before the lock."""
        async with self._pool.transaction(deadline) as tx:
            if await tx.fetchval(_SQL["lock_generation"], corpus, number) is None:
                return False
            return (await tx.execute(_SQL["reclaim_generation"], corpus, number)).endswith(" 1")

    async def _reclaim(self, corpus: CorpusId, deadline: Deadline) -> dict[str, int]:
        async with self._pool.transaction(deadline) as tx:
            row = await tx.fetchrow(_SQL["kept"], corpus)
            if row is None:
                return {}
            tables = [table["name"] for table in await tx.fetch(_SQL["versioned_tables"], corpus)]
        deleted: dict[str, int] = {}
        for table in tables:
            while rows := await self._step(
                "reclaim_rows", deadline, table, corpus, row["numbers"], row["last_generation"], BATCH
            ):
                deleted[table] = deleted.get(table, 0) + rows
        return deleted

    async def _forget_cached(self, corpus: CorpusId, texts_went: bool, deadline: Deadline) -> int:
        """Forget paid work on texts that are gone; a build under way, or one to be tried again, may still need it."""
        async with self._pool.transaction(deadline) as tx:
            current = await tx.fetchval(_SQL["quiet"], corpus)
            if current is None or (self._swept.get(corpus) == current and not texts_went):
                return 0
            unused = ("unused_vectors", "unused_extractions", "unused_contexts")
            tags = [await tx.execute(_SQL[name], corpus) for name in unused]
        self._swept[corpus] = current
        return sum(int(tag.split()[-1]) for tag in tags)

    async def _drop_collections(self, corpus: CorpusId, deadline: Deadline) -> tuple[str, ...]:
        """Drop what no readable generation names; what lies in another store goes there first, under the same lock."""
        async with self._pool.transaction(deadline) as tx:
            await tx.execute(_SQL["short_locks"])
            if await tx.fetchval(_SQL["quiet"], corpus) is None:
                return ()
            dropped: list[str] = []
            for row in await tx.fetch(_SQL["unused_collections"], corpus):
                store, name = row["store"], row["name"]
                if store == "pgvector" or await self._drop_outside(store, name, deadline):
                    await tx.execute(_SQL["drop_collection"], corpus, name)
                    dropped.append(name)
            return tuple(dropped)

    async def _step(self, query: str, deadline: Deadline, *args: object) -> int:
        async with self._pool.transaction(deadline) as tx:
            return int(await tx.fetchval(_SQL[query], *args))


async def _nothing_outside(store: str, collection: str, deadline: Deadline) -> bool:
    """Say that this process does not have the store."""
    return False

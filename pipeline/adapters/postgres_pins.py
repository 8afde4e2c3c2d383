"""Pins as rows of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.errors import NotFound
from pipeline.generations.pins import Key
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.corpora import Corpus
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.settings import CorpusSettings

_SQL = load("pins")


class Connections(Protocol):
    """Lends connections; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresPins:
    """A `PinStore` over one database."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def current(self, tenant: str, name: str, deadline: Deadline) -> Corpus:
        """See `PinStore`."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["current"], tenant, name)
        if row is None:
            raise NotFound(f"Corpus not found: {name}. `sapwood index {name} FOLDER` makes it.")
        settings = CorpusSettings.model_validate(row["settings"])
        return Corpus(CorpusId(row["corpus_id"]), tenant, name, settings, row["current_generation"])

    async def take(self, key: Key, holder: str, lease: float, deadline: Deadline) -> Manifest | None:
        """See `PinStore`."""
        async with self._pool.connection(deadline) as tx:
            found = await tx.fetchval(_SQL["take_pin"], *key, holder, lease)
        return None if found is None else Manifest.model_validate(found)

    async def renew(self, keys: Sequence[Key], holder: str, lease: float, deadline: Deadline) -> set[Key]:
        """See `PinStore`."""
        corpora, numbers = [key[0] for key in keys], [key[1] for key in keys]
        async with self._pool.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["renew_pins"], holder, corpora, numbers, lease)
        return {(CorpusId(row["corpus_id"]), row["number"]) for row in rows}

    async def drop(self, keys: Sequence[Key], holder: str, deadline: Deadline) -> None:
        """See `PinStore`."""
        corpora, numbers = [key[0] for key in keys], [key[1] for key in keys]
        async with self._pool.connection(deadline) as tx:
            await tx.execute(_SQL["drop_pins"], holder, corpora, numbers)

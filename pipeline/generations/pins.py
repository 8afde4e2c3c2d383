"""Pins: a process tells the collector which generations its readers hold, by one leased row per generation.

A query that finds its generation pinned costs one small read. Nothing is written when it ends: a pin without readers is
not renewed and expires. So a generation can be reclaimed one lease after its last reader, and a crash costs no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import GenerationChanged, NotFound
from schemas.corpora import Corpus
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.settings import CorpusSettings

LEASE = 10.0
"""Seconds that a pin lasts; renew every third of it."""

_MARGIN = LEASE / 5
"""Seconds of lease below which a new reader takes the pin again rather than rely on the next renewal."""

_ATTEMPTS = 5

Key = tuple[CorpusId, int]


class PinStore(Protocol):
    """The rows behind pins. Leases are on the database's clock."""

    async def current(self, tenant: str, name: str, deadline: Deadline) -> Corpus:
        """Return the corpus with its current generation. Raises NotFound."""
        ...

    async def take(self, key: Key, holder: str, lease: float, deadline: Deadline) -> Manifest | None:
        """Pin a generation for `lease` seconds and return its manifest; None if it is no longer readable."""
        ...

    async def renew(self, keys: Sequence[Key], holder: str, lease: float, deadline: Deadline) -> set[Key]:
        """Extend these pins and return those that were still there."""
        ...

    async def drop(self, keys: Sequence[Key], holder: str, deadline: Deadline) -> None:
        """Give these pins back."""
        ...


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a reader holds: everything it needs to read one generation of one corpus."""

    corpus_id: CorpusId
    manifest: Manifest
    settings: CorpusSettings


@dataclass(slots=True)
class _Held:
    manifest: Manifest
    until: float
    readers: int = 0
    lost: bool = False


class PinBoard:
    """The pins of one process. `holder` is its name; no two live processes may share one."""

    def __init__(self, store: PinStore, holder: str) -> None:
        self._store = store
        self._holder = holder
        self._held: dict[Key, _Held] = {}

    @asynccontextmanager
    async def pin(
        self, tenant: str, name: str, deadline: Deadline, number: int | None = None
    ) -> AsyncGenerator[Pinned, None]:
        """Hold the generation that is current now, or the one of this number, until the end of the block.

        Whatever is promoted meanwhile changes nothing.

        Raises:
            NotFound: there is no such corpus, nothing was promoted yet, or this number can no longer be read.
            GenerationChanged: at the end of the block: the lease was lost, so what was read may have holes.
        """
        corpus, held = await self._hold(tenant, name, number, deadline)
        try:
            yield Pinned(corpus.corpus_id, held.manifest, corpus.settings)
        finally:
            held.readers -= 1
        if held.lost:
            raise GenerationChanged(f"Generation {held.manifest.generation} was reclaimed while read; ask again.")

    async def renew(self, deadline: Deadline) -> None:
        """Extend the pins that have readers and forget the others once they expired. Call it every third of LEASE."""
        now = anyio.current_time()
        self._held = {key: held for key, held in self._held.items() if held.readers or held.until > now}
        mine = {key: held for key, held in self._held.items() if held.readers}
        if not mine:
            return
        kept = await self._store.renew(list(mine), self._holder, LEASE, deadline)
        for key, held in mine.items():
            if key in kept:
                held.until = now + LEASE
            else:
                held.lost = True
                self._held.pop(key, None)

    async def close(self, deadline: Deadline) -> None:
        """Give all pins back, at shutdown."""
        keys = list(self._held)
        self._held.clear()
        if keys:
            await self._store.drop(keys, self._holder, deadline)

    async def _hold(self, tenant: str, name: str, number: int | None, deadline: Deadline) -> tuple[Corpus, _Held]:
        """Pin the current generation; if it is reclaimed in the moment between, another one is current by now."""
        for _ in range(_ATTEMPTS):
            corpus = await self._store.current(tenant, name, deadline)
            if corpus.generation is None:
                raise NotFound(f"Corpus {name} has no generation yet; its first index run is not done.")
            held = await self._pinned((corpus.corpus_id, number or corpus.generation), deadline)
            if held is not None:
                held.readers += 1
                return corpus, held
            if number is not None:
                raise NotFound(f"Generation {number} of corpus {name} can no longer be read.")
        raise GenerationChanged()

    async def _pinned(self, key: Key, deadline: Deadline) -> _Held | None:
        now = anyio.current_time()
        held = self._held.get(key)
        if held is not None and held.until > now + _MARGIN:
            return held
        manifest = await self._store.take(key, self._holder, LEASE, deadline)
        if manifest is None:
            return None
        held = self._held.setdefault(key, _Held(manifest, now + LEASE))
        held.until = max(held.until, now + LEASE)
        return held

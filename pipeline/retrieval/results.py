"""Results that were computed before: complete ones only, keyed by the generation, so that none is ever stale."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import orjson

from pipeline.deadline import Deadline
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.query import QueryRequest, QueryResult
from schemas.settings import CorpusSettings

TTL = 300.0
"""Seconds that a result is kept."""

_NOT_IN_THE_ANSWER = {"deadline", "partial", "cache"}
"""Fields of a request that do not change which documents are found."""


def result_key(
    corpus: CorpusId,
    manifest: Manifest,
    settings: CorpusSettings,
    request: QueryRequest,
    fingerprints: Sequence[str] = (),
) -> bytes:
    """Return the hash of all that decides a complete result; settings of the search can change within a generation.

    The request has its defaults filled in, the time of a question by recency among them; `fingerprints` are those of the
    models that assist.
    """
    parts = [
        corpus,
        manifest.generation,
        manifest.collection,
        manifest.embedding,
        settings.graph_search.model_dump(),
        settings.keyword.model_dump(),
        settings.fusion.model_dump(),
        request.model_dump(exclude=_NOT_IN_THE_ANSWER),
        fingerprints,
    ]
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).digest()


@dataclass(slots=True)
class _Turn:
    """Who computes a result, and how many want it."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    result: QueryResult
    size: int
    until: float


class ResultCache:
    """At most `max_entries` results and `max_bytes` of them (as JSON), each for `ttl` seconds."""

    def __init__(self, max_entries: int = 2048, max_bytes: int = 64 << 20, ttl: float = TTL) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._ttl = ttl
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._turns: dict[bytes, _Turn] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def serve(self, key: bytes, deadline: Deadline, compute: Callable[[], Awaitable[QueryResult]]) -> QueryResult:
        """Return the result under this key, computed at most once at a time.

        Who comes second waits, but for no more than half of the time left: a first one that is slow, fails or is
        cancelled costs nobody else the answer.
        """
        found = self._fresh(key)
        if found is not None:
            return found
        async with self._turn(key, deadline):
            found = self._fresh(key)
            if found is not None:
                return found
            result = await compute()
            self._put(key, result)
            return result

    @asynccontextmanager
    async def _turn(self, key: bytes, deadline: Deadline) -> AsyncGenerator[None, None]:
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        mine = False
        try:
            with anyio.move_on_after(deadline.remaining() / 2):
                await turn.lock.acquire()
                mine = True
            yield
        finally:
            if mine:
                turn.lock.release()
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    def _fresh(self, key: bytes) -> QueryResult | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= anyio.current_time():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.result

    def _put(self, key: bytes, result: QueryResult) -> None:
        if not result.complete:
            return
        if key in self._entries:
            self._drop(key)
        size = len(result.model_dump_json())
        kept = result.model_copy(update={"cached": True})
        self._entries[key] = _Entry(kept, size, anyio.current_time() + self._ttl)
        self._bytes += size
        while self._entries and (len(self._entries) > self._max_entries or self._bytes > self._max_bytes):
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._entries.pop(key).size

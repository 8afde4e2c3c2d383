"""Paid work in PostgreSQL: vectors as little-endian float32, extractions as compact JSON; one statement for each
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.generations.rows import stored
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import Extraction, Fact, Mention, MentionOrigin, Scalar
from schemas.ids import CorpusId

_SQL = load("cache")

CAP = 30.0
"""Seconds that one look-up or write may take."""


class Connections(Protocol):
    """Lends connections for single statements; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresCache:
    """A `Cache` and a `ContextCache` over one database."""

    def __init__(self, database: Connections) -> None:
        self._database = database

    async def vectors(
        self, corpus: CorpusId, fingerprint: str, hashes: Sequence[bytes]
    ) -> dict[bytes, NDArray[np.float32]]:
        """See `Cache`."""
        rows = await self._fetch("vectors", corpus, fingerprint, list(hashes)) if hashes else ()
        return {row["text_hash"]: np.frombuffer(row["vector"], "<f4").astype(np.float32) for row in rows}

    async def put_vectors(self, corpus: CorpusId, fingerprint: str, found: dict[bytes, NDArray[np.float32]]) -> None:
        """See `Cache`."""
        if found:
            data = [vector.astype("<f4").tobytes() for vector in found.values()]
            await self._fetch("put_vectors", corpus, fingerprint, list(found), data)

    async def extractions(self, corpus: CorpusId, fingerprint: str, hashes: Sequence[bytes]) -> dict[bytes, Extraction]:
        """See `Cache`."""
        rows = await self._fetch("extractions", corpus, fingerprint, list(hashes)) if hashes else ()
        return {row["text_hash"]: unpack(row["extraction"]) for row in rows}

    async def put_extractions(self, corpus: CorpusId, fingerprint: str, found: dict[bytes, Extraction]) -> None:
        """See `Cache`."""
        if found:
            await self._fetch(
                "put_extractions", corpus, fingerprint, list(found), [pack(one) for one in found.values()]
            )

    async def contexts(self, corpus: CorpusId, fingerprint: str, places: Sequence[bytes]) -> dict[bytes, str]:
        """See `ContextCache`."""
        rows = await self._fetch("contexts", corpus, fingerprint, list(places)) if places else ()
        return {row["place_hash"]: row["context"] for row in rows}

    async def put_context(
        self, corpus: CorpusId, fingerprint: str, place: bytes, passage_hash: bytes, context: str
    ) -> None:
        """See `ContextCache`."""
        await self._fetch("put_context", corpus, fingerprint, place, passage_hash, context)

    async def _fetch(self, query: str, *args: Any) -> Sequence[Any]:
        deadline = Deadline.after(CAP)
        async with self._database.connection(deadline) as tx:
            return await tx.fetch(_SQL[query], *args)


def pack(one: Extraction) -> str:
    """Return an extraction as JSON: mentions and facts as arrays of their fields, in the order of their classes.

    Empty properties are left out.
    """
    mentions = [(m.name, m.type, m.start, m.end, m.origin, m.description, *_stored(m.properties)) for m in one.mentions]
    facts = [
        (
            *(f.subject, f.subject_type, f.type, f.object, f.object_type, f.confidence, f.start, f.end),
            *_stored(f.properties),
        )
        for f in one.facts
    ]
    return orjson.dumps([mentions, facts, one.input_tokens, one.output_tokens, one.warnings]).decode()


def unpack(data: str) -> Extraction:
    """Return the extraction that `pack` wrote."""
    mentions, facts, input_tokens, output_tokens, warnings = orjson.loads(data)
    return Extraction(
        tuple(
            Mention(name, kind, start, end, MentionOrigin(origin), text, *properties)
            for name, kind, start, end, origin, text, *properties in mentions
        ),
        tuple(Fact(*fact) for fact in facts),
        input_tokens,
        output_tokens,
        tuple(warnings),
    )


def _stored(properties: Mapping[str, Scalar]) -> tuple[dict[str, Any], ...]:
    return (stored(properties),) if properties else ()

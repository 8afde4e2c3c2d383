"""TEMPORAL: when the documents of a generation are from, and what that makes of a score."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

import anyio.to_thread
import numpy as np

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError
from pipeline.retrieval.chunks import Bools, Floats, find
from pipeline.retrieval.fuse import Fused
from pipeline.retrieval.hydrate import ChunkStore
from pipeline.retrieval.rows import Ints
from pipeline.retrieval.snapshot import Snapshot
from schemas.ids import CorpusId, number_of
from schemas.moments import moment
from schemas.query import Temporal
from schemas.settings import TemporalSettings

DAY = 86_400.0

STEP = 300.0
"""Seconds for which a question that names no time of its own is asked at the same time, so that its answer can be kept."""

STEP_SHARE = 0.01
"""That time at most, as a part of the half-life: it then changes no score by more than 0.7 %."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How a request weighs time, all of it given. Times are in seconds since 1970, the window is half open."""

    field: str
    half_life: float
    weight: float
    since: float
    until: float
    now: float

    @classmethod
    def of(cls, wanted: Temporal | None, settings: TemporalSettings, now: float) -> Self:
        """Fill in what a request leaves open; `now` is the time of the question.

        Raises:
            ConfigurationError: neither the request nor the corpus says where the time is.
        """
        asked = wanted or Temporal()
        field = asked.field or settings.field
        if not field:
            raise ConfigurationError(
                "temporal.field: TEMPORAL needs the key of the metadata that holds a time; name it here or in the corpus."
            )
        half_life = DAY * (settings.half_life_days if asked.half_life_days is None else asked.half_life_days)
        weight = settings.weight if asked.weight is None else asked.weight
        step = min(STEP, STEP_SHARE * half_life)
        at = _given(asked.now, now // step * step)
        return cls(field, half_life, weight, _given(asked.since, -np.inf), _given(asked.until, np.inf), at)

    @property
    def wire(self) -> Temporal:
        """The same as a request says it: what decides an answer, and so its key in the cache."""
        since, until = (at if np.isfinite(at) else None for at in (self.since, self.until))
        days = self.half_life / DAY
        return Temporal(
            field=self.field, half_life_days=days, weight=self.weight, since=since, until=until, now=self.now
        )

    def inside(self, times: Floats) -> Bools:
        """Return which times are in the window; what has none (NaN) is not."""
        return (times >= self.since) & (times < self.until)

    def factors(self, times: Floats) -> Floats:
        """Return what scores are multiplied by; what is later than now is as if from now."""
        age = np.maximum(self.now - times, 0.0)
        return 1.0 - self.weight + self.weight * np.exp2(-age / self.half_life)

    @property
    def shown(self) -> str:
        """Its time of the question, for people."""
        return datetime.fromtimestamp(self.now, UTC).isoformat(timespec="seconds")


def _given(value: Any, otherwise: float) -> float:
    at = moment(value)
    return otherwise if at is None else at


@dataclass(frozen=True, slots=True)
class Dates:
    """The times of the documents that have one: ascending hashes of document ids, and seconds since 1970."""

    document_nos: Ints
    times: Floats

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Read them from the metadata of documents; what is no time counts as none."""
        read = {number_of(document): moment(value) for document, value in values.items()}
        found = sorted((number, at) for number, at in read.items() if at is not None)
        return cls(np.array([n for n, _ in found], dtype=np.int64), np.array([t for _, t in found], dtype=np.float64))

    def by_row(self, snapshot: Snapshot) -> Floats:
        """Return the time of each chunk of the snapshot, NaN where it has none."""
        at = find(self.document_nos, snapshot.chunks.document_nos)
        return np.where(at < 0, np.nan, np.append(self.times, np.nan)[at])


class DateCache:
    """The dates of the generations and fields that were asked for last. A generation never changes, so nor do they."""

    def __init__(self, store: ChunkStore, most: int = 16) -> None:
        self._store = store
        self._most = most
        self._held: OrderedDict[tuple[CorpusId, int, str], Dates] = OrderedDict()

    async def get(self, corpus: CorpusId, generation: int, field: str, deadline: Deadline) -> Dates:
        """Return the dates, read if need be; whoever asks meanwhile reads them too. Raises DeadlineExceeded."""
        key = (corpus, generation, field)
        if key not in self._held:
            values = await self._store.values(corpus, generation, field, deadline)
            self._held[key] = await anyio.to_thread.run_sync(Dates.read, values, abandon_on_cancel=True)
        self._held.move_to_end(key)
        found = self._held[key]
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return found


def weighed(found: Sequence[Fused], snapshot: Snapshot, times: Floats, clock: Clock) -> list[Fused]:
    """Return the hits with their scores weighed by recency, best first; ties keep their order. Live ones have no time."""
    dated = [hit for hit in found if hit.chunk_id >= 0]
    factors = clock.factors(times[snapshot.rows(hit.chunk_id for hit in dated)]).tolist()
    scored = [replace(hit, score=hit.score * factor) for hit, factor in zip(dated, factors, strict=True)]
    return sorted(scored, key=lambda hit: -hit.score)

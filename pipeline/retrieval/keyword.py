"""Exact BM25 over immutable segments of postings; what is dead is left out of every count, so segments never show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pipeline.retrieval.chunks import Bools, Floats, RowChange, Rows
from pipeline.retrieval.rows import ChunkRows, Ints

SEGMENT = 1 << 14
"""Chunks in the largest segment that merging makes: bounds both the cost of one merge and the number of segments."""

_TERM_BYTES = 9
"""A packed term: an 8-byte hash and a 1-byte count."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Postings of some chunks, by term: those of `terms[i]` are `offsets[i]:offsets[i + 1]` of `slots` and `counts`."""

    terms: Ints
    offsets: NDArray[np.int32]
    slots: NDArray[np.int32]
    counts: NDArray[np.uint8]
    chunks: int

    @classmethod
    def group(cls, terms: Ints, slots: NDArray[np.int32], counts: NDArray[np.uint8], chunks: int) -> Self:
        """Sort postings by term; those of one term keep their order."""
        order = np.argsort(terms, kind="stable")
        ordered = terms[order]
        starts = np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]]))
        offsets = np.append(starts, len(ordered)).astype(np.int32)
        return cls(ordered[starts], offsets, slots[order], counts[order], chunks)

    @classmethod
    def pack(cls, packed: Sequence[bytes], first_slot: int) -> Self:
        """Build the segment of these chunks, which take the slots from `first_slot` on."""
        sizes = np.array([len(terms) for terms in packed], dtype=np.int64) // _TERM_BYTES
        buffer = np.frombuffer(b"".join(packed), dtype=np.uint8)
        widths = np.column_stack([8 * sizes, sizes]).ravel()
        is_hash = np.repeat(np.tile([True, False], len(sizes)), widths)
        terms = buffer[is_hash].view("<i8").astype(np.int64)
        slots = np.repeat(np.arange(first_slot, first_slot + len(sizes), dtype=np.int32), sizes)
        return cls.group(terms, slots, buffer[~is_hash], len(packed))

    def renumbered(self, slot_of: NDArray[np.int32]) -> Self:
        """Drop the postings of dead slots (-1) and give the others their new slots."""
        moved = slot_of[self.slots]
        live = moved >= 0
        before = np.concatenate([[0], np.cumsum(live)])[self.offsets]
        used = np.diff(before) > 0
        offsets = np.append(before[:-1][used], before[-1]).astype(np.int32)
        chunks = len(np.unique(moved[live]))
        return replace(
            self, terms=self.terms[used], offsets=offsets, slots=moved[live], counts=self.counts[live], chunks=chunks
        )

    def postings(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the slots that hold this term and how often each does."""
        at = int(np.searchsorted(self.terms, term))
        if at == len(self.terms) or self.terms[at] != term:
            return self.slots[:0], self.counts[:0]
        span = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
        return self.slots[span], self.counts[span]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.terms.nbytes + self.offsets.nbytes + self.slots.nbytes + self.counts.nbytes


def _merged(one: Segment, two: Segment) -> Segment:
    terms = np.concatenate([np.repeat(s.terms, np.diff(s.offsets)) for s in (one, two)])
    slots = np.concatenate([one.slots, two.slots])
    return Segment.group(terms, slots, np.concatenate([one.counts, two.counts]), one.chunks + two.chunks)


@dataclass(frozen=True, slots=True)
class KeywordIndex:
    """Segments address chunks by *slot*, which a chunk keeps as long as it lives, whatever happens to the rows.

    `lengths` (terms of a chunk) and `alive` are by slot, `slots` is by row.
    """

    segments: tuple[Segment, ...]
    lengths: NDArray[np.int32]
    alive: Bools
    slots: NDArray[np.int32]
    total_length: int

    @classmethod
    def empty(cls) -> Self:
        """Return the index without chunks."""
        none = np.empty(0, dtype=np.int32)
        return cls((), none, np.empty(0, dtype=np.bool_), none, 0)

    def apply(self, change: RowChange, born: ChunkRows) -> Self:
        """Return the next generation's index."""
        first = len(self.lengths)
        new = np.arange(first, first + len(born.terms), dtype=np.int32)
        slots = change.merge(self.slots, new)
        lengths = np.concatenate([self.lengths, born.length.astype(np.int32)])
        alive = np.zeros(len(lengths), dtype=np.bool_)
        alive[slots] = True
        segments = list(self.segments)
        for start in range(0, len(born.terms), SEGMENT):
            segments.append(Segment.pack(born.terms[start : start + SEGMENT], first + start))
            _settle(segments)
        following = type(self)(tuple(segments), lengths, alive, slots, int(lengths[slots].sum(dtype=np.int64)))
        return following.compacted() if len(lengths) > 2 * len(slots) + 1000 else following

    def compacted(self) -> Self:
        """Return the same index without dead slots."""
        live = np.flatnonzero(self.alive)
        slot_of = np.full(len(self.alive), -1, dtype=np.int32)
        slot_of[live] = np.arange(len(live))
        segments: list[Segment] = []
        for segment in self.segments:
            segments.append(segment.renumbered(slot_of))
            _settle(segments)
        slots = slot_of[self.slots]
        return type(self)(tuple(segments), self.lengths[live], self.alive[live], slots, self.total_length)

    def search(
        self, term_hashes: Sequence[int], k: int, allowed: Bools | None, k1: float, b: float
    ) -> tuple[Rows, Floats]:
        """Return the rows and scores of the `k` best chunks that hold a term, best first, ties by chunk id.

        `allowed` is by row. A term given twice counts twice. The score is the sum, in the order of the terms, of
        `idf * f / (f + k1 * (1 - b + b * length / average))` with `idf = ln(1 + (N - df + 0.5) / (df + 0.5))`:
        Robertson and Zaragoza 2009, equation 3.15, with the idf of Lucene, over the live chunks.
        """
        by_slot = self._scores(term_hashes, k1, b)
        scores = by_slot[self.slots]
        if allowed is not None:
            scores = np.where(allowed, scores, 0.0)
        return best(scores, k)

    def parts(self, term_hashes: Sequence[int], rows: Rows, k1: float, b: float) -> Floats:
        """Return what each distinct term, in the order of the terms, adds to the score of each row: (terms, rows)."""
        slots = self.slots[rows]
        average = max(self.total_length, 1) / max(len(self.slots), 1)
        norms = k1 * (1.0 - b + b * self.lengths[slots] / average)
        counted = Counter(term_hashes)
        parts = np.zeros((len(counted), len(rows)), dtype=np.float64)
        for part, (term, times) in zip(parts, counted.items(), strict=True):
            weight = times * self._idf(self.frequency(term))
            for segment in self.segments:
                held, counts = segment.postings(term)  # ascending: a term's postings keep the order of the slots
                at = np.minimum(np.searchsorted(held, slots), max(len(held) - 1, 0))
                hit = np.flatnonzero(held[at] == slots) if len(held) else at[:0]
                part[hit] = weight * counts[at[hit]] / (counts[at[hit]] + norms[hit])
        return parts

    def frequency(self, term_hash: int) -> int:
        """Return the number of live chunks that hold a term."""
        return sum(int(self.alive[segment.postings(term_hash)[0]].sum()) for segment in self.segments)

    def _scores(self, term_hashes: Sequence[int], k1: float, b: float) -> Floats:
        scores = np.zeros(len(self.lengths), dtype=np.float64)
        average = max(self.total_length, 1) / max(len(self.slots), 1)
        norms = k1 * (1.0 - b + b * self.lengths / average)
        for term, times in Counter(term_hashes).items():
            found = [self._live(*segment.postings(term)) for segment in self.segments]
            idf = self._idf(sum(len(slots) for slots, _ in found))
            for slots, counts in found:
                # Cast once, take and add in place: half the time of `scores[slots] += …` where a word is everywhere.
                at = slots.astype(np.intp)
                part = norms.take(at)
                part += counts
                np.divide(counts, part, out=part)
                part *= times * idf
                part += scores.take(at)
                scores[at] = part
        return scores

    def _idf(self, df: int) -> float:
        return float(np.log1p((len(self.slots) - df + 0.5) / (df + 0.5)))

    def _live(self, slots: NDArray[np.int32], counts: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Leave the dead out; where none is dead, that costs nothing."""
        if len(self.slots) == len(self.lengths):
            return slots, counts
        live = self.alive[slots]
        return slots[live], counts[live]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        columns = (self.lengths, self.alive, self.slots)
        return sum(column.nbytes for column in columns) + sum(segment.nbytes for segment in self.segments)


def _settle(segments: list[Segment]) -> None:
    """Merge the last segments while they are of like size, so that there are O(log n) small ones."""
    while len(segments) > 1:
        one, two = segments[-2:]
        if one.chunks > 2 * two.chunks or one.chunks + two.chunks > SEGMENT:
            return
        segments[-2:] = [_merged(one, two)]


def best(scores: NDArray[np.floating], k: int) -> tuple[Rows, Floats]:
    """Return the rows of the `k` highest positive scores and these scores, best first, ties by row."""
    rows = np.flatnonzero(scores > 0) if k > 0 else np.empty(0, dtype=np.int64)
    if 0 < k < len(rows):
        least = np.partition(scores[rows], len(rows) - k)[len(rows) - k]
        rows = rows[scores[rows] >= least]
    rows = rows[np.argsort(-scores[rows], kind="stable")][: max(k, 0)]
    return rows.astype(np.int64), scores[rows].astype(np.float64)

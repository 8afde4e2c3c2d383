"""The chunks of one generation as columns: a row is the position of a chunk in the order of chunk ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import InconsistentGeneration
from pipeline.retrieval.rows import ChunkRows, Ints
from schemas.ids import number_of

Rows = NDArray[np.int64]
"""Positions in a snapshot; good for that snapshot only."""
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def find(sorted_values: Ints, wanted: Ints) -> Rows:
    """Return the position of each wanted value, -1 where it is missing. `sorted_values` are unique and ascending."""
    if not len(sorted_values):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return np.where(sorted_values[at] == wanted, at, -1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RowChange:
    """How positions move from one snapshot to the next.

    `kept` are the old positions that stay, ascending; `moved` is the new position of each old one (-1: dead); `born` is
    the new position of each new value, in the order in which the values were given.
    """

    kept: Rows
    moved: Rows
    born: Rows
    size: int

    @classmethod
    def between(cls, old: Ints, dead: Ints, born: Ints, what: str) -> Self:
        """Plan the change of a sorted unique column: first the dead go, then the born come in.

        Raises:
            InconsistentGeneration: a dead value is missing, or a born one is already there.
        """
        gone = find(old, dead)
        if (gone < 0).any():
            raise InconsistentGeneration(f"{what} {dead[gone < 0][0]} ends here but was not in the generation before")
        alive = np.ones(len(old), dtype=np.bool_)
        alive[gone] = False
        kept = np.flatnonzero(alive)
        merged = np.concatenate([old[kept], born])
        order = np.argsort(merged, kind="stable")
        ordered = merged[order]
        if (twice := ordered[1:] == ordered[:-1]).any():
            raise InconsistentGeneration(f"{what} {ordered[1:][twice][0]} begins twice in this generation")
        place = np.empty(len(merged), dtype=np.int64)
        place[order] = np.arange(len(merged))
        moved = np.full(len(old), -1, dtype=np.int64)
        moved[kept] = place[: len(kept)]
        return cls(kept, moved, place[len(kept) :], len(merged))

    def merge(self, old: NDArray[Any], born: NDArray[Any]) -> NDArray[Any]:
        """Return a column of the new snapshot from the old column and the values of the born."""
        column = np.empty(self.size, dtype=old.dtype)
        column[self.moved[self.kept]] = old[self.kept]
        column[self.born] = born
        return column


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Columns by row, in ascending order of `ids`; `document_nos` are hashes of the documents.

    `chain` lists all rows by document and ordinal; `place` is the position of each row in it.
    """

    ids: Ints
    documents: NDArray[np.object_]
    document_nos: Ints
    ordinals: NDArray[np.int32]
    chain: Rows
    place: Rows

    @classmethod
    def empty(cls) -> Self:
        """Return the table without chunks."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, np.empty(0, dtype=np.object_), none, np.empty(0, dtype=np.int32), none, none)

    def apply(self, change: RowChange, born: ChunkRows) -> Self:
        """Return the next generation's table."""
        numbers = {document: number_of(document) for document in set(born.document)}
        names = np.empty(len(born.document), dtype=np.object_)
        names[:] = born.document
        nos = np.array([numbers[document] for document in born.document], dtype=np.int64)
        document_nos = change.merge(self.document_nos, nos)
        ordinals = change.merge(self.ordinals, born.ordinal)
        chain = np.lexsort((ordinals, document_nos)).astype(np.int64)
        place = np.empty_like(chain)
        place[chain] = np.arange(len(chain))
        ids, documents = change.merge(self.ids, born.chunk_id), change.merge(self.documents, names)
        return type(self)(ids, documents, document_nos, ordinals, chain, place)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns and of the document names."""
        if not len(self.ids):
            return 0
        nos = self.document_nos[self.chain]
        firsts = self.chain[np.flatnonzero(np.concatenate([[True], nos[1:] != nos[:-1]]))]
        names = sum(64 + len(document) for document in self.documents[firsts])
        columns = (self.ids, self.documents, self.document_nos, self.ordinals, self.chain, self.place)
        return names + sum(column.nbytes for column in columns)

    def find(self, chunk_ids: Ints) -> Rows:
        """Return the row of each chunk id, -1 where there is none."""
        return find(self.ids, chunk_ids)

    def neighbors(self, rows: Rows, step: int) -> tuple[Rows, Rows]:
        """Return (positions in `rows`, their neighbours) `step` places on in the same document, negative: back."""
        at = self.place[rows] + step
        inside = np.flatnonzero((at >= 0) & (at < len(self.chain)))
        found = self.chain[at[inside]]
        same = self.document_nos[found] == self.document_nos[rows[inside]]
        return inside[same].astype(np.int64), found[same]

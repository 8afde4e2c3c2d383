"""One generation of a corpus as compact arrays in memory: immutable, and cheap to derive from the one before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from pipeline.retrieval.chunks import Bools, ChunkTable, RowChange, Rows
from pipeline.retrieval.graph import Graph
from pipeline.retrieval.keyword import KeywordIndex
from pipeline.retrieval.rows import Delta, Ints


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Chunks, keyword postings and graph of one generation. Nothing here is ever changed; threads may share it freely.

    A *row* is the position of a chunk in the ascending order of chunk ids, so an order by row is an order by chunk id.
    Rows are good for one snapshot only. Two snapshots of the same rows hold equal arrays, however they were reached
    (but for the segments of the keyword index, whose results are equal).
    """

    generation: int
    chunks: ChunkTable
    keyword: KeywordIndex
    graph: Graph

    @classmethod
    def empty(cls) -> Self:
        """Return generation 0, which holds nothing."""
        return cls(0, ChunkTable.empty(), KeywordIndex.empty(), Graph.empty())

    def apply(self, delta: Delta) -> Self:
        """Return the generation after this change; unchanged parts are shared with this one.

        Raises:
            InconsistentGeneration: the change does not fit this generation.
        """
        change = RowChange.between(self.chunks.ids, delta.dead_chunks, delta.chunks.chunk_id, "chunk")
        same = not len(delta.dead_chunks) and not len(delta.chunks.chunk_id)
        chunks = self.chunks if same else self.chunks.apply(change, delta.chunks)
        keyword = self.keyword if same else self.keyword.apply(change, delta.chunks)
        return type(self)(delta.generation, chunks, keyword, self.graph.apply(change, chunks.ids, delta))

    @property
    def nbytes(self) -> int:
        """Bytes held, shared arrays included."""
        return self.chunks.nbytes + self.keyword.nbytes + self.graph.nbytes

    @property
    def chunk_ids(self) -> Ints:
        """The chunk id of each row, ascending."""
        return self.chunks.ids

    def rows(self, chunk_ids: Iterable[int]) -> Rows:
        """Return the row of each chunk id, in their order; -1 where this generation has no such chunk."""
        return self.chunks.find(np.fromiter(chunk_ids, dtype=np.int64))

    def mask(self, chunk_ids: Ints) -> Bools:
        """Return which rows are among these chunk ids (others are ignored): what the legs take as `allowed`."""
        rows = self.chunks.find(chunk_ids)
        mask = np.zeros(len(self.chunk_ids), dtype=np.bool_)
        mask[rows[rows >= 0]] = True
        return mask

    def document(self, row: int) -> str:
        """Return the document of a row."""
        return str(self.chunks.documents[row])

    def ordinal(self, row: int) -> int:
        """Return the place of a row in its document."""
        return int(self.chunks.ordinals[row])

    def neighbors(self, row: int, window: int) -> list[int]:
        """Return the rows at most `window` places before and after in the same document, in its order."""
        steps = [*range(-window, 0), *range(1, window + 1)]
        return [int(found[0]) for step in steps if len(found := self.chunks.neighbors(np.array([row]), step)[1])]

"""From ranked chunk ids to hits: texts, places and metadata of one generation, without repetition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import InconsistentGeneration
from pipeline.retrieval.fuse import Fused
from pipeline.retrieval.outline import Placed
from pipeline.retrieval.rows import Ints
from schemas.ids import CorpusId, show
from schemas.query import STREAM_NAMES, Hit, Leg, QueryRequest


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """What a store keeps of a chunk, with the title and the metadata of its document; lines from 1, inclusive."""

    chunk_id: int
    document: str
    ordinal: int
    text: str
    text_hash: bytes
    lines: tuple[int, int]
    headings: tuple[str, ...]
    title: str
    metadata: dict[str, Any]


class ChunkStore(Protocol):
    """Reads chunks as one generation sees them."""

    async def allowed(self, corpus: CorpusId, generation: int, filters: Mapping[str, Any], deadline: Deadline) -> Ints:
        """Return the ids, ascending, of the chunks whose documents have each of these metadata values exactly.

        The keys `document` and `source` mean the document id and the source's location.
        """
        ...

    async def chunks(
        self, corpus: CorpusId, generation: int, ids: Sequence[int], deadline: Deadline
    ) -> dict[int, StoredChunk]:
        """Return those of these chunks that the generation sees, by id."""
        ...

    async def neighbors(
        self, corpus: CorpusId, generation: int, places: Sequence[tuple[str, int]], window: int, deadline: Deadline
    ) -> list[StoredChunk]:
        """Return the chunks within `window` ordinals of these (document, ordinal), in document order, each once."""
        ...

    async def outlines(
        self, corpus: CorpusId, generation: int, documents: Sequence[str], most: int, deadline: Deadline
    ) -> list[Placed]:
        """Return where the first `most` chunks of these documents stand, by document and place in it."""
        ...

    async def values(self, corpus: CorpusId, generation: int, field: str, deadline: Deadline) -> dict[str, Any]:
        """Return the text or number that the metadata hold under this key, by document, for those that have one."""
        ...


@dataclass(frozen=True, slots=True)
class Hydrator:
    """Turns the ranking of one generation into hits.

    `passages` are, by negative id, those that no store has; `graph_source` is what ranked the graph stream.
    """

    store: ChunkStore
    corpus: CorpusId
    generation: int
    passages: Mapping[int, StoredChunk] = field(default_factory=dict[int, StoredChunk])
    graph_source: str | None = None

    async def hits(
        self, best: Sequence[tuple[Fused, StoredChunk]], request: QueryRequest, deadline: Deadline
    ) -> tuple[Hit, ...]:
        """Return these as hits, each followed by its neighbours if asked for."""
        places = [(chunk.document, chunk.ordinal) for found, chunk in best if found.chunk_id >= 0]
        if not request.neighbors or not places:
            return tuple(self._hit(found, chunk) for found, chunk in best)
        around = await self.store.neighbors(self.corpus, self.generation, places, request.neighbors, deadline)
        return tuple(self._with_neighbors(best, around, request.neighbors))

    async def distinct(
        self, ranked: Sequence[Fused], request: QueryRequest, deadline: Deadline
    ) -> tuple[list[tuple[Fused, StoredChunk]], int]:
        """Return the first `top_k` distinct texts of the ranking, and how many were passed over as repetitions.

        It is read from the top, as many chunks at a time as are asked for, until there are enough.

        Raises:
            InconsistentGeneration: a ranked chunk is not one of this generation.
        """
        best: list[tuple[Fused, StoredChunk]] = []
        repeated = 0
        seen: set[bytes] = set()
        for start in range(0, len(ranked), request.top_k):
            page = ranked[start : start + request.top_k]
            chunks = await self._chunks([found.chunk_id for found in page], deadline)
            for found in page:
                chunk = chunks[found.chunk_id]
                if len(best) == request.top_k:
                    break
                if request.dedup and chunk.text_hash in seen:
                    repeated += 1
                    continue
                best.append((found, chunk))
                seen.add(chunk.text_hash)
            if len(best) == request.top_k:
                break
        return best, repeated

    async def _chunks(self, ids: Sequence[int], deadline: Deadline) -> Mapping[int, StoredChunk]:
        """Return all of these chunks and passages."""
        chunks = {one: self.passages[one] for one in ids if one < 0 and one in self.passages}
        stored = [one for one in ids if one >= 0]
        if stored:
            chunks |= await self.store.chunks(self.corpus, self.generation, stored, deadline)
        if len(chunks) < len(ids):
            raise InconsistentGeneration("a leg found a chunk that is not in its generation")
        return chunks

    def _with_neighbors(
        self, best: Sequence[tuple[Fused, StoredChunk]], around: Sequence[StoredChunk], window: int
    ) -> Iterable[Hit]:
        """Yield each hit and then its neighbours in document order, but no chunk that is a hit or was shown before."""
        by_place = {(chunk.document, chunk.ordinal): chunk for chunk in around}
        shown = {found.chunk_id for found, _ in best}
        for found, chunk in best:
            yield self._hit(found, chunk)
            for step in range(-window, window + 1) if found.chunk_id >= 0 else ():
                neighbor = by_place.get((chunk.document, chunk.ordinal + step))
                if neighbor is not None and neighbor.chunk_id not in shown:
                    shown.add(neighbor.chunk_id)
                    beside = Fused(neighbor.chunk_id, found.score, {})
                    yield self._hit(beside, neighbor, neighbor_of=show(chunk.chunk_id))

    def _hit(self, found: Fused, chunk: StoredChunk, neighbor_of: str | None = None) -> Hit:
        """Return the hit; a neighbour has the score of the hit it stands beside, and no streams."""
        return Hit(
            document=chunk.document,
            chunk=show(chunk.chunk_id),
            lines=chunk.lines,
            text=chunk.text,
            score=found.score,
            streams=tuple(STREAM_NAMES[leg] for leg in found.streams),
            ranks={STREAM_NAMES[leg]: rank for leg, rank in found.ranks.items()},
            title=chunk.title,
            headings=chunk.headings,
            metadata=chunk.metadata,
            neighbor_of=neighbor_of,
            graph_source=self.graph_source if Leg.GRAPH in found.ranks else None,
        )

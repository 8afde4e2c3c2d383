"""What is asked of a store that has graphs; see `pipeline/ports.py` for what holds for all ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.graphs.parts import Clusters, GraphPart, GraphRef, GraphTotals
from pipeline.retrieval.walk import Limits, WalkResult
from schemas.graph import Entity, Relation


class GraphStore(Protocol):
    """Holds whole graphs, one for each generation, outside of PostgreSQL. No reader sees one before its promotion.

    Writes carry the fence of the run that makes them: once a later one has opened the graph, or it was dropped, they raise
    FencedOut and change nothing. Every write is idempotent, so that one whose fate is not known is simply repeated.
    """

    async def open(self, graph: GraphRef, fence: int, deadline: Deadline) -> None:
        """Begin a graph, or take it over with what is in it already. Raises FencedOut."""
        ...

    async def write(self, graph: GraphRef, fence: int, part: GraphPart, deadline: Deadline) -> None:
        """Add these rows; those that are there already stay as they are.

        Raises:
            FencedOut: somebody else has the graph.
            InvalidRequest: a row carries a reserved key; nothing is written.
            InconsistentGeneration: a relation or mention of something that is not in the graph; nothing is written.
        """
        ...

    async def seal(self, graph: GraphRef, fence: int, deadline: Deadline) -> GraphTotals:
        """Derive what reading needs, once all rows are written, and return the totals. Raises FencedOut."""
        ...

    async def cluster(self, graph: GraphRef, deadline: Deadline) -> Clusters:
        """Cluster the entities by their relations, weighted by evidence: equal for equal graphs, however they were written."""
        ...

    async def place(
        self, graph: GraphRef, fence: int, paths: Mapping[int, tuple[int, ...]], deadline: Deadline
    ) -> None:
        """Give every entity its communities, from the coarsest to the finest.

        Raises:
            FencedOut: somebody else has the graph.
            InconsistentGeneration: an entity has no path, or a path no entity.
        """
        ...

    async def totals(self, graph: GraphRef, deadline: Deadline) -> GraphTotals:
        """Count what is in a graph; all zero if there is none."""
        ...

    async def graphs(self, corpus: str, uid: str, deadline: Deadline) -> list[str]:
        """Return the ids of all graphs of a corpus, by name and uid, whatever their state."""
        ...

    async def drop(self, corpus: str, graph_id: str, deadline: Deadline) -> int:
        """Remove a graph and return how many nodes that were. Interrupted, it is taken up by the next call."""
        ...


class GraphReader(Protocol):
    """Reads the graph of a pinned generation. Pages are in the stated order and start after `after` (None: at the start)."""

    async def expand(
        self,
        graph: GraphRef,
        seeds: Sequence[tuple[int, float]],
        limits: Limits,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> WalkResult:
        """Walk from seed chunks (id, score) as `retrieval.walk` defines it, and return all chunks that tie for the first `top_k`.

        The rows of the result are chunk ids. `allowed` (chunk ids, ascending) restricts the results, not the way there.
        """
        ...

    async def entities(self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline) -> list[Entity]:
        """Return entities by number."""
        ...

    async def relations(
        self, graph: GraphRef, after: tuple[int, int, str] | None, limit: int, deadline: Deadline
    ) -> list[Relation]:
        """Return relations by source, target and type (code points)."""
        ...

    async def paths(
        self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Return the community path of each entity, by entity number."""
        ...

"""Graphs in the memory of this process: the reference backend, for tests and for corpora that fit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import anyio.lowlevel
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import FencedOut, InconsistentGeneration
from pipeline.graphs.columns import check_columns
from pipeline.graphs.parts import Clusters, GraphPart, GraphRef, GraphTotals
from pipeline.graphs.plain import PlainGraph
from pipeline.ingest.communities import Ints, detect
from pipeline.retrieval.walk import Limits, WalkResult
from schemas.graph import Entity, Relation

MAX_CLUSTER_SIZE = 50
"""Entities above which a cluster is split, as corpora are set by default."""


@dataclass(slots=True)
class _Held:
    """A graph and the fence of the run that may write to it."""

    fence: int
    rows: PlainGraph = field(default_factory=PlainGraph)


class MemoryGraph:
    """A `GraphStore` and a `GraphReader`. Each call is one step of the event loop, so none is ever half done."""

    def __init__(self, max_cluster_size: int = MAX_CLUSTER_SIZE) -> None:
        self._max_cluster_size = max_cluster_size
        self._graphs: dict[str, _Held] = {}

    async def open(self, graph: GraphRef, fence: int, deadline: Deadline) -> None:
        """See `GraphStore`."""
        await _turn(deadline)
        held = self._graphs.setdefault(graph.graph_id, _Held(fence))
        if held.fence > fence:
            raise FencedOut()
        held.fence = fence

    async def write(self, graph: GraphRef, fence: int, part: GraphPart, deadline: Deadline) -> None:
        """See `GraphStore`."""
        check_columns(part.entities, part.relations)
        await _turn(deadline)
        self._own(graph, fence).add(part)

    async def seal(self, graph: GraphRef, fence: int, deadline: Deadline) -> GraphTotals:
        """See `GraphStore`; nothing needs to be derived."""
        await _turn(deadline)
        return self._own(graph, fence).totals

    async def cluster(self, graph: GraphRef, deadline: Deadline) -> Clusters:
        """See `GraphStore`; the labels follow from the members."""
        await _turn(deadline)
        ends = [(one.source, one.target, one.evidence) for one in self._rows(graph).relations.values()]
        edges = np.array(ends, dtype=np.int64).reshape(-1, 3)
        edges = edges[edges[:, 0] != edges[:, 1]]
        return await anyio.to_thread.run_sync(_clusters, edges, self._max_cluster_size)

    async def place(
        self, graph: GraphRef, fence: int, paths: Mapping[int, tuple[int, ...]], deadline: Deadline
    ) -> None:
        """See `GraphStore`."""
        await _turn(deadline)
        rows = self._own(graph, fence)
        if rows.entities.keys() != paths.keys() or not all(paths.values()):
            raise InconsistentGeneration("The paths are not those of the entities of the graph.")
        rows.paths = dict(paths)

    async def totals(self, graph: GraphRef, deadline: Deadline) -> GraphTotals:
        """See `GraphStore`."""
        await _turn(deadline)
        return self._rows(graph).totals

    async def graphs(self, corpus: str, uid: str, deadline: Deadline) -> list[str]:
        """See `GraphStore`; in ascending order."""
        await _turn(deadline)
        return sorted(graph_id for graph_id in self._graphs if graph_id.partition("-")[0] == uid)

    async def drop(self, corpus: str, graph_id: str, deadline: Deadline) -> int:
        """See `GraphStore`."""
        await _turn(deadline)
        held = self._graphs.pop(graph_id, None)
        return len(held.rows.chunks) + len(held.rows.entities) if held else 0

    async def expand(
        self,
        graph: GraphRef,
        seeds: Sequence[tuple[int, float]],
        limits: Limits,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> WalkResult:
        """See `GraphReader`."""
        await _turn(deadline)
        return self._rows(graph).expand(seeds, limits, None if allowed is None else set(allowed.tolist()))

    async def entities(self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline) -> list[Entity]:
        """See `GraphReader`."""
        await _turn(deadline)
        entities = self._rows(graph).entities
        return [entities[number] for number in _page(sorted(entities), after, limit)]

    async def relations(
        self, graph: GraphRef, after: tuple[int, int, str] | None, limit: int, deadline: Deadline
    ) -> list[Relation]:
        """See `GraphReader`."""
        await _turn(deadline)
        relations = self._rows(graph).relations
        keys = sorted(relations)
        start = 0 if after is None else bisect_right(keys, after)
        return [relations[key] for key in keys[start : start + limit]]

    async def paths(
        self, graph: GraphRef, after: int | None, limit: int, deadline: Deadline
    ) -> list[tuple[int, tuple[int, ...]]]:
        """See `GraphReader`."""
        await _turn(deadline)
        paths = self._rows(graph).paths
        return [(number, paths[number]) for number in _page(sorted(paths), after, limit)]

    def _own(self, graph: GraphRef, fence: int) -> PlainGraph:
        held = self._graphs.get(graph.graph_id)
        if held is None or held.fence != fence:
            raise FencedOut()
        return held.rows

    def _rows(self, graph: GraphRef) -> PlainGraph:
        held = self._graphs.get(graph.graph_id)
        return held.rows if held else PlainGraph()


async def _turn(deadline: Deadline) -> None:
    """Let others run, or stop here if the call came too late."""
    deadline.budget(inf)
    await anyio.lowlevel.checkpoint()


def _page(numbers: list[int], after: int | None, limit: int) -> list[int]:
    start = 0 if after is None else bisect_right(numbers, after)
    return numbers[start : start + limit]


def _clusters(edges: Ints, max_cluster_size: int) -> Clusters:
    partition = detect(np.unique(edges[:, :2]), edges, max_cluster_size)
    return Clusters(dict(zip(partition.entities.tolist(), partition.paths, strict=True)), partition.modularity or 0.0)

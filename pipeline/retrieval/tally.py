"""What one query did so far, and what that makes of its answer: decisions only, nothing is awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

import anyio

from pipeline.errors import GraphCapabilityError
from pipeline.retrieval.assistants import Spent
from pipeline.retrieval.board import Board
from pipeline.retrieval.hydrate import StoredChunk
from schemas.query import GraphStream, Hit, Leg, QueryResult, StageReport, Strategy

ALONE = {Strategy.SEMANTIC: Leg.DENSE, Strategy.KEYWORD: Leg.KEYWORD, Strategy.GRAPH: Leg.GRAPH}
"""The strategies of one leg; all others fuse the legs that there are."""


@dataclass(slots=True)
class Tally:
    """The searches and stages of a query, in their order; it outlives the scope in which they run.

    `graph_source` is who serves the graph leg. `lost` names what a model did not do, where the answer does without;
    `underway` is what a model is doing now.
    """

    legs: tuple[Leg, ...]
    graph_source: str | None = None
    boards: list[Board] = field(default_factory=list[Board])
    stages: list[StageReport] = field(default_factory=list[StageReport])
    lost: list[str] = field(default_factory=list[str])
    underway: str = ""
    _unclaimed: bool = False

    @classmethod
    def of(cls, strategy: Strategy) -> Self:
        """Return the tally of a strategy, with a graph leg where it can have one."""
        return cls((ALONE[strategy],) if strategy in ALONE else tuple(Leg))

    def claimed(self, provider: str | None) -> None:
        """Note who serves the graph leg. Where nobody does, the others go without it.

        Raises:
            GraphCapabilityError: nobody does, and there is no other leg: no strategy falls back to another.
        """
        self.graph_source = provider
        if provider is not None:
            return
        self._unclaimed = True
        self.legs = tuple(leg for leg in self.legs if leg is not Leg.GRAPH)
        if not self.legs:
            raise GraphCapabilityError(
                "No graph provider serves this request: see graph_indexing.enabled and graph_search.enabled of the corpus, "
                "and the request's fence."
            )

    def board(self, of: str = "") -> Board:
        """Return the board of a new search."""
        self.boards.append(Board(self.legs, of))
        return self.boards[-1]

    def stage(
        self, name: str, before: int, after: int, started: float, note: str = "", spent: Spent | None = None
    ) -> None:
        """Note that a stage, begun at `started` on the event loop's clock, is done, and what its model cost."""
        seconds, cost = anyio.current_time() - started, asdict(spent or Spent())
        self.stages.append(StageReport(name=name, before=before, after=after, seconds=seconds, note=note, **cost))

    @property
    def passages(self) -> Mapping[int, StoredChunk]:
        """The ready-made passages of all searches."""
        return {key: one for board in self.boards for key, one in board.passages.items()}

    def result(self, generation: int, hits: Sequence[Hit], seconds: float) -> QueryResult:
        """Return the answer with the hits of the legs that are done."""
        missing = [name for board in self.boards for name in board.missing]
        return self._result(generation, (*missing, *self.lost), hits, seconds, self._graph_stream())

    def nothing(self, generation: int, seconds: float) -> QueryResult:
        """Return the answer when there was no time to show a hit of any leg."""
        started = [report.name for board in self.boards for report in board.reports]
        legs = dict.fromkeys([*started, *(leg.value for leg in self.legs)])
        stream = GraphStream.MISSING if Leg.GRAPH in self.legs else self._graph_stream()
        return self._result(generation, (*filter(None, [self.underway]), *legs), (), seconds, stream)

    def _result(
        self, generation: int, missing: tuple[str, ...], hits: Sequence[Hit], seconds: float, stream: GraphStream | None
    ) -> QueryResult:
        boards = self.boards or [Board(self.legs)]
        return QueryResult(
            generation=generation,
            complete=not missing,
            missing=missing,
            hits=tuple(hits),
            legs=tuple(report for board in boards for report in board.reports),
            graph_stream=stream,
            seconds=seconds,
            stages=tuple(self.stages),
        )

    def _graph_stream(self) -> GraphStream | None:
        if self._unclaimed:
            return GraphStream.NOT_CLAIMED
        if Leg.GRAPH not in self.legs:
            return None
        rankings = [board.rankings.get(Leg.GRAPH) for board in self.boards]
        if None in rankings:
            return GraphStream.MISSING
        return GraphStream.FUSED if any(ranking.hits for ranking in rankings if ranking) else GraphStream.EMPTY

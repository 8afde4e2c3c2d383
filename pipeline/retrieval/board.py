"""What the legs of one query come to, and what that makes of the answer: decisions only, nothing is awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from pipeline.errors import DeadlineExceeded, GraphCapabilityError, SapwoodError
from pipeline.retrieval.fuse import Fused, fuse
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.legs import Ranking
from schemas.query import GraphStream, Hit, Leg, LegReport, QueryRequest, QueryResult, Strategy
from schemas.settings import CorpusSettings

_LEGS = {
    Strategy.SEMANTIC: (Leg.DENSE,),
    Strategy.KEYWORD: (Leg.KEYWORD,),
    Strategy.HYBRID: tuple(Leg),
    Strategy.GRAPH: (Leg.GRAPH,),
}


@dataclass(slots=True)
class Board:
    """The state of the legs; it outlives the scope in which they run. `graph_source` is who serves the graph leg."""

    legs: tuple[Leg, ...]
    graph_source: str | None = None
    rankings: dict[Leg, Ranking] = field(default_factory=dict[Leg, Ranking])
    errors: dict[Leg, SapwoodError] = field(default_factory=dict[Leg, SapwoodError])
    _reports: dict[Leg, LegReport] = field(default_factory=dict[Leg, LegReport])
    _unclaimed: bool = False

    @classmethod
    def of(cls, strategy: Strategy) -> Self:
        """Return the board of a strategy, with a graph leg where it can have one."""
        return cls(_LEGS[strategy])

    def claimed(self, provider: str | None) -> None:
        """Note who serves the graph leg. Where nobody does, HYBRID goes without it.

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

    def found(self, leg: Leg, ranking: Ranking, seconds: float) -> None:
        """Note that a leg is done."""
        state = "completed" if ranking.hits else "empty"
        self.rankings[leg] = ranking
        self._reports[leg] = LegReport(
            leg=leg, state=state, hits=len(ranking.hits), seconds=seconds, counters=dict(ranking.counters)
        )

    def late(self, leg: Leg, seconds: float) -> None:
        """Note that a leg ran into the deadline."""
        self._reports[leg] = LegReport(leg=leg, state="missing", seconds=seconds)

    def failed(self, leg: Leg, error: SapwoodError, seconds: float) -> None:
        """Note that a store or model failed a leg."""
        self.errors[leg] = error
        self._reports[leg] = LegReport(leg=leg, state="failed", seconds=seconds, error=str(error))

    @property
    def passages(self) -> Mapping[int, StoredChunk]:
        """The ready-made passages of all legs."""
        return {key: one for ranking in self.rankings.values() for key, one in ranking.passages.items()}

    def report(self, leg: Leg) -> LegReport:
        """Return the leg's report; it is missing as long as nothing is noted."""
        return self._reports.get(leg) or LegReport(leg=leg, state="missing")

    def judge(self, partial: bool) -> None:
        """Raise if this is not enough for an answer.

        With `partial`, it is enough unless all legs failed; without, only if all legs are done.

        Raises:
            DeadlineExceeded: a leg was late.
            SapwoodError: what the first failed leg failed with.
        """
        done, failed = len(self.rankings), len(self.errors)
        if done == len(self.legs) or (partial and failed < len(self.legs)):
            return
        if done + failed < len(self.legs):
            raise DeadlineExceeded()
        raise next(self.errors[leg] for leg in self.legs if leg in self.errors)

    def result(self, generation: int, hits: Sequence[Hit], seconds: float) -> QueryResult:
        """Return the answer with the hits of the legs that are done."""
        missing = tuple(leg.value for leg in self.legs if leg not in self.rankings)
        return self._result(generation, missing, hits, seconds)

    def nothing(self, generation: int, seconds: float) -> QueryResult:
        """Return the answer when there was no time to show a hit of any leg."""
        return self._result(generation, tuple(leg.value for leg in self.legs), (), seconds)

    def _result(self, generation: int, missing: tuple[str, ...], hits: Sequence[Hit], seconds: float) -> QueryResult:
        return QueryResult(
            generation=generation,
            complete=not missing,
            missing=missing,
            hits=tuple(hits),
            legs=tuple(self.report(leg) for leg in self.legs),
            graph_stream=self._graph_stream(missing),
            seconds=seconds,
        )

    def _graph_stream(self, missing: tuple[str, ...]) -> GraphStream | None:
        if self._unclaimed:
            return GraphStream.NOT_CLAIMED
        if Leg.GRAPH not in self.legs:
            return None
        if Leg.GRAPH in missing:
            return GraphStream.MISSING
        return GraphStream.FUSED if self.rankings[Leg.GRAPH].hits else GraphStream.EMPTY


def ranked(board: Board, request: QueryRequest, settings: CorpusSettings) -> list[Fused]:
    """Return the chunks of the legs that are done, best first, with scores in 0..1, from the least score up."""
    if request.strategy is Strategy.HYBRID:
        fusion = settings.fusion
        weights = {
            Leg.DENSE: fusion.dense_weight,
            Leg.KEYWORD: fusion.keyword_weight,
            Leg.GRAPH: fusion.graph_weight,
        }
        streams = {leg: ranking.hits for leg, ranking in board.rankings.items()}
        return fuse(streams, fusion.rrf_k, weights, request.min_score)
    (leg,) = board.legs
    ranking = board.rankings.get(leg, Ranking(()))
    highest = ranking.hits[0][1] if ranking.relative and ranking.hits else 1.0
    scored = [(chunk, min(max(score / highest, 0.0), 1.0)) for chunk, score in ranking.hits]
    found = [Fused(chunk, score, {leg: rank}) for rank, (chunk, score) in enumerate(scored, start=1)]
    return [hit for hit in found if hit.score >= request.min_score]

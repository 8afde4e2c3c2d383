"""What the legs of one query come to, and what that makes of the answer: decisions only, nothing is awaited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.errors import DeadlineExceeded, GraphCapabilityError, SapwoodError
from pipeline.retrieval.fuse import Fused, fuse
from pipeline.retrieval.legs import PinnedGeneration, Ranking, has_graph
from schemas.query import Hit, Leg, LegReport, QueryRequest, QueryResult, Strategy
from schemas.settings import CorpusSettings

_SINGLE = {Strategy.SEMANTIC: Leg.DENSE, Strategy.KEYWORD: Leg.KEYWORD, Strategy.GRAPH: Leg.GRAPH}


def planned(strategy: Strategy, pinned: PinnedGeneration) -> tuple[Leg, ...]:
    """Return the legs of a strategy; HYBRID has the graph leg where there is a graph.

    Raises:
        GraphCapabilityError: GRAPH was asked for where there is none; no strategy falls back to another.
    """
    graph = has_graph(pinned)
    if strategy is Strategy.HYBRID:
        return tuple(leg for leg in Leg if graph or leg is not Leg.GRAPH)
    if strategy is Strategy.GRAPH and not graph:
        raise GraphCapabilityError("This corpus has no graph: see graph_indexing.enabled and graph_search.enabled.")
    return (_SINGLE[strategy],)


@dataclass(slots=True)
class Board:
    """The state of the legs; it outlives the scope in which they run."""

    legs: tuple[Leg, ...]
    rankings: dict[Leg, Ranking] = field(default_factory=dict[Leg, Ranking])
    errors: dict[Leg, SapwoodError] = field(default_factory=dict[Leg, SapwoodError])
    _reports: dict[Leg, LegReport] = field(default_factory=dict[Leg, LegReport])

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

    def follow(self, leg: Leg, cause: Leg) -> LegReport:
        """Note that a leg could not start because another one failed or was late, and return its report."""
        if cause in self.errors:
            self.failed(leg, self.errors[cause], 0.0)
        else:
            self.late(leg, 0.0)
        return self.report(leg)

    def nothing_allowed(self) -> None:
        """Note that no chunk passes the filters: all legs are done, and empty."""
        for leg in self.legs:
            self.found(leg, Ranking(()), 0.0)

    @property
    def unreported(self) -> tuple[Leg, ...]:
        """The legs of which nothing is noted."""
        return tuple(leg for leg in self.legs if leg not in self._reports)

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
            seconds=seconds,
        )


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
    hits = board.rankings[leg].hits if leg in board.rankings else ()
    method = request.ranking or settings.graph_search.ranking
    relative = leg is Leg.KEYWORD or (leg is Leg.GRAPH and method == "ppr")
    highest = hits[0][1] if relative and hits else 1.0
    scored = [(chunk, min(max(score / highest, 0.0), 1.0)) for chunk, score in hits]
    found = [Fused(chunk, score, {leg: rank}) for rank, (chunk, score) in enumerate(scored, start=1)]
    return [hit for hit in found if hit.score >= request.min_score]

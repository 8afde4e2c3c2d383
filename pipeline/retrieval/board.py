"""What the legs of one search come to: decisions only, nothing is awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.errors import DeadlineExceeded, SapwoodError
from pipeline.retrieval.fuse import Fused, blend, fuse
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.legs import Ranking
from schemas.query import Leg, LegReport
from schemas.settings import FusionSettings

_NONE = Ranking(())


@dataclass(slots=True)
class Board:
    """The state of the legs of one search; it outlives the scope in which they run. `of` names the search, see LegReport."""

    legs: tuple[Leg, ...]
    of: str = ""
    rankings: dict[Leg, Ranking] = field(default_factory=dict[Leg, Ranking])
    errors: dict[Leg, SapwoodError] = field(default_factory=dict[Leg, SapwoodError])
    _reports: dict[Leg, LegReport] = field(default_factory=dict[Leg, LegReport])

    def found(self, leg: Leg, ranking: Ranking, seconds: float) -> None:
        """Note that a leg is done."""
        state = "completed" if ranking.hits else "empty"
        self.rankings[leg] = ranking
        self._reports[leg] = LegReport(
            leg=leg, state=state, hits=len(ranking.hits), seconds=seconds, counters=dict(ranking.counters), of=self.of
        )

    def late(self, leg: Leg, seconds: float) -> None:
        """Note that a leg ran into the deadline."""
        self._reports[leg] = LegReport(leg=leg, state="missing", seconds=seconds, of=self.of)

    def failed(self, leg: Leg, error: SapwoodError, seconds: float) -> None:
        """Note that a store or model failed a leg."""
        self.errors[leg] = error
        self._reports[leg] = LegReport(leg=leg, state="failed", seconds=seconds, error=str(error), of=self.of)

    @property
    def passages(self) -> Mapping[int, StoredChunk]:
        """The ready-made passages of all legs."""
        return {key: one for ranking in self.rankings.values() for key, one in ranking.passages.items()}

    @property
    def reports(self) -> tuple[LegReport, ...]:
        """The reports of all legs, in their order."""
        return tuple(self.report(leg) for leg in self.legs)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the legs that are not done."""
        return tuple(self.report(leg).name for leg in self.legs if leg not in self.rankings)

    def report(self, leg: Leg) -> LegReport:
        """Return the leg's report; it is missing as long as nothing is noted."""
        return self._reports.get(leg) or LegReport(leg=leg, state="missing", of=self.of)

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


def judge(boards: Sequence[Board], partial: bool) -> None:
    """Raise if these searches together are not enough: all must do, or with `partial` one of them.

    Raises:
        SapwoodError: what `Board.judge` raises for the first that does not do.
    """
    problems: list[SapwoodError] = []
    for board in boards:
        try:
            board.judge(partial)
        except SapwoodError as error:
            problems.append(error)
    if problems and (not partial or len(problems) == len(boards)):
        raise problems[0]


def ranked(board: Board, fusion: FusionSettings, alone: Leg | None) -> list[Fused]:
    """Return the chunks of the legs that are done, best first, with scores in 0..1: fused, or those of the leg `alone`."""
    if alone is None:
        weights = {
            Leg.DENSE: fusion.dense_weight,
            Leg.KEYWORD: fusion.keyword_weight,
            Leg.GRAPH: fusion.graph_weight,
        }
        streams = {leg: ranking.hits for leg, ranking in board.rankings.items()}
        return blend(streams, weights) if fusion.method == "scores" else fuse(streams, fusion.rrf_k, weights)
    ranking = board.rankings.get(alone, _NONE)
    highest = ranking.hits[0][1] if ranking.relative and ranking.hits else 1.0
    scored = [(chunk, min(max(score / highest, 0.0), 1.0)) for chunk, score in ranking.hits]
    return [Fused(chunk, score, {alone: rank}) for rank, (chunk, score) in enumerate(scored, start=1)]

"""Fusion of ranked streams: by ranks (Cormack, Clarke and Büttcher 2009) or by scores; first in every stream scores 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.query import Leg

_ORDER = {leg: place for place, leg in enumerate(Leg)}


@dataclass(frozen=True, slots=True)
class Fused:
    """A chunk with its score in 0..1 and its rank, from 1, in each stream that has it, in the order of `Leg`."""

    chunk_id: int
    score: float
    ranks: Mapping[Leg, int]

    @property
    def streams(self) -> tuple[Leg, ...]:
        """The streams that have this chunk."""
        return tuple(self.ranks)


def fuse(
    streams: Mapping[Leg, Sequence[tuple[int, float]]],
    k: int,
    weights: Mapping[Leg, float],
    min_score: float = 0.0,
    limit: int | None = None,
) -> list[Fused]:
    """Fuse ranked (chunk id, score) streams: the sum of `weight / (k + rank)` over the best possible such sum.

    Empty streams do not count, nor do those of weight 0; a missing weight is 1. A chunk that a stream lists twice has
    its first rank. The order is by score, then by the first stream that has the chunk, then by chunk id; hits below
    `min_score` are dropped.
    """
    counted = _counted(streams, weights)
    ranks = _ranks(streams, counted)
    highest = sum(weights.get(leg, 1.0) for leg in counted) / (k + 1)
    fused = [
        Fused(chunk_id, sum(weights.get(leg, 1.0) / (k + rank) for leg, rank in found.items()) / highest, found)
        for chunk_id, found in ranks.items()
    ]
    return _ordered([hit for hit in fused if hit.score >= min_score])[:limit]


def blend(streams: Mapping[Leg, Sequence[tuple[int, float]]], weights: Mapping[Leg, float]) -> list[Fused]:
    """Fuse ranked (chunk id, score) streams by their scores: the weighted mean of what each is of its stream's best.

    A chunk that a stream does not list counts with the last score that it lists, since it has no more. Which streams
    count, the rank of a chunk and the order are as in `fuse`; a score below 0 counts as 0.
    """
    counted = _counted(streams, weights)
    shares = {leg: _shares(streams[leg]) for leg in counted}
    whole = sum(weights.get(leg, 1.0) for leg in counted)
    fused: list[Fused] = []
    for chunk_id, found in _ranks(streams, counted).items():
        score = sum(weights.get(leg, 1.0) * shares[leg][found.get(leg, 0) - 1] for leg in counted)  # at -1 is the last
        fused.append(Fused(chunk_id, score / whole, found))
    return _ordered(fused)


def _counted(streams: Mapping[Leg, Sequence[tuple[int, float]]], weights: Mapping[Leg, float]) -> list[Leg]:
    return [leg for leg in sorted(streams, key=_ORDER.__getitem__) if streams[leg] and weights.get(leg, 1.0) > 0]


def _ranks(streams: Mapping[Leg, Sequence[tuple[int, float]]], counted: Sequence[Leg]) -> dict[int, dict[Leg, int]]:
    ranks: dict[int, dict[Leg, int]] = {}
    for leg in counted:
        for rank, (chunk_id, _) in enumerate(streams[leg], start=1):
            ranks.setdefault(chunk_id, {}).setdefault(leg, rank)
    return ranks


def _shares(stream: Sequence[tuple[int, float]]) -> list[float]:
    best = stream[0][1]
    return [max(score, 0.0) / best if best > 0 else 0.0 for _, score in stream]


def _ordered(fused: list[Fused]) -> list[Fused]:
    return sorted(fused, key=lambda hit: (-hit.score, _ORDER[hit.streams[0]], hit.chunk_id))

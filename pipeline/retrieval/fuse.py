"""Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009), scaled so that first place in every stream scores 1."""

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
    ranks: dict[int, dict[Leg, int]] = {}
    counted = [leg for leg in sorted(streams, key=_ORDER.__getitem__) if streams[leg] and weights.get(leg, 1.0) > 0]
    for leg in counted:
        for rank, (chunk_id, _) in enumerate(streams[leg], start=1):
            ranks.setdefault(chunk_id, {}).setdefault(leg, rank)
    highest = sum(weights.get(leg, 1.0) for leg in counted) / (k + 1)
    fused = [
        Fused(chunk_id, sum(weights.get(leg, 1.0) / (k + rank) for leg, rank in found.items()) / highest, found)
        for chunk_id, found in ranks.items()
    ]
    kept = [hit for hit in fused if hit.score >= min_score]
    return sorted(kept, key=lambda hit: (-hit.score, _ORDER[hit.streams[0]], hit.chunk_id))[:limit]

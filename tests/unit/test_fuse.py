"""Reciprocal rank fusion; the numbers in the names are those of the specification's cases."""

from __future__ import annotations

import pytest

from pipeline.retrieval.fuse import blend, fuse
from schemas.query import Leg

Stream = list[tuple[int, float]]


def scores(streams: dict[Leg, Stream], weights: dict[Leg, float] | None = None) -> dict[int, float]:
    return {hit.chunk_id: hit.score for hit in fuse(streams, 60, weights or {})}


def test_g30_first_in_both_non_empty_streams_scores_one() -> None:
    found = scores({Leg.KEYWORD: [(7, 3.0)], Leg.DENSE: [(7, 0.5)], Leg.GRAPH: []})
    assert found == {7: pytest.approx(1.0)}


def test_g31_first_in_one_of_three_streams_scores_a_third() -> None:
    found = scores({Leg.KEYWORD: [(1, 3.0)], Leg.DENSE: [(2, 0.5)], Leg.GRAPH: [(3, 0.5)]})
    assert found == {1: pytest.approx(1 / 3), 2: pytest.approx(1 / 3), 3: pytest.approx(1 / 3)}


def test_g32_a_min_score_of_a_half_drops_g31() -> None:
    streams: dict[Leg, Stream] = {Leg.KEYWORD: [(1, 3.0)], Leg.DENSE: [(2, 0.5)], Leg.GRAPH: [(3, 0.5)]}
    assert fuse(streams, 60, {}, min_score=0.5) == []


def test_g33_a_hit_lists_exactly_its_streams_and_ranks() -> None:
    streams: dict[Leg, Stream] = {Leg.GRAPH: [(9, 1.0), (7, 1.0)], Leg.DENSE: [(8, 1.0)], Leg.KEYWORD: [(7, 3.0)]}
    hit = next(hit for hit in fuse(streams, 60, {}) if hit.chunk_id == 7)
    assert hit.streams == (Leg.KEYWORD, Leg.GRAPH)
    assert dict(hit.ranks) == {Leg.KEYWORD: 1, Leg.GRAPH: 2}


def test_ties_go_by_the_first_stream_and_then_by_chunk_id() -> None:
    streams: dict[Leg, Stream] = {Leg.GRAPH: [(1, 1.0)], Leg.DENSE: [(3, 1.0)], Leg.KEYWORD: [(5, 1.0)]}
    assert [hit.chunk_id for hit in fuse(streams, 60, {})] == [5, 3, 1]
    assert [hit.chunk_id for hit in fuse({Leg.GRAPH: [(2, 1.0), (1, 1.0), (2, 1.0)]}, 60, {})] == [2, 1]


def test_weights_scale_and_a_stream_without_weight_does_not_count() -> None:
    streams: dict[Leg, Stream] = {Leg.KEYWORD: [(1, 1.0)], Leg.GRAPH: [(2, 1.0)], Leg.DENSE: [(3, 1.0)]}
    found = scores(streams, {Leg.KEYWORD: 0.5, Leg.GRAPH: 1.5, Leg.DENSE: 0.0})
    assert found == {1: pytest.approx(0.25), 2: pytest.approx(0.75)}


def test_no_streams_no_hits_and_a_limit_cuts() -> None:
    assert fuse({}, 60, {}) == []
    assert [hit.chunk_id for hit in fuse({Leg.DENSE: [(4, 1.0), (3, 1.0)]}, 60, {}, limit=1)] == [4]


def test_scores_are_fused_as_parts_of_the_best_of_their_stream() -> None:
    """The graph says 1 and 1/2, BM25 says 1/4 of its best for 2; 3 is in no other stream and has the last scores there."""
    streams: dict[Leg, Stream] = {
        Leg.KEYWORD: [(1, 8.0), (2, 2.0)],
        Leg.GRAPH: [(2, 0.5), (1, 0.25), (3, 0.125)],
    }
    found = blend(streams, {Leg.GRAPH: 3.0})
    assert {hit.chunk_id: hit.score for hit in found} == {
        1: pytest.approx((1.0 + 3 * 0.5) / 4),
        2: pytest.approx((0.25 + 3 * 1.0) / 4),
        3: pytest.approx((0.25 + 3 * 0.25) / 4),
    }
    assert [hit.chunk_id for hit in found] == [2, 1, 3] and found[2].streams == (Leg.GRAPH,)


def test_fused_scores_stay_within_0_and_1_whatever_a_stream_says() -> None:
    """Cosines may be negative, all of them; a stream of weight 0 or without hits does not count."""
    streams: dict[Leg, Stream] = {Leg.DENSE: [(1, -0.1), (2, -0.2)], Leg.KEYWORD: [(2, 3.0)], Leg.GRAPH: []}
    assert {hit.chunk_id: hit.score for hit in blend(streams, {})} == {1: 0.5, 2: 0.5}
    assert {hit.chunk_id: hit.score for hit in blend(streams, {Leg.DENSE: 0.0})} == {2: 1.0}
    assert blend({Leg.GRAPH: []}, {}) == []
    assert [hit.chunk_id for hit in blend({Leg.KEYWORD: [(7, 1.0)], Leg.DENSE: [(7, 0.4)]}, {})] == [7]

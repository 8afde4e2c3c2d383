"""The walk; the numbers in the names are those of the specification's cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import InconsistentGeneration, InvalidRequest
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import FAN, MAX_SEEDS, STEP_EDGES, Bounds, Limits, WalkResult, walk
from schemas.settings import GraphSearchSettings

A, B, C, D, HUB = 1, 2, 3, 4, 9


def ints(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(list(values), dtype=np.int64)


def graph(
    mentions: Mapping[int, Sequence[int]],
    edges: Iterable[tuple[int, int]] = (),
    documents: Mapping[int, tuple[str, int]] | None = None,
    communities: Mapping[int, int] | None = None,
) -> Snapshot:
    """A snapshot of chunks (id -> entities), each the only one of its document unless `documents` says otherwise."""
    return Snapshot.empty().apply(first(mentions, edges, documents, communities))


def first(
    mentions: Mapping[int, Sequence[int]],
    edges: Iterable[tuple[int, int]] = (),
    documents: Mapping[int, tuple[str, int]] | None = None,
    communities: Mapping[int, int] | None = None,
) -> Delta:
    """The rows of a first generation."""
    places = [(documents or {}).get(chunk, (f"d{chunk}", 0)) for chunk in mentions]
    entities = sorted({entity for named in mentions.values() for entity in named} | {e for edge in edges for e in edge})
    pairs = [(chunk, entity) for chunk, named in mentions.items() for entity in named]
    ends = list(edges)
    zeros = np.zeros(len(mentions), dtype=np.int32)
    return Delta(
        generation=1,
        dead_chunks=ints([]),
        dead_entities=ints([]),
        dead_relations=RelationRows(ints([]), ints([]), [], np.zeros(0, dtype=np.float32)),
        chunks=ChunkRows(
            ints(mentions),
            [document for document, _ in places],
            np.array([ordinal for _, ordinal in places], dtype=np.int32),
            zeros,
            [b""] * len(mentions),
        ),
        mentions=MentionRows(ints(chunk for chunk, _ in pairs), ints(entity for _, entity in pairs)),
        entities=EntityRows(
            ints(entities), [str(entity) for entity in entities], ints((communities or {}).get(e, -1) for e in entities)
        ),
        relations=RelationRows(
            ints(source for source, _ in ends),
            ints(target for _, target in ends),
            [f"t{place}" for place in range(len(ends))],
            np.ones(len(ends), dtype=np.float32),
        ),
    )


def candidates(snapshot: Snapshot, seeds: Mapping[int, float], limits: Limits) -> dict[int, float]:
    result = found(snapshot, seeds, limits)
    return dict(zip(snapshot.chunk_ids[result.rows].tolist(), result.scores.tolist(), strict=True))


def found(snapshot: Snapshot, seeds: Mapping[int, float], limits: Limits) -> WalkResult:
    rows = snapshot.rows(seeds)
    return walk(snapshot, list(zip(rows.tolist(), seeds.values(), strict=True)), limits)


def limits(hops: int = 2, window: int = 0, cap: int = 50, communities: bool = False) -> Limits:
    return Limits(max_hops=hops, window=window, cap=cap, top_k=30, communities=communities)


def test_w1_an_entity_that_only_shares_a_chunk_is_not_reached() -> None:
    """Co-mention is no relation: chunk 30 of D stays out, D is not resolved."""
    snapshot = graph({10: [A], 20: [A, D], 30: [D]})
    assert candidates(snapshot, {10: 1.0}, limits()) == {20: 1.0}
    assert found(snapshot, {10: 1.0}, limits()).resolved_entities == 1


W2 = graph({10: [HUB], 11: [HUB], 20: [A], 30: [B]}, [(HUB, A), (B, HUB)])


def test_w2_own_chunks_score_one_and_related_ones_a_half() -> None:
    assert candidates(W2, {10: 1.0}, limits()) == {11: 1.0, 20: 0.5, 30: 0.5}


@pytest.mark.parametrize("cap", [1, 2])
def test_w3_the_cap_counts_other_entities_only(cap: int) -> None:
    scores = candidates(W2, {10: 1.0}, limits(cap=cap))
    assert scores.pop(11) == 1.0
    assert scores == dict(list({20: 0.5, 30: 0.5}.items())[:cap])


def test_w4_an_entity_without_relations_still_gives_its_own_chunks() -> None:
    assert candidates(graph({10: [A], 20: [A]}), {10: 0.8}, limits()) == {20: 0.8}


@pytest.mark.parametrize(
    "change", [{"cap": 0}, {"cap": 1001}, {"hops": -1}, {"hops": 6}, {"hops": 9}, {"window": -1}, {"window": 11}]
)
def test_w5_bounds_are_checked_before_anything_runs(change: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="must be between"):
        limits(**change)


CHAIN = graph(
    {1: [A], 10: [], 11: [], 12: [], 13: [A, B], 14: [], 15: [], 16: [], 17: [], 90: []},
    documents={**{10 + n: ("doc", n) for n in range(8)}, 90: ("other", 0)},
)


def test_w6_the_window_reaches_along_the_document_in_both_directions() -> None:
    assert candidates(CHAIN, {1: 1.0}, limits(window=0)) == {13: 1.0}
    quarter = pytest.approx(1 / 3)
    expected = {10: 0.25, 11: quarter, 12: 0.5, 13: 1.0, 14: 0.5, 15: quarter, 16: 0.25}
    assert candidates(CHAIN, {1: 1.0}, limits(window=3)) == expected


def test_w7_the_neighbour_of_a_chunk_at_a_half_scores_a_quarter() -> None:
    snapshot = graph({1: [A], 10: [B], 11: []}, [(A, B)], documents={10: ("doc", 0), 11: ("doc", 1)})
    assert candidates(snapshot, {1: 1.0}, limits(window=1)) == {10: 0.5, 11: 0.25}


def test_w8_equal_scores_go_by_similarity_and_then_by_chunk_id() -> None:
    snapshot = graph({10: [A], 20: [A], 30: [A], 40: [A]})
    result = found(snapshot, {10: 1.0}, limits())
    assert snapshot.chunk_ids[result.contested(2)].tolist() == [20, 30, 40]
    settled = result.settle({int(row): near for row, near in zip(result.rows, (0.1, 0.9, 0.1), strict=True)}, 2)
    assert snapshot.chunk_ids[settled.rows].tolist() == [30, 20]


def test_w8_only_ties_that_reach_into_the_result_are_contested() -> None:
    snapshot = graph({10: [A], 20: [A], 30: [B], 40: [B]}, [(A, B)])
    result = found(snapshot, {10: 1.0}, limits())
    assert result.contested(1).tolist() == []
    assert snapshot.chunk_ids[result.contested(2)].tolist() == [30, 40]


def test_w10_the_counters_of_one_seed_one_relation_and_one_hit() -> None:
    result = found(graph({10: [A], 20: [B]}, [(A, B)]), {10: 1.0}, limits(window=1, communities=True)).settle({}, 30)
    assert result.counters == {
        "seed_chunks": 1,
        "resolved_entities": 2,
        "relationship_expansion_hits": 1,
        "community_expansion_hits": 0,
        "seeds_cut_short": 0,
    }


def test_a_chunk_within_reach_of_two_seeds_has_its_best_score() -> None:
    snapshot = graph({10: [A], 11: [B], 20: [C]}, [(A, C), (B, D), (D, C)])
    assert candidates(snapshot, {10: 0.4, 11: 0.9}, limits()) == {20: pytest.approx(0.3)}


def test_hops_bound_the_distance() -> None:
    snapshot = graph({10: [A], 20: [B], 30: [C]}, [(A, B), (B, C)])
    assert candidates(snapshot, {10: 0.9}, limits(hops=0)) == {}
    assert candidates(snapshot, {10: 0.9}, limits(hops=1)) == {20: 0.45}
    assert candidates(snapshot, {10: 0.9}, limits(hops=2)) == {20: 0.45, 30: pytest.approx(0.3)}


def test_more_paths_come_first_under_the_cap() -> None:
    """Both C and B are one step away; two relations lead to C."""
    snapshot = graph({10: [A], 20: [B], 30: [C]}, [(A, B), (A, C), (C, A)])
    assert candidates(snapshot, {10: 1.0}, limits(cap=1)) == {30: 0.5}


def test_communities_add_chunks_below_the_last_hop_and_only_new_ones() -> None:
    """Members that no relation reaches come in at 1 / (2 + hops), those with most members first; seeds stay out."""
    mentions = {10: [A, B], 20: [A], 30: [C], 40: [C, D], 50: [7]}
    snapshot = graph(mentions, communities={A: 5, B: 5, C: 5, D: 5, 7: 6})
    result = found(snapshot, {10: 1.0}, limits(hops=2, communities=True))
    assert candidates(snapshot, {10: 1.0}, limits(hops=2, communities=True)) == {20: 1.0, 30: 0.25, 40: 0.25}
    assert result.by_community.tolist() == [False, True, True]
    assert candidates(snapshot, {10: 1.0}, limits(hops=2)) == {20: 1.0}


def test_a_community_adds_at_most_ten_chunks() -> None:
    snapshot = graph({1: [A], **{n: [B] for n in range(10, 40)}}, communities={A: 0, B: 0})
    assert list(candidates(snapshot, {1: 1.0}, limits(communities=True))) == list(range(10, 20))


def test_a_hub_is_read_only_as_far_as_its_list_goes() -> None:
    """A hub of 5,000 neighbours is cut short, and says so; those with most relations come first, then the lowest numbers."""
    spokes = [(HUB, entity) for entity in range(10, 5010)]
    hub = graph({1: [HUB], 2: [10], 3: [4000], 4: [4001]}, [*spokes, (4000, HUB)])
    result = found(hub, {1: 1.0}, limits(cap=1000))
    assert result.cut_short == 1
    assert result.resolved_entities == 1 + FAN
    assert hub.chunk_ids[result.rows].tolist() == [2, 3]


def test_a_step_reads_whole_lists_until_one_does_not_fit() -> None:
    """The lists of B and C fit exactly; one neighbour more of C, and it is left out with all that would come after it."""
    edges = [(A, B), (A, B), (A, C), (A, D), (B, 10), (B, 11), (C, 20), (D, 30)]
    mentions = {1: [A], 10: [10], 20: [20], 30: [30]}
    # The lists hold A too: A has 3 entries, B 3, C 2, D 2.
    exact = replace(limits(), bounds=Bounds(fan=4, step_edges=7))
    assert found(graph(mentions, edges), {1: 1.0}, exact).cut_short == 0
    less = replace(exact, bounds=Bounds(fan=4, step_edges=5))
    result = found(graph(mentions, edges), {1: 1.0}, less)
    assert (result.cut_short, result.resolved_entities) == (1, 7)
    result = found(graph(mentions, [*edges, (C, 21)]), {1: 1.0}, less)
    assert (result.cut_short, result.resolved_entities) == (1, 6)
    assert result.rows.tolist() == [1]


def test_only_the_strongest_entities_are_walked_from() -> None:
    """Of more seed entities than are walked from the weakest stay behind, of equally strong ones those of high number."""
    most = range(10, 10 + MAX_SEEDS)
    crowd = graph({1: [*most, 500], 2: [501], 20: [500], 21: [501], 22: [10 + MAX_SEEDS - 1], 23: [10 + MAX_SEEDS - 2]})
    assert candidates(crowd, {1: 0.5, 2: 0.75}, limits()) == {21: 0.75, 23: 0.5}
    assert found(crowd, {1: 0.5, 2: 0.75}, limits()).resolved_entities == MAX_SEEDS


def test_lists_of_chunks_are_read_whole_and_best_first() -> None:
    """An entity's list holds its first chunks; the one that does not fit any more ends the reading."""
    edges = [(A, B), (A, B), (A, C)]
    snapshot = graph({1: [A], 2: [A], 3: [A], 4: [A], 5: [B], 6: [B], 7: [C]}, edges)
    bounds = Bounds(fan=9, entity_chunks=3, chunk_links=5, community_links=3)
    result = found(snapshot, {1: 1.0}, replace(limits(), bounds=bounds))
    assert snapshot.chunk_ids[result.rows].tolist() == [2, 3, 5, 6]
    tight = replace(bounds, chunk_links=4)
    result = found(snapshot, {1: 1.0}, replace(limits(), bounds=tight))
    assert snapshot.chunk_ids[result.rows].tolist() == [2, 3]
    assert result.resolved_entities == 3


def test_communities_look_at_the_first_members_and_at_lists_that_fit() -> None:
    """Members by number; of three members with two chunks each, bounds of two members or of four links read two."""
    mentions = {1: [9], 10: [A], 11: [A, B], 12: [B], 13: [C], 14: [C]}
    snapshot = graph(mentions, communities={9: 0, A: 0, B: 0, C: 0})
    for bounds in (Bounds(members=2), Bounds(fan=4, entity_chunks=4, community_links=5)):
        asked = replace(limits(hops=0, communities=True), bounds=bounds)
        assert set(candidates(snapshot, {1: 1.0}, asked)) == {10, 11, 12}
    one = replace(limits(hops=0, communities=True), bounds=Bounds(members=2, community_chunks=1))
    assert candidates(snapshot, {1: 1.0}, one) == {11: 0.5}


def test_the_bounds_leave_room_for_a_whole_list() -> None:
    assert Bounds().fan <= STEP_EDGES
    for change in ({"fan": 2_000}, {"chunk_links": 999}, {"community_links": 999}):
        with pytest.raises(InvalidRequest, match="room for one whole list"):
            Bounds(**change)


def test_a_filter_restricts_results_but_not_the_way() -> None:
    snapshot = graph({10: [A], 20: [B], 30: [C]}, [(A, B), (B, C)])
    result = walk(snapshot, [(0, 1.0)], limits(), snapshot.mask(ints([30, 77])))
    assert snapshot.chunk_ids[result.rows].tolist() == [30]


def test_no_seeds_and_seeds_without_entities_give_nothing() -> None:
    snapshot = graph({10: [], 20: [A]})
    assert candidates(snapshot, {}, limits(window=1, communities=True)) == {}
    assert candidates(snapshot, {10: 1.0}, limits(window=1, communities=True)) == {}
    assert candidates(Snapshot.empty(), {}, limits(window=1, communities=True)) == {}


def test_negative_seed_scores_are_scores_too() -> None:
    assert candidates(graph({10: [A], 20: [A]}), {10: -0.5}, limits()) == {20: -0.5}


def test_limits_follow_the_settings() -> None:
    assert Limits.of(GraphSearchSettings()) == Limits(max_hops=2, window=1, cap=50, top_k=30, communities=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (first({10: [A]}), "chunk 10 begins twice"),
        (first({30: [A]}), "entity 1 begins twice"),
        (replace(first({}), dead_chunks=ints([77])), "chunk 77 ends"),
        (replace(first({}), dead_entities=ints([A])), "entity 1 ends while a mention"),
        (replace(first({}), mentions=MentionRows(ints([77]), ints([A]))), "in chunk 77"),
        (replace(first({}), mentions=MentionRows(ints([10]), ints([77]))), "names entity 77"),
        (replace(first({}), relations=first({}, [(A, 77)]).relations), "ends at entity 77"),
        (replace(first({}), dead_relations=first({}, [(B, A)]).relations), "relation .* ends"),
    ],
)
def test_a_change_that_contradicts_the_generation_is_refused(change: Delta, message: str) -> None:
    with pytest.raises(InconsistentGeneration, match=message):
        graph({10: [A], 20: [B]}, [(A, B)]).apply(change)


def test_a_change_without_rows_shares_the_arrays() -> None:
    snapshot = graph({10: [A], 20: [B]}, [(A, B)])
    later = snapshot.apply(replace(first({}), generation=2))
    assert later.generation == 2
    assert later.chunks is snapshot.chunks
    assert later.keyword is snapshot.keyword

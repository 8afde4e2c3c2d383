"""The walk; the numbers in the names are those of the specification's cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InconsistentGeneration, InvalidRequest
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import Limits, WalkResult, walk
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


def test_a_hub_is_read_only_as_far_as_the_budget_goes() -> None:
    """A hub of 5,000 edges with a budget of 100 is cut short, and says so."""
    hub = graph({1: [HUB], 2: [10], 3: [5000]}, [(HUB, entity) for entity in range(10, 5010)])
    result = found(hub, {1: 1.0}, Limits(max_hops=2, window=0, cap=1000, top_k=30, edge_budget=100))
    assert result.cut_short == 1
    assert result.resolved_entities == 101
    assert hub.chunk_ids[result.rows].tolist() == [2]


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


MENTIONS = st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=12)
EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=10)
SEEDS = st.dictionaries(st.integers(0, 12), st.sampled_from([-0.5, 0.2, 0.5, 1.0]), max_size=3)
BOUNDS = st.builds(
    Limits,
    max_hops=st.integers(0, 3),
    window=st.integers(0, 2),
    cap=st.integers(1, 4),
    top_k=st.integers(1, 8),
    communities=st.booleans(),
)


@given(MENTIONS, EDGES, SEEDS, BOUNDS, st.none() | st.sets(st.integers(0, 12)))
def test_the_best_rows_are_those_of_plain_python(
    mentions: dict[int, list[int]],
    edges: list[tuple[int, int]],
    seeds: dict[int, float],
    bounds: Limits,
    some: set[int] | None,
) -> None:
    """All that could be among the first `top_k` is there with its score, with filters, windows and communities."""
    places = {chunk: (f"d{chunk // 4}", chunk) for chunk in mentions}
    edges = [edge for edge in edges if all(any(end in named for named in mentions.values()) for end in edge)]
    communities = {entity: entity % 2 for entity in range(6)}
    snapshot = graph(mentions, edges, places, communities)
    seeds = {chunk: score for chunk, score in seeds.items() if chunk in mentions}
    allowed = None if some is None else snapshot.mask(ints(some))
    pairs = list(zip(snapshot.rows(seeds).tolist(), seeds.values(), strict=True))
    result = walk(snapshot, pairs, bounds, allowed)
    scores = expected(mentions, edges, seeds, bounds)
    scores = {chunk: score for chunk, score in scores.items() if some is None or chunk in some}
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    least = ranked[bounds.top_k - 1][1] if len(ranked) >= bounds.top_k else -np.inf
    best = [(chunk, score) for chunk, score in ranked if score >= least]
    assert list(zip(snapshot.chunk_ids[result.rows].tolist(), result.scores.tolist(), strict=True)) == best


def expected(
    mentions: dict[int, list[int]], edges: list[tuple[int, int]], seeds: dict[int, float], bounds: Limits
) -> dict[int, float]:
    """The score of every chunk, for graphs too small for a community to have more chunks than it may add."""
    strengths: dict[int, float] = {}
    for chunk, score in seeds.items():
        for entity in mentions[chunk]:
            strengths[entity] = max(score, strengths.get(entity, -np.inf))
    best = dict(strengths)
    for entity, strength in strengths.items():
        for other, distance in reached(edges, entity, bounds).items():
            best[other] = max(best.get(other, -np.inf), strength / (1 + distance))
    others = [chunk for chunk in mentions if chunk not in seeds]
    own = {c: max(best[e] for e in mentions[c] if e in best) for c in others if any(e in best for e in mentions[c])}
    scores = dict(own)
    for chunk in others:
        near = [(c, places_apart(mentions, chunk, c)) for c in own if c != chunk]
        shared = [own[c] / (1 + apart) for c, apart in near if apart is not None and apart <= bounds.window]
        if shared:
            scores[chunk] = max(scores.get(chunk, -np.inf), *shared)
    return with_communities(mentions, seeds, strengths, scores, bounds) if bounds.communities else scores


def reached(edges: list[tuple[int, int]], seed: int, bounds: Limits) -> dict[int, int]:
    """Breadth first by shortest paths, cut to the cap: nearest, most paths, lowest number."""
    found, paths, frontier = {seed: 0}, Counter({seed: 1}), {seed}
    for distance in range(1, bounds.max_hops + 1):
        ways = Counter[int]()
        for one, two in edges:
            for source, target in ((one, two), (two, one)):
                if source != target and source in frontier and target not in found:
                    ways[target] += paths[source]
        free = max(bounds.cap - (len(found) - 1), 0)
        kept = sorted(ways.items(), key=lambda item: (-item[1], item[0]))[:free]
        frontier = {entity for entity, _ in kept}
        paths.update(dict(kept))
        found |= dict.fromkeys(frontier, distance)
    return found


def places_apart(mentions: dict[int, list[int]], one: int, two: int) -> int | None:
    document = sorted(chunk for chunk in mentions if chunk // 4 == one // 4)
    return abs(document.index(one) - document.index(two)) if two in document else None


def with_communities(
    mentions: dict[int, list[int]],
    seeds: dict[int, float],
    strengths: dict[int, float],
    scores: dict[int, float],
    bounds: Limits,
) -> dict[int, float]:
    scores = dict(scores)
    for entity, strength in strengths.items():
        if entity == 6:
            continue
        others = ((c, named) for c, named in mentions.items() if c not in seeds)
        scored = [c for c, named in others if any(e < 6 and e % 2 == entity % 2 for e in named)]
        for chunk in scored:
            scores[chunk] = max(scores.get(chunk, -np.inf), strength / (2.0 + bounds.max_hops))
    return scores

"""The walk equals plain Python on generated graphs."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrieval.graph import Csr
from pipeline.retrieval.walk import Limits, related

Edges = list[tuple[int, int]]


def walked(edges: Edges, seeds: list[int], limits: Limits) -> set[tuple[int, int, int]]:
    """Breadth first from each seed: (position of the seed, entity, distance)."""
    neighbors: dict[int, Counter[int]] = {}
    for source, target in edges:
        if source != target:
            neighbors.setdefault(source, Counter())[target] += 1
            neighbors.setdefault(target, Counter())[source] += 1
    reached: set[tuple[int, int, int]] = set()
    for place, seed in enumerate(seeds):
        seen, frontier, taken = {seed}, [(seed, 1)], 0
        reached.add((place, seed, 0))
        for distance in range(1, limits.max_hops + 1):
            if taken >= limits.cap:
                break
            left, paths = limits.edge_budget // len(seeds), Counter[int]()
            for entity, ways in frontier:
                listed = sorted(neighbors.get(entity, Counter()).items(), key=lambda item: (-item[1], item[0]))[:left]
                left -= len(listed)
                paths.update({near: ways * times for near, times in listed})
            new = sorted(((n, w) for n, w in paths.items() if n not in seen), key=lambda item: (-item[1], item[0]))
            frontier = new[: limits.cap - taken]
            taken += len(frontier)
            seen |= {entity for entity, _ in frontier}
            reached |= {(place, entity, distance) for entity, _ in frontier}
    return reached


EDGES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40)
LIMITS = st.builds(
    Limits,
    max_hops=st.integers(0, 5),
    window=st.just(0),
    cap=st.integers(1, 8),
    top_k=st.just(30),
    edge_budget=st.sampled_from([3, 10, 30, 200_000]),
)


@given(EDGES, st.sets(st.integers(0, 11), min_size=1, max_size=5), LIMITS)
def test_the_walk_of_all_seeds_at_once_is_that_of_each_alone(edges: Edges, seeds: set[int], limits: Limits) -> None:
    """Same entities at the same distances, hubs, parallel edges, loops, caps and edge budgets included."""
    both = np.array([*edges, *((target, source) for source, target in edges)], dtype=np.int64).reshape(-1, 2)
    both = both[both[:, 0] != both[:, 1]]
    neighbors = Csr.group(both[:, 0], both[:, 1], (12, 12)).heaviest_first()
    reach = related(neighbors, np.array(sorted(seeds), dtype=np.int64), limits)
    rows = list(zip(reach.seed.tolist(), reach.entity.tolist(), reach.distance.tolist(), strict=True))
    assert set(rows) == walked(edges, sorted(seeds), limits)
    assert len(set(rows)) == len(rows)

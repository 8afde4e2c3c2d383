"""Clustering on arrays: as good as a library's, and a small change of the graph is a small change of the clusters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import graspologic_native
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from pipeline.ingest.communities import graph_of
from pipeline.ingest.leiden import Ints, clustered, modularity

Edge = tuple[int, int, int]


def matrix(nodes: Iterable[int], edges: Iterable[Edge]) -> tuple[Ints, Any]:
    """The numbers of the nodes with edges and the weights between them."""
    found = graph_of(np.array(list(nodes)), np.array(list(edges), dtype=np.int64).reshape(-1, 3))
    inside = np.flatnonzero(found.degrees)
    return found.entities[inside], found.weights[inside][:, inside]


def groups(nodes: Iterable[int], edges: Iterable[Edge]) -> set[frozenset[int]]:
    numbers, weights = matrix(nodes, edges)
    label = clustered(weights, np.zeros(len(numbers), dtype=np.int64), numbers)
    return {frozenset(numbers[label == one].tolist()) for one in np.unique(label)}


def library(nodes: Iterable[int], edges: Iterable[Edge]) -> tuple[float, set[frozenset[int]]]:
    """What graspologic-native finds: its modularity and its clusters."""
    numbers, weights = matrix(nodes, edges)
    parts = (weights.indptr.astype(np.int64), weights.indices.astype(np.int32), weights.data)
    quality, labels = graspologic_native.leiden_csr(*parts, len(numbers), seed=19)
    members: dict[int, set[int]] = {}
    for place, label in labels.items():
        members.setdefault(label, set()).add(int(numbers[place]))
    return quality, set(map(frozenset, members.values()))


def planted(seed: int, count: int = 2000, groups_of: int = 40, mixing: float = 0.25) -> list[Edge]:
    """Groups with edges inside, and others anywhere, between nodes with numbers like hashes."""
    chance = Random(seed)
    numbers = [chance.randrange(2**62) for _ in range(count)]
    edges: list[Edge] = []
    for place in range(count):
        first = place // groups_of * groups_of
        for _ in range(4):
            other = chance.randrange(count) if chance.random() < mixing else first + chance.randrange(groups_of)
            edges.append((numbers[place], numbers[other % count], 1 + chance.randrange(3)))
    return edges


def grown(seed: int, count: int = 2000) -> list[Edge]:
    """Each new node is joined to three by preference for those with many edges: hubs and leaves."""
    chance = Random(seed)
    numbers = [chance.randrange(2**62) for _ in range(count)]
    ends = [0, 1]
    edges: list[Edge] = [(numbers[0], numbers[1], 1)]
    for place in range(2, count):
        for other in {ends[chance.randrange(len(ends))] for _ in range(chance.choice((1, 1, 3)))}:
            edges.append((numbers[place], numbers[other], 1))
            ends += [place, other]
    return edges


def anything(seed: int, count: int = 1000) -> list[Edge]:
    """Edges by chance, with nothing to be found in them."""
    chance = Random(seed)
    return [(chance.randrange(count), chance.randrange(count), 1) for _ in range(4 * count)]


def ends(edges: Iterable[Edge]) -> set[int]:
    return {end for edge in edges for end in edge[:2]}


@pytest.mark.parametrize("kind", [planted, grown, anything])
def test_it_is_as_good_as_the_library(kind: Callable[[int], list[Edge]]) -> None:
    """In modularity: at most a hundredth below it on any graph, and not below it on the whole."""
    ours, theirs = list[float](), list[float]()
    for seed in range(5):
        edges = kind(seed)
        numbers, weights = matrix(ends(edges), edges)
        ours.append(modularity(weights, clustered(weights, np.zeros(len(numbers), dtype=np.int64), numbers)))
        theirs.append(library(ends(edges), edges)[0])
    assert all(own > other - 0.01 for own, other in zip(ours, theirs, strict=True))
    assert sum(ours) >= sum(theirs)


def changed(find: Callable[[set[int], list[Edge]], set[frozenset[int]]]) -> list[float]:
    """What share of the clusters goes when one node comes, time after time."""
    edges = planted(7)
    nodes = ends(edges)
    ordered, chance = sorted(nodes), Random(1)
    before = find(nodes, edges)
    shares: list[float] = []
    for _ in range(10):
        new = chance.randrange(2**62)
        after = find(nodes | {new}, [*edges, (new, chance.choice(ordered), 1)])
        shares.append(len(before - after) / len(before))
    return shares


def test_one_node_more_changes_little() -> None:
    """Half of the time nothing but its own cluster, of about fifty."""
    shares = sorted(changed(groups))
    assert shares[5] <= 0.03
    assert shares[-1] <= 0.3


def test_of_the_library_one_node_more_changes_everything() -> None:
    """The negative control: what it draws by chance depends on how many nodes there are."""
    shares = sorted(changed(lambda nodes, edges: library(nodes, edges)[1]))
    assert shares[5] > 0.3


EDGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=60)


@settings(deadline=None)
@given(EDGES, EDGES)
def test_parts_are_clustered_as_if_alone(first: list[Edge], second: list[Edge]) -> None:
    """Whatever is clustered beside them: what was found of one can be kept while the other changes."""
    both = [matrix(ends(edges), edges) for edges in (first, second)]
    alone = [clustered(weights, np.zeros(len(numbers), dtype=np.int64), numbers) for numbers, weights in both]
    edges = [*first, *((s + 100, t + 100, w) for s, t, w in second)]
    numbers, weights = matrix(ends(edges), edges)
    part = (numbers >= 100).astype(np.int64)
    size = len(alone[0])
    together = clustered(weights, part, np.where(part, numbers - 100, numbers))
    assert together[:size].tolist() == alone[0].tolist()
    assert (together[size:] - size).tolist() == alone[1].tolist()


@settings(deadline=None)
@given(EDGES)
def test_clusters_hang_together_and_are_named_by_their_first_nodes(edges: list[Edge]) -> None:
    numbers, weights = matrix(ends(edges), edges)
    if not len(numbers):
        return
    label = clustered(weights, np.zeros(len(numbers), dtype=np.int64), numbers)
    assert modularity(weights, label) >= 0
    for one in np.unique(label):
        members = np.flatnonzero(label == one)
        assert members[0] == one
        assert connected_components(weights[members][:, members], directed=False)[0] == 1


def cliques(sizes: Sequence[int]) -> list[Edge]:
    starts = np.cumsum([0, *sizes]).tolist()
    return [
        (start + a, start + b, 1)
        for start, size in zip(starts[:-1], sizes, strict=True)
        for a, b in itertools.combinations(range(size), 2)
    ]


def test_what_nobody_could_do_better() -> None:
    """Cliques that a ring of single edges joins, and the modularity of two that nothing joins."""
    edges = [*cliques([6] * 12), *((6 * n, (6 * n + 7) % 72, 1) for n in range(12))]
    assert groups(range(72), edges) == {frozenset(range(n * 6, n * 6 + 6)) for n in range(12)}
    numbers, weights = matrix(range(8), cliques([4, 4]))
    assert modularity(weights, clustered(weights, np.zeros(8, dtype=np.int64), numbers)) == 0.5
    assert modularity(weights, np.zeros(8, dtype=np.int64)) == 0.0

"""Communities: every graph ends, every entity has a place, and the order of rows does not matter."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import anyio
import anyio.to_thread
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.deadline import Deadline
from pipeline.errors import ModelError, SapwoodError
from pipeline.graphs.parts import Clusters
from pipeline.ingest import communities
from pipeline.ingest.communities import (
    LEADERS,
    Graph,
    Ints,
    Labels,
    Partition,
    described,
    detect,
    foremost,
    graph_of,
    partition,
    recall,
    regroup,
    undescribed,
)
from pipeline.ingest.leiden import clustered
from pipeline.ingest.summaries import Named, Topic, known, summarised
from pipeline.testing import communities_contract
from pipeline.testing.communities_contract import CommunitiesContract, Find
from pipeline.testing.partitions import adjusted_rand, modularity

Edge = tuple[int, int, int]


def array(edges: Iterable[Edge]) -> Ints:
    return np.array(list(edges), dtype=np.int64).reshape(-1, 3)


def found(nodes: Iterable[int], edges: Iterable[Edge], limit: int = 50) -> Partition:
    return detect(np.array(list(nodes), dtype=np.int64), array(edges), limit)


def groups(partition: Partition) -> set[frozenset[int]]:
    return {frozenset(c.members) for c in partition.communities}


class TestEmbedded(CommunitiesContract):
    """The contract, by the implementation that needs no server."""

    @pytest.fixture
    def find(self) -> Find:
        async def find(nodes: Sequence[int], edges: Sequence[communities_contract.Edge]) -> Partition:
            return found(nodes, [(s, t, e) for s, t, _, e in edges])

        return find


PAIR = [(1, 2, 1), (1, 2, 1)]
STAR = [(0, leaf, 2) for leaf in range(1, 15)]
TRIANGLE = [(1, 2, 1), (2, 3, 1), (3, 1, 1)]


@pytest.mark.parametrize("weight", [1, 2])
@pytest.mark.parametrize("edges", [PAIR, STAR, TRIANGLE, [(0, leaf, 1) for leaf in range(1, 1001)]])
def test_small_symmetric_graphs_end_as_one_community(edges: list[Edge], weight: int) -> None:
    """The pair and the star whose ends swap labels for ever under label propagation."""
    nodes = {end for edge in edges for end in edge[:2]}
    for limit in (2, 5000):
        partition = found(nodes, [(s, t, w * weight) for s, t, w in edges], limit)
        assert frozenset(nodes) in groups(partition)
        assert all(path for path in partition.paths)


def test_a_clique_above_the_limit_that_does_not_fall_apart_stays_whole() -> None:
    clique = [(a, b, 1) for a, b in itertools.combinations(range(30), 2)]
    assert groups(found(range(30), clique, 5)) == {frozenset(range(30))}


def test_isolated_entities_are_communities_of_their_own() -> None:
    partition = found([1, 2, 3, 9], TRIANGLE)
    assert groups(partition) == {frozenset({1, 2, 3}), frozenset({9})}
    assert len(partition.paths) == 4
    assert all(len(path) == 1 for path in partition.paths)


def test_no_entities_are_no_error() -> None:
    partition = found([], [])
    assert (partition.communities, partition.levels, partition.modularity) == ([], 0, 0.0)


def test_loops_and_edges_to_strangers_are_left_out() -> None:
    assert groups(found([1, 2], [(1, 1, 5), (1, 7, 5), (1, 2, 1)])) == {frozenset({1, 2})}


def caves(count: int, size: int) -> list[Edge]:
    """Return cliques in a ring, joined by single edges, and pairs of cliques joined twice as much."""
    edges = [(c * size + a, c * size + b, 4) for c in range(count) for a, b in itertools.combinations(range(size), 2)]
    return edges + [(c * size, (c * size + size + 1) % (count * size), 1 + c % 2 * 8) for c in range(count)]


def test_large_clusters_are_split_level_by_level() -> None:
    partition = found(range(400), caves(80, 5), 5)
    assert partition.levels > 1
    by_id = {c.community_id: c for c in partition.communities}
    for node, path in enumerate(partition.paths):
        chain = [by_id[community] for community in path]  # type: ignore[index]
        assert [c.level for c in chain] == list(range(len(chain)))
        assert [c.parent for c in chain[1:]] == [c.community_id for c in chain[:-1]]
        assert all(set(inner.members) < set(outer.members) for outer, inner in itertools.pairwise(chain))
        assert node in chain[-1].members


GRAPHS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14), st.integers(1, 3)), max_size=50)


@settings(deadline=None)
@given(GRAPHS, st.randoms(use_true_random=False), st.integers(2, 6))
def test_the_order_and_direction_of_rows_do_not_matter(edges: list[Edge], random: object, limit: int) -> None:
    nodes = list(range(15))
    first = found(nodes, edges, limit)
    shuffled = [(t, s, w) if s % 2 else (s, t, w) for s, t, w in edges]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    random.shuffle(nodes)  # type: ignore[attr-defined]
    second = found(nodes, shuffled, limit)
    assert (first.paths, first.communities) == (second.paths, second.communities)
    assert sorted(itertools.chain(*(c.members for c in first.communities if c.level == 0))) == list(range(15))


def test_an_unchanged_community_keeps_its_id_when_another_changes() -> None:
    before = found(range(6), [*TRIANGLE, (4, 5, 1)])
    after = found(range(7), [*TRIANGLE, (4, 5, 1), (5, 6, 1)])
    same = {c.community_id for c in before.communities} & {c.community_id for c in after.communities}
    assert len(same) == 2  # the triangle and the lone 0


PATHS = st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 2), min_size=3, max_size=3).map(tuple))


@settings(deadline=None)
@given(PATHS)
def test_any_clustering_becomes_nested_communities(paths: dict[int, tuple[int, ...]]) -> None:
    """Even one whose levels are not nested; who is in none is alone, and together are those whose paths are equal."""
    nodes = range(15)
    made = partition(np.array(nodes), Clusters(paths, 0.5))
    communities_contract.check(made, nodes)
    assert made.modularity == 0.5
    for one, two in itertools.combinations(nodes, 2):
        together = paths.get(one, one) == paths.get(two, two)
        assert (made.paths[one] == made.paths[two]) == together


@settings(deadline=None)
@given(GRAPHS, st.integers(2, 6))
def test_the_embedded_clusters_become_the_embedded_communities(edges: list[Edge], limit: int) -> None:
    """Read back from its paths, whatever numbers these are, a partition is itself."""
    first = found(range(15), edges, limit)
    ends = {end for s, t, _ in edges if s != t for end in (s, t)}
    paths = {node: path for node, path in enumerate(first.paths) if node in ends}
    again = partition(first.entities, Clusters(paths, first.modularity or 0.0))
    assert (again.paths, again.communities, again.modularity) == (first.paths, first.communities, first.modularity)


def test_levels_that_are_not_nested_become_nested() -> None:
    """2 changes sides between the levels; a level that divides nothing is none."""
    made = partition(np.arange(6), Clusters({0: (7, 3, 0), 1: (7, 3, 0), 2: (7, 3, 1), 3: (8, 4, 1), 4: (8, 4, 1)}))
    assert groups(made) == {frozenset({0, 1, 2}), frozenset({0, 1}), frozenset({2}), frozenset({3, 4}), frozenset({5})}
    assert [len(path) for path in made.paths] == [2, 2, 2, 1, 1, 1]


@settings(deadline=None)
@given(GRAPHS)
def test_the_modularity_of_a_partition_is_what_the_library_says(edges: list[Edge]) -> None:
    first = found(range(15), edges)
    measured = modularity(first.entities, array(edges), [path[0] for path in first.paths])
    assert measured == pytest.approx(first.modularity, abs=1e-9)


def test_how_far_partitions_agree() -> None:
    """Equal ones whatever their labels, a known value between, and nothing to compare."""
    assert adjusted_rand([1, 1, 2, 2], ["b", "b", "a", "a"]) == 1.0
    assert adjusted_rand([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(4 / 7)
    assert adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)
    assert adjusted_rand([], []) == adjusted_rand([1], [2]) == adjusted_rand([1, 2], [3, 4]) == 1.0
    with pytest.raises(ValueError, match="same things"):
        adjusted_rand([1], [1, 2])


@settings(deadline=None)
@given(GRAPHS, st.sets(st.integers(0, 20)))
def test_unchanged_edges_need_no_second_detection(edges: list[Edge], nodes: set[int]) -> None:
    """Entities without edges come and go; what is recalled is what a detection would find."""
    ends = {end for edge in edges for end in edge[:2]}
    old = found(ends | {30, 31}, edges, 4)
    stored = dict(zip(old.entities.tolist(), old.paths, strict=True))
    new = found(ends | nodes, edges, 4)
    recalled = recall(np.array(sorted(ends | nodes), dtype=np.int64), stored, 4)
    if recalled is not None:
        assert (recalled.paths, recalled.communities) == (new.paths, new.communities)
    else:
        assert any(len(c.members) > 4 for c in new.communities)


def test_another_size_limit_is_noticed() -> None:
    old = found(range(400), caves(80, 5), 5)
    stored = dict(zip(old.entities.tolist(), old.paths, strict=True))
    assert recall(old.entities, stored, 5) is not None
    assert recall(old.entities, stored, 200) is None
    assert recall(old.entities, stored, 3) is None


CHANGES = st.lists(st.tuples(st.integers(0, 17), st.integers(0, 17), st.integers(0, 3)), max_size=4)
"""Relations that come, weigh otherwise, or go (those of weight 0)."""


def edited(edges: list[Edge], changes: list[Edge]) -> tuple[list[Edge], set[int]]:
    """Return the edges after some changes, and the ends of those that changed."""
    weights = {(s, t): w for s, t, w in edges}
    for s, t, w in changes:
        weights[s, t] = w
    after = {pair: w for pair, w in weights.items() if w}
    before = {(s, t): w for s, t, w in edges}
    differ = {pair for pair in before.keys() | after.keys() if before.get(pair) != after.get(pair)}
    return [(s, t, w) for (s, t), w in after.items()], {end for pair in differ for end in pair}


@settings(deadline=None)
@given(GRAPHS, CHANGES, st.integers(2, 6))
def test_what_is_kept_of_the_communities_before_is_what_would_be_found(
    edges: list[Edge], changes: list[Edge], limit: int
) -> None:
    """To the last id, whatever the edit: entities come and go with their relations, too."""
    edges = list({(s, t): (s, t, w) for s, t, w in edges}.values())
    nodes = {end for edge in edges for end in edge[:2]} | {0, 1}
    old = found(nodes, edges, limit)
    after, touched = edited(edges, changes)
    there = {end for edge in after for end in edge[:2]} | {0, 2}
    now = graph_of(np.array(sorted(there)), array(after), np.array(sorted(touched | (nodes ^ there)), dtype=np.int64))
    stored = dict(zip(old.entities.tolist(), old.paths, strict=True))
    kept, anew = regroup(now, stored, limit), regroup(now, {}, limit)
    assert (kept.paths, kept.communities, kept.modularity) == (anew.paths, anew.communities, anew.modularity)


def rings(count: int) -> list[Edge]:
    """Rings of cliques far from each other, each large enough to be split twice."""
    return [(s + 1000 * n, t + 1000 * n, w) for n in range(count) for s, t, w in caves(40, 5)]


def test_what_nothing_touched_is_not_clustered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the coarsest level, nodes are clustered where a relation changed, and nowhere else."""
    asked: list[int] = []

    def spied(weights: object, part: Ints, numbers: Ints) -> Ints:
        asked.append(len(numbers))
        return clustered(weights, part, numbers)

    monkeypatch.setattr(communities, "clustered", spied)
    edges, nodes = rings(8), [1000 * n + place for n in range(8) for place in range(200)]
    old = found(nodes, edges, 5)
    first = list(asked)
    asked.clear()
    stored = dict(zip(old.entities.tolist(), old.paths, strict=True))
    changed = graph_of(np.array(nodes), array([*edges, (3, 90, 5)]), np.array([3, 90]))
    new = regroup(changed, stored, 5)
    assert asked[0] == first[0] == len(nodes)
    assert sum(first[1:]) >= len(nodes)
    assert 0 < sum(asked[1:]) <= 2 * 200
    assert new.communities == regroup(changed, {}, 5).communities
    before, after = ([c.community_id for c in one.communities] for one in (old, new))
    assert 0 < len(set(before) - set(after)) <= 60


def test_it_matters_who_was_touched() -> None:
    """The negative control: what fell apart holds together now, and is kept apart if nobody says that its relations changed."""
    edges, nodes = rings(2), [1000 * n + place for n in range(2) for place in range(200)]
    old = found(nodes, edges, 5)
    stored = dict(zip(old.entities.tolist(), old.paths, strict=True))
    inside = next(c.members for c in old.communities if c.community_id == old.paths[0][0])
    joined = array([*edges, *((a, b, 20) for a, b in itertools.combinations(inside, 2))])
    now = graph_of(np.array(nodes), joined, np.array(inside))
    assert len(old.paths[0]) > 1
    assert regroup(now, stored, 5).paths == regroup(now, {}, 5).paths
    assert regroup(now, {}, 5).paths[0] == old.paths[0][:1]
    untouched = dataclasses.replace(now, touched=np.empty(0, dtype=np.int64))
    assert regroup(untouched, stored, 5).paths[0] == old.paths[0]


def test_only_what_is_new_or_touched_is_described_again() -> None:
    """What is kept of the others is what would be said of them."""
    edges, nodes = rings(4), [1000 * n + place for n in range(4) for place in range(200)]
    size = max(nodes) + 1
    names = [f"n{number % 7}" for number in range(size)]

    def labels(entities: Ints) -> Labels:
        picked = entities.tolist()
        return Labels(entities, [f"thing:{n}" for n in picked], [names[n] for n in picked], ["" for _ in picked])

    before = graph_of(np.array(nodes), array(edges))
    old = regroup(before, {}, 5)
    said = described(old, before, old.communities, labels(before.entities), {})
    stored: dict[int, tuple[str, str]] = {c.community_id: (c.name, c.summary) for c in said}
    names[5] = "renamed"
    now = graph_of(np.array(nodes), array([*edges, (3, 90, 5)]), np.array([3, 90, 5]))
    new = regroup(now, dict(zip(old.entities.tolist(), old.paths, strict=True)), 5)
    anew = undescribed(new, stored, now.touched)
    picked = foremost(anew, now, LEADERS)
    kept = described(new, now, anew, labels(picked), stored)
    assert kept == described(new, now, new.communities, labels(now.entities), {})
    assert len(anew) < len(new.communities) / 3
    assert max(picked) < 1000
    assert len(picked) < len(set().union(*(one.members for one in anew)))
    assert {c.community_id for c in anew} >= set(new.paths[5])


def graph(names: Sequence[str], edges: Iterable[Edge]) -> tuple[Graph, Labels]:
    nodes = np.arange(len(names), dtype=np.int64)
    labels = Labels(nodes, [f"thing:{i:02}" for i in nodes], names, [f"about {i}" for i in nodes])
    return graph_of(nodes, array(edges)), labels


def test_a_community_is_named_by_its_best_connected_member() -> None:
    hub, labels = graph(["v", "u", "", "z", "w", "x", "y"], [(3, leaf, 1) for leaf in (0, 1, 2, 4, 5, 6)])
    found = regroup(hub, {}, 50)
    (community,) = described(found, hub, found.communities, labels, {})
    assert community.name == "z"
    assert community.summary == "7 related entities around z: z, thing:02, u, v, w, +2 more"


class Scripted:
    """A summariser that answers from a list and remembers what it was asked."""

    def __init__(self, *answers: str | SapwoodError) -> None:
        self.answers = list(answers)
        self.asked: list[Topic] = []

    async def summarise(self, topics: Sequence[Topic], deadline: Deadline) -> list[str | SapwoodError]:
        self.asked += topics
        return [self.answers.pop(0) for _ in topics]


async def test_a_model_is_asked_once_about_a_community() -> None:
    pairs, labels = graph(["A", "B", "C", "D", "E"], [(0, 1, 1), (2, 3, 1)])
    found = regroup(pairs, {}, 50)
    offline = described(found, pairs, found.communities, labels, {})
    model = Scripted("On A and B.", ModelError("no answer"))
    first, failed = await summarised(pairs, labels, offline, {}, model, Deadline.never())
    assert failed == 1
    assert len(model.asked) == 2
    assert all(topic.size == 2 and topic.members[0].endswith(("about 0", "about 2")) for topic in model.asked)
    model = Scripted("On the others.")
    stored: dict[int, Named] = {c.community_id: (len(c.members), c.name, c.summary) for c in first}
    before = known(stored, model)
    assert len(before) == 2  # that of the one who is alone, and that which the model wrote
    anew = undescribed(found, before, pairs.touched)
    assert next(one.summary for one in first if one.community_id == anew[0].community_id).startswith("2 related")
    again = described(found, pairs, anew, labels, before)
    second, failed = await summarised(pairs, labels, again, stored, model, Deadline.never())
    assert failed == 0
    summaries = {c.summary for c in second}
    assert summaries == {"On A and B.", "On the others.", "1 related entities around E: E"}


async def test_detection_leaves_the_event_loop_free() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    edges = array((a, (a * 7919 + b) % 20_000, 1) for a in range(20_000) for b in range(5))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await anyio.to_thread.run_sync(detect, np.arange(20_000), edges, 50)
        tasks.cancel_scope.cancel()
    assert ticks > 1

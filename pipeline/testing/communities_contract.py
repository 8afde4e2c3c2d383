"""What every way to find communities must do. Inherit, and give `find`: entities and edges to a `Partition`."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from pipeline.ingest.communities import Partition
from pipeline.testing.partitions import adjusted_rand

Edge = tuple[int, int, str, int]
"""Source, target, type, evidence."""

Find = Callable[[Sequence[int], Sequence[Edge]], Awaitable[Partition]]


def clique(members: Iterable[int], evidence: int = 1) -> list[Edge]:
    """Return edges between all members, each in the direction of the larger number."""
    return [(a, b, "knows", evidence) for a, b in itertools.combinations(members, 2)]


def caves(count: int, size: int, seed: int = 1) -> list[Edge]:
    """Return cliques in a ring, with some edges between neighbours and others anywhere."""
    chance = random.Random(seed)
    edges = [edge for cave in range(count) for edge in clique(range(cave * size, (cave + 1) * size), 2)]
    for cave in range(count):
        other = chance.randrange(count)
        edges += [(cave * size, (cave * size + size + 1) % (count * size), "next", 1 + cave % 3)]
        edges += [(cave * size + 2, other * size + 3, "far", 1)] if other != cave else []
    return edges


def finest(partition: Partition) -> list[int]:
    """Return each entity's innermost community."""
    return [path[-1] for path in partition.paths]


def check(partition: Partition, nodes: Iterable[int]) -> None:
    """Every entity has one path of nested communities, and every community is as its members say."""
    assert partition.entities.tolist() == sorted(nodes)
    assert all(partition.paths)
    by_id = {one.community_id: one for one in partition.communities}
    assert len(by_id) == len(partition.communities)
    keys = [(one.level, one.community_id) for one in partition.communities]
    assert keys == sorted(keys)
    members: dict[int, list[int]] = {}
    for entity, path in zip(partition.entities.tolist(), partition.paths, strict=True):
        for level, community in enumerate(path):
            members.setdefault(community, []).append(entity)
            known = next(one for number, one in by_id.items() if number == community)
            assert (known.level, known.parent) == (level, path[level - 1] if level else None)
    assert {number: list(one.members) for number, one in by_id.items()} == members
    for one in partition.communities:
        assert one.parent is None or set(one.members) < set(by_id[one.parent].members)


class CommunitiesContract:
    """The suite."""

    async def test_w31_no_entities_are_no_error(self, find: Find) -> None:
        """There are no communities then, on no level."""
        partition = await find([], [])
        assert (list(partition.communities), partition.levels, partition.modularity) == ([], 0, 0.0)

    async def test_entities_without_relations_are_communities_of_their_own(self, find: Find) -> None:
        """All of them, beside others or alone; a relation to itself is none."""
        partition = await find([1, 2, 3], [(2, 2, "knows", 9)])
        check(partition, [1, 2, 3])
        assert (len(partition.communities), partition.levels, partition.modularity) == (3, 1, 0.0)
        partition = await find(range(6), [*clique(range(3)), (4, 4, "knows", 1)])
        check(partition, range(6))
        assert sorted(one.members for one in partition.communities) == [(0, 1, 2), (3,), (4,), (5,)]

    async def test_a_bridge_does_not_join_two_cliques(self, find: Find) -> None:
        """They are apart on every level."""
        partition = await find(range(10), [*clique(range(5)), *clique(range(5, 10)), (4, 5, "bridge", 1)])
        check(partition, range(10))
        top = {one.members for one in partition.communities if one.level == 0}
        assert top == {tuple(range(5)), tuple(range(5, 10))}
        assert partition.modularity is not None and 0.4 < partition.modularity < 0.5

    async def test_weights_matter(self, find: Find) -> None:
        """A square falls apart along its light sides, whichever these are, and evidence of several types adds up."""
        sides = [(0, 1), (1, 2), (2, 3), (3, 0)]
        for heavy in (0, 1):
            edges = [(a, b, "side", 9 if at % 2 == heavy else 1) for at, (a, b) in enumerate(sides)]
            partition = await find(range(4), edges)
            check(partition, range(4))
            assert len(set(finest(partition))) == 2
            a, b = sides[heavy]
            assert partition.paths[a] == partition.paths[b]
        kinds = [(a, b, f"kind {n}", 1) for at, (a, b) in enumerate(sides) for n in range(9 if at % 2 else 1)]
        partition = await find(range(4), kinds)
        assert partition.paths[1] == partition.paths[2] != partition.paths[0]

    async def test_directions_types_and_loops_do_not_matter(self, find: Find) -> None:
        """Only how much evidence joins two entities."""
        plain = [*clique(range(5), 6), *clique(range(5, 10), 6), (4, 5, "bridge", 6)]
        turned = [(t, s, kind, n) if (s + t) % 2 else (s, t, kind, n) for s, t, kind, n in plain]
        split = [(a, b, kind, n) for s, t, kind, _ in plain for a, b, n in ((s, t, 2), (t, s, 4))]
        typed = [(s, t, f"{kind} {n}", 2) for s, t, kind, _ in plain for n in range(3)]
        loops = [*plain, *((n, n, "self", 50) for n in range(10))]
        first = await find(range(10), plain)
        for edges in (turned, split, typed, loops):
            other = await find(range(10), edges)
            assert (other.paths, other.communities) == (first.paths, first.communities)

    async def test_w33_the_order_of_rows_does_not_matter(self, find: Find) -> None:
        """Equal graphs have equal partitions, to the last id."""
        edges = caves(12, 6)
        first = await find(range(80), edges)
        check(first, range(80))
        nodes, rows = list(range(80)), list(edges)
        for seed in (1, 2):
            random.Random(seed).shuffle(nodes)
            random.Random(seed).shuffle(rows)
            other = await find(nodes, rows)
            assert (other.paths, other.communities) == (first.paths, first.communities)
            assert other.modularity == first.modularity

    async def test_ids_follow_from_members(self, find: Find) -> None:
        """A community that stays as it was keeps its id when others change."""
        before = await find(range(9), [*clique(range(4)), *clique(range(4, 8))])
        after = await find(range(12), [*clique(range(4)), *clique(range(4, 8)), *clique([8, 9, 10]), (8, 7, "new", 1)])
        ids = [{(*one.members,): one.community_id for one in each.communities} for each in (before, after)]
        assert len({each[members] for each in ids for members in each if members == (0, 1, 2, 3)}) == 1
        assert len({number for each in ids for number in each.values()}) == len(ids[0].keys() | ids[1].keys())

    async def test_large_numbers_are_told_apart(self, find: Find) -> None:
        """Entities have 63-bit numbers, which no double holds."""
        numbers = [2**63 - 1 - n for n in range(8)]
        partition = await find(numbers, [*clique(numbers[:4]), *clique(numbers[4:])])
        check(partition, numbers)
        assert {one.members for one in partition.communities if one.level == 0} == {
            tuple(sorted(numbers[:4])),
            tuple(sorted(numbers[4:])),
        }

    async def test_planted_communities_are_found(self, find: Find) -> None:
        """And nested ones stay inside them."""
        partition = await find(range(200), [edge for n in range(10) for edge in clique(range(n * 20, n * 20 + 20))])
        check(partition, range(200))
        assert adjusted_rand([path[0] for path in partition.paths], [n // 20 for n in range(200)]) == 1.0

"""What every `GraphStore` must do. Inherit, and give a `world`: an empty store with a reader of what it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import combinations

import anyio
import pytest

from pipeline.errors import DeadlineExceeded, FencedOut, InconsistentGeneration, InvalidRequest
from pipeline.graphs.parts import RESERVED, Clusters, GraphMention, GraphPart, GraphRef, GraphTotals
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.graph_contract import ODD, SMALL, odd
from pipeline.testing.graph_worlds import FENCE, StoreWorld, Whole, contents, entity, past, relation, soon, whole


class GraphStoreContract:
    """The suite."""

    @staticmethod
    async def opened(world: StoreWorld, corpus: str = "c", fence: int = FENCE) -> GraphRef:
        """Return a new graph with nothing in it."""
        graph = world.next(corpus)
        await world.store.open(graph, fence, soon())
        return graph

    # Writing

    @pytest.mark.parametrize("size", [1, 2, 1000])
    async def test_parts_of_any_size_written_any_number_of_times_make_one_graph(
        self, world: StoreWorld, size: int
    ) -> None:
        """Every part twice, and all of them once more after the seal."""
        graph = await self.opened(world)
        for _ in range(2):
            for part in SMALL.parts(size):
                await world.store.write(graph, FENCE, part, soon())
                await world.store.write(graph, FENCE, part, soon())
            assert await world.store.seal(graph, FENCE, soon()) == replace(SMALL.plain.totals, placed=0)
        await world.store.place(graph, FENCE, SMALL.paths, soon())
        await world.store.place(graph, FENCE, SMALL.paths, soon())
        assert await contents(world.reader, graph) == SMALL.contents
        assert await world.store.totals(graph, soon()) == SMALL.plain.totals

    async def test_what_is_there_stays_as_it_is(self, world: StoreWorld) -> None:
        """A row with a known key changes nothing; a mention given several times counts once."""
        graph = await world.publish("c", SMALL)
        part = SMALL.part
        renamed = GraphPart(
            chunks=[replace(chunk, document="another") for chunk in part.chunks],
            entities=[replace(one, name="Another") for one in part.entities],
            relations=[replace(one, weight=1.0, evidence=9) for one in part.relations],
            mentions=[*part.mentions, *part.mentions],
        )
        await world.store.write(graph, FENCE, renamed, soon())
        assert await contents(world.reader, graph) == SMALL.contents
        assert await world.store.totals(graph, soon()) == SMALL.plain.totals

    async def test_nothing_is_a_part_too(self, world: StoreWorld) -> None:
        """An empty graph can be written, sealed, clustered and placed."""
        graph = await world.publish("c", Whole())
        await world.store.write(graph, FENCE, GraphPart(), soon())
        assert await world.store.cluster(graph, soon()) == Clusters()
        assert await world.store.totals(graph, soon()) == GraphTotals()
        assert await world.graphs("c") == {graph.graph_id}

    @pytest.mark.parametrize("key", sorted({*RESERVED, "type"}))
    async def test_w47_reserved_keys_are_refused_before_anything_is_stored(self, world: StoreWorld, key: str) -> None:
        """Whoever carries one, the whole part is refused by name."""
        graph = await self.opened(world)
        good = entity(1), entity(2)
        bad = replace(entity(3, name="X"), properties={"fine": 1, key: "another"})
        with pytest.raises(InvalidRequest, match=f"'X' contains reserved .*'{key}'"):
            await world.store.write(graph, FENCE, GraphPart(entities=[*good, bad]), soon())
        edge = replace(relation(1, 2, "LIKES"), properties={key: 1})
        with pytest.raises(InvalidRequest, match=f"'LIKES' contains reserved .*'{key}'"):
            await world.store.write(graph, FENCE, GraphPart(entities=good, relations=[edge]), soon())
        assert await world.store.totals(graph, soon()) == GraphTotals()

    @pytest.mark.parametrize(
        "dangling",
        [
            GraphPart(relations=[relation(1, 99)]),
            GraphPart(relations=[relation(99, 1)]),
            GraphPart(relations=[relation(1, 4), relation(98, 99)]),
            GraphPart(mentions=[GraphMention(10, 99)]),
            GraphPart(mentions=[GraphMention(99, 1)]),
        ],
        ids=["target", "source", "one of several", "entity", "chunk"],
    )
    async def test_ends_that_are_not_there_are_refused_with_nothing_written(
        self, world: StoreWorld, dangling: GraphPart
    ) -> None:
        """Also when another graph, of this corpus or another, has them."""
        strange = whole({10: [1], 99: [98, 99]}, [(1, 99), (99, 1)])
        await world.publish("other", strange)
        await world.publish("c", strange)
        graph = await world.publish("c", SMALL)
        with pytest.raises(InconsistentGeneration):
            await world.store.write(graph, FENCE, replace(dangling, entities=[entity(50)]), soon())
        assert await world.store.totals(graph, soon()) == SMALL.plain.totals
        assert await contents(world.reader, graph) == SMALL.contents

    @pytest.mark.parametrize(
        "paths",
        [{}, {1: (1,)}, {**SMALL.paths, 99: (1,)}, {**SMALL.paths, 1: ()}, {1: (1,), 2: (1,), 3: (1,), 99: (1,)}],
        ids=["none", "one of several", "one too many", "an empty one", "another"],
    )
    async def test_every_entity_has_a_place_and_every_place_an_entity(
        self, world: StoreWorld, paths: Mapping[int, tuple[int, ...]]
    ) -> None:
        """Else it is an error, and the graph is not taken for placed."""
        graph = await self.opened(world)
        await world.store.write(graph, FENCE, SMALL.part, soon())
        await world.store.seal(graph, FENCE, soon())
        with pytest.raises(InconsistentGeneration):
            await world.store.place(graph, FENCE, paths, soon())
        await world.store.place(graph, FENCE, SMALL.paths, soon())
        assert await contents(world.reader, graph) == SMALL.contents

    async def test_a_second_placing_counts(self, world: StoreWorld) -> None:
        """Communities that were found anew replace those before."""
        graph = await world.publish("c", SMALL)
        again = {number: (5, number) for number in SMALL.paths}
        await world.store.place(graph, FENCE, again, soon())
        assert await contents(world.reader, graph) == Whole(SMALL.part, again).contents

    async def test_odd_names_disturb_no_other_graph(self, world: StoreWorld) -> None:
        """Of the same corpus or another; and corpora may have odd neighbours."""
        before, other = await world.publish("c", SMALL), await world.publish("d", SMALL)
        graph = await world.publish("c", odd())
        assert (await world.store.totals(graph, soon())).entities == len(ODD) + 2
        for one in (before, other):
            assert await world.store.totals(one, soon()) == SMALL.plain.totals

    # Fences

    async def test_a_later_fence_takes_the_graph_over_with_what_is_in_it(self, world: StoreWorld) -> None:
        """Whoever had it before is fenced out and changes nothing; to open again with the same fence is no error."""
        graph = await self.opened(world, fence=3)
        await world.store.write(graph, 3, SMALL.part, soon())
        await world.store.open(graph, 3, soon())
        await world.store.open(graph, 5, soon())
        for fence in (3, 4, 6):
            await self.refused(world, graph, fence)
        with pytest.raises(FencedOut):
            await world.store.open(graph, 4, soon())
        assert await world.store.totals(graph, soon()) == replace(SMALL.plain.totals, placed=0)
        await world.build(graph, SMALL, 5)
        assert await contents(world.reader, graph) == SMALL.contents

    async def test_a_graph_that_nobody_opened_cannot_be_written(self, world: StoreWorld) -> None:
        """Nor does the attempt leave anything."""
        graph = world.next("c")
        await self.refused(world, graph, FENCE)
        assert await world.graphs("c") == set()

    async def test_a_dropped_graph_stays_dropped(self, world: StoreWorld) -> None:
        """Whoever still believes to own it is fenced out."""
        graph = await world.publish("c", SMALL)
        await world.store.drop("c", graph.graph_id, soon())
        await self.refused(world, graph, FENCE)
        assert await world.graphs("c") == set()
        assert await world.store.totals(graph, soon()) == GraphTotals()

    @staticmethod
    async def refused(world: StoreWorld, graph: GraphRef, fence: int) -> None:
        """Try all that takes a fence."""
        with pytest.raises(FencedOut):
            await world.store.write(graph, fence, GraphPart(entities=[entity(77)]), soon())
        with pytest.raises(FencedOut):
            await world.store.seal(graph, fence, soon())
        with pytest.raises(FencedOut):
            await world.store.place(graph, fence, SMALL.paths, soon())

    async def test_a_takeover_in_the_middle_of_writes_leaves_no_half_of_one(self, world: StoreWorld) -> None:
        """Each write of the old owner is there as a whole or not at all, and none comes after the takeover."""
        graph = await self.opened(world)
        parts = [GraphPart(entities=[entity(100 * turn + n) for n in range(20)]) for turn in range(10)]
        written: list[int] = []
        seen: list[int] = []
        begun = anyio.Event()

        async def write() -> None:
            for part in parts:
                try:
                    await world.store.write(graph, FENCE, part, soon())
                except FencedOut:
                    return
                written.append(len(part))
                begun.set()

        async def take() -> None:
            await begun.wait()
            await world.store.open(graph, FENCE + 1, soon())
            seen.append((await world.store.totals(graph, soon())).entities)

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            group.start_soon(take)
        assert await world.store.totals(graph, soon()) == GraphTotals(entities=sum(written))
        assert seen == [sum(written)]

    # Clusters

    async def test_clusters_follow_from_the_graph_alone(self, world: StoreWorld) -> None:
        """Two crowds with one bridge are two clusters; who has no relation is in none; the order of writing is nothing."""
        crowds = [*combinations(range(10, 16), 2), *combinations(range(20, 26), 2)]
        wanted = whole({1: [10]}, [*crowds, (12, 22), (11, 10)], alone=[40, 41])
        graph = await world.publish("c", wanted)
        other = await self.opened(world, "d")
        turned = replace(wanted.part, relations=wanted.part.relations[::-1], entities=wanted.part.entities[::-1])
        for part in Whole(turned).parts(5):
            await world.store.write(other, FENCE, part, soon())
        await world.store.seal(other, FENCE, soon())
        found = [await world.store.cluster(one, soon()) for one in (graph, graph, other)]
        assert groups(found[0])[0] == {frozenset(range(10, 16)), frozenset(range(20, 26))}
        assert all(groups(one) == groups(found[0]) for one in found)
        assert found[0].modularity > 0.3
        assert found[0].paths.keys() == {*range(10, 16), *range(20, 26)}
        assert await world.store.totals(graph, soon()) == wanted.plain.totals

    async def test_evidence_decides_who_belongs_together(self, world: StoreWorld) -> None:
        """In a ring of four the pairs with much evidence are clusters, in whichever direction it is stated."""
        ring = [(1, 2), (3, 2), (3, 4), (1, 4)]
        for heavy in (0, 1):
            edges = [relation(*ends, evidence=50 if place % 2 == heavy else 1) for place, ends in enumerate(ring)]
            part = GraphPart(entities=[entity(number) for number in range(1, 5)], relations=edges)
            graph = await world.publish("c", Whole(part, dict.fromkeys(range(1, 5), (1,))))
            pairs = {frozenset(ends) for place, ends in enumerate(ring) if place % 2 == heavy}
            assert groups(await world.store.cluster(graph, soon()))[-1] == pairs

    async def test_entities_without_relations_have_no_cluster(self, world: StoreWorld) -> None:
        """And there is nothing to measure."""
        graph = await world.publish("c", whole({1: [1, 2]}, alone=[3]))
        assert await world.store.cluster(graph, soon()) == Clusters()

    # What there is

    async def test_w48_the_graphs_of_a_corpus_are_its_own(self, world: StoreWorld) -> None:
        """Whatever their state, however its name or uid begins; a part of a uid is none."""
        mine = [await world.publish("a", SMALL), await self.opened(world, "a"), await world.publish("a", SMALL)]
        others = [await world.publish("a__b", SMALL), await world.publish("A", SMALL)]
        assert await world.graphs("a") == {graph.graph_id for graph in mine}
        for uid in (world.uids["a"][:-1], "", "0" * 32, "%", ".*"):
            assert await world.store.graphs("a", uid, soon()) == []
        for graph in mine:
            await world.store.drop("a", graph.graph_id, soon())
        assert await world.graphs("a") == set()
        for graph in others:
            assert await world.graphs(graph.corpus) == {graph.graph_id}
            assert await contents(world.reader, graph) == SMALL.contents

    async def test_a_drop_counts_and_leaves_nothing(self, world: StoreWorld) -> None:
        """Of this graph; a neighbour with the same numbers keeps all of its own. What is not there counts nothing."""
        graph, neighbour = await world.publish("c", SMALL), await world.publish("c", SMALL)
        nodes = len(SMALL.part.chunks) + len(SMALL.part.entities)
        assert await world.store.drop("c", graph.graph_id, soon()) == nodes
        assert await world.store.totals(graph, soon()) == GraphTotals()
        assert await world.store.drop("c", graph.graph_id, soon()) == 0
        assert await world.graphs("c") == {neighbour.graph_id}
        assert await contents(world.reader, neighbour) == SMALL.contents
        assert await world.store.totals(neighbour, soon()) == SMALL.plain.totals

    async def test_a_graph_whose_id_begins_like_another_is_another(self, world: StoreWorld) -> None:
        """Generation 1 is not 10."""
        graphs = [await world.publish("c", whole({1: [1]})) for _ in range(10)]
        await world.store.drop("c", graphs[0].graph_id, soon())
        assert await world.graphs("c") == {graph.graph_id for graph in graphs[1:]}
        assert (await world.store.totals(graphs[-1], soon())).entities == 1

    # At once

    async def test_writers_of_the_same_rows_at_once(self, world: StoreWorld) -> None:
        """Each row is there once, whoever wrote it."""
        graph = await self.opened(world)
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(world.store.write, graph, FENCE, SMALL.part, soon())
        assert await world.store.seal(graph, FENCE, soon()) == replace(SMALL.plain.totals, placed=0)

    async def test_writers_of_different_graphs_at_once(self, world: StoreWorld) -> None:
        """Each makes its own, while another one is dropped."""
        going = await world.publish("c", SMALL)
        graphs = [world.next(corpus) for corpus in ("c", "d", "c", "d")]
        wanted = [SMALL, whole({1: [1]}), whole({10: [1, 2]}, [(1, 2)]), SMALL]
        async with anyio.create_task_group() as group:
            for graph, one in zip(graphs, wanted, strict=True):
                group.start_soon(world.build, graph, one)
            group.start_soon(world.store.drop, "c", going.graph_id, soon())
        for graph, one in zip(graphs, wanted, strict=True):
            assert await contents(world.reader, graph) == one.contents
            assert await world.store.totals(graph, soon()) == one.plain.totals

    # Leaving

    async def test_every_step_of_a_build_can_be_left_at_any_await_and_repeated(self, world: StoreWorld) -> None:
        """Then it is complete, and nothing is there twice."""
        graph = world.next("c")
        store, totals = world.store, SMALL.plain.totals

        async def answers() -> None:
            assert (await store.totals(graph, soon())).chunks in (0, totals.chunks)

        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: store.open(graph, FENCE, soon()),
            lambda: store.write(graph, FENCE, SMALL.part, soon()),
            lambda: store.seal(graph, FENCE, soon()),
            lambda: store.cluster(graph, soon()),
            lambda: store.place(graph, FENCE, SMALL.paths, soon()),
            lambda: store.totals(graph, soon()),
            lambda: store.graphs("c", graph.uid, soon()),
        ]
        results = [await cancelled_at_each_await(step, answers) for step in steps]
        assert results[2] == replace(totals, placed=0)
        assert results[5:] == [totals, [graph.graph_id]]
        assert await contents(world.reader, graph) == SMALL.contents

    async def test_a_drop_can_be_left_at_any_await_and_repeated(self, world: StoreWorld) -> None:
        """Until it is done the graph is listed, so that somebody takes it up; its zombies are refused all along."""
        graph, neighbour = await world.publish("c", SMALL), await world.publish("c", SMALL)

        async def listed() -> None:
            if (await world.store.totals(graph, soon())).chunks:
                assert graph.graph_id in await world.graphs("c")
            assert (await world.store.totals(neighbour, soon())) == SMALL.plain.totals

        await cancelled_at_each_await(lambda: world.store.drop("c", graph.graph_id, soon()), listed)
        await self.refused(world, graph, FENCE)
        assert await world.graphs("c") == {neighbour.graph_id}
        assert await world.store.totals(graph, soon()) == GraphTotals()
        assert await contents(world.reader, neighbour) == SMALL.contents

    async def test_what_comes_too_late_is_not_started(self, world: StoreWorld) -> None:
        """A deadline that is over is an error of its own; nothing was changed."""
        graph = await world.publish("c", SMALL)
        store = world.store
        late: list[Callable[[], Awaitable[object]]] = [
            lambda: store.open(graph, 9, past()),
            lambda: store.write(graph, FENCE, GraphPart(entities=[entity(77)]), past()),
            lambda: store.seal(graph, FENCE, past()),
            lambda: store.cluster(graph, past()),
            lambda: store.place(graph, FENCE, dict.fromkeys(SMALL.paths, (9,)), past()),
            lambda: store.totals(graph, past()),
            lambda: store.graphs("c", graph.uid, past()),
            lambda: store.drop("c", graph.graph_id, past()),
        ]
        for call in late:
            with pytest.raises(DeadlineExceeded):
                await call()
        assert await contents(world.reader, graph) == SMALL.contents
        await world.store.write(graph, FENCE, SMALL.part, soon())


def groups(clusters: Clusters) -> list[set[frozenset[int]]]:
    """Return who is with whom, level by level, whatever the labels are."""
    depth = max((len(path) for path in clusters.paths.values()), default=0)
    levels: list[set[frozenset[int]]] = []
    for level in range(depth):
        members: dict[tuple[int, ...], set[int]] = {}
        for number, path in clusters.paths.items():
            members.setdefault(path[: level + 1], set()).add(number)
        levels.append({frozenset(inside) for inside in members.values()})
    return levels

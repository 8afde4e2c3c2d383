"""What every `GraphReader` must do. Inherit, and give a `world`: an empty place in which graphs can be published."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pipeline.errors import DeadlineExceeded, InconsistentGeneration
from pipeline.graphs.parts import GraphPart, GraphRef
from pipeline.graphs.ports import GraphReader
from pipeline.retrieval.walk import Bounds, Limits
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.graph_model import Case, Question, cases
from pipeline.testing.graph_worlds import GraphWorld, Whole, contents, entity, past, relation, shown, soon, whole
from schemas.graph import Scalar

A, B, C, D = 1, 2, 3, 4
EXAMPLES = 25
"""Generated graphs that each backend walks: a graph is some round trips."""

FINE = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, HealthCheck.too_slow]
"""One world for all examples, several classes with the same test, servers that take their time."""

DTYPES = ["int64", "float64", "bool"]

LIMITS = Limits(max_hops=2, window=0, cap=50, top_k=30)
LOW = Bounds(
    seeds=2, fan=3, step_edges=5, entity_chunks=2, chunk_links=6, members=2, community_links=3, community_chunks=2
)
"""Bounds that a handful of rows runs into."""

SMALL = whole(
    {10: [A], 20: [B], 30: [A, B], 40: [C], 50: []},
    [(A, B), (B, A), (A, A), (A, B, "likes"), (B, C)],
    documents={"one": [10, 30, 50], "two": [40, 20]},
    alone=[D],
    paths={A: (7, 8), B: (7, 8), C: (7, 9)},
)

ODD = (
    "a`b", "has space", "attribute, process", "x|y", "C:\\dir", "it's", 'say "so"', "{brace}", "$x", "${x}", "`", "\\", "\\u0060",
    "a:b", "`) DETACH DELETE n //", "'; drop table entity; --", "%s %d", "*", " ", "tab\tnew\nline", "İstanbul", "東京", "ｚ",
    "😀", "👩‍👩‍👧", "e\u0301", "\u202eabc", "Chunk", "Entity", "Document", "MENTIONS", "FROM_CHUNK", "NEXT_CHUNK", "graph_id",
    "null", "long " * 100,
)  # fmt: skip
"""Names and types as they come out of texts. Sorted by code points the two before the last face are in another order than by
UTF-16."""


def odd() -> Whole:
    """Return a graph of such names, types, relation types and documents."""
    numbers = range(1, len(ODD) + 1)
    plain = whole(
        {number: [number] for number in numbers},
        [(1, 2, name) for name in ODD] + list(pairwise(numbers)),
        documents={name: [number] for number, name in zip(numbers, ODD, strict=True)},
    )
    entities = [entity(number, ODD[number - 1], ODD[-number], 1) for number in numbers]
    endless = replace(entity(99, name="very long " * 2_000), description="words " * 20_000)
    nameless = entity(100, name="")
    part = replace(plain.part, entities=[*entities, endless, nameless])
    return Whole(part, {**plain.paths, 99: (1,), 100: (1,)})


PROPERTIES: dict[str, Scalar] = {
    "text": "a`b",
    "whole": 2**53 + 1,
    "least": -(2**63),
    "real": 0.1,
    "round": 1.0,
    "large": 1e16,
    "huge": 1.5e300,
    "tiny": 5e-324,
    "on": True,
    "off": False,
    "x|y `$z`": 1,
    "東京": "😀",
}


class GraphReaderContract:
    """The suite."""

    async def same(self, world: GraphWorld, graph: GraphRef, wanted: Whole, question: Question) -> None:
        """Let the world and plain Python answer the same question, or refuse it alike."""
        allowed = None if question.allowed is None else np.array(sorted(question.allowed), dtype=np.int64)
        found = await world.reader.expand(graph, question.seeds, question.limits, allowed, soon())
        expected = wanted.plain.expand(question.seeds, question.limits, question.allowed)
        assert shown(found) == shown(expected)
        assert [str(column.dtype) for column in (found.rows, found.scores, found.by_community)] == DTYPES

    async def ask(self, world: GraphWorld, wanted: Whole, *seeds: tuple[int, float], **limits: Any) -> Any:
        """Publish a graph, walk, compare with plain Python, and return {chunk: score}."""
        question = Question(seeds, replace(LIMITS, **limits))
        graph = await world.bounded(question.limits.bounds).publish("asked", wanted)
        await self.same(world, graph, wanted, question)
        found = await world.reader.expand(graph, seeds, question.limits, None, soon())
        return dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))

    # Pages

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 1000])
    async def test_pages_of_any_size_have_no_hole_and_repeat_nothing(self, world: GraphWorld, size: int) -> None:
        """And they are in order: entities and paths by number, relations by source, target and type."""
        graph = await world.publish("paged", SMALL)
        assert await contents(world.reader, graph, size) == SMALL.contents

    async def test_the_largest_and_smallest_numbers_are_told_apart(self, world: GraphWorld) -> None:
        """Numbers have 63 bits: none goes through a float, and 0 is one."""
        numbers = [0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
        large = whole(
            {number: [number] for number in numbers},
            list(pairwise(numbers)),
            paths={number: (number, 2**63 - 1 - number) for number in numbers},
        )
        graph = await world.publish("large", large)
        for size in (1, 4):
            assert await contents(world.reader, graph, size) == large.contents
        for seed in numbers:
            await self.same(world, graph, large, Question([(seed, 0.7)], replace(LIMITS, communities=True)))

    async def test_properties_come_back_as_they_were(self, world: GraphWorld) -> None:
        """Names of properties are data too, and 1, 1.0 and true are three values."""
        entities = [replace(entity(1), properties=PROPERTIES), entity(2)]
        edges = [replace(relation(1, 2), properties=PROPERTIES), relation(2, 1)]
        graph = await world.publish(
            "extracted", Whole(GraphPart(entities=entities, relations=edges), {1: (1,), 2: (1,)})
        )
        found, related, _ = await contents(world.reader, graph)
        assert (found, related) == (entities, edges)
        for one in (found[0].properties, related[0].properties):
            assert {name: type(value) for name, value in one.items()} == {n: type(v) for n, v in PROPERTIES.items()}

    async def test_a_page_starts_after_a_key_that_is_not_there(self, world: GraphWorld) -> None:
        """A cursor is a place in the order, not a row."""
        graph = await world.publish("cursor", whole({1: [10, 20]}, [(10, 20, "b"), (20, 10, "b")]))
        assert [one.entity_no for one in await world.reader.entities(graph, 15, 9, soon())] == [20]
        assert [number for number, _ in await world.reader.paths(graph, 15, 9, soon())] == [20]
        for after, left in (
            ((10, 20, "a"), 2),
            ((10, 20, "b"), 1),
            ((10, 20, "c"), 1),
            ((15, 0, ""), 1),
            ((20, 11, ""), 0),
        ):
            assert len(await world.reader.relations(graph, after, 9, soon())) == left, after

    async def test_odd_names_are_stored_and_found_and_do_nothing(self, world: GraphWorld) -> None:
        """Quotes, braces, patterns and words of a query language are data, in names, types and documents; verbatim."""
        before = await world.publish("before", SMALL)
        wanted = odd()
        graph = await world.publish("odd", wanted)
        for size in (7, 1000):
            assert await contents(world.reader, graph, size) == wanted.contents
        for seed in (1, 5, len(ODD)):
            await self.same(world, graph, wanted, Question([(seed, 1.0)], replace(LIMITS, window=1, communities=True)))
        assert await contents(world.reader, before) == SMALL.contents

    # Degenerate graphs

    @pytest.mark.parametrize(
        "wanted",
        [
            whole({}),
            whole({}, alone=[A]),
            whole({5: []}),
            whole({5: [A]}),
            whole({5: [A], 6: []}, documents={"d": [5, 6]}),
            whole({5: [A], 6: [A, B]}, alone=[C, D]),
            whole({5: [A], 6: [A]}, [(A, A), (A, A, "likes")]),
        ],
        ids=["empty", "one entity", "one chunk", "a chunk and its entity", "a bare neighbour", "isolated", "loops"],
    )
    async def test_degenerate_graphs(self, world: GraphWorld, wanted: Whole) -> None:
        """They read as they are, and every question about them has the answer of plain Python."""
        graph = await world.publish("degenerate", wanted)
        assert await contents(world.reader, graph) == wanted.contents
        chunks = [chunk.chunk_id for chunk in wanted.part.chunks]
        for seeds in ([], *([(chunk, 0.5)] for chunk in chunks), [(chunk, 0.5) for chunk in chunks]):
            await self.same(world, graph, wanted, Question(seeds, replace(LIMITS, window=2, communities=True)))

    async def test_a_seed_that_the_graph_lacks_is_an_inconsistency(self, world: GraphWorld) -> None:
        """Also among others that it has, and in a graph without chunks."""
        for wanted, seeds in ((SMALL, [(10, 1.0), (77, 1.0)]), (whole({}), [(10, 1.0)])):
            graph = await world.publish("unknown", wanted)
            with pytest.raises(InconsistentGeneration):
                await world.reader.expand(graph, seeds, LIMITS, None, soon())

    # The walk

    async def test_w2_own_chunks_at_the_score_and_related_ones_at_a_half(self, world: GraphWorld) -> None:
        """Seeds themselves are no results."""
        wanted = whole({10: [A], 11: [A], 20: [B], 30: [C]}, [(A, B), (C, A)])
        assert await self.ask(world, wanted, (10, 1.0)) == {11: 1.0, 20: 0.5, 30: 0.5}

    @pytest.mark.parametrize("cap", [1, 2])
    async def test_w3_the_cap_counts_other_entities(self, world: GraphWorld, cap: int) -> None:
        """The nearest come first, then those with most relations, then the lowest number."""
        wanted = whole({10: [A], 11: [A], 20: [B], 30: [C], 40: [D]}, [(A, B), (C, A), (A, C), (C, D)])
        expected = {11: 1.0, 30: 0.5} if cap == 1 else {11: 1.0, 20: 0.5, 30: 0.5}
        assert await self.ask(world, wanted, (10, 1.0), cap=cap) == expected

    async def test_w1_w4_sharing_a_chunk_is_no_relation(self, world: GraphWorld) -> None:
        """And an entity without relations still gives its own chunks."""
        wanted = whole({10: [A], 20: [A, B], 30: [B]})
        assert await self.ask(world, wanted, (10, 0.8)) == {20: 0.8}

    async def test_w6_w7_the_window_reaches_along_the_document(self, world: GraphWorld) -> None:
        """In both directions, and not into another one; a chunk one step from a half scores a quarter."""
        wanted = whole(
            {1: [A], 10: [], 11: [], 12: [B], 13: [], 14: [], 90: []},
            [(A, B)],
            documents={"doc": [10, 11, 12, 13, 14], "other": [90]},
        )
        third = 0.5 / 3
        assert await self.ask(world, wanted, (1, 1.0)) == {12: 0.5}
        assert await self.ask(world, wanted, (1, 1.0), window=1) == {12: 0.5, 11: 0.25, 13: 0.25}
        expected = {12: 0.5, 11: 0.25, 13: 0.25, 10: third, 14: third}
        assert await self.ask(world, wanted, (1, 1.0), window=2) == expected

    async def test_communities_add_what_no_relation_reaches(self, world: GraphWorld) -> None:
        """Below the last hop; those with most members first; the finest community counts; seeds stay out."""
        wanted = whole(
            {10: [A, B], 20: [A], 30: [C], 40: [C, D], 50: [7]},
            paths={A: (1, 5), B: (1, 5), C: (1, 5), D: (1, 5), 7: (1, 6)},
        )
        assert await self.ask(world, wanted, (10, 1.0)) == {20: 1.0}
        assert await self.ask(world, wanted, (10, 1.0), communities=True) == {20: 1.0, 30: 0.25, 40: 0.25}
        low = replace(LOW, community_chunks=1, members=4, community_links=6)
        assert await self.ask(world, wanted, (10, 1.0), communities=True, bounds=low) == {20: 1.0, 40: 0.25}

    async def test_all_that_tie_for_the_last_place_are_returned(self, world: GraphWorld) -> None:
        """By chunk id; what breaks the tie is not the graph's to know. What scores less is not returned."""
        wanted = whole({1: [A], 9: [A], 8: [A], 7: [A], 5: [B]}, [(A, B)])
        assert list(await self.ask(world, wanted, (1, 1.0), top_k=2)) == [7, 8, 9]
        assert list(await self.ask(world, wanted, (1, 1.0), top_k=4)) == [7, 8, 9, 5]

    async def test_a_filter_restricts_results_and_not_the_way(self, world: GraphWorld) -> None:
        """Ids that the graph lacks do no harm, and no id at all leaves nothing."""
        wanted = whole({10: [A], 20: [B], 30: [C]}, [(A, B), (B, C)])
        graph = await world.publish("filter", wanted)
        for allowed in ({30, 77}, {20, 30}, {10}, set[int]()):
            await self.same(world, graph, wanted, Question([(10, 1.0)], replace(LIMITS, top_k=1), frozenset(allowed)))

    async def test_parallel_relations_are_paths_of_their_own(self, world: GraphWorld) -> None:
        """Types and directions count each, along several steps; loops do not."""
        ladder = [(A, B), (B, A), (A, C), (C, A), (C, C), (A, A)]
        wanted = whole(
            {n: [n] for n in range(1, 8)}, [*ladder, (A, C, "likes"), (B, 5), (C, 6), (5, 7), (6, 7), (B, 4)]
        )
        graph = await world.publish("parallel", wanted)
        for cap in range(1, 7):
            for hops in range(6):
                await self.same(
                    world, graph, wanted, Question([(1, 1.0)], replace(LIMITS, cap=cap, max_hops=hops, top_k=9))
                )

    @pytest.mark.parametrize("hops", [1, 2, 3])
    async def test_low_bounds_cut_at_the_same_place(self, world: GraphWorld, hops: int) -> None:
        """Hubs, entities of many chunks, crowded communities: each bound is run into, and walks that did say so."""
        spokes = [(A, n) for n in range(10, 18)] + [(10, n) for n in range(20, 24)] + [(11, 30), (12, 31), (13, 32)]
        mentions = {n: [A if n < 6 else B if n < 12 else 10 + n % 8, n % 5 + 20] for n in range(40)}
        wanted = whole(mentions, spokes, documents={"d": range(0, 40, 2), "e": range(1, 40, 2)},
                       paths={n: (n % 3,) for n in range(60)})  # fmt: skip
        graph = await world.bounded(LOW).publish("low", wanted)
        for cap, window, communities in ((50, 0, False), (4, 1, True), (2, 0, True)):
            limits = replace(LIMITS, max_hops=hops, cap=cap, window=window, communities=communities, bounds=LOW)
            seeds = [(0, 0.5), (6, 0.75), (12, 0.25), (13, 0.75)]
            await self.same(world, graph, wanted, Question(seeds, limits))
            await self.same(world, graph, wanted, Question(seeds[:1], limits))

    async def test_a_hub_beyond_the_bounds_of_every_day(self, world: GraphWorld) -> None:
        """A hub of more neighbours than a walk reads, an entity of more chunks than it looks at: cut, and said to be."""
        spokes = [(A, n) for n in range(1_000, 1_300)] + [(1_299, A)]
        crowd = range(10_000, 11_100)
        wanted = whole({1: [A], 2: [1_299], 3: [1_298], **{n: [B] for n in crowd}}, [*spokes, (A, B)])
        graph = await world.publish("hub", wanted)
        limits = replace(LIMITS, max_hops=1, cap=1000, top_k=1000)
        await self.same(world, graph, wanted, Question([(1, 1.0)], limits))
        await self.same(world, graph, wanted, Question([(11_099, 1.0)], limits))
        found = await world.reader.expand(graph, [(1, 1.0)], limits, None, soon())
        assert (found.cut_short, found.resolved_entities) == (1, 251)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=FINE)
    @given(case=cases())
    async def test_any_question_about_any_graph_has_the_answer_of_plain_python(
        self, world: GraphWorld, case: Case
    ) -> None:
        """Same chunks, same scores, same order, same counters."""
        graph = await world.bounded(case.bounds).publish("any", case.whole)
        assert await contents(world.reader, graph, 3) == case.whole.contents
        for question in case.questions:
            await self.same(world, graph, case.whole, question)

    # Generations and corpora

    async def test_nothing_leaks_between_corpora_and_generations(self, world: GraphWorld) -> None:
        """W10: the same chunk ids and entity numbers mean something else in each, and each reader sees its own."""
        wanted = [
            whole({10: [A], 20: [B]}, [(A, B)], paths={A: (1,), B: (1,)}),
            whole({10: [A], 30: [C]}, [(C, A)], paths={A: (2,), C: (2,)}),
            whole({10: [A, B], 20: [], 30: [B]}, [(A, A)], documents={"d": [10, 20, 30]}, paths={A: (1,), B: (3,)}),
        ]
        first, second = await world.publish("left", wanted[0]), await world.publish("left", wanted[1])
        foreign = await world.publish("right", wanted[2])
        for graph, own in zip((first, second, foreign), wanted, strict=True):
            assert await contents(world.reader, graph) == own.contents
            await self.same(world, graph, own, Question([(10, 1.0)], replace(LIMITS, window=1, communities=True)))
        for graph, stranger in ((first, 30), (second, 20)):
            with pytest.raises(InconsistentGeneration):
                await world.reader.expand(graph, [(10, 1.0), (stranger, 0.5)], LIMITS, None, soon())

    async def test_a_generation_reads_the_same_whatever_comes_after(self, world: GraphWorld) -> None:
        """After newer ones, after older ones were collected, and after another corpus was."""
        old = SMALL
        changed = replace(SMALL.part.entities[0], name="Renamed", description="Anew.")
        part = replace(
            SMALL.part,
            entities=[changed, *SMALL.part.entities[1:]],
            relations=[*SMALL.part.relations[1:], relation(C, A), relation(A, C, evidence=2)],
            mentions=SMALL.part.mentions[:-1],
        )
        new = Whole(part, {**SMALL.paths, A: (9, 9)})
        less = whole({10: [A]}, paths={A: (1,)})
        question = Question([(10, 1.0)], replace(LIMITS, window=1, communities=True))
        foreign = await world.publish("other", old)
        published = [(await world.publish("history", one), one) for one in (old, new, less, new, old)]
        while published:
            for graph, wanted in published:
                assert await contents(world.reader, graph, 2) == wanted.contents
                await self.same(world, graph, wanted, question)
            graph, _ = published.pop(0)
            if published:
                await world.retire(graph)
        assert await contents(world.reader, foreign) == old.contents

    async def test_many_readers_at_once_agree(self, world: GraphWorld) -> None:
        """Of two generations, while a third is published."""
        graphs = [(await world.publish("crowd", one), one) for one in (SMALL, whole({10: [A]}, alone=[B]))]
        question = Question([(10, 1.0)], replace(LIMITS, window=1, communities=True))

        async def read(graph: GraphRef, wanted: Whole) -> None:
            assert await contents(world.reader, graph, 2) == wanted.contents
            await self.same(world, graph, wanted, question)

        async with anyio.create_task_group() as group:
            for turn in range(16):
                group.start_soon(read, *graphs[turn % 2])
            group.start_soon(world.publish, "crowd", odd())

    # Leaving

    async def test_a_read_can_be_left_at_any_await(self, world: GraphWorld) -> None:
        """Afterwards the next one is answered."""
        graph = await world.publish("left", SMALL)
        limits = replace(LIMITS, window=1, communities=True)
        expected = shown(SMALL.plain.expand([(10, 1.0)], limits, None))

        async def answers() -> None:
            assert [one.entity_no for one in await world.reader.entities(graph, None, 1, soon())] == [A]

        found = await cancelled_at_each_await(
            lambda: world.reader.expand(graph, [(10, 1.0)], limits, None, soon()), answers
        )
        assert shown(found) == expected
        for number, read in enumerate(reads(world.reader, graph)):
            assert await cancelled_at_each_await(read, answers) == SMALL.contents[number]

    async def test_what_comes_too_late_is_not_started(self, world: GraphWorld) -> None:
        """A deadline that is over is an error of its own, and the next read is answered."""
        graph = await world.publish("late", SMALL)
        with pytest.raises(DeadlineExceeded):
            await world.reader.expand(graph, [(10, 1.0)], LIMITS, None, past())
        with pytest.raises(DeadlineExceeded):
            await world.reader.entities(graph, None, 9, past())
        with pytest.raises(DeadlineExceeded):
            await world.reader.relations(graph, None, 9, past())
        with pytest.raises(DeadlineExceeded):
            await world.reader.paths(graph, None, 9, past())
        assert await contents(world.reader, graph) == SMALL.contents


def reads(reader: GraphReader, graph: GraphRef) -> list[Callable[[], Awaitable[Any]]]:
    """Return the reads of all entities, relations and paths."""
    return [
        lambda: reader.entities(graph, None, 99, soon()),
        lambda: reader.relations(graph, None, 99, soon()),
        lambda: reader.paths(graph, None, 99, soon()),
    ]

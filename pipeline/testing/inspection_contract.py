"""What every `GraphInspector` must do. Inherit, and give a `world` in which graphs are published and the `inspector` of it."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded
from pipeline.graphs.inspection import (
    Counts,
    Edge,
    Found,
    GraphInspector,
    Group,
    Seen,
    edge_view,
    entity_view,
    folded,
    group_view,
    rings,
    shown,
)
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.plain import PlainGraph
from pipeline.ingest.communities import LEADERS
from pipeline.testing.graph_contract import EXAMPLES, FINE, ODD, odd
from pipeline.testing.graph_model import wholes
from pipeline.testing.graph_worlds import GraphWorld, Whole, past, soon, whole
from schemas.graph import Entity, Scalar
from schemas.ids import CorpusId, graph_id

RERANK = "server/retrieval/rerank.py"
CODE = {1: RERANK, 2: f"{RERANK}::Reranker", 3: f"{RERANK}::Reranker.__init__", 4: "server/main.py"}
NAMES = ("", "Ada_Lovelace", "ada-lovelace", "ADA lovelace", "ｚ", "😀", "a`b", "Ada", "\u202eabc")
"""Names to search and to sort: the faces are in another order by code points than by UTF-16."""

A, B, C, D, E, F = 1, 2, 3, 4, 5, 6
TRIANGLES = [(A, B), (B, C), (A, C), (D, E), (E, F), (D, F), (C, D)]
"""Two triangles joined by a bridge from `a3` to `b1`."""

SIX = {A: "a1", B: "a2", C: "a3", D: "b1", E: "b2", F: "b3"}


def renamed(given: Whole, names: Mapping[int, str], kinds: Mapping[int, str] | None = None) -> Whole:
    """Return a graph whose entities have other names, and other types where some are given."""
    entities = [
        replace(one, name=names.get(one.entity_no, one.name), type=(kinds or {}).get(one.entity_no, one.type))
        for one in given.part.entities
    ]
    return replace(given, part=replace(given.part, entities=entities))


def code_graph() -> Whole:
    """Return a module, its class, the method of that, and another module that has nothing to do with them."""
    given = whole({10: [1, 2], 11: [3]}, [(1, 2, "contains"), (2, 3, "contains")], alone=[4])
    entities = [replace(one, entity_id=CODE[one.entity_no], name=CODE[one.entity_no]) for one in given.part.entities]
    return replace(given, part=replace(given.part, entities=entities))


def searched() -> Whole:
    """Return three entities whose names match `reranker`, two of them related, and one beside them that does not."""
    given = whole({}, [(A, B), (B, D), (D, C)], paths={A: (1,), B: (1,), C: (2,), D: (3, 4)})
    return renamed(given, {A: "Cross_Encoder-Reranker", B: "the RERANKER", C: "Reranker config", D: "Retriever"})


@dataclass(frozen=True, slots=True)
class Plain:
    """What an inspector must see of a graph, in dicts and sets: written to be seen to be right."""

    graph: PlainGraph

    def degree(self, number: int) -> int:
        """Return how many other entities one has relations with."""
        ends = [(source, target) for source, target, _ in self.graph.relations if source != target]
        return len({b for a, b in ends if a == number} | {a for a, b in ends if b == number})

    def seen(self, number: int) -> Seen:
        """Return an entity with its path and the document of its first chunk."""
        chunks = [chunk for chunk, named in self.graph.mentions if named == number]
        document = self.graph.chunks[min(chunks)].document if chunks else None
        return Seen(self.graph.entities[number], self.graph.paths.get(number, ()), document)

    def _of(self, text: str) -> list[Entity]:
        term = folded(text).lower()
        return [one for one in self.graph.entities.values() if term in folded(one.name).lower() or not term]

    def named(self, kind: str | None, text: str) -> list[Seen]:
        """See `GraphInspector`."""
        found = [one for one in self._of(text) if kind in (None, one.type)]
        return [self.seen(one.entity_no) for one in sorted(found, key=lambda one: (one.name, one.entity_id))]

    def connected(self, text: str) -> list[Seen]:
        """See `GraphInspector`."""
        return [self.seen(one.entity_no) for one in sorted(self._of(text), key=self._rank)]

    def members(self, community: int) -> list[Seen]:
        """See `GraphInspector`."""
        return [one for one in self.connected("") if one.path[-1:] == (community,)]

    def _rank(self, one: Entity) -> tuple[int, str, str]:
        return -self.degree(one.entity_no), one.name, one.entity_id

    async def reached(self, centre: int, hops: int) -> list[Seen]:
        """See `GraphInspector`."""

        async def ring(frontier: list[int], seen: list[int], room: int) -> list[int]:
            ends = [(source, target) for source, target, _ in self.graph.relations]
            near = {b for a, b in ends if a in frontier} | {a for a, b in ends if b in frontier}
            return sorted(near - set(seen))[:room]

        near = await rings(centre, hops, ring)
        entities = self.graph.entities
        order = sorted(near, key=lambda number: (near[number], entities[number].name, entities[number].entity_id))
        return list(map(self.seen, order))

    def edges(self, sources: Sequence[int], targets: Sequence[int] | None) -> list[Edge]:
        """See `GraphInspector`."""
        entities = self.graph.entities
        return [
            Edge(
                entities[one.source].entity_id,
                entities[one.target].entity_id,
                one.type,
                one.weight,
                one.evidence,
                one.properties,
            )
            for _, one in sorted(self.graph.relations.items())
            if one.source in sources and (targets is None or one.target in targets)
        ]

    def groups(self, level: int | None) -> list[Group]:
        """See `GraphInspector`."""
        found: dict[tuple[int, int], list[tuple[int, str, str]]] = {}
        for number, path in self.graph.paths.items():
            one = self.graph.entities[number]
            rank = (-self.degree(number), shown(one.name, one.entity_id), one.entity_id)
            if path and level in (None, len(path) - 1):
                found.setdefault((path[-1], len(path) - 1), []).append(rank)
        groups = [
            Group(community, depth, len(own), [i for _, _, i in sorted(own)], [s for _, s, _ in sorted(own)][:LEADERS])
            for (community, depth), own in found.items()
        ]
        return sorted(groups, key=lambda group: (-group.size, group.leaders[0], group.community))

    def counts(self) -> Counts:
        """See `GraphInspector`."""
        entities, relations = (
            [one.type for one in self.graph.entities.values()],
            [kind for _, _, kind in self.graph.relations],
        )
        return Counts(
            {kind: entities.count(kind) for kind in entities},
            {kind: relations.count(kind) for kind in relations},
            len({path[-1] for path in self.graph.paths.values()}),
        )


class GraphInspectorContract:
    """The suite."""

    # A look

    async def same(self, inspector: GraphInspector, graph: GraphRef, wanted: Whole) -> None:
        """Compare all that an inspector says about a graph with plain Python."""
        plain = Plain(wanted.plain)
        numbers = sorted(plain.graph.entities)
        for text in ("", " ", "ada", "A-D_A ", "ada lovelace", "😀", "%", "nothing like it"):
            named, connected = plain.named(None, text), plain.connected(text)
            assert await inspector.named(graph, None, text, 100, soon()) == named
            assert await inspector.named(graph, None, text, 2, soon()) == named[:2]
            assert await inspector.connected(graph, text, 100, soon()) == Found(connected, len(connected))
            some = await inspector.connected(graph, text, 2, soon())
            assert some == Found(connected[:2], len(connected))
        for number in numbers[:3]:
            one = plain.seen(number)
            assert await inspector.entity(graph, one.entity.entity_id, soon()) == one
            near = await plain.reached(number, 2)
            assert await inspector.reached(graph, number, 2, 100, soon()) == Found(near, len(near))
            assert await inspector.reached(graph, number, 2, 1, soon()) == Found(near[:1], len(near))
            assert await inspector.edges(graph, [number], None, soon()) == plain.edges([number], None)
            members = plain.members((one.path or (0,))[-1])
            assert await inspector.members(graph, (one.path or (0,))[-1], 3, soon()) == Found(members[:3], len(members))
        assert await inspector.edges(graph, numbers[1:], numbers[1:], soon()) == plain.edges(numbers[1:], numbers[1:])
        for level in (None, 0, 1, 2):
            assert await inspector.groups(graph, level, 100, soon()) == plain.groups(level)
        assert await inspector.groups(graph, None, 1, soon()) == plain.groups(None)[:1]
        assert await inspector.counts(graph, soon()) == plain.counts()

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=FINE)
    @given(given=wholes(), names=st.lists(st.sampled_from(NAMES), min_size=8, max_size=8))
    async def test_any_graph_looks_as_plain_python_sees_it(
        self, world: GraphWorld, inspector: GraphInspector, given: Whole, names: list[str]
    ) -> None:
        """Names that are equal, empty or odd, hubs, loops, parallel relations, shared ends of paths."""
        numbers = [one.entity_no for one in given.part.entities]
        wanted = renamed(given, dict(zip(numbers, names, strict=False)), {numbers[0]: "😀"} if numbers else {})
        await self.same(inspector, await world.publish("any", wanted), wanted)

    async def test_what_was_extracted_is_shown(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """Beside the counts, whole numbers as such; the file of an entity is none of its properties."""
        extracted: dict[str, Scalar] = {"born": 1815, "height": 1.0, "known": True, "file_path": "a.md"}
        plain = whole({10: [A, B]}, [(A, B)]).part
        entities = [replace(plain.entities[0], properties=extracted), plain.entities[1]]
        edges = [replace(plain.relations[0], properties={"since": 1833})]
        wanted = Whole(replace(plain, entities=entities, relations=edges), {A: (1,), B: (1,)})
        graph = await world.publish("extracted", wanted)
        await self.same(inspector, graph, wanted)
        seen = await inspector.entity(graph, entities[0].entity_id, soon())
        assert seen is not None
        view = entity_view(seen)
        assert view.file_path == "a.md"
        assert [type(view.properties[name]) for name in ("born", "height", "known")] == [int, float, bool]
        assert "file_path" not in view.properties
        (edge,) = await inspector.edges(graph, [A], None, soon())
        assert edge_view(edge).properties == {"since": 1833, "evidence": 1}

    async def test_w30_odd_labels_are_shown_verbatim(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """Types, relation types and names as they come out of texts, and one that a schema would name."""
        given = odd()
        part = replace(
            given.part, entities=[replace(given.part.entities[0], type="LaunchSite"), *given.part.entities[1:]]
        )
        wanted = replace(given, part=part)
        graph = await world.publish("odd", wanted)
        await self.same(inspector, graph, wanted)
        (site,) = await inspector.named(graph, "LaunchSite", "", 100, soon())
        assert entity_view(site).entity_type == "LaunchSite"
        found = await inspector.edges(graph, [1], [2], soon())
        assert {edge_view(one).relation_type for one in found} >= set(ODD)
        for kind in ODD:
            own = [one.entity_id for one in part.entities if one.type == kind]
            assert [one.entity.entity_id for one in await inspector.named(graph, kind, "", 100, soon())] == own

    # The cases

    async def test_w13_w14_an_entity_is_found_by_its_public_id(
        self, world: GraphWorld, inspector: GraphInspector
    ) -> None:
        """Also by one that no number follows from; its neighbours are those that relations lead to, the centre first."""
        graph = await world.publish("code", code_graph())
        centre = await inspector.entity(graph, CODE[2], soon())
        assert centre is not None
        found = await inspector.reached(graph, centre.entity.entity_no, 2, 200, soon())
        assert [one.entity.entity_id for one in found.entities] == [CODE[2], CODE[1], CODE[3]]
        assert len(await inspector.edges(graph, [1, 2, 3], [1, 2, 3], soon())) == 2
        for unknown in ("server/none.py", "thing:00000000000000ff00000000", "thing:", ":", "x" * 5_000, "' or 1=1 --"):
            assert await inspector.entity(graph, unknown, soon()) is None

    async def test_w15_the_total_counts_what_the_limit_leaves_out(
        self, world: GraphWorld, inspector: GraphInspector
    ) -> None:
        """With one place, the centre has it."""
        graph = await world.publish("code", code_graph())
        found = await inspector.reached(graph, 2, 2, 1, soon())
        assert ([one.entity.entity_id for one in found.entities], found.total) == ([CODE[2]], 3)
        assert (await inspector.reached(graph, 1, 1, 200, soon())).total == 2

    @pytest.mark.parametrize("text", ["reranker", "RERANKER", "cross-encoder_reranker", "encoder r"])
    async def test_w16_w17_w18_the_list_and_the_sub_graph_match_alike(
        self, world: GraphWorld, inspector: GraphInspector, text: str
    ) -> None:
        """By part of a name, whatever its case; `_`, `-` and a space are the same."""
        graph = await world.publish("searched", searched())
        wanted = {A, B, C} if text.lower() == "reranker" else {A}
        found = await inspector.connected(graph, text, 200, soon())
        numbers = [one.entity.entity_no for one in found.entities]
        assert (set(numbers), found.total) == (wanted, len(wanted))
        assert {one.entity.entity_no for one in await inspector.named(graph, None, text, 100, soon())} == wanted
        assert len(await inspector.edges(graph, numbers, numbers, soon())) == (len(wanted) > 1)
        one = await inspector.connected(graph, text, 1, soon())
        assert (len(one.entities), one.total) == (1, len(wanted))

    async def test_w19_the_best_connected_come_first(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """The ends of the bridge, then by name; and only the relations among them."""
        graph = await world.publish("bridge", renamed(whole({}, TRIANGLES), SIX))
        found = await inspector.connected(graph, "", 3, soon())
        assert ([one.entity.name for one in found.entities], found.total) == (["a3", "b1", "a1"], 6)
        numbers = [one.entity.entity_no for one in found.entities]
        assert len(await inspector.edges(graph, numbers, numbers, soon())) == 2

    async def test_w20_members_of_a_community(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """By degree, name and id; only of the finest level; an unknown one has none."""
        paths = {**dict.fromkeys((A, B, C), (7, 8)), **dict.fromkeys((D, E, F), (7, 9))}
        graph = await world.publish("members", renamed(whole({}, TRIANGLES, paths=paths), SIX))
        assert [one.entity.name for one in (await inspector.members(graph, 8, 500, soon())).entities] == [
            "a3",
            "a1",
            "a2",
        ]
        found = await inspector.members(graph, 9, 1, soon())
        assert ([one.entity.name for one in found.entities], found.total) == (["b1"], 3)
        for unknown in (7, 0, 2**63 - 1):
            assert await inspector.members(graph, unknown, 500, soon()) == Found([], 0)

    async def test_w28_a_name_that_is_absent_is_empty(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """A community that it leads shows its id."""
        wanted = renamed(whole({}, alone=[A]), {A: ""})
        graph = await world.publish("nameless", wanted)
        (found,) = await inspector.named(graph, None, "", 100, soon())
        assert entity_view(found).name == ""
        (group,) = await inspector.groups(graph, None, 100, soon())
        assert group_view(group).name == found.entity.entity_id

    async def test_w29_the_file_is_that_of_the_first_chunk(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """In this generation; none without provenance."""
        first = await world.publish("files", whole({10: [A], 20: [A]}, documents={"old": [10], "b": [20]}, alone=[B]))
        second = await world.publish("files", whole({20: [A], 30: [A]}, documents={"b": [20], "c": [30]}, alone=[B]))
        for graph, file in ((first, "old"), (second, "b")):
            found = await inspector.named(graph, None, "", 100, soon())
            assert [entity_view(one).file_path for one in found] == [file, None]

    async def test_w50_communities_of_a_level(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """The level counts the communities around; largest first; names and summaries follow from the members."""
        paths = {A: (1,), B: (1,), C: (1,), D: (2, 3), E: (2, 3), F: (2, 4)}
        graph = await world.publish("levels", renamed(whole({}, TRIANGLES, paths=paths), SIX))
        found = list(map(group_view, await inspector.groups(graph, None, 100, soon())))
        assert [(one.name, one.level, len(one.member_ids)) for one in found] == [
            ("a3", 0, 3),
            ("b1", 1, 2),
            ("b3", 1, 1),
        ]
        assert found[0].summary == "3 related entities around a3: a3, a1, a2"
        assert list(map(group_view, await inspector.groups(graph, 0, 100, soon()))) == found[:1]
        assert list(map(group_view, await inspector.groups(graph, 1, 100, soon()))) == found[1:]
        assert await inspector.groups(graph, 2, 100, soon()) == []

    # Scope

    async def test_nothing_leaks_between_corpora_and_generations(
        self, world: GraphWorld, inspector: GraphInspector
    ) -> None:
        """W24: the same numbers mean something else in each; what another has is not there."""
        wanted = [
            renamed(whole({10: [A], 20: [B]}, [(A, B)]), {A: "Ada"}),
            renamed(whole({10: [A], 30: [C]}, [(C, A)], paths={A: (2,), C: (2,)}), {A: "Ada_Lovelace"}),
            whole({10: [B, A]}, [(A, A), (B, A, "likes")], paths={A: (1,), B: (1,)}),
        ]
        graphs = [
            await world.publish(corpus, one) for corpus, one in zip(("left", "left", "right"), wanted, strict=True)
        ]
        for graph, one in zip(graphs, wanted, strict=True):
            await self.same(inspector, graph, one)
        foreign = Plain(wanted[1].plain).seen(C).entity.entity_id
        assert await inspector.entity(graphs[0], foreign, soon()) is None
        assert await inspector.entity(graphs[2], foreign, soon()) is None

    async def test_w11_a_graph_that_is_not_there_is_empty(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """Not an error."""
        await world.publish("there", whole({10: [A]}))
        nowhere = GraphRef(CorpusId(987_654), 1, "there", graph_id(uuid.uuid4().hex, 1))
        await self.same(inspector, nowhere, Whole())

    async def test_what_comes_too_late_is_not_started(self, world: GraphWorld, inspector: GraphInspector) -> None:
        """A deadline that is over is an error of its own."""
        graph, late = await world.publish("late", whole({10: [A]})), past()
        for look in looks(inspector, graph, late):
            with pytest.raises(DeadlineExceeded):
                await look


def looks(inspector: GraphInspector, graph: GraphRef, deadline: Deadline) -> list[Awaitable[object]]:
    """Return one call of each kind."""
    return [
        inspector.named(graph, None, "", 9, deadline),
        inspector.connected(graph, "", 9, deadline),
        inspector.members(graph, A, 9, deadline),
        inspector.entity(graph, "thing:1", deadline),
        inspector.reached(graph, A, 2, 9, deadline),
        inspector.edges(graph, [A], None, deadline),
        inspector.groups(graph, None, 9, deadline),
        inspector.counts(graph, deadline),
    ]

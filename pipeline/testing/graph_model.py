"""Generated graphs and questions about them, and machines that drive a graph world beside a plain model of it.

A machine takes any list of operations: those that make no sense at the moment do nothing, so every list can be cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from pipeline.errors import FencedOut
from pipeline.graphs.parts import GraphChunk, GraphMention, GraphPart, GraphRef, GraphTotals
from pipeline.retrieval.walk import Bounds, Limits
from pipeline.testing.graph_worlds import GraphWorld, StoreWorld, Whole, contents, entity, relation, shown, soon
from schemas.graph import Entity, Relation

CHUNKS = (0, 3, 1, 2**53 + 1, 2**53, 2**63 - 1, 7, 5, 6, 4)
ENTITIES = (9, 0, 2**62, 2**63 - 1, 3, 2, 1, 8)
KINDS = ("knows", "has `part`", "ｚ", "😀")
DOCUMENTS = ("a", "b/c", "x|y")
BOUNDS = (
    Bounds(),
    Bounds(
        seeds=2, fan=2, step_edges=3, entity_chunks=2, chunk_links=4, members=2, community_links=3, community_chunks=1
    ),
    Bounds(
        seeds=3, fan=1, step_edges=1, entity_chunks=1, chunk_links=2, members=3, community_links=1, community_chunks=2
    ),
)


@dataclass(frozen=True, slots=True)
class Question:
    """What a walk is asked; `allowed` are chunk ids."""

    seeds: Sequence[tuple[int, float]]
    limits: Limits
    allowed: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A graph whose lists are cut by these bounds, and questions about it."""

    whole: Whole
    bounds: Bounds
    questions: Sequence[Question]


@st.composite
def wholes(draw: st.DrawFn) -> Whole:
    """Generate small graphs: hubs, loops, parallel relations, entities alone, documents of several chunks."""
    ids = draw(st.lists(st.sampled_from(CHUNKS), unique=True, max_size=10))
    numbers = draw(st.lists(st.sampled_from(ENTITIES), unique=True, max_size=8))
    texts: dict[str, list[int]] = {}
    for chunk in ids:
        texts.setdefault(draw(st.sampled_from(DOCUMENTS)), []).append(chunk)
    chunks = [GraphChunk(chunk, name, place) for name, own in texts.items() for place, chunk in enumerate(own)]
    if not numbers:
        return Whole(GraphPart(chunks))
    one = st.sampled_from(numbers)
    ends = draw(st.lists(st.tuples(one, one | st.just(numbers[0]), st.sampled_from(KINDS)), unique=True, max_size=20))
    links = draw(st.lists(st.tuples(st.sampled_from(ids), one), unique=True, max_size=20)) if ids else []
    path = st.sampled_from([(1,), (1, 2), (1, 2**62), (5, 2)])
    return Whole(
        GraphPart(
            chunks,
            [entity(number, evidence=sum(number == named for _, named in links)) for number in numbers],
            [relation(*end, evidence=1 + place % 3) for place, end in enumerate(ends)],
            [GraphMention(*link) for link in links],
        ),
        {number: draw(path) for number in numbers},
    )


def limits(bounds: Bounds) -> st.SearchStrategy[Limits]:
    """Generate limits that small graphs run into."""
    return st.builds(
        Limits,
        max_hops=st.integers(0, 5),
        window=st.integers(0, 3),
        cap=st.sampled_from([1, 2, 3, 50]),
        top_k=st.integers(1, 10),
        communities=st.booleans(),
        bounds=st.just(bounds),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Generate a graph and some questions about it: negative, equal and repeated seeds, and filters."""
    graph, bounds = draw(wholes()), draw(st.sampled_from(BOUNDS))
    ids = [chunk.chunk_id for chunk in graph.part.chunks]
    seed = st.tuples(st.sampled_from(ids or [0]), st.sampled_from([-0.5, 0.0, 0.1, 0.3, 0.7, 1.0]))
    asked = st.builds(
        Question,
        st.lists(seed, max_size=4 if ids else 0),
        limits(bounds),
        st.none() | st.frozensets(st.sampled_from([*ids, 99])),
    )
    return Case(graph, bounds, draw(st.lists(asked, min_size=1, max_size=4)))


@dataclass(slots=True)
class Draft:
    """A graph in the making, where everything can still be changed."""

    documents: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    entities: dict[int, Entity] = field(default_factory=dict[int, Entity])
    relations: dict[tuple[int, int, str], Relation] = field(default_factory=dict[tuple[int, int, str], Relation])
    mentions: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    @classmethod
    def begun(cls) -> Draft:
        """Return one with something of everything, so that changes have something to change."""
        draft = cls()
        for number in range(5):
            draft.change("chunk", number, number // 2)
            draft.change("entity", 0, number)
        for number in range(8):
            draft.change("relation", number, number * 3)
            draft.change("mention", number, number)
        return draft

    def change(self, what: str, one: int, two: int) -> None:
        """Add or remove a chunk, entity, relation or mention, or change an entity's name or community."""
        chunk, number = CHUNKS[one % len(CHUNKS)], ENTITIES[two % len(ENTITIES)]
        if what == "chunk":
            self._toggle_chunk(DOCUMENTS[two % len(DOCUMENTS)], chunk)
        elif what == "entity":
            self._toggle_entity(number)
        elif number not in self.entities:
            return
        elif what == "mention" and any(chunk in own for own in self.documents.values()):
            self.mentions ^= {(chunk, number)}
        elif what == "relation":
            self._toggle_relation(list(self.entities)[one % len(self.entities)], number, KINDS[one % len(KINDS)])
        elif what == "name":
            self.entities[number] = replace(self.entities[number], name=f"Name {one}", description=f"{two}")
        elif what == "path":
            self.paths[number] = (one % 2, 10 + one % 3)

    def _toggle_chunk(self, document: str, chunk: int) -> None:
        for own in self.documents.values():
            if chunk in own:
                own.remove(chunk)
                self.mentions = {link for link in self.mentions if link[0] != chunk}
                return
        self.documents.setdefault(document, []).append(chunk)

    def _toggle_entity(self, number: int) -> None:
        if self.entities.pop(number, None) is None:
            self.entities[number], self.paths[number] = entity(number), (number,)
            return
        del self.paths[number]
        self.mentions = {link for link in self.mentions if link[1] != number}
        self.relations = {key: edge for key, edge in self.relations.items() if number not in key[:2]}

    def _toggle_relation(self, source: int, target: int, kind: str) -> None:
        key = (source, target, kind)
        if self.relations.pop(key, None) is None:
            self.relations[key] = relation(*key)

    @property
    def whole(self) -> Whole:
        """The graph as it is now."""
        chunks = [GraphChunk(c, name, place) for name, own in self.documents.items() for place, c in enumerate(own)]
        links = [GraphMention(*link) for link in sorted(self.mentions)]
        part = GraphPart(chunks, list(self.entities.values()), list(self.relations.values()), links)
        return Whole(part, dict(self.paths))


Op = tuple[str, int, int]

CHANGES = ("chunk", "chunk", "entity", "entity", "relation", "relation", "mention", "mention", "name", "path")
READER_OPS = (*CHANGES, "publish", "publish", "read", "retire")
STORE_OPS = (*READER_OPS, "open", "open", "write", "write", "zombie", "zombie", "abandon")


def operations(names: Sequence[str], most: int) -> st.SearchStrategy[list[Op]]:
    """Generate up to `most` operations, and at least half as many: short lists meet nothing."""
    one = st.tuples(st.sampled_from(names), st.integers(0, 30), st.integers(0, 30))
    return st.lists(one, min_size=most // 2, max_size=most)


@dataclass(slots=True)
class GraphMachine:
    """A corpus in a world, beside all its generations that are still there as the model knows them."""

    world: GraphWorld
    corpus: str
    draft: Draft = field(default_factory=Draft.begun)
    kept: list[tuple[GraphRef, Whole]] = field(default_factory=list[tuple[GraphRef, Whole]])

    async def do(self, op: Op) -> None:
        """Do one operation on the world and on the model; raises AssertionError where the two part."""
        what, one, two = op
        if what == "publish":
            await self.publish()
        elif what == "retire" and len(self.kept) > 1:
            graph, _ = self.kept.pop(0)
            await self.world.retire(graph)
        elif what == "read" and self.kept:
            await self.read(*self.kept[one % len(self.kept)], one, two)
        elif what in CHANGES:
            self.draft.change(what, one, two)

    async def publish(self) -> None:
        """Publish the draft, which goes on from there."""
        wanted = self.draft.whole
        self.kept.append((await self.world.publish(self.corpus, wanted), wanted))

    async def read(self, graph: GraphRef, wanted: Whole, one: int, two: int) -> None:
        """Read a generation completely, and walk it once."""
        assert await contents(self.world.reader, graph, 1 + one % 5) == wanted.contents
        ids = [chunk.chunk_id for chunk in wanted.part.chunks]
        seeds = [(chunk, (0.25, 0.5, 1.0)[place % 3]) for place, chunk in enumerate(ids[two % 3 :: 3])]
        asked = Limits(one % 4, two % 3, 1 + one % 5, 1 + two % 6, communities=bool(two % 2))
        allowed = np.array(sorted(ids[::2]), dtype=np.int64) if one % 3 == 0 else None
        found = await self.world.reader.expand(graph, seeds, asked, allowed, soon())
        expected = wanted.plain.expand(seeds, asked, None if allowed is None else allowed.tolist())
        assert shown(found) == shown(expected)

    async def check(self) -> None:
        """Read all that is still there."""
        for place, (graph, wanted) in enumerate(self.kept):
            await self.read(graph, wanted, place, place + 1)


@dataclass(slots=True)
class StoreMachine(GraphMachine):
    """The same, with the steps of a build: opened, written in parts, taken over, disturbed by those before, abandoned."""

    stores: StoreWorld = field(kw_only=True)
    fence: int = 1
    building: tuple[GraphRef, Whole] | None = None
    todo: list[GraphPart] = field(default_factory=list[GraphPart])
    stale: list[tuple[GraphRef, int]] = field(default_factory=list[tuple[GraphRef, int]])

    async def do(self, op: Op) -> None:
        """See `GraphMachine`."""
        what, one, two = op
        if what == "open":
            await self.open(1 + one % 7)
        elif what == "write" and self.todo:
            assert self.building is not None
            await self.stores.store.write(self.building[0], self.fence, self.todo[0], soon())
            self.todo = self.todo[1:] if two % 4 else self.todo  # now and then its fate is not known
        elif what == "zombie" and self.stale:
            await self.disturb(*self.stale[one % len(self.stale)], two)
        elif what == "abandon" and self.building:
            graph, _ = self.building
            self.building, self.todo = None, []
            await self.stores.store.drop(self.corpus, graph.graph_id, soon())
            self.stale.append((graph, self.fence))
        elif what == "retire" and len(self.kept) > 1:
            self.stale.append((self.kept[0][0], FENCES))
            await GraphMachine.do(self, op)
        else:
            await GraphMachine.do(self, op)

    async def open(self, size: int) -> None:
        """Begin a build of the draft as it is now, or take the one over whose owner crashed: all is written again."""
        if self.building is None:
            self.building = self.stores.next(self.corpus), self.draft.whole
        else:
            self.stale.append((self.building[0], self.fence))
        self.fence += 1
        await self.stores.store.open(self.building[0], self.fence, soon())
        self.todo = list(self.building[1].parts(size))

    async def publish(self) -> None:
        """Finish the build that is open, if any."""
        if self.building is None:
            await self.open(1000)
        assert self.building is not None
        graph, wanted = self.building
        for part in self.todo:
            await self.stores.store.write(graph, self.fence, part, soon())
        totals = wanted.plain.totals
        assert await self.stores.store.seal(graph, self.fence, soon()) == replace(totals, placed=0)
        await self.stores.store.place(graph, self.fence, wanted.paths, soon())
        assert await self.stores.store.totals(graph, soon()) == totals
        self.kept.append(self.building)
        self.building, self.todo = None, []

    async def disturb(self, graph: GraphRef, fence: int, which: int) -> None:
        """Let somebody who lost a graph, or whose graph was dropped, try something: it is refused and nothing changes."""
        store, before = self.stores.store, await self.stores.store.totals(graph, soon())
        try:
            if which % 3 == 0:
                await store.write(graph, fence, GraphPart(entities=[entity(77)]), soon())
            elif which % 3 == 1:
                await store.seal(graph, fence, soon())
            else:
                await store.place(graph, fence, {}, soon())
        except FencedOut:
            assert await store.totals(graph, soon()) == before
            return
        raise AssertionError("a stale fence was obeyed")

    async def check(self) -> None:
        """See `GraphMachine`; and nothing is there but what is kept and what is being built."""
        await GraphMachine.check(self)
        ours = [graph for graph, _ in [*self.kept, *([self.building] if self.building else [])]]
        assert set(
            await self.stores.store.graphs(self.corpus, self.stores.uids.get(self.corpus, "0" * 32), soon())
        ) == {graph.graph_id for graph in ours}
        for graph, _ in self.stale:
            if graph not in ours:
                assert await self.stores.store.totals(graph, soon()) == GraphTotals()


FENCES = 1_000_000
"""A fence above all that a machine gives away: even who would own a graph cannot write to it once it is dropped."""

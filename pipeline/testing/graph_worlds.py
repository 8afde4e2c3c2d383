"""Whole graphs made of a few numbers, and the worlds in which a contract suite publishes and reads them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphChunk, GraphMention, GraphPart, GraphRef
from pipeline.graphs.plain import PlainGraph
from pipeline.graphs.ports import GraphReader, GraphStore
from pipeline.retrieval.walk import Bounds, WalkResult
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, EntityNo, graph_id

FENCE = 1
KIND = "knows"

Contents = tuple[list[Entity], list[Relation], list[tuple[int, tuple[int, ...]]]]
"""All entities, relations and paths of a graph, each in the order of their pages."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All rows of a graph, and the communities of every entity."""

    part: GraphPart = field(default_factory=GraphPart)
    paths: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    @property
    def plain(self) -> PlainGraph:
        """The same graph in dicts."""
        plain = PlainGraph()
        plain.add(self.part)
        plain.paths = dict(self.paths)
        return plain

    @property
    def contents(self) -> Contents:
        """What a reader must find in it."""
        plain = self.plain
        entities = [plain.entities[number] for number in sorted(plain.entities)]
        return entities, [plain.relations[key] for key in sorted(plain.relations)], sorted(plain.paths.items())

    def parts(self, size: int) -> Iterator[GraphPart]:
        """Yield the rows in parts of this size; what a row joins comes before it."""
        for start in range(0, len(self.part.chunks), size):
            yield GraphPart(chunks=self.part.chunks[start : start + size])
        for start in range(0, len(self.part.entities), size):
            yield GraphPart(entities=self.part.entities[start : start + size])
        for start in range(0, len(self.part.relations), size):
            yield GraphPart(relations=self.part.relations[start : start + size])
        for start in range(0, len(self.part.mentions), size):
            yield GraphPart(mentions=self.part.mentions[start : start + size])


def entity(number: int, kind: str = "thing", name: str | None = None, evidence: int = 0) -> Entity:
    """Return an entity of which this many chunks speak."""
    shown = f"Name {number}" if name is None else name
    return Entity(
        EntityNo(number), f"thing:{number:016x}00000000", kind, f"name {number}", shown, f"{shown}.", evidence, evidence
    )


def relation(source: int, target: int, kind: str = KIND, evidence: int = 1) -> Relation:
    """Return a relation that this many chunks state."""
    return Relation(EntityNo(source), EntityNo(target), kind, 0.5, evidence)


def whole(
    mentions: Mapping[int, Collection[int]],
    relations: Iterable[tuple[int, int] | tuple[int, int, str]] = (),
    *,
    documents: Mapping[str, Iterable[int]] | None = None,
    alone: Iterable[int] = (),
    paths: Mapping[int, tuple[int, ...]] | None = None,
) -> Whole:
    """Return a graph of chunks with the entities that each mentions, and of the relations between entities.

    `documents` are the chunks of each document in their order; a chunk of none has a document of its own. `alone` are
    entities besides. An entity without a path is a community of its own.
    """
    edges = [relation(edge[0], edge[1], edge[2] if len(edge) == 3 else KIND) for edge in relations]
    numbers = sorted(
        {*alone, *(e for named in mentions.values() for e in named), *(n for r in edges for n in _ends(r))}
    )
    placed = {chunk for chunks in (documents or {}).values() for chunk in chunks}
    texts = {**(documents or {}), **{f"document {chunk}": [chunk] for chunk in mentions if chunk not in placed}}
    chunks = [GraphChunk(chunk, name, place) for name, own in texts.items() for place, chunk in enumerate(own)]
    links = [GraphMention(chunk, number) for chunk, named in mentions.items() for number in named]
    entities = [entity(number, evidence=sum(number in named for named in mentions.values())) for number in numbers]
    return Whole(GraphPart(chunks, entities, edges, links), {n: (paths or {}).get(n, (n,)) for n in numbers})


def _ends(edge: Relation) -> tuple[int, int]:
    return edge.source, edge.target


class GraphWorld(Protocol):
    """Where a backend keeps graphs. A corpus begins with its first generation."""

    @property
    def reader(self) -> GraphReader:
        """Reads what is published."""
        ...

    async def publish(self, corpus: str, whole: Whole) -> GraphRef:
        """Make this the next generation of a corpus, visible to the reader."""
        ...

    async def retire(self, graph: GraphRef) -> None:
        """Collect the oldest generation of a corpus that is still there."""
        ...

    def bounded(self, bounds: Bounds) -> GraphWorld:
        """Return this world, where what is derived when a graph is published is bounded like the walks to come."""
        ...


@dataclass(slots=True)
class StoreWorld:
    """A world in which a `GraphStore` keeps a graph for each generation; `stores` makes one with other bounds."""

    store: GraphStore
    reader: GraphReader
    stores: Callable[[Bounds], GraphStore] | None = None
    uids: dict[str, str] = field(default_factory=dict[str, str])
    generations: dict[str, int] = field(default_factory=dict[str, int])

    def next(self, corpus: str) -> GraphRef:
        """Return the graph of the next generation of a corpus; nothing is made yet."""
        uid = self.uids.setdefault(corpus, uuid.uuid4().hex)
        number = self.generations[corpus] = self.generations.get(corpus, 0) + 1
        return GraphRef(CorpusId(1 + list(self.uids).index(corpus)), number, corpus, graph_id(uid, number))

    async def publish(self, corpus: str, whole: Whole) -> GraphRef:
        """See `GraphWorld`; all rows in one part."""
        graph = self.next(corpus)
        await self.build(graph, whole)
        return graph

    async def build(self, graph: GraphRef, whole: Whole, fence: int = FENCE) -> None:
        """Write a whole graph."""
        await self.store.open(graph, fence, soon())
        await self.store.write(graph, fence, whole.part, soon())
        assert await self.store.seal(graph, fence, soon()) == replace(whole.plain.totals, placed=0)
        await self.store.place(graph, fence, whole.paths, soon())

    async def retire(self, graph: GraphRef) -> None:
        """See `GraphWorld`."""
        await self.store.drop(graph.corpus, graph.graph_id, soon())

    def bounded(self, bounds: Bounds) -> StoreWorld:
        """See `GraphWorld`; both share their corpora."""
        return replace(self, store=self.stores(bounds)) if self.stores else self

    async def graphs(self, corpus: str) -> set[str]:
        """Return the ids of the graphs of a corpus."""
        return set(await self.store.graphs(corpus, self.uids[corpus], soon()))

    async def close(self) -> None:
        """Leave nothing behind."""
        for corpus in self.uids:
            for one in await self.graphs(corpus):
                await self.store.drop(corpus, one, soon())


def soon() -> Deadline:
    """Return a deadline that only a test that hangs meets."""
    return Deadline.after(60)


def past() -> Deadline:
    """Return a deadline that is over."""
    return Deadline.after(-1)


async def contents(reader: GraphReader, graph: GraphRef, size: int = 1000) -> Contents:
    """Read all pages of this size; no page is longer, none before the last shorter, and none is read in vain."""
    entities: list[Entity] = []
    while page := await reader.entities(graph, entities[-1].entity_no if entities else None, size, soon()):
        assert len(page) <= size
        entities += page
        if len(page) < size:
            break
    relations: list[Relation] = []
    key: tuple[int, int, str] | None = None
    while edges := await reader.relations(graph, key, size, soon()):
        assert len(edges) <= size
        relations += edges
        key = (edges[-1].source, edges[-1].target, edges[-1].type)
        if len(edges) < size:
            break
    paths: list[tuple[int, tuple[int, ...]]] = []
    while found := await reader.paths(graph, paths[-1][0] if paths else None, size, soon()):
        assert len(found) <= size
        paths += found
        if len(found) < size:
            break
    return entities, relations, paths


def shown(result: WalkResult) -> tuple[list[tuple[int, float, bool]], int, int, int]:
    """Return a result in a form that can be compared: (chunk, score, by community) in order, and the counters."""
    rows = zip(result.rows.tolist(), result.scores.tolist(), result.by_community.tolist(), strict=True)
    return list(rows), result.seed_chunks, result.resolved_entities, result.cut_short

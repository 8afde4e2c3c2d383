"""Live triples as a property graph: entities are the names, relations the predicates."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from pipeline.deadline import Deadline
from pipeline.errors import NotFound
from pipeline.graphs.bag import Triple, entity_key
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.execution import Edge, Node
from pipeline.graphtools.memory import PropertyGraph
from schemas.ids import CorpusId, entity_id, graph_id

ENTITY = "entity"
"""The stored type of every entity."""

RETAINED = 3
"""States of the triples that are kept for later pages, the newest included; one that is being read stays, too."""


def graph_of(triples: Iterable[Triple]) -> PropertyGraph:
    """Return the graph of triples. Spellings with one identity key are one entity, called as in the oldest triple.

    `mentions` of an entity and `evidence` of a relation count triples; a predicate is a type, verbatim.
    """
    names: dict[str, str] = {}
    mentions = Counter[str]()
    evidence = Counter[tuple[str, str, str]]()
    for triple in triples:
        ends = [(entity_id(ENTITY, entity_key(name)), name) for name in (triple.subject, triple.object)]
        for end, name in ends:
            names.setdefault(end, name)
        mentions.update({end for end, _ in ends})
        evidence[ends[0][0], triple.predicate, ends[1][0]] += 1
    nodes = [
        Node(end, ENTITY, {"name": name, "description": "", "mentions": mentions[end], "chunks": 0})
        for end, name in names.items()
    ]
    return PropertyGraph.of(nodes, [Edge(*ends, {"weight": 1.0, "evidence": n}) for ends, n in evidence.items()])


class LiveGraphs:
    """The triples at hand as generations of one graph: whoever reads after a change gets a new one.

    `triples` returns them as of one moment, oldest first (`KnowledgeTools.triples` does). `graphs` holds the generations
    that can still be read, by graph id, for `MemoryMatch`.
    """

    def __init__(self, triples: Callable[[], Sequence[Triple]], name: str = "live") -> None:
        self.graphs: dict[str, PropertyGraph] = {}
        self._triples = triples
        self._name = name
        self._uid = uuid.uuid4().hex
        self._seen: Sequence[Triple] = ()
        self._refs: list[GraphRef] = []
        self._readers = Counter[str]()
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def pin(self, graph: GraphRef | None, deadline: Deadline) -> AsyncGenerator[GraphRef, None]:
        """Keep a generation, by default the current one, while it is read. Raises NotFound if it is no longer kept."""
        pinned = graph or await self._current()
        if pinned.graph_id not in self.graphs:
            raise NotFound("This graph is no longer kept.")
        self._readers[pinned.graph_id] += 1
        try:
            yield pinned
        finally:
            self._readers[pinned.graph_id] -= 1

    async def retained(self, deadline: Deadline) -> Sequence[GraphRef]:
        """Return what can be pinned, newest first."""
        return self._refs[::-1]

    async def _current(self) -> GraphRef:
        async with self._lock:
            triples = self._triples()
            if not self._refs or triples != self._seen:
                number = self._refs[-1].generation + 1 if self._refs else 1
                newest = GraphRef(CorpusId(0), number, self._name, graph_id(self._uid, number))
                self.graphs[newest.graph_id] = await to_thread.run_sync(graph_of, triples)
                self._seen = triples
                self._refs.append(newest)
                self._forget()
            return self._refs[-1]

    def _forget(self) -> None:
        for old in self._refs[:-RETAINED]:
            if not self._readers[old.graph_id]:
                self._refs.remove(old)
                del self.graphs[old.graph_id], self._readers[old.graph_id]

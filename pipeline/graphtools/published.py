"""From what a tenant has published to what its agents may ask: sources whose graphs are the generations of a corpus."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.generations.pins import Pinned
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.disclosure import Disclosure
from pipeline.graphtools.execution import Bounds, MatchExecutor, Rows
from pipeline.graphtools.plan import Plan
from pipeline.graphtools.source import KnowledgeSource, SourceSet
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.published import Publication, PublishedGraph

POSTGRES = "postgres"
"""The store that has every graph."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A published graph with what only Sapwood knows of it; the secret makes its disclosure tokens."""

    graph: PublishedGraph
    corpus_id: CorpusId
    secret: bytes = field(repr=False)


class Registry(Protocol):
    """Keeps what tenants have published."""

    async def publish(self, tenant: str, name: str, what: Publication, deadline: Deadline) -> PublishedGraph:
        """Publish under this name, in place of what was.

        Raises:
            NotFound: the tenant has no such corpus.
            Conflict: it has published as many graphs as it may.
        """
        ...

    async def listing(self, tenant: str, deadline: Deadline) -> list[Registered]:
        """Return all by name."""
        ...

    async def get(self, tenant: str, name: str, deadline: Deadline) -> Registered:
        """Return one. Raises NotFound."""
        ...

    async def remove(self, tenant: str, name: str, deadline: Deadline) -> None:
        """Publish it no longer. Raises NotFound."""
        ...

    async def retained(self, corpus: CorpusId, deadline: Deadline) -> Sequence[Manifest]:
        """Return the manifests of the generations that can be read, newest first."""
        ...


class Pins(Protocol):
    """Keeps generations readable; `PinBoard` does."""

    def pin(
        self, tenant: str, name: str, deadline: Deadline, number: int | None = None
    ) -> AbstractAsyncContextManager[Pinned]:
        """Hold the current generation, or the one of this number. Raises NotFound."""
        ...


class CorpusGraph:
    """The graph of a corpus: its retained generations, and who answers for each, by the store that its manifest names.

    PostgreSQL has all of it too, and answers where this process was not told of that store.
    """

    def __init__(
        self, tenant: str, found: Registered, registry: Registry, pins: Pins, executors: Mapping[str, MatchExecutor]
    ) -> None:
        self._tenant = tenant
        self._found = found
        self._registry = registry
        self._pins = pins
        self._executors = executors
        self._stores: dict[str, str] = {}

    @asynccontextmanager
    async def pin(self, graph: GraphRef | None, deadline: Deadline) -> AsyncGenerator[GraphRef, None]:
        """See `GraphPins`."""
        number = graph.generation if graph else None
        async with self._pins.pin(self._tenant, self._found.graph.corpus, deadline, number) as pinned:
            ref = GraphRef.of(pinned.corpus_id, pinned.manifest)
            self._stores[ref.graph_id] = pinned.manifest.graph_store
            yield ref

    async def retained(self, deadline: Deadline) -> Sequence[GraphRef]:
        """See `GraphPins`."""
        manifests = await self._registry.retained(self._found.corpus_id, deadline)
        return [GraphRef.of(self._found.corpus_id, manifest) for manifest in manifests]

    async def match(self, graph: GraphRef, plan: Plan, bounds: Bounds, deadline: Deadline) -> Rows:
        """See `MatchExecutor`; the graph is one that was pinned here."""
        executor = self._executors.get(self._stores[graph.graph_id]) or self._executors[POSTGRES]
        return await executor.match(graph, plan, bounds, deadline)


def source_of(found: Registered, graph: CorpusGraph) -> KnowledgeSource:
    """Return a published graph as a source."""
    published, limits = found.graph, found.graph.limits
    return KnowledgeSource(
        name=published.name,
        space=f"corpus_{found.corpus_id}",
        schema=published.graph_schema,
        executor=graph,
        graphs=graph,
        description=published.description or published.graph_schema.description,
        default_page_size=limits.page_size,
        max_page_size=limits.max_page_size,
        max_hops=limits.max_hops,
        timeout=limits.deadline,
        steps=limits.steps,
        disclosure=Disclosure(found.secret) if published.demand_disclosure else None,
    )


async def sources_of(
    tenant: str, registry: Registry, pins: Pins, executors: Mapping[str, MatchExecutor], deadline: Deadline
) -> SourceSet:
    """Return all that a tenant has published."""
    found = await registry.listing(tenant, deadline)
    return SourceSet([source_of(one, CorpusGraph(tenant, one, registry, pins, executors)) for one in found])

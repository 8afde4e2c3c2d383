"""What an agent may ask: named sources, each a graph behind an allow-list, with its limits."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, NotFound
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.disclosure import Disclosure
from pipeline.graphtools.execution import MatchExecutor
from pipeline.graphtools.plan import MOST_HOPS
from schemas.exposed import PORTABLE, GraphSchema

MOST_ROWS = 9999
"""Rows of a page at most."""


class GraphPins(Protocol):
    """Which generations of a source's graph can be read, and their keeper while they are."""

    def pin(self, graph: GraphRef | None, deadline: Deadline) -> AbstractAsyncContextManager[GraphRef]:
        """Keep a generation, by default the current one, readable within the context.

        Raises:
            NotFound: there is no graph, or this generation is no longer kept.
        """
        ...

    async def retained(self, deadline: Deadline) -> Sequence[GraphRef]:
        """Return the generations that can be pinned, newest first. The current one is the first."""
        ...


class OneGraph:
    """The pins of a graph that never changes."""

    def __init__(self, graph: GraphRef) -> None:
        self._graph = graph

    @asynccontextmanager
    async def pin(self, graph: GraphRef | None, deadline: Deadline) -> AsyncGenerator[GraphRef, None]:
        """Return the graph. Raises NotFound if another one is asked for."""
        if graph not in (None, self._graph):
            raise NotFound("There is no other graph.")
        yield self._graph

    async def retained(self, deadline: Deadline) -> Sequence[GraphRef]:
        """Return the one graph."""
        return [self._graph]


@dataclass(frozen=True, slots=True)
class KnowledgeSource:
    """A graph that may be asked, and within which limits. Name and description are trimmed.

    `space` names its data for whoever runs the store; agents never see it, and a cursor of one space fits no other.
    `timeout` is in seconds for a whole query, `steps` and `fetch` are those of `execution.Bounds`. With a `disclosure` of its
    own it demands tokens whether or not all sources do.

    Raises:
        ConfigurationError: a limit is out of range; the message names it.
    """

    name: str
    space: str
    schema: GraphSchema
    executor: MatchExecutor
    graphs: GraphPins
    description: str = ""
    default_page_size: int = 20
    max_page_size: int = 100
    max_hops: int = 3
    timeout: float = 10.0
    fetch: int = 100
    steps: int = 1_000_000
    disclosure: Disclosure | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip())
        object.__setattr__(self, "description", self.description.strip())
        _demand(bool(self.name), "knowledge source name must not be blank")
        _demand(bool(re.fullmatch(PORTABLE, self.space)), f"knowledge source space must match {PORTABLE}")
        fits = 1 <= self.default_page_size <= self.max_page_size
        _demand(fits, "default page size must be between 1 and max page size")
        _demand(self.max_page_size <= MOST_ROWS, f"max page size must be between 1 and {MOST_ROWS}")
        _demand(1 <= self.max_hops <= MOST_HOPS, f"max hops must be between 1 and {MOST_HOPS}")
        _demand(self.timeout > 0, "timeout must be positive")
        _demand(self.fetch > 0, "fetch must be positive")
        _demand(self.steps > 0, "steps must be positive")


class SourceSet:
    """The sources of one tenant, by name, in the order in which they were given; there may be none.

    Raises:
        ConfigurationError: two have the same name.
    """

    def __init__(self, sources: Sequence[KnowledgeSource] = ()) -> None:
        self._sources: dict[str, KnowledgeSource] = {}
        for source in sources:
            _demand(source.name not in self._sources, f"duplicate knowledge source: {source.name}")
            self._sources[source.name] = source

    def __iter__(self) -> Iterator[KnowledgeSource]:
        return iter(self._sources.values())

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._sources)

    def get(self, name: str) -> KnowledgeSource | None:
        """Return the source with exactly this name."""
        return self._sources.get(name)


def _demand(true: bool, message: str) -> None:
    if not true:
        raise ConfigurationError(message)

"""Who serves the graph leg of a request: every provider says whether it claims it, and at most one may be left.

None of this ever softens: a conflict of claims is an error of the configuration, whatever a request takes in case of
failure, and a graph that nobody serves is never replaced by another way of searching.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pipeline.deadline import Deadline
from pipeline.errors import GraphCapabilityError
from pipeline.retrieval.legs import Near, PinnedGeneration, Ranking
from pipeline.retrieval.rows import Ints
from schemas.query import QueryRequest, Strategy
from schemas.settings import GraphSearchSettings

GRAPH_POLICIES = frozenset({"semantic", "code"})
"""Policies under which a generation has a graph."""

Method = Literal["walk", "ppr"]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a claim depends on.

    `files` are the names of the document sources in reach, none if there are none; `fence` names the sources and providers
    that may serve, empty for all. `graph` says whether the documents have a graph that may be searched, `store` where it
    lies besides PostgreSQL's rows, and `ranking` how it is to be ranked.
    """

    files: frozenset[str] = frozenset()
    fence: frozenset[str] = frozenset()
    graph: bool = False
    store: str = "postgres"
    ranking: Method = "ppr"

    def admits(self, provider: str) -> bool:
        """Whether a provider of the documents' graph may serve: the fence is empty, or names it or one of the sources."""
        return not self.fence or provider in self.fence or not self.fence.isdisjoint(self.files)


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """What a provider ranks for.

    `settings` are the corpus's with what the request overrides; their `ranking` is never `auto`. `allowed` are the ids,
    ascending, of the chunks that pass the request's filters, None for all. `near` returns the dense ranking, once it is
    there, and raises what that leg failed with.
    """

    request: QueryRequest
    pinned: PinnedGeneration
    settings: GraphSearchSettings
    allowed: Ints | None
    near: Callable[[], Awaitable[Near]]

    @property
    def fused(self) -> bool:
        """Whether the ranking is fused with the dense and the keyword ranking."""
        return self.request.strategy is not Strategy.GRAPH


@runtime_checkable
class GraphProvider(Protocol):
    """Ranks by a graph. The entry points of the group `sapwood.graph` are callables without arguments that return one."""

    @property
    def name(self) -> str:
        """What hits are stamped with, and what a fence calls it; unlike that of any other provider."""
        ...

    @property
    def default(self) -> bool:
        """Whether it steps back where one that is no default claims too; only those of Sapwood itself are."""
        ...

    @property
    def live(self) -> bool:
        """Whether its answers can change while the generation stays the same; then no result is kept."""
        ...

    def claims(self, reach: Reach) -> bool:
        """Whether it would serve this request. No I/O: it is asked on the event loop, for each request."""
        ...

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        """Return chunks of the generation, or passages of its own, at most `query.settings.top_k` of them.

        Raises:
            DependencyError: what it reads from failed; the answer goes on without the graph, and says so.
        """
        ...


def reach_of(pinned: PinnedGeneration, request: QueryRequest) -> Reach:
    """Return what is in reach of a question to a corpus: its documents, under its name, if it has any."""
    manifest = pinned.manifest
    documents = manifest.stores.get("documents")
    there = documents is None or documents.rows > 0
    return Reach(
        frozenset({manifest.corpus} if there else ()),
        frozenset(request.fence),
        manifest.policy in GRAPH_POLICIES,
        manifest.graph_store,
        method(pinned, request),
    )


def method(pinned: PinnedGeneration, request: QueryRequest) -> Method:
    """Return how the graph is ranked: as wanted or, for `auto`, by what its store does best, whoever serves in the end.

    Source code is walked: its chunks hang together by calls and imports, which a PageRank over mentions does not see.
    """
    wanted = request.ranking or pinned.settings.graph_search.ranking
    if wanted != "auto":
        return wanted
    mentions = pinned.manifest.graph_store == "postgres" and pinned.manifest.policy != "code"
    return "ppr" if mentions else "walk"


def graph_settings(pinned: PinnedGeneration, request: QueryRequest) -> GraphSearchSettings:
    """Return the settings of the graph leg, `auto` resolved; at least as many hits are wanted as are asked for."""
    settings = pinned.settings.graph_search
    chosen = {"ranking": method(pinned, request), "top_k": max(settings.top_k, request.top_k)}
    return settings.model_copy(update=chosen)


def serving(providers: Sequence[GraphProvider], reach: Reach) -> GraphProvider | None:
    """Return the one provider that serves, None if nobody claims.

    Defaults step back where another claims. Of two defaults, the one that the fence names serves: the other is there for
    the sources beside it.

    Raises:
        GraphCapabilityError: several claim; the message names them.
    """
    claimants = [provider for provider in providers if provider.claims(reach)]
    others = [provider for provider in claimants if not provider.default]
    left = others or [provider for provider in claimants if provider.name in reach.fence] or claimants
    if len(left) > 1:
        names = ", ".join(sorted(provider.name for provider in left))
        raise GraphCapabilityError(
            f"Several graph providers claim this request ({names}): configure or fence one of them."
        )
    return left[0] if left else None

"""The graph providers: a generation's graph from its snapshot or from the store it lies in, live triples, and those installed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import anyio
import anyio.to_thread
import numpy as np

from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    DependencyError,
    InconsistentGeneration,
    SapwoodError,
    StoreRefused,
    StoreUnavailable,
)
from pipeline.graphs.bag import Triple
from pipeline.graphs.claims import GraphProvider, GraphQuery, Reach, reach_of, serving
from pipeline.graphs.knowledge import search_live
from pipeline.graphs.parts import GraphRef
from pipeline.graphs.ports import GraphReader
from pipeline.ports import DenseIndex
from pipeline.retrieval.bridge import bridged
from pipeline.retrieval.hydrate import StoredChunk
from pipeline.retrieval.keyword import best
from pipeline.retrieval.legs import Near, PinnedGeneration, Ranking, Sources, masked, ranking
from pipeline.retrieval.ppr import PASSAGE_MASS, masses
from pipeline.retrieval.seeds import question_seeds
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import Limits, WalkResult, walk_chunks
from schemas.ids import number_of, text_hash
from schemas.query import QueryRequest

ENTRY_POINTS = "sapwood.graph"
"""The entry-point group of installed providers."""

PASSAGE_SEEDS = 5
"""Dense hits from which a PageRank restarts, beside the names in the question."""

FUSED_SEEDS, FUSED_MASS = 2, 0.02
"""The same for a PageRank that is fused by scores, and what share of its restarts they get: enough to reach what no name
leads to, while the dense leg speaks for itself. Fused by ranks, it does better from the names alone.
"""

NEAR_SHARE = 0.5
"""The part of the time left that a fused PageRank waits for the dense ranking at most."""


MOST_NAMESAKES = 10
"""Chunks that may define a name of source code in a question: what more of them do is an everyday word."""


class Providers:
    """The providers of a process: its own, and those that are installed."""

    def __init__(self, own: Sequence[GraphProvider]) -> None:
        self._own = tuple(own)
        self._all: tuple[GraphProvider, ...] | None = None

    async def serving(self, pinned: PinnedGeneration, request: QueryRequest) -> GraphProvider | None:
        """Return who serves the graph leg of a request, None if nobody does or the corpus wants none.

        Raises:
            GraphCapabilityError: several providers claim the request.
            ConfigurationError: an installed provider cannot be loaded, or has the name of another one.
        """
        if not pinned.settings.graph_search.enabled:
            return None
        return serving(await self.all(), reach_of(pinned, request))

    async def all(self) -> Sequence[GraphProvider]:
        """Return all of them.

        Raises:
            ConfigurationError: an installed provider cannot be loaded, or has the name of another one.
        """
        if self._all is None:
            # In a thread since it imports. Others who ask meanwhile do the same, and come to the same.
            found = await anyio.to_thread.run_sync(installed, abandon_on_cancel=True)
            names = [provider.name for provider in (*self._own, *found)]
            if twice := {name for name in names if names.count(name) > 1}:
                raise ConfigurationError(f"Two graph providers are named {', '.join(sorted(twice))}; remove one.")
            self._all = (*self._own, *found)
        return self._all


@cache
def installed() -> tuple[GraphProvider, ...]:
    """Load the installed providers, once for a process. Raises ConfigurationError naming the one that will not load."""
    return tuple(_loaded(entry) for entry in entry_points(group=ENTRY_POINTS))


def _loaded(entry: EntryPoint) -> GraphProvider:
    try:
        provider = entry.load()()
    except Exception as error:
        problem = f"The graph provider {entry.name!r} cannot be loaded ({type(error).__name__}); mend or remove it."
        raise ConfigurationError(problem) from error
    if not isinstance(provider, GraphProvider):
        raise ConfigurationError(
            f"What the entry point {entry.name!r} returns is no graph provider; mend or remove it."
        )
    return _Guest(provider)


@dataclass(frozen=True, slots=True)
class _Guest:
    """A provider of others: what it raises is one of our errors."""

    provider: GraphProvider

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def default(self) -> bool:
        return False

    @property
    def live(self) -> bool:
        return self.provider.live

    def claims(self, reach: Reach) -> bool:
        try:
            return self.provider.claims(reach)
        except Exception as error:
            problem = f"The graph provider {self.name!r} cannot say what it claims ({type(error).__name__})."
            raise ConfigurationError(problem) from error

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        try:
            return await self.provider.rank(query, deadline)
        except SapwoodError:
            raise
        except Exception as error:
            raise StoreUnavailable(f"The graph provider {self.name!r} failed with {type(error).__name__}.") from error


@dataclass(frozen=True, slots=True)
class InMemoryProvider:
    """Serves the graph of a generation from its snapshot, in this process, by PageRank or walk."""

    sources: Sources
    name: str = "in-memory"
    default: bool = True
    live: bool = False

    def claims(self, reach: Reach) -> bool:
        """Whether documents with a graph are in reach, and the fence admits them."""
        return reach.graph and bool(reach.files) and reach.admits(self.name)

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        """Rank by a PageRank from the names in the question and the nearest chunks, or by a walk from these; in source code
        rather from the chunks that define what the question names, if it names anything.
        """
        if query.settings.ranking == "ppr":
            near = await _nearest(query, deadline)
            snapshot = await self.sources.snapshot(query.pinned, deadline)
            return await self.sources.in_thread(lambda: _page_rank(snapshot, near, query))
        near = await query.near()
        snapshot = await self.sources.snapshot(query.pinned, deadline)
        limits = Limits.of(query.settings)
        seeds = near.hits[: limits.top_k]

        code = query.pinned.manifest.policy == "code"

        def walked() -> tuple[WalkResult, list[tuple[int, float]]]:
            named = _named(snapshot, query.request.text) if code else []
            return walk_chunks(snapshot, named or seeds, limits, query.allowed), named

        candidates, named = await self.sources.in_thread(walked)
        settled = await _settled(self.sources.dense, candidates, near, query, deadline)
        return _with(settled, named, query) if named else settled


@dataclass(frozen=True, slots=True)
class StoreProvider:
    """Serves graphs that lie in a store outside of PostgreSQL, by a walk; `name` is that of the store."""

    name: str
    reader: GraphReader
    dense: DenseIndex
    default: bool = False
    live: bool = False

    def claims(self, reach: Reach) -> bool:
        """Whether documents with a graph in this store are in reach, to be walked, and the fence admits them.

        A PageRank needs the whole graph, and is made from the snapshot.
        """
        here = reach.graph and bool(reach.files) and reach.store == self.name
        return here and reach.ranking == "walk" and reach.admits(self.name)

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        """Rank by a walk from the nearest chunks."""
        near = await query.near()
        limits = Limits.of(query.settings)
        seeds = near.hits[: limits.top_k]
        if not seeds:
            return Ranking(())
        graph = GraphRef.of(query.pinned.corpus_id, query.pinned.manifest)
        try:
            candidates = await self.reader.expand(graph, seeds, limits, query.allowed, deadline)
        except ConfigurationError as error:
            # A server that refuses our login is a store that cannot be read: the rest of the question can be answered.
            raise StoreUnavailable(str(error)) from error
        return await _settled(self.dense, candidates, near, query, deadline)


@dataclass(frozen=True, slots=True)
class KnowledgeToolsProvider:
    """Serves the triples that live in this process at this moment, whoever added them."""

    name: str = "knowledge-tools"
    default: bool = True
    live: bool = True

    def claims(self, reach: Reach) -> bool:
        """Whether the fence names it, or there is neither a fence nor a document in reach."""
        return self.name in reach.fence or not (reach.fence or reach.files)

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        """Rank triples by the words they share with the question; filters apply to them as to documents."""
        wanted = query.request.filters.items()

        def passes(triple: Triple) -> bool:
            return wanted <= {"document": self.name, **triple._asdict()}.items()

        def find() -> list[tuple[Triple, float]]:
            return search_live(query.request.text, query.settings.top_k, passes if wanted else None)

        found = await anyio.to_thread.run_sync(find, abandon_on_cancel=True)
        passages = [_passage(triple, self.name) for triple, _ in found]
        hits = [(~passage.chunk_id, score) for passage, (_, score) in zip(passages, found, strict=True)]
        return Ranking(hits, passages={~passage.chunk_id: passage for passage in passages})


def _passage(triple: Triple, document: str) -> StoredChunk:
    number = number_of("triple", *triple)
    text = triple.text
    return StoredChunk(number, document, 0, text, text_hash(text), (1, 1), (), "", triple._asdict())


async def _nearest(query: GraphQuery, deadline: Deadline) -> Near:
    """Return the dense ranking that a PageRank starts from; a fused one does without, where it is late or failed."""
    if not query.fused:
        return await query.near()
    if query.pinned.settings.fusion.method == "scores":
        until = deadline.earlier(deadline.remaining() * NEAR_SHARE)
        with suppress(DependencyError, StoreRefused, DeadlineExceeded), anyio.CancelScope(deadline=until.at):
            return await query.near()
    return Near(())


def _page_rank(snapshot: Snapshot, near: Near, query: GraphQuery) -> Ranking:
    count, share = (FUSED_SEEDS, FUSED_MASS) if query.fused else (PASSAGE_SEEDS, PASSAGE_MASS)
    names = question_seeds(query.request.text, snapshot)
    passages = _passages(snapshot, near.hits[:count])
    mass = masses(snapshot.graph, names, passages, query.settings, share)
    scores = bridged(snapshot, mass, query.request.text, query.settings.bridges, query.pinned.settings.keyword)
    allowed = masked(snapshot, query.allowed)
    rows, kept = best(scores if allowed is None else np.where(allowed, scores, 0.0), query.settings.top_k)
    return ranking(snapshot, rows, kept, {"seed_names": len(names), "seed_chunks": len(passages)})


def _named(snapshot: Snapshot, question: str) -> list[tuple[int, float]]:
    """Return the chunks of the symbols that a question names; the more there are of a name, the less each scores."""
    rows = [snapshot.graph.key_chunks.gather(np.array([seed.key]))[1] for seed in question_seeds(question, snapshot)]
    few = [some for some in rows if len(some) <= MOST_NAMESAKES]
    return [(int(chunk), 1.0 / len(some)) for some in few for chunk in snapshot.chunk_ids[some]]


def _with(found: Ranking, named: Sequence[tuple[int, float]], query: GraphQuery) -> Ranking:
    """Add the chunks of the symbols that were named, which no other leg need have; the walk leaves its seeds out."""
    admitted = None if query.allowed is None else set(query.allowed.tolist())
    scores = {chunk: score for chunk, score in reversed(named) if admitted is None or chunk in admitted}
    hits = sorted([*scores.items(), *found.hits], key=lambda hit: -hit[1])
    return replace(found, hits=hits[: query.settings.top_k])


async def _settled(
    dense: DenseIndex, candidates: WalkResult, near: Near, query: GraphQuery, deadline: Deadline
) -> Ranking:
    """Break the walk's ties by similarity to the query, and cut."""
    top_k = query.settings.top_k
    ids = np.union1d(candidates.contested(top_k), candidates.rows[:top_k]).tolist()
    similar = await dense.similarities(query.pinned.manifest, near.vector, ids, deadline) if ids else {}
    if len(similar) < len(ids):
        raise InconsistentGeneration("graph candidates are missing from the dense collection of their generation")
    settled = candidates.settle(similar, top_k)
    return Ranking(list(zip(settled.rows.tolist(), settled.scores.tolist(), strict=True)), settled.counters)


def _passages(snapshot: Snapshot, hits: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the hits by row. Raises InconsistentGeneration where one is no chunk of this generation."""
    rows = snapshot.rows(chunk for chunk, _ in hits).tolist()
    if -1 in rows:
        raise InconsistentGeneration("the dense collection holds a chunk that its generation does not have")
    return [(row, score) for row, (_, score) in zip(rows, hits, strict=True)]

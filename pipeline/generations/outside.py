"""What other stores hold of a corpus goes when PostgreSQL no longer knows of it: graphs, versions of vectors, collections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog

from pipeline.deadline import Deadline
from pipeline.errors import SapwoodError
from pipeline.graphs.ports import GraphStore
from pipeline.ports import DenseStore
from schemas.ids import CorpusId

AGAIN_SECONDS = 600.0
"""After this time a corpus is looked at again although nothing changed: a worker that was thought dead may have written."""

_log = structlog.get_logger(__name__)


class Kept(Protocol):
    """What must stay of a corpus in other stores."""

    @property
    def uid(self) -> str:
        """The corpus's uid."""
        ...

    @property
    def name(self) -> str:
        """The corpus's name."""
        ...

    @property
    def graph_ids(self) -> frozenset[str]:
        """Graphs that retained manifests name or that are being built."""
        ...

    @property
    def graph_stores(self) -> Collection[str]:
        """The stores in which the corpus has, or had, graphs."""
        ...

    @property
    def numbers(self) -> tuple[int, ...]:
        """Generations whose rows somebody may still read or is building."""
        ...

    @property
    def last(self) -> int:
        """The last number that was begun."""
        ...

    @property
    def void(self) -> tuple[int, ...]:
        """Numbers of the last day that were given up."""
        ...

    @property
    def collections(self) -> Mapping[str, str]:
        """Collections that lie in other stores, with their stores."""
        ...


class Buried(Protocol):
    """What a deleted corpus may have left."""

    @property
    def uid(self) -> str:
        """The corpus's uid."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def collections(self) -> Mapping[str, str]:
        """Its collections in other stores, with their stores."""
        ...

    @property
    def graph_stores(self) -> Collection[str]:
        """The stores in which it had graphs."""
        ...

    @property
    def cold(self) -> bool:
        """Whether it was deleted so long ago that no worker can write for it any more."""
        ...


class Records(Protocol):
    """Reads from PostgreSQL what must stay."""

    async def kept(self, corpus: CorpusId, deadline: Deadline) -> Kept | None:
        """Return what must stay of a corpus; None if it is gone."""
        ...

    async def buried(self, deadline: Deadline) -> Sequence[Buried]:
        """Return deleted corpora, oldest first."""
        ...

    async def forget_buried(self, uid: str, deadline: Deadline) -> None:
        """Forget a deleted corpus."""
        ...


@dataclass(frozen=True, slots=True)
class Cleared:
    """What one pass took away outside of PostgreSQL: graphs with their nodes, and versions of vectors."""

    graphs: dict[str, int] = field(default_factory=dict[str, int])
    vectors: int = 0


class Outside:
    """Takes away what is left in the stores of this process. Every call is idempotent, and may run in several workers."""

    def __init__(self, records: Records, graphs: Mapping[str, GraphStore], vectors: Mapping[str, DenseStore]) -> None:
        self._records = records
        self._graphs = graphs
        self._vectors = vectors
        self._settled: dict[CorpusId, tuple[object, float]] = {}
        self._interred: dict[str, float] = {}

    @property
    def stores(self) -> bool:
        """Whether this process has any store outside of PostgreSQL."""
        return bool(self._graphs or self._vectors)

    async def collect(self, corpus: CorpusId, deadline: Deadline) -> Cleared:
        """Drop the graphs and the versions of vectors that no retained generation names and no run builds.

        Raises StoreUnavailable; what was not taken away is found again by the next pass.
        """
        # In this order: what was begun after the list was made is not in it, and what is in it is known by then.
        before = await self._records.kept(corpus, deadline) if self.stores else None
        if before is None or self._is_settled(corpus, before):
            return Cleared()
        held = {
            (store, one): graphs
            for store, graphs in self._graphs.items()
            if store in before.graph_stores
            for one in await graphs.graphs(before.name, before.uid, deadline)
        }
        kept = await self._records.kept(corpus, deadline)
        if kept is None:
            return Cleared()
        dropped = {
            one: await graphs.drop(kept.name, one, deadline)
            for (_, one), graphs in held.items()
            if one not in kept.graph_ids
        }
        reclaimed = 0
        for collection, store in kept.collections.items():
            if store in self._vectors:
                reclaimed += await self._vectors[store].reclaim(
                    collection, kept.numbers, kept.last, kept.void, deadline
                )
        self._settled[corpus] = (_state(kept), anyio.current_time())
        return Cleared(dropped, reclaimed)

    async def drop_collection(self, store: str, collection: str, deadline: Deadline) -> bool:
        """Drop a collection; False if this process does not have its store."""
        if store not in self._vectors:
            return False
        await self._vectors[store].drop(collection, deadline)
        return True

    async def inter(self, deadline: Deadline) -> None:
        """Take away what deleted corpora left behind, now and then again until they are cold."""
        for one in await self._records.buried(deadline) if self.stores else ():
            if not one.cold and anyio.current_time() < self._interred.get(one.uid, 0.0):
                continue
            try:
                whole = await self._clear(one, deadline)
            except SapwoodError as error:
                _log.warning("outside.buried", error=str(error))  # the next round tries again
                continue
            self._interred[one.uid] = anyio.current_time() + AGAIN_SECONDS
            if whole and one.cold:
                await self._records.forget_buried(one.uid, deadline)
                self._interred.pop(one.uid, None)

    async def _clear(self, one: Buried, deadline: Deadline) -> bool:
        """Drop all of a deleted corpus; whether every store that had a part of it was there."""
        for graphs in self._graphs.values():
            for graph in await graphs.graphs(one.name, one.uid, deadline):
                await graphs.drop(one.name, graph, deadline)
        gone = [await self.drop_collection(store, name, deadline) for name, store in one.collections.items()]
        return all(gone) and all(store in self._graphs for store in one.graph_stores)

    def _is_settled(self, corpus: CorpusId, kept: Kept) -> bool:
        state, at = self._settled.get(corpus, (None, 0.0))
        return state == _state(kept) and anyio.current_time() < at + AGAIN_SECONDS


def _state(kept: Kept) -> object:
    return kept.graph_ids, kept.numbers, kept.void, tuple(sorted(kept.collections))

"""What the steps of an index run ask of the stores, as one value that the composition root fills in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.codegraph.linking import LinkStore
from pipeline.deadline import Deadline
from pipeline.generations.manifest import Draft
from pipeline.generations.rows import DocumentRows
from pipeline.ingest.communities import Graph, Ints, Labels, Partition
from pipeline.ingest.summaries import Named
from pipeline.plan import Known
from pipeline.ports import Tx
from schemas.documents import DocumentOutcome, Item, Source
from schemas.graph import Community
from schemas.ids import CorpusId, RunId
from schemas.manifest import CodeGraph, Manifest


class Derived(Protocol):
    """What deriving entities and relations changed."""

    @property
    def entities(self) -> int:
        """Versions of entities written and ended."""
        ...

    @property
    def relations(self) -> int:
        """Versions of relations written and ended."""
        ...

    @property
    def edges(self) -> bool:
        """Whether a relation came, went or weighs differently."""
        ...


class Stored(Protocol):
    """The communities of the generation before."""

    @property
    def paths(self) -> dict[int, tuple[int, ...]]:
        """The path of each entity."""
        ...

    @property
    def named(self) -> dict[int, Named]:
        """What communities are called, by id."""
        ...


class Corpora(Protocol):
    """Reads about a corpus's sources and documents."""

    async def sources(self, corpus: CorpusId, deadline: Deadline) -> list[Source]:
        """Return the remembered sources, in the order given."""
        ...

    async def known(self, corpus: CorpusId, deadline: Deadline) -> dict[str, Known]:
        """Return what the current generation knows of all its documents."""
        ...

    async def known_some(self, corpus: CorpusId, ids: Sequence[str], deadline: Deadline) -> dict[str, Known]:
        """Return the same for these documents."""
        ...


class Accounting(Protocol):
    """What an index run writes about its sources, documents and itself, in the transaction of the work."""

    async def remember_sources(self, tx: Tx, corpus: CorpusId, sources: Sequence[Source]) -> None:
        """Replace the remembered sources."""
        ...

    async def add_outcomes(self, tx: Tx, run: RunId, outcomes: Sequence[DocumentOutcome]) -> None:
        """Account for documents; the last outcome of a document stays."""
        ...

    async def outcome_counts(self, tx: Tx, run: RunId) -> dict[str, int]:
        """Return how many documents of a run ended how."""
        ...

    async def restat(self, tx: Tx, corpus: CorpusId, items: Sequence[Item]) -> None:
        """Note size, time stamp and place of files whose content did not change."""
        ...

    async def set_result(self, tx: Tx, run: RunId, result: dict[str, Any]) -> None:
        """Keep what a unit found out."""
        ...

    async def get_result(self, tx: Tx, run: RunId) -> dict[str, Any]:
        """Return what the run kept so far."""
        ...

    async def batch_results(self, tx: Tx, root: RunId) -> list[dict[str, Any]]:
        """Return what the batches of a run kept, in no order."""
        ...

    async def current(self, tx: Tx, corpus: CorpusId) -> Manifest | None:
        """Return the manifest of the corpus's current generation."""
        ...

    async def touched(self, tx: Tx, corpus: CorpusId, number: int) -> bool:
        """Whether anything was born or died at this number, or nothing is published yet."""
        ...

    async def withdraw(self, tx: Tx, corpus: CorpusId, number: int) -> None:
        """Give up a generation at which nothing was born or died."""
        ...

    async def live_chunks(self, tx: Tx, corpus: CorpusId) -> int:
        """Return how many chunks the generation in the making will have."""
        ...

    async def expect_many(self, tx: Tx, corpus: CorpusId, number: int) -> bool:
        """If the number wrote many rows, which the planner knows nothing of yet, have the queries of this transaction planned
        for that; return whether it did.
        """
        ...

    async def analyze(self, tx: Tx) -> None:
        """Refresh the planner's statistics about what runs write."""
        ...


@dataclass(frozen=True, slots=True)
class Building:
    """The stores of an index run. Functions that take a `Tx` write in the caller's fenced transaction."""

    corpora: Corpora
    accounting: Accounting
    reading: Callable[[Deadline], AbstractAsyncContextManager[Tx]]
    undo_orphans: Callable[[CorpusId, Deadline], Awaitable[object]]
    begin: Callable[[Tx, CorpusId, RunId], Awaitable[int]]
    ensure_collection: Callable[[Tx, CorpusId, int, str, str, int], Awaitable[str]]
    remove_documents: Callable[[Tx, CorpusId, int, Sequence[str]], Awaitable[None]]
    write_batch: Callable[[Tx, CorpusId, int, str | None, Sequence[DocumentRows]], Awaitable[None]]
    links: LinkStore
    code_figures: Callable[[Tx, CorpusId], Awaitable[CodeGraph]]
    derive: Callable[[Tx, CorpusId, int], Awaitable[Derived]]
    lone_changes: Callable[[Tx, CorpusId, int], Awaitable[Sequence[int] | None]]
    grouped_alike: Callable[[Tx, CorpusId, dict[str, Any]], Awaitable[bool | None]]
    read_graph: Callable[[Tx, CorpusId, int, Sequence[int] | None], Awaitable[Graph]]
    read_labels: Callable[[Tx, CorpusId, Ints], Awaitable[Labels]]
    stored_communities: Callable[[Tx, CorpusId, int, Sequence[int] | None], Awaitable[Stored]]
    write_communities: Callable[[Tx, CorpusId, int, Partition, Sequence[Community], Any], Awaitable[int]]
    promote: Callable[[Tx, CorpusId, int, Draft], Awaitable[Manifest]]
    republish: Callable[[Tx, CorpusId, int, RunId, dict[str, int], dict[str, str]], Awaitable[Manifest]]
    promoted: Callable[[CorpusId, int], None]

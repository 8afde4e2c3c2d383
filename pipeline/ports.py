"""What the stages ask of the world: Protocols owned by their consumers, eight methods at most.

Every awaited call may be cancelled at any await. Unless its docstring says otherwise, a cancelled call leaves nothing
behind, but for a write whose commit was under way: that one is repeated safely, since every write is idempotent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from anyio.streams.memory import MemoryObjectReceiveStream
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import SapwoodError
from pipeline.retrieval.rows import Delta
from schemas.events import Event
from schemas.graph import Extraction
from schemas.ids import CorpusId, RunId
from schemas.manifest import Manifest
from schemas.query import Wire
from schemas.runs import Lease, RunInfo, RunKind, RunState

Vectors = NDArray[np.float32]
"""(n, dimension) float32, rows L2-normalised, in the order of the texts."""


@dataclass(frozen=True, slots=True)
class DensePoint:
    """A chunk's vector (float32, L2-normalised) with its document; `graph_join_id` joins it to the graph it was born with."""

    chunk_id: int
    document: str
    graph_join_id: str
    vector: NDArray[np.float32]


class Tx(Protocol):
    """An open PostgreSQL transaction. Statements are named queries; values only ever travel as parameters."""

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement and return its command tag, e.g. `UPDATE 1`."""
        ...

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """Return all rows, in the statement's order."""
        ...

    async def fetchrow(self, query: str, *args: Any) -> Any:
        """Return the first row or None."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """Return the first column of the first row, or None."""
        ...

    async def copy(self, table: str, columns: Sequence[str], records: Iterable[Sequence[Any]]) -> None:
        """Append records by binary COPY; a record that breaks a constraint fails the whole transaction."""
        ...


class Database(Protocol):
    """A pool of connections that can be left at any await."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection whose statements each are a transaction of their own."""
        ...

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block, and rolls back if anything is raised."""
        ...

    def listening(self, channel: str) -> AbstractAsyncContextManager[MemoryObjectReceiveStream[str]]:
        """Lend the payloads of the notifications of a channel; the stream ends when the connection is lost."""
        ...


class Doorbell(Protocol):
    """Wakes workers. It may lose a ring or ring twice: the sweeper and the claim make both harmless."""

    async def ring(self, run_id: RunId, fence: int) -> None:
        """Ask some worker to claim this unit. Raises StoreUnavailable if the queue cannot be reached."""
        ...

    async def answer(self, door: Callable[[RunId, int], Awaitable[None]]) -> None:
        """Call `door` at each ring, until cancelled. Raises StoreUnavailable when the queue is lost."""
        ...


class Herald(Protocol):
    """Spreads the word after a commit. It never blocks and may forget: workers also look by themselves."""

    def ring(self, run_id: RunId, fence: int) -> None:
        """A unit is due."""
        ...

    def publish(self, run_id: RunId) -> None:
        """A run has new events."""
        ...


class RunStore(Protocol):
    """The durable side of runs. Ownership is `(run_id, fence, owner)` with a lease on the database's clock."""

    async def submit(
        self,
        corpus: CorpusId,
        kind: RunKind,
        payload: dict[str, Any],
        *,
        seconds: float | None = None,
        key: str | None = None,
        digest: bytes | None = None,
    ) -> RunInfo:
        """Make a run durable with its `queued` event; a second call with the same key returns the first run.

        `seconds` from now is its deadline. `digest` tells whether two requests are the same: see `pipeline/protocol.py`.

        Raises:
            NotFound: there is no such corpus.
            InvalidRequest: the key was used for another request, or the payload holds text that cannot be stored.
        """
        ...

    async def earlier(self, corpus: CorpusId, kind: RunKind, key: str, digest: bytes | None) -> RunInfo | None:
        """Return the run that this key made, None if there is none. Raises InvalidRequest: for another request."""
        ...

    async def cancel(self, run_id: RunId, reason: str) -> None:
        """Request cancellation of a run and its batches; a run that nobody owns is ended here, with its event.

        A run that has ended stays as it is. Raises NotFound.
        """
        ...

    async def info(self, run_id: RunId) -> RunInfo:
        """Return the run. Raises NotFound."""
        ...

    async def list(self, corpus: CorpusId | None, limit: int) -> list[RunInfo]:
        """Return the runs of a corpus (None: of all), newest first; batches are not listed."""
        ...


class UnitStore(Protocol):
    """The worker's side of runs: units are claimed, kept by heartbeats, and moved on in fenced transactions."""

    async def claim(self, run_id: RunId, fence: int, kinds: Collection[RunKind]) -> Lease | None:
        """Take a unit by one compare-and-set on (run, fence, queued); None if the ring was stale or must wait."""
        ...

    async def next_unit(self, root_id: RunId | None, kinds: Collection[RunKind]) -> Lease | None:
        """Take the oldest unit that is due, of one run or of any; None if there is none."""
        ...

    async def beat(self, lease: Lease) -> bool:
        """Extend the lease and return whether the unit is to stop. Raises FencedOut when ownership is gone."""
        ...

    def fenced(self, lease: Lease) -> AbstractAsyncContextManager[FencedTx]:
        """Open a transaction that commits only if this worker still owns the unit at its end.

        Raises:
            FencedOut: at the end; rolled back.
            RunCancelled: at the end, if the run is to stop and the unit does not end here; rolled back.
        """
        ...

    async def hand_back(self, lease: Lease, *, retry_after: float | None = None) -> None:
        """Return the unit to the queue: at once (shutdown, costs no attempt), or for a retry in so many seconds.

        Raises FencedOut.
        """
        ...

    async def sweep(self) -> int:
        """Requeue units whose owner is gone, end those that are to stop or too late; return how many."""
        ...

    def stops(self) -> AbstractAsyncContextManager[MemoryObjectReceiveStream[str]]:
        """Lend the ids of runs that are to stop, as it is said; only faster than the heartbeat, not surer."""
        ...


class FencedTx(Tx, Protocol):
    """A transaction under a lease. Its effects, its checkpoint and its events commit together or not at all."""

    def event(self, body: Wire) -> None:
        """Append an event to the root run at commit, with the next dense number (the row lock is taken last)."""
        ...

    def advance(self, step: int, generation: int | None = None) -> None:
        """Move the unit to this step at commit, and note the generation that the run builds."""
        ...

    def spawn(self, payloads: Sequence[dict[str, Any]], next_step: int) -> None:
        """Make batches of an index run at commit (one at least); the run waits, and goes on at `next_step` after them.

        The unit's work is done with this transaction.
        """
        ...

    def finish(self, state: RunState, error: str = "") -> None:
        """End the unit at commit in this final state; a failed unit says why as `Code: message`.

        A run that is completed needs its final event in the same transaction; any other end gets one if there is none.
        A batch has no final event: the last to end queues the run's next step, and one that fails dooms the run.
        """
        ...

    def outlook(self) -> Lease | None:
        """Return the lease as it will be after the commit; None if the unit ends or waits with it."""
        ...


class EventLog(Protocol):
    """The full log of a run's events, and of a corpus's."""

    async def read(self, run_id: RunId, after: int, limit: int) -> list[Event]:
        """Return the events with `seq > after`, in order, without a hole. Raises EventsExpired beyond retention."""
        ...

    async def end_of(self, run_id: RunId) -> tuple[int, bool]:
        """Return the last sequence number of a run and whether it has ended. Raises EventsExpired if it is unknown."""
        ...

    async def ends(self, runs: Collection[RunId]) -> Mapping[RunId, tuple[int, bool]]:
        """Return what `end_of` does, for many runs at once; one that is unknown is missing."""
        ...

    async def read_corpus(self, corpus: CorpusId, after: int, limit: int) -> list[tuple[int, Event]]:
        """Return events of all runs of a corpus with their corpus position, in commit order, positions above `after`.

        Positions grow but are not dense; none is ever passed over. Raises EventsExpired beyond retention.
        """
        ...

    async def positions(self, corpora: Collection[CorpusId]) -> Mapping[CorpusId, int]:
        """Return the last position up to which each of these corpora can be read, gone or not; 0 before its first event."""
        ...


class Outbox(Protocol):
    """What the relay has still to copy to the stream."""

    async def unpublished(self, limit: int) -> list[RunId]:
        """Return runs with events that are not in the stream."""
        ...

    async def relay(self, run_id: RunId, stream: EventStream, *, alone: bool) -> int:
        """Copy the missing events of a run in order and return how many; with `alone`, only if nobody else is at it.

        Two relays of one run do no harm, since the ids are explicit. Raises StoreUnavailable.
        """
        ...


class EventStream(Protocol):
    """The live copy of event logs, as those who write it see it; who reads it: `pipeline/feeds.py`."""

    async def publish(self, events: Sequence[Event]) -> None:
        """Append events under the ids `<seq>-0`; one that is already there is no error."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors. `paid` ones are cached by (fingerprint, text hash) as soon as each call is done."""

    @property
    def fingerprint(self) -> str:
        """Name and version of the model: vectors of two fingerprints are never compared."""
        ...

    @property
    def paid(self) -> bool:
        """Whether a call costs money or much time."""
        ...

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        """Return one vector for each text. Raises EmbeddingError or ModelError; nothing is returned in part."""
        ...


class Extractor(Protocol):
    """Finds mentions and facts in texts."""

    @property
    def fingerprint(self) -> str:
        """Name and version of model, prompt and rules."""
        ...

    @property
    def paid(self) -> bool:
        """Whether a call costs money or much time."""
        ...

    async def extract(self, texts: Sequence[str], deadline: Deadline) -> list[Extraction | SapwoodError]:
        """Return, for each text in order, what was found or why it failed; one bad answer never fails another text."""
        ...


class Cache(Protocol):
    """Paid work of a corpus by (fingerprint, text hash). Puts are idempotent; the first value stays."""

    async def vectors(
        self, corpus: CorpusId, fingerprint: str, hashes: Sequence[bytes]
    ) -> dict[bytes, NDArray[np.float32]]:
        """Return those that are known."""
        ...

    async def put_vectors(self, corpus: CorpusId, fingerprint: str, found: dict[bytes, NDArray[np.float32]]) -> None:
        """Keep these vectors."""
        ...

    async def extractions(self, corpus: CorpusId, fingerprint: str, hashes: Sequence[bytes]) -> dict[bytes, Extraction]:
        """Return those that are known."""
        ...

    async def put_extractions(self, corpus: CorpusId, fingerprint: str, found: dict[bytes, Extraction]) -> None:
        """Keep these extractions."""
        ...


class DenseIndex(Protocol):
    """Nearest neighbours in the physical collection that a manifest names."""

    async def search(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        k: int,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        """Return (chunk id, cosine similarity), best first, ties by chunk id; only chunks visible to the generation.

        `allowed` are the chunk ids that pass the request's filters, or None for all.
        """
        ...

    async def similarities(
        self, manifest: Manifest, vector: NDArray[np.float32], chunks: Sequence[int], deadline: Deadline
    ) -> dict[int, float]:
        """Return the cosine similarity of each of these chunks; one that the collection lacks is missing from the dict."""
        ...


class SnapshotSource(Protocol):
    """Reads what changed between two generations."""

    async def delta(self, corpus: CorpusId, since: int, generation: int, deadline: Deadline) -> Delta:
        """Return the rows visible to `generation` but not to `since`, and the reverse; `since` 0 means all of it."""
        ...


class DenseStore(Protocol):
    """Holds vectors outside of PostgreSQL, as versions by number like all rows of a corpus.

    What is written for a number cannot be seen before that number is published. `void` are the numbers that were begun and
    never will be: whatever was, or is still, written for them counts as not written. Every call is idempotent.
    """

    async def ensure(self, collection: str, dimension: int, deadline: Deadline) -> None:
        """Make a collection where it is missing."""
        ...

    async def write(
        self, collection: str, number: int, points: Sequence[DensePoint], void: Collection[int], deadline: Deadline
    ) -> None:
        """Replace the vectors of these points' documents: what is live of them dies at the number, the points are born at it."""
        ...

    async def remove(
        self, collection: str, number: int, documents: Sequence[str], void: Collection[int], deadline: Deadline
    ) -> None:
        """End the vectors of these documents at the number."""
        ...

    async def count(self, collection: str, number: int, void: Collection[int], deadline: Deadline) -> int:
        """Return how many vectors a number sees."""
        ...

    async def undo(self, collection: str, number: int, deadline: Deadline) -> None:
        """Undo an unpublished number: delete what it bore, revive what it killed."""
        ...

    async def revert(
        self, collection: str, target: int, number: int, void: Collection[int], deadline: Deadline
    ) -> None:
        """Make what `number` sees equal to what the earlier `target` sees."""
        ...

    async def reclaim(
        self, collection: str, kept: Collection[int], last: int, void: Collection[int], deadline: Deadline
    ) -> int:
        """Delete versions that died by `last` and that none of the kept numbers sees, and all of void ones; return how many."""
        ...

    async def drop(self, collection: str, deadline: Deadline) -> None:
        """Remove a collection; a missing one is no error."""
        ...

"""The run protocol in PostgreSQL: compare-and-set claims, leases on its clock, fenced transactions, the sweeper.

Locks are taken in one order, a unit's own row before its root's; whoever holds a root's row and wants those of its
batches skips the locked ones. So there is no deadlock, and who was skipped finds out, since the root is looked at last.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from anyio.streams.memory import MemoryObjectReceiveStream

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, Duplicate, FencedOut, InvalidRequest, NotFound, RunCancelled
from pipeline.fenced import FencedTransaction
from pipeline.ports import Database, Herald, Tx
from pipeline.protocol import Facts, Verdict, farewell, judge, last_words, storable, storable_json
from pipeline.queries import load
from schemas.events import Queued
from schemas.ids import CorpusId, RunId
from schemas.query import Wire
from schemas.runs import Lease, RunInfo, RunKind, RunState

_SQL = load("runs")
_log = structlog.get_logger(__name__)

CALL = 5.0
"""Seconds for one small step of the protocol."""

SWEEP_LIMIT = 100
"""Units that one sweep looks at; the next sweep sees to the rest."""

RING_LIMIT = 32
"""Batches that ring when they are made; every worker goes on to the next of a run by itself."""

OnEnd = Callable[[Tx, CorpusId, RunId], Awaitable[None]]
"""Called in the transaction that ends an index run short of completion, under the run's lock: mark, do not delete."""


@dataclass(frozen=True, slots=True)
class News:
    """What to spread once a transaction has committed."""

    rings: list[tuple[RunId, int]] = field(default_factory=list[tuple[RunId, int]])
    runs: set[RunId] = field(default_factory=set[RunId])

    def spread(self, herald: Herald) -> None:
        """Tell the herald."""
        for run_id in sorted(self.runs):
            herald.publish(run_id)
        for run_id, fence in self.rings[:RING_LIMIT]:
            herald.ring(run_id, fence)


class PostgresRuns:
    """A `RunStore` and a `UnitStore`. `owner` names this process and no other; a lease lasts `lease_seconds`."""

    def __init__(
        self,
        database: Database,
        herald: Herald,
        *,
        owner: str,
        lease_seconds: float = 15.0,
        max_crashes: int = 5,
        on_end: OnEnd | None = None,
    ) -> None:
        self._database = database
        self._herald = herald
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._max_crashes = max_crashes
        self._on_end = on_end

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
        """See `RunStore`."""
        if storable_json(payload) != payload:
            raise InvalidRequest("A request must hold no NUL and no lone surrogate.")
        run_id = RunId(secrets.token_hex(12))
        body = Queued(kind=kind.value).model_dump(mode="json")
        async with self._database.connection(Deadline.after(CALL)) as tx:
            row = await tx.fetchrow(_SQL["submit"], run_id, corpus, kind.value, payload, seconds, key, body, digest)
            if row is None:
                row = await tx.fetchrow(_SQL["by_key"], corpus, key)
                _check_same(row, kind, digest)
        if row is None:
            raise NotFound("There is no such corpus.")
        self._herald.publish(row["run_id"])
        self._herald.ring(row["run_id"], row["fence"])
        return _info(row)

    async def earlier(self, corpus: CorpusId, kind: RunKind, key: str, digest: bytes | None) -> RunInfo | None:
        """See `RunStore`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            row = await tx.fetchrow(_SQL["by_key"], corpus, key)
        _check_same(row, kind, digest)
        return None if row is None else _info(row)

    async def info(self, run_id: RunId) -> RunInfo:
        """See `RunStore`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            row = await tx.fetchrow(_SQL["info"], run_id)
        if row is None:
            raise NotFound(f"There is no run {run_id!r}.")
        return _info(row)

    async def info_of(self, tenant: str, run_id: RunId) -> RunInfo:
        """Return a run that people asked for. Raises NotFound, also where it is another tenant's."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            row = await tx.fetchrow(_SQL["info_of"], run_id, tenant)
        if row is None:
            raise NotFound(f"There is no run {run_id!r}.")
        return _info(row)

    async def open_runs(self, tenant: str, limit: int) -> int:
        """Return how many runs of a tenant have not ended; counted up to the limit."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            found: int = await tx.fetchval(_SQL["open_runs"], tenant, limit)
        return found

    async def list(self, corpus: CorpusId | None, limit: int) -> list[RunInfo]:
        """See `RunStore`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            return [_info(row) for row in await tx.fetch(_SQL["list"], corpus, limit)]

    async def cancel(self, run_id: RunId, reason: str) -> None:
        """See `RunStore`."""
        news = News()
        async with self._database.transaction(Deadline.after(CALL)) as tx:
            row = await tx.fetchrow(_SQL["lock_run"], run_id)
            if row is None or row["root_id"] != run_id:
                raise NotFound(f"There is no run {run_id!r}.")
            if RunState(row["state"]).terminal:
                return
            await tx.execute(_SQL["ask_to_stop"], run_id, storable(reason), RunState.CANCELLED.value)
            row = await tx.fetchrow(_SQL["lock_run"], run_id)
            if row["state"] == RunState.QUEUED:
                await self._end_root(tx, row, Verdict(state=RunState.CANCELLED), news)
            elif row["state"] == RunState.WAITING:
                await self._stop_batches(tx, row, news)
            await tx.execute(_SQL["signal_stop"], run_id)
        news.spread(self._herald)

    async def claim(self, run_id: RunId, fence: int, kinds: Collection[RunKind]) -> Lease | None:
        """See `UnitStore`."""
        return await self._taken("claim", run_id, fence, self._owner, self._lease_seconds, [k.value for k in kinds])

    async def next_unit(self, root_id: RunId | None, kinds: Collection[RunKind]) -> Lease | None:
        """See `UnitStore`."""
        return await self._taken("next_unit", root_id, self._owner, self._lease_seconds, [k.value for k in kinds])

    async def _taken(self, query: str, *args: Any) -> Lease | None:
        try:
            async with self._database.connection(Deadline.after(CALL)) as tx:
                row = await tx.fetchrow(_SQL[query], *args)
        except Duplicate:  # two index runs of one corpus at the same instant: the other builds, this one waits
            return None
        if row is None:
            return None
        if row["run_id"] == row["root_id"]:
            self._herald.publish(row["run_id"])
        return self._lease(row)

    async def beat(self, lease: Lease) -> bool:
        """See `UnitStore`."""
        async with self._database.connection(Deadline.after(lease.seconds / 3)) as tx:
            stop = await tx.fetchval(_SQL["beat"], lease.run_id, lease.fence, lease.owner, lease.seconds)
        if stop is None:
            raise FencedOut()
        return bool(stop)

    async def hand_back(self, lease: Lease, *, retry_after: float | None = None) -> None:
        """See `UnitStore`."""
        retry = int(retry_after is not None)
        async with self._database.connection(Deadline.after(CALL)) as tx:
            fence = await tx.fetchval(
                _SQL["hand_back"], lease.run_id, lease.fence, lease.owner, retry_after or 0.0, 1 - retry, retry
            )
        if fence is None:
            raise FencedOut()
        if not retry:
            self._herald.ring(lease.run_id, fence)

    @asynccontextmanager
    async def fenced(self, lease: Lease) -> AsyncGenerator[FencedTransaction, None]:
        """See `UnitStore`."""
        news = News()
        async with self._database.transaction(Deadline.never()) as tx:
            work = FencedTransaction(tx, lease)
            yield work
            await self._apply(tx, lease, work, news)
        news.spread(self._herald)

    def stops(self) -> AbstractAsyncContextManager[MemoryObjectReceiveStream[str]]:
        """See `UnitStore`."""
        return self._database.listening("sapwood_stop")

    async def sweep(self) -> int:
        """See `UnitStore`."""
        async with self._database.connection(Deadline.after(CALL)) as tx:
            rows = await tx.fetch(_SQL["overdue"], SWEEP_LIMIT)
        done = 0
        for row in rows:
            news = News()
            try:
                async with self._database.transaction(Deadline.after(CALL)) as tx:
                    done += await self._sweep_one(tx, row["run_id"], news)
            except Conflict as error:  # somebody was faster; the others still need us
                _log.warning("sweep.conflict", run=row["run_id"], error=str(error))
                continue
            news.spread(self._herald)
        return done

    async def _sweep_one(self, tx: Tx, run_id: RunId, news: News) -> bool:
        row = await tx.fetchrow(_SQL["lock_overdue"], run_id)
        if row is None:
            return False
        doom = row["doom"] or row["root_doom"]
        facts = Facts(
            RunState(row["state"]), row["lost"] is True, row["late"], row["cancel_requested"], doom, row["crash_count"]
        )
        verdict = judge(facts, self._max_crashes)
        if verdict.requeue:
            news.rings.append((run_id, await tx.fetchval(_SQL["requeue_lost"], run_id)))
        elif verdict.state is None:
            return False
        elif row["root_id"] != run_id:
            await tx.fetchrow(_SQL["end_unit"], run_id, verdict.state.value, verdict.error, verdict.crashes)
            await self._leave_root(tx, row["root_id"], verdict.state, verdict.error, [], news)
        elif facts.state is RunState.WAITING:
            await self._stop_batches(tx, await self._touch(tx, run_id, verdict.state), news)
        else:
            await self._end_root(tx, row, verdict, news)
        return True

    async def _apply(self, tx: Tx, lease: Lease, work: FencedTransaction, news: News) -> None:
        """Check ownership, and do to the unit, its run and its batches what the transaction asked for."""
        is_root = lease.run_id == lease.root_id
        ended = work.state if work.state.terminal else None
        words = last_words(work.words, ended, work.error, "") if is_root else work.words
        if is_root and ended:
            await self._ending(tx, lease.corpus_id, lease.run_id, lease.kind, ended)
        row = await tx.fetchrow(
            _SQL["guard"],
            *(lease.run_id, lease.fence, lease.owner, lease.step, work.step, work.state.value, work.error),
            *(work.generation, len(words) if is_root else 0, len(work.payloads), lease.seconds),
        )
        if row is None:
            raise FencedOut()
        if row["cancel_requested"] and not ended:
            raise RunCancelled()
        if work.payloads:
            made = await tx.fetch(_SQL["spawn"], lease.run_id, work.payloads, work.generation)
            news.rings.extend((unit["run_id"], unit["fence"]) for unit in made)
        if not is_root:
            await self._leave_root(tx, lease.root_id, ended, work.error, words, news)
            return
        words = last_words(work.words, ended, work.error, row["cancel_reason"])
        await self._say(tx, lease.root_id, row, words, news)
        if ended and lease.kind is RunKind.INDEX:
            await self._ring_waiting(tx, lease.corpus_id, news)

    async def _leave_root(
        self, tx: Tx, root_id: RunId, ended: RunState | None, error: str, words: Sequence[Wire], news: News
    ) -> None:
        """Do a batch's part under the lock of its run: say its events, count it off, and draw the conclusion."""
        doom = ended if ended is not RunState.COMPLETED else None
        root = await self._touch(tx, root_id, doom, len(words), int(ended is not None), error)
        await self._say(tx, root_id, root, words, news)
        if ended is None:
            if root["doom"]:
                raise RunCancelled()
        elif doom:
            await self._stop_batches(tx, root, news)
            if doom is not RunState.CANCELLED:
                await tx.execute(_SQL["signal_stop"], root_id)
        elif not root["pending"]:
            await self._go_on(tx, root, news)

    async def _touch(
        self, tx: Tx, root_id: RunId, doom: RunState | None, words: int = 0, ended: int = 0, error: str = ""
    ) -> Any:
        root = await tx.fetchrow(_SQL["touch_root"], root_id, words, ended, doom.value if doom else "", error)
        if root is None:
            raise FencedOut("The run of this batch has ended.")
        return root

    async def _stop_batches(self, tx: Tx, root: Any, news: News) -> None:
        stopped = await tx.fetchval(_SQL["stop_batches"], root["run_id"])
        root = await self._touch(tx, root["run_id"], None, 0, stopped)
        if not root["pending"]:
            await self._go_on(tx, root, news)

    async def _go_on(self, tx: Tx, root: Any, news: News) -> None:
        """Queue the next step of a run whose batches have all ended, or end it as it is doomed to."""
        if root["doom"]:
            await self._end_root(tx, root, Verdict(state=RunState(root["doom"]), error=root["error"]), news)
        else:
            news.rings.append((root["run_id"], await tx.fetchval(_SQL["requeue_root"], root["run_id"])))

    async def _end_root(self, tx: Tx, row: Any, verdict: Verdict, news: News) -> None:
        """End a run that nobody owns."""
        assert verdict.state is not None
        await self._ending(tx, row["corpus_id"], row["run_id"], RunKind(row["kind"]), verdict.state)
        ended = await tx.fetchrow(_SQL["end_unit"], row["run_id"], verdict.state.value, verdict.error, verdict.crashes)
        words = [farewell(verdict.state, verdict.error, row["cancel_reason"])]
        await self._say(tx, row["run_id"], ended, words, news)
        if ended["kind"] == RunKind.INDEX:
            await self._ring_waiting(tx, ended["corpus_id"], news)

    async def _ending(self, tx: Tx, corpus: CorpusId, run_id: RunId, kind: RunKind, state: RunState) -> None:
        if self._on_end is not None and kind is RunKind.INDEX and state is not RunState.COMPLETED:
            await self._on_end(tx, corpus, run_id)

    async def _say(self, tx: Tx, root_id: RunId, row: Any, words: Sequence[Wire], news: News) -> None:
        """Write the events whose numbers end with the row's `seq`."""
        if words:
            bodies = [storable_json(body.model_dump(mode="json")) for body in words]
            await tx.execute(_SQL["say"], root_id, row["corpus_id"], row["seq"] - len(words) + 1, bodies)
            news.runs.add(root_id)

    async def _ring_waiting(self, tx: Tx, corpus: CorpusId, news: News) -> None:
        waiting = await tx.fetchrow(_SQL["waiting_build"], corpus)
        if waiting is not None:
            news.rings.append((waiting["run_id"], waiting["fence"]))

    def _lease(self, row: Any) -> Lease:
        return Lease(
            run_id=RunId(row["run_id"]),
            root_id=RunId(row["root_id"]),
            corpus_id=CorpusId(row["corpus_id"]),
            kind=RunKind(row["kind"]),
            fence=row["fence"],
            owner=row["owner"],
            step=row["step"],
            payload=row["payload"],
            generation=row["generation"],
            deadline=row["seconds_left"],
            seconds=self._lease_seconds,
            attempts=row["retry_count"],
        )


def _check_same(row: Any, kind: RunKind, digest: bytes | None) -> None:
    """Check that a run that a key led to, if any, was asked for in the same words, as far as both tell. Raises InvalidRequest."""
    if row is None:
        return
    before = row["digest"]
    if row["kind"] != kind or (digest is not None and before is not None and bytes(before) != digest):
        raise InvalidRequest("This Idempotency-Key was used for another request.")


def _info(row: Any) -> RunInfo:
    finished = row["finished_at"]
    return RunInfo(
        run_id=RunId(row["run_id"]),
        corpus_id=CorpusId(row["corpus_id"]),
        kind=RunKind(row["kind"]),
        state=RunState(row["state"]),
        step=row["step"],
        generation=row["generation"],
        crash_count=row["crash_count"],
        shutdown_count=row["shutdown_count"],
        last_seq=row["seq"],
        error=row["error"],
        created_at=row["created_at"].isoformat(),
        finished_at=finished.isoformat() if finished is not None else None,
    )

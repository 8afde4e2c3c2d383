"""One unit of work under its lease: a heartbeat beside the handler, and every end accounted for."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio
import structlog

from pipeline.deadline import FLOOR, Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, FencedOut, RunCancelled, SapwoodError
from pipeline.ports import FencedTx, UnitStore
from pipeline.protocol import backoff, first_error, storable
from schemas.ids import RunId
from schemas.runs import Lease, RunKind, RunState

GRACE_SECONDS = 2.0
"""How long a unit that was stopped from outside may take to hand itself back."""

CLAIM_SECONDS = 6.0
"""Seconds for a claim; the store's own limit is less."""

DEADLINE_GRACE = 0.25
"""Seconds that a handler has after its deadline to save what it found."""

MAX_RETRIES = 4
"""Retryable failures of one unit before it fails for good."""

_log = structlog.get_logger(__name__)


class Ending(StrEnum):
    """How this worker's turn with a unit ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RETRIED = "retried"
    HANDED_BACK = "handed_back"
    FENCED_OUT = "fenced_out"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class Work:
    """A claimed unit in the hands of its handler. `lease` moves on with each transaction, `done` is set by the last."""

    lease: Lease
    deadline: Deadline
    _units: UnitStore
    done: bool = False
    stopped: Ending | None = None
    poked: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def fenced(self) -> AsyncGenerator[FencedTx, None]:
        """Open a transaction that commits with its checkpoint and its events, if the unit is still ours at its end.

        Raises:
            FencedOut: at the end; nothing was written.
            RunCancelled: at the end, if the unit is to stop and does not end here; nothing was written.
        """
        async with self._units.fenced(self.lease) as tx:
            yield tx
        outlook = tx.outlook()
        self.done = outlook is None
        self.lease = outlook or self.lease


Handler = Callable[[Work], Awaitable[None]]
"""Does a unit's work from its step on; it ends with a transaction that finishes the unit or spawns batches."""


class Runner:
    """Executes units. `on_ending` hears how each turn ended; it must not block or raise."""

    def __init__(
        self,
        units: UnitStore,
        handlers: Mapping[RunKind, Handler],
        on_ending: Callable[[RunKind, Ending], None] = lambda kind, ending: None,
    ) -> None:
        self._units = units
        self._handlers = handlers
        self._on_ending = on_ending
        # By turn, not by run: after a freeze a process can get a unit again while its old turn is still ending.
        self._works: dict[tuple[RunId, int], Work] = {}
        self.last_beat = 0.0

    async def work(self, run_id: RunId, fence: int) -> None:
        """Claim a unit and execute it, then go on with due units of the same run, and of any."""
        kinds = list(self._handlers)
        lease = await self.claim(run_id, fence, kinds)
        while lease is not None:
            await self.execute(lease)
            lease = await self.following(lease.root_id, kinds)

    async def claim(self, run_id: RunId, fence: int, kinds: Collection[RunKind]) -> Lease | None:
        """Claim this unit, or return None. Shielded: a claim must not be made and then forgotten."""
        with anyio.move_on_after(CLAIM_SECONDS, shield=True):
            return await self._units.claim(run_id, fence, kinds)
        return None

    async def following(self, root_id: RunId | None, kinds: Collection[RunKind]) -> Lease | None:
        """Claim the next due unit: of this run if it has one, else of any. Shielded likewise."""
        with anyio.move_on_after(CLAIM_SECONDS, shield=True):
            lease = await self._units.next_unit(root_id, kinds) if root_id is not None else None
            return lease or await self._units.next_unit(None, kinds)
        return None

    def poke(self, root_id: str) -> None:
        """Have the units of a run ask at once whether they are to stop."""
        for work in self._works.values():
            if work.lease.root_id == root_id:
                work.poked.set()

    async def execute(self, lease: Lease) -> None:
        """Run a claimed unit to its end, whatever that is; only a cancellation from outside is raised."""
        seconds = lease.deadline
        work = Work(lease, Deadline.never() if seconds is None else Deadline.after(seconds), self._units)
        turn = (lease.run_id, lease.fence)
        self._works[turn] = work
        try:
            ending = await self._attempt(work)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(GRACE_SECONDS, shield=True):
                await self._hand_back(work)
            raise
        finally:
            del self._works[turn]
        self._on_ending(lease.kind, ending)

    async def _attempt(self, work: Work) -> Ending:
        error = await self._handle(work)
        if work.done:
            return Ending.COMPLETED
        if work.stopped is Ending.FENCED_OUT or isinstance(error, FencedOut):
            return Ending.FENCED_OUT
        if work.stopped is not None:
            return await self._close(work, work.stopped, "")
        if isinstance(error, RunCancelled):
            return await self._close(work, Ending.CANCELLED, "")
        slow = isinstance(error, DeadlineExceeded)
        if slow and work.deadline.remaining() < FLOOR:
            return await self._close(work, Ending.EXPIRED, "")
        if slow:
            _log.warning("unit.slow_call", run=work.lease.run_id, places=_places(error))
        if (slow or getattr(error, "retryable", False)) and work.lease.attempts < MAX_RETRIES:
            return await self._close(work, Ending.RETRIED, "")
        return await self._close(work, Ending.FAILED, _explain(error))

    async def _handle(self, work: Work) -> BaseException | None:
        """Run the handler beside its heartbeat; return what it raised, and note in `work` what stopped it."""
        caught: BaseException | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._heart, work, group.cancel_scope)
            try:
                with anyio.CancelScope(deadline=work.deadline.at + DEADLINE_GRACE) as scope:
                    await self._handlers[work.lease.kind](work)
                if scope.cancelled_caught:
                    work.stopped = Ending.EXPIRED
            except Exception as error:
                caught = first_error(error)
            group.cancel_scope.cancel()
        return caught

    async def _heart(self, work: Work, scope: anyio.CancelScope) -> None:
        """Renew the lease at a third of it; stop the work at once when that is asked for or ownership is in doubt."""
        seconds = work.lease.seconds
        pause, until = seconds / 3, anyio.current_time() + seconds
        while work.stopped is None:
            with anyio.move_on_after(pause):
                await work.poked.wait()
            work.poked = anyio.Event()
            asked = anyio.current_time()
            if asked >= until:  # the loop was blocked, the process frozen, or the database away, for too long
                work.stopped = Ending.FENCED_OUT
                break
            try:
                work.stopped = Ending.CANCELLED if await self._units.beat(work.lease) else None
                pause, until, self.last_beat = seconds / 3, asked + seconds, asked
            except FencedOut:
                work.stopped = Ending.FENCED_OUT
            except (DependencyError, DeadlineExceeded):
                pause = seconds / 20
        scope.cancel()

    async def _close(self, work: Work, ending: Ending, error: str) -> Ending:
        """End the unit, or put it back for a retry; while the database is away, as long as the lease may last."""
        with anyio.move_on_after(work.lease.seconds):
            while True:
                try:
                    await self._settle(work, ending, error)
                    return ending
                except FencedOut:
                    return Ending.FENCED_OUT
                except SapwoodError as trouble:
                    _log.warning("unit.not_closed", run=work.lease.run_id, ending=ending.value, error=str(trouble))
                    if not isinstance(trouble, DependencyError | DeadlineExceeded):
                        break
                    await anyio.sleep(work.lease.seconds / 20)
        return Ending.ABANDONED

    async def _settle(self, work: Work, ending: Ending, error: str) -> None:
        if ending is Ending.RETRIED:
            await self._units.hand_back(work.lease, retry_after=backoff(work.lease.attempts))
            return
        async with work.fenced() as tx:
            tx.finish(RunState(ending.value), error)

    async def _hand_back(self, work: Work) -> None:
        ending = Ending.HANDED_BACK
        try:
            if not work.done:
                await self._units.hand_back(work.lease)
        except (SapwoodError, OSError) as error:  # the sweeper will find it
            ending = Ending.ABANDONED
            _log.warning("unit.not_handed_back", run=work.lease.run_id, error=str(error))
        self._on_ending(work.lease.kind, ending)


def _explain(error: BaseException | None) -> str:
    """Return `Code: message` for the row and the event. What is not ours may hold anything, so only the log has it."""
    if error is None:
        return "RunFailed: The handler left the unit unfinished."
    if isinstance(error, DeadlineExceeded):  # not the run's own one
        return "RunFailed: A call took longer than it may, in every try: the database, or a service that is asked, is too busy."
    if isinstance(error, SapwoodError):
        return storable(f"{type(error).__name__}: {error}")
    _log.error("unit.failed", error=repr(error), places=_places(error))
    return f"{type(error).__name__}: An unexpected error; the worker's log has the details."


def _places(error: BaseException | None) -> list[str]:
    """Return where it came through; no source lines and no locals: they are read from disk, on the loop, and may hold secrets."""
    frames = traceback.walk_tb(error.__traceback__) if error else ()
    return [f"{frame.f_code.co_filename}:{line}" for frame, line in frames]

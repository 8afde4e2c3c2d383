"""The worker process: rings and looks for due units, runs them in bounded lanes, sweeps, relays, and leaves in order.

Everything here may fail and come back: a worker outlives the servers it talks to, and any worker can do any part.
"""

from __future__ import annotations

import gc
import math
import random
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import structlog
from anyio.abc import TaskGroup
from prometheus_client import CollectorRegistry, Counter, Gauge

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError
from pipeline.events import relay_rest
from pipeline.ingest.child import YOUNG
from pipeline.ports import Doorbell, EventStream, Outbox, RunStore, UnitStore
from pipeline.runs import Ending, Handler, Runner
from schemas.ids import RunId
from schemas.query import Wire
from schemas.runs import Lease, RunInfo, RunKind
from worker import tracing
from worker.cancellation import bridged
from worker.metrics import Metrics

ROUND_SECONDS = (0.3, 0.5)
"""Bounds of the pause between two rounds of sweeping or looking; random, so that workers do not march in step."""

INLINE_POLL_SECONDS = 0.05
"""Pause between two looks of a worker in this process: only other workers, a retry or a wait for another run need it."""

_TROUBLE = (DependencyError, DeadlineExceeded)
_log = structlog.get_logger(__name__)


class Vitals:
    """What a probe and a scraper may ask of this worker. Times are on the loop's monotonic clock."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.loop_lag = 0.0
        self.last_round = 0.0
        self._endings = Counter(
            "sapwood_units", "Turns with units, by kind and ending.", ["kind", "ending"], registry=self.registry
        )
        self._swept = Counter("sapwood_swept", "Units that had no live owner.", registry=self.registry)
        self._late = Counter("sapwood_events_relayed_late", "Events that no herald published.", registry=self.registry)
        self._lag = Gauge("sapwood_loop_lag_seconds", "Lag of the event loop.", registry=self.registry)
        self._lag.set_function(lambda: self.loop_lag)
        age = Gauge("sapwood_round_age_seconds", "Age of the sweeper's last round; NaN before.", registry=self.registry)
        age.set_function(self._round_age)

    def ended(self, kind: RunKind, ending: Ending) -> None:
        """Count a turn."""
        self._endings.labels(kind.value, ending.value).inc()
        tracing.ended(ending.value)

    def heard(self, body: Wire) -> None:
        """Count and draw what happens to a question: its legs, and its result."""
        self.metrics.heard(body)
        tracing.heard(body)

    def swept(self, units: int, events: int) -> None:
        """Count a round of the sweeper."""
        self.last_round = anyio.current_time()
        self._swept.inc(units)
        self._late.inc(events)

    def _round_age(self) -> float:
        """Say it to a scraper, which asks from another thread: the loop's clock is the monotonic one."""
        return time.monotonic() - self.last_round if self.last_round else math.nan

    def alive(self, seconds: float = 30.0) -> bool:
        """Whether the loop turns and the sweeper made a round within this time."""
        return self.loop_lag < seconds and anyio.current_time() - self.last_round < seconds


@dataclass(slots=True)
class Lane:
    """A bound on units at a time, for some kinds of them: so that index work never keeps a query waiting."""

    kinds: tuple[RunKind, ...]
    slots: int
    busy: int = 0


def lanes(index_slots: int = 2, query_slots: int = 16) -> list[Lane]:
    """Return the usual two lanes."""
    return [Lane((RunKind.INDEX, RunKind.BATCH), index_slots), Lane((RunKind.QUERY,), query_slots)]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a worker is made of."""

    runs: RunStore
    units: UnitStore
    outbox: Outbox
    stream: EventStream
    handlers: Mapping[RunKind, Handler]
    vitals: Vitals = field(default_factory=Vitals)


class Workshop:
    """Claims units while a lane has room, and runs each in the task group."""

    def __init__(self, runner: Runner, lanes: Sequence[Lane], group: TaskGroup, metrics: Metrics) -> None:
        self._runner = runner
        self._metrics = metrics
        self._lanes = lanes
        self._group = group
        self._claiming = anyio.Lock()  # so that two claims do not both see the last slot
        self._closed = False
        self.room = anyio.Event()  # a unit ended and its lane has a free slot

    @property
    def busy(self) -> bool:
        """Whether a unit is at work here: then the next one follows by itself."""
        return any(lane.busy for lane in self._lanes)

    def close(self) -> None:
        """Claim nothing more."""
        self._closed = True

    async def door(self, run_id: RunId, fence: int) -> None:
        """Answer a ring. With no room the unit stays queued, for whoever looks next."""
        async with self._claiming:
            kinds = self._open_kinds()
            if kinds:
                self._start(await self._runner.claim(run_id, fence, kinds))

    async def look(self, root_id: RunId | None = None) -> None:
        """Claim due units, of this run first, until there is none or no room."""
        async with self._claiming:
            started = True
            while started and (kinds := self._open_kinds()):
                started = self._start(await self._runner.following(root_id, kinds))

    def _open_kinds(self) -> list[RunKind]:
        if self._closed:
            return []
        return [kind for lane in self._lanes if lane.busy < lane.slots for kind in lane.kinds]

    def _start(self, lease: Lease | None) -> bool:
        if lease is None:
            return False
        lane = next(lane for lane in self._lanes if lease.kind in lane.kinds)
        lane.busy += 1
        self._group.start_soon(self._run, lease, lane)
        return True

    async def _run(self, lease: Lease | None, lane: Lane) -> None:
        try:
            while lease is not None:
                deadline = Deadline.never() if lease.deadline is None else Deadline.after(lease.deadline)
                with tracing.unit(lease), self._metrics.by(deadline, lease.kind):
                    await self._runner.execute(lease)
                lease = None if self._closed else await self._runner.following(lease.root_id, lane.kinds)
                if lane.busy < lane.slots:  # the unit may have made several
                    self.room.set()
        except _TROUBLE as error:
            _log.warning("worker.lane_idle", error=str(error))
        finally:
            lane.busy -= 1
            self.room.set()


async def run_worker(parts: Parts, doorbell: Doorbell, room: Sequence[Lane]) -> None:
    """Work until SIGTERM or SIGINT; then claim nothing more, hand back what is not done, and return.

    A handler has the runner's grace for its cleanup; what it holds after that, the sweeper of another worker takes.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with _workshop(parts, room) as (shop, group):
            group.start_soon(_always, "doorbell", lambda: doorbell.answer(_natively(shop.door)))
            group.start_soon(_always, "look", shop.look)
            async for number in signals:
                _log.info("worker.stopping", signal=number.name)
                break
            shop.close()
            group.cancel_scope.cancel()


async def run_inline(parts: Parts, root_id: RunId, room: Sequence[Lane]) -> RunInfo:
    """Work in this process, without a queue, until this run has ended; return it.

    Other workers may take part. Units of other runs are taken up when this one has none due: it may wait for them.
    """
    async with _workshop(parts, room) as (shop, group):
        while not (info := await parts.runs.info(root_id)).state.terminal:
            shop.room = anyio.Event()
            await shop.look(root_id)
            with anyio.move_on_after(INLINE_POLL_SECONDS * (1 + 9 * shop.busy)):
                await shop.room.wait()
        group.cancel_scope.cancel()
    return info


@asynccontextmanager
async def _workshop(parts: Parts, room: Sequence[Lane]) -> AsyncGenerator[tuple[Workshop, TaskGroup], None]:
    """Run the parts that every worker has beside the block."""
    runner = Runner(parts.units, parts.handlers, parts.vitals.ended)
    with collecting_seldom():
        async with anyio.create_task_group() as group:
            group.start_soon(_always, "sweep", partial(_sweep, parts))
            group.start_soon(_always, "stops", partial(_hear_stops, parts.units, runner))
            group.start_soon(feel_lag, parts.vitals)
            yield Workshop(runner, room, group, parts.vitals.metrics), group


@contextmanager
def collecting_seldom() -> Generator[None, None, None]:
    """Have the garbage collector look for cycles seldom, and never in what is there already: a batch is ten thousand objects
    that live until they are written. Looking through them and all modules again and again took a third of a worker's time, in
    pauses of 0.1 s.
    """
    before = gc.get_threshold()
    if before == YOUNG:  # somebody around us did it
        yield
        return
    freezing = not gc.get_freeze_count()  # else what is there was frozen already, and is not ours to thaw
    if freezing:
        gc.freeze()
    gc.set_threshold(*YOUNG)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if freezing:
            gc.unfreeze()


def _natively(door: Callable[[RunId, int], Awaitable[None]]) -> Callable[[RunId, int], Awaitable[None]]:
    async def answer(run_id: RunId, fence: int) -> None:
        try:
            await bridged(partial(door, run_id, fence))
        except _TROUBLE as error:  # the unit is still queued, and will be found
            _log.warning("worker.door", error=str(error))

    return answer


async def _always(name: str, part: Callable[[], Awaitable[None]]) -> None:
    """Do a part over and over, with a random pause; trouble with a server is logged and passes."""
    while True:
        try:
            await part()
        except _TROUBLE as error:
            _log.warning(f"worker.{name}", error=str(error))
        await anyio.sleep(random.uniform(*ROUND_SECONDS))


async def _sweep(parts: Parts) -> None:
    units = await parts.units.sweep()
    parts.vitals.swept(units, 0)
    parts.vitals.swept(0, await relay_rest(parts.outbox, parts.stream))


async def _hear_stops(units: UnitStore, runner: Runner) -> None:
    async with units.stops() as stops:
        async for root_id in stops:
            runner.poke(root_id)


async def feel_lag(vitals: Vitals, interval: float = 0.25) -> None:
    """Measure the lag of the event loop, until cancelled."""
    while True:
        due = anyio.current_time() + interval
        await anyio.sleep(interval)
        vitals.loop_lag = max(0.0, anyio.current_time() - due)

"""Delivering webhooks beside other work: a look at the outbox twice a second, and bounded attempts side by side."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import anyio
import structlog
from anyio.abc import TaskGroup

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError
from pipeline.webhooks import Deliveries, Due, Outcome, Pace, Places, Sender, attempt
from worker.maintenance import every
from worker.metrics import Metrics

ROUND_SECONDS = (0.3, 0.5)
"""Bounds of the pause between two looks while nothing ends; random, so that workers do not march in step."""

CALL = 4.0
"""Seconds for a look at the outbox or a note in it."""

FORGET_SECONDS = 60.0

_TROUBLE = (DependencyError, DeadlineExceeded)
_log = structlog.get_logger(__name__)


class Courier:
    """Makes the deliveries that are due. `pace`, `places`, `now` (UNIX time) and `chance` (from [0, 1)) are there for tests."""

    def __init__(
        self,
        deliveries: Deliveries,
        sender: Sender,
        count: Callable[[Outcome], None],
        *,
        pace: Pace | None = None,
        places: Places | None = None,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._deliveries, self._sender, self._count = deliveries, sender, count
        self._pace, self._now, self._chance = pace or Pace(), now, chance
        self._places = places or Places()
        self._busy: Counter[str] = Counter()
        self._room = anyio.Event()  # an attempt ended, so that another may begin

    async def work(self) -> None:
        """Deliver, until cancelled. An attempt under way is left then, and repeated once its lease has ended."""
        async with anyio.create_task_group() as group:
            while True:
                self._room = anyio.Event()
                try:
                    await self._look(group)
                except _TROUBLE as error:
                    _log.warning("webhooks.look", error=str(error))
                    await anyio.sleep(random.uniform(*ROUND_SECONDS))
                with anyio.move_on_after(random.uniform(*ROUND_SECONDS)):
                    await self._room.wait()

    async def _look(self, group: TaskGroup) -> None:
        if self._busy.total() < self._places.at_once:
            for due in await self._deliveries.claim(self._busy, self._places, Deadline.after(CALL)):
                self._busy[due.webhook_id] += 1
                group.start_soon(self._deliver, due)

    async def _deliver(self, due: Due) -> None:
        try:
            verdict = await attempt(due, self._sender, self._pace, self._now(), self._chance())
            self._count(verdict.outcome)
            if verdict.outcome in (Outcome.FAILED, Outcome.GONE):
                _log.warning(f"webhook.{verdict.outcome}", webhook=due.webhook_id, message=due.message_id)
            await self._deliveries.settle(due, verdict, Deadline.after(CALL))
        except _TROUBLE as error:  # the lease ends by itself, and the receiver knows the id
            _log.warning("webhooks.settle", webhook=due.webhook_id, message=due.message_id, error=str(error))
        finally:
            self._busy[due.webhook_id] -= 1
            self._busy += Counter()  # forgets those that are at zero
            self._room.set()


async def deliver_webhooks(deliveries: Deliveries, sender: Sender, metrics: Metrics) -> None:
    """Deliver, and forget what was delivered days ago, until cancelled."""
    async with anyio.create_task_group() as group:
        group.start_soon(Courier(deliveries, sender, metrics.told).work)
        group.start_soon(every, FORGET_SECONDS, "webhooks", lambda: deliveries.forget(Deadline.after(CALL)))

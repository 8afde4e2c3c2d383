"""A worker process on a toy handler: ten fenced steps with one effect each. `unfenced` is the negative control."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from pipeline.adapters.arq_doorbell import open_doorbell
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_pool import open_pool
from pipeline.adapters.postgres_runs import News, PostgresRuns
from pipeline.adapters.redis_streams import open_streams
from pipeline.deadline import Deadline
from pipeline.errors import FencedOut, SapwoodError
from pipeline.events import open_herald
from pipeline.fenced import FencedTransaction
from pipeline.runs import Runner, Work
from schemas.events import Progress, Unchanged
from schemas.runs import Lease, RunKind, RunState
from worker import process
from worker.process import Parts, lanes, run_worker

STEPS = 10
STEP_SECONDS = 0.05


async def ten_steps(work: Work) -> None:
    """Do what is left of the steps."""
    while work.lease.step < work.lease.payload.get("steps", STEPS):
        step = work.lease.step
        await anyio.sleep(STEP_SECONDS)
        async with work.fenced() as tx:
            await tx.execute("insert into effect values ($1, $2, $3)", work.lease.run_id, step, work.lease.owner)
            tx.event(Progress(stage="toy", done=step + 1, total=STEPS))
            tx.advance(step + 1)
    async with work.fenced() as tx:
        tx.event(Unchanged(generation=1, outcomes={}))
        tx.finish(RunState.COMPLETED)


class UnfencedRuns(PostgresRuns):
    """Commits the effect whether or not the unit is still its own."""

    @asynccontextmanager
    async def fenced(self, lease: Lease) -> AsyncGenerator[FencedTransaction, None]:
        news = News()
        async with self._database.transaction(Deadline.never()) as tx:
            work = FencedTransaction(tx, lease)
            yield work
            with suppress(FencedOut):
                await self._apply(tx, lease, work, news)
        news.spread(self._herald)


class BlindRunner(Runner):
    """Renews its leases and never looks at the answer."""

    async def _heart(self, work: Work, scope: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(work.lease.seconds / 3)
            with suppress(SapwoodError):
                await self._units.beat(work.lease)


async def main(database: str, redis_url: str, owner: str, lease: float, fenced: bool) -> None:
    """Work until told to stop."""
    kind = PostgresRuns if fenced else UnfencedRuns
    async with (
        open_pool(database, 8) as pool,
        open_streams(redis_url) as stream,
        open_doorbell(redis_url) as doorbell,
        open_herald(log := PostgresEvents(pool), stream, doorbell) as herald,
    ):
        runs = kind(pool, herald, owner=owner, lease_seconds=lease, max_crashes=1000)
        if not fenced:
            process.Runner = BlindRunner  # type: ignore[misc]
        await run_worker(Parts(runs, runs, log, stream, {RunKind.QUERY: ten_steps}), doorbell, lanes(2, 4))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:4], float(sys.argv[4]), sys.argv[5] == "fenced")

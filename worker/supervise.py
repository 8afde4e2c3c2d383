"""`sapwood worker`: the worker and its maintenance, side by side, until a signal."""

from __future__ import annotations

import anyio

from worker import log
from worker.compose import open_services
from worker.maintenance import collect_garbage, keep_pins, look_after
from worker.process import lanes, run_worker
from worker.settings import WorkerSettings


async def supervise(settings: WorkerSettings) -> int:
    """Work until SIGTERM or SIGINT; return 0 once everything under way is handed back."""
    log.configure(settings.log_format, settings.log_level, settings.secrets)
    async with open_services(settings) as services, anyio.create_task_group() as group:
        group.start_soon(keep_pins, services.pins)
        group.start_soon(look_after, services.promotions, services.generations, services.snapshots, services.dense)
        group.start_soon(collect_garbage, services.collector, services.outside, services.events)
        await run_worker(services.parts(), services.doorbell, lanes(settings.index_jobs, settings.query_jobs))
        group.cancel_scope.cancel()
    return 0

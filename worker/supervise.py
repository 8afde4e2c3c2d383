"""`sapwood worker`: the worker, its maintenance and its pulse, side by side, until a signal."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from worker import health, log
from worker.compose import open_services
from worker.health import BEAT_SECONDS, Pulse
from worker.maintenance import collect_garbage, keep_pins, look_after, prune_repositories
from worker.metrics import show
from worker.process import Vitals, lanes, run_worker
from worker.settings import WorkerSettings
from worker.webhooks import deliver_webhooks

_log = structlog.get_logger(__name__)


async def supervise(settings: WorkerSettings) -> int:
    """Work until SIGTERM or SIGINT; return 0 once everything under way is handed back."""
    log.configure(settings.log_format, settings.log_level, settings.secrets)
    log.tell_misspelt()
    async with open_services(settings) as services, anyio.create_task_group() as group:
        group.start_soon(keep_pulse, services.vitals, settings.pulse_file)
        group.start_soon(keep_pins, services.pins)
        group.start_soon(look_after, services.promotions, services.generations, services.snapshots, services.dense)
        metrics = services.vitals.metrics
        group.start_soon(collect_garbage, services.collector, services.outside, services.events, metrics)
        group.start_soon(prune_repositories, services.repositories)
        group.start_soon(deliver_webhooks, services.webhooks.deliveries, services.webhooks.sender, metrics)
        if settings.metrics_port:
            await group.start(show, services.watched, settings.metrics_host, settings.metrics_port)
        _log.info("worker.started", index_jobs=settings.index_jobs, query_jobs=settings.query_jobs)
        await run_worker(services.parts(), services.doorbell, lanes(settings.index_jobs, settings.query_jobs))
        group.cancel_scope.cancel()
    return 0


async def keep_pulse(vitals: Vitals, file: Path) -> None:
    """Say every second in this file that the loop turns; remove the file at the end, unless the process is killed.

    A file that cannot be written is a warning, once: the work goes on, and a probe finds no pulse.
    """
    told, limiter = False, anyio.CapacityLimiter(1)  # its own: other work may hold all the usual threads
    try:
        while True:
            pulse = Pulse(anyio.current_time(), vitals.loop_lag, vitals.last_round)
            try:
                await anyio.to_thread.run_sync(health.write, file, pulse, limiter=limiter)
            except OSError as error:
                if not told:
                    _log.warning("worker.pulse", setting="SAPWOOD_HEALTH_FILE", error=error.strerror)
                told = True
            await anyio.sleep(BEAT_SECONDS)
    finally:
        with anyio.move_on_after(1.0, shield=True), suppress(OSError):
            await anyio.to_thread.run_sync(partial(file.unlink, missing_ok=True))

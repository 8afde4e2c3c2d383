"""The doorbell on arq. Only ids travel, as JSON; retries, results, aborts and cron of arq are not used.

A job is `ring(run, fence)` with the id `<run>:<fence>`, so a second ring for the same turn is no second job. It ends
as soon as the unit is claimed or refused: arq never holds work, so its timeouts, its limit of jobs it looks at and its
slow recovery of dead workers do not matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import anyio
import orjson
from arq.connections import ArqRedis
from arq.worker import Worker, func
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from pipeline.errors import StoreUnavailable
from schemas.ids import RunId

_JOB = "ring"
_JOB_SECONDS = 10
_EXPIRES_MS = 3_600_000
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 1.0

Door = Callable[[RunId, int], Awaitable[None]]


class ArqDoorbell:
    """A `Doorbell`."""

    def __init__(self, client: ArqRedis, queue: str) -> None:
        self._client = client
        self._queue = queue

    async def ring(self, run_id: RunId, fence: int) -> None:
        """See `Doorbell`."""
        with _translated():
            await self._client.enqueue_job(_JOB, run_id, fence, _job_id=f"{run_id}:{fence}", _queue_name=self._queue)

    async def answer(self, door: Door) -> None:
        """See `Doorbell`."""

        async def ring(_: dict[Any, Any], run_id: str, fence: int) -> None:
            await door(RunId(run_id), fence)

        # One dict, no settings class: arq ignores what such a class inherits.
        options: dict[str, Any] = {
            "functions": [func(cast("Any", ring), name=_JOB, keep_result=0, timeout=_JOB_SECONDS, max_tries=1)],
            "queue_name": self._queue,
            "redis_pool": self._client,
            "handle_signals": False,
            "max_jobs": 64,
            "job_timeout": _JOB_SECONDS,
            "keep_result": 0,
            "poll_delay": _POLL_SECONDS,
            "max_tries": 1,
            "retry_jobs": False,
            "allow_abort_jobs": False,
            "log_results": False,
            "expires_extra_ms": _EXPIRES_MS,
            "job_serializer": orjson.dumps,
            "job_deserializer": orjson.loads,
        }
        # arq reports every ring, and one that our own shutdown cut short as an error; the unit's row tells the story.
        logging.getLogger("arq.worker").setLevel(logging.CRITICAL)
        worker = Worker(**options)
        try:
            with _translated():
                await worker.main()
        finally:
            await _settle(worker)


async def _settle(worker: Worker) -> None:
    """End the jobs that arq still runs: they are natively cancelled, and see to their own bounded cleanup."""
    tasks = list(worker.tasks.values())
    for task in tasks:
        task.cancel()
    with anyio.move_on_after(_GRACE_SECONDS, shield=True):
        if tasks:
            await asyncio.wait(tasks)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # looked at, so that the loop does not report it: the unit's row tells the story


@contextmanager
def _translated() -> Generator[None, None, None]:
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailable("The queue cannot be reached.") from error


@asynccontextmanager
async def open_doorbell(url: str, *, queue: str = "sapwood:units") -> AsyncGenerator[ArqDoorbell, None]:
    """Open the doorbell; nothing is connected before it is used."""
    pool = cast("Any", BlockingConnectionPool).from_url(
        url,
        max_connections=96,
        timeout=2.0,
        socket_timeout=2.0,
        socket_connect_timeout=1.0,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        retry_on_error=[],
        health_check_interval=0,
        protocol=2,
        encoding="utf8",
    )
    client = ArqRedis(
        pool,
        job_serializer=orjson.dumps,
        job_deserializer=orjson.loads,
        default_queue_name=queue,
        expires_extra_ms=_EXPIRES_MS,
    )
    try:
        yield ArqDoorbell(client, queue)
    finally:
        with anyio.move_on_after(_GRACE_SECONDS, shield=True):
            await client.aclose(close_connection_pool=True)

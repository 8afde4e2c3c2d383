"""Whether this process lives, and whether it can serve."""

from __future__ import annotations

from typing import Any, cast

from fastapi import APIRouter, Request

from pipeline.deadline import Deadline
from pipeline.errors import StoreUnavailable
from schemas.query import Wire
from worker.compose import Services

router = APIRouter(tags=["health"])

MOST_LAG = 5.0
"""Seconds by which the event loop may lag in a process that can serve."""

CALL = 2.0

OPEN: dict[str, Any] = {"security": []}
"""Whoever keeps the process running has no key."""


class Health(Wire):
    """The state of the process; `loop_lag` is in seconds."""

    status: str
    loop_lag: float


@router.get("/livez", summary="Is the process alive?", openapi_extra=OPEN)
async def livez(request: Request) -> Health:
    """Answer, which is all that it takes: no server behind it is asked."""
    return Health(status="alive", loop_lag=cast("Services", request.app.state.services).vitals.loop_lag)


@router.get("/readyz", summary="Can the process serve?", openapi_extra=OPEN)
async def readyz(request: Request) -> Health:
    """Say whether database and queue answer and the event loop turns; 503 if not, or when the server is stopping."""
    services = cast("Services", request.app.state.services)
    if request.app.state.pace.closing.is_set():
        raise StoreUnavailable("The gateway is stopping.")
    async with services.pool.connection(Deadline.after(CALL)) as tx:
        await tx.fetchval("select 1")
    await services.stream.ping()
    if services.vitals.loop_lag > MOST_LAG:
        raise StoreUnavailable("The event loop of the gateway lags.")
    return Health(status="ready", loop_lag=services.vitals.loop_lag)

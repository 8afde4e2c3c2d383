"""What a tenant may use of one process of the gateway, checked before anything is enqueued or computed.

The rate and the numbers of direct queries and streams are counted in the memory of this process: with N processes a tenant
has N times as much. The open runs are counted in the database, for all processes; calls that arrive in the same instant may
pass that limit by as many.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from pipeline.errors import TooMany
from worker.app import Sapwood
from worker.gateway.access import Authenticator, Principal
from worker.settings import WorkerSettings

QUEUE_SECONDS = 5.0
"""When to come again while the share of the queue is used up."""

_ROUNDING = 1e-6
"""What sums of fractions may lack."""


@dataclass(slots=True)
class _Bucket:
    """Tokens of one tenant: one for a request, refilled evenly."""

    tokens: float
    at: float


class Limits:
    """The limits of all tenants in this process."""

    def __init__(self, settings: WorkerSettings, now: Callable[[], float] = anyio.current_time) -> None:
        self._rate = settings.gateway_requests_per_second
        self._burst = max(1.0, self._rate)
        self._most = {"direct queries": settings.gateway_direct_queries, "event streams": settings.gateway_streams}
        self._open_runs = settings.gateway_open_runs
        self._now = now
        self._buckets: dict[str, _Bucket] = {}
        self._held: Counter[tuple[str, str]] = Counter()

    def admit(self, tenant: str) -> None:
        """Count a request. Raises TooMany over the rate; a burst of one second's requests is let through."""
        now = self._now()
        bucket = self._buckets.setdefault(tenant, _Bucket(self._burst, now))
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.tokens < 1.0 - _ROUNDING:
            raise TooMany(f"More than {self._rate:g} requests a second.", math.ceil((1.0 - bucket.tokens) / self._rate))
        bucket.tokens -= 1.0

    @contextmanager
    def query(self, tenant: str) -> Generator[None, None, None]:
        """Hold a place for a direct query. Raises TooMany."""
        with self._hold(tenant, "direct queries"):
            yield

    @contextmanager
    def stream(self, tenant: str) -> Generator[None, None, None]:
        """Hold a place for a stream of events. Raises TooMany."""
        with self._hold(tenant, "event streams"):
            yield

    async def share(self, sapwood: Sapwood) -> None:
        """Check the tenant's share of the queue. Raises TooMany."""
        if await sapwood.open_runs(self._open_runs) >= self._open_runs:
            raise TooMany(f"{self._open_runs} runs of this tenant have not ended yet.", QUEUE_SECONDS)

    @contextmanager
    def _hold(self, tenant: str, what: str) -> Generator[None, None, None]:
        key = (tenant, what)
        if self._held[key] >= self._most[what]:
            raise TooMany(f"{self._most[what]} {what} of this tenant are under way already.")
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1


class RateLimited:
    """An `Authenticator` that counts the requests of whoever it knows, so that no route can forget to."""

    def __init__(self, authenticator: Authenticator, limits: Limits) -> None:
        self._authenticator = authenticator
        self._limits = limits

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`. Raises TooMany over the rate."""
        found = await self._authenticator.principal(authorization)
        self._limits.admit(found.tenant)
        return found

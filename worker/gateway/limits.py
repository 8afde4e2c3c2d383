"""What a tenant may use of one process of the gateway, checked before anything is enqueued or computed.

The rate and the numbers of direct queries and streams are counted in the memory of this process: with N processes a tenant
has N times as much. The open runs are counted in the database, for all processes; calls that arrive in the same instant may
pass that limit by as many. A tenant's own limits come with its key; where it has none, those of the settings hold.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from pipeline.errors import TooMany
from schemas.keys import TenantLimits
from worker.app import Sapwood
from worker.gateway.access import Authenticator, Principal
from worker.settings import WorkerSettings

QUEUE_SECONDS = 5.0
"""When to come again while the share of the queue is used up."""

FAILURES_BURST = 10.0
"""Seconds' worth of failed attempts that one address may make at once."""

ADDRESSES = 10_000
"""Addresses whose failed attempts are remembered; beyond, the one that failed longest ago is forgotten."""

_ROUNDING = 1e-6
"""What sums of fractions may lack."""


@dataclass(slots=True)
class _Bucket:
    """Tokens that are refilled evenly, up to a burst."""

    tokens: float
    at: float

    def refill(self, now: float, rate: float, burst: float) -> None:
        """Add what the time since the last refill gives."""
        self.tokens = min(burst, self.tokens + (now - self.at) * rate)
        self.at = now

    def wait(self, rate: float) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        return 0.0 if self.tokens >= 1.0 - _ROUNDING else (1.0 - self.tokens) / rate


class Limits:
    """The limits of all tenants in this process."""

    def __init__(self, settings: WorkerSettings, now: Callable[[], float] = anyio.current_time) -> None:
        self._default = TenantLimits(
            requests_per_second=settings.gateway_requests_per_second,
            direct_queries=settings.gateway_direct_queries,
            streams=settings.gateway_streams,
            open_runs=settings.gateway_open_runs,
        )
        self._own: dict[str, TenantLimits] = {}
        self._now = now
        self._buckets: dict[str, _Bucket] = {}
        self._held: Counter[tuple[str, str]] = Counter()

    def of(self, tenant: str) -> TenantLimits:
        """Return the limits that hold for a tenant: its own as its last request brought them, else the default."""
        return self._own.get(tenant, self._default)

    def admit(self, tenant: str, own: TenantLimits | None = None) -> None:
        """Count a request. Raises TooMany over the rate; a burst of one second's requests is let through."""
        if own is not None:
            self._own[tenant] = own.over(self._default)
        rate = self.of(tenant).requests_per_second or 1.0
        burst, now = max(1.0, rate), self._now()
        bucket = self._buckets.setdefault(tenant, _Bucket(burst, now))
        bucket.refill(now, rate, burst)
        if wait := bucket.wait(rate):
            raise TooMany(f"More than {rate:g} requests a second.", math.ceil(wait))
        bucket.tokens -= 1.0

    @contextmanager
    def query(self, tenant: str) -> Generator[None, None, None]:
        """Hold a place for a direct query. Raises TooMany."""
        with self._hold(tenant, "direct queries", self.of(tenant).direct_queries):
            yield

    @contextmanager
    def stream(self, tenant: str) -> Generator[None, None, None]:
        """Hold a place for a stream. Raises TooMany."""
        with self._hold(tenant, "event streams", self.of(tenant).streams):
            yield

    async def share(self, sapwood: Sapwood) -> None:
        """Check the tenant's share of the queue. Raises TooMany."""
        most = self.of(sapwood.tenant).open_runs or 0
        if await sapwood.open_runs(most) >= most:
            raise TooMany(f"This tenant may have {most} runs that have not ended, and has them.", QUEUE_SECONDS)

    @contextmanager
    def _hold(self, tenant: str, what: str, most: int | None) -> Generator[None, None, None]:
        key = (tenant, what)
        if self._held[key] >= (most or 0):
            raise TooMany(f"This tenant may have {most or 0} {what} at a time, and has them.")
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
        self._limits.admit(found.tenant, found.limits)
        return found


class Failures:
    """Attempts to get in that failed, by the address they came from: so many a second, and a burst of them.

    Only failures count. Others behind the same address are not shut out by them as long as their keys are known to this
    process; a key that it sees for the first time waits until the failures cease.
    """

    def __init__(self, rate: float, now: Callable[[], float] = anyio.current_time) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * FAILURES_BURST)
        self._now = now
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise TooMany while an address has used up what it may fail."""
        bucket = self._buckets.get(_network(address))
        if bucket is None:
            return
        bucket.refill(self._now(), self._rate, self._burst)
        if wait := bucket.wait(self._rate):
            raise TooMany("Too many attempts without a valid key from this address.", math.ceil(wait))

    def note(self, address: str) -> None:
        """Count a failure; those that were under way together may go a little below nothing."""
        network, now = _network(address), self._now()
        bucket = self._buckets.setdefault(network, _Bucket(self._burst, now))
        self._buckets.move_to_end(network)
        bucket.refill(now, self._rate, self._burst)
        bucket.tokens = max(-1.0, bucket.tokens - 1.0)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)


def _network(address: str) -> str:
    """Return an address, or of IPv6 the network that one subscriber has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped:
        return str(found)
    return str(ipaddress.ip_network((int(found), 64), strict=False))

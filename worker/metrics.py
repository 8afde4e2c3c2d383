"""Prometheus metrics of one process, and of the database as seen by it. Labels are from closed sets: no names, no ids.

Counters and histograms are this process's own; the gauges of `GAUGES` but for the snapshots say the same in every process,
so a panel takes their maximum. They are read when somebody scrapes, and kept for a moment.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import cast

import anyio
import anyio.to_thread
import structlog
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, SapwoodError
from pipeline.tenancy import apart
from pipeline.webhooks import Outcome
from schemas.events import LegDone
from schemas.query import QueryResult, Wire
from schemas.runs import RunKind

KEEP_SECONDS = 2.0
"""How long what the database said is shown again: several scrapers, one query."""

CALL = 2.0
"""Seconds that the database has to answer a scrape."""

WAIT = 3.0
"""Seconds that a scrape waits for the event loop; after that it shows what is known. More than CALL."""

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Of the page."""

_LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.04, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OVERSHOOT = (0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_PROCESS = CollectorRegistry()
ProcessCollector(registry=_PROCESS)

_KINDS = tuple(kind.value for kind in RunKind)
_log = structlog.get_logger(__name__)

Reading = tuple[str, str, str, float]
"""Gauge, kind of unit or empty, state or empty, value."""


@dataclass(frozen=True, slots=True)
class _About:
    text: str
    kinds: tuple[str, ...] = ("",)
    states: tuple[str, ...] = ("",)

    @property
    def labels(self) -> list[str]:
        return ["kind"] * (self.kinds != ("",)) + ["state"] * (self.states != ("",))


GAUGES = {
    "queue_units": _About(
        "Queued units: due; due later; or held up by another index run of their corpus. Up to 10,000 in all.",
        _KINDS,
        ("due", "later", "blocked"),
    ),
    "queue_oldest_due_seconds": _About("Age of the oldest unit that a worker could take now.", _KINDS),
    "active_units": _About(
        "Units at work, and index runs that wait for their batches.", _KINDS, ("running", "waiting")
    ),
    "leases_expired": _About("Running units whose worker has gone quiet; sweepers requeue them."),
    "cancels_pending": _About("Units that were asked to stop and have not yet."),
    "pins": _About("Pins of readers on generations, by all processes."),
    "webhooks_due": _About("Deliveries of webhooks that are due and that nobody makes yet. Up to 10,000."),
    "webhooks_oldest_due_seconds": _About("For how long the oldest of them has been due."),
    "garbage_lag_seconds": _About(
        "How long ago the oldest generation that is not yet reclaimed fell out of retention."
    ),
}

Read = Callable[[Deadline], Awaitable[Sequence[Reading]]]


class Metrics:
    """What this process counts. Its methods may be called from any thread, and never raise or wait."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        made = self.registry = registry or CollectorRegistry()
        self._results = Counter(
            "sapwood_query_results", "Answers, by where they came from.", ["source", "complete"], registry=made
        )
        self._query = Histogram(
            "sapwood_query_seconds", "Time from the pin to the answer.", ["source"], buckets=_LATENCY, registry=made
        )
        self._leg = Histogram(
            "sapwood_leg_seconds", "Time of a query's leg.", ["leg", "state"], buckets=_LATENCY, registry=made
        )
        self._late = Histogram(
            "sapwood_deadline_overshoot_seconds",
            "By how much work with a deadline ended after it; 0 if before.",
            ["kind"],
            buckets=_OVERSHOOT,
            registry=made,
        )
        self._tokens = Counter(
            "sapwood_model_tokens", "Tokens paid for by batches and answers.", ["direction"], registry=made
        )
        self._rows = Counter("sapwood_garbage_rows", "Rows and vectors collected.", ["store"], registry=made)
        self._graphs = Counter("sapwood_garbage_graphs", "Graphs collected in other stores.", registry=made)
        self._told = Counter(
            "sapwood_webhook_attempts", "Attempts to deliver to webhooks, by outcome.", ["outcome"], registry=made
        )
        self._generations = Counter("sapwood_garbage_generations", "Generations reclaimed.", registry=made)

    def heard(self, body: Wire) -> None:
        """Count a leg's report, or an answer."""
        match body:
            case LegDone(report=report):
                self._leg.labels(report.leg.value, report.state).observe(report.seconds)
            case QueryResult():
                source = "cache" if body.cached else "computed"
                self._results.labels(source, "yes" if body.complete else "no").inc()
                self._query.labels(source).observe(body.seconds)
            case _:
                pass

    @contextmanager
    def by(self, deadline: Deadline, kind: RunKind) -> Generator[None]:
        """Note by how much the block outlasts its deadline, however it ends."""
        try:
            yield
        finally:
            if deadline != Deadline.never():
                self._late.labels(kind.value).observe(max(0.0, anyio.current_time() - deadline.at))

    def paid(self, counts: Mapping[str, int]) -> None:
        """Count the tokens of a batch, by its `input_tokens` and `output_tokens`."""
        for direction in ("input", "output"):
            self._tokens.labels(direction).inc(counts.get(f"{direction}_tokens", 0))

    def told(self, outcome: Outcome) -> None:
        """Count an attempt to deliver to a webhook."""
        self._told.labels(outcome.value).inc()

    def collected(self, generations: int, rows: int) -> None:
        """Count what a pass took away in PostgreSQL."""
        self._generations.inc(generations)
        self._rows.labels("postgresql").inc(rows)

    def cleared(self, graphs: int, vectors: int) -> None:
        """Count what a pass took away in other stores."""
        self._graphs.inc(graphs)
        self._rows.labels("outside").inc(vectors)


class Gauges(Collector):
    """The gauges of the database and of the snapshots, as they were when last read."""

    def __init__(self, read: Read, snapshots: Callable[[], tuple[int, int, int]]) -> None:
        self._read = read
        self._snapshots = snapshots
        self._lock = anyio.Lock()
        self._until = 0.0
        self._known: dict[tuple[str, str, str], float] | None = None
        self._held = (0, 0, 0)

    async def refresh(self) -> None:
        """Read everything again, unless that was just done. Trouble with the database is a gauge, not an error."""
        self._held = self._snapshots()
        async with self._lock:
            if anyio.current_time() < self._until:
                return
            try:
                with apart():  # whoever asks, all see the same
                    readings = await self._read(Deadline.after(CALL))
                self._known = {(gauge, kind, state): value for gauge, kind, state, value in readings}
            except SapwoodError as error:
                self._known = None
                _log.warning("metrics.database", error=str(error))
            self._until = anyio.current_time() + KEEP_SECONDS

    def describe(self) -> Iterable[Metric]:
        """Name the gauges; none is read for it."""
        return self._families({}, (0, 0, 0))

    def collect(self) -> Iterable[Metric]:
        """Show what is known; while the database is away its gauges are missing rather than old."""
        known = self._known
        yield GaugeMetricFamily(
            "sapwood_database_up", "Whether the database answers scrapes.", float(known is not None)
        )
        yield from self._families(known, self._held)

    def _families(
        self, known: Mapping[tuple[str, str, str], float] | None, held: tuple[int, int, int]
    ) -> Iterable[Metric]:
        count, size, loads = held
        yield GaugeMetricFamily("sapwood_snapshots", "Snapshots in memory.", count)
        yield GaugeMetricFamily("sapwood_snapshot_bytes", "Bytes of the snapshots in memory.", size)
        yield CounterMetricFamily("sapwood_snapshot_loads", "Snapshots that were loaded.", loads)
        for name, about in GAUGES.items() if known is not None else ():
            family = GaugeMetricFamily(f"sapwood_{name}", about.text, labels=about.labels)
            for kind in about.kinds:
                for state in about.states:
                    values = [kind] * (kind != "") + [state] * (state != "")
                    family.add_metric(values, (known or {}).get((name, kind, state), 0.0))
            yield family


@dataclass(frozen=True, slots=True)
class Watched:
    """All metrics of a process: what it counts, and what is read when somebody scrapes."""

    counted: Metrics
    gauges: Gauges

    def known(self) -> bytes:
        """Return the page as far as it is known. For a thread: the figures of the process are read from files."""
        return generate_latest(self.counted.registry) + generate_latest(_PROCESS)

    async def page(self) -> bytes:
        """Read what has to be read, and return the page: of type CONTENT_TYPE, for a gateway to show."""
        await self.gauges.refresh()
        return await anyio.to_thread.run_sync(self.known)


def watched(counted: Metrics, gauges: Gauges) -> Watched:
    """Register the gauges beside what is counted."""
    counted.registry.register(gauges)
    return Watched(counted, gauges)


@asynccontextmanager
async def serving(metrics: Watched, host: str, port: int) -> AsyncGenerator[int]:
    """Show the metrics at `http://host:port/metrics` for the block; yield the port, which for 0 is any free one.

    From threads: a scrape is answered, with what is known, also while the event loop is stuck.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    try:
        server = await anyio.to_thread.run_sync(_Server, (host, port), _Scrape)
    except (OSError, OverflowError) as error:
        raise ConfigurationError("SAPWOOD_METRICS_HOST and SAPWOOD_METRICS_PORT: cannot listen there.") from error
    async with BlockingPortal() as portal:

        def page() -> bytes:
            asked = portal.start_task_soon(metrics.gauges.refresh)
            try:
                asked.result(WAIT)
            except TimeoutError:
                asked.cancel()
            return metrics.known()

        server.page = page
        Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True).start()
        try:
            yield server.server_port
        finally:
            with anyio.move_on_after(1.0, shield=True):
                await anyio.to_thread.run_sync(server.shutdown, abandon_on_cancel=True)
            server.server_close()
            await portal.stop(cancel_remaining=True)


async def show(metrics: Watched, host: str, port: int, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
    """Show the metrics until cancelled; it has started once it listens. Raises as `serving` does."""
    async with serving(metrics, host, port):
        task_status.started()
        await anyio.sleep_forever()


class _Server(ThreadingHTTPServer):
    """Binds without asking for the name of the host, which can take seconds; scrapes do not outlive the process."""

    block_on_close = False
    page: Callable[[], bytes]

    def server_bind(self) -> None:
        """Bind, and note where."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Say that a scrape broke off, with the class of the error alone: it may be the client's or, at the end, ours."""
        _log.warning("metrics.scrape", error=type(sys.exception()).__name__)


class _Scrape(BaseHTTPRequestHandler):
    """Answers GET with the page, and logs nothing: who scrapes, and how often, is no news."""

    timeout = 10

    def do_GET(self) -> None:
        """Answer one scrape."""
        found = self.path.partition("?")[0] in ("/", "/metrics")
        body = cast("_Server", self.server).page() if found else b"The metrics are at /metrics.\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

"""Traces by the OpenTelemetry API alone: without an SDK in the process every span here costs some microseconds and no more.

A run carries the W3C `traceparent` of whoever asked for it in its payload, so one trace leads from the request through all
processes that work on it. Spans hold ids, kinds and counts; never a question, a text, a name or the message of an error.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from structlog.contextvars import bind_contextvars, reset_contextvars

from schemas.events import LegDone
from schemas.query import Wire
from schemas.runs import Lease, RunKind

_tracer = trace.get_tracer("sapwood")
_w3c = TraceContextTextMapPropagator()


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, str | int] | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
) -> Generator[trace.Span]:
    """Hold a span open for the block, below `parent` or the current one. An error leaves its class in it, no message."""
    with _tracer.start_as_current_span(
        name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
    ) as opened:
        try:
            yield opened
        except Exception as error:
            opened.set_status(StatusCode.ERROR, type(error).__name__)
            raise


@contextmanager
def enqueueing(kind: RunKind) -> Generator[str]:
    """Hold the span of a submission, and yield the `traceparent` for the payload: empty where nothing is traced."""
    with span("sapwood.enqueue", {"sapwood.kind": kind.value}, SpanKind.PRODUCER):
        carrier: dict[str, str] = {}
        _w3c.inject(carrier)
        yield carrier.get("traceparent", "")


@contextmanager
def unit(lease: Lease) -> Generator[None]:
    """Hold the span of one turn with a unit, below what its payload names; all logs meanwhile carry its ids."""
    sent = lease.payload.get("traceparent")
    parent = _w3c.extract({"traceparent": str(sent)}) if sent else None
    attributes: dict[str, str | int] = {
        "sapwood.run": lease.root_id,
        "sapwood.unit": lease.run_id,
        "sapwood.corpus": lease.corpus_id,
        "sapwood.fence": lease.fence,
    }
    with span(f"sapwood.{lease.kind.value}", attributes, SpanKind.CONSUMER, parent) as opened:
        ids: dict[str, str] = {"run": lease.root_id, "unit": lease.run_id}
        context = opened.get_span_context()
        if context.is_valid:
            ids["trace"] = trace.format_trace_id(context.trace_id)
        tokens = bind_contextvars(**ids)
        try:
            yield
        finally:
            reset_contextvars(**tokens)


@contextmanager
def step(name: str) -> Generator[None]:
    """Hold the span of one step of an index run."""
    with span(f"sapwood.step.{name}"):
        yield


def ended(ending: str) -> None:
    """Note in the current span how the turn ended."""
    opened = trace.get_current_span()
    opened.set_attribute("sapwood.ending", ending)
    if ending in ("failed", "abandoned"):
        opened.set_status(StatusCode.ERROR, ending)  # a handler's error ends here, in the row, and not as an exception


def heard(body: Wire) -> None:
    """Draw the span of a leg that has just ended, from its report."""
    if isinstance(body, LegDone):
        report, end = body.report, time.time_ns()
        attributes = {"sapwood.leg.state": report.state, "sapwood.leg.hits": report.hits}
        drawn = _tracer.start_span(
            f"sapwood.leg.{report.leg.value}", attributes=attributes, start_time=end - int(report.seconds * 1e9)
        )
        if report.state in ("failed", "missing"):
            drawn.set_status(StatusCode.ERROR, report.state)
        drawn.end(end)

"""One trace from the request through all that works on it; nothing in it but ids, kinds and counts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from pipeline.errors import RunFailed
from schemas.events import LegDone, Pinned
from schemas.ids import CorpusId, RunId
from schemas.query import Leg, LegReport
from schemas.runs import Lease, RunKind
from worker import log, tracing


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Collect the spans, as a process with an SDK would."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    written = io.StringIO()
    log.configure("json", "info", (), written)
    yield written
    structlog.reset_defaults()


def lease(kind: RunKind, traceparent: str, unit: str = "r") -> Lease:
    return Lease(RunId(unit), RunId("r"), CorpusId(1), kind, 1, "w", 0, {"traceparent": traceparent})


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


async def test_one_trace_leads_from_the_request_through_batches_to_promotion(spans: InMemorySpanExporter) -> None:
    """Each turn in a task of its own, as in other processes: only the payload connects them."""
    with tracing.enqueueing(RunKind.INDEX) as traceparent:
        pass

    async def turn(kind: RunKind, unit: str, *steps: str) -> None:
        with tracing.unit(lease(kind, traceparent, unit)):
            for step in steps:
                with tracing.step(step):
                    await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(turn, RunKind.INDEX, "r", "plan")
        group.start_soon(turn, RunKind.BATCH, "r.00001")
        group.start_soon(turn, RunKind.INDEX, "r", "derive", "cluster", "promote")
    found = spans.get_finished_spans()
    assert [span.name for span in found].count("sapwood.index") == 2
    assert len({span.context.trace_id for span in found if span.context}) == 1
    enqueued, promoted = named(spans)["sapwood.enqueue"], named(spans)["sapwood.step.promote"]
    turns = [span for span in found if span.name in ("sapwood.index", "sapwood.batch")]
    assert enqueued.context and {span.parent.span_id for span in turns if span.parent} == {enqueued.context.span_id}
    assert promoted.parent and promoted.parent.span_id in {span.context.span_id for span in turns if span.context}


async def test_a_leg_is_drawn_with_the_time_that_it_took(spans: InMemorySpanExporter) -> None:
    with tracing.span("sapwood.ask"):
        tracing.heard(Pinned(generation=1))
        tracing.heard(LegDone(report=LegReport(leg=Leg.DENSE, state="completed", hits=3, seconds=0.25)))
        tracing.heard(LegDone(report=LegReport(leg=Leg.GRAPH, state="failed", seconds=0.5, error="secret")))
    dense, graph, ask = (named(spans)[name] for name in ("sapwood.leg.dense", "sapwood.leg.graph", "sapwood.ask"))
    assert dense.start_time and dense.end_time and dense.end_time - dense.start_time == 250_000_000
    assert dense.parent and ask.context and dense.parent.span_id == ask.context.span_id
    assert dict(dense.attributes or {}) == {"sapwood.leg.state": "completed", "sapwood.leg.hits": 3}
    assert graph.status.status_code is StatusCode.ERROR
    assert "secret" not in graph.to_json()


async def test_an_error_leaves_its_class_and_no_message(spans: InMemorySpanExporter) -> None:
    with pytest.raises(RunFailed), tracing.unit(lease(RunKind.QUERY, "")):
        raise RunFailed("the secret")
    [span] = spans.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "RunFailed")
    assert "secret" not in span.to_json()


async def test_a_cancellation_is_no_error(spans: InMemorySpanExporter) -> None:
    with anyio.move_on_after(0.01), tracing.unit(lease(RunKind.QUERY, "")):
        await anyio.sleep(600)
    [span] = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.usefixtures("spans")
async def test_logs_within_a_turn_carry_its_ids(stream: io.StringIO) -> None:
    with tracing.enqueueing(RunKind.INDEX) as traceparent:
        pass
    with tracing.unit(lease(RunKind.BATCH, traceparent, "r.00001")):
        log.get("within").info("working")
    log.get("after").info("idle")
    within, after = map(json.loads, stream.getvalue().splitlines())
    assert (within["run"], within["unit"], within["trace"]) == ("r", "r.00001", traceparent.split("-")[1])
    assert not {"run", "unit", "trace"} & after.keys()


async def test_without_an_sdk_nothing_is_traced_and_logs_still_name_the_run(stream: io.StringIO) -> None:
    with tracing.enqueueing(RunKind.QUERY) as traceparent:
        assert traceparent == ""
    with tracing.unit(lease(RunKind.QUERY, traceparent)), tracing.step("plan"):
        tracing.ended("completed")
        log.get("within").info("working")
    record = json.loads(stream.getvalue())
    assert (record["run"], "trace" in record) == ("r", False)


@pytest.mark.parametrize("sent", ["nonsense", "00-zz-zz-01", "x" * 5000])
async def test_a_payload_that_names_no_trace_begins_one(spans: InMemorySpanExporter, sent: str) -> None:
    with tracing.unit(lease(RunKind.QUERY, sent)):
        pass
    [span] = spans.get_finished_spans()
    assert span.parent is None

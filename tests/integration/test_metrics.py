"""The gauges of a real database, the metrics of real work, and one trace through all of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import asyncpg
import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr

from pipeline.adapters.postgres_metrics import QUEUE_LIMIT, PostgresStanding
from pipeline.adapters.postgres_pool import open_pool
from pipeline.deadline import Deadline
from schemas.query import QueryRequest
from schemas.runs import RunState
from tests.cli_driver import HANDBOOK
from worker import maintenance, metrics, tracing
from worker.app import Sapwood, open_sapwood
from worker.maintenance import collect_garbage
from worker.metrics import serving
from worker.process import lanes, run_inline
from worker.settings import WorkerSettings

Standing = dict[tuple[str, str, str], float]


def settings(home: Path, database: str, redis_url: str) -> WorkerSettings:
    return WorkerSettings(home=home, database_url=SecretStr(database), redis_url=SecretStr(redis_url))


@asynccontextmanager
async def watching(database: str) -> AsyncGenerator[tuple[asyncpg.Connection, PostgresStanding], None]:
    connection = await asyncpg.connect(database)
    try:
        async with open_pool(database, 2) as pool:
            await connection.execute("set search_path to sapwood, public")
            yield connection, PostgresStanding(pool)
    finally:
        await connection.close()


async def standing(of: PostgresStanding) -> Standing:
    readings = await of.read(Deadline.after(30))
    return {(gauge, kind, state): value for gauge, kind, state, value in readings}


async def corpus(connection: asyncpg.Connection, name: str, keep: int = 2) -> int:
    found = await connection.fetchval(
        "insert into corpus (name, last_generation, settings)"
        " values ($1, 9, jsonb_build_object('retention', jsonb_build_object('generations', $2::int))) returning corpus_id",
        name,
        keep,
    )
    return int(found)


async def unit(connection: asyncpg.Connection, corpus_id: int, kind: str, state: str, **columns: object) -> None:
    """Insert a unit; `queued` and `lease` are seconds from now."""
    await connection.execute(
        "insert into run (run_id, root_id, corpus_id, kind, state, building, cancel_requested, queued_at, lease_until)"
        " select id, id, $1, $2, $3, $4, $5, now() + make_interval(secs => $6), now() + make_interval(secs => $7)"
        " from (select gen_random_uuid()::text as id) as made",
        corpus_id,
        kind,
        state,
        columns.get("building", False),
        columns.get("cancel", False),
        float(str(columns.get("queued", 0.0))),
        columns.get("lease"),
    )


async def test_an_empty_database_has_nothing_to_say(database: str) -> None:
    async with watching(database) as (_, of):
        assert set((await standing(of)).values()) <= {0.0}


async def test_units_are_counted_by_what_could_become_of_them(database: str) -> None:
    """A retry that is due later, and a build that waits for another, are no reason for more workers."""
    async with watching(database) as (connection, of):
        busy, idle = await corpus(connection, "busy"), await corpus(connection, "idle")
        for queued in (-100.0, -5.0):
            await unit(connection, busy, "query", "queued", queued=queued)
        await unit(connection, busy, "query", "queued", queued=3600.0)
        await unit(connection, busy, "index", "waiting", building=True)
        await unit(connection, busy, "index", "queued", queued=-5000.0)
        await unit(connection, idle, "index", "queued", queued=-50.0)
        await unit(connection, busy, "batch", "running", lease=60.0)
        await unit(connection, busy, "batch", "running", lease=-60.0)
        await unit(connection, busy, "query", "running", lease=60.0, cancel=True)
        await unit(connection, busy, "batch", "queued", cancel=True)
        for state in ("completed", "failed", "cancelled", "expired"):
            await unit(connection, busy, "query", state, cancel=state == "cancelled")
        found = await standing(of)
    counts = {key[1:]: value for key, value in found.items() if key[0] in ("queue_units", "active_units")}
    assert counts == {
        ("query", "due"): 2,
        ("query", "later"): 1,
        ("query", "running"): 1,
        ("index", "blocked"): 1,
        ("index", "due"): 1,
        ("index", "waiting"): 1,
        ("batch", "running"): 2,
        ("batch", "due"): 1,
    }
    assert 100 <= found["queue_oldest_due_seconds", "query", ""] < 1000
    assert 50 <= found["queue_oldest_due_seconds", "index", ""] < 1000, "the blocked one, queued longer, does not count"
    assert found["leases_expired", "", ""] == 1
    assert found["cancels_pending", "", ""] == 2


async def test_a_long_queue_is_counted_up_to_a_bound(database: str) -> None:
    async with watching(database) as (connection, of):
        one = await corpus(connection, "long")
        await connection.execute(
            "insert into run (run_id, root_id, corpus_id, kind, queued_at)"
            " select 'r' || n, 'r' || n, $1, 'query', now() - make_interval(secs => n) from generate_series(1, $2) as n",
            one,
            QUEUE_LIMIT + 50,
        )
        found = await standing(of)
    assert found["queue_units", "query", "due"] == QUEUE_LIMIT
    assert found["queue_oldest_due_seconds", "query", ""] >= QUEUE_LIMIT + 50, "the age is that of the very oldest"


async def test_garbage_lags_from_the_moment_a_generation_fell_out_of_retention(database: str) -> None:
    """Of two that are kept: the third is garbage since the first was published; a pin holds it, and the lag shows it."""
    async with watching(database) as (connection, of):
        for name, keep, states in (
            ("tidy", 2, {7: "reclaimed", 8: "superseded", 9: "current"}),
            ("late", 2, {6: "reclaimed", 7: "superseded", 8: "superseded", 9: "current"}),
            ("thrifty", 5, {6: "superseded", 7: "superseded", 8: "superseded", 9: "current"}),
        ):
            one = await corpus(connection, name, keep)
            for number, state in states.items():
                await connection.execute(
                    "insert into generation (corpus_id, number, state, run_id, published_at)"
                    " values ($1, $2, $3, 'r', now() - make_interval(secs => $4))",
                    one,
                    number,
                    state,
                    1000.0 * (10 - number),
                )
            for holder, lease in (("reader", 60.0), ("gone", -60.0)):
                await connection.execute(
                    "insert into pin (corpus_id, number, holder, lease_until)"
                    " values ($1, 9, $2, now() + make_interval(secs => $3))",
                    one,
                    holder,
                    lease,
                )
        found = await standing(of)
        assert 1000 <= found["garbage_lag_seconds", "", ""] < 2000
        assert found["pins", "", ""] == 3
        await connection.execute("update generation set state = 'reclaimed' where number = 7")
        assert (await standing(of))["garbage_lag_seconds", "", ""] == 0


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


async def sample(app: Sapwood, name: str, **labels: str) -> float | None:
    await app.services.watched.page()
    return app.services.vitals.registry.get_sample_value(name, labels)


async def indexed(app: Sapwood) -> str:
    run = await app.index("handbook", [str(HANDBOOK)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return run.run_id


async def test_work_shows_in_the_metrics(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an index run, a queued question, and the same question twice from here; then over HTTP, as a scraper sees it."""
    monkeypatch.setattr(metrics, "KEEP_SECONDS", 0.0)
    async with open_sapwood(settings(tmp_path, database, redis_url)) as app:
        await indexed(app)
        request = QueryRequest(text="Who runs the harbour?", deadline=60)
        queued = await app.enqueue_query("handbook", request)
        assert await sample(app, "sapwood_queue_units", kind="query", state="due") == 1
        await app.work(queued.run_id)
        for _ in range(2):
            await app.query("handbook", request)
        assert await sample(app, "sapwood_queue_units", kind="query", state="due") == 0
        assert await sample(app, "sapwood_units_total", kind="index", ending="completed") == 2, "the plan, and the rest"
        assert (await sample(app, "sapwood_units_total", kind="batch", ending="completed") or 0) >= 1
        assert await sample(app, "sapwood_units_total", kind="query", ending="completed") == 1
        assert await sample(app, "sapwood_query_results_total", source="computed", complete="yes") == 1
        assert await sample(app, "sapwood_query_results_total", source="cache", complete="yes") == 2
        for leg in ("keyword", "dense", "graph"):
            states = [
                await sample(app, "sapwood_leg_seconds_count", leg=leg, state=s) or 0 for s in ("completed", "empty")
            ]
            assert sum(states) == 1, "what comes from the cache ran no legs"
        assert await sample(app, "sapwood_deadline_overshoot_seconds_count", kind="query") == 3
        assert await sample(app, "sapwood_deadline_overshoot_seconds_bucket", kind="query", le="0.0") == 3
        assert (await sample(app, "sapwood_snapshot_bytes") or 0) > 0
        assert (await sample(app, "sapwood_snapshot_loads_total") or 0) >= 1
        assert (await sample(app, "sapwood_pins") or 0) >= 1
        async with serving(app.services.watched, "127.0.0.1", 0) as port, httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://127.0.0.1:{port}/metrics", timeout=30)).text
        assert "sapwood_database_up 1.0" in page and 'sapwood_units_total{ending="completed",kind="index"} 2.0' in page
        assert "handbook" not in page and "harbour" not in page, "no names, no questions"


async def test_what_the_collector_takes_away_is_counted(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four generations of which two are kept: the lag shows until a collector has run."""
    monkeypatch.setattr(metrics, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "COLLECT_SECONDS", 0.01)
    folder = anyio.Path(tmp_path / "folder")
    await folder.mkdir()
    async with open_sapwood(settings(tmp_path, database, redis_url)) as app:
        for number in range(4):
            await (folder / "one.md").write_text(f"The Crane Number {number} is located in Bristol.\n")
            run = await app.index("cranes", [str(folder)])
            await run_inline(app.services.parts(), run.run_id, lanes())
        assert await sample(app, "sapwood_garbage_generations_total") == 0
        assert (await sample(app, "sapwood_garbage_lag_seconds") or 0) > 0
        services, counted = app.services, app.services.vitals.metrics
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(collect_garbage, services.collector, services.outside, services.events, counted)
                while not await sample(app, "sapwood_garbage_rows_total", store="postgresql"):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        assert await sample(app, "sapwood_garbage_generations_total") == 2
        assert await sample(app, "sapwood_garbage_lag_seconds") == 0


async def test_one_trace_spans_a_whole_index_run_and_another_a_question(
    tmp_path: Path, database: str, redis_url: str, spans: InMemorySpanExporter
) -> None:
    """What connects them is in the rows: two applications, as two processes."""
    async with open_sapwood(settings(tmp_path, database, redis_url)) as asking:
        run = await asking.index("handbook", [str(HANDBOOK)])
        async with open_sapwood(settings(tmp_path, database, redis_url)) as working:
            assert (await working.work(run.run_id)).state is RunState.COMPLETED
            queued = await asking.enqueue_query("handbook", QueryRequest(text="Who runs the harbour?", deadline=60))
            await working.work(queued.run_id)
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans.get_finished_spans():
        if span.context:
            traces.setdefault(span.context.trace_id, []).append(span)
    assert len(traces) == 2
    index, query = sorted(traces.values(), key=lambda one: "sapwood.query" in {span.name for span in one})
    steps = {"sapwood.step.plan", "sapwood.step.derive", "sapwood.step.cluster", "sapwood.step.promote"}
    assert {span.name for span in index} == {"sapwood.enqueue", "sapwood.index", "sapwood.batch", *steps}
    legs = {"sapwood.leg.keyword", "sapwood.leg.dense", "sapwood.leg.graph"}
    assert {span.name for span in query} == {"sapwood.enqueue", "sapwood.query", *legs}
    for span in spans.get_finished_spans():
        assert "harbour" not in span.to_json() and "handbook" not in span.to_json()
        if span.name in ("sapwood.index", "sapwood.batch", "sapwood.query"):
            assert (span.attributes or {})["sapwood.ending"] == "completed"

"""What is counted, what a scrape shows, and that dashboards and alerts ask for nothing that is not there."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, StoreUnavailable
from pipeline.runs import Ending
from pipeline.tenancy import EVERYBODY, act_for, acting_for, apart
from pipeline.webhooks import Outcome
from schemas.events import LegDone, Pinned
from schemas.query import Leg, LegReport, QueryResult
from schemas.runs import RunKind
from worker import metrics
from worker.metrics import GAUGES, Gauges, Reading, Watched, serving, watched
from worker.process import Vitals

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
NAME = re.compile(r"\b(?:sapwood|process)_[a-z_]+\b")
LABELS = {
    "kind": {"index", "batch", "query"},
    "state": {"due", "later", "blocked", "running", "waiting", "completed", "empty", "failed", "missing"},
    "ending": {ending.value for ending in Ending},
    "leg": {leg.value for leg in Leg},
    "source": {"cache", "computed"},
    "complete": {"yes", "no"},
    "direction": {"input", "output"},
    "store": {"postgresql", "outside"},
    "outcome": {outcome.value for outcome in Outcome},
    "le": None,
}


def drawn(path: Path) -> set[str]:
    return {name for text in expressions(json.loads(path.read_text("utf-8"))) for name in NAME.findall(text)}


def bare(name: str) -> str:
    return re.sub(r"_(?:bucket|count|sum|created)$", "", name)


class Database:
    """Says what it is told, and counts how often it was asked."""

    def __init__(self, *readings: Reading) -> None:
        self.readings: Sequence[Reading] = readings
        self.asked = 0
        self.away = False
        self.stuck = False

    async def read(self, deadline: Deadline) -> Sequence[Reading]:
        self.asked += 1
        if self.stuck:
            await anyio.sleep(600)
        if self.away:
            raise StoreUnavailable("PostgreSQL does not answer.")
        return self.readings


def of(database: Database, vitals: Vitals | None = None) -> Watched:
    return watched((vitals or Vitals()).metrics, Gauges(database.read, lambda: (2, 4096, 7)))


def busy() -> Watched:
    """Return metrics of which every one has a sample."""
    vitals = Vitals()
    for kind in RunKind:
        for ending in Ending:
            vitals.ended(kind, ending)
        with vitals.metrics.by(Deadline(0.0), kind):
            pass
    vitals.swept(1, 1)
    for leg in Leg:
        vitals.heard(LegDone(report=LegReport(leg=leg, state="completed", seconds=0.002)))
    for cached in (True, False):
        vitals.heard(result(cached=cached))
    vitals.metrics.paid({"input_tokens": 10, "output_tokens": 2, "selected": 1})
    vitals.metrics.collected(1, 30)
    vitals.metrics.cleared(2, 40)
    for outcome in Outcome:
        vitals.metrics.told(outcome)
    return of(Database(), vitals)


def result(*, cached: bool = False, complete: bool = True) -> QueryResult:
    missing = () if complete else ("graph",)
    return QueryResult(generation=1, complete=complete, missing=missing, hits=(), cached=cached, seconds=0.004)


def value(shown: Watched, name: str, **labels: str) -> float | None:
    return shown.counted.registry.get_sample_value(name, labels)


def names(page: bytes) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in page.decode().splitlines() if not line.startswith("#")}


async def test_a_leg_and_an_answer_are_counted_once() -> None:
    shown = of(Database())
    for body in (
        Pinned(generation=1),
        LegDone(report=LegReport(leg=Leg.DENSE, state="completed", seconds=0.03)),
        result(),
        result(cached=True),
        result(complete=False),
    ):
        shown.counted.heard(body)
    assert value(shown, "sapwood_leg_seconds_count", leg="dense", state="completed") == 1
    assert value(shown, "sapwood_leg_seconds_bucket", leg="dense", state="completed", le="0.025") == 0
    assert value(shown, "sapwood_leg_seconds_bucket", leg="dense", state="completed", le="0.04") == 1
    assert value(shown, "sapwood_query_results_total", source="computed", complete="yes") == 1
    assert value(shown, "sapwood_query_results_total", source="computed", complete="no") == 1
    assert value(shown, "sapwood_query_results_total", source="cache", complete="yes") == 1
    assert value(shown, "sapwood_query_seconds_count", source="computed") == 2


async def test_what_ends_in_time_overshoots_by_nothing_and_what_has_no_deadline_is_not_counted() -> None:
    shown = of(Database())
    with shown.counted.by(Deadline.never(), RunKind.INDEX):
        pass
    with shown.counted.by(Deadline.after(60), RunKind.QUERY):
        pass
    with pytest.raises(KeyError), shown.counted.by(Deadline(anyio.current_time() - 2.0), RunKind.QUERY):
        raise KeyError
    assert value(shown, "sapwood_deadline_overshoot_seconds_count", kind="index") is None
    assert value(shown, "sapwood_deadline_overshoot_seconds_bucket", kind="query", le="0.0") == 1
    assert value(shown, "sapwood_deadline_overshoot_seconds_bucket", kind="query", le="1.0") == 1
    assert value(shown, "sapwood_deadline_overshoot_seconds_count", kind="query") == 2


async def test_every_gauge_is_shown_also_where_there_is_nothing() -> None:
    """So that a rule can tell zero from not known."""
    shown = of(Database(("queue_units", "query", "due", 3.0), ("pins", "", "", 2.0)))
    await shown.page()
    assert value(shown, "sapwood_queue_units", kind="query", state="due") == 3
    assert value(shown, "sapwood_queue_units", kind="batch", state="later") == 0
    assert value(shown, "sapwood_pins") == 2
    assert value(shown, "sapwood_garbage_lag_seconds") == 0
    assert value(shown, "sapwood_database_up") == 1
    assert value(shown, "sapwood_snapshot_bytes") == 4096
    assert value(shown, "sapwood_snapshot_loads_total") == 7


async def test_a_database_that_is_away_is_a_gauge_and_its_old_values_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "KEEP_SECONDS", 0.0)
    database = Database(("pins", "", "", 2.0))
    shown = of(database)
    await shown.page()
    assert value(shown, "sapwood_pins") == 2
    database.away = True
    await shown.page()
    assert (value(shown, "sapwood_database_up"), value(shown, "sapwood_pins")) == (0, None)
    assert value(shown, "sapwood_snapshots") == 2
    database.away = False
    await shown.page()
    assert (value(shown, "sapwood_database_up"), value(shown, "sapwood_pins")) == (1, 2)


async def test_many_scrapers_are_one_query() -> None:
    database = Database()
    shown = of(database)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(shown.page)
    assert database.asked == 1


async def test_whoever_asks_sees_the_whole_installation() -> None:
    """The query is not made for the tenant for whom a task happens to work: its answer is shown to others."""
    seen: list[str] = []

    async def read(deadline: Deadline) -> Sequence[Reading]:
        seen.append(acting_for())
        return []

    with apart():
        act_for("acme")
        await watched(Vitals().metrics, Gauges(read, lambda: (0, 0, 0))).page()
        assert (seen, acting_for()) == ([EVERYBODY], "acme")


async def test_the_age_of_the_last_round_is_not_a_number_before_the_first() -> None:
    """A gateway makes none, and is not a worker that is stuck."""
    vitals = Vitals()
    assert math.isnan(vitals.registry.get_sample_value("sapwood_round_age_seconds") or 0.0)
    vitals.swept(0, 0)
    assert 0 <= (vitals.registry.get_sample_value("sapwood_round_age_seconds") or 0.0) < 60


async def scrape(port: int, path: str = "/metrics") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"http://127.0.0.1:{port}{path}", timeout=30)


async def test_a_scrape_over_http_reads_what_is_there_now() -> None:
    shown = of(Database(("pins", "", "", 5.0)))
    async with serving(shown, "127.0.0.1", 0) as port:
        answer = await scrape(port)
        assert answer.headers["content-type"] == metrics.CONTENT_TYPE
        assert "\nsapwood_pins 5.0\n" in answer.text
        assert (await scrape(port, "/")).status_code == 200
        assert (await scrape(port, "/secret")).status_code == 404
    with pytest.raises(httpx.ConnectError):
        await scrape(port)


async def test_a_scrape_is_answered_while_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is known: the loop's own lag among it. The block ends although a reader still hangs."""
    monkeypatch.setattr(metrics, "WAIT", 0.2)
    monkeypatch.setattr(metrics, "KEEP_SECONDS", 0.0)
    database = Database(("pins", "", "", 5.0))
    shown = of(database)
    async with serving(shown, "127.0.0.1", 0) as port:
        await scrape(port)
        database.stuck = True
        answer = await scrape(port)
        assert "\nsapwood_pins 5.0\n" in answer.text and "sapwood_loop_lag_seconds" in answer.text
        monkeypatch.setattr(metrics, "WAIT", 600.0)
        async with anyio.create_task_group() as group:
            group.start_soon(_broken_off, port)
            while database.asked < 3:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()


async def _broken_off(port: int) -> None:
    await scrape(port)


async def test_an_address_that_is_taken_is_an_error_that_names_the_setting() -> None:
    async with serving(of(Database()), "127.0.0.1", 0) as port:
        with pytest.raises(ConfigurationError, match="SAPWOOD_METRICS_PORT"):
            async with serving(of(Database()), "127.0.0.1", port):
                pass


async def test_labels_are_from_closed_sets() -> None:
    """No corpus, tenant, person or id: their number has no bound."""
    shown = busy()
    await shown.page()
    found = [sample for family in shown.counted.registry.collect() for sample in family.samples]
    assert len(found) > 200
    for sample in found:
        for label, text in sample.labels.items():
            assert label in LABELS, sample
            assert LABELS[label] is None or text in LABELS[label], sample
        assert NAME.fullmatch(sample.name), sample


def test_every_gauge_of_the_database_has_a_name_that_the_query_gives() -> None:
    sql = (Path(metrics.__file__).parents[1] / "pipeline" / "sql" / "metrics.sql").read_text("utf-8")
    assert set(re.findall(r"^select '(\w+)'", sql, re.MULTILINE)) == set(GAUGES)


def expressions(dashboard: Any) -> list[str]:
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries = [one["query"] for one in dashboard["templating"]["list"]]
    return [*targets, *(query["query"] for query in queries if isinstance(query, dict))]


def rules() -> list[Any]:
    text = (DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def unknown(texts: Sequence[str], known: set[str]) -> set[str]:
    return {name for text in texts for name in NAME.findall(text)} - known


def balanced(text: str) -> bool:
    bare = re.sub(r'"[^"]*"', "", text)
    return all(bare.count(left) == bare.count(right) for left, right in ("()", "{}", "[]"))


@pytest.fixture
def known() -> set[str]:
    async def page() -> bytes:
        return await busy().page()

    return names(anyio.run(page))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_asks_for_metrics_that_exist(path: Path, known: set[str]) -> None:
    dashboard = json.loads(path.read_text("utf-8"))
    asked = expressions(dashboard)
    assert len(asked) > 20 and all(map(balanced, asked))
    assert not unknown(asked, known)
    assert unknown(["rate(sapwood_no_such_total[5m])"], known), "the check finds one that does not exist"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_is_whole(path: Path) -> None:
    """What Grafana needs to import it: ids and places of their own, a source that is chosen, no id of an installation."""
    dashboard = json.loads(path.read_text("utf-8"))
    assert {
        "uid",
        "title",
        "schemaVersion",
        "panels",
        "templating",
        "time",
    } <= dashboard.keys() and "id" not in dashboard
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & mine, panel["title"]
        cells |= mine
        if panel["type"] != "row":
            assert panel["title"] and panel["description"] and panel["datasource"]["uid"] == "${source}"
            assert all(target["refId"] and target["datasource"]["uid"] == "${source}" for target in panel["targets"])


def test_everything_that_is_measured_is_drawn(known: set[str]) -> None:
    ours = {bare(name) for name in known if name.startswith("sapwood_") and not name.endswith("_created")}
    assert not ours - {bare(name) for path in DASHBOARDS for name in drawn(path)}


def test_alerts_ask_for_metrics_that_exist_and_say_what_to_do(known: set[str]) -> None:
    found = rules()
    assert {
        "SapwoodQueriesWait",
        "SapwoodNoWorker",
        "SapwoodUnitsFail",
        "SapwoodDeadlineOvershoot",
        "SapwoodGarbageLag",
    } <= {rule["alert"] for rule in found}
    for rule in found:
        assert balanced(rule["expr"]) and not unknown([rule["expr"]], known), rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"} and rule["for"]
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]

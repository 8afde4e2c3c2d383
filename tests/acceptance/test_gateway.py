"""An application that knows no Python: HTTP alone, from an empty machine to an answer whose events it followed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli_driver import HANDBOOK, Cli, finished, own_home

QUESTION = {"text": "Who may use the laser cutter?", "deadline": 60.0}
PATIENCE = 120.0

Event = tuple[str, str, dict[str, Any]]


@contextmanager
def gateway(cli: Cli, *words: str) -> Generator[tuple[httpx.Client, subprocess.Popen[str]], None, None]:
    """Run a gateway on a free port until the end of the block; it must then end by itself, with exit code 0."""
    process = cli.given(SAPWOOD_GATEWAY_LISTEN="127.0.0.1:0", SAPWOOD_GATEWAY_GRACE_SECONDS="5").start(*words, "--json")
    try:
        assert process.stdout is not None
        url = next((found["url"] for line in process.stdout if "url" in (found := json.loads(line))), None)
        assert url, finished(process).err
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as http:
            yield http, process
    finally:
        process.send_signal(signal.SIGTERM)
        done = finished(process)
    assert done.code == 0, done.err[-3000:]
    assert "Traceback" not in done.err, done.err[-3000:]


def events(http: httpx.Client, path: str, last: str | None = None, most: int = 10_000) -> Iterator[Event]:
    """Yield (id, name, data) of at most so many events, then leave."""
    headers = {} if last is None else {"Last-Event-ID": last}
    with http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.strip()
            elif not line and "data" in fields:
                yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
                fields, most = {}, most - 1
                if not most:
                    return


def ok(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()
    return found


@pytest.fixture(scope="module")
def place(quick_folder: Path) -> Iterator[Cli]:
    """A home of its own: nothing runs in it yet."""
    with own_home(quick_folder / "gateway") as cli:
        yield cli


def test_from_nothing_to_an_answer_over_http_alone(place: Cli) -> None:
    """Show 1: corpus, index, its events, ask both ways, the query's events, back in the middle, cancel a second one."""
    with gateway(place, "up", "--gateway") as (http, _):
        ok(http.post("/v1/corpora", json={"name": "handbook"}), 201)
        order = {"sources": [str(HANDBOOK)]}
        accepted = http.post("/v1/corpora/handbook/index-runs", json=order, headers={"Idempotency-Key": "first"})
        run = ok(accepted, 202)["run_id"]
        assert ok(http.get(accepted.headers["location"]), 200)["run_id"] == run
        seen = list(events(http, f"/v1/runs/{run}/events"))
        assert [int(number) for number, _, _ in seen] == list(range(1, len(seen) + 1))
        assert (seen[0][1], seen[-1][1]) == ("queued", "promoted")
        again = ok(http.post("/v1/corpora/handbook/index-runs", json=order, headers={"Idempotency-Key": "first"}), 202)
        assert (again["run_id"], again["state"]) == (run, "completed")
        counts = ok(http.get(f"/v1/runs/{run}/documents"), 200)["counts"]
        assert sum(counts.values()) == sum(seen[-1][2]["body"]["outcomes"].values()) > 0

        direct = ok(http.post("/v1/corpora/handbook/query", json=QUESTION), 200)
        assert direct["complete"] and direct["hits"]
        queued = ok(http.post("/v1/corpora/handbook/query-runs", json=QUESTION), 202)["run_id"]
        path = f"/v1/runs/{queued}/events"
        first = list(events(http, path, most=2))
        rest = list(events(http, path, first[-1][0]))
        assert [int(number) for number, _, _ in first + rest] == list(range(1, len(first + rest) + 1))
        assert rest[-1][1] == "completed"
        found = [hit["chunk"] for hit in rest[-1][2]["body"]["result"]["hits"]]
        assert found == [hit["chunk"] for hit in direct["hits"]]
        assert http.get(path, headers={"Last-Event-ID": rest[-1][0]}).status_code == 204

        ready = ok(http.get("/readyz"), 200)
        assert ready["status"] == "ready"


def test_uploaded_files_are_indexed_replaced_and_removed(place: Cli) -> None:
    """The corpus mirrors what was uploaded; a path that would leave its folder is refused and nothing is written."""
    with gateway(place, "up", "--gateway") as (http, _):
        ok(http.post("/v1/corpora", json={"name": "notes"}), 201)
        ok(http.post("/v1/corpora/notes/index-runs", json={"uploads": True}), 422)
        files = "/v1/corpora/notes/files"
        text = "The Zeppelin Hangar is located in Redcliffe.\n"
        ok(http.put(f"{files}/guides/hangar.md", content=text), 201)
        ok(http.put(f"{files}/crane.md", content=iter([b"The Crane is ", b"in Bristol.\n"])), 201)
        assert http.get(files).json() == [{"path": "crane.md", "size": 25}, {"path": "guides/hangar.md", "size": 45}]

        def mirrored() -> dict[str, int]:
            run = ok(http.post("/v1/corpora/notes/index-runs", json={"uploads": True}), 202)["run_id"]
            *_, (_, name, data) = events(http, f"/v1/runs/{run}/events")
            assert name == "promoted", data
            found: dict[str, int] = data["body"]["outcomes"]
            return found

        assert mirrored() == {"indexed": 2}
        hits = ok(http.post("/v1/corpora/notes/query", json={"text": "Where is the Zeppelin Hangar?"}), 200)["hits"]
        assert hits[0]["document"] == "guides/hangar.md"
        ok(http.put(f"{files}/crane.md", content="The Crane is in Cardiff.\n"), 201)
        assert http.delete(f"{files}/guides/hangar.md").status_code == 204
        assert http.delete(f"{files}/guides/hangar.md").status_code == 404
        assert mirrored() == {"indexed": 1, "removed": 1}

        for bad in ("%2e%2e/x", "a/%2e%2e/%2e%2e/x", ".hidden", "a//b", "%2Fetc/x", "a%00b", "a/", "%0a", "x" * 300):
            ok(http.put(f"{files}/{bad}", content="x"), 422)
        ok(http.put(f"{files}/crane.md/x", content="x"), 422)
        ok(http.put(f"{files}/guides", content="x"), 422)
        assert [one["path"] for one in http.get(files).json()] == ["crane.md"]
        uploads = place.home / "uploads"
        assert [path.name for path in uploads.rglob("*") if path.is_file()] == ["crane.md"]
        assert http.delete("/v1/corpora/notes").status_code == 204
        assert not [path for path in uploads.rglob("*") if path.is_file()]


def test_a_run_that_nobody_works_on_waits_is_followed_and_is_cancelled(place: Cli) -> None:
    """`sapwood gateway` alone enqueues; a follower gets the end of a run that somebody else cancels."""
    with gateway(place, "gateway") as (http, _):
        ok(http.post("/v1/corpora", json={"name": "waiting"}), 201)
        order = {"sources": [str(HANDBOOK)]}
        run = ok(http.post("/v1/corpora/waiting/index-runs", json=order), 202)["run_id"]
        follower = events(http, f"/v1/runs/{run}/events")
        assert next(follower)[1] == "queued"
        ok(http.post(f"/v1/runs/{run}/cancel", json={"reason": "not needed"}), 202)
        number, name, data = next(follower)
        assert (number, name, data["body"]["reason"]) == ("2", "cancelled", "not needed")
        assert next(follower, None) is None
        assert ok(http.get(f"/v1/runs/{run}"), 200)["state"] == "cancelled"


def test_a_signal_ends_streams_that_somebody_follows(place: Cli) -> None:
    """The follower's stream ends, and the process too, without waiting for the run."""
    with gateway(place, "gateway") as (http, process):
        ok(http.post("/v1/corpora", json={"name": "signal"}), 201)
        run = ok(http.post("/v1/corpora/signal/query-runs", json=QUESTION), 202)["run_id"]
        follower = events(http, f"/v1/runs/{run}/events")
        assert next(follower)[1] == "queued"
        process.send_signal(signal.SIGTERM)
        assert next(follower, None) is None
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SAPWOOD_GATEWAY_LISTEN": "0.0.0.0:0", "SAPWOOD_GATEWAY_AUTH": "none"}, "SAPWOOD_GATEWAY_AUTH"),
        ({"SAPWOOD_GATEWAY_LISTEN": "127.0.0.1:99999"}, "SAPWOOD_GATEWAY_LISTEN"),
        ({"SAPWOOD_GATEWAY_LISTEN": "nonsense"}, "SAPWOOD_GATEWAY_LISTEN"),
    ],
)
def test_a_place_to_listen_that_will_not_do_is_a_usage_error(
    tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    done = Cli(tmp_path, variables, inside=True).run("gateway")
    assert done.code == 2
    assert said in done.err

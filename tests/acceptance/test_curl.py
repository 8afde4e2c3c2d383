"""Show 1, with nothing but `curl`: from an empty machine to an answer whose events were followed, left and taken up again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_gateway import gateway
from tests.cli_driver import HANDBOOK, Cli, own_home

CURL = shutil.which("curl")
MOST = 120
"""Seconds after which curl gives up; nothing is measured by it."""

Event = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def curl_is_there() -> None:
    """Without curl there is nothing to show; where everything has to be shown, that is a failure."""
    if CURL is None:
        message = "curl is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


@pytest.fixture(scope="module")
def place(quick_folder: Path) -> Iterator[Cli]:
    """A home of its own: nothing runs in it yet."""
    with own_home(quick_folder / "curl") as cli:
        yield cli


@dataclass(frozen=True, slots=True)
class Curl:
    """curl, pointed at a gateway; the key goes in through a file, so that no list of processes shows it."""

    url: str
    folder: Path
    key: str = field(default="", repr=False)

    def run(self, path: str, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run curl on a path and return what it printed; it must end with one of these exit codes."""
        config = self.folder / "curl.conf"
        config.write_text(f'header = "Authorization: Bearer {self.key}"\n' if self.key else "")
        config.chmod(0o600)
        command = [CURL or "curl", "-sS", "--max-time", str(MOST), "--noproxy", "*", "-K", str(config), *words]
        done = subprocess.run([*command, self.url + path], capture_output=True, text=True, check=False)
        assert done.returncode in codes, (path, done.returncode, done.stderr)
        return done.stdout

    def ask(self, method: str, path: str, status: int, body: Any = None, *words: str) -> Any:
        """Ask, insist on the status, and return the JSON."""
        data = () if body is None else ("-H", "Content-Type: application/json", "-d", json.dumps(body))
        text, _, code = self.run(path, "-X", method, *data, *words, "-w", "\n%{http_code}").rpartition("\n")
        assert int(code) == status, (method, path, code, text)
        return json.loads(text) if text else None

    def follow(self, run: str, *words: str) -> list[Event]:
        """Follow a run to its end and return (id, name, body) of its events."""
        return parsed(self.run(f"/v1/runs/{run}/events", "-N", *words))

    def first(self, run: str, most: int) -> list[Event]:
        """Follow a run, and leave in the middle: curl is ended once it has printed so many events."""
        config = self.folder / "curl.conf"
        command = [CURL or "curl", "-sSN", "--max-time", str(MOST), "--noproxy", "*", "-K", str(config)]
        with subprocess.Popen(
            [*command, f"{self.url}/v1/runs/{run}/events"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if len(parsed("".join(lines))) == most:
                    break
            process.terminate()
        return parsed("".join(lines))


def parsed(text: str) -> list[Event]:
    """Return the events of a stream, those that have arrived whole."""
    found: list[Event] = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])["body"]))
    return found


def dense(events: list[Event]) -> bool:
    return [int(number) for number, _, _ in events] == list(range(1, len(events) + 1))


def show(curl: Curl) -> None:
    """The show itself, with whatever key: a corpus, a file, its run, a question, its events, and one that is cancelled."""
    curl.ask("POST", "/v1/corpora", 201, {"name": "manual"})
    for file in sorted(HANDBOOK.rglob("*.md")):
        name = file.relative_to(HANDBOOK).as_posix()
        curl.ask("PUT", f"/v1/corpora/manual/files/{name}", 201, None, "--data-binary", f"@{file}")
    uploaded = curl.ask("GET", "/v1/corpora/manual/files", 200)
    assert len(uploaded) > 2

    once = ("-H", "Idempotency-Key: first")
    run = curl.ask("POST", "/v1/corpora/manual/index-runs", 202, {"uploads": True}, *once)["run_id"]
    events = curl.follow(run)
    assert dense(events) and (events[0][1], events[-1][1]) == ("queued", "promoted")
    assert events[-1][2]["outcomes"] == {"indexed": len(uploaded)}
    again = curl.ask("POST", "/v1/corpora/manual/index-runs", 202, {"uploads": True}, *once)
    assert (again["run_id"], again["state"]) == (run, "completed")
    curl.ask("POST", "/v1/corpora/manual/index-runs", 422, {"uploads": True, "exclude": ["x"]}, *once)

    question = {"text": "Who may use the laser cutter?", "deadline": 60}
    direct = curl.ask("POST", "/v1/corpora/manual/query", 200, question)
    assert direct["complete"] and direct["hits"]
    query = curl.ask("POST", "/v1/corpora/manual/query-runs", 202, question)["run_id"]
    before = curl.first(query, 2)
    after = curl.follow(query, "-H", f"Last-Event-ID: {before[-1][0]}")
    assert len(before) == 2 and dense(before + after) and after[-1][1] == "completed"
    assert [hit["chunk"] for hit in after[-1][2]["result"]["hits"]] == [hit["chunk"] for hit in direct["hits"]]
    curl.ask("GET", f"/v1/runs/{query}/events", 204, None, "-H", f"Last-Event-ID: {after[-1][0]}")

    lines = curl.run("/v1/corpora/manual/export").splitlines()
    assert json.loads(lines[0])["kind"] == "header" and len(lines) > 10


def cancelled(curl: Curl) -> None:
    """A second question, which waits as the worker takes none, is cancelled, and whoever follows it hears so."""
    question = {"text": "And the kiln?", "deadline": 600}
    query = curl.ask("POST", "/v1/corpora/manual/query-runs", 202, question)["run_id"]
    assert curl.ask("POST", f"/v1/runs/{query}/cancel", 202, {"reason": "not needed"})["state"] == "cancelled"
    assert [(name, body.get("reason")) for _, name, body in curl.follow(query)] == [
        ("queued", None), ("cancelled", "not needed"),
    ]  # fmt: skip


def test_on_one_machine_without_keys(place: Cli, tmp_path: Path) -> None:
    with gateway(place, "up", "--gateway") as (http, _):
        curl = Curl(str(http.base_url).rstrip("/"), tmp_path)
        assert curl.ask("GET", "/v1/whoami", 200)["scopes"] == ["index", "query", "inspect", "admin"]
        show(curl)
    with gateway(place.given(SAPWOOD_QUERY_JOBS="0"), "up", "--gateway") as (http, _):
        curl = Curl(str(http.base_url).rstrip("/"), tmp_path)
        cancelled(curl)
        curl.ask("DELETE", "/v1/corpora/manual", 204)
    assert not [path for path in (place.home / "uploads").rglob("*") if path.is_file()]


def test_with_keys_of_which_the_first_comes_from_the_command_line(place: Cli, tmp_path: Path) -> None:
    """An operator's key makes a tenant and its admin's key, that makes one to work with: all the rest is done with it."""
    given = place.given(SAPWOOD_GATEWAY_AUTH="keys")
    first = given.ok("key", "create", "--scope", "admin").out.strip()
    with gateway(given, "up", "--gateway") as (http, _):
        nobody = Curl(str(http.base_url).rstrip("/"), tmp_path)
        assert nobody.ask("GET", "/v1/corpora", 401)["code"] == "Unauthorized"
        operator = Curl(nobody.url, tmp_path, first)
        operator.ask("POST", "/v1/tenants", 201, {"name": "acme", "limits": {"open_runs": 50}})
        made = operator.ask("POST", "/v1/keys?tenant=acme", 201, {"name": "admin", "scopes": ["admin"]})
        admin = Curl(nobody.url, tmp_path, made["key"])
        admin.ask("GET", "/v1/corpora", 403)
        worker = admin.ask("POST", "/v1/keys", 201, {"name": "ci", "scopes": ["index", "query", "inspect"]})
        curl = Curl(nobody.url, tmp_path, worker["key"])
        who = curl.ask("GET", "/v1/whoami", 200)
        assert (who["tenant"], who["limits"]["open_runs"]) == ("acme", 50)
        show(curl)
        assert operator.ask("GET", "/v1/corpora", 403)["code"] == "Forbidden"
        admin.ask("DELETE", f"/v1/keys/{made['key_id']}", 200)
    with gateway(given.given(SAPWOOD_QUERY_JOBS="0"), "up", "--gateway") as (http, _):
        curl = Curl(str(http.base_url).rstrip("/"), tmp_path, worker["key"])
        cancelled(curl)
        assert Curl(curl.url, tmp_path, made["key"]).ask("GET", "/v1/whoami", 401)["code"] == "Unauthorized"


def test_a_corpus_that_the_command_line_deletes_leaves_no_uploads(place: Cli, tmp_path: Path) -> None:
    with gateway(place, "gateway") as (http, _):
        curl = Curl(str(http.base_url).rstrip("/"), tmp_path)
        curl.ask("POST", "/v1/corpora", 201, {"name": "gone"})
        curl.ask("PUT", "/v1/corpora/gone/files/deep/a.md", 201, None, "--data-binary", "The crane is in Bristol.")
    assert [path.name for path in (place.home / "uploads").rglob("*.md") if path.read_text().startswith("The crane")]
    place.ok("corpus", "delete", "gone", "--yes")
    assert not [path for path in (place.home / "uploads").rglob("*.md") if path.read_text().startswith("The crane")]

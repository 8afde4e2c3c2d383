"""A user has a program told of the end of each run, from the command line or over HTTP; the program checks who tells it."""

from __future__ import annotations

import json
import queue
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from schemas.signatures import verify
from tests.cli_driver import HANDBOOK, SECONDS, Cli, finished, own_home

PRIVATE = {"SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8"}
COMMANDS = ("create", "list", "show", "delete", "rotate", "test", "retry", "enable", "disable")


@dataclass
class Program:
    """A program of the user's: a small web server that takes messages that are signed."""

    port: int
    taken: queue.Queue[tuple[dict[str, str], bytes]] = field(default_factory=queue.Queue)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sapwood"

    def next(self, secret: str) -> tuple[str, dict[str, Any]]:
        """Wait for a message, verify it, and return its id and what it says."""
        headers, body = self.taken.get(timeout=SECONDS)
        return verify(secret, headers, body), json.loads(body)


@contextmanager
def program() -> Generator[Program, None, None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.taken.put((dict(self.headers.items()), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Program(server.server_port)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()


@contextmanager
def working(cli: Cli, *words: str) -> Generator[str, None, None]:
    """Run a worker, or a gateway that works, until the end of the block; yield the first line that it prints, if any."""
    process = cli.start(*words)
    try:
        assert process.stdout is not None
        yield process.stdout.readline() if "--json" in words else ""
    finally:
        process.send_signal(signal.SIGTERM)
        done = finished(process)
    assert done.code == 0 and "Traceback" not in done.err, done.err[-3000:]


def test_a_program_is_told_when_an_index_run_and_a_question_have_ended(tmp_path: Path) -> None:
    """As in the help: create, index, a signed event; ping, rotate, list, show, delete. The secret is shown once."""
    with own_home(tmp_path / "home", **PRIVATE) as user, program() as receiver:
        cli = replace(user, inside=True)
        done = user.ok("webhook", "create", receiver.url)
        secret = done.out.strip()
        assert secret.startswith("whsec_") and secret not in done.err
        [made] = json.loads(cli.ok("webhook", "list", "--json").out)
        run_id = cli.ok("index", "handbook", str(HANDBOOK), "--detach", "--json").json["run_id"]
        with working(user, "worker"):
            message_id, said = receiver.next(secret)
            assert (said["type"], said["run_id"], said["corpus"]) == ("promoted", run_id, "handbook")
            *_, last = [json.loads(line) for line in cli.ok("events", run_id, "--json").out.splitlines()]
            assert said == {"type": "promoted", **last} and message_id == f"{run_id}-{last['seq']}"
            cli.query("handbook", "Who may use the laser cutter?", "--queue", "--deadline", "60s")
            assert receiver.next(secret)[1]["body"]["result"]["hits"]
            ping = cli.ok("webhook", "test", made["webhook_id"], "--json").json
            assert receiver.next(secret)[0] == ping["message_id"]
            rotated = cli.ok("webhook", "rotate", made["webhook_id"]).out.strip()
            cli.ok("webhook", "retry", made["webhook_id"], str(ping["delivery_id"]))
            headers, body = receiver.taken.get(timeout=SECONDS)
            assert verify(rotated, headers, body) == verify(secret, headers, body) == ping["message_id"]
        shown = cli.ok("webhook", "show", made["webhook_id"], "--json")
        assert [one["type"] for one in shown.json["deliveries"]] == ["ping", "completed", "promoted"]
        people = user.ok("webhook", "show", made["webhook_id"]).out + user.ok("webhook", "list").out
        assert message_id in people and receiver.url in people
        assert "whsec" not in people + shown.out and secret not in people
        assert cli.ok("webhook", "disable", made["webhook_id"], "--json").json["enabled"] is False
        assert cli.ok("webhook", "enable", made["webhook_id"], "--json").json["enabled"] is True
        assert cli.ok("webhook", "delete", made["webhook_id"], "--json").json["deleted"]
        assert json.loads(cli.ok("webhook", "list", "--json").out) == []


def test_a_gateway_that_works_tells_too(tmp_path: Path) -> None:
    """Over HTTP alone, with a webhook of one corpus and one ending."""
    with own_home(tmp_path / "home", **PRIVATE) as cli, program() as receiver:
        local = cli.given(SAPWOOD_GATEWAY_LISTEN="127.0.0.1:0")
        cli.ok("up")
        with (
            working(local, "gateway", "--work", "--json") as line,
            httpx.Client(base_url=json.loads(line)["url"], timeout=SECONDS, trust_env=False) as http,
        ):
            assert http.post("/v1/corpora", json={"name": "handbook"}).status_code == 201
            order = {"url": receiver.url, "corpus": "handbook", "events": ["promoted"]}
            made = http.post("/v1/webhooks", json=order)
            assert made.status_code == 201, made.text
            order = {"sources": [str(HANDBOOK)]}
            run = http.post("/v1/corpora/handbook/index-runs", json=order).json()["run_id"]
            message_id, said = receiver.next(made.json()["secret"])
            assert (said["type"], said["run_id"]) == ("promoted", run) and message_id.startswith(f"{run}-")
            counted = http.get(made.headers["location"]).json()["deliveries"]
            assert [one["message_id"] for one in counted] == [message_id]


def test_a_private_place_is_refused_unless_it_is_allowed(cli: Cli) -> None:
    """Usage errors, exit code 2 each; nothing is made."""
    for url, said in (
        ("http://127.0.0.1:9000/", "allowed by SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS"),
        ("http://127.0.0.1/", "address rule"),
        ("http://192.168.0.1/", "address rule"),
        ("ftp://example.org/", "scheme rule"),
    ):
        done = cli.ok("webhook", "create", url, code=2)
        assert said in done.err and done.out == ""
    assert "no corpus" in cli.ok("webhook", "create", "https://example.org/", "--corpus", "missing", code=2).err
    assert "sapwood webhook list" in " ".join(cli.ok("webhook", "test", "wh_0", code=2).err.split())
    assert json.loads(cli.ok("webhook", "list", "--json").out) == []
    made = cli.given(**PRIVATE).ok("webhook", "create", "http://127.0.0.1:9000/", "--json").json
    cli.ok("webhook", "delete", made["webhook_id"])


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(cli: Cli, command: str) -> None:
    text = " ".join(cli.ok("webhook", command, "--help").out.split())
    assert "Usage" in text and "--json" in text
    assert f"sapwood webhook {command}" in text

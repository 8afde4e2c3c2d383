"""A user runs the place: events, generations, rollback, garbage, servers, help."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli_driver import Cli, finished, own_home

COMMANDS = (
    "corpus", "index", "query", "events", "cancel", "generations", "rollback", "export", "worker", "gc", "doctor", "up",
    "down", "status", "migrate",
)  # fmt: skip


def test_events_resume_where_a_reader_left(cli: Cli, folder: Path) -> None:
    """Sequence numbers are dense, the last event is terminal, and `--after N` gives exactly the rest."""
    run = cli.index("eventful", folder)["run_id"]
    events = cli.ok("events", run, "--json").lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["body"]["type"] for event in (events[0], events[-1])] == ["queued", "promoted"]
    assert all(event["run_id"] == run and event["corpus"] == "eventful" for event in events)
    for after in (1, len(events) - 1):
        assert cli.ok("events", run, "--after", str(after), "--json").lines == events[after:]
    followed = cli.ok("events", run, "--after", "2", "--follow", "--json").lines
    assert followed == events[2:]


def test_events_of_a_corpus_resume_too(cli: Cli, folder: Path) -> None:
    """Positions of a corpus's events rise, and `--after` gives those above."""
    cli.index("positions", folder)
    (folder / "history.md").unlink()
    cli.index("positions")
    events = cli.ok("events", "positions", "--json").lines
    positions = [event["position"] for event in events]
    assert positions == sorted(set(positions))
    assert sum(event["body"]["type"] == "promoted" for event in events) == 2
    middle = positions[len(positions) // 2]
    later = cli.ok("events", "positions", "--after", str(middle), "--json").lines
    assert later == [event for event in events if event["position"] > middle]


def test_a_queued_index_and_query_are_done_by_a_worker(cli: Cli, user: Cli, folder: Path) -> None:
    """`--detach` only queues; a worker does it, answers a queued query, and hands over on SIGTERM with exit 0."""
    run = cli.index("detached", folder, "--detach")
    assert run["state"] == "queued"
    worker = user.start("worker")
    try:
        events = cli.ok("events", run["run_id"], "--follow", "--json").lines
        assert events[-1]["body"]["type"] == "promoted"
        answer = cli.query("detached", "Who does the Safety Team report to?", "--queue", "--deadline", "20s")
        assert answer["generation"] == events[-1]["body"]["generation"]
        assert answer["hits"]
    finally:
        worker.terminate()
        done = finished(worker)
    assert done.code == 0, done.err


def test_rollback_publishes_an_old_generation_under_a_new_number(cli: Cli, folder: Path) -> None:
    """The content is the old one's, byte for byte; the number is new; the next sync finds the edit again."""
    cli.index("back", folder)
    before = cli.export("back")[1]
    (folder / "history.md").write_text("# History\n\nThe Bell Tower is located in Clifton.\n", "utf-8")
    assert cli.index("back")["generation"] == 2
    assert cli.export("back")[1] != before
    done = cli.ok("rollback", "back", "1", "--json").json
    assert done["generation"] == 3
    assert cli.export("back")[1] == before
    assert cli.query("back", "Bell Tower in Clifton", "--strategy", "keyword")["generation"] == 3
    assert not any("Bell Tower" in hit["text"] for hit in cli.query("back", "Bell Tower")["hits"])
    synced = cli.index("back")
    assert synced["outcomes"]["indexed"] == 1
    assert any("Bell Tower" in hit["text"] for hit in cli.query("back", "Bell Tower")["hits"])


def test_garbage_collection_leaves_the_current_generation_as_it_was(cli: Cli, folder: Path) -> None:
    """`gc --keep 1` removes what only old generations saw; they can no longer be read, the current one is untouched."""
    cli.index("litter", folder)
    (folder / "history.md").unlink()
    cli.index("litter")
    before = cli.export("litter")[1]
    removed = cli.ok("gc", "litter", "--keep", "1", "--json").json
    assert removed["generations"] == [1]
    assert removed["rows"]["document"] == 1
    assert cli.export("litter")[1] == before
    assert cli.run("export", "litter", "--generation", "1").code != 0
    assert cli.run("rollback", "litter", "1").code != 0
    states = {g["number"]: g["state"] for g in cli_list(cli, "generations", "litter")}
    assert states[2] == "current"
    assert states.get(1, "reclaimed") == "reclaimed"


def cli_list(cli: Cli, *words: str) -> list[dict[str, Any]]:
    """The JSON list that a command prints."""
    found: list[dict[str, Any]] = json.loads(cli.ok(*words, "--json").out)
    return found


def test_corpora_are_made_listed_shown_and_deleted(cli: Cli, folder: Path) -> None:
    """A setting given at creation is kept; after deletion the corpus is unknown and nothing of it is listed."""
    cli.ok("corpus", "create", "kept", "--set", "graph_search.ranking=walk")
    cli.index("kept", folder)
    shown = cli.ok("corpus", "show", "kept", "--json").json
    assert shown["settings"]["graph_search"]["ranking"] == "walk"
    assert shown["sources"] == [{"kind": "folder", "location": str(folder)}]
    assert "kept" in [corpus["name"] for corpus in cli_list(cli, "corpus", "list")]
    cli.ok("corpus", "delete", "kept", "--yes")
    assert "kept" not in [corpus["name"] for corpus in cli_list(cli, "corpus", "list")]
    assert cli.run("query", "kept", "anything").code == 2


def test_servers_go_up_once_and_down_at_once(tmp_path: Path) -> None:
    """`up` twice leaves the same two processes; `down` ends them; the next command starts them again, data intact."""
    with own_home(tmp_path / "h") as user:
        cli = replace(user, inside=True)
        assert not any(server["running"] for server in servers(cli))
        user.ok("up")
        first = servers(cli)
        assert {server["name"] for server in first} == {"postgres", "valkey"}
        assert all(server["running"] for server in first)
        cli.ok("up")
        assert [server["pid"] for server in servers(cli)] == [server["pid"] for server in first]
        cli.ok("corpus", "create", "survivor")
        user.ok("down")
        assert not any(server["running"] for server in servers(cli))
        cli.ok("down")
        assert [corpus["name"] for corpus in cli_list(cli, "corpus", "list")] == ["survivor"]
        assert (tmp_path / "h").stat().st_mode & 0o066 == 0


def servers(cli: Cli) -> list[dict[str, Any]]:
    """What `status` says of the two servers."""
    found: list[dict[str, Any]] = json.loads(cli.run("status", "--json").out)
    return found


def test_two_first_commands_at_the_same_time_share_the_servers(tmp_path: Path, folder: Path) -> None:
    """On an empty home two processes start at once: both end well, over one pair of servers."""
    with own_home(tmp_path / "h") as cli:
        both = [cli.start("index", corpus, str(folder), "--json") for corpus in ("left", "right")]
        ends = [finished(process) for process in both]
        assert [done.code for done in ends] == [0, 0], ends
        assert cli.export("left")[1] == cli.export("right")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    """`--help` works without servers."""
    assert "Usage" in cli.ok(command, "--help").out


def test_help_has_examples(cli: Cli) -> None:
    """The commands with a syntax to learn show one use each."""
    for command in ("index", "query", "events", "export", "worker"):
        text = cli.ok(command, "--help").out
        assert "Example" in text and f"sapwood {command}" in " ".join(text.split()), command


def test_the_doctor_looks_at_what_is_optional(cli: Cli, tmp_path: Path) -> None:
    """A file that is named and not there is a failure with its cure; git and the extras are told of, and what they are for."""
    cli.ok("migrate")
    found = {one["name"]: one for one in json.loads(cli.ok("doctor", "--json").out)}
    assert {"git", "extras"} <= found.keys() and not {"tokenizer", "models"} & found.keys()
    ill = cli.given(SAPWOOD_TOKENIZER_FILE=str(tmp_path / "none.json"), SAPWOOD_MODELS_ROOT=str(tmp_path))
    shown = ill.ok("doctor", code=1).out
    assert "FAIL tokenizer" in shown and "SAPWOOD_TOKENIZER_FILE" in shown and "ok   models" in shown

"""A user does something wrong, or something goes wrong: a clear line, the right exit code, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_driver import Cli, Done


def plain(done: Done, *named: str) -> None:
    """The problem is one short message on stderr that names the thing, and no traceback."""
    assert "Traceback" not in done.err + done.out
    for word in named:
        assert word in " ".join((done.err + done.out).split()), done.err


def test_bad_documents_are_accounted_for_and_the_rest_is_indexed(user: Cli, folder: Path) -> None:
    """A corrupt PDF is one failed outcome with its reason, exit code 3; every other file is indexed."""
    (folder / "corrupt.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)) * 8 + b"\n%%EOF\n")
    (folder / "odd.md").write_bytes(b"# Odd\n\nThe \xff\xfe\x80 Kiln is located in Room 9.\n\x00\n")
    (folder / "empty.md").write_bytes(b"")
    before = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    done = user.index("broken", folder, code=3)
    assert done["state"] == "completed"
    notable = {entry["document"]: (entry["outcome"], entry["reason"]) for entry in done["documents"]}
    assert notable["corrupt.pdf"][0] == "failed"
    assert notable["corrupt.pdf"][1]
    assert notable["empty.md"][0] == "empty"
    assert all(reason for outcome, reason in notable.values() if outcome != "removed")
    assert sum(done["outcomes"].values()) >= len([name for name in before if not name.startswith(("drafts/", ".git"))])
    answer = user.query("broken", "In which room is the Laser Cutter?")
    assert answer["hits"]


def test_a_mended_document_comes_back(cli: Cli, folder: Path) -> None:
    """What failed is tried again at the next sync, and exit code 0 says that all is well."""
    (folder / "later.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    cli.index("mended", folder, code=3)
    cli.index("mended", code=3)
    (folder / "later.pdf").unlink()
    cli.index("mended")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("query", "x", "y", "--top-k", "0"), "top-k"),
        (("query", "x", "y", "--deadline", "soon"), "deadline"),
        (("query", "x", "y", "--deadline", "0s"), "deadline"),
        (("query", "x", "y", "--strategy", "psychic"), "strategy"),
        (("query", "no-such-corpus", "anything"), "no-such-corpus"),
        (("query", "x", ""), "text"),
        (("index",), "CORPUS"),
        (("index", "x", "/no/such/folder"), "/no/such/folder"),
        (("index", "never-indexed"), "never-indexed"),
        (("index", "bad name!", "."), "bad name!"),
        (("index", "x", ".", "--set", "chunk.max_chars=tiny"), "chunk.max_chars"),
        (("index", "x", ".", "--set", "chunk.bogus=1"), "chunk.bogus"),
        (("index", "x", ".", "--set", "chunk.max_char=1"), "did you mean chunk.max_chars?"),
        (("index", "x", ".", "--set", "read_as.x=1"), "read_as.x"),
        (("index", "x", ".", "--set", "bogus"), "bogus"),
        (("query", "x", "y", "--filter", "tag"), "KEY=VALUE"),
        (("query", "x", "y", "--time-field", "t", "--since", "yesterday"), "--since"),
        (("export", "x", "--generation", "0"), "--generation"),
        (("rollback", "no-such-corpus", "1"), "no-such-corpus"),
        (("cancel", "no-such-run"), "no-such-run"),
        (("fly",), "fly"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_misuse_exits_with_2_and_names_it(cli: Cli, words: tuple[str, ...], named: str) -> None:
    """Usage and unknown names: exit code 2, the thing named."""
    done = cli.ok(*words, code=2)
    plain(done, named)


def test_a_setting_by_which_nothing_can_be_indexed_does_not_become_the_corpus_s(cli: Cli, folder: Path) -> None:
    """Else every later command would fail by what one command was refused for."""
    plain(cli.ok("index", "kept", str(folder), "--set", "embedding.provider=none-such", code=2), "none-such")
    plain(cli.ok("corpus", "show", "kept", code=2), "kept")
    cli.index("kept", folder)
    plain(cli.ok("index", "kept", "--set", "graph_storage.backend=neo4j", code=2), "SAPWOOD_GRAPH_NEO4J_URI")
    assert cli.index("kept")["outcomes"] == {"unchanged": cli.index("kept")["outcomes"]["unchanged"]}


def test_a_generation_that_is_not_kept_is_refused_with_those_that_are(cli: Cli, folder: Path) -> None:
    for line in ("One.", "Two.", "Three."):
        (folder / "history.md").write_text(line)
        cli.index("forgetful", folder)
    plain(cli.ok("rollback", "forgetful", "1", code=2), "that are there: 2", "retention.generations")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SAPWOOD_LEASE_SECONDS", "soon"),
        ("SAPWOOD_INDEX_JOBS", "-1"),
        ("SAPWOOD_DATABASE_URL", "mysql://user:canary-secret@127.0.0.1/x"),
        ("SAPWOOD_REDIS_URL", "http://user:canary-secret@127.0.0.1"),
    ],
)
def test_a_configuration_error_stops_at_once_and_names_the_field(cli: Cli, variable: str, value: str) -> None:
    """Exit code 2; the variable is named, its value is not shown, since it may be a secret."""
    done = cli.given(**{variable: value}).ok("corpus", "list", code=2)
    plain(done, variable)
    assert "canary-secret" not in done.err + done.out


def test_a_database_that_is_not_there_is_one_clear_line(user: Cli) -> None:
    """Exit code 1; no address, no password, no traceback."""
    url = "postgresql://sapwood:canary-secret@127.0.0.1:9/sapwood"
    done = user.given(SAPWOOD_DATABASE_URL=url).ok("corpus", "list", code=1)
    plain(done)
    assert done.err.strip()
    assert "canary-secret" not in done.err + done.out


def test_a_deadline_that_cannot_be_met_exits_with_4(cli: Cli, folder: Path) -> None:
    """With `--strict` the deadline is an error; without it the answer says that it is not complete."""
    cli.index("late", folder)
    done = cli.ok("query", "late", "Laser Cutter", "--deadline", "1ms", "--strict", "--json", code=4)
    plain(done, "deadline")


def test_a_cancelled_index_run_exits_with_4(cli: Cli, folder: Path) -> None:
    """A run that nobody has taken up is cancelled at once; its last event says so and why."""
    run = cli.index("stopped", folder, "--detach")["run_id"]
    cancelled = cli.ok("cancel", run, "--reason", "changed my mind", "--json").json
    assert cancelled["state"] == "cancelled"
    last = cli.ok("events", run, "--json").lines[-1]["body"]
    assert last == {"type": "cancelled", "reason": "changed my mind"}
    assert cli.index("stopped", folder)["generation"] >= 1

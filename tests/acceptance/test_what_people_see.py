"""What commands print for people: whole in pipes, narrow terminals and any encoding; and who interrupts is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_driver import Cli, finished

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
from importlib.abc import MetaPathFinder


class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "worker.cli":
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupting())
from worker.__main__ import main

main()
"""


def test_tables_are_whole_wherever_they_go(cli: Cli, folder: Path) -> None:
    """A row is a line, and nothing of it is cut."""
    cli.index("shown", folder)
    (folder / "history.md").write_text("# History\n\nShort.\n")
    cli.index("shown")
    narrow = cli.given(COLUMNS="40")
    heading, *rows = narrow.ok("generations", "shown").out.splitlines()
    assert heading.split()[:2] == ["number", "state"] and heading.split()[-1] == "communities"
    assert [row.split()[:2] for row in rows] == [["2", "current"], ["1", "superseded"]]
    listed = narrow.ok("corpus", "list").out
    assert "generation" in listed and any(line.split()[0] == "shown" for line in listed.splitlines())


def test_an_end_is_told_in_words(cli: Cli, folder: Path) -> None:
    """That nothing changed, that nothing was found, and what was removed."""
    cli.index("told", folder)
    assert "generation 1: current as before" in cli.ok("index", "told").out
    assert "nothing found" in cli.ok("query", "told", "zzyzx", "--strategy", "keyword").out
    (folder / "history.md").unlink()
    cli.index("told")
    removed = cli.ok("gc", "told", "--keep", "1").out
    assert removed.startswith("removed: generations 1, 1 rows of document, ") and not set("{}()") & set(removed)
    assert cli.ok("gc", "told", "--keep", "1").out == "nothing to remove\n"


def test_events_of_a_corpus_say_where_to_go_on_and_whose_they_are(cli: Cli, folder: Path) -> None:
    first = cli.index("places", folder)["run_id"]
    second = cli.index("places")["run_id"]
    lines = cli.ok("events", "places").out.splitlines()
    assert [line.split()[1] for line in lines] == sorted((line.split()[1] for line in lines), key=[first, second].index)
    position = next(line for line in lines if second in line).split()[0]
    rest = cli.ok("events", "places", "--after", position).out.splitlines()
    assert rest == lines[lines.index(rest[0]) :] and not any(first in line for line in rest)


@pytest.mark.parametrize("words", [("index", "--help"), ("query", "odd", "Crêpe")])
def test_an_encoding_without_our_characters_is_no_breakdown(user: Cli, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "odd.md").write_text("# Crêpe\n\nThe Crêpe Kiln … is located in Redcliffe.\n", "utf-8")
    if words[0] == "query":
        user.index("odd", folder)
    done = user.given(PYTHONIOENCODING="ascii", PYTHONUTF8="0").ok(*words)
    assert "Traceback" not in done.err and done.out.isascii()


def test_who_interrupts_while_the_command_is_loaded_is_told_so(user: Cli) -> None:
    done = finished(user.start("corpus", "list", program=("-c", INTERRUPTED_WHILE_LOADING)))
    assert (done.code, done.out, done.err) == (4, "", "sapwood: interrupted\n")


def test_a_full_disk_is_one_line(user: Cli, folder: Path) -> None:
    user.index("full", folder)
    program = ("-c", "import sys; sys.stdout = open('/dev/full', 'w'); from worker.__main__ import main; main()")
    done = finished(user.start("export", "full", program=program))
    assert done.code != 0 and "No space left on device; what was written is not whole" in done.err
    assert "Traceback" not in done.err.partition("Exception ignored")[0]


def test_the_version_and_a_misspelt_variable_are_told(cli: Cli) -> None:
    assert cli.ok("--version").out.split() == ["sapwood", "0.1.0"]
    told = cli.given(SAPWOOD_INDEX_JOB="1").ok("corpus", "list", "--json")
    assert told.err == "sapwood: SAPWOOD_INDEX_JOB is not a setting; did you mean SAPWOOD_INDEX_JOBS?\n"
    assert told.out.startswith("[")


def test_code_without_a_graph_of_code_is_published_with_a_word_about_it(cli: Cli, folder: Path) -> None:
    cli.index("prose", folder)
    told = cli.ok("graph", "publish", "prose-code", "code", "--corpus", "prose").err
    cli.ok("graph", "remove", "prose-code")
    assert "has no graph of source code; `sapwood index prose" in told


def test_what_nobody_agrees_to_is_not_deleted(user: Cli, folder: Path) -> None:
    """A program that forgets --yes gets nothing on its standard output, and its corpus stays."""
    user.index("dear", folder)
    done = user.ok("corpus", "delete", "dear", "--json", code=4)
    assert not done.out.strip() and "with --yes nobody is asked" in done.err
    user.ok("corpus", "show", "dear")

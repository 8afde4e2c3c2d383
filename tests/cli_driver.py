"""Drives the command `sapwood` the way a user does, with a home folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from worker.cli import app

ROOT = Path(__file__).parents[1]
HANDBOOK = ROOT / "examples" / "handbook"
SECONDS = 120.0
"""How long any one command may take before the test gives up on it; nothing is measured by it."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines of JSON that it printed."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object with which it ended."""
        return self.lines[-1]


@dataclass(frozen=True, slots=True)
class Cli:
    """The command with one home folder; `variables` are set on top of a bare environment.

    As a process of its own, or `inside` this one: the same from the arguments to the exit code, without the time that
    Python takes to import everything.
    """

    home: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    inside: bool = False

    def given(self, **variables: str) -> Cli:
        """Return the same command with more variables set, e.g. `given(SAPWOOD_LEASE_SECONDS="1")`."""
        return replace(self, variables={**self.variables, **variables})

    @property
    def environment(self) -> dict[str, str]:
        """What the process sees: nothing of Sapwood's but what the test gives it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SAPWOOD_")}
        return {**kept, "SAPWOOD_HOME": str(self.home), "NO_COLOR": "1", "COLUMNS": "120", **self.variables}

    def start(self, *words: str, program: tuple[str, ...] = ("-m", "worker")) -> subprocess.Popen[str]:
        """Start the command and return its process; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, seconds: float = SECONDS) -> Done:
        """Run the command to its end."""
        return self._inside(words) if self.inside else finished(self.start(*words), seconds)

    def _inside(self, words: tuple[str, ...]) -> Done:
        hidden: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SAPWOOD_")}
        result = CliRunner().invoke(app, words, env={**hidden, **self.environment})
        problem = result.exception
        if problem is not None and not isinstance(problem, SystemExit):
            raise AssertionError(f"sapwood {' '.join(words)} broke down") from problem
        return Done(result.exit_code, result.stdout, result.stderr)

    def ok(self, *words: str, code: int = 0) -> Done:
        """Run the command and insist on its exit code."""
        done = self.run(*words)
        assert done.code == code, (
            f"sapwood {' '.join(words)} ended with {done.code}\n{done.out[-3000:]}\n{done.err[-3000:]}"
        )
        return done

    def index(self, corpus: str, *words: str | Path, code: int = 0) -> dict[str, Any]:
        """Index and return the JSON object at the end."""
        return self.ok("index", corpus, *map(str, words), "--json", code=code).json

    def query(self, corpus: str, text: str, *words: str, code: int = 0) -> dict[str, Any]:
        """Ask and return the JSON object at the end."""
        return self.ok("query", corpus, text, "--json", *words, code=code).json

    def export(self, corpus: str, *words: str) -> tuple[str, str]:
        """Return the header line and the body of an export."""
        header, _, body = self.ok("export", corpus, *words).out.partition("\n")
        return header, body


def finished(process: subprocess.Popen[str], seconds: float = SECONDS) -> Done:
    """Wait for a command's end; one that hangs is killed and fails the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"{process.args!r} did not end\n{out[-3000:]}\n{err[-3000:]}") from None
    return Done(process.returncode, out, err)


@contextmanager
def own_home(home: Path, **variables: str) -> Iterator[Cli]:
    """Give a command with an empty home, and stop the servers that it started."""
    cli = Cli(home, variables)
    try:
        yield cli
    finally:
        cli.run("down")

"""One home for the acceptance tests, and a copy of the handbook for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli_driver import HANDBOOK, Cli, own_home


@pytest.fixture(scope="session")
def user(quick_folder: Path) -> Iterator[Cli]:
    """The command as a process, with one home for all; every test uses a corpus name of its own."""
    with own_home(quick_folder / "user") as command:
        yield command


@pytest.fixture(scope="session")
def cli(user: Cli) -> Cli:
    """The same command and home, run inside the test's process where another process would prove nothing more."""
    return replace(user, inside=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the handbook with one ignored draft in it."""
    copy = tmp_path / "handbook"
    shutil.copytree(HANDBOOK, copy)
    (copy / "drafts").mkdir(exist_ok=True)
    (copy / "drafts" / "unfinished.md").write_text("# Unfinished\n\nThe Zeppelin Hangar is located in Redcliffe.\n")
    return copy

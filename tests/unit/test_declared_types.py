"""Type checkers see through the decorators: they run over `tests/typed`, where each expected error is marked as one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests/typed/declared_roles.py"


@pytest.mark.parametrize(
    "checker",
    [["mypy", "--strict"], ["pyright", "--pythonpath", sys.executable]],
    ids=["mypy", "pyright"],
)
def test_decorated_classes_and_functions_keep_their_types(checker: list[str]) -> None:
    found = subprocess.run(
        [sys.executable, "-m", *checker, str(EXAMPLE)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if checker[0] == "pyright" and found.returncode not in (0, 1):
        pytest.skip(f"pyright did not start: {(found.stderr or found.stdout).strip()[-200:]}")
    assert found.returncode == 0, found.stdout + found.stderr

"""The cases of the specification, by number: each has a test that says so in its name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
RANGE = re.compile(r"(?<![a-z0-9])([gr])(\d+)_to_[gr](\d+)(?![0-9])")
CASE = re.compile(r"(?<![a-z0-9])([gr]\d+)(?![0-9a-z])")


def cases(name: str) -> set[str]:
    """Return the cases that a test's name says it is."""
    spans = [f"{kind}{n}" for kind, first, last in RANGE.findall(name) for n in range(int(first), int(last) + 1)]
    return {*CASE.findall(name.replace("_", " ")), *spans}


@cache
def covered() -> set[str]:
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found |= cases(node.name)
    return found


def test_a_name_says_its_cases() -> None:
    assert cases("test_r17_r18_and_r19_without") == {"r17", "r18", "r19"}
    assert cases("test_g25_to_g27_only_ascii") == {"g25", "g26", "g27"}
    assert cases("test_drops_g31") == {"g31"} and cases("test_bag31_string3_and_r3d") == set()


@pytest.mark.parametrize(("kind", "last"), [("g", 34), ("r", 38)])
def test_every_case_has_a_test(kind: str, last: int) -> None:
    missing = sorted({f"{kind}{number}" for number in range(1, last + 1)} - covered(), key=lambda one: int(one[1:]))
    assert not missing

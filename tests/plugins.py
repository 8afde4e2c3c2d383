"""Distributions with entry points, installed for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch, place: Path, module: str, source: str, group: str, points: Iterable[str]
) -> None:
    """Install a distribution of one module, with entry points (`name = object`) of a group, where Python finds it.

    `place` is made if need be. What a process remembers of installed providers is for the caller to forget.
    """
    project = module.replace("_", "-")
    info = place / f"{module}-1.dist-info"
    info.mkdir(parents=True)
    (place / f"{module}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1\n")
    lines = (f"{name} = {module}:{thing}\n" for name, _, thing in (point.partition(" = ") for point in points))
    (info / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, module, raising=False)

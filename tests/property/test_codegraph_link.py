"""Linking a file depends on what it reads, and on nothing else: not on what was linked before, not on unread files."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.links import Linked
from pipeline.codegraph.rules import RULES
from tests.bench.codegraph import PROGRAMS, programs, texts_in
from tests.code_corpus import corpus, received

PATHS = ("a.py", "b.py", "p/__init__.py", "p/c.py", "p/d.py", "q/e.py", "b/__init__.py")
MODULES = ("a", "b", "p", "p.c", "p.d", "q.e", "q")
NAMES = ("f", "g", "K", "L", "x", "c", "d")
STATEMENTS = (
    "import {module}",
    "import {module} as {name}",
    "from {module} import {name}",
    "from {module} import {other} as {name}",
    "from {module} import *",
    "from . import {name}",
    "from .{part} import {name}",
    "from .. import {name}",
    "def {name}({arg}):\n    return {value}",
    "def {name}({arg}={other}):\n    {value}\n    return {arg}",
    "def {name}():\n    global {other}\n    {other} = {value}\n    yield {value}",
    "@{other}\ndef {name}({arg}):\n    return {value}",
    "def {name}({arg}):\n    def {other}():\n        return {arg}()\n    return {other}",
    "class {name}({other}):\n    x = {value}\n    def f(self, {arg}):\n        self.x = {arg}\n        return self.g({value})",
    "class {name}:\n    def __init__(self, {arg}):\n        self.{part} = {arg}\n"
    "    def g(self, k):\n        return self.{part}({value})",
    "{name} = {value}",
    "{name}.{part} = {value}",
    "{name} = {{'k': {value}}}\n{name}['k']()",
    "{value}",
    "for {name} in {value}:\n    {name}({value})",
    "try:\n    from {module} import {name}\nexcept ImportError:\n    {name} = {value}",
    "if {other}:\n    {name} = {value}\nelse:\n    {name} = {other}",
    "__all__ = ['{name}', '{other}']",
)
VALUES = (
    "{other}", "{other}()", "{other}({name})", "{other}.{part}", "{other}.{part}()", "[{other}, {name}][0]", "lambda: {other}()",
    "{other}({arg}={name})", "{other}(*{name})",
)  # fmt: skip


@st.composite
def statements(draw: st.DrawFn) -> str:
    words = {
        "module": draw(st.sampled_from(MODULES)),
        "name": draw(st.sampled_from(NAMES)),
        "other": draw(st.sampled_from(NAMES)),
        "part": draw(st.sampled_from(("f", "g", "x", "c", "d"))),
        "arg": draw(st.sampled_from(("f", "y"))),
    }
    words["value"] = draw(st.sampled_from(VALUES)).format(**words)
    return draw(st.sampled_from(STATEMENTS)).format(**words)


FILES = st.dictionaries(
    st.sampled_from(PATHS), st.lists(statements(), max_size=6).map("\n".join), min_size=1, max_size=len(PATHS)
)


def fresh(texts: dict[str, str], path: str, linked: dict[str, Linked] | None = None) -> Linked:
    return Linker(corpus(texts), RULES).link(path, received(path, linked or {}))


@settings(max_examples=150, deadline=None)
@given(texts=FILES, seed=st.integers(0, 99))
def test_what_was_linked_before_makes_no_difference(texts: dict[str, str], seed: int) -> None:
    paths = sorted(texts) * 2
    Random(seed).shuffle(paths)
    linker = Linker(corpus(texts), RULES)
    for path in paths:
        assert linker.link(path) == fresh(texts, path)


@settings(max_examples=150, deadline=None)
@given(texts=FILES, changes=FILES, removed=st.sets(st.sampled_from(PATHS), max_size=3))
def test_files_that_were_not_read_make_no_difference(
    texts: dict[str, str], changes: dict[str, str], removed: set[str]
) -> None:
    before = {path: fresh(texts, path) for path in texts}
    for path in texts:
        unread = {other for other in PATHS if other != path and not touched(before[path], other)}
        edited = {
            other: changes.get(other, text) if other in unread else text
            for other, text in {**{each: changes[each] for each in changes if each in unread}, **texts}.items()
            if not (other in removed and other in unread)
        }
        assert fresh(edited, path) == before[path]


def touched(linked: Linked, path: str) -> bool:
    """Whether a change of a file may make a difference."""
    folder = path[: path.rfind("/") + 1]
    return not linked.reads.isdisjoint({path, folder, f"*/{path[len(folder) :]}"})


def test_a_read_file_does_make_a_difference() -> None:
    texts = {"a.py": "from b import f\nf()", "b.py": "def f(): pass"}
    linked = fresh(texts, "a.py")
    assert {"b.py", "b/__init__.py"} <= linked.reads
    assert "p/c.py" not in linked.reads
    assert fresh({"a.py": texts["a.py"]}, "a.py") != linked
    assert fresh({**texts, "b/__init__.py": ""}, "a.py") != linked


@pytest.mark.parametrize(
    "folder", programs(PROGRAMS) if PROGRAMS.is_dir() else [], ids=lambda each: f"{each.parent.name}-{each.name}"
)
def test_programs_link_to_the_same_in_any_order(folder: Path) -> None:
    texts = texts_in(folder)
    linker = Linker(corpus(texts), RULES)
    for path in sorted(texts, reverse=True):
        linker.link(path)
    assert {path: linker.link(path) for path in texts} == {path: fresh(texts, path) for path in texts}


def test_the_standard_library_links_to_the_same_in_any_order() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    chosen = ("asyncio", "json", "email", "collections", "importlib", "logging", "unittest", "concurrent", "xml", "re")
    paths = [path for name in chosen for path in sorted((library / name).rglob("*.py")) if "test" not in path.parts]
    paths += sorted(library.glob("[a-f]*.py"))
    texts = {str(path.relative_to(library)): path.read_text("utf-8", "replace") for path in paths[:150]}
    assert len(texts) == 150
    files = corpus(texts)
    linker = Linker(files, RULES)
    order = sorted(texts)
    Random(7).shuffle(order)
    linked = {path: linker.link(path) for path in order}
    for path in order[::3]:
        assert Linker(files, RULES).link(path) == linked[path]

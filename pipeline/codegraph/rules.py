"""The rules of all languages that are linked, and a linker that has them."""

from __future__ import annotations

from pipeline.codegraph.go.rules import GoRules
from pipeline.codegraph.java.rules import JavaRules
from pipeline.codegraph.javascript.rules import JavaScriptRules
from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.links import Files, Rules
from pipeline.codegraph.python.rules import PythonRules
from pipeline.codegraph.rust.rules import RustRules

RULES: tuple[Rules, ...] = (
    PythonRules(),
    JavaScriptRules(),
    JavaRules(),
    GoRules(),
    RustRules(),
)


def linker(files: Files) -> Linker:
    """Return a linker for the files of one corpus."""
    return Linker(files, RULES)

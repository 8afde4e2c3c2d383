"""Source files in memory, linked."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.codegraph.files import SourceFiles
from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.linker.record import Reference
from pipeline.codegraph.linker.scopes import Unit
from pipeline.codegraph.links import Handed, Linked
from pipeline.codegraph.reading import read
from pipeline.codegraph.rules import RULES
from pipeline.codegraph.summary import encode


def corpus(texts: Mapping[str, str]) -> SourceFiles:
    """Return source files that were read from texts; those in no known language are left out."""
    summaries = {path: summary for path, text in texts.items() if (summary := read(path, text)) is not None}
    files = SourceFiles(summaries)
    files.give({path: encode(summary) for path, summary in summaries.items()})
    return files


def link_all(files: SourceFiles) -> dict[str, Linked]:
    """Return what every file refers to, with what the others hand to it."""
    linker = Linker(files, RULES)
    first = {path: linker.link(path) for path in sorted(files.paths)}
    return {path: linker.link(path, received(path, first)) for path in first}


def received(path: str, linked: Mapping[str, Linked]) -> list[Handed]:
    """Return what all files hand to the functions of one."""
    return [each for other in linked.values() for each in other.handed if each.function.startswith(f"{path}::")]


def edges(texts: Mapping[str, str], kind: str = "calls", scope: str = "corpus") -> list[tuple[str, str]]:
    """Return the edges of one kind between the definitions of a corpus, or to what is outside of it."""
    linked = link_all(corpus(texts)).values()
    return sorted(
        [
            (edge.source, edge.target)
            for each in linked
            for edge in each.edges
            if (edge.kind, edge.scope) == (kind, scope)
        ]
    )


def call_edges(texts: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the call graph in the names that PyCG uses: modules are dotted, lambdas are nodes, a class is its `__init__`."""
    files = corpus(texts)
    linker = Linker(files, RULES)
    first = {path: linker.link(path) for path in sorted(files.paths)}
    found = [
        each for path in first for each, _ in linker.references(path, received(path, first)) if each.kind == "calls"
    ]
    return frozenset(
        [
            (dotted(each.source), node(each))
            for each in found
            if not (isinstance(each.target, Unit) and each.target.kind == "class")
        ]
    )


def dotted(unit: Unit) -> str:
    """Return PyCG's name of a scope."""
    module = unit.module.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}.{unit.qualname}" if unit.qualname else module


def node(reference: Reference) -> str:
    """Return PyCG's name of what is called."""
    target = reference.target
    if isinstance(target, Unit):
        return dotted(target)
    return f"<builtin>.{target}" if reference.scope == "builtin" else target

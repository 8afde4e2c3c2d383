"""What linking a file gives, and what it looks at: the values that pass between the linker, the rules and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pipeline.codegraph.summary import Summary

Kind = Literal["imports", "inherits", "calls"]
Scope = Literal["corpus", "external", "builtin"]

UNRESOLVED = (
    "unknown_name", "unknown_attribute", "unknown_value", "missing_module", "dynamic", "ambiguous", "too_deep", "anonymous",
)  # fmt: skip
"""Why a reference has no edge: each is counted, none is guessed. `anonymous`: its target is known and no entity."""


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """A reference of a file. Within the corpus `source` and `target` are ids (`path` or `path::qualname`).

    An external target is a dotted name (`os.getcwd`, `react.useState`), a builtin one a name. `line` is the first line in
    the source's file that states it.
    """

    source: str
    target: str
    kind: Kind
    line: int
    scope: Scope = "corpus"


@dataclass(frozen=True, slots=True, order=True)
class Handed:
    """A function or class that one file hands to a parameter of a function in another file. Of several functions of one id
    the parameters of all but the first are numbered (`name#2`).
    """

    function: str
    parameter: str
    value: str


@dataclass(frozen=True, slots=True)
class Linked:
    """All references of one file. `edges` are sorted and unique by (source, target, kind).

    `reads` are what mattered of other files, those that are not there among them: a path (whether there is such a file, its
    language and package), a folder that ends with `/` (its set of files), `*/name` (all files of this name), all that a file
    says (`files.all_of`), or one answer of it (`linker.asked`). While none of them changes, linking the file again gives the
    same. `unresolved` counts by reason.
    """

    path: str
    edges: tuple[Edge, ...] = ()
    unresolved: Mapping[str, int] = field(default_factory=dict[str, int])
    reads: frozenset[str] = frozenset()
    handed: tuple[Handed, ...] = ()


class Files(Protocol):
    """The source files of a corpus, by path. A path is relative to the corpus, with `/`."""

    def summary(self, path: str) -> Summary | None:
        """Return what a file says, or None if there is no such file."""
        ...

    def package(self, path: str) -> str | None:
        """Return what a file says of its own place, or None if there is no such file; depends on less than its summary."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a source file of this path; cheaper than its summary."""
        ...

    def folder(self, path: str) -> tuple[str, ...]:
        """Return the paths of the source files directly in a folder (`a/b/`; the root is ``), sorted."""
        ...

    def named(self, name: str) -> tuple[str, ...]:
        """Return the paths of all source files with this last part (`Store.java`), sorted. Reading depends on `*/name`."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """A module of the corpus: the files whose names it offers, looked at in order. Python: one; a Go package: its folder.

    `name` is its id for what is below it (a namespace package is a folder and has no files).
    """

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class External:
    """A module that is not in the corpus, by its dotted name (`os.path`, `react`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A module that should be in the corpus and is not (a relative import without a file)."""

    name: str


Found = Place | External | Missing


class Rules(Protocol):
    """How one language finds modules and names. Implementations are stateless; they see the corpus through `files`, which
    notes what they read.
    """

    languages: frozenset[str]
    builtins: frozenset[str]
    receiver_by_name: bool
    """Whether a method's first parameter is its object (Python)."""
    built_apart: bool
    """Whether files of a place may be built each for its own system (Go): what two of them define is ambiguous."""

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """Return the module that an import of this text means in this file."""
        ...

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """Return the submodule of this name, or None where there is none."""
        ...

    def around(self, importer: str, files: Files) -> Place | None:
        """Return where free names are looked up after the file's own (Go, Java: the package), or None."""
        ...

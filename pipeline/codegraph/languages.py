"""Which language a file is in, and its grammar. Cheap to import: a grammar is loaded when the first file of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser


@dataclass(frozen=True, slots=True)
class Language:
    """`grammar` names a wheel's module and the function in it; `frontend` the module here that has `summarize`; `manifest`
    the file that says how the corpus is imported.
    """

    suffixes: tuple[str, ...]
    grammar: tuple[str, str]
    frontend: str
    manifest: str = ""


LANGUAGES = {
    "python": Language(("py", "pyi", "pyw"), ("tree_sitter_python", "language"), "pipeline.codegraph.python.frontend"),
    "go": Language(("go",), ("tree_sitter_go", "language"), "pipeline.codegraph.go.frontend", "go.mod"),
    "javascript": Language(
        ("js", "mjs", "cjs", "jsx"), ("tree_sitter_javascript", "language"), "pipeline.codegraph.javascript.frontend"
    ),
    "typescript": Language(
        ("ts", "mts", "cts"),
        ("tree_sitter_typescript", "language_typescript"),
        "pipeline.codegraph.javascript.frontend",
    ),
    "tsx": Language(("tsx",), ("tree_sitter_typescript", "language_tsx"), "pipeline.codegraph.javascript.frontend"),
    "java": Language(("java",), ("tree_sitter_java", "language"), "pipeline.codegraph.java.frontend"),
    "rust": Language(("rs",), ("tree_sitter_rust", "language"), "pipeline.codegraph.rust.frontend", "Cargo.toml"),
}
_BY_SUFFIX = {suffix: name for name, language in LANGUAGES.items() for suffix in language.suffixes}


_BY_NAME = {language.manifest: name for name, language in LANGUAGES.items() if language.manifest}


def language_of(path: str, media_type: str = "") -> str:
    """Return the language by the media type (`text/x-py`), else by the path's name; empty for all others."""
    kind = media_type.split(";", 1)[0].strip().lower().removeprefix("text/x-")
    name = PurePosixPath(path)
    return _BY_SUFFIX.get(kind) or _BY_NAME.get(name.name) or _BY_SUFFIX.get(name.suffix.lower().removeprefix("."), "")


def is_manifest(path: str) -> bool:
    """Whether a file says how the corpus is imported, and nothing else that is summed up."""
    return PurePosixPath(path).name in _BY_NAME


@cache
def parser(language: str) -> Parser:
    """Return the process's parser of a language; it is not for use by several threads at once."""
    import tree_sitter

    module, function = LANGUAGES[language].grammar
    grammar: object = getattr(import_module(module), function)()
    return tree_sitter.Parser(tree_sitter.Language(grammar))

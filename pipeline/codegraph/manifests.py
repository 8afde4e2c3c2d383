"""Files that name a module or a crate (`go.mod`, `Cargo.toml`): without them an import's path says nothing about the corpus."""

from __future__ import annotations

import re
import tomllib

import msgspec

from pipeline.codegraph.summary import Summary

_MODULE = re.compile(r'^[ \t]*module[ \t]+"?([^\s"]+)', re.MULTILINE)


def summarize_manifest(language: str, text: str) -> Summary:
    """Return a summary whose package is the name under which others import what lies beside this file."""
    if language == "go":
        found = _MODULE.search(text)
        return Summary(language, package=found[1] if found else "")
    try:
        return Summary(language, package=_crate(text))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError):
        return Summary(language, counts={"syntax_error": 1})


class _Table(msgspec.Struct):
    name: str = ""


class _Cargo(msgspec.Struct):
    lib: _Table = msgspec.field(default_factory=_Table)
    package: _Table = msgspec.field(default_factory=_Table)


def _crate(text: str) -> str:
    """Return a crate's name as its users write it; a workspace without a package has none."""
    cargo = msgspec.convert(tomllib.loads(text), _Cargo)
    return (cargo.lib.name or cargo.package.name).replace("-", "_")

"""What a repository holds that nobody wrote there: generated and vendored files, known by their names, marks and attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping

ATTRIBUTES = ("linguist-generated", "linguist-vendored")
"""The attributes in `.gitattributes` by which a repository says so itself; they overrule what the names say."""

_FOLDERS = frozenset(
    {
        "vendor", "node_modules", "bower_components", "third_party", "Godeps", "Pods", "dist", "__pycache__", ".yarn", ".venv",
    }
)  # fmt: skip
_LOCKS = frozenset(
    {
        "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "poetry.lock", "uv.lock",
        "pdm.lock", "Pipfile.lock", "Cargo.lock", "go.sum", "composer.lock", "Gemfile.lock", "mix.lock", "pubspec.lock",
        "flake.lock", "gradle.lockfile", "Package.resolved",
    }
)  # fmt: skip
_MINIFIED = (".min.js", ".min.css", ".min.mjs", ".js.map", ".css.map")
_MARK = re.compile(rb"^[ \t]*(?://|/?\*|#|--|<!--|;)[^\n]*\bCode generated\b[^\n]*\bDO NOT EDIT\b", re.MULTILINE)
_HEAD = 4096


def folder_of(path: str) -> str:
    """Return the outermost folder above a file that holds what others wrote or a build made (`a/vendor/`), or nothing."""
    parts = path.split("/")[:-1]
    at = next((n for n, part in enumerate(parts) if part in _FOLDERS), None)
    return "" if at is None else "/".join(parts[: at + 1]) + "/"


def by_name(path: str) -> str:
    """Return the rule that leaves out a file of this name, or nothing."""
    name = path.rsplit("/", 1)[-1]
    if name in _LOCKS:
        return "generated rule: a lock file"
    return "generated rule: minified, or a source map" if name.endswith(_MINIFIED) else ""


def by_attributes(values: Mapping[str, str]) -> str | None:
    """Return the rule by which a file's attributes leave it out, nothing if they say it is not, None if they are silent."""
    said = {name: values[name] for name in ATTRIBUTES if values.get(name, "unspecified") != "unspecified"}
    for name, value in said.items():
        if value in ("set", "true"):
            return f"{name.removeprefix('linguist-')} rule: .gitattributes says {name}"
    return "" if said else None


def by_content(data: bytes) -> str:
    """Return the rule by which a file's beginning leaves it out, or nothing."""
    return "generated rule: it says `Code generated … DO NOT EDIT`" if _MARK.search(data[:_HEAD]) else ""

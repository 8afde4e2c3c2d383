"""Named queries: blocks that start with `-- name: x` (SQL) or `// name: x` (Cypher), a line or more of comment, then one
statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_MARKS = {"sql": "--", "cypher": "//"}


def load(file: str) -> Mapping[str, str]:
    """Return the statements of `pipeline/sql/<file>.sql` by name.

    Raises:
        ValueError: a name occurs twice.
    """
    return _load("sql", file)


def load_cypher(file: str) -> Mapping[str, str]:
    """Return the statements of `pipeline/cypher/<file>.cypher` by name.

    Raises:
        ValueError: a name occurs twice.
    """
    return _load("cypher", file)


@cache
def _load(language: str, file: str) -> Mapping[str, str]:
    text = (files("pipeline") / language / f"{file}.{language}").read_text("utf-8")
    parts = re.split(rf"^{_MARKS[language]} name: (\w+)\s*$", text, flags=re.MULTILINE)
    names, bodies = parts[1::2], [body.strip().rstrip(";") for body in parts[2::2]]
    if len(set(names)) != len(names):
        raise ValueError(f"{file}.{language} names a query twice")
    return MappingProxyType(dict(zip(names, bodies, strict=True)))

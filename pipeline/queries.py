"""Named queries: `.sql` files are blocks that start with `-- name: x`, a line or more of comment, then one statement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_BLOCK = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load(file: str) -> Mapping[str, str]:
    """Return the statements of `pipeline/sql/<file>.sql` by name.

    Raises:
        ValueError: a name occurs twice.
    """
    parts = _BLOCK.split((files("pipeline") / "sql" / f"{file}.sql").read_text("utf-8"))
    names, bodies = parts[1::2], [body.strip().rstrip(";") for body in parts[2::2]]
    if len(set(names)) != len(names):
        raise ValueError(f"{file}.sql names a query twice")
    return MappingProxyType(dict(zip(names, bodies, strict=True)))

"""Names of Neo4j databases: which one holds the graphs of a corpus where each corpus has its own."""

from __future__ import annotations

import re

from pipeline.errors import ConfigurationError

LONGEST = 63

_OTHER = re.compile(r"[^a-z0-9]+")
_ACCEPTED = re.compile(r"(?!system)[a-z][a-z0-9.-]{2,62}", re.ASCII)


def sanitised(name: str) -> str:
    """Return a name in lower case with `_` for each run of other characters, starting with a letter, at most 63 long.

    Raises:
        ConfigurationError: nothing is left of it.
    """
    plain = _OTHER.sub("_", name.lower()).strip("_")
    if not plain:
        raise ConfigurationError(f"The name {name!r} has no letter or digit that could name a database.")
    return (f"db_{plain}" if plain[0].isdigit() else plain)[:LONGEST]


def database_name(corpus: str, prefix: str) -> str:
    """Return the database of a corpus: the prefix and the corpus's name, sanitised, with `-` for `_`.

    Neo4j takes ASCII letters, digits, dots and dashes, 3 to 63 characters, and keeps names on `system` for itself. Corpora
    whose names differ in other characters only share a database, which harms neither: a graph is found by its id.

    Raises:
        ConfigurationError: there is no such name; the message says why.
    """
    name = (prefix.lower() + sanitised(corpus)).replace("_", "-")[:LONGEST]
    if not _ACCEPTED.fullmatch(name):
        raise ConfigurationError(
            f"The corpus {corpus!r} would need a Neo4j database named {name!r}, and Neo4j refuses that name. "
            "Set a prefix for the databases that starts with a letter and is not `system`."
        )
    return name

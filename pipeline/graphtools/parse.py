"""Reading a query: from a text and parameters to a syntax tree that makes sense by itself, whatever the schema."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.graphtools import grammar
from pipeline.graphtools.parameters import frozen
from pipeline.graphtools.query import Query
from pipeline.graphtools.validate import validate


def parse(text: str, parameters: Mapping[str, object]) -> Query:
    """Return the query of a text. Its parameters are replaced by their values, which are copied.

    The first call of a process takes some 200 ms longer (`prepare`). A text of any kind takes a few milliseconds.

    Raises:
        Refusal: INVALID_ARGUMENT for parameters that are none, INVALID_QUERY with its kind and place, UNSUPPORTED_QUERY for
            what Cypher can say and this language cannot.
    """
    from pipeline.graphtools.build import build  # here, since it imports lark

    values = frozen(parameters)
    query = build(grammar.read(text), text, values)
    validate(query, text)
    return query


def prepare() -> None:
    """Make ready what `parse` needs. It blocks for some 200 ms the first time: call it in a thread."""
    from pipeline.graphtools.build import build

    build(grammar.read("MATCH (n) RETURN n"), "", {})

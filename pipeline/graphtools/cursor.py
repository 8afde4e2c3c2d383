"""Cursors: where the next page begins, bound to the query, the source and the generation of the pages before it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from pipeline.errors import Refusal
from pipeline.graphtools.query import (
    Condition,
    EdgePattern,
    Junction,
    Negation,
    NodePattern,
    Projection,
    PropertyPattern,
    Query,
    Value,
)
from pipeline.graphtools.refusal import Code, invalid_argument

_CURSOR = re.compile(r"offset:(0|[1-9][0-9]{0,14}):([0-9a-f]{16})")
_TYPES: dict[type, str] = {str: "STRING", bool: "BOOLEAN", int: "INT64", float: "DOUBLE"}

Field = str | None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The number of rows before a page, and the fingerprint of what they are rows of. As text: `offset:<n>:<16 hex>`."""

    offset: int
    fingerprint: str

    def __str__(self) -> str:
        return f"offset:{self.offset}:{self.fingerprint}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cursor of a text; white space around it is ignored.

        Raises:
            Refusal: INVALID_ARGUMENT: it is none, or is bound to no query; UNSUPPORTED_FEATURE: it is a store's own.
        """
        text = text.strip()
        if not text.startswith("offset:"):
            raise Refusal(Code.UNSUPPORTED_FEATURE, "Portable default paging only understands offset cursors")
        if text.startswith("offset:-"):
            raise invalid_argument("offset must not be negative")
        if not (found := _CURSOR.fullmatch(text)):
            raise invalid_argument("invalid graph page cursor")
        return cls(int(found[1]), found[2])


def fingerprint(source: str, space: str, query: Query, graph_id: str) -> str:
    """Return what tells apart the pages of different walks: other sources, spaces, queries, values, or generations.

    How a query is spelt does not matter, nor whether a value stands in it or comes from a parameter.
    """
    shape = [*(len(node.labels) for node in query.nodes), *(len(edge.types) for edge in query.edges)]
    counts = [len(query.steps), len(query.projections), len(query.order), len(query.group), *shape]
    return _digest([source, space, graph_id, *map(str, counts), *_fields(query)])


def query_fingerprint(query: Query) -> str:
    """Return the fingerprint of a query alone, as the framework makes it that this language comes from."""
    return _digest(_fields(query))


def _digest(fields: Iterable[Field]) -> str:
    told = "".join(map(_encoded, fields))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _encoded(field: Field) -> str:
    text = "<null>" if field is None else field
    return f"{len(text)}:{text};"


def _fields(query: Query) -> Iterator[Field]:
    yield from _node(query.start)
    for step in query.steps:
        yield from _edge(step.edge)
        yield from _node(step.node)
    yield from _condition(query.where)
    for shown in query.projections:
        yield from (_kind(shown), shown.alias, shown.name, shown.output)
        yield shown.aggregate.name if shown.aggregate else None
    for sort in query.order:
        yield from (sort.alias, sort.name, "DESC" if sort.descending else "ASC")
    for key in query.group:
        yield from (key.alias, key.name)
    yield None  # HAVING
    yield str(query.distinct).lower()


def _node(node: NodePattern) -> Iterator[Field]:
    yield from (node.alias, *node.labels)
    yield from _properties(node.properties)


def _edge(edge: EdgePattern) -> Iterator[Field]:
    yield from (edge.alias, *edge.types, edge.direction, str(edge.least), str(edge.most))
    yield from _properties(edge.properties)


def _properties(properties: Iterable[PropertyPattern]) -> Iterator[Field]:
    for one in sorted(properties, key=lambda one: one.name):
        yield from (one.name, _value(one.value))


def _condition(condition: Condition | None) -> Iterator[Field]:
    match condition:
        case None:
            yield None
        case Junction(joining, left, right):
            yield from (joining, None, None, None, None)
            yield from _condition(left)
            yield from _condition(right)
        case Negation(inner):
            yield from ("NOT", None, None, None, None)
            yield from _condition(inner)
        case _:
            value = "".join(_encoded(_value(one)) for one in condition.values)
            single = _value(condition.values[0]) if len(condition.values) == 1 else f"LIST:{value}"
            yield from ("PREDICATE", condition.alias, condition.name, condition.operator.name, single)


def _kind(shown: Projection) -> str:
    if shown.aggregate:
        return "AGGREGATE"
    return "PATH" if shown.path else "ENTITY" if shown.name is None else "PROPERTY"


def _value(value: Value) -> Field:
    return None if value is None else f"{_TYPES[type(value)]}:{_spelt(value)}"


def _spelt(value: str | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

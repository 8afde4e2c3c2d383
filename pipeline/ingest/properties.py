"""Extracted properties as documents may give them: bounded, cleaned, and by names that every store can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from pipeline.errors import DocumentError
from pipeline.graphs.columns import ENTITY_COLUMNS, RELATION_COLUMNS
from pipeline.graphs.parts import RESERVED
from pipeline.ingest.clean import clean
from schemas.graph import MAX_PROPERTIES, Scalar

MAX_NAME = 100
"""Characters of a property's name."""

MAX_TEXT = 4096
"""Bytes of a text in UTF-8."""

OF_ENTITIES = RESERVED | ENTITY_COLUMNS
"""Names that no property of an entity can have: they say what the entity itself is."""

OF_RELATIONS = RESERVED | RELATION_COLUMNS
"""Those of relations."""


def read_properties(value: object, reserved: frozenset[str], at: str) -> dict[str, Scalar]:
    """Return the properties that a JSON object gives. `at` is where it stands, which the messages name.

    A name is an identifier of up to MAX_NAME characters, in any script. Texts are cleaned as documents are.

    Raises:
        DocumentError: it is no object or too large, or a name or value cannot be stored.
    """
    if not isinstance(value, dict):
        raise DocumentError(f"`{at}` must be an object")
    given = cast("Mapping[str, object]", value)
    if len(given) > MAX_PROPERTIES:
        raise DocumentError(f"`{at}` has {len(given)} properties, of which {MAX_PROPERTIES} are allowed")
    return {_name(name, reserved, at): _scalar(one, f"{at}.{name}") for name, one in given.items()}


def read_text(value: object, at: str) -> str:
    """Return a cleaned text of up to MAX_TEXT bytes.

    Raises:
        DocumentError: it is none.
    """
    text = clean(value)[0] if isinstance(value, str) else None
    if text is None or len(text.encode()) > MAX_TEXT:
        raise DocumentError(f"`{at}` must be a string of at most {MAX_TEXT} bytes")
    return text


def _name(name: str, reserved: frozenset[str], at: str) -> str:
    if name in reserved:
        raise DocumentError(f"`{at}.{name}` is a reserved name")
    if len(name) > MAX_NAME or not name.isidentifier():
        raise DocumentError(f"`{at}` has a name that is no identifier of at most {MAX_NAME} characters")
    return name


def _scalar(value: object, at: str) -> Scalar:
    match value:
        case bool():
            return value
        case int() if -(1 << 63) <= value < 1 << 63:
            return value
        case float() if math.isfinite(value):
            return value + 0.0  # minus zero becomes zero: PostgreSQL knows only one
        case str():
            return read_text(value, at)
        case _:
            raise DocumentError(f"`{at}` must be a string, a number of at most 64 bits, or true or false")

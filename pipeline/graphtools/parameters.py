"""The values of parameters: what JSON can say, without objects, checked and frozen before a query is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from pipeline.graphtools.query import Value
from pipeline.graphtools.refusal import invalid_argument

MOST_PARAMETERS = 100
MOST_NAME = 100
"""Characters of a name."""

MOST_VALUES = 1_000
"""Of all parameters, the elements of lists included."""

MOST_CHARACTERS = 65_536
"""Of all texts among the values."""

LEAST_INTEGER, MOST_INTEGER = -(2**63), 2**63 - 1

Given = Value | tuple[Value, ...]
"""The value of a parameter: one, or a list for IN."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def frozen(parameters: Mapping[str, object]) -> dict[str, Given]:
    """Return the parameters as they are now; what the caller does to its lists later has no effect.

    Raises:
        Refusal: a name that no query can use, a value that is none, or too much of either.
    """
    if len(parameters) > MOST_PARAMETERS:
        raise invalid_argument(f"A query has at most {MOST_PARAMETERS} parameters")
    if any(len(name) > MOST_NAME for name in parameters):
        raise invalid_argument(f"The name of a query parameter has at most {MOST_NAME} characters")
    if not all(_NAME.fullmatch(name) for name in parameters):
        raise invalid_argument("query parameter must match [A-Za-z_][A-Za-z0-9_]*")
    listed = {name: _listed(value) for name, value in parameters.items()}
    _check_size(listed.values())
    checked = {name: tuple(_value(name, one) for one in values) for name, values in listed.items()}
    return {
        name: checked[name] if isinstance(value, list | tuple) else checked[name][0]
        for name, value in parameters.items()
    }


def _listed(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)


def _check_size(given: Iterable[Sequence[object]]) -> None:
    values = [one for listed in given for one in listed]
    if len(values) > MOST_VALUES:
        raise invalid_argument(f"The parameters of a query have at most {MOST_VALUES} values")
    if sum(len(value) for value in values if isinstance(value, str)) > MOST_CHARACTERS:
        raise invalid_argument(f"The parameters of a query have at most {MOST_CHARACTERS} characters")


def _value(name: str, value: object) -> Value:
    match value:
        case None | bool():
            return value
        case int() if LEAST_INTEGER <= value <= MOST_INTEGER:
            return value
        case float() if math.isfinite(value):
            return value
        case str() if not _NO_TEXT.search(value):
            return value
        case int() | float():
            raise invalid_argument(f"query parameter '{name}' must be a 64-bit integer or a finite number")
        case str():
            raise invalid_argument(f"query parameter '{name}' must not contain NUL or half a character")
        case _:
            raise invalid_argument(
                f"query parameter '{name}' must be a string, number, boolean, null or a list of these"
            )

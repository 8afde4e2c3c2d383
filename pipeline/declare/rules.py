"""What the members of a declaration may be: a rule for each, and errors that name the member and the cure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import cast

from pipeline.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Rule:
    """What a member may be: as words that follow "must be", and as a test. A member that is `many` has a tuple of values."""

    says: str
    holds: Callable[[object], bool]
    many: bool = False


def whole(low: int, high: int) -> Rule:
    """Return the rule of a whole number from `low` to `high`."""
    return Rule(f"a whole number from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(low: float, high: float) -> Rule:
    """Return the rule of a number from `low` to `high`."""
    return Rule(f"a number from {low:g} to {high:g}", lambda value: low <= _number(value) <= high)


def one_of(choices: type[StrEnum]) -> Rule:
    """Return the rule of a member of an enumeration."""
    return Rule(f"one of {', '.join(_names(choices))}", lambda value: isinstance(value, choices))


SECONDS = Rule("a number of seconds above 0", lambda value: 0 < _number(value) < math.inf)
DAYS = Rule("a number of days above 0, 36500 at most", lambda value: 0 < _number(value) <= 36_500)
FLAG = Rule("True or False", lambda value: isinstance(value, bool))
TEXT = Rule("a text that is not blank and can be stored as UTF-8 without NUL", lambda value: _is_text(value))
NAME = Rule(f"{TEXT.says}, of 200 characters at most", lambda value: TEXT.holds(value) and _length(value) <= 200)
TEXTS = Rule(
    "a tuple of texts, none of them blank",
    lambda value: isinstance(value, tuple) and all(map(TEXT.holds, cast("tuple[object, ...]", value))),
    many=True,
)


def check(values: Mapping[str, object], rules: Mapping[str, Rule], prefix: str = "") -> None:
    """Hold each value to the rule of its name.

    Raises:
        ConfigurationError: a value breaks its rule, or there are several where there can be one.
    """
    for name, value in values.items():
        rule = rules[name]
        if _is_many(value) and not rule.many:
            kind = f"{type(value).__name__} of {_length(value)}"
            raise ConfigurationError(f"{prefix}{name} is a {kind}; give one value, as it is.")
        if not rule.holds(value):
            raise ConfigurationError(f"{prefix}{name} must be {rule.says}, not {_shown(value)}.")


def written(kind: str, name: str, given: Mapping[str, object], secret: Collection[str] = ()) -> str:
    """Return how a value is written in code: with what is given alone, and three dots for what may be a secret."""
    members = [f"{member}={'...' if member in secret else _code(value)}" for member, value in given.items()]
    return f"{kind}({', '.join([name, *members] if name else members)})"


@contextmanager
def within(place: str) -> Generator[None, None, None]:
    """Put the place before the message of a configuration error that comes from the block."""
    try:
        yield
    except ConfigurationError as error:
        raise type(error)(f"{place}: {error}") from error.__cause__


def _number(value: object) -> float:
    """Return a number as it is; nan, which is in no range, stands for all else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    return value == value.replace("\0", "").encode("utf-8", "ignore").decode()


def _code(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _length(value: object) -> int:
    return len(cast("Sized", value))


def _is_many(value: object) -> bool:
    return isinstance(value, tuple | list | set | frozenset)


def _names(choices: type[StrEnum]) -> list[str]:
    return [f"{choices.__name__}.{name}" for name in choices.__members__]


def _shown(value: object) -> str:
    """Return a number as it is; of anything else, which can be a secret, only what it is."""
    if isinstance(value, str) and not value.strip():
        return "a blank one"
    return repr(value) if isinstance(value, int | float) else type(value).__name__

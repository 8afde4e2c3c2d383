"""Points in time, as metadata and requests write them: ISO 8601, or seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_UNIX = re.compile(r"-?\d{9,12}(\.\d+)?")
"""A text that is a number of seconds; with fewer digits it could as well be a year or a date."""

_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0
"""The seconds of the years 1 and 9999."""


def moment(value: Any) -> float | None:
    """Return the seconds since 1970 of an ISO date or time or of a number of seconds, None for anything else.

    A date means its first second, and a time without an offset is UTC.
    """
    if isinstance(value, str):
        text = value.strip()
        return _bounded(float(text)) if _UNIX.fullmatch(text) else _iso(text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounded(value)
    return None


def _bounded(seconds: float) -> float | None:
    return float(seconds) if _FIRST <= seconds <= _LAST else None


def _iso(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text)
        return _bounded((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None

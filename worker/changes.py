"""Settings written as `key=value` on a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

import orjson
from pydantic import ValidationError

from pipeline.errors import ConfigurationError
from schemas.settings import CorpusSettings


def apply_changes(settings: CorpusSettings, changes: Sequence[str]) -> CorpusSettings:
    """Return the settings with `section.field=value` changes; values are JSON, or else text.

    Raises:
        ConfigurationError: names the field and what is wrong with it.
    """
    values = settings.model_dump(mode="json")
    for change in changes:
        path, equals, text = change.partition("=")
        section, dot, field = path.strip().partition(".")
        known = values.get(section)
        if not equals or not dot or not isinstance(known, dict):
            sections = ", ".join(sorted(name for name, fields in values.items() if isinstance(fields, dict)))
            raise ConfigurationError(f"{change!r} is not section.field=value; the sections are {sections}")
        fields = cast("dict[str, Any]", known)
        if field not in fields:
            raise ConfigurationError(f"{section}.{field}: there is no such setting; {_near(section, field, fields)}")
        fields[field] = _value(text)
    return validated(values)


def validated(values: dict[str, Any]) -> CorpusSettings:
    """Return the settings in these values. Raises ConfigurationError naming the first bad field."""
    try:
        return CorpusSettings.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(first_fault(error)) from error


def first_fault(error: ValidationError) -> str:
    """Return the first field that is wrong, and what is wrong with it."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


def _near(section: str, field: str, fields: Mapping[str, Any]) -> str:
    close = get_close_matches(field, fields, n=1)
    return f"did you mean {section}.{close[0]}?" if close else f"{section} has {', '.join(fields)}"


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text

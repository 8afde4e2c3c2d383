"""Settings written as `key=value` on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        if not equals or not dot or section not in values:
            sections = ", ".join(sorted(values))
            raise ConfigurationError(f"{change!r} is not section.field=value; the sections are {sections}")
        values[section][field] = _value(text)
    return validated(values)


def validated(values: dict[str, Any]) -> CorpusSettings:
    """Return the settings in these values. Raises ConfigurationError naming the first bad field."""
    try:
        return CorpusSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigurationError(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text

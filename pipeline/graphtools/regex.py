"""Regular expressions in RE2 syntax, whose matching takes time linear in the text. The one typed place for `google-re2`."""

from __future__ import annotations

from typing import Protocol, cast

from pipeline.graphtools.refusal import invalid_argument

MOST_CHARACTERS = 200
"""Of the patterns of a query, in all: a Unicode class takes up to 0.15 ms to compile."""

MOST_MEMORY = 256 * 1024
"""Bytes of a compiled pattern; one that would need more is refused."""

MOST_REASON = 100
"""Characters of what the library says, which may quote the pattern."""


class _Compiled(Protocol):
    def fullmatch(self, text: bytes) -> object | None: ...


class _Options(Protocol):
    log_errors: bool
    never_capture: bool
    max_mem: int


class _Library(Protocol):
    """What is used of re2, which has no types."""

    error: type[Exception]

    def Options(self) -> _Options: ...
    def compile(self, pattern: str, options: _Options) -> _Compiled: ...


class Pattern:
    """A compiled pattern. Upper and lower case differ and a dot is no line break, unless the pattern's flags say otherwise."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled

    def fullmatch(self, text: str) -> object | None:
        """Return something if all of the text matches, else None."""
        # As bytes, since for text the library works out offsets that nobody wants.
        return self._compiled.fullmatch(text.encode("utf-8", "replace"))


def compiled(pattern: str) -> Pattern:
    """Return a pattern; the last 128 are remembered.

    Raises:
        Refusal: it is not in RE2 syntax (there are no back references and no look-around), or is too large.
    """
    import re2  # here, since most processes never ask for a pattern

    if len(pattern) > MOST_CHARACTERS:
        raise invalid_argument(f"A REGEX has at most {MOST_CHARACTERS} characters")
    library = cast("_Library", re2)
    options = library.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MOST_MEMORY
    try:
        return Pattern(library.compile(pattern, options))
    except library.error as error:
        raise invalid_argument(f"REGEX is not in RE2 syntax, or too large: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return (said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))[:MOST_REASON]

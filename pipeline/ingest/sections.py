"""The sections of a document: the largest ones that fit into a chunk, and the own text of those that do not."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.documents import Heading

_HEADING_LINES = re.compile(r"(?:[^\w\n]*\n)?[^\n]*\n?(?:[=\-~^\"'+*:.#<>_]{3,}[ \t]*(?:\n|\Z))?")


@dataclass(frozen=True, slots=True)
class Section:
    """The span `[start, end)` in characters, the headings above it, and where the text behind its own begins."""

    start: int
    end: int
    path: tuple[str, ...] = ()
    body: int = 0


def sections(text: str, headings: tuple[Heading, ...], limit: int) -> Iterator[Section]:
    """Yield spans that cover the text, in order.

    A section that fits into `limit` characters with all its subsections is one span; else its own text is one and each
    subsection is looked at on its own. A heading with nothing of its own below it goes with what follows.
    """
    paths = _paths(headings)
    if len(text.strip()) <= limit or not headings:
        first = bool(headings) and not text[: headings[0].offset].strip()
        yield Section(0, len(text), paths[0] if first else (), 0)
        return
    ends = _ends(headings, len(text))
    start = body = i = 0
    path: tuple[str, ...] = ()
    while i < len(headings):
        at = headings[i].offset
        if text[body:at].strip():
            yield Section(start, at, path, body)
            start = at
        path = paths[i]
        body = _behind(text, at)
        if ends[i] - start <= limit:
            yield Section(start, ends[i], path, body)
            start = body = ends[i]
            i = bisect_left(headings, ends[i], key=lambda heading: heading.offset)
            path = ()
        else:
            i += 1
    if start < len(text):
        yield Section(start, len(text), path, body)


def _behind(text: str, offset: int) -> int:
    """Return where the lines of the heading at this offset end."""
    match = _HEADING_LINES.match(text, offset)
    return match.end() if match else offset


def _ends(headings: tuple[Heading, ...], end: int) -> list[int]:
    """Return where each section ends with all its subsections: at the next heading that is not deeper."""
    ends = [end] * len(headings)
    above: list[int] = []
    for i, heading in enumerate(headings):
        while above and headings[above[-1]].level >= heading.level:
            ends[above.pop()] = heading.offset
        above.append(i)
    return ends


def _paths(headings: tuple[Heading, ...]) -> list[tuple[str, ...]]:
    """Return for each heading those above it and itself, coarsest first."""
    paths: list[tuple[str, ...]] = []
    above: list[Heading] = []
    for heading in headings:
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
        paths.append(tuple(h.text for h in above))
    return paths

"""A source file to chunks: one for each symbol that fits, so that a hit is a function or a class and not some of its lines.

A symbol that fits is one chunk with its decorators and the comment above it. One that does not is cut at the symbols within:
each is looked at in the same way, and what stands between them (a class's head and fields, the code of a module) forms
chunks of its own. What is still too long goes to the splitter of plain text. So an edit touches the chunk of its symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline.codegraph.summary import Summary
from pipeline.ingest.chunk import Sizes, Span, split, trimmed
from pipeline.ingest.sections import Section

VERSION = "cut-1"

_HASH = re.compile(r"[ \t]*#")
_SLASHES = re.compile(r"[ \t]*(?://|#\[)")
"""How a line of a comment begins, or a Rust attribute."""

_OPENS = re.compile(r"[{(:][ \t]*$")
_APART = re.compile(r"[;{}]")
"""What separates a symbol from another statement on its line."""

_CLOSES = re.compile(r"[ \t)\]};,]*(?:(?:#|//|/\*).*)?")
_WORD = re.compile(r"\w")


@dataclass(slots=True)
class _Node:
    """A symbol, or with an empty path the file, as `[start, end)` with the symbols directly within."""

    start: int
    end: int
    path: tuple[str, ...] = ()
    within: list[_Node] = field(default_factory=list["_Node"])


def spans(text: str, summary: Summary, sizes: Sizes) -> list[Span]:
    """Return the chunks of a source file in order; `path` of each holds the parts of its symbol's qualified name.

    Each is at most `max_chars` long and has no white space at its ends; what lies between two is white space only, and
    two overlap only where a text was split.
    """
    found: list[Span] = []
    for span in _pieces(text, _tree(text, summary), sizes):
        _add(found, span, text, sizes.max_chars)
    return found


def _tree(text: str, summary: Summary) -> _Node:
    """Return the symbols by where they stand: a method that is written outside of its type is no part of that.

    What crosses the end of another symbol is left to that.
    """
    comment = _HASH if summary.language == "python" else _SLASHES
    root = _Node(0, len(text))
    above = [root]
    for symbol in sorted(summary.symbols, key=lambda one: (one.start, -one.end)):
        while len(above) > 1 and symbol.start >= above[-1].end:
            above.pop()
        parent = above[-1]
        floor = parent.within[-1].end if parent.within else parent.start
        if not floor <= symbol.start < symbol.end <= parent.end:
            continue
        start = _beginning(text, floor, symbol.start, comment, outermost=parent is root)
        node = _Node(start, _ending(text, symbol.end, parent.end), tuple(symbol.qualname.split(".")))
        parent.within.append(node)
        above.append(node)
    return root


def _beginning(text: str, floor: int, start: int, comment: re.Pattern[str], *, outermost: bool) -> int:
    """Return where a symbol begins with its line, the comment directly above it and, outside of all symbols, the lines
    that open the block it stands in (Rust's `impl`), but not before `floor`.
    """
    at = text.rfind("\n", 0, start) + 1
    if at < floor or _APART.search(text, at, start):
        return start
    while at > floor:
        above = text.rfind("\n", 0, at - 1) + 1
        line = text[above : at - 1]
        if line.rstrip().endswith("*/") and (opened := text.rfind("/*", floor, at)) >= 0:
            above = text.rfind("\n", 0, opened) + 1
        elif not comment.match(line) and not (outermost and _OPENS.search(line)):
            break
        if above < floor:
            break
        at = above
    return at


def _ending(text: str, end: int, limit: int) -> int:
    """Return where a symbol ends with the rest of its line, if that only closes something or is a comment."""
    line = text.find("\n", end, limit)
    line = limit if line < 0 else line
    return line if _CLOSES.fullmatch(text, end, line) else end


def _pieces(text: str, node: _Node, sizes: Sizes) -> Iterator[Span]:
    """Yield the chunks of a symbol that fits, else those of its own text and of the symbols within, in order."""
    whole = trimmed(text, node.start, node.end, node.path)
    if node.path and whole and whole.end - whole.start <= sizes.max_chars:
        yield whole
        return
    at = node.start
    for one in node.within:
        yield from split(text, Section(at, one.start, node.path, at), sizes, marked_up=False)
        yield from _pieces(text, one, sizes)
        at = one.end
    yield from split(text, Section(at, node.end, node.path, at), sizes, marked_up=False)


def _add(found: list[Span], span: Span, text: str, limit: int) -> None:
    """Append a chunk; one that has no word in it (`}`) goes with its neighbour where the two fit together."""
    if found and span.end - found[-1].start <= limit:
        before = found[-1]
        if not _WORD.search(text, span.start, span.end):
            found[-1] = Span(before.start, span.end, before.path)
            return
        if not _WORD.search(text, before.start, before.end):
            found[-1] = Span(before.start, span.end, span.path)
            return
    found.append(span)

"""Where a long text is cut before it is chunked, chosen by content so that an edit moves no cut far from it.

A place where a paragraph (then a line, then a word) begins is a cut if the hash of what follows is the smallest of all
such places within a window on both sides. Whether a place is a cut thus depends on the text within the window alone:
after an edit the cuts beyond it are what they were. (Local-maximum chunking: Bjørner, Blass and Gurevich, 2010.)
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from zlib import crc32

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LINE = re.compile(r"\n")
_WORD = re.compile(r"\s+|(?<=[,;.!?。！？、}\]])(?=\S)")
_LEVELS = (_PARAGRAPH, _LINE, _WORD)
_SEEN = 48
"""Characters after a place that are hashed."""


def blocks(text: str, start: int, end: int, window: int, level: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the spans that `text[start:end]` is cut into, in order and without gaps; each has at most 8 windows.

    Linear in the length. A block that is still too long is cut at finer places, at last every `window` characters.
    """
    if end - start <= window:
        yield start, end
        return
    if level == len(_LEVELS):
        yield from ((at, min(at + window, end)) for at in range(start, end, window))
        return
    edges = [start, *_cuts(text, start, end, window, _LEVELS[level]), end]
    for left, right in pairwise(edges):
        if right - left <= 8 * window:
            yield left, right
        else:
            yield from blocks(text, left, right, window, level + 1)


def _cuts(text: str, start: int, end: int, window: int, pattern: re.Pattern[str]) -> Iterator[int]:
    """Yield the places that are minimal within their window, by a queue of rising hashes on each side."""
    places = [at for match in pattern.finditer(text, start, end) if start < (at := match.end()) < end]
    hashes = [crc32(text[at : at + _SEEN].encode("utf-8", "surrogatepass")) for at in places]
    ahead = 0
    rising: deque[int] = deque()  # of the places in the window of i, those that are smaller than all behind them
    for i, at in enumerate(places):
        while ahead < len(places) and places[ahead] <= at + window:
            while rising and hashes[rising[-1]] > hashes[ahead]:
                rising.pop()
            rising.append(ahead)
            ahead += 1
        while places[rising[0]] < at - window:
            rising.popleft()
        if rising[0] == i:
            yield at

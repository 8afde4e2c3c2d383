"""HTML to Markdown-like text with exact heading offsets.

kreuzberg's converter was measured to lose, silently, all text more than 64 elements deep and all forms and menus; this
one is linear, has no stack to overflow, and keeps every text that a reader could see.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from schemas.documents import Heading

_HIDDEN = frozenset({"script", "style", "template", "svg", "head", "object"})
_BLOCK_NAMES = """
address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure footer form
header hr html li main menu nav ol p pre section summary table tbody tfoot thead tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_OPENS_BODY = frozenset({"body", "frameset"}) | _HEADINGS | (_BLOCKS - {"html"})
_SPACE = re.compile(r"\s+")


class Page(HTMLParser):
    """Reads one page: `feed`, `close`, then `text`, `title` and `headings`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.headings: list[Heading] = []
        self._out: list[str] = []
        self._length = 0
        self._hidden = ""  # the tag that hides what is within
        self._depth = 0  # of that tag within itself
        self._pre = 0
        self._in_title = False
        self._heading: tuple[int, int] | None = None  # offset and level

    @property
    def text(self) -> str:
        return "".join(self._out).rstrip() + "\n" if self._length else ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and self._hidden in ("", "head"):
            self._in_title = not self.title
        if self._hidden == "head" and tag in _OPENS_BODY:
            self._hidden = ""  # an end tag of `head` may be left out
        if self._hidden or tag in _HIDDEN:
            self._hide(tag)
        elif tag in _HEADINGS:
            self._break("\n\n")
            self._heading = (self._length, int(tag[1]))
            self._write("#" * int(tag[1]) + " ")
        elif tag == "br":
            self._break("\n")
        elif tag in ("td", "th"):
            self._cell()
        elif tag in _BLOCKS:
            self._open_block(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._hidden:
            self._depth -= tag == self._hidden
            if self._depth <= 0:
                self._hidden = ""
        elif tag in _HEADINGS:
            self._close_heading()
        elif tag in _BLOCKS:
            if tag == "pre" and self._pre:
                self._pre -= 1
                self._break("\n")
                self._write("```")
            self._break("\n" if tag in ("li", "tr", "dt", "dd") else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = _SPACE.sub(" ", self.title + data)
        if self._hidden or self._in_title:
            return
        if self._pre:
            self._write(data)
            return
        data = _SPACE.sub(" ", data)
        if self._at_line_start() or (self._out and self._out[-1].endswith(" ")):
            data = data.lstrip(" ")
        self._write(data)

    def close(self) -> None:
        super().close()
        self._close_heading()
        self.title = self.title.strip()

    def _hide(self, tag: str) -> None:
        if not self._hidden:
            self._hidden, self._depth = tag, 1
        elif tag == self._hidden:
            self._depth += 1

    def _open_block(self, tag: str) -> None:
        self._close_heading()
        self._break("\n" if tag in ("li", "tr", "dt", "dd") else "\n\n")
        if tag == "li":
            self._write("- ")
        elif tag == "pre":
            self._pre += 1
            self._write("```\n")

    def _cell(self) -> None:
        if not self._at_line_start():
            self._write(" | ")

    def _close_heading(self) -> None:
        if self._heading:
            offset, level = self._heading
            self._heading = None
            text = self._tail(offset)[level + 1 :].strip()
            if text:
                self.headings.append(Heading(offset, level, text))
            self._break("\n\n")

    def _tail(self, offset: int) -> str:
        """Return what was written from an offset on."""
        parts: list[str] = []
        at = self._length
        for part in reversed(self._out):
            if at <= offset:
                break
            at -= len(part)
            parts.append(part)
        return "".join(reversed(parts))

    def _at_line_start(self) -> bool:
        return not self._out or self._out[-1].endswith("\n")

    def _break(self, wanted: str) -> None:
        """End the line, or the paragraph, unless that was just done; within a heading it is but a space."""
        if self._heading:
            self._write(" ")
        elif self._out:
            last = self._out[-1] if len(self._out[-1]) > 1 or len(self._out) < 2 else self._out[-2] + self._out[-1]
            missing = len(wanted) - (len(last) - len(last.rstrip("\n")))
            self._write("\n" * max(0, missing))

    def _write(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._length += len(text)


def read_page(html: str) -> Page:
    """Return a page that has been read to its end."""
    page = Page()
    page.feed(html)
    page.close()
    return page

"""The headings of Markdown and reStructuredText, and the front matter of Markdown, read from the text itself."""

from __future__ import annotations

import re
from itertools import pairwise

from schemas.documents import Heading

_LINE = re.compile(r"[^\n]*\n?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*$|    |\t| {0,3}(?:[-*+>|]|\d{1,9}[.)])\s?")
_ADORNMENT = re.compile(r"([=\-`:.'\"~^_*+#<>])\1*[ \t]*$")
_FIELD = re.compile(r"([A-Za-z][\w-]{0,60}):[ \t]+(\S.{0,500})")
_LONGEST = 500  # characters of a line that may still be a heading: this bounds every pattern here
_MARKUP = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)|[*`]+|<[^>\n]*>|\\(?=[!-/:-@\[-`{-~])")


def markdown_headings(text: str) -> tuple[Heading, ...]:
    """Return ATX and setext headings in order; what stands in front matter or in a fenced block is none."""
    found: list[Heading] = []
    fence = ""
    offset = front_matter_end(text)
    before, before_at = "", offset
    for match in _LINE.finditer(text, offset):
        line = match[0].rstrip("\n")
        opening = _FENCE.match(line)
        if fence:
            if opening and opening[1].startswith(fence) and not opening[2].strip():
                fence = ""
            line = ""
        elif opening and not (opening[1][0] == "`" and "`" in opening[2]):
            fence, line = opening[1], ""
        elif len(line) > _LONGEST:
            line = ""
        elif atx := _ATX.match(line):
            found.append(Heading(match.start(), len(atx[1]), _plain(atx[2] or "")))
            line = ""
        elif (setext := _SETEXT.match(line)) and not _NO_PARAGRAPH.match(before):
            found.append(Heading(before_at, 1 if setext[1][0] == "=" else 2, _plain(before)))
            line = ""
        before, before_at = line, match.start()
    return tuple(heading for heading in found if heading.text)


def rst_headings(text: str) -> tuple[Heading, ...]:
    """Return section titles in order; the first adornment style met is level 1, as docutils has it."""
    lines = [(match.start(), match[0].rstrip()) for match in _LINE.finditer(text)]
    found: list[Heading] = []
    styles: list[str] = []
    for i, ((at, title), (_, under)) in enumerate(pairwise(lines)):
        mark = _ADORNMENT.match(under)
        if not mark or not 0 < len(title.strip()) <= min(len(under), _LONGEST) or _ADORNMENT.match(title):
            continue
        over = lines[i - 1] if i and lines[i - 1][1] == under else None
        before = lines[i - 1][1] if i else ""
        if not over and (title[0].isspace() or before.strip()):
            continue
        style = mark[1] * (2 if over else 1)
        if style not in styles:
            styles.append(style)
        found.append(Heading(over[0] if over else at, styles.index(style) + 1, title.strip()))
    return tuple(found)


def front_matter_end(text: str) -> int:
    """Return the offset behind a YAML front matter (`---` to `---`), or 0."""
    if not text.startswith("---\n"):
        return 0
    end = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE).search(text, 4)
    return end.end() if end and end.start() < 20_000 else 0


def front_matter(text: str) -> dict[str, str]:
    """Return the plain `key: value` lines of a front matter; nested values are left in the text."""
    found: dict[str, str] = {}
    for line in text[: front_matter_end(text)].splitlines():
        if field := _FIELD.match(line):
            found.setdefault(field[1], field[2].strip().strip("\"'"))
    return found


def _plain(heading: str) -> str:
    """Return a heading without its inline markup."""
    return _MARKUP.sub(lambda match: match[1] or "", heading).strip()

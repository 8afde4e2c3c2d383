"""From hits to the text that a model is shown: each rendered by a template, in order of rank, within a window of tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from pipeline.declare.fence import holdable
from pipeline.declare.tokens import Tokenizer
from pipeline.errors import ConfigurationError, InvalidRequest, ModelError
from schemas.query import Hit

PLACEHOLDERS = ("source", "content", "title", "lines", "score")
"""What `${…}` can name: the document, the text, the document's title, its lines (`12-20`), the score (`0.871`)."""

USEFUL = 40
"""Characters that the beginning of a further document must have to be worth showing."""

MORE = " …"
"""What stands for the rest of a document that is cut."""

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_SENTENCE = re.compile(r"\n|(?<![.!?…])[.!?…]++[\"')\]»”’]*+(?=\s)|[。！？｡]++[」』”）]*+")
"""Each run of marks is tried from its beginning only, so that a million full stops take no longer than other text."""

_WORD = re.compile(r"\S(?=\s)")
_STEP = 1024
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""Regional indicators: two make a flag."""

_VIRAMA = 9
"""The combining class of what joins two consonants."""

_MARKS = 32
"""Marks on one character that are kept with it; Unicode's stream-safe text has no more than thirty."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What is said of a source, or of the role: it stands above the documents, as `[About NAME]` and the text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """The context of one call.

    Attributes:
        text: not escaped, and such that XML can hold it.
        tokens: of the text, by the tokenizer that was used.
        shown: documents whose text is in it; the last of them may be cut.
        cut: whether it is.
        dropped: the chunks that are not in it, in order of rank.
        sources: where the shown documents are from, in order of rank, each once.
    """

    text: str = ""
    tokens: int = 0
    shown: int = 0
    cut: bool = False
    dropped: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether the window kept anything out."""
        return self.cut or bool(self.dropped)


def check_format(text: str) -> None:
    """Do nothing if this is a template of a document.

    Raises:
        ConfigurationError: it names what there is not, is not closed, or would render no content.
    """
    names = _PLACEHOLDER.findall(text)
    known = ", ".join(f"${{{name}}}" for name in PLACEHOLDERS)
    if unknown := [name for name in names if name not in PLACEHOLDERS]:
        raise ConfigurationError(f"search.context_format has ${{{unknown[0][:80]}}}, but there are only {known}.")
    if text.rfind("${") > text.rfind("}"):
        raise ConfigurationError("search.context_format has ${ without }: close it; there are " + known + ".")
    if "content" not in names:
        raise ConfigurationError("search.context_format lacks ${content}, so that nothing would be rendered; add it.")


def render(
    hits: Sequence[Hit], context_format: str, context_window: int, tokenizer: Tokenizer, specs: Iterable[Spec] = ()
) -> Rendered:
    """Return the context that these hits make: as many whole documents as fit, best first, then the beginning of the next.

    Nothing is skipped for something smaller behind it. A wider window never shows less. This computes, for milliseconds or,
    with documents of megabytes, longer: large ones are not for the event loop.

    Raises:
        ConfigurationError: as `check_format`.
        InvalidRequest: there are hits, and the window has room for none of them.
        ModelError: the tokenizer failed.
    """
    check_format(context_format)
    if not hits:
        return Rendered()
    head = "".join(f"[About {_line(spec.name)}]\n{holdable(spec.text).strip()}\n\n" for spec in specs)
    template = _Template(context_format)
    window = _Window(tokenizer, context_window)

    @cache
    def filled(at: int) -> str:
        return template.fill(hits[at], holdable(hits[at].text))

    def first(count: int) -> str:
        return head + "".join(map(filled, range(count)))

    whole = _most(len(hits), 1, lambda count: window.holds(first(count)))
    text, cut = first(whole), False
    if whole < len(hits):
        text, cut = _with_beginning(text, hits[whole], template, window, USEFUL if whole else 1)
    shown = whole + cut
    if not shown:
        raise InvalidRequest(
            f"search.context_window: {context_window} tokens have no room for any of the {len(hits)} documents that were "
            f"found; raise it, or shorten search.context_format or the specs."
        )
    text = text.rstrip()
    sources = tuple(dict.fromkeys(_line(hit.document) for hit in hits[:shown]))
    return Rendered(text, window.count(text), shown, cut, tuple(hit.chunk for hit in hits[shown:]), sources)


class _Window:
    """Counts each text once: many places to cut at lead to the same sentence end."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self._count = cache(tokenizer.count)
        self._size = size

    def holds(self, text: str) -> bool:
        return self.count(text.rstrip()) <= self._size

    def count(self, text: str) -> int:
        try:
            return self._count(text)
        except Exception as error:
            raise ModelError(f"The tokenizer failed ({type(error).__name__}).") from error


class _Template:
    def __init__(self, text: str) -> None:
        self._parts = _PLACEHOLDER.split(holdable(text))  # literals, with a name between each two

    def fill(self, hit: Hit, content: str) -> str:
        values = {
            "source": _line(hit.document),
            "content": content,
            "title": _line(hit.title),
            "lines": f"{hit.lines[0]}-{hit.lines[1]}",
            "score": f"{hit.score:.3f}",
        }
        return "".join(values[part] if at % 2 else part for at, part in enumerate(self._parts))


def _line(text: str) -> str:
    return " ".join(holdable(text).split())


def _with_beginning(text: str, hit: Hit, template: _Template, window: _Window, least: int) -> tuple[str, bool]:
    """Return the text with as much of the next document as fits, and whether that is anything of use."""
    content = holdable(hit.text)

    def beginning(at: int) -> str:
        return content[: _sensible(content, at)].rstrip()

    def ending(at: int) -> str:
        return text + template.fill(hit, beginning(at) + MORE)

    most = _most(len(content), _STEP, lambda at: window.holds(ending(at)))
    return (ending(most), True) if len(beginning(most).strip()) >= least else (text, False)


def _most(count: int, step: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `count` that fits, found by doubling from `step` and halving: so the work follows what
    fits, not what there is. What fits more never gets less, even where `fits` does not fall in order.
    """
    low, high = 0, min(step, count)
    while low < high and fits(high):
        low, high = high, min(2 * high, count)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _sensible(content: str, most: int) -> int:
    """Return where to cut at the latest: after a sentence or line, else a word, if one ends in the second half."""
    for ends in (_SENTENCE, _WORD):
        # one further than `most`, since a word ends where a blank follows
        found = [end for one in ends.finditer(content, most // 2, most + 1) if (end := one.end()) <= most]
        if found:
            return _unbroken(content, found[-1])
    return _unbroken(content, most)


def _unbroken(content: str, most: int) -> int:
    """Return where to cut at the latest so that no character is parted from its marks, and no flag or syllable is halved."""
    for at in range(most, max(0, most - _MARKS), -1):
        if at == len(content) or not _continues(content, at):
            return at
    return most


def _continues(content: str, at: int) -> bool:
    character, before = content[at], content[at - 1]
    if character in _FLAGS and before in _FLAGS:
        return (at - len(content[:at].rstrip(_FLAGS))) % 2 == 1
    return (
        unicodedata.category(character).startswith("M")
        or unicodedata.combining(before) == _VIRAMA
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or "\u1160" <= character <= "\u11ff"  # vowels and finals of Hangul
    )

"""Text to terms, the same way at index and at query time, and the packed bag of words that BM25 reads.

A plain word gives its stem, without accents; an identifier (`add_event`, `HTTPServer2`) gives itself without
underscores and its parts; scripts written without spaces give overlapping pairs of characters. There is no stop list:
the idf does that better.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast

import Stemmer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Stems(Protocol):
    def stemWord(self, word: str) -> str: ...


class _Library(Protocol):
    def Stemmer(self, algorithm: str) -> _Stems: ...
    def version(self) -> str: ...


_LIBRARY = cast("_Library", Stemmer)
_STEMS = _LIBRARY.Stemmer("english")

FINGERPRINT = f"analyzer-1/snowball-{_LIBRARY.version()}"
"""Bags of two fingerprints must not be searched together."""

MAX_TOKEN = 64
"""Characters of a word that count; a longer one is cut, in documents and queries alike."""

_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
_INDIC = "\u0900-\u0963\u0966-\u0dff"
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17d3\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTERS = rf"\w{_MARKS}{_INDIC}{_DENSE}"
_WORD = re.compile(rf"[{_LETTERS}]+(?:['’][{_LETTERS}]+)*")
_RUNS = re.compile(rf"[{_DENSE}]+|[^{_DENSE}]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_MASK = (1 << 63) - 1


def tokens(text: str) -> list[str]:
    """Return the tokens of a text in order of appearance; the parts of an identifier follow it."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    words = _WORD.findall(text)
    return list(chain.from_iterable(_cached(word) if len(word) <= MAX_TOKEN else _terms(word) for word in words))


def pack(terms: Iterable[str]) -> tuple[bytes, int]:
    """Return the bag of words and its length in tokens.

    The bag is n unique term hashes as ascending little-endian int64, then their n counts as uint8, capped at 255.
    """
    found = Counter(terms)
    counts = dict(zip(map(term_hash, found), found.values(), strict=True))
    ordered = sorted(counts)
    if max(counts.values(), default=0) > 255:
        counts = {number: min(count, 255) for number, count in counts.items()}
    bag = bytes(map(counts.__getitem__, ordered))
    numbers = array("q", ordered)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes() + bag, found.total()


def unpack(bag: bytes) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the ascending term hashes and their counts of a packed bag, as read-only views of it."""
    import numpy as np  # here, since the processes that pack never unpack and should start fast

    n, rest = divmod(len(bag), 9)
    if rest:
        raise ValueError(f"a bag of words has 9 bytes a term; {len(bag)} bytes are not")
    return np.frombuffer(bag, "<i8", n), np.frombuffer(bag, np.uint8, n, 8 * n)


@lru_cache(1 << 16)
def term_hash(term: str) -> int:
    """Return the 63-bit number of a term."""
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") & _MASK


@lru_cache(1 << 16)
def _cached(word: str) -> tuple[str, ...]:
    return tuple(_terms(word))


def _terms(word: str) -> Iterator[str]:
    """Yield the terms of one word (a run of letters, digits, underscores and inner apostrophes)."""
    for run in _RUNS.findall(word):
        if re.match(f"[{_DENSE}]", run):
            yield from (run[i : i + 2] for i in range(max(1, len(run) - 1)))
        else:
            yield from _word_terms(run[:MAX_TOKEN].replace("’", "'").strip("'"))


def _word_terms(word: str) -> Iterator[str]:
    if not word.isascii():
        word = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))
    whole = word.replace("_", "").lower()
    if not whole:
        return
    parts = [part.lower() for part in _parts(word)]
    if len(parts) < 2:
        yield _STEMS.stemWord(whole)
        return
    yield whole
    yield from (_STEMS.stemWord(part) for part in parts if len(part) > 1)


def _parts(word: str) -> list[str]:
    """Cut an identifier at underscores, between letters and digits, and where its case says that a new word begins."""
    cuts = [0]
    for i in range(1, len(word)):
        before, here, rest = word[i - 1], word[i], word[i + 1 :]
        # `HTTPServer` has a hump before its second word, the plural `IDs` has none.
        hump = here.isupper() and (before.islower() or (before.isupper() and rest[:1].islower() and rest != "s"))
        if hump or "_" in (before, here) or before.isdecimal() != here.isdecimal():
            cuts.append(i)
    pieces = (word[i:j] for i, j in zip(cuts, [*cuts[1:], len(word)], strict=True))
    return [piece for piece in pieces if piece.strip("_'")]

"""Texts to vectors without a model: words hashed into 128 signed buckets, the same on every machine.

Each stem goes to one bucket with a sign (Weinberger et al. 2009, doi:10.1145/1553374.1553516), weighted by one plus
the logarithm of how often it occurs. A capitalised word counts twice, since names tell passages apart; words like
"the" count only where there is no other. Scripts without spaces are read by pairs of characters.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Protocol, cast

import numpy as np
import Stemmer

from pipeline.ingest.lexicon import FUNCTION_WORDS
from pipeline.ports import Vectors

DIMENSION = 128

_WORD = re.compile(r"\w+")
_DENSE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]")


class _Stems(Protocol):
    def stemWord(self, word: str) -> str: ...


class _Library(Protocol):
    def Stemmer(self, algorithm: str) -> _Stems: ...
    def version(self) -> str: ...


_LIBRARY = cast("_Library", Stemmer)
_STEMS = _LIBRARY.Stemmer("english")

FINGERPRINT = f"hash-{DIMENSION}-1/snowball-{_LIBRARY.version()}"
"""Vectors of two fingerprints must not be compared."""


def hash_vectors(texts: Sequence[str]) -> Vectors:
    """Return the (n, 128) vectors of the texts, not normalised; pure."""
    found = [_features(text) for text in texts]
    features = np.fromiter(chain.from_iterable(found), dtype=np.uint64)
    rows = np.repeat(np.arange(len(texts)), [len(of_text) for of_text in found])
    # A feature's lowest bit says that it counts twice; it is no part of its identity.
    weights = 1.0 + (features & np.uint64(1)).astype(np.float64)
    order = np.lexsort((features >> np.uint64(1), rows))
    rows, stems = rows[order], features[order] >> np.uint64(1)
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (rows[1:] != rows[:-1]) | (stems[1:] != stems[:-1])
    values = 1.0 + np.log(np.bincount(np.cumsum(first) - 1, weights=weights[order]))
    rows, stems = rows[first], stems[first]
    signs = 1.0 - 2.0 * ((stems >> np.uint64(40)) & np.uint64(1)).astype(np.float64)
    buckets = rows * DIMENSION + (stems % np.uint64(DIMENSION)).astype(np.int64)
    flat = np.bincount(buckets, weights=values * signs, minlength=len(texts) * DIMENSION)
    return flat.reshape(len(texts), DIMENSION).astype(np.float32)


def _features(text: str) -> list[int]:
    words = _WORD.findall(text if text.isascii() else unicodedata.normalize("NFKC", text))
    telling = list(chain.from_iterable(map(_feature, words)))
    return telling or [feature for word in words for feature in _hashed(word.lower(), False)]


@lru_cache(maxsize=262_144)
def _feature(word: str) -> tuple[int, ...]:
    lower = word.lower()
    return () if lower in FUNCTION_WORDS else tuple(_hashed(lower, word[:1].isupper()))


def _hashed(word: str, twice: bool) -> Iterator[int]:
    pairs = [word[at : at + 2] for at in range(len(word) - 1)] if len(word) > 2 and _DENSE.search(word) else [word]
    for part in pairs:
        digest = hashlib.blake2b(_STEMS.stemWord(part).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        yield int.from_bytes(digest, "little") & ~1 | twice

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
    words = [_features(text) for text in texts]
    features = np.array([feature for of_text in words for feature in of_text], dtype=np.uint64)
    rows = np.repeat(np.arange(len(texts), dtype=np.uint64), [len(of_text) for of_text in words])
    # A feature's lowest bit says that it counts twice; it is no part of its identity.
    weights = 1.0 + (features & np.uint64(1)).astype(np.float64)
    cells, place = np.unique(np.stack([rows, features >> np.uint64(1)]), axis=1, return_inverse=True)
    values = 1.0 + np.log(np.bincount(place.reshape(-1), weights=weights))
    signs = 1.0 - 2.0 * ((cells[1] >> np.uint64(40)) & np.uint64(1)).astype(np.float64)
    buckets = cells[0].astype(np.int64) * DIMENSION + (cells[1] % np.uint64(DIMENSION)).astype(np.int64)
    flat = np.bincount(buckets, weights=values * signs, minlength=len(texts) * DIMENSION)
    return flat.reshape(len(texts), DIMENSION).astype(np.float32)


def _features(text: str) -> list[int]:
    words = _WORD.findall(text if text.isascii() else unicodedata.normalize("NFKC", text))
    telling = [feature for word in words for feature in _feature(word)]
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

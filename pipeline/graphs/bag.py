"""A bag of triples that live in this process, and the search over any number of bags."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pipeline.errors import InvalidRequest
from pipeline.ingest.clean import clean
from schemas.ids import identity_key

MAX_CHARS = 500
"""Characters of a subject, a predicate or an object at most."""

_TOKEN = re.compile("[A-Za-z0-9]+")
_numbers = itertools.count()


class Triple(NamedTuple):
    """A fact: a subject, what is said of it, and an object."""

    subject: str
    predicate: str
    object: str

    @classmethod
    def of(cls, subject: str, predicate: str, object: str) -> Triple:
        """Return the triple with each part made tidy.

        Raises:
            InvalidRequest: a part is empty or too long; the message names it.
        """
        parts = {"subject": subject, "predicate": predicate, "object": object}
        for name, text in parts.items():
            parts[name] = tidy(text)
            if not parts[name]:
                raise InvalidRequest(f"{name} must not be empty")
            if len(parts[name]) > MAX_CHARS:
                raise InvalidRequest(f"{name} has {len(parts[name])} characters; at most {MAX_CHARS} are kept")
        return cls(**parts)

    @property
    def text(self) -> str:
        """The three parts as one line."""
        return " ".join(self)


Numbered = Mapping[int, Triple]
"""Triples by a number that grows with every triple added in this process, in ascending order."""


def ascii_tokens(text: str) -> list[str]:
    """Return the runs of ASCII letters and digits in lower case; no other letter ever becomes an ASCII one."""
    return [token.lower() for token in _TOKEN.findall(text)]


def tidy(text: str) -> str:
    """Return the text as one line, without the characters that a document's text would lose too."""
    return " ".join(clean(text)[0].split())


def entity_key(name: str) -> str:
    """Return what two spellings of an entity share: the identity key or, where a name has none, the name."""
    return identity_key(name) or name


class Bag:
    """At most `max_triples` triples in the order in which they were added. Any number of threads may share it."""

    def __init__(self, max_triples: int) -> None:
        self._max_triples = max_triples
        self._lock = threading.Lock()  # held for lookups and copies only, so the event loop may take it
        self._numbers: dict[Triple, int] = {}
        self._by_token: dict[str, dict[int, Triple]] = {}
        self._by_entity: dict[str, dict[int, Triple]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, triple: Triple) -> bool:
        """Add a triple and return whether it is new. Raises InvalidRequest where the bag is full."""
        with self._lock:
            if triple in self._numbers:
                return False
            if len(self._numbers) >= self._max_triples:
                raise InvalidRequest(f"there are {self._max_triples} triples already, and no more are kept")
            number = self._numbers[triple] = next(_numbers)
            for lists, key in self._places(triple):
                lists.setdefault(key, {})[number] = triple
            return True

    def remove(self, triple: Triple) -> bool:
        """Remove a triple and return whether it was there."""
        with self._lock:
            number = self._numbers.pop(triple, None)
            if number is None:
                return False
            for lists, key in self._places(triple):
                del lists[key][number]
                if not lists[key]:
                    del lists[key]
            return True

    def triples(self) -> list[Triple]:
        """Return all triples in the order in which they were added, as of one moment."""
        with self._lock:
            return list(self._numbers)

    def about(self, entity: str) -> list[Triple]:
        """Return the triples with this subject or object, under any spelling, in the order in which they were added."""
        with self._lock:
            return list(self._by_entity.get(entity_key(entity), {}).values())

    def with_tokens(self, tokens: Iterable[str]) -> list[Numbered]:
        """Return, for each token that occurs, a copy of the list of triples that have it; all as of one moment."""
        with self._lock:
            return [found.copy() for token in tokens if (found := self._by_token.get(token))]

    def _places(self, triple: Triple) -> Iterator[tuple[dict[str, dict[int, Triple]], str]]:
        """Yield each list that a triple is in, once: its index and its key there."""
        for token in set(ascii_tokens(triple.text)):
            yield self._by_token, token
        for key in {entity_key(triple.subject), entity_key(triple.object)}:
            yield self._by_entity, key


def search(
    bags: Iterable[Bag], query: str, limit: int, keep: Callable[[Triple], bool] | None = None
) -> list[tuple[Triple, float]]:
    """Return the triples that share tokens with the query, best first, at most `limit`, ties as they were added.

    The score is the share, in 0..1, of the distinct tokens of the query that a triple has. A triple that is in several
    bags counts once, as its oldest copy. `keep` restricts the result.
    """
    tokens = dict.fromkeys(ascii_tokens(query))
    triples: dict[int, Triple] = {}
    counts: Counter[int] = Counter()
    for numbered in itertools.chain.from_iterable(bag.with_tokens(tokens) for bag in bags):
        triples.update(numbered)
        counts.update(numbered.keys())
    best: dict[Triple, float] = {}
    for count, numbers in _by_count(counts):
        for number in numbers:
            if len(best) == limit:
                return list(best.items())
            if keep is None or keep(triples[number]):
                best.setdefault(triples[number], count / len(tokens))
    return list(best.items())


def _by_count(counts: Mapping[int, int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the numbers that have each count, ascending, the highest count first."""
    groups: dict[int, list[int]] = {}
    for number, count in counts.items():
        groups.setdefault(count, []).append(number)
    for count in sorted(groups, reverse=True):
        yield count, sorted(groups[count])

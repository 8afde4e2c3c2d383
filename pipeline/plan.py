"""What an index run has to do: a pure comparison of what the sources hold with what the current generation knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas.documents import Item

BATCH_DOCUMENTS = 64
MOST_DOCUMENTS = 256
"""Documents of a batch where there are so many that every worker has batches to spare: what a batch costs by itself is
then shared by more.
"""

BATCHES = 8
BATCH_BYTES = 4 * 1024 * 1024
CODE_BATCH_BYTES = 1024 * 1024
"""Source code becomes three times as many chunks, since each symbol is one."""

RACY_NS = 2_000_000_000
"""A file written less than this many nanoseconds before it was indexed may have changed within the same time stamp."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the current generation remembers of a document."""

    document_id: str
    content_hash: bytes
    recipe: bytes
    size: int | None
    mtime_ns: int | None
    locator: str
    chunks: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one run. `to_do` may still turn out unchanged once it is read; the other two are settled."""

    to_do: tuple[Item, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def plan(items: Sequence[Item], unreadable: frozenset[str], known: Mapping[str, Known], recipe: bytes) -> Plan:
    """Split the listed documents into those to read and those that are certainly unchanged, and find those that vanished.

    A document that the listing skipped (`unreadable`) and the current generation holds is removed: the corpus mirrors what
    can be read now.
    """
    to_do = tuple(item for item in items if not _certainly_same(item, known.get(item.document_id), recipe))
    reading = {item.document_id for item in to_do}
    listed = {item.document_id for item in items}
    return Plan(
        to_do,
        tuple(item.document_id for item in items if item.document_id not in reading),
        tuple(sorted(name for name in known if name not in listed or name in unreadable)),
    )


def _certainly_same(item: Item, known: Known | None, recipe: bytes) -> bool:
    """Whether size and time stamp prove the content: the same rule, and the same care for fresh stamps, as git's index."""
    return (
        known is not None
        and known.recipe == recipe
        and item.mtime_ns is not None
        and (item.size, item.mtime_ns, item.locator) == (known.size, known.mtime_ns, known.locator)
    )


def batches(items: Sequence[Item], most: int = BATCH_BYTES) -> Iterator[tuple[Item, ...]]:
    """Cut the work into units of about `most` bytes at most and BATCH_DOCUMENTS documents, in order; above BATCHES units
    they grow, up to MOST_DOCUMENTS.
    """
    limit = min(MOST_DOCUMENTS, max(BATCH_DOCUMENTS, len(items) // BATCHES))
    unit: list[Item] = []
    size = 0
    for item in items:
        if unit and (len(unit) >= limit or size + (item.size or 0) > most):
            yield tuple(unit)
            unit, size = [], 0
        unit.append(item)
        size += item.size or 0
    if unit:
        yield tuple(unit)

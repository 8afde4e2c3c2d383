"""The headings of documents as trees over their chunks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.retrieval.fuse import Fused
from pipeline.retrieval.snapshot import Snapshot

DOCUMENTS = 20
"""Documents whose headings are looked at."""

OUTLINE_CHUNKS = 20_000
"""Chunks of them, in the order of documents and of their text."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a chunk stands: its document, and the headings above it from the outermost on."""

    chunk_id: int
    document: str
    title: str
    headings: tuple[str, ...]


@dataclass(slots=True)
class Section:
    """A document or a heading in it: the chunks below, in their order, and the headings right below."""

    label: str
    chunks: list[int] = field(default_factory=list[int])
    below: dict[str, Section] = field(default_factory=dict[str, "Section"])

    def under(self, heading: str) -> Section:
        """Return the section of this heading right below; headings of the same text are one."""
        return self.below.setdefault(heading, Section(heading))


def trees(placed: Sequence[Placed], documents: Sequence[str]) -> list[Section]:
    """Return the tree of each document that has chunks, in the order of `documents`."""
    roots: dict[str, Section] = {}
    for one in placed:
        section = roots.setdefault(one.document, Section(one.title or one.document))
        section.chunks.append(one.chunk_id)
        for heading in one.headings:
            section = section.under(heading)
            section.chunks.append(one.chunk_id)
    return [roots[document] for document in documents if document in roots]


def flattened(roots: Sequence[Section]) -> list[Section]:
    """Return all sections, each before those below it, without those that hold the same chunks as the one above."""
    found: list[Section] = []
    todo = list(reversed(roots))
    while todo:
        section = todo.pop()
        found.append(section)
        todo += reversed(branches(section))
    return found


def branches(section: Section) -> list[Section]:
    """Return the sections below, looking through those that hold as much as this one."""
    while len(section.below) == 1:
        (only,) = section.below.values()
        if len(only.chunks) < len(section.chunks):
            break
        section = only
    return list(section.below.values())


def best_documents(found: Sequence[Fused], snapshot: Snapshot, most: int = DOCUMENTS) -> list[str]:
    """Return the documents of the first hits, as their best hits are ordered."""
    rows = snapshot.rows(hit.chunk_id for hit in found if hit.chunk_id >= 0).tolist()
    return list(dict.fromkeys(snapshot.document(row) for row in rows if row >= 0))[:most]


def scores_of(found: Sequence[Fused]) -> Mapping[int, float]:
    """Return the score of each chunk of the generation that was found."""
    return {hit.chunk_id: hit.score for hit in found if hit.chunk_id >= 0}

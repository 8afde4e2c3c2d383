"""What goes through the ingest stages: items, parsed documents, chunks, and the one outcome each document ends in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from schemas.graph import Fact, Mention
from schemas.ids import ChunkId


class SourceKind(StrEnum):
    """Where documents come from."""

    FOLDER = "folder"
    FILE = "file"
    URL = "url"
    TRIPLES = "triples"
    GIT = "git"


@dataclass(frozen=True, slots=True)
class Source:
    """A place that a corpus mirrors. `location` is an absolute path, a URL or a repository at a revision
    (`pipeline.ingest.revisions`); the globs apply to paths below it. `revision` is the commit at which an item of a repository
    was listed, 40 hex digits; empty for the source itself.
    """

    kind: SourceKind
    location: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One document as the listing of a source sees it, before it is read.

    `document_id` is relative to the source and independent of where the source lies. `size` is in bytes and `mtime_ns` in
    nanoseconds; both are None where the source cannot say without reading (URLs). `part` addresses a document inside a
    container (the byte ranges of its lines in a triples file), else it is empty.
    """

    document_id: str
    source: Source
    locator: str
    size: int | None = None
    mtime_ns: int | None = None
    part: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a parsed document: character offset where its section starts, depth from 1, and its text."""

    offset: int
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A ready-made chunk with its ready-made mentions and facts (offsets relative to the passage's text)."""

    text: str
    mentions: tuple[Mention, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The plain text of one document.

    `text` is what offsets and lines refer to: NUL bytes, lone surrogates, zero-width, bidirectional and tag characters are
    gone from it (`cleaned` counts them), and line ends are `\\n`. `passages` is non-empty only for ready-made triples.
    """

    document_id: str
    title: str
    text: str
    media_type: str
    headings: tuple[Heading, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    passages: tuple[Passage, ...] = ()
    cleaned: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document: `text == document.text[start:end]`, lines counted from 1, both ends inclusive.

    `headings` is the path of headings above it, coarsest first. `text_hash` is the key of what is paid for its text alone,
    `passage_hash` of what is paid for the text with its title and headings. `terms` is the analysed bag of words, title and
    headings among them, as `pipeline.retrieval.analyzer.pack` writes it; `length` is the number of tokens in it.
    """

    chunk_id: ChunkId
    document_id: str
    ordinal: int
    text: str
    start: int
    end: int
    first_line: int
    last_line: int
    headings: tuple[str, ...]
    text_hash: bytes
    passage_hash: bytes
    terms: bytes
    length: int

    def __reduce__(self) -> tuple[object, ...]:
        """Return what a pickle holds: the fields alone. What dataclasses do by themselves takes three times as long."""
        return Chunk, (
            self.chunk_id, self.document_id, self.ordinal, self.text, self.start, self.end, self.first_line, self.last_line,
            self.headings, self.text_hash, self.passage_hash, self.terms, self.length,
        )  # fmt: skip


class Outcome(StrEnum):
    """The one way in which a document of a run ends; the counts of all outcomes sum to the documents seen."""

    INDEXED = "indexed"
    UNCHANGED = "unchanged"
    EMPTY = "empty"
    SKIPPED = "skipped"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """How one document ended. `reason` is empty only for unchanged and removed ones and those that were indexed throughout."""

    document_id: str
    outcome: Outcome
    reason: str = ""
    chunks: int = 0

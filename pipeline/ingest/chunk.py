"""A parsed document to chunks: exact spans that survive an edit elsewhere in the document.

A document that fits is one chunk. A longer one is cut at its headings: a section that fits with all its subsections
stays whole, else its own text and each subsection are cut on their own. What is still too long is cut into blocks
chosen by content, and each block is packed by the splitter. So an edit touches the chunks of its own section and block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from pipeline.ingest import formats
from pipeline.ingest.blocks import blocks
from pipeline.ingest.sections import Section, sections
from pipeline.retrieval.analyzer import pack, tokens
from schemas.documents import Chunk, ParsedDocument, Passage
from schemas.graph import Extraction, Fact, Mention
from schemas.ids import chunk_id, text_hash

VERSION = "chunk-2"

_MARKED_UP = frozenset({formats.MARKDOWN, formats.RST, formats.HTML, formats.DOCX, formats.PDF})
_WINDOW = 3
"""Reach of a content-defined cut to each side, in chunks: a block holds about six chunks, 24 at most."""


class Sizes(Protocol):
    """What `ChunkSettings` says, in characters."""

    @property
    def max_chars(self) -> int: ...
    @property
    def overlap(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a document on its way to a chunk: `[start, end)` in characters, and the headings above it."""

    start: int
    end: int
    path: tuple[str, ...] = ()


def chunk(parsed: ParsedDocument, sizes: Sizes) -> list[Chunk]:
    """Return the chunks of a document in order; a blank document has none.

    Each is at most `max_chars` long; what lies between two is white space only.
    """
    if parsed.passages:
        return [one for one, _ in chunk_passages(parsed, sizes)]
    return list(made(parsed, _spans(parsed, sizes)))


def chunk_passages(parsed: ParsedDocument, sizes: Sizes) -> list[tuple[Chunk, Extraction]]:
    """Return the ready-made passages of a document as chunks, each with what was found in it.

    A passage that is too long is split; then a mention or fact goes where it stands, else where its names occur, else
    to the first part.
    """
    spans: list[Span] = []
    found: list[Extraction] = []
    at = 0
    for passage in parsed.passages:
        end = at + len(passage.text)
        parts = [Span(at, end)]
        if end - at > sizes.max_chars:
            parts = list(split(parsed.text, Section(at, end), sizes, marked_up=False))
        spans += parts
        found += _share_out(passage, at, parts)
        at = end + 2
    return list(zip(made(parsed, spans), found, strict=True))


def passage_text(title: str, headings: Sequence[str], text: str) -> str:
    """Return what is embedded and analysed for a chunk: title and headings give a short passage its subject."""
    path = " > ".join(dict.fromkeys(part for part in (title, *headings) if part))
    return f"{path}\n{text}" if path else text


def made(parsed: ParsedDocument, spans: Iterable[Span]) -> Iterator[Chunk]:
    """Number, hash and analyse the spans."""
    text, line_of = parsed.text, _line_numbers(parsed.text)
    seen: Counter[str] = Counter()
    for ordinal, span in enumerate(spans):
        piece = text[span.start : span.end]
        passage = passage_text(parsed.title, span.path, piece)
        terms, length = pack(tokens(passage))
        yield Chunk(
            chunk_id(parsed.document_id, piece, seen[piece]),
            parsed.document_id,
            ordinal,
            piece,
            span.start,
            span.end,
            line_of(span.start),
            line_of(span.end - 1),
            span.path,
            text_hash(piece),
            text_hash(passage),
            terms,
            length,
        )
        seen[piece] += 1


def _line_numbers(text: str) -> Callable[[int], int]:
    """Return a function from a character offset to its line, counted from 1."""
    ends = list(accumulate(len(line) + 1 for line in text.split("\n")))
    return lambda offset: bisect_right(ends, offset) + 1


def _spans(parsed: ParsedDocument, sizes: Sizes) -> Iterator[Span]:
    marked_up = parsed.media_type in _MARKED_UP
    for section in sections(parsed.text, parsed.headings, sizes.max_chars):
        yield from split(parsed.text, section, sizes, marked_up)


def split(text: str, section: Section, sizes: Sizes, marked_up: bool) -> Iterator[Span]:
    """Yield the chunks of one section, each within `max_chars` and without white space at its ends."""
    limit = sizes.max_chars
    whole = trimmed(text, section.start, section.end, section.path)
    if not whole:
        return
    if whole.end - whole.start <= limit:
        yield whole
        return
    # A heading stays with the beginning of its text: the first block is packed with so much less room.
    lead = section.body - whole.start
    start = section.body if 0 < lead <= limit // 2 else whole.start
    for left, right in blocks(text, start, whole.end, _WINDOW * limit):
        first = left == section.body and start == section.body
        capacity = limit - lead if first else limit
        spans = _packed(text, Section(left, right, section.path), capacity, sizes.overlap, marked_up)
        if first and spans:
            spans[0] = Span(whole.start, spans[0].end, section.path)
        yield from spans


def _packed(text: str, block: Section, capacity: int, overlap: int, marked_up: bool) -> list[Span]:
    """Return the splitter's chunks of one block, joined again where two fit together."""
    spans: list[Span] = []
    splitter = _splitter(capacity, min(overlap, capacity - 1), marked_up)
    for at, found in splitter.chunk_indices(text[block.start : block.end]):
        span = trimmed(text, block.start + at, block.start + at + len(found), block.path)
        if span and spans and span.end - spans[-1].start <= capacity:
            spans[-1] = Span(spans[-1].start, span.end, block.path)
        elif span:
            spans.append(span)
    return spans


def trimmed(text: str, start: int, end: int, path: tuple[str, ...]) -> Span | None:
    """Return the span without white space at its ends, None where nothing is left."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    return Span(start + left, start + len(piece.rstrip()), path) if left < len(piece) else None


@lru_cache(1024)
def _splitter(limit: int, overlap: int, marked_up: bool) -> MarkdownSplitter | TextSplitter:
    return MarkdownSplitter(limit, overlap, True) if marked_up else TextSplitter(limit, overlap, True)


def _share_out(passage: Passage, base: int, parts: list[Span]) -> list[Extraction]:
    """Return what belongs to each part of a passage, with offsets in that part."""
    if len(parts) == 1 and (parts[0].start, parts[0].end) == (base, base + len(passage.text)):
        return [Extraction(passage.mentions, passage.facts)]
    texts = [passage.text[part.start - base : part.end - base] for part in parts]
    mentions: list[dict[Mention, None]] = [{} for _ in parts]
    facts: list[list[Fact]] = [[] for _ in parts]
    for mention in passage.mentions:
        k, moved = _place(mention, base, parts, texts)
        mentions[k][moved] = None
    kinds = {(m.name.lower(), m.type): m for m in passage.mentions}
    for fact in passage.facts:
        k = _home(texts, fact.subject, fact.object)
        facts[k].append(fact)
        for name, kind in ((fact.subject, fact.subject_type), (fact.object, fact.object_type)):
            if not any(m.name.lower() == name.lower() and m.type == kind for m in mentions[k]):
                mentions[k][_anew(kinds.get((name.lower(), kind)), name, kind, texts[k])] = None
    return [Extraction(tuple(m), tuple(f)) for m, f in zip(mentions, facts, strict=True)]


def _place(mention: Mention, base: int, parts: list[Span], texts: list[str]) -> tuple[int, Mention]:
    """Return the part that a mention stands in, and the mention as seen from there."""
    if mention.start >= 0:
        for k, part in enumerate(parts):
            start, end = base + mention.start, base + mention.end
            if part.start <= start and end <= part.end:
                return k, replace(mention, start=start - part.start, end=end - part.start)
    k = _home(texts, mention.name)
    return k, _anew(mention, mention.name, mention.type, texts[k])


def _anew(known: Mention | None, name: str, kind: str, text: str) -> Mention:
    """Return a mention of this name, located in this text where it occurs."""
    known = known or Mention(name, kind)
    at = text.find(known.name)
    return replace(known, start=at, end=at + len(known.name) if at >= 0 else -1)


def _home(texts: list[str], *names: str) -> int:
    """Return the first part in which most of these names occur, in any case; the first one where none does."""
    lowered = [name.lower() for name in names]
    counts = [sum(name in text.lower() for name in lowered) for text in texts]
    return counts.index(max(counts))

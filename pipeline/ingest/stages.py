"""From bytes to analysed chunks and what the offline extractor finds in them, for a group of documents.

Pure, and cheap to import, since children run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.errors import DocumentError, ParserKilled
from pipeline.ingest import formats
from pipeline.ingest.chunk import Sizes, chunk, chunk_passages, made
from pipeline.ingest.offline import extract
from pipeline.ingest.parse import parse
from schemas.documents import Chunk, Item, ParsedDocument, SourceKind
from schemas.graph import Extraction


@dataclass(frozen=True, slots=True)
class Request:
    """One document that has been read. `media_type` is the Content-Type that came with it, or empty.

    `chunk`: how it is cut, None if it is not. `extract`: have the offline extractor read its chunks at once. `whole`: hand
    over its text as well. `contains`: read source code, with this weight of containment; None: all is plain text.
    """

    item: Item
    data: bytes
    media_type: str
    chunk: Sizes | None
    extract: bool = False
    whole: bool = False
    contains: float | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready to be embedded and extracted; without chunks there is no text in it, or it was not to be cut.

    `chars` is the length of its text; `ready` holds what ready-made passages state, and `offline` what the offline
    extractor found where it was asked for, chunk by chunk: each for all chunks or for none, and not both. `whole` is the
    document itself where that was asked for, without its passages. `language` is that of source code that was to be read, and
    `summary` what it says (see `pipeline.codegraph.summary`); an unknown language has none. `contexts` say where each chunk
    stands, where a model was asked (see `pipeline.ingest.contexts`); that of a chunk may be empty.
    """

    document_id: str
    title: str
    media_type: str
    chars: int
    chunks: tuple[Chunk, ...]
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    ready: tuple[Extraction, ...] = ()
    offline: tuple[Extraction, ...] = ()
    whole: ParsedDocument | None = None
    language: str = ""
    summary: bytes = b""
    contexts: tuple[str, ...] = ()


UNKNOWN = "unknown"
"""What stands for the language of source code that nothing here reads."""


def prepare(requests: Sequence[Request]) -> list[Prepared | DocumentError]:
    """Return for each document, in order, what it became or why it cannot be read.

    All are cut before the first one is extracted from: patterns and caches of one kind of work stay in the processor's caches,
    which saves a tenth of the time.
    """
    cut = [_prepare(request) for request in requests]
    return [_extracted(one) if request.extract else one for one, request in zip(cut, requests, strict=True)]


def _prepare(request: Request) -> Prepared | DocumentError:
    item = request.item
    hint = formats.TRIPLES if item.source.kind is SourceKind.TRIPLES else request.media_type
    try:
        parsed = parse(item.document_id, request.data, hint)
        cut = _cut(parsed, request)
    except DocumentError as error:
        return error
    except (MemoryError, RecursionError) as error:
        return _over(error)
    metadata = dict(parsed.metadata)
    if parsed.cleaned:
        metadata["cleaned_characters"] = parsed.cleaned
    if cut.unread:
        metadata["unread"] = cut.unread
    whole = replace(parsed, passages=()) if request.whole else None
    return Prepared(
        item.document_id,
        parsed.title,
        parsed.media_type,
        len(parsed.text),
        tuple(cut.chunks),
        metadata,
        cut.ready,
        (),
        whole,
        cut.language,
        cut.summary,
    )


def _extracted(one: Prepared | DocumentError) -> Prepared | DocumentError:
    if isinstance(one, DocumentError) or one.ready:
        return one
    try:
        return replace(one, offline=tuple(extract(piece.text) for piece in one.chunks))
    except (MemoryError, RecursionError) as error:
        return _over(error)


def _over(error: Exception) -> ParserKilled:
    return ParserKilled(f"the parser went over its limit ({type(error).__name__})")


@dataclass(frozen=True, slots=True)
class _Cut:
    """The chunks of a document with what is known of them; `unread` counts what source code could not be read for."""

    chunks: Sequence[Chunk] = ()
    ready: tuple[Extraction, ...] = ()
    language: str = ""
    summary: bytes = b""
    unread: dict[str, int] = field(default_factory=dict[str, int])


def _cut(parsed: ParsedDocument, request: Request) -> _Cut:
    if request.chunk is None:
        return _Cut()
    if parsed.passages:
        pairs = chunk_passages(parsed, request.chunk)
        return _Cut([one for one, _ in pairs], tuple(extraction for _, extraction in pairs))
    if request.contains is not None and (parsed.media_type == formats.TEXT or formats.is_source(parsed.media_type)):
        return _source(parsed, request.chunk, request.contains)
    return _Cut(chunk(parsed, request.chunk))


def _source(parsed: ParsedDocument, sizes: Sizes, contains: float) -> _Cut:
    # here, since children that read no code should start fast
    from pipeline.codegraph import cut
    from pipeline.codegraph.entities import entities
    from pipeline.codegraph.reading import read
    from pipeline.codegraph.summary import encode

    path, text = parsed.document_id, parsed.text
    summary = read(path, text, parsed.media_type)
    if summary is None:
        return _Cut(chunk(parsed, sizes), language=UNKNOWN if formats.is_source(parsed.media_type) else "")
    chunks = list(made(parsed, cut.spans(text, summary, sizes)))
    ready = entities(path, text, summary, chunks, contains)
    return _Cut(chunks, ready, summary.language, encode(summary), dict(summary.counts))

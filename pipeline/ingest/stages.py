"""From bytes to analysed chunks and what the offline extractor finds in them, for a group of documents.

Pure, and cheap to import, since children run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import DocumentError, ParserKilled
from pipeline.ingest import formats
from pipeline.ingest.chunk import Sizes, chunk, chunk_passages
from pipeline.ingest.offline import extract
from pipeline.ingest.parse import parse
from schemas.documents import Chunk, Item, SourceKind
from schemas.graph import Extraction


@dataclass(frozen=True, slots=True)
class Request:
    """One document that has been read. `media_type` is the Content-Type that came with it, or empty.

    `extract`: have the offline extractor read its chunks at once.
    """

    item: Item
    data: bytes
    media_type: str
    chunk: Sizes
    extract: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document ready to be embedded and extracted; without chunks there is no text in it.

    `chars` is the length of its text; `ready` holds what ready-made passages state, and `offline` what the offline
    extractor found where it was asked for, chunk by chunk: each for all chunks or for none, and not both.
    """

    document_id: str
    title: str
    media_type: str
    chars: int
    chunks: tuple[Chunk, ...]
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    ready: tuple[Extraction, ...] = ()
    offline: tuple[Extraction, ...] = ()


def prepare(requests: Sequence[Request]) -> list[Prepared | DocumentError]:
    """Return for each document, in order, what it became or why it cannot be read."""
    return [_prepare(request) for request in requests]


def _prepare(request: Request) -> Prepared | DocumentError:
    item = request.item
    hint = formats.TRIPLES if item.source.kind is SourceKind.TRIPLES else request.media_type
    try:
        parsed = parse(item.document_id, request.data, hint)
        if parsed.passages:
            made = chunk_passages(parsed, request.chunk)
            chunks, ready = [one for one, _ in made], tuple(extraction for _, extraction in made)
        else:
            chunks, ready = chunk(parsed, request.chunk), ()
        offline = tuple(extract(one.text) for one in chunks) if request.extract and not ready else ()
    except DocumentError as error:
        return error
    except (MemoryError, RecursionError) as error:
        return ParserKilled(f"the parser went over its limit ({type(error).__name__})")
    metadata = dict(parsed.metadata)
    if parsed.cleaned:
        metadata["cleaned_characters"] = parsed.cleaned
    return Prepared(
        item.document_id, parsed.title, parsed.media_type, len(parsed.text), tuple(chunks), metadata, ready, offline
    )

"""The rows that a batch of documents becomes, column by column as the database takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from pipeline.ports import Vectors
from schemas.documents import Chunk
from schemas.graph import Fact, Mention, Scalar
from schemas.ids import EntityNo, entity_id, entity_no, identity_key

DOCUMENT = (
    "corpus_id", "document_id", "born", "source_location", "locator", "content_hash", "recipe", "size", "mtime_ns",
    "media_type", "title", "metadata", "chars", "chunks", "language", "summary",
)  # fmt: skip
CHUNK = (
    "corpus_id", "chunk_id", "born", "document_id", "ordinal", "text", "char_start", "char_end", "first_line",
    "last_line", "headings", "text_hash", "passage_hash", "terms", "length",
)  # fmt: skip
MENTION = (
    "corpus_id", "chunk_id", "entity_no", "born", "type", "key", "surface", "char_start", "char_end", "origin",
    "description", "properties",
)  # fmt: skip
FACT = (
    "corpus_id", "chunk_id", "source_no", "target_no", "type", "born", "confidence", "char_start", "char_end",
    "properties",
)  # fmt: skip
VECTOR = ("chunk_id", "born", "embedding")


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """One document with all that was found in it. `mentions[i]` and `facts[i]` are those of `chunks[i]`.

    `vectors` has one row for each chunk. `size` is in bytes and `mtime_ns` in nanoseconds, both None where unknown.
    A mention whose identity key is empty is not a node, and a fact with such an end is not an edge: both are left out.
    `language` and `summary` are those of source code, of which an empty file is a document without chunks.
    """

    document_id: str
    source_location: str
    locator: str
    content_hash: bytes
    recipe: bytes
    size: int | None
    mtime_ns: int | None
    media_type: str
    title: str
    metadata: dict[str, Any]
    chars: int
    chunks: Sequence[Chunk]
    vectors: Vectors
    mentions: Sequence[Sequence[Mention]]
    facts: Sequence[Sequence[Fact]]
    language: str = ""
    summary: bytes = b""


@lru_cache(65_536)
def numbered(entity_type: str, name: str, identity: str = "") -> tuple[EntityNo, str] | None:
    """Return the entity's number and its key (its public id, if it has one of its own), or None if the name has no key."""
    key = identity or identity_key(name)
    return (entity_no(entity_id(entity_type, key)), key) if key else None


def document_records(corpus: int, number: int, documents: Sequence[DocumentRows]) -> Iterator[tuple[Any, ...]]:
    """Yield rows for the columns DOCUMENT."""
    for d in documents:
        yield (
            corpus, d.document_id, number, d.source_location, d.locator, d.content_hash, d.recipe, d.size, d.mtime_ns,
            d.media_type, d.title, d.metadata, d.chars, len(d.chunks), d.language or None, d.summary or None,
        )  # fmt: skip


def chunk_records(corpus: int, number: int, documents: Sequence[DocumentRows]) -> Iterator[tuple[Any, ...]]:
    """Yield rows for the columns CHUNK."""
    for document in documents:
        for c in document.chunks:
            yield (
                corpus, c.chunk_id, number, document.document_id, c.ordinal, c.text, c.start, c.end, c.first_line,
                c.last_line, c.headings, c.text_hash, c.passage_hash, c.terms, c.length,
            )  # fmt: skip


def mention_records(corpus: int, number: int, documents: Sequence[DocumentRows]) -> Iterator[tuple[Any, ...]]:
    """Yield rows for the columns MENTION."""
    for document in documents:
        for chunk, mentions in zip(document.chunks, document.mentions, strict=True):
            for m in mentions:
                if found := numbered(m.type, m.name, m.identity):
                    yield (
                        corpus, chunk.chunk_id, found[0], number, m.type, found[1], m.name, m.start, m.end,
                        m.origin, m.description, stored(m.properties) if m.properties else None,
                    )  # fmt: skip


def fact_records(corpus: int, number: int, documents: Sequence[DocumentRows]) -> Iterator[tuple[Any, ...]]:
    """Yield rows for the columns FACT."""
    for document in documents:
        for chunk, facts in zip(document.chunks, document.facts, strict=True):
            for f in facts:
                source = numbered(f.subject_type, f.subject, f.subject_id)
                target = numbered(f.object_type, f.object, f.object_id)
                if source and target:
                    yield (
                        corpus, chunk.chunk_id, source[0], target[0], f.type, number, f.confidence, f.start, f.end,
                        stored(f.properties) if f.properties else None,
                    )  # fmt: skip


def stored(properties: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return properties as a value of `jsonb`, in which numbers are decimals and nothing but a point tells a float."""
    return {
        name: orjson.Fragment(f"{value:.1f}") if isinstance(value, float) and abs(value) >= 1e16 else value
        for name, value in properties.items()
    }


def vector_records(number: int, documents: Sequence[DocumentRows]) -> Iterator[tuple[Any, ...]]:
    """Yield rows for the columns VECTOR. A vector is a row of the matrix: the driver's codec stores it as f16."""
    for document in documents:
        for chunk, vector in zip(document.chunks, document.vectors, strict=True):
            yield chunk.chunk_id, number, vector

"""Documents as rows, made from a few words: what ingest would write, without parsing, models or files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from pipeline.generations.rows import DocumentRows
from pipeline.ports import Vectors
from schemas.documents import Chunk
from schemas.graph import Fact, Mention
from schemas.ids import chunk_id, text_hash

DIMENSION = 4
FINGERPRINT = "words-1"
Triple = tuple[str, str, str]


def document(document_id: str, *passages: Sequence[Triple], place: str = "/somewhere") -> DocumentRows:
    """Return a document with one chunk for each passage; a passage is its facts, an end without a type is a thing.

    `("person:Ada", "KNOWS", "Babbage")` mentions a person Ada and a thing Babbage and relates them; a triple with an
    empty middle mentions both without relating them. Equal arguments give equal rows, but for `place`.
    """
    texts = ["; ".join(" ".join(part for part in triple if part) for triple in passage) or "-" for passage in passages]
    return DocumentRows(
        document_id=document_id,
        source_location=place,
        locator=f"{place}/{document_id}",
        content_hash=hashlib.sha256("\n".join(texts).encode()).digest(),
        recipe=bytes(16),
        size=sum(map(len, texts)),
        mtime_ns=len(place),
        media_type="text/plain",
        title=document_id,
        metadata={},
        chars=sum(map(len, texts)),
        chunks=[_chunk(document_id, ordinal, texts) for ordinal in range(len(texts))],
        vectors=_vectors(texts),
        mentions=[[_mention(end) for triple in passage for end in (triple[0], triple[2])] for passage in passages],
        facts=[[_fact(triple) for triple in passage if triple[1]] for passage in passages],
    )


def _chunk(document_id: str, ordinal: int, texts: Sequence[str]) -> Chunk:
    text = texts[ordinal]
    start = sum(len(before) + 1 for before in texts[:ordinal])
    number = chunk_id(document_id, text, texts[:ordinal].count(text))
    end = start + len(text)
    return Chunk(
        number,
        document_id,
        ordinal,
        text,
        start,
        end,
        ordinal + 1,
        ordinal + 1,
        (),
        text_hash(text),
        text_hash(text),
        b"",
        len(text),
    )


def _split(end: str) -> tuple[str, str]:
    kind, _, name = end.rpartition(":")
    return kind or "thing", name


def _mention(end: str) -> Mention:
    kind, name = _split(end)
    return Mention(name, kind)


def _fact(triple: Triple) -> Fact:
    source, kind, target = triple
    (source_type, source_name), (target_type, target_name) = _split(source), _split(target)
    confidence = 1.0 if kind.isupper() else 0.5
    return Fact(source_name, source_type, kind.upper(), target_name, target_type, confidence)


def _vectors(texts: Sequence[str]) -> Vectors:
    rows = [np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIMENSION], dtype=np.uint8) for text in texts]
    raw: Vectors = np.array(rows, dtype=np.float32).reshape(-1, DIMENSION) + 1.0
    unit: Vectors = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    return unit

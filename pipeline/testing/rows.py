"""Documents as rows, made from a few words: what ingest would write, without parsing, models or files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import orjson

from pipeline.generations.rows import DocumentRows
from pipeline.ports import Vectors
from schemas.documents import Chunk
from schemas.graph import Fact, Mention, Scalar
from schemas.ids import chunk_id, text_hash

DIMENSION = 4
FINGERPRINT = "words-1"
Triple = tuple[str, str, str] | tuple[str, str, str, str]


def document(document_id: str, *passages: Sequence[Triple], place: str = "/somewhere") -> DocumentRows:
    """Return a document with one chunk for each passage; a passage is its facts, an end without a type is a thing.

    `("person:Ada", "KNOWS", "Babbage")` mentions a person Ada and a thing Babbage and relates them; a triple with an
    empty middle mentions both without relating them. A fourth text is a JSON object: properties of the subject and of the
    relation, which are not in the text. Equal arguments give equal rows, but for `place`.
    """
    texts = [
        "; ".join(" ".join(part for part in triple[:3] if part) for triple in passage) or "-" for passage in passages
    ]
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
        vectors=vectors(texts),
        mentions=[[one for triple in passage for one in _mentions(triple)] for passage in passages],
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


def _mentions(triple: Triple) -> tuple[Mention, Mention]:
    (kind, name), (target_kind, target) = _split(triple[0]), _split(triple[2])
    return Mention(name, kind, properties=_properties(triple)), Mention(target, target_kind)


def _fact(triple: Triple) -> Fact:
    source, kind, target = triple[:3]
    (source_type, source_name), (target_type, target_name) = _split(source), _split(target)
    confidence = 1.0 if kind.isupper() else 0.5
    return Fact(
        source_name, source_type, kind.upper(), target_name, target_type, confidence, properties=_properties(triple)
    )


def _properties(triple: Triple) -> dict[str, Scalar]:
    return orjson.loads(triple[3]) if len(triple) == 4 else {}


def vectors(texts: Sequence[str]) -> Vectors:
    """Return a unit vector for each text, the same for the same text."""
    rows = [np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIMENSION], dtype=np.uint8) for text in texts]
    raw: Vectors = np.array(rows, dtype=np.float32).reshape(-1, DIMENSION) + 1.0
    unit: Vectors = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    return unit

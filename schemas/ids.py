"""Identifiers that follow from content, so that the same input gives the same id on every machine and in every run.

Chunks, entities and communities are numbered with the first 63 bits of a SHA-256: small enough for a `bigint` column and
an `int64` array, wide enough that two of ten million chunks of a corpus share one with a probability below 1e-5 (and then
the primary key refuses the second; nothing is mixed). On the wire a number is 16 hex digits.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import NewType

CorpusId = NewType("CorpusId", int)
RunId = NewType("RunId", str)
ChunkId = NewType("ChunkId", int)
EntityNo = NewType("EntityNo", int)
CommunityId = NewType("CommunityId", int)

_MASK = (1 << 63) - 1
_ARTICLES = frozenset({"the", "a", "an"})
_DIGEST = re.compile(r"(?:.*[^:])?:([0-9a-f]{16})[0-9a-f]{8}", re.DOTALL)
_PLAIN = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}


def number_of(*parts: str) -> int:
    """Return the first 63 bits of the SHA-256 of the parts, each framed by its length so that no two lists collide."""
    data = [part.encode("utf-8", "surrogatepass") for part in parts]
    framed = b"".join([len(part).to_bytes(8, "big") + part for part in data])
    return int.from_bytes(hashlib.sha256(framed).digest()[:8], "big") & _MASK


def show(number: int) -> str:
    """Return the wire form of a 63-bit id: 16 lower-case hex digits."""
    return f"{number:016x}"


def parse_id(text: str) -> int:
    """Return the number behind a wire id.

    Raises:
        ValueError: not 16 hex digits.
    """
    if len(text) != 16:
        raise ValueError(f"an id has 16 hex digits, not {text!r}")
    return int(text, 16) & _MASK


def chunk_id(document_id: str, text: str, occurrence: int) -> ChunkId:
    """Return the id of the `occurrence`-th chunk (from 0) of a document with exactly this text.

    Position is no part of it, so a chunk keeps its id when another part of the document is edited.
    """
    return ChunkId(number_of("chunk", document_id, text, str(occurrence)))


def text_hash(text: str) -> bytes:
    """Return the 16-byte key under which paid work on a text (embedding, extraction) is cached."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def identity_key(name: str) -> str:
    """Return the key under which two spellings are the same name; empty means "not a node".

    NFKC, lower case, everything but letters (L*) and decimal digits (Nd) becomes a space, spaces collapse, and one leading
    English article goes if another word follows. `C++` and `C#` both become `c`: inherent in the rule.
    """
    if name.isascii():
        folded = name.translate(_PLAIN)
    else:
        folded = unicodedata.normalize("NFKC", name).lower()
        folded = "".join(c if _kept(c) else " " for c in folded)
    words = folded.split()
    if len(words) > 1 and words[0] in _ARTICLES:
        words = words[1:]
    return " ".join(words)


def _kept(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "L" or category == "Nd"


def normalised_type(entity_type: str) -> str:
    """Return the comparison form of an entity type; the type itself is always shown verbatim."""
    return " ".join(unicodedata.normalize("NFKC", entity_type).lower().split())


def stands_alone(key: str) -> bool:
    """Whether a key is the entity's public id itself (`pkg/gate.py::validate`), as source code gives them.

    It holds a point or a colon, which `identity_key` leaves in none.
    """
    return "." in key or ":" in key


def entity_id(entity_type: str, key: str) -> str:
    """Return the public id of the entity with this key: the key itself where it stands alone, else one that follows from
    the identity key within this type, e.g. `person:c1e4a519e393b70fa2c79cab`.
    """
    if stands_alone(key):
        return key
    kind = normalised_type(entity_type)
    digest = hashlib.sha256(f"{kind}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{kind}:{digest[:24]}"


def entity_no(public_id: str) -> EntityNo:
    """Return the 63-bit number of a public entity id: the first 16 of its hex digits, or of its hash where it has none."""
    found = _DIGEST.fullmatch(public_id)
    return EntityNo(int(found[1], 16) & _MASK if found else number_of("entity", public_id))


def graph_id(uid: str, generation: int) -> str:
    """Return the id of the graph of a generation; `uid` is the corpus's, 32 hex digits."""
    return f"{uid}-{generation}"


def graph_join_id(graph_id: str, chunk: int) -> str:
    """Return the value that joins a chunk of one generation to its graph; checked on both sides."""
    return f"{graph_id}:{show(chunk)}"

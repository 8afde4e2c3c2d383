"""Ready-made triples: one JSON object a line, `{"document", "passage", "triples": [[subject, predicate, object], …]}`.

Instead of three strings a triple can be `{"subject", "predicate", "object", "properties"}`. Optional keys: `title`, `metadata`
(an object), `types` (name to entity type) and `entities`, a list of `{"name", "type", "description", "properties"}`, of which
only the name is needed: what the passage mentions besides the ends of its triples, and what it says of them. `properties` are
texts, numbers and truth values by name (bounds: `ingest/properties.py`). Unknown keys are left alone. The lines of one
document need not be adjacent; its passages keep their order in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, cast

import orjson

from pipeline.errors import DocumentError
from pipeline.ingest.clean import clean
from pipeline.ingest.formats import TRIPLES
from pipeline.ingest.properties import OF_ENTITIES, OF_RELATIONS, read_properties, read_text
from schemas.documents import ParsedDocument, Passage
from schemas.graph import Fact, Mention, Scalar

MAX_LINE = 20 * 1024 * 1024
"""Bytes of one line."""
DEFAULT_TYPE = "Entity"

_REQUIRED = ("document", "passage", "triples")


@dataclass(frozen=True, slots=True)
class Triple:
    """A relation as a line states it."""

    subject: str
    predicate: str
    object: str
    properties: dict[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Named:
    """An entity as a line lists it; without a type of its own it has that of `types`."""

    name: str
    type: str = ""
    description: str = ""
    properties: dict[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a triples file, validated. `types` knows those of listed entities, too, where it does not say otherwise."""

    document: str
    passage: str
    triples: tuple[Triple, ...]
    title: str = ""
    entities: tuple[Named, ...] = ()
    types: dict[str, str] = field(default_factory=dict[str, str])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Line:
    """Where a line lies (bytes, without its line end), its number from 1, and its document or what is wrong."""

    start: int
    end: int
    number: int
    document: str = ""
    fault: str = ""


def scan(file: BinaryIO) -> Iterator[Line]:
    """Yield every line of a triples file that is not blank, checked; memory stays at one line."""
    start = number = 0
    while data := file.readline(MAX_LINE + 1):
        number += 1
        end = start + len(data)
        whole = data.endswith(b"\n") or len(data) <= MAX_LINE
        while not whole and (rest := file.readline(MAX_LINE)):
            end += len(rest)
            whole = rest.endswith(b"\n")
        if end - start > MAX_LINE + 1:
            yield Line(start, end, number, fault=f"line {number} is longer than {MAX_LINE >> 20} MiB")
        elif data.strip():
            yield _checked(data, start, number)
        start = end


def looks_like_triples(line: bytes) -> bool:
    """Whether the first line of a file has the three required keys."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(record, dict) and all(key in record for key in _REQUIRED)


def read_record(line: bytes) -> Record:
    """Return one line as a record.

    Raises:
        DocumentError: it is not of the form that the module describes; the message says what is wrong.
    """
    try:
        raw: object = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"not JSON ({error.msg})") from error
    if not isinstance(raw, dict):
        raise DocumentError("not an object")
    value = cast("dict[str, Any]", raw)
    document, passage = (_text(value, key) for key in ("document", "passage"))
    triples, entities = _list(value, "triples"), _list(value, "entities") if "entities" in value else []
    title, metadata, types = value.get("title", ""), value.get("metadata", {}), value.get("types", {})
    if not isinstance(title, str) or not isinstance(metadata, dict) or not isinstance(types, dict):
        raise DocumentError("`title` must be a string, `metadata` and `types` objects")
    named = tuple(_named(f"entities[{n}]", one) for n, one in enumerate(entities))
    return Record(
        document,
        passage,
        tuple(_triple(f"triples[{n}]", one) for n, one in enumerate(triples)),
        title,
        named,
        {one.name: one.type for one in reversed(named) if one.type}
        | {name: str(kind) for name, kind in cast("dict[str, object]", types).items() if kind},
        cast("dict[str, Any]", metadata),
    )


def parse_triples(document_id: str, data: bytes) -> ParsedDocument:
    """Return the document that these lines make up. Its text is its passages with blank lines between them.

    Raises:
        DocumentError: a line changed into something else since it was listed.
    """
    records = [read_record(line) for line in data.split(b"\n") if line.strip()]
    passages: list[Passage] = []
    cleaned = 0
    for record in records:
        text, gone = clean(record.passage)
        cleaned += gone
        if text.strip():
            passages.append(_passage(text, record))
    title = next((record.title for record in records if record.title), document_id)
    metadata = {key: value for record in records for key, value in record.metadata.items()}
    text = "\n\n".join(passage.text for passage in passages)
    return ParsedDocument(
        document_id, title, text, TRIPLES, metadata=metadata, passages=tuple(passages), cleaned=cleaned
    )


def locate(text: str, folded: str, name: str) -> int:
    """Return where a name stands in a text, or -1: in its own case before another, on its own before within a word.

    `folded` is `fold(text)`.
    """
    lower = fold(name)
    found = (_find(text, name, True), _find(text, name, False), _find(folded, lower, True), _find(folded, lower, False))
    return next((at for at in found if at >= 0), -1) if name else -1


def fold(text: str) -> str:
    """Return the text in lower case, character by character: offsets stay what they were."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _checked(data: bytes, start: int, number: int) -> Line:
    end = start + len(data.rstrip(b"\r\n"))
    try:
        return Line(start, end, number, read_record(data).document)
    except DocumentError as error:
        return Line(start, end, number, fault=f"line {number}: {error}")


def _text(value: dict[str, Any], key: str) -> str:
    text: object = value.get(key)
    if not isinstance(text, str) or (key == "document" and not text.strip()):
        raise DocumentError(f"`{key}` must be a string" + (" that is not blank" if key == "document" else ""))
    return text


def _list(value: Mapping[str, Any], key: str) -> list[object]:
    listed: object = value.get(key)
    if not isinstance(listed, list):
        raise DocumentError(f"`{key}` must be a list")
    return cast("list[object]", listed)


def _triple(at: str, value: object) -> Triple:
    if isinstance(value, dict):
        return _triple_object(at, cast("dict[str, object]", value))
    parts = cast("list[object]", value) if isinstance(value, list) else []
    match [clean(part)[0].strip() for part in parts if isinstance(part, str)]:
        case [subject, predicate, obj] if subject and predicate and obj and len(parts) == 3:
            return Triple(subject, predicate, obj)
        case _:
            raise DocumentError(f"`{at}` must be three strings that are not blank")


def _triple_object(at: str, value: Mapping[str, object]) -> Triple:
    subject, predicate, obj = (_part(value.get(key), f"{at}.{key}") for key in ("subject", "predicate", "object"))
    return Triple(
        subject, predicate, obj, read_properties(value.get("properties", {}), OF_RELATIONS, f"{at}.properties")
    )


def _named(at: str, value: object) -> Named:
    if not isinstance(value, dict):
        raise DocumentError(f"`{at}` must be an object")
    one = cast("dict[str, object]", value)
    return Named(
        _part(one.get("name"), f"{at}.name"),
        _part(one["type"], f"{at}.type") if "type" in one else "",
        read_text(one.get("description", ""), f"{at}.description").strip(),
        read_properties(one.get("properties", {}), OF_ENTITIES, f"{at}.properties"),
    )


def _part(value: object, at: str) -> str:
    text = clean(value)[0].strip() if isinstance(value, str) else ""
    if not text:
        raise DocumentError(f"`{at}` must be a string that is not blank")
    return text


def _passage(text: str, record: Record) -> Passage:
    folded = fold(text)
    mentions: dict[tuple[str, str], Mention] = {}
    facts: dict[Fact, None] = {}

    def mention(name: str, kind: str) -> Mention:
        if (name, kind) not in mentions:
            mentions[name, kind] = _mention(text, folded, name, kind)
        return mentions[name, kind]

    for one in record.triples:
        kinds = [record.types.get(name, DEFAULT_TYPE) for name in (one.subject, one.object)]
        for name, kind in zip((one.subject, one.object), kinds, strict=True):
            mention(name, kind)
        facts[Fact(one.subject, kinds[0], one.predicate, one.object, kinds[1], properties=one.properties)] = None
    for entity in record.entities:
        kind = entity.type or record.types.get(entity.name, DEFAULT_TYPE)
        mentions[entity.name, kind] = _described(mention(entity.name, kind), entity)
    return Passage(text, tuple(mentions.values()), tuple(facts))


def _mention(text: str, folded: str, name: str, kind: str) -> Mention:
    at = locate(text, folded, name)
    if at < 0:
        return Mention(name, kind)
    return Mention(text[at : at + len(name)], kind, at, at + len(name))


def _described(mention: Mention, entity: Named) -> Mention:
    """Return the mention with what a line says of the entity; what was said of it before stays."""
    return replace(
        mention,
        description=mention.description or entity.description,
        properties={**entity.properties, **mention.properties},
    )


def _find(text: str, name: str, whole: bool) -> int:
    at = text.find(name)
    while whole and at >= 0 and (text[at - 1 : at].isalnum() or text[at + len(name) : at + len(name) + 1].isalnum()):
        at = text.find(name, at + 1)
    return at

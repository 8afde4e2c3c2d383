"""What a model says it found, held against the chunk it read: pure rules, the first problem of a candidate wins."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pipeline.errors import InvalidRequest, ModelError
from pipeline.ingest.lexicon import words
from schemas.graph import Extraction, Fact, Mention
from schemas.ids import identity_key, normalised_type
from schemas.settings import ExtractionSettings

RESERVED_KEYS = frozenset({"repo_id", "run_id", "graphjoinid", "graph_join_id"})
"""Property keys that belong to the stores; compared in lower case."""

GENERIC_LABELS = frozenset({"object", "entity", "related_to", "associated_with", "related to", "associated with"})
"""Labels that say nothing; refused in any case."""

PRONOUNS = words(
    "he she it they him her them his hers its their theirs i you we me us who which that this these those "
    "他 她 它 他们 她们 它们 其 此人 该人"
)
"""Names that stand for another name; refused."""

MAX_NAME = 300
"""Characters of a name or label at most."""

MAX_DESCRIPTION = 1000
"""Characters of a description that are kept."""

Key = tuple[str, str]


def check_size(answer: str, rules: ExtractionSettings) -> None:
    """Refuse an answer that is too long, before anything reads it.

    Raises:
        ModelError: it has more than `max_response_chars` characters.
    """
    if len(answer) > rules.max_response_chars:
        raise ModelError(f"The model's answer has {len(answer)} characters; {rules.max_response_chars} are allowed.")


def validated(candidates: Mapping[str, Any], text: str, rules: ExtractionSettings) -> Extraction:
    """Return the candidates that the chunk bears out, and a warning for each that it does not.

    Entities have `name`, `type`, `evidence`, `confidence` and `description`; relations `source`, `target` (with
    `source_type` and `target_type` where entities share a name), `type`, `evidence`, `confidence`, `inferred` and
    `opinion`. A missing confidence counts as 1. With types given, others are refused (compared without regard to
    case, kept as the settings spell them).

    Raises:
        ModelError: `entities` or `relations` is no list.
    """
    warnings: list[str] = []
    mentions: dict[Key, Mention] = {}
    for one in _capped(candidates, "entities", rules.max_entities, warnings):
        try:
            mention = _mention(one, text, rules)
            key = (identity_key(mention.name), normalised_type(mention.type))
            if key in mentions:
                raise InvalidRequest("duplicate entity")
            mentions[key] = mention
        except InvalidRequest as problem:
            warnings.append(f"entity {_shown(one, 'name')}: {problem}")
    facts: dict[tuple[str, ...], Fact] = {}
    for one in _capped(candidates, "relations", rules.max_relations, warnings):
        try:
            fact = _fact(one, text, mentions, rules)
            facts.setdefault((fact.subject, fact.subject_type, fact.type, fact.object, fact.object_type), fact)
        except InvalidRequest as problem:
            warnings.append(f"relation {_shown(one, 'source')} -> {_shown(one, 'target')}: {problem}")
    return Extraction(tuple(mentions.values()), tuple(facts.values()), warnings=tuple(warnings))


def _capped(candidates: Mapping[str, Any], key: str, limit: int, warnings: list[str]) -> Iterable[Mapping[str, Any]]:
    listed = candidates.get(key, [])
    if not isinstance(listed, list):
        raise ModelError(f"The model's answer has no list of {key}.")
    found = cast("Sequence[Any]", listed)
    if len(found) > limit:
        warnings.append(f"{len(found) - limit} of {len(found)} {key} are over the limit and were left out")
    return [cast("Mapping[str, Any]", one) if isinstance(one, dict) else {} for one in found[:limit]]


def _mention(one: Mapping[str, Any], text: str, rules: ExtractionSettings) -> Mention:
    name = _text(one, "name")
    kind = _label(one, rules.entity_types, "entity")
    if not identity_key(name):
        raise InvalidRequest("the name has no letter or digit")
    if identity_key(name) in PRONOUNS and not (name.isupper() and len(name) > 1):  # "us", but not "US"
        raise InvalidRequest("a pronoun is no name")
    _quality(one, text, rules)
    _properties(one)
    start = _place(text, name)
    return Mention(name, kind, start, start + len(name) if start >= 0 else -1, description=_description(one))


def _fact(one: Mapping[str, Any], text: str, mentions: Mapping[Key, Mention], rules: ExtractionSettings) -> Fact:
    kind = _label(one, rules.relation_types, "relation")
    source, target = _endpoint(one, "source", mentions), _endpoint(one, "target", mentions)
    if source is target:
        raise InvalidRequest("both ends are the same entity")
    if one.get("inferred") and not rules.include_inferred:
        raise InvalidRequest("inferred relations are disabled")
    if one.get("opinion") and not rules.include_opinions:
        raise InvalidRequest("opinion relations are disabled")
    confidence, start, end = _quality(one, text, rules)
    _properties(one)
    return Fact(source.name, source.type, kind, target.name, target.type, confidence, start, end)


def _endpoint(one: Mapping[str, Any], end: str, mentions: Mapping[Key, Mention]) -> Mention:
    """Return the accepted entity that an end of a relation names, by its type too where entities share the name."""
    key = identity_key(_text(one, end))
    kind = one.get(f"{end}_type")
    named = [mention for (name, _), mention in mentions.items() if name == key]
    if isinstance(kind, str) and len(named) > 1:
        named = [mention for mention in named if normalised_type(mention.type) == normalised_type(kind)]
    if not named:
        raise InvalidRequest("relation endpoint does not reference an accepted entity")
    if len(named) > 1:
        raise InvalidRequest(f"several entities are called {named[0].name!r}; {end}_type must say which")
    return named[0]


def _text(one: Mapping[str, Any], key: str) -> str:
    value = one.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{key} is missing")
    if len(value) > MAX_NAME:
        raise InvalidRequest(f"{key} has more than {MAX_NAME} characters")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidRequest(f"{key} holds a character that cannot be stored")
    return " ".join(value.split())


def _description(one: Mapping[str, Any]) -> str:
    """Return the description on one line, without what cannot be stored; it is never a reason to refuse."""
    value = one.get("description")
    clean = "".join(c for c in value if c != "\0" and not "\ud800" <= c <= "\udfff") if isinstance(value, str) else ""
    return " ".join(clean.split())[:MAX_DESCRIPTION]


def _label(one: Mapping[str, Any], allowed: tuple[str, ...], what: str) -> str:
    label = _text(one, "type")
    if normalised_type(label) in GENERIC_LABELS:
        raise InvalidRequest(f"generic graph label is prohibited: {label}")
    if not allowed:
        return label
    for known in allowed:
        if normalised_type(known) == normalised_type(label):
            return known
    raise InvalidRequest(f"unknown {what} type: {label}")


def _quality(one: Mapping[str, Any], text: str, rules: ExtractionSettings) -> tuple[float, int, int]:
    """Return the confidence and where the evidence stands in the chunk (-1, -1: there need not be any, and is none)."""
    confidence = one.get("confidence", 1.0)
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0.0 < confidence <= 1.0:
        raise InvalidRequest("confidence is not a number above 0 and up to 1")
    if confidence < rules.min_confidence:
        raise InvalidRequest("confidence is below minimum threshold")
    evidence = one.get("evidence")
    if not isinstance(evidence, str) or not evidence.strip():
        if rules.require_evidence:
            raise InvalidRequest("evidence is required")
        return float(confidence), -1, -1
    start = text.find(evidence)
    if start < 0:
        raise InvalidRequest("evidence is not an exact substring of the chunk")
    return float(confidence), start, start + len(evidence)


def _properties(one: Mapping[str, Any]) -> None:
    properties = one.get("properties")
    inner = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    if reserved := sorted(key for key in (*one, *inner) if key.lower() in RESERVED_KEYS):
        raise InvalidRequest(f"reserved property key: {reserved[0]}")


def _place(text: str, name: str) -> int:
    """Return where the name stands as whole words in the text, or -1."""
    at = text.find(name)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(name) : at + len(name) + 1]
        if not (_joins(before) and _joins(name[0])) and not (_joins(after) and _joins(name[-1])):
            return at
        at = text.find(name, at + 1)
    return -1


def _joins(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _shown(one: Mapping[str, Any], key: str) -> str:
    """A candidate's name as a warning may hold it: short, on one line, printable."""
    value = unicodedata.normalize("NFC", str(one.get(key, "")))[:80]
    return repr("".join(c if c.isprintable() else " " for c in value))

"""What is extracted from chunks (mentions, facts) and what is derived from it (entities, relations, communities)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from schemas.ids import CommunityId, EntityNo

Scalar = str | int | float | bool
"""What a property of an entity or relation can be."""

MAX_PROPERTIES = 64
"""Properties of one entity or relation."""


class MentionOrigin(StrEnum):
    """Whether the name stands in the chunk's text or was carried into it from the document's title or a heading."""

    TEXT = "text"
    TITLE = "title"
    HEADING = "heading"


_ORIGINS = {origin.value: origin for origin in MentionOrigin}
"""A look-up takes a tenth of the time of a call of the enum, and there are a dozen mentions in a chunk."""


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity named in a chunk, and what the chunk says of it.

    `start`/`end` are character offsets in the chunk's text with `text[start:end] == name`, or -1/-1 where the name was
    carried in or could not be located. `type` is an open string, kept verbatim. `identity` is the entity's public id where
    it has one of its own (see `ids.stands_alone`), else empty: then it follows from name and type.
    """

    name: str
    type: str
    start: int = -1
    end: int = -1
    origin: MentionOrigin = MentionOrigin.TEXT
    description: str = ""
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar], hash=False)
    identity: str = ""

    def __reduce__(self) -> tuple[object, ...]:
        """Return what a pickle holds: the fields alone, which takes a third of the time of their names, and properties if any.

        The origin goes as text: some versions of Python pickle an enum's member as a call of `getattr`, which whoever reads
        the answer of a parser must not make.
        """
        fields = (self.name, self.type, self.start, self.end, self.origin.value, self.description)
        if self.identity:
            return restored, (*fields, self.properties, self.identity)
        return restored, (*fields, self.properties) if self.properties else fields


def restored(
    name: str,
    type_: str,
    start: int,
    end: int,
    origin: str,
    description: str,
    properties: Mapping[str, Scalar] | None = None,
    identity: str = "",
) -> Mention:
    """Return the mention that a pickle holds."""
    return Mention(name, type_, start, end, _ORIGINS[origin], description, properties or {}, identity)


@dataclass(frozen=True, slots=True)
class Fact:
    """A typed, directed relation stated in a chunk; `start`/`end` delimit its evidence in the chunk's text (-1/-1: all of it).

    `confidence` is in (0, 1]. Subject and object are always mentions of the same chunk too, unless they have public ids of
    their own: then they are mentioned where they are defined.
    """

    subject: str
    subject_type: str
    type: str
    object: str
    object_type: str
    confidence: float = 1.0
    start: int = -1
    end: int = -1
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar], hash=False)
    subject_id: str = ""
    object_id: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: as of a mention."""
        return Fact, (
            self.subject, self.subject_type, self.type, self.object, self.object_type, self.confidence, self.start, self.end,
            self.properties, self.subject_id, self.object_id,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extraction:
    """All that one extractor found in one chunk's text, in order of appearance, and what it cost (tokens; 0 offline)."""

    mentions: tuple[Mention, ...] = ()
    facts: tuple[Fact, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    warnings: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Return what a pickle holds: as of a mention."""
        return Extraction, (self.mentions, self.facts, self.input_tokens, self.output_tokens, self.warnings)


@dataclass(frozen=True, slots=True)
class Entity:
    """A resolved node of one generation. `mentions` and `chunks` count its evidence."""

    entity_no: EntityNo
    entity_id: str
    type: str
    key: str
    name: str
    description: str = ""
    mentions: int = 0
    chunks: int = 0
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Relation:
    """A typed, directed edge; `weight` in (0, 1] is the best confidence, `evidence` the number of chunks that state it."""

    source: EntityNo
    target: EntityNo
    type: str
    weight: float
    evidence: int
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Community:
    """A Leiden cluster. `level` 0 is the coarsest; `members` are in ascending order."""

    community_id: CommunityId
    level: int
    parent: CommunityId | None
    members: tuple[EntityNo, ...]
    name: str = ""
    summary: str = ""

"""A first allow-list for a graph, made from what is in it: portable names for stored types, for a person to trim."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType

MOST_TYPES = 50
"""Types of entities, and types of relations, that a proposal has: the most frequent."""

MOST_PROPERTIES = 500
"""Extracted properties of all types together: the most frequent."""

PREDOMINANT = 0.9
"""Share of a type of relations that goes between one pair of types for these to be its declared ends."""

MOST_NAME = 80
"""Characters of a proposed name, before the number that tells it from another one."""

_ENTITY = {
    "name": (PropertyType.STRING, "What it is called."),
    "description": (PropertyType.STRING, "What the documents say about it, shortened."),
    "mentions": (PropertyType.INT64, "How often the documents name it."),
    "chunks": (PropertyType.INT64, "In how many passages it is named."),
}
_RELATION = {
    "weight": (PropertyType.DOUBLE, "How sure it is: the best confidence of a statement, above 0 and up to 1."),
    "evidence": (PropertyType.INT64, "How many passages state it."),
}


@dataclass(frozen=True, slots=True)
class TypeCount:
    """How many entities or relations of a stored type there are."""

    type: str
    rows: int


@dataclass(frozen=True, slots=True)
class PropertyCount:
    """What the values of an extracted property of a stored type are. `integers` are among `numbers`; the rest are texts,
    of which so many have the form of a DATE or DATETIME.
    """

    kind: Literal["node", "edge"]
    owner: str
    name: str
    rows: int
    booleans: int = 0
    numbers: int = 0
    integers: int = 0
    dates: int = 0
    datetimes: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class Ends:
    """The pair of stored types between which most relations of a type go, and how many of them do."""

    type: str
    source: str
    target: str
    rows: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a generation holds, each list in order: the most frequent first, then by code points."""

    entities: Sequence[TypeCount] = ()
    relations: Sequence[TypeCount] = ()
    properties: Sequence[PropertyCount] = ()
    ends: Sequence[Ends] = ()


class Surveyor(Protocol):
    """Counts what a generation holds."""

    async def survey(self, graph: GraphRef, deadline: Deadline) -> Findings:
        """Return up to MOST_TYPES types of each kind, MOST_PROPERTIES properties, and the ends of each type of relations."""
        ...


def propose(corpus: str, version: str, found: Findings) -> GraphSchema:
    """Return a schema for what was found. The same findings give the same schema.

    The ends of a type are declared where one pair predominates; then all other relations of the type are outside of what can
    be asked, and its description says how many these are.
    """
    labels = _named([one.type for one in found.entities], pascal)
    types = _named([one.type for one in found.relations], snake)
    ends = {one.type: one for one in found.ends}
    return GraphSchema(
        id=corpus,
        version=version,
        display_name=corpus,
        description=f"Entities and relations found in the documents of the corpus {corpus}.",
        node_types=tuple(_node(one, labels[one.type], found) for one in found.entities),
        edge_types=tuple(_edge(one, types[one.type], ends.get(one.type), labels, found) for one in found.relations),
    )


def pascal(text: str) -> str:
    """Return a label for a stored type: `Work of Art` and `work_of_art` become `WorkOfArt`."""
    return _led("".join(word[0].upper() + word[1:] for word in _words(text)) or "Entity")


def snake(text: str) -> str:
    """Return an edge type for a stored type: `works at` and `worksAt` become `WORKS_AT`."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return _led("_".join(_words(parted)).upper() or "RELATED_TO")


def _property_name(text: str) -> str:
    return _led("_".join(_words(text)) or "value")


def _words(text: str) -> list[str]:
    """Return the words of a text in letters that the language has; accents go, other scripts are left out."""
    plain = unicodedata.normalize("NFKD", text[:1000]).encode("ascii", "ignore").decode()
    return re.findall("[A-Za-z0-9]+", plain)


def _led(name: str) -> str:
    """Return the name, led by a letter or underscore, within its length."""
    return (f"_{name}" if name[0].isdigit() else name)[:MOST_NAME]


def _named(stored: Iterable[str], portable: Callable[[str], str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return a name for each stored one; the second of those with one name is called `Name2`, and so on."""
    used, names = set(taken), dict[str, str]()
    for one in stored:
        wanted = name = portable(one)
        number = 2
        while name in used:
            name, number = f"{wanted}{number}", number + 1
        used.add(name)
        names[one] = name
    return names


def _node(one: TypeCount, label: str, found: Findings) -> NodeType:
    return NodeType(
        label=label,
        display_name=one.type[:300],
        description=f"{_count(one.rows, 'entity', 'entities')}.",
        properties=(*_fixed(_ENTITY), *_extracted("node", one.type, _ENTITY, found)),
        stored=(one.type,),
    )


def _edge(one: TypeCount, name: str, ends: Ends | None, labels: dict[str, str], found: Findings) -> EdgeType:
    source, target, remark = None, None, ""
    if ends and ends.source in labels and ends.target in labels and ends.rows >= PREDOMINANT * one.rows:
        source, target = labels[ends.source], labels[ends.target]
        if others := one.rows - ends.rows:
            remark = f" {others} of them go between other labels and cannot be asked for while these are declared."
    return EdgeType(
        type=name,
        display_name=one.type[:300],
        description=f"{_count(one.rows, 'relation', 'relations')}.{remark}",
        source_label=source,
        target_label=target,
        properties=(*_fixed(_RELATION), *_extracted("edge", one.type, _RELATION, found)),
        stored=(one.type,),
    )


def _fixed(columns: dict[str, tuple[PropertyType, str]]) -> list[ExposedProperty]:
    return [ExposedProperty(name=name, type=kind, description=text) for name, (kind, text) in columns.items()]


def _extracted(
    kind: Literal["node", "edge"], owner: str, columns: Iterable[str], found: Findings
) -> list[ExposedProperty]:
    """Return the properties of a type that were extracted; a column of the same name hides one."""
    mine = [
        one
        for one in found.properties
        if one.kind == kind and one.owner == owner and one.name and one.name not in columns
    ]
    names = _named([one.name for one in mine], _property_name, columns)
    return [_property(one, names[one.name]) for one in mine]


def _property(one: PropertyCount, name: str) -> ExposedProperty:
    kind, fitting = _inferred(one)
    remark = "" if fitting == one.rows else f" {one.rows - fitting} of them are of another type and count as missing."
    example = f", for example {one.example}" if one.example else ""
    text = f"{_count(one.rows, 'value', 'values')}{example}.{remark}"
    return ExposedProperty(name=name, type=kind, description=text, stored="" if name == one.name else one.name)


def _inferred(one: PropertyCount) -> tuple[PropertyType, int]:
    """Return the type of most values and how many are of it; of types that are as frequent, the narrower."""
    texts = one.rows - one.booleans - one.numbers
    candidates = [
        (PropertyType.BOOLEAN, one.booleans),
        (PropertyType.INT64, one.integers),
        (PropertyType.DOUBLE, one.numbers),
        (PropertyType.DATE, one.dates),
        (PropertyType.DATETIME, one.datetimes),
        (PropertyType.STRING, texts),
    ]
    return max(candidates, key=lambda candidate: candidate[1])


def _count(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"

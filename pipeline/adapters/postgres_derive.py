"""Entities and relations, derived from the rows that a generation sees; the cost follows what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import MAX_PROPERTIES
from schemas.ids import CorpusId, entity_id

_SQL = load("derive")

PAGE = 200_000
"""Mentions or facts born or dead at a number that one statement derives from: some seconds, far below what one may take."""

_END = 1 << 63
"""One more than the last number. Numbers are hashes, so equal ranges hold about as many."""

_ENTITY = (
    "corpus_id", "entity_no", "born", "entity_id", "type", "key", "name", "description", "mentions", "chunks", "degree",
    "first_chunk", "properties",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Derived:
    """What deriving changed: versions written and ended, and whether the communities have to follow.

    `edges`: a relation came, went or has another weight. `nodes`: an entity came, went or has another name.
    """

    entities: int
    relations: int
    nodes: bool
    edges: bool

    @property
    def graph_changed(self) -> bool:
        """Whether communities, their names or their members may differ."""
        return self.nodes or self.edges


async def derive(tx: Tx, corpus: CorpusId, number: int) -> Derived:
    """Bring entities and relations up to the documents of the generation that is built. Deriving again changes nothing.

    An entity is named by its most frequent surface (those in the text before those carried in from a title), has its
    most frequent spelling of the type and its longest description, ties by code point. A relation weighs its best
    confidence. Of each property both have the value of the first mention or fact that has it, by chunk and place.
    """
    await tx.execute(_SQL["reset_derived"], corpus, number)
    touched = await tx.fetchrow(_SQL["touched"], corpus, number)
    relations = entities = 0
    nodes = edges = False
    for page in _pages(touched["facts"]):
        written = await tx.fetchrow(_SQL["derive_relations"], corpus, number, *page, MAX_PROPERTIES)
        relations += written["born"] + written["died"]
        edges = edges or written["edges"]
    for page in _pages(touched["mentions"]):
        changed = await tx.fetch(_SQL["changed_entities"], corpus, number, *page, MAX_PROPERTIES)
        entities += await _write_entities(tx, corpus, number, changed)
        nodes = nodes or _nodes_changed(changed)
    return Derived(entities, relations, nodes, edges)


def _pages(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the inclusive ranges of numbers that cut what so many rows touch into about equal parts; at least one."""
    count = max(1, -(-rows // PAGE))
    bounds = [_END * part // count for part in range(count + 1)]
    for low, high in pairwise(bounds):
        yield low, high - 1


async def _write_entities(tx: Tx, corpus: CorpusId, number: int, changed: Sequence[Any]) -> int:
    """End the versions that these rows replace, write the new ones, and return how many that were."""
    fresh = [row for row in changed if row["name"] is not None]
    old = [row["entity_no"] for row in changed if row["entity_id"] is not None]
    if old:
        await tx.execute(_SQL["end_entities"], corpus, number, old)
    await tx.copy("entity", _ENTITY, (_entity(corpus, number, row) for row in fresh))
    return len(fresh) + len(old)


def _nodes_changed(changed: Sequence[Any]) -> bool:
    """Whether the set of entities or a name differs; a gone or new entity lacks one of the two names."""
    return any(row["name"] != row["old_name"] for row in changed)


def _entity(corpus: int, number: int, row: Any) -> tuple[Any, ...]:
    """The public id is part of the first version and stays; only Python knows how a type is normalised."""
    public = row["entity_id"] or entity_id(row["type"], row["key"])
    return (
        corpus, row["entity_no"], number, public, row["type"], row["key"], row["name"], row["description"],
        row["mentions"], row["chunks"], row["degree"], row["first_chunk"],
        orjson.Fragment(row["properties"]),
    )  # fmt: skip

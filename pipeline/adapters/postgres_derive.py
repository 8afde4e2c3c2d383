"""Entities and relations, derived from the rows that a generation sees; the cost follows what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.ports import Tx
from pipeline.queries import load
from schemas.ids import CorpusId, entity_id

_SQL = load("derive")

_ENTITY = (
    "corpus_id", "entity_no", "born", "entity_id", "type", "key", "name", "description", "mentions", "chunks",
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
    confidence.
    """
    await tx.execute(_SQL["reset_derived"], corpus, number)
    changed = await tx.fetch(_SQL["changed_entities"], corpus, number)
    fresh = [row for row in changed if row["name"] is not None]
    old = [row["entity_no"] for row in changed if row["entity_id"] is not None]
    if old:
        await tx.execute(_SQL["end_entities"], corpus, number, old)
    await tx.copy("entity", _ENTITY, (_entity(corpus, number, row) for row in fresh))
    relations = await tx.fetchrow(_SQL["derive_relations"], corpus, number)
    edges = relations["born"] + relations["died"]
    return Derived(len(fresh) + len(old), edges, _nodes_changed(changed), edges > 0)


def _nodes_changed(changed: Sequence[Any]) -> bool:
    """Whether the set of entities or a name differs; a gone or new entity lacks one of the two names."""
    return any(row["name"] != row["old_name"] for row in changed)


def _entity(corpus: int, number: int, row: Any) -> tuple[Any, ...]:
    """The public id is part of the first version and stays; only Python knows how a type is normalised."""
    public = row["entity_id"] or entity_id(row["type"], row["key"])
    return (
        corpus, row["entity_no"], number, public, row["type"], row["key"], row["name"], row["description"],
        row["mentions"], row["chunks"],
    )  # fmt: skip

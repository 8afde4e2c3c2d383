"""What a graph store is given and gives back: one graph for each generation, in parts of bounded size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from pipeline.errors import InvalidRequest
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId

if TYPE_CHECKING:
    from schemas.manifest import Manifest  # loads pydantic, and children that parse load this module

_GRAPH_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,9})")

RESERVED = frozenset({"graph_id", "graph_join_id", "run_id", "repo_id", "graphJoinId"})
"""Keys that scope rows to a graph: no extracted entity or relation may carry one."""


@dataclass(frozen=True, slots=True)
class GraphRef:
    """The graph of one generation. `corpus` is the corpus's name, which may choose the database.

    `graph_id` is `<the corpus's uid, 32 hex digits>-<generation>`: unique wherever several installations share a server.
    After a rollback it is that of the generation whose graph is read again.
    """

    corpus_id: CorpusId
    generation: int
    corpus: str
    graph_id: str

    def __post_init__(self) -> None:
        if not _GRAPH_ID.fullmatch(self.graph_id):
            raise InvalidRequest("A graph id is <32 hex digits>-<generation>, as Sapwood makes them.")

    @classmethod
    def of(cls, corpus_id: CorpusId, manifest: Manifest) -> Self:
        """Return the graph that a manifest names."""
        return cls(corpus_id, manifest.generation, manifest.corpus, manifest.graph_id)

    @property
    def uid(self) -> str:
        """The corpus's uid."""
        return self.graph_id.partition("-")[0]


@dataclass(frozen=True, slots=True)
class GraphChunk:
    """A passage as a graph knows it: its place among those of its document, from 0 and without holes."""

    chunk_id: int
    document: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class GraphMention:
    """That a chunk mentions an entity. Given several times it counts once."""

    chunk_id: int
    entity_no: int


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Rows of one graph, in any order; what a relation or mention joins is in this part or in an earlier one."""

    chunks: Sequence[GraphChunk] = ()
    entities: Sequence[Entity] = ()
    relations: Sequence[Relation] = ()
    mentions: Sequence[GraphMention] = ()

    def __len__(self) -> int:
        return len(self.chunks) + len(self.entities) + len(self.relations) + len(self.mentions)


@dataclass(frozen=True, slots=True)
class GraphTotals:
    """How many rows a graph has, and how many of them should not be in it.

    `stray_nodes` and `stray_relations` are stamped with another graph than the nodes that they are tied to;
    `placed` counts the entities that have a community.
    """

    chunks: int = 0
    entities: int = 0
    relations: int = 0
    mentions: int = 0
    placed: int = 0
    stray_nodes: int = 0
    stray_relations: int = 0


@dataclass(frozen=True, slots=True)
class Clusters:
    """A hierarchical clustering of the entities that have relations; who has none is not in it.

    `paths` leads from an entity to the labels of its clusters, from the coarsest level to the finest: any numbers, equal
    within a level for members of one cluster. `modularity` is that of the coarsest level, 0 without relations.
    """

    paths: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    modularity: float = 0.0


def check_keys(what: str, keys: Iterable[str]) -> None:
    """Refuse properties that would change which graph a row belongs to.

    Raises:
        InvalidRequest: `what` (an entity or relation, by name) carries a reserved key.
    """
    for key in keys:
        if key in RESERVED:
            raise InvalidRequest(f"{what} contains reserved scope key {key!r}")

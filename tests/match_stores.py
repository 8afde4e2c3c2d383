"""Stores that answer portable MATCH, each with a way to put graphs into it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from pipeline.adapters.postgres_match import PostgresMatch
from pipeline.adapters.postgres_pool import Pool
from pipeline.deadline import Deadline
from pipeline.generations.rows import stored
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.memory import MemoryMatch, PropertyGraph
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, graph_id

ENTITY = (
    "corpus_id", "born", "died", "entity_no", "entity_id", "type", "key", "name", "description", "mentions", "chunks",
    "properties",
)  # fmt: skip
RELATION = ("corpus_id", "born", "died", "source_no", "target_no", "type", "weight", "evidence", "properties")
GENERATION = 2


@dataclass
class MemoryStore:
    """The reference."""

    graphs: dict[str, PropertyGraph] = field(default_factory=dict[str, PropertyGraph])

    @property
    def executor(self) -> MemoryMatch:
        """See `MatchStore`."""
        return MemoryMatch(self.graphs)

    async def load(self, entities: Sequence[Entity], relations: Sequence[Relation]) -> GraphRef:
        """See `MatchStore`."""
        graph = GraphRef(CorpusId(1), 1, "docs", graph_id(uuid.uuid4().hex, 1))
        self.graphs[graph.graph_id] = PropertyGraph.of_entities(entities, relations)
        return graph


@dataclass
class PostgresStore:
    """The rows of one generation, among others that it does not see: of another corpus, of the ones before and after it."""

    pool: Pool
    numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def executor(self) -> PostgresMatch:
        """See `MatchStore`."""
        return PostgresMatch(self.pool)

    async def load(self, entities: Sequence[Entity], relations: Sequence[Relation]) -> GraphRef:
        """See `MatchStore`."""
        name = f"match-{next(self.numbers)}"
        async with self.pool.transaction(Deadline.after(60)) as tx:
            create = "insert into corpus (name) values ($1) returning corpus_id"
            corpus, other = [await tx.fetchval(create, one) for one in (name, f"other-{name}")]
            nodes, edges = [_entity(one) for one in entities], [_relation(one) for one in relations]
            outdated = [_entity(replace(one, name="outdated", properties={"s": "outdated"})) for one in entities]
            reversed_ = [(target, source, *rest) for source, target, *rest in edges]
            unseen = (corpus, 1, 2), (corpus, 3, None), (other, 1, None)
            mine = corpus, 1 if name.endswith("1") else 2, None
            await tx.copy("entity", ENTITY, [(*mine, *row) for row in nodes])
            await tx.copy("relation", RELATION, [(*mine, *row) for row in edges])
            hidden = [scope for scope in unseen if scope[:2] != mine[:2]]
            await tx.copy("entity", ENTITY, [(*scope, *row) for scope in hidden for row in outdated])
            await tx.copy("relation", RELATION, [(*scope, *row) for scope in hidden for row in reversed_])
        return GraphRef(CorpusId(corpus), GENERATION, name, graph_id(uuid.uuid4().hex, GENERATION))


def _entity(one: Entity) -> tuple[object, ...]:
    properties = stored(one.properties)
    return (
        one.entity_no, one.entity_id, one.type, one.key, one.name, one.description, one.mentions, one.chunks, properties,
    )  # fmt: skip


def _relation(one: Relation) -> tuple[object, ...]:
    return one.source, one.target, one.type, one.weight, one.evidence, stored(one.properties)

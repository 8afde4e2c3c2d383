"""Graphs in Neo4j for the tests of portable MATCH."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.adapters.neo4j_match import Neo4jMatch
from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphPart, GraphRef
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, graph_id
from tests.neo4j_server import Neo4jServer

CORPUS, FENCE = "match", 1


class Neo4jStore:
    """A `MatchStore`. Each graph has a neighbour of another generation, with the same ids and other contents."""

    def __init__(self, sessions: Neo4j) -> None:
        self.sessions = sessions
        self.made: list[GraphRef] = []
        self._graphs = Neo4jGraph(sessions, GdsLeiden(sessions))

    @property
    def executor(self) -> Neo4jMatch:
        """See `MatchStore`."""
        return Neo4jMatch(self.sessions)

    async def load(self, entities: Sequence[Entity], relations: Sequence[Relation]) -> GraphRef:
        """See `MatchStore`. The graph is sealed, as those that are asked are."""
        uid = uuid.uuid4().hex
        outdated = [replace(one, name="outdated", properties={"s": "outdated"}) for one in entities]
        await self._keep(uid, 1, outdated, [replace(one, source=one.target, target=one.source) for one in relations])
        return await self._keep(uid, 2, entities, relations)

    async def close(self) -> None:
        """Drop all graphs that were loaded."""
        for graph in self.made:
            await self._graphs.drop(graph.corpus, graph.graph_id, Deadline.after(60))

    async def _keep(
        self, uid: str, generation: int, entities: Sequence[Entity], relations: Sequence[Relation]
    ) -> GraphRef:
        graph = GraphRef(CorpusId(1), generation, CORPUS, graph_id(uid, generation))
        self.made.append(graph)
        await self._graphs.open(graph, FENCE, Deadline.after(60))
        await self._graphs.write(graph, FENCE, GraphPart(entities=entities, relations=relations), Deadline.after(60))
        await self._graphs.seal(graph, FENCE, Deadline.after(60))
        return graph


@asynccontextmanager
async def open_store(server: Neo4jServer, **changes: Any) -> AsyncGenerator[Neo4jStore, None]:
    """Lend a store on a server, and drop what was put into it."""
    async with open_neo4j(server.config(**changes)) as sessions:
        store = Neo4jStore(sessions)
        try:
            yield store
        finally:
            await store.close()

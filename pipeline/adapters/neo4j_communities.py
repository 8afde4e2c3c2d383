"""Leiden in Neo4j's Graph Data Science library, on a projection that depends on the graph alone.

The library numbers nodes as they come and visits them in that order. So pairs come in the order of the entities' numbers,
one of each with all its evidence, and neither Neo4j's internal ids nor the order of writes matter.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, InconsistentGeneration, SapwoodError
from pipeline.graphs.parts import Clusters, GraphRef
from pipeline.graphs.sessions import Sessions
from pipeline.queries import load_cypher

_CYPHER = load_cypher("communities")

SEED = 19
VERSION = "2.13."
DROP_SECONDS = 10.0
"""How long the removal of a projection may take, whatever happened before."""

STALE_SECONDS = 3600
"""Age of a projection whose worker must be gone."""


class GdsLeiden:
    """A `Clusterer` over one server. Calls go to the member of a cluster that takes writes, where the projection is."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._verified: set[str] = set()

    async def cluster(self, graph: GraphRef, deadline: Deadline) -> Clusters:
        """See `GraphStore`.

        Raises:
            ConfigurationError: the library is missing or of another version.
            InconsistentGeneration: an entity with relations got no clusters.
        """
        database = self._sessions.database_of(graph.corpus)
        scope = {"graph_id": graph.graph_id}
        eligible = (await self._sessions.read(database, _CYPHER["eligible"], scope, deadline))[0]["eligible"]
        if not eligible:
            return Clusters()
        await self.verify(database, deadline)
        async with self._projection(database, deadline) as name:
            projected = await self._ask(database, _CYPHER["project"], {**scope, "name": name}, deadline)
            found = await self._ask(database, _CYPHER["leiden"], {"name": name, "seed": SEED}, deadline)
            levels = await self._ask(database, _CYPHER["levels"], {"name": name}, deadline)
        clusters = Clusters(_paths(levels), found[0]["modularity"])
        _check(eligible, projected[0]["nodes"], clusters, len(levels))
        return clusters

    async def verify(self, database: str, deadline: Deadline) -> None:
        """Check, once for each database, that the library is there and one whose results are known.

        Raises:
            ConfigurationError: it is not; the message names the version that is needed.
        """
        if database in self._verified:
            return
        there = await self._ask(database, _CYPHER["has_gds"], {}, deadline)
        version = (await self._ask(database, _CYPHER["gds_version"], {}, deadline))[0]["version"] if there else "none"
        if not version.startswith(VERSION):
            raise ConfigurationError(f"GDS 2.13.x is required for Leiden; found {version}")
        self._verified.add(database)

    @asynccontextmanager
    async def _projection(self, database: str, deadline: Deadline) -> AsyncGenerator[str, None]:
        """Lend the name of a projection that is gone at the end, whatever happens; what killed workers left goes first."""
        for stale in await self._ask(database, _CYPHER["stale_projections"], {"seconds": STALE_SECONDS}, deadline):
            await self._ask(database, _CYPHER["drop_projection"], stale, deadline)
        name = f"sapwood_{secrets.token_hex(16)}"
        try:
            yield name
        except BaseException:
            with anyio.move_on_after(DROP_SECONDS, shield=True):
                await self._drop_quietly(database, name)
            raise
        with anyio.move_on_after(DROP_SECONDS, shield=True):
            await self._drop(database, name)

    async def _drop(self, database: str, name: str) -> None:
        await self._ask(database, _CYPHER["drop_projection"], {"name": name}, Deadline.after(DROP_SECONDS))

    async def _drop_quietly(self, database: str, name: str) -> None:
        """Drop a projection after a failure, which is not to be hidden by another one."""
        try:
            await self._drop(database, name)
        except SapwoodError:
            return

    async def _ask(self, database: str, query: str, values: dict[str, Any], deadline: Deadline) -> list[dict[str, Any]]:
        return await self._sessions.write(database, query, values, deadline)


def _paths(rows: list[dict[str, Any]]) -> dict[int, tuple[int, ...]]:
    """Return the paths from the coarsest level to the finest: the library lists the finest first."""
    return {row["no"]: tuple(reversed(row["levels"])) for row in rows}


def _check(eligible: int, projected: int, clusters: Clusters, written: int) -> None:
    paths = sum(map(bool, clusters.paths.values()))
    if not eligible == projected == paths == written:
        raise InconsistentGeneration(
            "GDS Leiden did not write complete scoped community properties: "
            f"eligible={eligible} paths={paths} ids={len(clusters.paths)} written={written}"
        )

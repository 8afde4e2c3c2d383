"""The graphs that tenants have published, in PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound
from pipeline.graphtools.published import Registered
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.published import Publication, PublishedGraph

_SQL = load("sources")

MOST = 100
"""Graphs that a tenant may publish."""

SECRET_BYTES = 32


class Connections(Protocol):
    """Lends connections; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresSources:
    """A `Registry` over one database."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def publish(self, tenant: str, name: str, what: Publication, deadline: Deadline) -> PublishedGraph:
        """See `Registry`."""
        values = (what.description, what.graph_schema.model_dump(mode="json"), what.limits.model_dump(mode="json"))
        rest = (what.demand_disclosure, secrets.token_bytes(SECRET_BYTES), MOST)
        async with self._pool.connection(deadline) as tx:
            made = await tx.fetchval(_SQL["publish"], tenant, name, what.corpus, *values, *rest)
        if made is None:
            if len(await self.listing(tenant, deadline)) >= MOST:
                raise Conflict(f"The tenant has published {MOST} graphs already; `sapwood graph remove` makes room.")
            raise NotFound(f"Corpus not found: {what.corpus}. `sapwood corpus list` shows the corpora.")
        return (await self.get(tenant, name, deadline)).graph

    async def listing(self, tenant: str, deadline: Deadline) -> list[Registered]:
        """See `Registry`."""
        async with self._pool.connection(deadline) as tx:
            return [_registered(row) for row in await tx.fetch(_SQL["sources"], tenant, None)]

    async def get(self, tenant: str, name: str, deadline: Deadline) -> Registered:
        """See `Registry`."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["sources"], tenant, name)
        if row is None:
            raise _none(name)
        return _registered(row)

    async def remove(self, tenant: str, name: str, deadline: Deadline) -> None:
        """See `Registry`."""
        async with self._pool.connection(deadline) as tx:
            if (await tx.execute(_SQL["remove"], tenant, name)).endswith(" 0"):
                raise _none(name)

    async def retained(self, corpus: CorpusId, deadline: Deadline) -> Sequence[Manifest]:
        """See `Registry`."""
        async with self._pool.connection(deadline) as tx:
            return [Manifest.model_validate(row["manifest"]) for row in await tx.fetch(_SQL["retained"], corpus)]


def _none(name: str) -> NotFound:
    return NotFound(f"No graph is published as {name!r}; `sapwood graph list` shows the names.")


def _registered(row: Any) -> Registered:
    values = {name: row[name] for name in ("name", "corpus", "description", "graph_schema", "limits")}
    times = {name: row[name].isoformat() for name in ("created_at", "updated_at")}
    graph = PublishedGraph.model_validate({**values, **times, "demand_disclosure": row["demand_disclosure"]})
    return Registered(graph, CorpusId(row["corpus_id"]), bytes(row["secret"]))

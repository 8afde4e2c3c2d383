"""The stores outside of PostgreSQL, opened where the settings name them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module

import anyio.to_thread
import structlog

from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4jConfig, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.adapters.neo4j_inspection import Neo4jInspector
from pipeline.adapters.neo4j_match import Neo4jMatch
from pipeline.adapters.neo4j_reader import Neo4jReader
from pipeline.deadline import Deadline
from pipeline.errors import MissingExtra
from pipeline.graphs.inspection import GraphInspector
from pipeline.graphs.ports import GraphReader, GraphStore
from pipeline.graphtools.execution import MatchExecutor
from pipeline.ports import DenseIndex, DenseStore
from worker.settings import WorkerSettings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OtherStores:
    """The stores outside of PostgreSQL that this process was told of, by the names under which corpora ask for them."""

    graphs: dict[str, GraphStore] = field(default_factory=dict[str, GraphStore])
    readers: dict[str, GraphReader] = field(default_factory=dict[str, GraphReader])
    inspectors: dict[str, GraphInspector] = field(default_factory=dict[str, GraphInspector])
    matchers: dict[str, MatchExecutor] = field(default_factory=dict[str, MatchExecutor])
    vectors: dict[str, DenseStore] = field(default_factory=dict[str, DenseStore])
    indexes: dict[str, DenseIndex] = field(default_factory=dict[str, DenseIndex])


async def open_stores(stack: AsyncExitStack, settings: WorkerSettings) -> OtherStores:
    """Open what the settings name; nothing is connected before it is used. A new store is one more block here.

    A URL of Neo4j without its driver is a warning, since the graph of every corpus is in PostgreSQL too.

    Raises:
        MissingExtra: the client for Qdrant is not installed.
    """
    found = OtherStores()
    if settings.graph_neo4j_uri is not None:
        try:
            sessions = await stack.enter_async_context(open_neo4j(neo4j_config(settings, settings.graph_neo4j_uri)))
        except MissingExtra as error:
            _log.warning("stores.neo4j", error=str(error))  # corpora that do not ask for it are none the worse
        else:
            found.graphs["neo4j"] = Neo4jGraph(sessions, GdsLeiden(sessions))
            found.readers["neo4j"] = Neo4jReader(sessions)
            found.inspectors["neo4j"] = Neo4jInspector(sessions)
            found.matchers["neo4j"] = Neo4jMatch(sessions)
    if settings.qdrant_url is not None:
        # Loaded in a thread, and only where it is used: it takes half a second.
        await anyio.to_thread.run_sync(import_module, "pipeline.adapters.qdrant_dense")
        from pipeline.adapters.qdrant_dense import open_qdrant

        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        qdrant = await stack.enter_async_context(open_qdrant(settings.qdrant_url, key))
        found.vectors["qdrant"] = found.indexes["qdrant"] = qdrant
    return found


async def verify_graph_store(settings: WorkerSettings, uri: str, deadline: Deadline) -> None:
    """Ask the graph store for its version, its login, its database and its library for communities.

    Raises:
        ConfigurationError: one of them is not right; the message says which.
        StoreUnavailable: it cannot be reached.
    """
    async with open_neo4j(neo4j_config(settings, uri)) as sessions:
        await sessions.verify(deadline)
        if settings.graph_neo4j_database_mode == "shared":
            await GdsLeiden(sessions).verify(settings.graph_neo4j_database, deadline)


def neo4j_config(settings: WorkerSettings, uri: str) -> Neo4jConfig:
    """Return the settings of the graph store."""
    password = settings.graph_neo4j_password
    return Neo4jConfig(
        uri=uri,
        user=settings.graph_neo4j_user,
        password=password.get_secret_value() if password else "",
        database=settings.graph_neo4j_database,
        mode=settings.graph_neo4j_database_mode,
        prefix=settings.graph_neo4j_database_prefix,
        auto_create=settings.graph_neo4j_auto_create,
        pool_size=settings.graph_neo4j_pool_size,
    )

"""The composition root: the only module that names adapters. It opens every resource in order and closes them in reverse."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
import structlog

from pipeline.adapters import (
    postgres_communities,
    postgres_derive,
    postgres_export,
    postgres_generations,
    postgres_migrations,
    postgres_rows,
)
from pipeline.adapters.arq_doorbell import ArqDoorbell, open_doorbell
from pipeline.adapters.hash_embedder import HashEmbedder
from pipeline.adapters.http_webhooks import HttpSender
from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4jConfig, open_neo4j
from pipeline.adapters.neo4j_graph import Neo4jGraph
from pipeline.adapters.neo4j_inspection import Neo4jInspector
from pipeline.adapters.neo4j_reader import Neo4jReader
from pipeline.adapters.pgvector_dense import PgvectorDense
from pipeline.adapters.postgres_cache import PostgresCache
from pipeline.adapters.postgres_corpora import PostgresAccounting, PostgresCorpora
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_gc import PostgresCollector
from pipeline.adapters.postgres_generations import PostgresGenerations
from pipeline.adapters.postgres_graph import PostgresGraph
from pipeline.adapters.postgres_hydrate import PostgresChunks
from pipeline.adapters.postgres_inspection import PostgresEvidence, PostgresInspector
from pipeline.adapters.postgres_keys import PostgresKeys
from pipeline.adapters.postgres_metrics import PostgresStanding
from pipeline.adapters.postgres_pins import PostgresPins
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_projection import PostgresProjection
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.adapters.postgres_webhooks import PostgresDeliveries, PostgresWebhooks
from pipeline.adapters.redis_streams import RedisStreams, open_streams
from pipeline.adapters.spacy_extractor import SpacyExtractor
from pipeline.adapters.wordllama_embedder import WordLlamaEmbedder
from pipeline.answer import Answerer
from pipeline.building import Building
from pipeline.deadline import Deadline
from pipeline.egress import Egress
from pipeline.errors import ConfigurationError, MissingExtra
from pipeline.events import open_herald
from pipeline.feeds import Feeds, open_feeds
from pipeline.generations.outside import Outside
from pipeline.generations.pins import PinBoard
from pipeline.graphs.inspection import Evidence, GraphInspector
from pipeline.index import Indexer
from pipeline.ingest.batch import BatchPipeline
from pipeline.ingest.embed import EmbeddingProvider
from pipeline.ingest.offline import OfflineExtractor
from pipeline.ingest.prepare import open_preparer
from pipeline.ingest.summaries import Summariser
from pipeline.ingest.urls import Fetcher
from pipeline.ports import DenseIndex, DenseStore, Extractor, GraphReader, GraphStore
from pipeline.projection import Projection
from pipeline.retrieval.dense import DenseByManifest
from pipeline.retrieval.providers import StoreProvider
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.snapshots import SnapshotCache, open_snapshots
from pipeline.retrieval.stage import QueryStage
from schemas.ids import CorpusId, RunId
from schemas.runs import RunKind
from schemas.settings import EmbeddingSettings, ExtractionSettings
from worker import embedded, tracing
from worker.maintenance import Promotions
from worker.metrics import Gauges, Watched, watched
from worker.models import Models
from worker.process import Parts, Vitals
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = structlog.get_logger(__name__)

T = TypeVar("T")

SNAPSHOT_BYTES = 1 << 30
"""Bytes of snapshots that a process keeps."""


@dataclass(frozen=True, slots=True)
class OtherStores:
    """The stores outside of PostgreSQL that this process was told of, by the names under which corpora ask for them."""

    graphs: dict[str, GraphStore] = field(default_factory=dict[str, GraphStore])
    readers: dict[str, GraphReader] = field(default_factory=dict[str, GraphReader])
    inspectors: dict[str, GraphInspector] = field(default_factory=dict[str, GraphInspector])
    vectors: dict[str, DenseStore] = field(default_factory=dict[str, DenseStore])
    indexes: dict[str, DenseIndex] = field(default_factory=dict[str, DenseIndex])


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """Who is told how runs ended, what is still to be told, and how it goes out."""

    registry: PostgresWebhooks
    deliveries: PostgresDeliveries
    sender: HttpSender


@dataclass(frozen=True, slots=True)
class Services:
    """Everything an application of Sapwood works with, open."""

    pool: Pool
    uploads: Path | None
    """Where the uploaded files of corpora lie, a folder each; None where not every worker could read them."""
    corpora: PostgresCorpora
    keys: PostgresKeys
    webhooks: WebhookParts
    generations: PostgresGenerations
    collector: PostgresCollector
    records: PostgresProjection
    stores: OtherStores
    outside: Outside
    projection: Projection
    runs: PostgresRuns
    events: PostgresEvents
    stream: RedisStreams
    feeds: Feeds
    doorbell: ArqDoorbell
    pins: PinBoard
    snapshots: SnapshotCache
    dense: PgvectorDense
    graphs: Mapping[str, GraphReader]
    inspectors: Mapping[str, GraphInspector]
    evidence: Evidence
    answerer: Answerer
    indexer: Indexer
    models: Models
    promotions: Promotions
    vitals: Vitals
    watched: Watched

    def parts(self) -> Parts:
        """Return what a worker is made of."""
        handlers = {
            RunKind.INDEX: self.indexer.index,
            RunKind.BATCH: self.indexer.batch,
            RunKind.QUERY: self.answerer.answer,
        }
        return Parts(self.runs, self.runs, self.events, self.stream, handlers, self.vitals)

    def graph_reader(self, store: str) -> GraphReader:
        """Return what reads graphs in this store. Raises ConfigurationError where this process was not told of it."""
        return _told(self.graphs, store)

    def inspector(self, store: str) -> GraphInspector:
        """Return what looks at graphs in this store. Raises ConfigurationError where this process was not told of it."""
        return _told(self.inspectors, store)

    def export(self, corpus: CorpusId, generation: int, deadline: Deadline) -> AsyncGenerator[str, None]:
        """Yield the canonical lines of a generation."""
        return postgres_export.export(self.pool, corpus, generation, deadline)

    async def rollback(self, corpus: CorpusId, target: int, deadline: Deadline) -> int:
        """Publish a retained earlier generation under a new number, and return that."""
        run = RunId(f"rollback-{secrets.token_hex(8)}")
        await self.collector.abort_orphans(corpus, deadline)
        wanted = await self.generations.manifest(corpus, target, deadline)
        async with self.pool.transaction(deadline) as tx:
            number = await postgres_generations.begin(tx, corpus, run)
        held = await self.projection.revert_vectors(corpus, wanted, number)
        async with self.pool.transaction(deadline) as tx:
            await postgres_generations.rollback(tx, corpus, target, number, run, held.dense_rows, held.void)
        self.promotions.promoted(corpus, number)
        return number


def _told(parts: Mapping[str, T], store: str) -> T:
    if store not in parts:
        raise ConfigurationError(f"The graph of this generation lies in {store}: set SAPWOOD_GRAPH_NEO4J_URI.")
    return parts[store]


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


@asynccontextmanager
async def open_services(settings: WorkerSettings) -> AsyncGenerator[Services, None]:
    """Open everything; servers without a URL are the embedded ones, started and migrated if need be.

    Raises:
        ConfigurationError: a setting, the home folder or the schema is not as it must be.
        StoreUnavailable: a server cannot be reached.
    """
    database_url, redis_url = await endpoints(settings)
    owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(open_pool(database_url, settings.database_pool_size))
        stream = await stack.enter_async_context(open_streams(redis_url))
        doorbell, events = await stack.enter_async_context(open_doorbell(redis_url)), PostgresEvents(pool)
        herald = await stack.enter_async_context(open_herald(events, stream, doorbell))
        feeds = await stack.enter_async_context(open_feeds(events, stream))
        lease, crashes = settings.lease_seconds, settings.max_crashes
        runs = PostgresRuns(pool, herald, owner=owner, lease_seconds=lease, max_crashes=crashes)
        snapshots = await stack.enter_async_context(open_snapshots(PostgresSnapshots(pool), SNAPSHOT_BYTES))
        models = models_of(settings, await openai_client(stack, settings))
        pins, dense = PinBoard(PostgresPins(pool), owner), PgvectorDense(pool)
        other = await open_stores(stack, settings)
        records, corpora, promotions = PostgresProjection(pool), PostgresCorpora(pool), Promotions()
        outside = Outside(records, other.graphs, other.vectors)
        collector = PostgresCollector(pool, outside.drop_collection)
        projection = Projection(records, other.graphs, other.vectors)
        index = DenseByManifest({"pgvector": dense, **other.indexes})
        preparer = await stack.enter_async_context(open_preparer())
        calls = anyio.CapacityLimiter(settings.model_concurrency)
        batch = BatchPipeline(models, preparer, Fetcher(), PostgresCache(pool), calls)
        vitals, build = Vitals(), building(pool, corpora, collector, promotions.promoted)
        yield Services(
            pool=pool,
            uploads=settings.home / "uploads" if settings.database_url is None else None,
            corpora=corpora,
            keys=PostgresKeys(pool),
            webhooks=webhook_parts(pool, settings),
            generations=PostgresGenerations(pool),
            collector=collector,
            records=records,
            stores=other,
            outside=outside,
            projection=projection,
            runs=runs,
            events=events,
            stream=stream,
            feeds=feeds,
            doorbell=doorbell,
            pins=pins,
            snapshots=snapshots,
            dense=dense,
            graphs={"postgres": PostgresGraph(pool, snapshots), **other.readers},
            inspectors={"postgres": PostgresInspector(pool), **other.inspectors},
            evidence=PostgresEvidence(pool),
            answerer=Answerer(pins, query_stage(pool, snapshots, index, other.readers, models), vitals.heard),
            indexer=Indexer(build, batch, projection, tracing.step, vitals.metrics.paid),
            models=models,
            promotions=promotions,
            vitals=vitals,
            watched=watched(vitals.metrics, Gauges(PostgresStanding(pool).read, lambda: figures(snapshots))),
        )


def webhook_parts(pool: Pool, settings: WorkerSettings) -> WebhookParts:
    """Return what webhooks are made of; the same rules hold for a URL when it is registered and when it is used."""
    egress = Egress(allowed=settings.webhooks_private_networks)
    return WebhookParts(PostgresWebhooks(pool, egress.check), PostgresDeliveries(pool), HttpSender(egress))


def figures(snapshots: SnapshotCache) -> tuple[int, int, int]:
    """Return how many snapshots are in memory, their bytes, and how many were loaded."""
    return len(snapshots.held), snapshots.nbytes, snapshots.loads


def query_stage(
    pool: Pool, snapshots: SnapshotCache, dense: DenseIndex, readers: Mapping[str, GraphReader], models: Models
) -> QueryStage:
    """Return the query stage; a question is embedded by what embedded the generation that it reads."""
    return QueryStage(
        snapshots,
        dense,
        PostgresChunks(pool),
        lambda manifest, _: models.embedding(manifest.provider),
        ResultCache(),
        [StoreProvider(store, reader, dense) for store, reader in readers.items()],
    )


async def apply_migrations(database_url: str) -> list[str]:
    """Bring a database's schema up to date and return the names of what was applied."""
    return await postgres_migrations.migrate(database_url)


async def endpoints(settings: WorkerSettings) -> tuple[str, str]:
    """Return the URLs of database and queue; the embedded database is migrated."""
    database, queue = settings.database_url, settings.redis_url
    if database is not None and queue is not None:
        return database.get_secret_value(), queue.get_secret_value()
    found = await anyio.to_thread.run_sync(embedded.up, settings.home)
    if database is None:
        await apply_migrations(found.database_url)
    return (
        database.get_secret_value() if database else found.database_url,
        queue.get_secret_value() if queue else found.redis_url,
    )


def building(
    pool: Pool, corpora: PostgresCorpora, collector: PostgresCollector, promoted: Callable[[CorpusId, int], None]
) -> Building:
    """Return the stores of index runs."""
    return Building(
        corpora=corpora,
        accounting=PostgresAccounting(),
        reading=pool.transaction,
        undo_orphans=collector.abort_orphans,
        begin=postgres_generations.begin,
        ensure_collection=postgres_generations.ensure_collection,
        remove_documents=postgres_rows.remove_documents,
        write_batch=postgres_rows.write_batch,
        derive=postgres_derive.derive,
        lone_changes=postgres_communities.lone_changes,
        grouped_alike=postgres_communities.grouped_alike,
        read_graph=postgres_communities.read_graph,
        stored_communities=postgres_communities.stored_communities,
        write_communities=postgres_communities.write_communities,
        promote=postgres_generations.promote,
        promoted=promoted,
    )


async def openai_client(stack: AsyncExitStack, settings: WorkerSettings) -> Callable[[], AsyncOpenAI]:
    """Open a client where an endpoint is configured; the function returns it or says what to set."""
    url, key = settings.openai_base_url, settings.openai_api_key
    if url is None and key is None:
        return no_endpoint
    # Loaded in a thread, and only where there is an endpoint: it takes longer to load than all the rest.
    await anyio.to_thread.run_sync(import_module, "pipeline.adapters.openai_models")
    from pipeline.adapters.openai_models import connected

    base = url or "https://api.openai.com/v1"
    client = await stack.enter_async_context(connected(base, key.get_secret_value() if key else "none"))
    return lambda: client


def no_endpoint() -> AsyncOpenAI:
    """Say that the provider `openai` has no endpoint. Raises ConfigurationError, always."""
    raise ConfigurationError(
        "The provider `openai` needs an endpoint: set SAPWOOD_OPENAI_API_KEY, "
        "and SAPWOOD_OPENAI_BASE_URL unless it is OpenAI's own."
    )


def models_of(settings: WorkerSettings, client: Callable[[], AsyncOpenAI]) -> Models:
    """Return the models by the names under which corpora ask for them."""

    def embedder(wanted: EmbeddingSettings) -> EmbeddingProvider:
        endpoint = client()
        from pipeline.adapters.openai_models import OpenAIEmbedder

        return OpenAIEmbedder(endpoint, wanted.model or settings.openai_embedding_model, wanted.dimension)

    def extractor(wanted: ExtractionSettings) -> Extractor:
        endpoint = client()
        from pipeline.adapters.openai_models import OpenAIExtractor

        return OpenAIExtractor(endpoint, wanted.model or settings.openai_model, wanted)

    def summariser(wanted: ExtractionSettings) -> Summariser:
        endpoint = client()
        from pipeline.adapters.openai_models import OpenAISummariser

        return OpenAISummariser(endpoint, wanted.model or settings.openai_model)

    return Models(
        lambda wanted: {
            "hash": HashEmbedder,
            "wordllama": WordLlamaEmbedder,
            "openai": lambda: embedder(wanted),
        },
        lambda wanted: {
            "none": ready(lambda: None),
            "offline": ready(OfflineExtractor),
            "openai": ready(lambda: extractor(wanted)),
            "spacy": lambda: SpacyExtractor.load(wanted.model),
        },
        summariser,
    )


def ready(make: Callable[[], Extractor | None]) -> Callable[[], Awaitable[Extractor | None]]:
    """Return a builder that has nothing to wait for as one that may."""

    async def build() -> Extractor | None:
        return make()

    return build

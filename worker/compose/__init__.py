"""The composition root: the only room that names adapters. It opens every resource in order and closes them in reverse."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from pipeline.adapters import (
    postgres_code,
    postgres_communities,
    postgres_derive,
    postgres_export,
    postgres_generations,
    postgres_migrations,
    postgres_rows,
)
from pipeline.adapters.arq_doorbell import ArqDoorbell, open_doorbell
from pipeline.adapters.http_webhooks import HttpSender
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
from pipeline.adapters.postgres_match import PostgresMatch
from pipeline.adapters.postgres_metrics import PostgresStanding
from pipeline.adapters.postgres_pins import PostgresPins
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_projection import PostgresProjection
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.adapters.postgres_sources import PostgresSources
from pipeline.adapters.postgres_survey import PostgresSurveyor
from pipeline.adapters.postgres_webhooks import PostgresDeliveries, PostgresWebhooks
from pipeline.adapters.redis_streams import RedisStreams, open_streams
from pipeline.answer import Answerer
from pipeline.building import Building
from pipeline.codegraph.linking import LINK_TASK
from pipeline.deadline import Deadline
from pipeline.declare.chat import ChatModel
from pipeline.declare.tokens import Tokenizer
from pipeline.egress import Egress
from pipeline.errors import ConfigurationError
from pipeline.events import open_herald
from pipeline.feeds import Feeds, open_feeds
from pipeline.generations.outside import Outside
from pipeline.generations.pins import PinBoard
from pipeline.graphs.inspection import Evidence, GraphInspector
from pipeline.graphs.ports import GraphReader
from pipeline.graphtools.execution import MatchExecutor
from pipeline.index import Indexer
from pipeline.ingest.batch import BatchPipeline
from pipeline.ingest.prepare import Limits, Preparer, open_preparer
from pipeline.ingest.pruning import Pruner
from pipeline.ingest.repositories import Repositories
from pipeline.ingest.urls import Fetcher
from pipeline.ports import DenseIndex
from pipeline.projection import Projection
from pipeline.retrieval.assistants import Assistants
from pipeline.retrieval.dense import DenseByManifest
from pipeline.retrieval.providers import Providers, StoreProvider
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.snapshots import SnapshotCache, open_snapshots
from pipeline.retrieval.stage import QueryStage
from schemas.ids import CorpusId, RunId
from schemas.runs import RunKind
from worker import embedded, tracing
from worker.compose.models import all_models, openai_client, tokenizer_of
from worker.compose.stores import OtherStores, open_stores
from worker.maintenance import Promotions
from worker.metrics import Gauges, Watched, watched
from worker.models import Models
from worker.process import Parts, Vitals
from worker.settings import WorkerSettings

T = TypeVar("T")

LINKING = Limits(memory=2 << 30, seconds=300.0)
"""What a child that links source files may use. Less than a minute would cost a busy machine its links."""

SNAPSHOT_BYTES = 1 << 30
"""Bytes of snapshots that a process keeps."""


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """Who is told how runs ended, what is still to be told, and how it goes out."""

    registry: PostgresWebhooks
    deliveries: PostgresDeliveries
    sender: HttpSender


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What agents may ask, what there is to ask for, and who answers, by the store in which a graph lies; the models that
    assist their questions, who may serve the graph of one, and the model that carries out their actions, where there is an
    endpoint. `tokenizer` loads what counts the tokens of their contexts: for a thread.
    """

    published: PostgresSources
    surveyor: PostgresSurveyor
    match: Mapping[str, MatchExecutor]
    assistants: Assistants
    graphs: Providers
    chat: ChatModel | None
    tokenizer: Callable[[], Tokenizer]


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
    preparer: Preparer
    repositories: Pruner
    graphs: Mapping[str, GraphReader]
    inspectors: Mapping[str, GraphInspector]
    evidence: Evidence
    agents: AgentParts
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
        runs, events, stream, feeds, doorbell = await open_runs(stack, settings, pool, redis_url, owner)
        snapshots = await stack.enter_async_context(open_snapshots(PostgresSnapshots(pool), SNAPSHOT_BYTES))
        models, helpers, chat = all_models(settings, await openai_client(stack, settings))
        pins, dense = PinBoard(PostgresPins(pool), owner), PgvectorDense(pool)
        other = await open_stores(stack, settings)
        records, corpora, promotions = PostgresProjection(pool), PostgresCorpora(pool), Promotions()
        outside = Outside(records, other.graphs, other.vectors)
        collector = PostgresCollector(pool, outside.drop_collection)
        projection = Projection(records, other.graphs, other.vectors)
        stage = query_stage(pool, snapshots, dense, other, models, helpers)
        vitals, build = Vitals(), building(pool, corpora, collector, promotions.promoted)
        preparer, indexer = await open_indexer(stack, settings, pool, models, build, projection, vitals)
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
            preparer=preparer,
            repositories=Pruner(settings.repositories, settings.git_cache_bytes, corpora.repositories),
            graphs={"postgres": PostgresGraph(pool, snapshots), **other.readers},
            inspectors={"postgres": PostgresInspector(pool), **other.inspectors},
            evidence=PostgresEvidence(pool),
            agents=agent_parts(pool, other, stage, helpers, chat, tokenizer_of(settings)),
            answerer=Answerer(pins, stage, vitals.heard),
            indexer=indexer,
            models=models,
            promotions=promotions,
            vitals=vitals,
            watched=watched(vitals.metrics, Gauges(PostgresStanding(pool).read, lambda: figures(snapshots))),
        )


async def open_runs(
    stack: AsyncExitStack, settings: WorkerSettings, pool: Pool, redis_url: str, owner: str
) -> tuple[PostgresRuns, PostgresEvents, RedisStreams, Feeds, ArqDoorbell]:
    """Open what keeps runs, their events, the stream that these are copied to, who follows it, and what wakes workers."""
    stream = await stack.enter_async_context(open_streams(redis_url))
    doorbell, events = await stack.enter_async_context(open_doorbell(redis_url)), PostgresEvents(pool)
    herald = await stack.enter_async_context(open_herald(events, stream, doorbell))
    feeds = await stack.enter_async_context(open_feeds(events, stream))
    lease, crashes = settings.lease_seconds, settings.max_crashes
    runs = PostgresRuns(pool, herald, owner=owner, lease_seconds=lease, max_crashes=crashes)
    return runs, events, stream, feeds, doorbell


async def open_indexer(
    stack: AsyncExitStack,
    settings: WorkerSettings,
    pool: Pool,
    models: Models,
    build: Building,
    projection: Projection,
    vitals: Vitals,
) -> tuple[Preparer, Indexer]:
    """Open what index runs are done with, and what prepares documents; repositories are fetched into the home folder."""
    preparer = await stack.enter_async_context(open_preparer())
    linkers = await stack.enter_async_context(open_preparer(LINKING, LINK_TASK))
    calls, repositories = anyio.CapacityLimiter(settings.model_concurrency), Repositories(settings.repositories)
    batch = BatchPipeline(models, preparer, Fetcher(), repositories, PostgresCache(pool), calls)
    return preparer, Indexer(build, batch, projection, linkers, tracing.step, vitals.metrics.paid)


def agent_parts(
    pool: Pool,
    other: OtherStores,
    stage: QueryStage,
    assistants: Assistants,
    chat: ChatModel | None,
    tokenizer: Callable[[], Tokenizer],
) -> AgentParts:
    """Return what questions and actions of agents are answered with."""
    match = {"postgres": PostgresMatch(pool), **other.matchers}
    return AgentParts(PostgresSources(pool), PostgresSurveyor(pool), match, assistants, stage.graphs, chat, tokenizer)


def webhook_parts(pool: Pool, settings: WorkerSettings) -> WebhookParts:
    """Return what webhooks are made of; the same rules hold for a URL when it is registered and when it is used."""
    egress = Egress(allowed=settings.webhooks_private_networks)
    return WebhookParts(PostgresWebhooks(pool, egress.check), PostgresDeliveries(pool), HttpSender(egress))


def figures(snapshots: SnapshotCache) -> tuple[int, int, int]:
    """Return how many snapshots are in memory, their bytes, and how many were loaded."""
    return len(snapshots.held), snapshots.nbytes, snapshots.loads


def query_stage(
    pool: Pool,
    snapshots: SnapshotCache,
    dense: DenseIndex,
    other: OtherStores,
    models: Models,
    assistants: Assistants,
) -> QueryStage:
    """Return the query stage; a question is embedded by what embedded the generation that it reads."""
    index = DenseByManifest({"pgvector": dense, **other.indexes})
    return QueryStage(
        snapshots,
        index,
        PostgresChunks(pool),
        lambda manifest, _: models.embedding(manifest.provider),
        ResultCache(),
        [StoreProvider(store, reader, index) for store, reader in other.readers.items()],
        assistants=assistants,
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
        links=postgres_code.PostgresLinks(),
        code_figures=postgres_code.figures,
        derive=postgres_derive.derive,
        lone_changes=postgres_communities.lone_changes,
        grouped_alike=postgres_communities.grouped_alike,
        read_graph=postgres_communities.read_graph,
        read_labels=postgres_communities.read_labels,
        stored_communities=postgres_communities.stored_communities,
        write_communities=postgres_communities.write_communities,
        promote=postgres_generations.promote,
        republish=postgres_generations.republish,
        promoted=promoted,
    )

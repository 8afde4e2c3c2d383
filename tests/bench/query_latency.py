"""Latency and memory of the query stage: `python tests/bench/query_latency.py [--chunks N] [--relations N] …`.

Starts an embedded PostgreSQL under `--home` (kept, so that a second run finds its corpus there), writes a synthetic
corpus if it is missing, and asks questions whose vectors are given. Prints p50 and p95 by strategy beside the budget.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.adapters.pgvector_dense import PgvectorDense
from pipeline.adapters.postgres_hydrate import PostgresChunks
from pipeline.adapters.postgres_migrations import migrate
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError
from pipeline.ports import Embedder
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.snapshots import open_snapshots
from pipeline.retrieval.stage import QueryStage
from pipeline.testing.corpus import EMBEDDING, PinnedRows, manifest_of, synthetic, write_rows
from schemas.ids import CorpusId
from schemas.manifest import Manifest
from schemas.query import QueryRequest, Strategy
from schemas.settings import CorpusSettings, GraphSearchSettings
from worker import embedded

WARM_UP = 10
"""Requests that are asked once before they are timed."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="folder of the embedded servers")
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--relations", type=int, default=500_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200)
    return parser.parse_args()


async def prepared(pool: Pool, args: argparse.Namespace) -> PinnedRows:
    """Write the corpus and its index where they are missing."""
    name = f"bench-{args.chunks}-{args.relations}-{args.dimension}"
    async with pool.connection(Deadline.after(60)) as tx:
        row = await tx.fetchrow("select corpus_id, settings from corpus where name = $1", name)
    if row is not None and row["settings"]:
        return PinnedRows(CorpusId(row["corpus_id"]), Manifest.model_validate(row["settings"]["manifest"]))
    rows = synthetic(args.chunks, args.dimension, args.relations)
    async with pool.transaction(Deadline.never()) as tx:
        corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", name))
        manifest = manifest_of(rows, corpus, 1)
        await tx.fetchval(
            "select ensure_collection($1, $2, $3, $4)", corpus, manifest.collection, EMBEDDING, args.dimension
        )
        await write_rows(tx, corpus, 1, rows, manifest.collection)
        await tx.execute(
            "insert into generation (corpus_id, number, state, run_id) values ($1, 1, 'current', 'r')", corpus
        )
        settings = {"manifest": manifest.model_dump(mode="json")}
        await tx.execute("update corpus set settings = $2 where corpus_id = $1", corpus, settings)
    async with pool.connection(Deadline.never()) as tx:
        await tx.execute("analyze")
    started = time.perf_counter()
    built = await PgvectorDense(pool).ensure_index(manifest, Deadline.never())
    print(f"index built: {built}, {time.perf_counter() - started:.1f} s")
    return PinnedRows(corpus, manifest)


def questions(args: argparse.Namespace, strategy: Strategy, **fields: object) -> list[QueryRequest]:
    rng = np.random.default_rng(5)
    topics = max(1, args.chunks // 100)
    centres = np.random.default_rng(19)
    centres.integers(0, topics, args.chunks)
    made = centres.normal(size=(topics, args.dimension)).astype(np.float32)
    found: list[QueryRequest] = []
    for _ in range(args.queries):
        topic = int(rng.integers(0, topics))
        vector = made[topic] + 0.8 * rng.normal(size=args.dimension)
        entities = rng.integers(0, args.chunks // 2, 2)
        words = " ".join(f"w{w}" for w in np.minimum(rng.zipf(1.3, 6), 50_000))
        text = f"what of Entity {entities[0]} and Entity {entities[1]} {words} t{topic}x3 t{topic}x7"
        found.append(
            QueryRequest.model_validate(
                {"text": text, "strategy": strategy, "vector": vector.tolist(), "cache": False, "top_k": 10, **fields}
            )
        )
    return found


async def timed(work: Callable[[QueryRequest], Awaitable[object]], requests: list[QueryRequest]) -> tuple[float, float]:
    """Return p50 and p95 in milliseconds, one request after the other."""
    for request in requests[:WARM_UP]:
        await work(request)
    seconds: list[float] = []
    for request in requests:
        started = time.perf_counter()
        await work(request)
        seconds.append(time.perf_counter() - started)
    return float(np.percentile(seconds, 50) * 1e3), float(np.percentile(seconds, 95) * 1e3)


def no_embedder(manifest: Manifest, settings: CorpusSettings) -> Embedder:
    raise ConfigurationError("every question of this benchmark brings its vector")


async def measure(pool: Pool, pinned: PinnedRows, args: argparse.Namespace) -> None:
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss / 2**20
    async with open_snapshots(PostgresSnapshots(pool), 2 << 30) as snapshots:
        started = time.perf_counter()
        snapshot = await snapshots.get(pinned.corpus_id, 1, Deadline.never())
        seconds = time.perf_counter() - started
        gc.collect()
        after, peak = process.memory_info().rss / 2**20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        size = snapshot.nbytes / 2**20
        print(f"cold snapshot {seconds:.2f} s, {size:.0f} MiB; rss {before:.0f} -> {after:.0f}, peak {peak:.0f} MiB")
        stage = QueryStage(snapshots, PgvectorDense(pool), PostgresChunks(pool), no_embedder, ResultCache())
        walking = PinnedRows(
            pinned.corpus_id, pinned.manifest, CorpusSettings(graph_search=GraphSearchSettings(ranking="walk"))
        )

        def asking(at: PinnedRows) -> Callable[[QueryRequest], Awaitable[object]]:
            return lambda request: stage.run(at, request, Deadline.after(10))

        cases = [(s.value, s, pinned, {}) for s in Strategy]
        cases += [("hybrid, walk", Strategy.HYBRID, walking, {}), ("graph, walk", Strategy.GRAPH, walking, {})]
        cases += [("hybrid, 10 % filter", Strategy.HYBRID, pinned, {"filters": {"tier": 3}})]
        figures: dict[str, tuple[float, float]] = {}
        for name, strategy, at, fields in cases:
            figures[name] = await timed(asking(at), questions(args, strategy, **fields))
            print(f"{name:22} p50 {figures[name][0]:6.1f} ms   p95 {figures[name][1]:6.1f} ms")
        print("budget: hybrid p50 <= 15 ms, p95 <= 40 ms; memory <= 400 MiB")
        print(json.dumps({"figures": figures, "snapshot_mib": snapshot.nbytes / 2**20, "cold_seconds": seconds}))


async def main() -> None:
    args = arguments()
    endpoints = await asyncio.to_thread(embedded.up, args.home)
    await migrate(endpoints.database_url)
    async with open_pool(endpoints.database_url) as pool:
        pinned = await prepared(pool, args)
        await measure(pool, pinned, args)


if __name__ == "__main__":
    asyncio.run(main())

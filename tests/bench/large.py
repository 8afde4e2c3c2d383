"""A large corpus: how fast it answers, what it holds in memory, and what an edit of one file costs."""

from __future__ import annotations

import gc
import os
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio
import numpy as np
from anyio import to_process, to_thread
from numpy.typing import NDArray

from pipeline.adapters.postgres_communities import read_graph, read_labels, stored_communities, write_communities
from pipeline.adapters.postgres_derive import derive
from pipeline.adapters.postgres_generations import begin, ensure_collection, promote
from pipeline.adapters.postgres_rows import write_batch
from pipeline.deadline import Deadline
from pipeline.generations.gate import Extracted
from pipeline.generations.manifest import Draft
from pipeline.generations.rows import DocumentRows
from pipeline.ingest.communities import described, regroup
from pipeline.ingest.prepare import FINGERPRINT as READING
from pipeline.retrieval.analyzer import FINGERPRINT as ANALYZER
from pipeline.testing.corpus import Rows, synthetic
from schemas.documents import Chunk
from schemas.graph import Fact, Mention
from schemas.ids import ChunkId, RunId, chunk_id
from schemas.query import QueryRequest, Strategy
from schemas.settings import CorpusSettings, EmbeddingSettings, recipe
from tests.bench.bench import Bench, Figure, home_of, load, opened, percentile, rss_mib
from tests.bench.indexing import visible
from tests.bench.query_latency import WARM_UP, questions, timed
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

NAME = "large"
PER_DOCUMENT = 10
FACTLESS = 100
"""Every so many documents one states nothing: an edit of it changes no relation."""

PROVIDER, DIMENSION = ("wordllama", 256) if find_spec("wordllama") else ("hash", 128)
SETTINGS = CorpusSettings(embedding=EmbeddingSettings(provider=PROVIDER))


async def run(bench: Bench) -> None:
    """Write the corpus, then measure."""
    chunks = 10_000 if bench.quick else 100_000
    label = f"{chunks:,} chunks, {5 * chunks:,} relations"
    async with opened(bench) as app:
        rows = await to_thread.run_sync(synthetic, chunks, DIMENSION, 5 * chunks)
        await grow(bench, app, rows)
        await asking(bench, app, chunks, rows.vectors)
        del rows
        before, after = await to_process.run_sync(warmed, home_of(bench))
        shown = f"{after - before:.0f} MiB ({before:.0f} → {after:.0f})"
        limit = None if bench.quick else 400.0
        bench.add(Figure(f"memory, {label} warm", shown, after - before, limit, "MiB"))
        await edits(bench, app, label, 3 if bench.quick else 5)


async def grow(bench: Bench, app: Sapwood, rows: Rows) -> None:
    """Write a generation through the stores, as an index run of a folder would have; the folder is there too."""
    started = time.perf_counter()
    corpus = (await app.create_corpus(NAME, SETTINGS)).corpus_id
    folder = bench.scratch / NAME
    embedding = app.services.models.embedding(SETTINGS.embedding).fingerprint
    extractor = await app.services.models.extractor(SETTINGS)
    extraction = extractor.fingerprint if extractor else "none"
    made_with = recipe(SETTINGS, READING, ANALYZER, embedding, extraction)
    documents = await to_thread.run_sync(documents_of, rows, folder, made_with)
    transaction = partial(app.services.pool.transaction, Deadline.never())
    async with transaction() as tx:
        number = await begin(tx, corpus, RunId("bench"))
        collection = await ensure_collection(tx, corpus, number, "pgvector", embedding, DIMENSION)
        await write_batch(tx, corpus, number, collection, documents)
    async with app.services.pool.connection(Deadline.never()) as tx:
        await tx.execute("analyze")
    async with transaction() as tx:
        await derive(tx, corpus, number)
    async with transaction() as tx:
        await tx.execute("analyze entity, relation")
        graph, stored = await read_graph(tx, corpus, number), await stored_communities(tx, corpus, number)
        labels = await read_labels(tx, corpus, graph.entities)
    size = SETTINGS.graph_indexing.max_cluster_size
    partition = await to_thread.run_sync(regroup, graph, {}, size)
    communities = described(partition, graph, partition.communities, labels, {})
    async with transaction() as tx:
        await write_communities(tx, corpus, number, partition, communities, stored)
        draft = Draft(
            RunId("bench"), collection, DIMENSION, f"{NAME}-{number}", "semantic", embedding, extraction, ANALYZER,
            provider=SETTINGS.embedding, extracted=Extracted(1, 1, 1), modularity=partition.modularity,
        )  # fmt: skip
        manifest = await promote(tx, corpus, number, draft)
    await app.services.dense.ensure_index(manifest, Deadline.never())
    counts = ", ".join(f"{store.rows:,} {name}" for name, store in manifest.stores.items())
    shown = f"{counts}, {manifest.communities:,} communities"
    bench.add(Figure("corpus written", shown, note=f"{time.perf_counter() - started:.0f} s; {PROVIDER} {DIMENSION}"))


def documents_of(rows: Rows, folder: Path, made_with: bytes) -> list[DocumentRows]:
    """Lay the rows out by document, each with a file whose size and time the next plan will find unchanged."""
    folder.mkdir()
    told = relations_by_chunk(rows)
    mentioned = mentions_by_chunk(rows)
    documents: list[DocumentRows] = []
    for at in range(0, len(rows.chunks), PER_DOCUMENT):
        name = f"doc-{at // PER_DOCUMENT:06}.md"
        path = folder / name
        path.write_text(name)
        stat = path.stat()
        span = range(at, min(at + PER_DOCUMENT, len(rows.chunks)))
        facts = [[fact(rows, s, t) for s, t in told.get(i, ())] for i in span]
        documents.append(
            DocumentRows(
                name, str(folder), name, b"h", made_with, stat.st_size, stat.st_mtime_ns, "text/markdown", name,
                dict(rows.chunks[at].metadata), 1, [chunk(rows, i, name) for i in span], rows.vectors[at : span.stop],
                [mentions(rows, told.get(i, ()), mentioned.get(i, ())) for i in span], facts,
            )
        )  # fmt: skip
    return documents


def relations_by_chunk(rows: Rows) -> dict[int, list[tuple[int, int]]]:
    """Give each relation a chunk that states it, about five to a chunk, and none to documents that state nothing."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, (source, target) in enumerate(rows.relations.tolist()):
        place = (2 * source + number % 2) % len(rows.chunks)
        if place // PER_DOCUMENT % FACTLESS == 0:
            place = (place + PER_DOCUMENT) % len(rows.chunks)
        found.setdefault(place, []).append((source, target))
    return found


def mentions_by_chunk(rows: Rows) -> dict[int, list[int]]:
    """The entities of the documents that state nothing."""
    found: dict[int, list[int]] = {}
    for place, entity in rows.mentions.tolist():
        if place // PER_DOCUMENT % FACTLESS == 0:
            found.setdefault(place, []).append(entity)
    return found


def mentions(rows: Rows, told: Sequence[tuple[int, int]], more: Sequence[int]) -> list[Mention]:
    """Both ends of each statement, and what is mentioned besides."""
    return [Mention(*rows.entities[one]) for one in sorted({*(end for pair in told for end in pair), *more})]


def fact(rows: Rows, source: int, target: int) -> Fact:
    (subject, subject_type), (end, end_type) = rows.entities[source], rows.entities[target]
    return Fact(subject, subject_type, "knows", end, end_type)


def chunk(rows: Rows, at: int, document: str) -> Chunk:
    one = rows.chunks[at]
    number: ChunkId = chunk_id(document, one.text, 0)
    return Chunk(
        number, document, one.ordinal, one.text, 0, len(one.text), *one.lines, (), one.text_hash, one.text_hash, rows.terms[at],
        rows.lengths[at],
    )  # fmt: skip


UNAIDED = (Strategy.SEMANTIC, Strategy.KEYWORD, Strategy.HYBRID, Strategy.GRAPH, Strategy.HIERARCHICAL)
"""The strategies that need neither a model nor dates."""


async def asking(bench: Bench, app: Sapwood, chunks: int, vectors: NDArray[np.float32]) -> None:
    """Ask by strategies, the vector given; beside it what a scan of all vectors costs in this process."""
    asked = Namespace(chunks=chunks, dimension=DIMENSION, queries=50 if bench.quick else 300)
    began = time.perf_counter()
    await app.query(NAME, questions(asked, Strategy.HYBRID, deadline=300)[0])
    bench.add(Figure("first query, snapshot cold", f"{time.perf_counter() - began:.2f} s"))
    scans: list[float] = []
    for row in vectors[:20]:
        began = time.perf_counter()
        np.argpartition(vectors @ row, -50)[-50:]
        scans.append(time.perf_counter() - began)
    bench.times("numpy scan of all vectors (baseline)", scans, {50: None})
    cases: list[tuple[str, Strategy, dict[str, object]]] = [(s.value, s, {}) for s in UNAIDED]
    cases += [("hybrid, walk", Strategy.HYBRID, {"ranking": "walk"})]
    cases += [("hybrid, 10 % filter", Strategy.HYBRID, {"filters": {"tier": 3}})]
    for name, strategy, fields in cases:
        spent = time.process_time()
        p50, p95 = await timed(partial(app.query, NAME), questions(asked, strategy, **fields))
        cpu = (time.process_time() - spent) * 1000 / (asked.queries + WARM_UP)
        limits = (15, 40) if name == "hybrid" else (None, None)
        for percent, value, limit in ((50, p50, limits[0]), (95, p95, limits[1])):
            what = f"{name} query, {chunks:,} chunks, p{percent}"
            note = f"{cpu:.1f} ms of processor in this process; load {load()}"
            bench.add(Figure(what, f"{value:.1f} ms", value, limit, "ms", note=note))


def warmed(home: Path) -> tuple[float, float]:
    """MiB of a fresh process before and after it holds the corpus warm, and has answered from it."""

    async def main() -> tuple[float, float]:
        async with open_sapwood(WorkerSettings(home=home)) as app:
            gc.collect()
            before = rss_mib()
            await app.query(NAME, QueryRequest(text="entity 7", strategy=Strategy.KEYWORD, deadline=300))
            gc.collect()
            return before, rss_mib()

    return anyio.run(main)


async def edits(bench: Bench, app: Sapwood, label: str, tries: int) -> None:
    """Edit documents that state nothing: first so that they still do, then so that they state something."""
    folder = bench.scratch / NAME
    for what, limit, text in (
        ("no relation changes", 2.0, ""),
        ("a relation changes", 5.0, "The Crane Number {} is located in Bristol."),
    ):
        seconds, parts = list[float](), ""
        for number in range(tries + 1):
            file = f"doc-{number * FACTLESS % len(os.listdir(folder)):06}.md"
            word = f"zz{what.split()[0]}{number}"
            took, parts = await visible(app, NAME, folder, file, word, text.format(number))
            seconds.append(took)
        worst = percentile(seconds[1:], 95)
        shown = f"p50 {percentile(seconds[1:], 50):.2f} s, p95 {worst:.2f} s, the very first {seconds[0]:.2f} s"
        what = f"one-file edit visible, {label}, {what}"
        note = f"n {tries}; the last: {parts}; load {load()}"
        bench.add(Figure(what, shown, worst, limit, "s (p95)", note=note))

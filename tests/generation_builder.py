"""A corpus whose generations are built by hand: the steps of an index run, without runs, workers or files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio.to_thread
import orjson

from pipeline.adapters.postgres_communities import read_graph, read_labels, stored_communities, write_communities
from pipeline.adapters.postgres_derive import Derived, derive
from pipeline.adapters.postgres_export import export
from pipeline.adapters.postgres_gc import PostgresCollector
from pipeline.adapters.postgres_generations import PostgresGenerations, begin, ensure_collection, promote, rollback
from pipeline.adapters.postgres_pool import Pool
from pipeline.adapters.postgres_rows import remove_documents, write_batch
from pipeline.deadline import Deadline
from pipeline.generations.gate import Extracted
from pipeline.generations.manifest import Draft
from pipeline.generations.rows import DocumentRows
from pipeline.ingest.communities import LEADERS, described, foremost, recall, regroup, undescribed
from pipeline.ingest.summaries import known
from pipeline.testing.rows import DIMENSION, FINGERPRINT
from schemas.ids import CorpusId, RunId
from schemas.manifest import Manifest, StoreCheck


class Builder:
    """One corpus. `cap` is the size above which a community is split."""

    def __init__(self, pool: Pool, corpus: CorpusId, cap: int = 4) -> None:
        self.pool = pool
        self.corpus = corpus
        self.cap = cap
        self.generations = PostgresGenerations(pool)
        self.collector = PostgresCollector(pool)

    @classmethod
    async def new(cls, pool: Pool, name: str) -> Builder:
        """Make a corpus."""
        async with pool.connection(Deadline.after(10)) as tx:
            number = await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", name)
        return cls(pool, CorpusId(number))

    async def begin(self, run: str = "run", fingerprint: str = FINGERPRINT) -> tuple[int, str]:
        """Open a build and return its number and its collection."""
        async with self.pool.transaction(Deadline.after(10)) as tx:
            number = await begin(tx, self.corpus, RunId(run))
            return number, await ensure_collection(tx, self.corpus, number, "pgvector", fingerprint, DIMENSION)

    async def write(
        self, number: int, collection: str, documents: Sequence[DocumentRows] = (), removed: Iterable[str] = ()
    ) -> None:
        """Write one batch."""
        async with self.pool.transaction(Deadline.after(10)) as tx:
            await write_batch(tx, self.corpus, number, collection, documents)
            await remove_documents(tx, self.corpus, number, list(removed))

    async def assemble(self, number: int) -> Derived:
        """Derive the graph, and communities if it changed."""
        async with self.pool.transaction(Deadline.after(10)) as tx:
            derived = await derive(tx, self.corpus, number)
        if derived.graph_changed:
            async with self.pool.connection(Deadline.after(10)) as tx:
                graph = await read_graph(tx, self.corpus, number)
                stored = await stored_communities(tx, self.corpus, number)
            found = None if derived.edges else recall(graph.entities, stored.paths, self.cap)
            partition = found or await anyio.to_thread.run_sync(regroup, graph, stored.paths, self.cap)
            before = known(stored.named, None)
            anew = undescribed(partition, before, graph.touched)
            async with self.pool.connection(Deadline.after(10)) as tx:
                labels = await read_labels(tx, self.corpus, foremost(anew, graph, LEADERS))
            communities = described(partition, graph, anew, labels, before)
            async with self.pool.transaction(Deadline.after(10)) as tx:
                await write_communities(tx, self.corpus, number, partition, communities, stored)
        return derived

    async def promote(self, number: int, collection: str, run: str = "run") -> Manifest:
        """Pass the gate and make the build current."""
        draft = Draft(
            RunId(run), collection, DIMENSION, f"graph-{number}", "semantic", FINGERPRINT, "words", "words",
            extracted=Extracted(1, 1, 1),
        )  # fmt: skip
        async with self.pool.transaction(Deadline.after(10)) as tx:
            return await promote(tx, self.corpus, number, draft)

    async def build(
        self, *documents: DocumentRows, removed: Iterable[str] = (), fingerprint: str = FINGERPRINT
    ) -> Manifest:
        """Do all of it."""
        number, collection = await self.begin(fingerprint=fingerprint)
        await self.write(number, collection, documents, removed)
        await self.assemble(number)
        return await self.promote(number, collection)

    async def rollback(self, target: int, run: str = "back") -> Manifest:
        """Publish an earlier generation again."""
        number, _ = await self.begin(run)
        async with self.pool.transaction(Deadline.after(10)) as tx:
            return await rollback(tx, self.corpus, target, number, RunId(run))

    async def verify(self, number: int) -> dict[str, StoreCheck]:
        """Count everything that a generation sees."""
        return await self.generations.verify(self.corpus, number, Deadline.after(10))

    async def export(self, number: int) -> list[str]:
        """Return the lines of an export."""
        return [line async for line in export(self.pool, self.corpus, number, Deadline.after(10))]

    async def body(self, number: int) -> list[str]:
        """Return the lines of an export after its header."""
        return (await self.export(number))[1:]

    async def texts(self, number: int) -> set[str]:
        """Return the texts of the chunks that a generation sees."""
        lines = [orjson.loads(line) for line in await self.body(number)]
        return {line["text"] for line in lines if line["kind"] == "chunks"}

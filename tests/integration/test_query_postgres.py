"""The query stage over real PostgreSQL and pgvector: equal to the stores in memory, and blind to other generations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import anyio
import numpy as np
import psutil
import pytest
from anyio import to_thread

from pipeline.adapters.pgvector_dense import PgvectorDense
from pipeline.adapters.postgres_graph import PostgresGraph
from pipeline.adapters.postgres_hydrate import PostgresChunks
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, GenerationChanged, InconsistentGeneration, NotFound, SapwoodError
from pipeline.graphs.knowledge import KnowledgeTools
from pipeline.retrieval.providers import StoreProvider
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.snapshots import open_snapshots
from pipeline.retrieval.stage import QueryStage
from pipeline.testing.corpus import EMBEDDING, MemoryStores, PinnedRows, Rows, manifest_of, synthetic, write_rows
from schemas.ids import CorpusId
from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.settings import CorpusSettings, GraphSearchSettings
from worker import embedded

SIZE, DIMENSION = 400, 16
LONG = 60.0
PLAIN = (Strategy.SEMANTIC, Strategy.KEYWORD, Strategy.HYBRID, Strategy.GRAPH, Strategy.HIERARCHICAL)
"""The strategies that need nothing but the generation."""


@dataclass
class World:
    """A stage over PostgreSQL, and its twin over memory, but for the vectors: their rounding decides close calls."""

    pool: Pool
    stage: QueryStage
    dense: PgvectorDense
    twin: QueryStage
    pinned: PinnedRows
    rows: Rows

    async def ask(self, pinned: PinnedRows | None = None, **fields: Any) -> QueryResult:
        request = QueryRequest.model_validate(question(self.rows) | fields)
        return await self.stage.run(pinned or self.pinned, request, Deadline.after(LONG))

    async def ask_twin(self, pinned: PinnedRows | None = None, **fields: Any) -> QueryResult:
        request = QueryRequest.model_validate(question(self.rows) | fields)
        return await self.twin.run(pinned or self.pinned, request, Deadline.after(LONG))

    def in_store(self, store: str) -> PinnedRows:
        """The generation, its graph said to lie in this store."""
        update = {"graph_store": store, "graph_id": f"{1:032x}-1"}
        return replace(self.pinned, manifest=self.pinned.manifest.model_copy(update=update))


def question(rows: Rows) -> dict[str, Any]:
    """A question near the fifth chunk, in its words and with the names of two entities."""
    words = " ".join(rows.chunks[5].text.split()[-6:])
    return {
        "text": f"Entity 3 and Entity 7 {words}",
        "vector": tuple(rows.vectors[5].tolist()),
        "cache": False,
        "top_k": 10,
    }


async def add_corpus(pool: Pool, name: str) -> CorpusId:
    async with pool.transaction(Deadline.after(LONG)) as tx:
        return CorpusId(await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", name))


async def publish(pool: Pool, corpus: CorpusId, generation: int, rows: Rows) -> PinnedRows:
    """Write a generation after killing all that is alive, and return it pinned."""
    manifest = manifest_of(rows, corpus, generation)
    async with pool.transaction(Deadline.after(LONG)) as tx:
        await tx.fetchval("select ensure_collection($1, $2, $3, $4)", corpus, manifest.collection, EMBEDDING, DIMENSION)
        for row in await tx.fetch("select name, scope from versioned_tables($1)", corpus):
            await tx.execute(f"update {row['name']} set died = $1 where {row['scope']} and died is null", generation)
        await tx.execute("update generation set state = 'superseded' where corpus_id = $1", corpus)
        await tx.execute(
            "insert into generation (corpus_id, number, state, run_id) values ($1, $2, 'current', 'r')",
            corpus,
            generation,
        )
        await write_rows(tx, corpus, generation, rows, manifest.collection)
    return PinnedRows(corpus, manifest)


@asynccontextmanager
async def opened(url: str, exact_rows: int = 20_000) -> AsyncGenerator[World, None]:
    rows = synthetic(SIZE, DIMENSION)
    async with open_pool(url, size=5) as pool, open_snapshots(PostgresSnapshots(pool), 1 << 30) as snapshots:
        pinned = await publish(pool, await add_corpus(pool, "one"), 1, rows)
        memory = MemoryStores({(pinned.corpus_id, 1): rows})
        dense = PgvectorDense(pool, exact_rows)
        yield World(
            pool,
            QueryStage(
                snapshots,
                dense,
                PostgresChunks(pool),
                no_embedder,
                ResultCache(),
                [StoreProvider("elsewhere", PostgresGraph(pool, snapshots), dense)],
            ),
            dense,
            QueryStage(memory, dense, memory, no_embedder, ResultCache()),
            pinned,
            rows,
        )


def no_embedder(*_: Any) -> Any:
    raise AssertionError("every question here brings its vector")


def shown(result: QueryResult) -> list[tuple[Any, ...]]:
    """What must be equal on all backends."""
    return [
        (h.score, h.document, h.chunk, h.lines, h.text, h.streams, h.title, h.metadata, h.neighbor_of)
        for h in result.hits
    ]


BY_TIER: dict[str, Any] = {
    "strategy": Strategy.TEMPORAL,
    "temporal": {"field": "tier", "since": 2, "until": 8, "now": 20, "half_life_days": 1e-4},
}
"""By the tiers of the documents, as if they were seconds since 1970."""
WALK = CorpusSettings(graph_search=GraphSearchSettings(ranking="walk"))


async def test_every_strategy_answers_as_it_does_in_memory(database: str) -> None:
    async with opened(database) as world:
        for settings in (CorpusSettings(), WALK):
            pinned = replace(world.pinned, settings=settings)
            for how in (*({"strategy": strategy} for strategy in PLAIN), BY_TIER):
                for extra in ({}, {"filters": {"tier": 3}}, {"neighbors": 1}):
                    case = {**how, **extra}
                    real, twin = await world.ask(pinned, **case), await world.ask_twin(pinned, **case)
                    assert real.complete
                    assert shown(real), case
                    assert shown(real) == shown(twin), case


async def test_a_store_of_graphs_and_live_triples_answer_beside_it(database: str) -> None:
    """The walk asked of a graph store equals that of the snapshot, and triples stand among chunks, here as in memory."""
    tools = KnowledgeTools()
    tools.kg_add_triple("Entity 3", "knows", "Entity 7")
    async with opened(database) as world:
        there = world.in_store("elsewhere")
        for strategy in (Strategy.GRAPH, Strategy.HYBRID):
            for extra in ({}, {"filters": {"tier": 3}}, {"neighbors": 1}):
                case = {"strategy": strategy, "ranking": "walk", **extra}
                one = await world.ask(there, **case)
                other = await world.ask(there, **case, fence=("in-memory",))
                assert {hit.graph_source for hit in one.hits if "graph" in hit.streams} == {"elsewhere"}
                assert shown(one) == shown(other), case
            live = {"strategy": strategy, "fence": ("knowledge-tools",), "neighbors": 1, "top_k": 50}
            real, twin = await world.ask(**live), await world.ask_twin(**live)
            assert "Entity 3 knows Entity 7" in [hit.text for hit in real.hits]
            assert shown(real) == shown(twin)


async def test_cosines_are_exact_but_for_half_precision(database: str) -> None:
    async with opened(database) as world:
        memory, manifest = MemoryStores({(world.pinned.corpus_id, 1): world.rows}), world.pinned.manifest
        some = np.array(sorted(c.chunk_id for c in world.rows.chunks)[::3], dtype=np.int64)
        for allowed in (None, some):
            want = await memory.search(manifest, world.rows.vectors[5], SIZE, allowed, Deadline.after(LONG))
            found = await world.dense.search(manifest, world.rows.vectors[5], SIZE, allowed, Deadline.after(LONG))
            assert {chunk for chunk, _ in found} == {chunk for chunk, _ in want}
            assert [score for _, score in found] == pytest.approx([score for _, score in want], abs=1e-3)
        few = [*some[:5].tolist(), 1]
        near = await world.dense.similarities(manifest, world.rows.vectors[5], few, Deadline.after(LONG))
        assert set(near) == set(few[:5])


async def test_filters_match_exactly_and_by_pseudo_keys(database: str) -> None:
    async with opened(database) as world:
        store, corpus = PostgresChunks(world.pool), world.pinned.corpus_id

        async def count(**filters: Any) -> int:
            return len(await store.allowed(corpus, 1, filters, Deadline.after(LONG)))

        assert await count(tier=3) == SIZE // 10
        assert await count(tier="3") == 0
        assert await count(tier=3, lang="en") == SIZE // 10
        assert await count(tier=3, lang="de") == 0
        assert await count(document="folder/doc-000003.md") == 10
        assert await count(document="folder/doc-000003.md", tier=4) == 0
        assert await count(source="/synthetic") == SIZE
        assert (await world.ask(filters={"tier": 99})).hits == ()
        async with world.pool.transaction(Deadline.after(LONG)) as tx:
            listed = {"tags": ["a", "b"], "at": {"x": 1, "y": 2}}
            await tx.execute("update document set metadata = $1 where document_id = 'folder/doc-000000.md'", listed)
        assert await count(tags=["a", "b"]) == 10
        assert await count(tags=["a"]) == 0
        assert await count(tags="a") == 0
        assert await count(at={"x": 1}) == 0
        assert await count(at={"y": 2, "x": 1}) == 10


async def test_other_corpora_and_generations_with_the_same_chunk_ids_never_show(database: str) -> None:
    """W10: the ids are the same everywhere, so whatever leaks would be found."""
    async with opened(database) as world:
        texts = [replace(c, text=f"second {c.text}", title="second") for c in world.rows.chunks[: SIZE // 2]]
        half = replace(
            world.rows,
            chunks=texts,
            terms=world.rows.terms[: SIZE // 2],
            lengths=world.rows.lengths[: SIZE // 2],
            vectors=world.rows.vectors[: SIZE // 2],
            mentions=world.rows.mentions[world.rows.mentions[:, 0] < SIZE // 2],
        )
        other = await publish(world.pool, await add_corpus(world.pool, "other"), 1, half)
        later = await publish(world.pool, world.pinned.corpus_id, 2, half)
        for pinned, size, second in ((world.pinned, SIZE, False), (other, SIZE // 2, True), (later, SIZE // 2, True)):
            for strategy in PLAIN:
                for extra in ({}, {"filters": {"lang": "en"}}):
                    result = await world.ask(pinned, strategy=strategy, neighbors=1, **extra)
                    assert result.generation == pinned.manifest.generation
                    assert result.hits
                    assert {hit.title == "second" for hit in result.hits} == {second}
                    assert len({hit.chunk for hit in result.hits}) == len(result.hits)
            near = await world.dense.search(pinned.manifest, world.rows.vectors[5], 1000, None, Deadline.after(LONG))
            assert len(near) == len({chunk for chunk, _ in near}) == size


async def test_the_index_finds_what_the_scan_finds_and_never_fewer(database: str) -> None:
    async with opened(database, exact_rows=100) as world:
        exact = PgvectorDense(world.pool)
        manifest = world.pinned.manifest
        assert not await exact.ensure_index(manifest, Deadline.after(LONG))
        assert await world.dense.ensure_index(manifest, Deadline.after(LONG))
        assert not await world.dense.ensure_index(manifest, Deadline.after(LONG))
        some = np.array(sorted(c.chunk_id for c in world.rows.chunks)[::2], dtype=np.int64)
        for vector in world.rows.vectors[:20]:
            for allowed in (None, some):
                want = await exact.search(manifest, vector, 30, allowed, Deadline.after(LONG))
                found = await world.dense.search(manifest, vector, 30, allowed, Deadline.after(LONG))
                assert len(found) == 30
                assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))
                assert len({c for c, _ in found} & {c for c, _ in want}) >= 27
        # Every row of the first generation is dead to the second: the index alone would find nothing.
        later = await publish(world.pool, world.pinned.corpus_id, 2, world.rows)
        assert len(await world.dense.search(later.manifest, vector, 300, None, Deadline.after(LONG))) == 300
        few = some[:5]
        assert len(await world.dense.search(later.manifest, vector, 30, few, Deadline.after(LONG))) == 5


async def test_a_broken_index_build_is_made_anew(database: str) -> None:
    async with opened(database, exact_rows=100) as world:
        name = world.pinned.manifest.collection
        assert await world.dense.ensure_index(world.pinned.manifest, Deadline.after(LONG))
        async with world.pool.transaction(Deadline.after(LONG)) as tx:
            await tx.execute(f"update pg_index set indisvalid = false where indexrelid = '{name}_hnsw'::regclass")
        assert await world.dense.ensure_index(world.pinned.manifest, Deadline.after(LONG))
        async with world.pool.connection(Deadline.after(LONG)) as tx:
            valid = await tx.fetchval(f"select indisvalid from pg_index where indexrelid = '{name}_hnsw'::regclass")
        assert valid


@pytest.mark.parametrize(
    "name", ["dense_1_0123456789ab; drop table run", "dense_1_0123456789AB", "run", "dense_9_0123456789ab"]
)
async def test_a_collection_that_is_none_is_refused(database: str, name: str) -> None:
    async with opened(database) as world:
        manifest = world.pinned.manifest.model_copy(update={"collection": name})
        with pytest.raises(InconsistentGeneration):
            await world.dense.search(manifest, world.rows.vectors[0], 5, None, Deadline.after(LONG))


async def test_a_vector_of_zeros_is_near_to_nothing(database: str) -> None:
    async with opened(database) as world:
        assert (await world.ask(strategy=Strategy.SEMANTIC, vector=(0.0,) * DIMENSION)).hits == ()


async def test_a_delta_takes_one_generation_to_the_next(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pages or in one, from the generation before or from nothing: the same snapshot."""
    async with opened(database) as world:
        corpus = world.pinned.corpus_id
        later = synthetic(SIZE - 50, DIMENSION, seed=20)
        await publish(world.pool, corpus, 2, later)
        source = PostgresSnapshots(world.pool)
        first = Snapshot.empty().apply(await source.delta(corpus, 0, 1, Deadline.after(LONG)))
        stepwise = first.apply(await source.delta(corpus, 1, 2, Deadline.after(LONG)))
        monkeypatch.setattr("pipeline.adapters.postgres_snapshot.CHUNKS_PAGE", 32)
        monkeypatch.setattr("pipeline.adapters.postgres_snapshot.ROWS_PAGE", 64)
        at_once = Snapshot.empty().apply(await source.delta(corpus, 0, 2, Deadline.after(LONG)))
        memory = Snapshot.empty().apply(
            await MemoryStores({(corpus, 2): later}).delta(corpus, 0, 2, Deadline.after(LONG))
        )
        for one in (stepwise, at_once):
            assert one.chunk_ids.tolist() == memory.chunk_ids.tolist()
            assert one.chunks.documents.tolist() == memory.chunks.documents.tolist()
            assert one.graph.entities.tolist() == memory.graph.entities.tolist()
            assert one.graph.communities.tolist() == memory.graph.communities.tolist()
            assert one.graph.mentioned.targets.tolist() == memory.graph.mentioned.targets.tolist()
            assert one.graph.relations.ids.tolist() == memory.graph.relations.ids.tolist()


async def test_a_membership_that_changes_alone_brings_its_entity(database: str) -> None:
    async with opened(database) as world:
        corpus = world.pinned.corpus_id
        async with world.pool.transaction(Deadline.after(LONG)) as tx:
            await tx.execute(
                "insert into generation (corpus_id, number, state, run_id) values ($1, 2, 'current', 'r')", corpus
            )
            no = await tx.fetchval("select min(entity_no) from entity where corpus_id = $1", corpus)
            await tx.execute("update membership set died = 2 where corpus_id = $1 and entity_no = $2", corpus, no)
            await tx.execute(
                "insert into membership (corpus_id, entity_no, born, path) values ($1, $2, 2, '{5,6}')", corpus, no
            )
        source = PostgresSnapshots(world.pool)
        delta = await source.delta(corpus, 1, 2, Deadline.after(LONG))
        assert delta.dead_entities.tolist() == delta.entities.entity_no.tolist() == [no]
        assert delta.entities.community.tolist() == [6]
        assert not len(delta.chunks.chunk_id) and not len(delta.relations.source)
        first = Snapshot.empty().apply(await source.delta(corpus, 0, 1, Deadline.after(LONG)))
        assert 6 in first.apply(delta).graph.communities.tolist()


async def test_a_reclaimed_generation_is_no_base_and_no_target(database: str) -> None:
    async with opened(database) as world:
        corpus = world.pinned.corpus_id
        await publish(world.pool, corpus, 2, world.rows)
        async with world.pool.transaction(Deadline.after(LONG)) as tx:
            await tx.execute("update generation set state = 'reclaimed' where corpus_id = $1 and number = 1", corpus)
        source = PostgresSnapshots(world.pool)
        with pytest.raises(GenerationChanged):
            await source.delta(corpus, 1, 2, Deadline.after(LONG))
        with pytest.raises(NotFound):
            await source.delta(corpus, 0, 1, Deadline.after(LONG))


async def test_a_cancelled_query_stops_on_the_server_too(database: str) -> None:
    async with opened(database) as world, open_pool(database, size=2) as observer:
        async with observer.transaction(Deadline.after(LONG)) as lock:
            await lock.execute(f"lock table {world.pinned.manifest.collection} in access exclusive mode")
            with anyio.move_on_after(0.3) as scope:
                await world.ask(strategy=Strategy.SEMANTIC)
            assert scope.cancelled_caught
            waiting = (
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            for _ in range(200):
                if not await lock.fetchval(waiting):
                    break
                await anyio.sleep(0.02)
            assert await lock.fetchval(waiting) == 0
        assert (await world.ask(strategy=Strategy.SEMANTIC)).hits


async def test_with_the_server_frozen_the_deadline_holds_and_the_pool_is_whole_afterwards(tmp_path: Path) -> None:
    """300 ms end with a part or an error in less than two seconds (0.8 s on a quiet machine), and nothing is lost."""
    from pipeline.adapters.postgres_migrations import migrate

    home = tmp_path / "home"
    endpoints = await to_thread.run_sync(embedded.up, home)
    try:
        await migrate(endpoints.database_url)
        async with opened(endpoints.database_url) as world:
            await world.ask()
            await to_thread.run_sync(signal_all, home, SIGSTOP)
            try:
                started = anyio.current_time()
                request = QueryRequest.model_validate(question(world.rows))
                try:
                    result = await world.stage.run(world.pinned, request, Deadline.after(0.3))
                    assert not result.complete
                    assert result.missing
                except SapwoodError:
                    pass
                with pytest.raises(DeadlineExceeded):
                    await world.stage.run(
                        world.pinned, request.model_copy(update={"partial": False}), Deadline.after(0.3)
                    )
                assert anyio.current_time() - started < 4.0
            finally:
                await to_thread.run_sync(signal_all, home, SIGCONT)
            answers: list[QueryResult] = []

            async def ask() -> None:
                answers.append(await world.ask())

            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(ask)
            assert [answer.complete for answer in answers] == [True] * 10
    finally:
        await to_thread.run_sync(embedded.down, home)


def signal_all(home: Path, signal: int) -> None:
    """Send a signal to every process of this home's PostgreSQL, the postmaster first, so that it starts no other."""
    pid = next(server.pid for server in embedded.status(home) if server.name == "postgres")
    postmaster = psutil.Process(pid)
    postmaster.send_signal(signal)
    for child in postmaster.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one whose connection was cut ends as soon as it goes on
            child.send_signal(signal)

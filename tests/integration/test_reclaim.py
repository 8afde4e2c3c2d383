"""Pins and garbage collection: what a reader holds stays, and what nobody can see goes, all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import asyncpg
import pytest

from pipeline.adapters.postgres_pins import PostgresPins
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import GenerationChanged, NotFound
from pipeline.generations.pins import PinBoard
from pipeline.testing.rows import FINGERPRINT, document
from tests.generation_builder import Builder

OLD = document("notes", [("Zanzibar", "EXPORTS", "Cloves")])
NEW = document("notes", [("Pemba", "EXPORTS", "Cloves")])
OTHER = document("other", [("Tea", "NEEDS", "Water")])

ACCOUNTING = {"run", "event", "outcome", "schema_migration"}
"""Tables that hold ids of documents, not their text."""


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


@pytest.fixture
async def corpus(pool: Pool) -> Builder:
    return await Builder.new(pool, "a")


def board(corpus: Builder, holder: str) -> PinBoard:
    return PinBoard(PostgresPins(corpus.pool), holder)


def soon() -> Deadline:
    return Deadline.after(10)


async def readable(corpus: Builder) -> list[int]:
    listed = await corpus.generations.list(corpus.corpus, soon())
    return [g.number for g in listed if g.state in ("current", "superseded")]


async def test_a_pinned_generation_outlives_its_retention(corpus: Builder) -> None:
    await corpus.build(OLD)
    async with board(corpus, "reader").pin("default", "a", soon()) as pinned:
        assert pinned.manifest.generation == 1
        before = await corpus.body(1)
        await corpus.build(NEW)
        await corpus.build(OTHER)
        reclaimed = await corpus.collector.collect(corpus.corpus, 1, soon())
        assert reclaimed.generations == (2,)
        assert await corpus.body(1) == before
        assert await readable(corpus) == [3, 1]
    await expire(corpus)
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).generations == (1,)
    assert await readable(corpus) == [3]


async def test_a_crashed_reader_holds_a_generation_for_one_lease(corpus: Builder) -> None:
    await corpus.build(OLD)
    reader = board(corpus, "crashed").pin("default", "a", soon())
    await reader.__aenter__()
    await corpus.build(NEW)
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).generations == ()
    await expire(corpus)
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).generations == (1,)


async def test_a_reader_whose_lease_was_lost_is_told(corpus: Builder) -> None:
    await corpus.build(OLD)
    pins = board(corpus, "slow")
    with pytest.raises(GenerationChanged):
        async with pins.pin("default", "a", soon()):
            await corpus.build(NEW)
            await expire(corpus)
            await corpus.collector.collect(corpus.corpus, 1, soon())
            await pins.renew(soon())
    async with pins.pin("default", "a", soon()) as pinned:
        assert pinned.manifest.generation == 2


async def test_readers_of_one_process_share_a_row_that_is_written_once(corpus: Builder) -> None:
    await corpus.build(OLD)
    pins = board(corpus, "busy")
    async with pins.pin("default", "a", soon()), pins.pin("default", "a", soon()):
        first = await leases(corpus)
        async with pins.pin("default", "a", soon()):
            assert await leases(corpus) == first
        assert [holder for holder, _ in first] == ["busy"]
        await pins.renew(soon())
        assert (await leases(corpus))[0][1] > first[0][1]
    renewed = await leases(corpus)
    await pins.renew(soon())
    assert await leases(corpus) == renewed  # nobody reads, so it is left to expire
    await pins.close(soon())
    assert await leases(corpus) == []


async def test_there_is_nothing_to_pin_before_the_first_promotion(corpus: Builder) -> None:
    for name in ("a", "nowhere"):
        with pytest.raises(NotFound):
            async with board(corpus, "early").pin("default", name, soon()):
                pass


async def test_a_pin_and_the_collector_exclude_each_other(corpus: Builder) -> None:
    """Whichever is first wins: readers that pin while generations are closed never see one with holes."""
    await corpus.build(OLD, OTHER)
    seen = 0
    done = anyio.Event()

    async def read(holder: str) -> None:
        nonlocal seen
        while not done.is_set():
            async with board(corpus, holder).pin("default", "a", soon()) as pinned:
                found = await corpus.verify(pinned.manifest.generation)
                assert found == pinned.manifest.stores
                seen += 1
            await expire(corpus, holder)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(read, f"reader-{number}")
        for turn in range(12):
            await corpus.build((OLD, NEW)[turn % 2])
            await corpus.collector.collect(corpus.corpus, 1, soon())
        done.set()
    assert seen > 0


async def test_retention_keeps_the_newest_and_always_the_current(corpus: Builder) -> None:
    for turn in range(4):
        await corpus.build((OLD, NEW)[turn % 2])
    assert (await corpus.collector.collect(corpus.corpus, 3, soon())).generations == (1,)
    assert await readable(corpus) == [4, 3, 2]
    for number in (2, 3, 4):
        found = await corpus.generations.manifest(corpus.corpus, number, soon())
        assert await corpus.verify(number) == found.stores
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).generations == (2, 3)
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).rows == {}


async def test_a_deleted_document_leaves_its_text_in_no_table(corpus: Builder, database: str) -> None:
    await corpus.build(OLD, OTHER)
    await cache(corpus, OLD.chunks[0].text_hash, "Zanzibar")
    await cache(corpus, OTHER.chunks[0].text_hash, "Tea")
    assert await tables_with(database, "Zanzibar") >= {
        "chunk", "entity", "mention", "community", "extraction_cache", "embedding_cache",
    }  # fmt: skip
    await corpus.build(removed=["notes"])
    reclaimed = await corpus.collector.collect(corpus.corpus, 1, soon())
    assert await tables_with(database, "Zanzibar") == set()
    assert reclaimed.cached == 2
    assert reclaimed.rows["chunk"] == reclaimed.rows["document"] == 1
    assert "extraction_cache" in await tables_with(database, "Tea")


async def test_cached_work_survives_while_a_build_is_open_or_to_be_tried_again(corpus: Builder) -> None:
    await corpus.build(OTHER)
    number, collection = await corpus.begin()
    await cache(corpus, OLD.chunks[0].text_hash, "Zanzibar")
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).cached == 0
    await corpus.collector.abort(corpus.corpus, number, soon())
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).cached == 0
    assert collection
    await corpus.build(NEW)
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).cached == 2


async def test_a_build_of_a_dead_run_is_undone_and_that_of_a_live_one_is_not(corpus: Builder) -> None:
    await corpus.build(OLD)
    number, collection = await corpus.begin("r")
    await corpus.write(number, collection, [NEW])
    async with corpus.pool.connection(soon()) as tx:
        await tx.execute(
            "insert into run (run_id, root_id, corpus_id, kind, state) values ('r', 'r', $1, 'index', 'running')",
            corpus.corpus,
        )
        assert (await corpus.collector.collect(corpus.corpus, 1, soon())).aborted == ()
        await tx.execute("update run set state = 'failed'")
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).aborted == (2,)
    assert (await corpus.build(NEW)).generation == 3


async def test_collections_that_no_generation_names_are_dropped(corpus: Builder) -> None:
    old = (await corpus.build(OLD)).collection
    await corpus.build(OLD, fingerprint="other-1")
    assert (await corpus.collector.collect(corpus.corpus, 2, soon())).collections == ()
    assert (await corpus.collector.collect(corpus.corpus, 1, soon())).collections == (old,)
    assert (await corpus.build(OLD, fingerprint=FINGERPRINT)).collection == old
    assert await corpus.texts(3) == {"Zanzibar EXPORTS Cloves"}


async def test_another_corpus_is_never_touched(corpus: Builder) -> None:
    """Neither one whose name begins with this one's, nor one whose number does."""
    others = [await Builder.new(corpus.pool, name) for name in ("a__b", *(f"n{number}" for number in range(12)))]
    twins = [others[0], others[-1]]
    for twin in twins:
        await twin.build(OLD)
        await twin.build(NEW)
        await cache(twin, OLD.chunks[0].text_hash, "Zanzibar")
    before = [await twin.export(number) for twin in twins for number in (1, 2)]
    await corpus.build(OLD)
    await corpus.build(NEW)
    number, collection = await corpus.begin()
    await corpus.write(number, collection, [OTHER], ["notes"])
    await corpus.collector.abort(corpus.corpus, number, soon())
    await corpus.build(removed=["notes"])
    await corpus.collector.collect(corpus.corpus, 1, soon())
    assert [await twin.export(number) for twin in twins for number in (1, 2)] == before
    async with corpus.pool.connection(soon()) as tx:
        assert await tx.fetchval("select count(*) from extraction_cache") == 2


async def cache(corpus: Builder, text_hash: bytes, name: str) -> None:
    async with corpus.pool.connection(soon()) as tx:
        await tx.execute(
            "insert into embedding_cache values ($1, 'm', $2, $3)", corpus.corpus, text_hash, name.encode()
        )
        await tx.execute(
            "insert into extraction_cache values ($1, 'm', $2, $3)", corpus.corpus, text_hash, {"name": name}
        )


async def expire(corpus: Builder, holder: str | None = None) -> None:
    """Let leases end, as time would."""
    async with corpus.pool.connection(soon()) as tx:
        await tx.execute("update pin set lease_until = clock_timestamp() where holder = coalesce($1, holder)", holder)


async def leases(corpus: Builder) -> list[tuple[str, object]]:
    async with corpus.pool.connection(soon()) as tx:
        return [tuple(row) for row in await tx.fetch("select holder, lease_until from pin order by holder")]


async def tables_with(database: str, word: str) -> set[str]:
    """Return the tables in which a word stands in any column that can hold text."""
    connection = await asyncpg.connect(database)
    try:
        columns = await connection.fetch(
            "select table_name, column_name from information_schema.columns where table_schema = 'sapwood' "
            "and data_type in ('text', 'bytea', 'jsonb', 'ARRAY', 'character varying')"
        )
        found = set[str]()
        for table, column in columns:
            held = f"lower({column}::text)"  # bytes show as hex
            query = f"select exists (select 1 from sapwood.{table} where strpos({held}, $1) + strpos({held}, $2) > 0)"
            if table not in ACCOUNTING and await connection.fetchval(query, word.lower(), word.encode().hex()):
                found.add(table)
        return found
    finally:
        await connection.close()

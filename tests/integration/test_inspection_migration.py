"""Degrees and first chunks of generations that were there before these were kept."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import asyncpg
import pytest

from pipeline.adapters.postgres_migrations import available, migrate

FIRST = 8
"""The migration that adds them."""

OLD = """
insert into corpus (name, last_generation, current_generation) values ('old', 3, 2), ('other', 1, 1);
insert into generation (corpus_id, number, state, run_id) values
    (1, 1, 'superseded', 'run'), (1, 2, 'current', 'run'), (1, 3, 'building', 'run'), (2, 1, 'current', 'run');
insert into entity (corpus_id, entity_no, born, died, entity_id, type, key, name, mentions, chunks) values
    (1, 1, 1, null, 'a', 't', 'a', 'A', 1, 1), (1, 2, 1, null, 'b', 't', 'b', 'B', 1, 1), (1, 3, 1, 2, 'c', 't', 'c', 'C', 1, 1),
    (1, 4, 2, null, 'd', 't', 'd', 'D', 1, 1), (1, 5, 1, null, 'e', 't', 'e', 'E', 1, 1),
    (2, 1, 1, null, 'a', 't', 'a', 'A', 1, 1);
insert into relation (corpus_id, source_no, target_no, type, born, died, weight, evidence) values
    (1, 1, 2, 'r', 1, null, 1, 1), (1, 2, 1, 's', 1, null, 1, 1), (1, 1, 1, 'r', 1, null, 1, 1), (1, 1, 3, 'r', 1, 2, 1, 1),
    (1, 4, 1, 'r', 2, 3, 1, 1), (1, 2, 4, 'r', 2, 3, 1, 1);
insert into mention (corpus_id, chunk_id, entity_no, born, died, type, key, surface, char_start, char_end, origin) values
    (1, 11, 1, 1, null, 't', 'a', 'A', 0, 1, 'text'), (1, 12, 1, 1, null, 't', 'a', 'A', 0, 1, 'text'),
    (1, 12, 2, 1, 2, 't', 'b', 'B', 0, 1, 'text'), (1, 13, 2, 2, null, 't', 'b', 'B', 0, 1, 'text'),
    (1, 14, 3, 1, 2, 't', 'c', 'C', 0, 1, 'text'), (1, 15, 4, 2, null, 't', 'd', 'D', 0, 1, 'text'),
    (1, 16, 5, 1, null, 't', 'e', 'E', 0, 1, 'text'), (2, 7, 1, 1, null, 't', 'a', 'A', 0, 1, 'text');
insert into membership (corpus_id, entity_no, born, path) values (1, 1, 1, '{7,8}'), (1, 5, 1, '{9}');
"""
"""`A` has two neighbours in each of the two generations, but `B` one and then two; the third is being built."""


@pytest.fixture
async def old(database: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection to a database that holds all this as it was before."""
    connection = await asyncpg.connect(database, server_settings={"search_path": "sapwood, public"})
    await connection.execute("drop schema sapwood cascade; create schema sapwood")
    await connection.execute("create table schema_migration (version int primary key, checksum text not null)")
    for one in await anyio.to_thread.run_sync(available):
        if one.version < FIRST:
            await connection.execute(one.sql)
            await connection.execute("insert into schema_migration values ($1, $2)", one.version, one.checksum)
    await connection.execute(OLD)
    yield connection
    await connection.close()


async def test_each_generation_has_its_own(old: asyncpg.Connection[asyncpg.Record], database: str) -> None:
    assert "0008_inspection.sql" in await migrate(database)

    async def seen(corpus: int, generation: int) -> list[tuple[int, ...]]:
        rows = await old.fetch(
            "select entity_no, degree, first_chunk from entity where corpus_id = $1 and born <= $2"
            " and (died is null or died > $2) order by entity_no",
            corpus,
            generation,
        )
        return [tuple(row) for row in rows]

    assert await seen(1, 1) == [(1, 2, 11), (2, 1, 12), (3, 1, 14), (5, 0, 16)]
    assert await seen(1, 2) == [(1, 2, 11), (2, 2, 13), (4, 2, 15), (5, 0, 16)]
    assert await seen(1, 3) == [(1, 1, 11), (2, 1, 13), (4, 0, 15), (5, 0, 16)]
    assert await seen(2, 1) == [(1, 0, 7)]
    versions = await old.fetch("select entity_no, count(*) as n from entity where corpus_id = 1 group by 1 order by 1")
    assert [tuple(row) for row in versions] == [(1, 2), (2, 3), (3, 1), (4, 2), (5, 1)]
    assert [row["community"] for row in await old.fetch("select community from membership order by entity_no")] == [
        8,
        9,
    ]

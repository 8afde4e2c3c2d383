"""What a run that writes many rows tells the planner."""

from __future__ import annotations

import pytest

from pipeline.adapters.postgres_corpora import MANY, PostgresAccounting
from pipeline.adapters.postgres_pool import open_pool
from pipeline.deadline import Deadline
from schemas.ids import CorpusId

CHUNKS = """
insert into chunk (corpus_id, chunk_id, born, document_id, ordinal, text, char_start, char_end, first_line, last_line,
    text_hash, passage_hash, terms, length)
select $1, n, $2, 'a', n, '', 0, 0, 1, 1, '', '', '', 0 from generate_series(1, $3::int) as n
"""


@pytest.mark.parametrize(("born", "number", "many"), [(MANY - 1, 7, False), (MANY, 7, True), (MANY, 8, False)])
async def test_queries_are_planned_for_many_rows_where_the_number_wrote_them_and_in_that_transaction_alone(
    database: str, born: int, number: int, many: bool
) -> None:
    """Of a new corpus the planner knows nothing: nested loops over a few hundred files ran out of a minute."""
    async with open_pool(database, 1) as pool:
        async with pool.transaction(Deadline.after(10)) as tx:
            corpus = CorpusId(await tx.fetchval("insert into corpus (name) values ('c') returning corpus_id"))
            await tx.execute(CHUNKS, corpus, 7, born)
        async with pool.transaction(Deadline.after(10)) as tx:
            assert await PostgresAccounting().expect_many(tx, corpus, number) is many
            assert await tx.fetchval("show enable_nestloop") == ("off" if many else "on")
        async with pool.transaction(Deadline.after(10)) as tx:
            assert await tx.fetchval("show enable_nestloop") == "on"

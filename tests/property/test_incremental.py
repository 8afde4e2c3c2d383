"""After any history of edits a corpus exports the bytes of a fresh one with the same documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.testing.rows import Triple, document
from tests.generation_builder import Builder

Passages = tuple[tuple[Triple, ...], ...]
State = dict[str, Passages]

# Spellings of few entities, so that edits of one document change what others derive.
ENDS = st.sampled_from(["A", "a", "The A", "b", "B", "c", "d", "e", "f", "person:a", "Person:A", "!"])
# Values that are equal to each other in Python or in PostgreSQL, but not in an export.
VALUES = st.sampled_from(["1", "1.0", "true", '"1"', "1e16", "10000000000000000", "1e-7", '"é"'])
PROPERTIES = st.dictionaries(st.sampled_from(["p", "q", "Q", "long"]), VALUES, max_size=2).map(
    lambda given: "{" + ",".join(f'"{name}":{value}' for name, value in given.items()) + "}"
)
KINDS = st.sampled_from(["", "R", "r", "S"])
TRIPLE = st.one_of(st.tuples(ENDS, KINDS, ENDS), st.tuples(ENDS, KINDS, ENDS, PROPERTIES))
PASSAGES = st.lists(st.lists(TRIPLE, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
STATE = st.dictionaries(st.sampled_from("xyzé"), PASSAGES, max_size=4)

_names = count()


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


async def step(corpus: Builder, old: State, new: State, stop: str) -> None:
    """Bring the corpus from one state to the next; `stop` first undoes a build of it, or rolls back afterwards."""
    written = [document(name, *passages) for name, passages in new.items() if old.get(name) != passages]
    removed = old.keys() - new.keys()
    if stop == "abort":
        number, collection = await corpus.begin("lost")
        await corpus.write(number, collection, written, removed)
        await corpus.assemble(number)
        await corpus.collector.abort(corpus.corpus, number, Deadline.after(10))
    before = [g.number for g in await corpus.generations.list(corpus.corpus, Deadline.after(5)) if g.state == "current"]
    made = await corpus.build(*written, removed=removed)
    if stop == "rollback" and before:
        await corpus.rollback(before[0], "back")
        made = await corpus.rollback(made.generation, "forth")
    if stop == "collect":
        await corpus.collector.collect(corpus.corpus, 1, Deadline.after(10))
    assert await corpus.verify(made.generation) == made.stores
    await look_is_right(corpus, made.generation)


COUNTED = """
select entity_no, degree, first_chunk, (
    select count(*) from (
        select target_no from relation r where r.corpus_id = $1 and r.source_no = e.entity_no and r.target_no <> e.entity_no
            and r.born <= $2 and (r.died is null or r.died > $2)
        union
        select source_no from relation r where r.corpus_id = $1 and r.target_no = e.entity_no and r.source_no <> e.entity_no
            and r.born <= $2 and (r.died is null or r.died > $2)
    ) as other
) as others, (
    select min(chunk_id) from mention m where m.corpus_id = $1 and m.entity_no = e.entity_no
        and m.born <= $2 and (m.died is null or m.died > $2)
) as first
from entity e where corpus_id = $1 and born <= $2 and (died is null or died > $2)
"""


async def look_is_right(corpus: Builder, generation: int) -> None:
    """What is derived for looking at the graph is not exported: count it anew."""
    async with corpus.pool.connection(Deadline.after(10)) as tx:
        rows = await tx.fetch(COUNTED, corpus.corpus, generation)
    assert [(row["degree"], row["first_chunk"]) for row in rows] == [(row["others"], row["first"]) for row in rows]


STOPS = st.sampled_from(["", "abort", "rollback", "collect"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(STATE, STOPS), min_size=1, max_size=4))
@example(
    [({"x": ((("A", "R", "b"),),)}, ""), ({"x": ((("a", "R", "b"), ("a", "", "c")),)}, "rollback"), ({}, "collect")]
)
@example(
    [
        ({"x": ((("A", "R", "b", '{"p": 1}'),),), "y": ((("A", "R", "b", '{"p": 1.0}'),),)}, ""),
        ({"x": ((("A", "R", "b", '{"p": 1.0}'),),), "y": ((("A", "R", "b", '{"p": true}'),),)}, "rollback"),
        ({"y": ((("A", "R", "b"),),)}, ""),
    ]
)
async def test_the_export_depends_on_the_documents_alone(pool: Pool, states: list[tuple[State, str]]) -> None:
    corpus = await Builder.new(pool, f"edited-{next(_names)}")
    old: State = {}
    for new, stop in states:
        await step(corpus, old, new, stop)
        old = new
    fresh = await Builder.new(pool, f"fresh-{next(_names)}")
    await fresh.build(
        *(document(name, *passages, place="/elsewhere") for name, passages in sorted(old.items(), reverse=True))
    )
    current = (await corpus.generations.list(corpus.corpus, Deadline.after(5)))[0].number
    assert await corpus.body(current) == await fresh.body(1)

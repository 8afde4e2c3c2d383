"""Portable MATCH on PostgreSQL beyond the contract: what reaches the server, by which ways, and what stops there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import asyncpg
import pytest

from pipeline.adapters.postgres_match import PostgresMatch
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, InvalidRequest
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.check import check
from pipeline.graphtools.execution import Bounds, Limit
from pipeline.graphtools.parse import parse
from pipeline.graphtools.plan import Plan, Predicate
from pipeline.graphtools.sql import compiled
from pipeline.tenancy import apart
from pipeline.testing.match_contract import SCHEMA
from schemas.ids import CorpusId, graph_id

MANY = 3_000
WAYS = "MATCH (x:Any)-[:KNOWS*1..9]-(:Any)-[:KNOWS*1..7]-(z:Any) RETURN COUNT(*)"
BUSY = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'sapwood' and state = 'active' and query ~ 'with recursive'
"""


@pytest.fixture(scope="module")
async def pool(module_database: str) -> AsyncIterator[Pool]:
    async with open_pool(module_database) as pool:
        yield pool


@pytest.fixture(scope="module")
async def graph(pool: Pool) -> GraphRef:
    """Return a graph of many nodes in a ring with chords."""
    async with pool.transaction(Deadline.after(60)) as tx:
        corpus = await tx.fetchval("insert into corpus (name) values ('ring') returning corpus_id")
        await tx.execute(
            "insert into entity (corpus_id, entity_no, born, entity_id, type, key, name, mentions, chunks)"
            " select $1, i, 1, 'e' || i, 'person', 'n' || i, 'n' || i, 1, 1 from generate_series(0, $2::int - 1) i",
            corpus,
            MANY,
        )
        await tx.execute(
            "insert into relation (corpus_id, source_no, target_no, type, born, weight, evidence)"
            " select $1, i, (i + k * k) % $2, 'knows', 1, 0.5, 1 from generate_series(0, $2::int - 1) i, generate_series(1, 3) k",
            corpus,
            MANY,
        )
    async with pool.connection(Deadline.after(60)) as tx:
        await tx.execute("analyze entity, relation")
    return GraphRef(CorpusId(corpus), 1, "ring", graph_id("0" * 32, 1))


def plan(text: str, **parameters: object) -> Plan:
    return check(parse(text, parameters), SCHEMA, 16)


async def until(connection: asyncpg.Connection[Any], busy: bool) -> None:
    with anyio.fail_after(30):
        while bool(await connection.fetch(BUSY)) is not busy:  # noqa: ASYNC110 - a server tells nobody
            await anyio.sleep(0.01)


async def test_a_cancelled_query_ends_in_the_server(pool: Pool, graph: GraphRef, module_database: str) -> None:
    watcher = await asyncpg.connect(module_database)
    endless = Bounds(1, steps=10**15)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(PostgresMatch(pool).match, graph, plan(WAYS), endless, Deadline.never())
            await until(watcher, busy=True)
            group.cancel_scope.cancel()
        await until(watcher, busy=False)
    finally:
        await watcher.close()
    assert (
        await PostgresMatch(pool).match(graph, plan("MATCH (x:Any) RETURN COUNT(*)"), Bounds(1), Deadline.after(60))
    ).rows == ((MANY,),)


async def test_a_query_without_end_is_stopped_by_its_deadline_or_its_steps(pool: Pool, graph: GraphRef) -> None:
    executor = PostgresMatch(pool)
    with pytest.raises(DeadlineExceeded):
        await executor.match(graph, plan(WAYS), Bounds(1, steps=10**15), Deadline.after(0.3))
    found = await executor.match(graph, plan(WAYS), Bounds(1, steps=1_000), Deadline.after(60))
    assert found.limit is Limit.STEPS
    assert found.rows[0][0] in range(1_001)


async def test_another_tenant_sees_nothing(pool: Pool, graph: GraphRef) -> None:
    text = plan("MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN COUNT(*)")
    counts = list[Any]()
    for tenant in ("default", "another"):
        with apart(tenant):
            counts.append((await PostgresMatch(pool).match(graph, text, Bounds(1), Deadline.after(60))).rows[0][0])
    assert counts[0] > MANY
    assert counts[1] == 0


@pytest.mark.parametrize(
    "text",
    [
        "MATCH (x:Any {name: :n})-[:KNOWS]->(y:Any) RETURN y",
        "MATCH (x:Any)-[:KNOWS]-(y:Any) WHERE y.name = :n RETURN x",
        "MATCH (x:Any {name: :n})-[:KNOWS]->(:Any)<-[:KNOWS|NEAR]-(:Any)-[:KNOWS]->(y:Any) RETURN DISTINCT y",
        "MATCH (x:Any)-[:KNOWS*1..3]-(y:Any) WHERE y.name IN [:n] RETURN PATH",
    ],
)
async def test_what_is_around_a_name_is_found_by_indexes(pool: Pool, graph: GraphRef, text: str) -> None:
    statement = compiled(plan(text, n="n7"), graph.corpus_id, graph.generation, Bounds(21))
    with apart("default"):
        async with pool.transaction(Deadline.after(60)) as tx:
            await tx.execute("set local plan_cache_mode = force_custom_plan")
            lines = await tx.fetch(f"explain {statement.text}", *statement.parameters)
    told = "\n".join(row[0] for row in lines)
    assert "entity_name" in told
    assert "Seq Scan on relation" not in told


async def test_nothing_of_a_query_is_in_its_text() -> None:
    hostile = "'; drop table entity; --"
    given = replace(
        plan(
            "MATCH (x:Any)-[r:KNOWS*1..3]->(y:Any) WHERE x.s = :v AND NOT x.t = '2020-01-01' OR y.i IN [77123] RETURN y.s",
            v=hostile,
        )
    )
    statement = compiled(given, 1, 1, Bounds(10))
    assert hostile in statement.parameters
    for word in ("drop", "77123", "vip", "knows", "2020-01-01"):
        assert word not in statement.text
    other = plan(
        "MATCH (x:Any)-[r:KNOWS*2..4]->(y:Any) WHERE x.s = :v AND NOT x.t = '2021-01-01' OR y.i IN [1, 2] RETURN y.s",
        v="",
    )
    assert compiled(other, 2, 3, Bounds(99, 100, 7)).text == statement.text


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
async def test_a_value_that_no_text_can_hold_is_refused(pool: Pool, graph: GraphRef, value: str) -> None:
    """The language lets none through; a plan could."""
    asked = plan("MATCH (x:Any) WHERE x.s = 'a' RETURN x")
    assert isinstance(asked.where, Predicate)
    wrong = replace(asked, where=replace(asked.where, values=(value,)))
    with pytest.raises(InvalidRequest):
        await PostgresMatch(pool).match(graph, wrong, Bounds(1), Deadline.after(60))

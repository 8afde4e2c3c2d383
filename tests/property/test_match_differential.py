"""Every store that answers portable MATCH against the reference in memory: the same rows, pages, errors and JSON.

`SAPWOOD_MATCH_EXAMPLES` is how many queries are asked, by default 300.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from pipeline.adapters.postgres_pool import open_pool
from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, Refusal
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.check import check
from pipeline.graphtools.execution import Bounds, MatchExecutor, Rows
from pipeline.graphtools.parse import parse, prepare
from pipeline.graphtools.plan import Plan
from pipeline.graphtools.query import Query
from pipeline.graphtools.source import KnowledgeSource, OneGraph, SourceSet
from pipeline.graphtools.sql_pattern import Pattern
from pipeline.graphtools.tools import KnowledgeGraphTools
from pipeline.testing.match_worlds import MatchStore, Printer, World, queries, worlds
from schemas.exposed import GraphSchema
from tests.match_stores import MemoryStore, PostgresStore

PER_WORLD = 5
EXAMPLES = int(os.environ.get("SAPWOOD_MATCH_EXAMPLES", "300"))
HOPS = 4
MOST_PAGES = 3

prepare()


@st.composite
def asked(draw: st.DrawFn) -> tuple[World, list[Query]]:
    world = draw(worlds())
    return world, [draw(queries(world)) for _ in range(PER_WORLD)]


laws = settings(
    max_examples=-(-EXAMPLES // PER_WORLD),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


@pytest.fixture
async def stores(database: str) -> AsyncIterator[dict[str, MatchStore]]:
    """All stores but the reference, by name."""
    async with open_pool(database) as pool:
        yield {"postgres": PostgresStore(pool)}


async def outcome(executor: MatchExecutor, graph: GraphRef, plan: Plan) -> Rows | str:
    try:
        return await executor.match(graph, plan, Bounds(10_000), Deadline.after(60))
    except InvalidRequest as error:
        return type(error).__name__


async def pages(
    executor: MatchExecutor, graph: GraphRef, schema: GraphSchema, text: str, parameters: dict[str, object]
) -> list[object]:
    """Return what the tool answers, page by page, without what no two answers have in common."""
    source = KnowledgeSource("g", "g", schema, executor, OneGraph(graph), max_hops=HOPS, timeout=60)
    tools, cursor, told = KnowledgeGraphTools(SourceSet([source])), None, list[object]()
    for _ in range(MOST_PAGES):
        answer = await tools.query("g", text, parameters, page_size=3, cursor=cursor)
        if answer.startswith("Error"):
            return [*told, answer.partition(":")[2].split(":")[0]]
        page = json.loads(answer)
        cursor = page["metadata"].pop("nextCursor")
        del page["metadata"]["executionTimeMillis"]
        told.append(page)
        if not cursor:
            break
    return told


async def disagreement(
    reference: tuple[MatchExecutor, GraphRef],
    other: tuple[MatchExecutor, GraphRef],
    schema: GraphSchema,
    query: Query,
    bound: bool,
) -> str | None:
    """Return what two executors do not agree upon."""
    printer = Printer(bound)
    text = printer.text(query)
    try:
        plan = check(parse(text, printer.parameters), schema, HOPS)
    except Refusal as refusal:
        event(f"refused: {refusal.code}")
        return None
    expected, found = await outcome(*reference, plan), await outcome(*other, plan)
    event(
        "rows"
        if isinstance(expected, Rows) and expected.rows
        else "no rows"
        if isinstance(expected, Rows)
        else expected
    )
    if expected != found:
        return f"{text}\n{printer.parameters}\nexpected {expected}\nfound    {found}"
    wanted = await pages(*reference, schema, text, printer.parameters)
    told = await pages(*other, schema, text, printer.parameters)
    return None if told == wanted else f"{text}\n{printer.parameters}\nexpected {wanted}\ntold     {told}"


async def agree(stores: dict[str, MatchStore], world: World, drawn: Sequence[Query], bound: bool) -> None:
    memory = MemoryStore()
    reference = memory.executor, await memory.load(world.entities, world.relations)
    for name, store in stores.items():
        other = store.executor, await store.load(world.entities, world.relations)
        for query in drawn:
            if told := await disagreement(reference, other, world.schema, query, bound):
                raise AssertionError(f"{name}: {told}")


@laws
@given(asked(), st.booleans())
async def test_every_store_answers_as_the_reference_does(
    stores: dict[str, MatchStore], drawn: tuple[World, list[Query]], bound: bool
) -> None:
    await agree(stores, *drawn, bound)


@pytest.fixture
async def found_out(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PostgresStore, list[str]]]:
    """A store that lets edges be in a match twice, and a list of how it was found out, which must not stay empty."""
    monkeypatch.setattr(Pattern, "_others", lambda *_: ())
    told = list[str]()
    async with open_pool(database) as pool:
        yield PostgresStore(pool), told
    assert told, "a store that is wrong was not found out"


@settings(laws, max_examples=100)
@given(asked())
async def test_a_store_that_is_wrong_is_found_out(
    found_out: tuple[PostgresStore, list[str]], drawn: tuple[World, list[Query]]
) -> None:
    store, told = found_out
    if not told:
        try:
            await agree({"wrong": store}, *drawn, False)
        except AssertionError as error:
            told.append(str(error))

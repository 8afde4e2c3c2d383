"""Every store that answers portable MATCH against the reference in memory: the same rows, pages, errors and JSON.

`SAPWOOD_MATCH_EXAMPLES` is how many examples there are, by default 300: each is another schema, graph or query.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
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
from pipeline.testing.match_worlds import MatchStore, Printer, World, queries, schemas, worlds
from schemas.exposed import GraphSchema
from tests.match_stores import MemoryStore, PostgresStore

QUERIES, WORLDS = 5, 3
"""Queries of a schema, and graphs of which all of them are asked: a store that plans a query does so once for all graphs."""

EXAMPLES = int(os.environ.get("SAPWOOD_MATCH_EXAMPLES", "300"))
HOPS = 4
MOST_PAGES = 3

prepare()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A schema, queries that it allows, and graphs. With `bound`, all values in the queries are parameters."""

    schema: GraphSchema
    queries: tuple[Query, ...]
    worlds: tuple[World, ...]
    bound: bool


@st.composite
def asked(draw: st.DrawFn) -> Drawn:
    schema = draw(schemas())

    def allowed(query: Query) -> bool:
        try:
            check(query, schema, HOPS)
        except Refusal:
            return False
        return True

    each = st.lists(
        queries(schema).filter(allowed),
        min_size=QUERIES,
        max_size=QUERIES,
        unique_by=lambda one: Printer(True).text(one),
    )
    graphs = st.lists(worlds(), min_size=WORLDS, max_size=WORLDS, unique_by=repr)
    return Drawn(schema, tuple(draw(each)), tuple(draw(graphs)), draw(st.booleans()))


@dataclass
class Tally:
    """The examples upon which two stores agreed. Those drawn a second time do not count, nor are they asked again."""

    seen: set[int] = field(default_factory=set[int])

    def fresh(self, drawn: Drawn) -> list[int]:
        """Return what stands for the examples of a draw, if there is none that was seen before."""
        texts = [Printer(False).text(query) for query in drawn.queries]
        found = [hash((repr(drawn.schema), repr(world), text)) for world in drawn.worlds for text in texts]
        assume(self.seen.isdisjoint(found))
        return found


@pytest.fixture
def tally() -> Iterator[Tally]:
    """A tally that must be full in the end."""
    made = Tally()
    yield made
    assert len(made.seen) >= EXAMPLES, "not enough was asked"


laws = settings(
    max_examples=-(-EXAMPLES // (QUERIES * WORLDS)),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


@pytest.fixture
async def postgres(database: str) -> AsyncIterator[PostgresStore]:
    async with open_pool(database) as pool:
        yield PostgresStore(pool)


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
    plan = check(parse(text, printer.parameters), schema, HOPS)
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


async def agree(store: MatchStore, drawn: Drawn) -> None:
    for world in drawn.worlds:
        memory = MemoryStore()
        reference = memory.executor, await memory.load(world.entities, world.relations)
        other = store.executor, await store.load(world.entities, world.relations)
        for query in drawn.queries:
            if told := await disagreement(reference, other, drawn.schema, query, drawn.bound):
                raise AssertionError(f"{told}\nin {world}\nby {drawn.schema!r}")


async def agree_anew(store: MatchStore, drawn: Drawn, tally: Tally) -> None:
    examples = tally.fresh(drawn)
    await agree(store, drawn)
    tally.seen.update(examples)  # not where they disagree, which is asked again


@laws
@given(asked())
async def test_postgres_answers_as_the_reference_does(postgres: PostgresStore, tally: Tally, drawn: Drawn) -> None:
    await agree_anew(postgres, drawn, tally)


@pytest.fixture
async def found_out(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PostgresStore, list[str]]]:
    """A store that lets edges be in a match twice, and a list of how it was found out, which must not stay empty."""
    monkeypatch.setattr(Pattern, "_others", lambda *_: ())
    told = list[str]()
    async with open_pool(database) as pool:
        yield PostgresStore(pool), told
    assert told, "a store that is wrong was not found out"


@settings(laws, max_examples=50)
@given(asked())
async def test_a_store_that_is_wrong_is_found_out(found_out: tuple[PostgresStore, list[str]], drawn: Drawn) -> None:
    store, told = found_out
    if not told:
        try:
            await agree(store, drawn)
        except AssertionError as error:
            told.append(str(error))

"""What an edit of one document writes into the communities: what it changes, however large the corpus is."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.generations.rows import DocumentRows
from pipeline.testing.rows import Triple, document
from schemas.runs import RunState
from tests.generation_builder import Builder
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

WRITTEN = """
select (select count(*) from membership where corpus_id = $1 and (born = $2 or died = $2))
    + (select count(*) from community where corpus_id = $1 and (born = $2 or died = $2))
"""
SAME_ROWS = "select count(*) from membership where corpus_id = $1 and died is null"


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


def team(number: int, of: int, *more: Triple) -> DocumentRows:
    """Eight people who all know each other; the first knows the first of the next team."""
    people = [f"person:P{number}N{place}" for place in range(8)]
    known: list[Triple] = [(a, "KNOWS", b) for a, b in itertools.combinations(people, 2)]
    return document(f"team-{number}", [*known, (people[0], "KNOWS", f"person:P{(number + 1) % of}N0"), *more])


async def written(pool: Pool, teams: int) -> tuple[int, int]:
    """How many rows of communities an edit writes that brings somebody new, and how many entities there are."""
    corpus = await Builder.new(pool, f"teams-{teams}")
    await corpus.build(*(team(number, teams) for number in range(teams)))
    made = await corpus.build(team(1, teams, ("person:P1N3", "KNOWS", "person:New")))
    fresh = await Builder.new(pool, f"fresh-{teams}")
    edited = [team(n, teams, *[("person:P1N3", "KNOWS", "person:New")] * (n == 1)) for n in range(teams)]
    await fresh.build(*edited)
    assert await corpus.body(made.generation) == await fresh.body(1)
    async with pool.connection(Deadline.after(10)) as tx:
        rows = await tx.fetchval(WRITTEN, corpus.corpus, made.generation)
        entities = await tx.fetchval(SAME_ROWS, corpus.corpus)
    return rows, entities


async def test_an_edit_writes_the_communities_that_it_changes(pool: Pool) -> None:
    """In a corpus four times as large no more than in a small one: its path ends and begins anew for each who shares it."""
    small, large = await written(pool, 20), await written(pool, 80)
    assert (small[1], large[1]) == (161, 641)
    assert 0 < small[0] <= 80
    assert large[0] <= 80


async def outcome(app: Sapwood, folder: Path) -> str:
    run = await app.index("notes", [str(folder)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    result: str = (await app.index_summary(info))["result"]
    return result


async def test_what_was_grouped_by_an_earlier_program_is_grouped_anew(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """By the next run, even if no document changed; and only then."""
    folder = tmp_path / "notes"
    await anyio.Path(folder).mkdir()
    for number in range(4):
        text = f"# Room {number}\n\nThe Reading Room {number} is located in Bristol.\n"
        await anyio.Path(folder / f"{number}.md").write_text(text)
    settings = WorkerSettings(home=tmp_path / "home", database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(settings) as app, open_pool(database) as pool:

        async def ask(query: str) -> None:
            async with pool.connection(Deadline.after(10)) as tx:
                await tx.execute(query)

        async def exported() -> list[str]:
            return [line async for line in app.export("notes")][1:]

        assert await outcome(app, folder) == "promoted"
        right = await exported()
        await ask("update membership set path = array[7::bigint]")
        wrong = await exported()
        assert wrong != right
        assert await outcome(app, folder) == "unchanged"
        assert await exported() == wrong  # the negative control: what is grouped alike is taken as it is
        await ask("update run set result = result - 'clustering'")
        assert await outcome(app, folder) == "promoted"
        assert await exported() == right
        assert await outcome(app, folder) == "unchanged"

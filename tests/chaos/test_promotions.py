"""Many promotions under readers: every answer is from one generation, and no reader ever sees an error."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.runs import RunState
from schemas.settings import CorpusSettings, RetentionSettings
from tests.figures import say
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

CORPUS = "busy"
PROMOTIONS = 200
PAUSE = 0.05
"""Seconds between two questions of a reader: some ten for each of its generations, with time left for promoting them."""

READERS = (Strategy.SEMANTIC, Strategy.KEYWORD, Strategy.HYBRID, Strategy.GRAPH, Strategy.HIERARCHICAL)
FILES = ("crane.md", "dock.md", "sub/lock.md")
ROUND = re.compile(r"round (\d+)")


@dataclass
class History:
    """What was promoted and what was read, checked afterwards."""

    rounds: dict[int, int] = field(default_factory=dict[int, int])
    answers: list[tuple[str, int, tuple[int, ...], bool]] = field(
        default_factory=list[tuple[str, int, tuple[int, ...], bool]]
    )
    collections: int = 0
    done: bool = False

    def mixed(self) -> list[tuple[str, int, tuple[int, ...], bool]]:
        """The answers whose texts are not all of the round that their generation was built from."""
        return [answer for answer in self.answers if set(answer[2]) != {self.rounds[answer[1]]}]


async def write(root: anyio.Path, number: int) -> None:
    """Make every file say its round, in words that every leg finds."""
    for file in FILES:
        path = root / file
        await path.parent.mkdir(parents=True, exist_ok=True)
        text = f"The Harbour Crane is located in Bristol. This is round {number} of {path.stem}.\n"
        await path.write_text(text)


async def promote(app: Sapwood, root: anyio.Path, number: int, history: History) -> None:
    """Index one round and note its generation; readers may be quicker, so their answers are checked at the end."""
    await write(root, number)
    run = await app.index(CORPUS, [str(root)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    assert info.generation is not None
    history.rounds[info.generation] = number


async def read(settings: WorkerSettings, strategy: Strategy, history: History, pause: float = 0.02) -> None:
    """Ask again and again, over a pool and snapshots of its own, until all is promoted."""
    async with open_sapwood(settings) as app:
        for turn in itertools.count():
            if history.done:
                return
            request = QueryRequest(
                text="Harbour Crane in Bristol",
                strategy=strategy,
                top_k=10,
                dedup=False,
                deadline=30.0,
                cache=turn % 2 == 0,
            )
            note(await app.query(CORPUS, request), strategy.value, history)
            await anyio.sleep(pause)


def note(result: QueryResult, strategy: str, history: History) -> None:
    found = tuple(int(number) for hit in result.hits for number in ROUND.findall(hit.text))
    history.answers.append((strategy, result.generation, found, result.complete))


async def collect(app: Sapwood, history: History) -> None:
    """Remove what nobody can see, again and again."""
    while not history.done:
        await app.gc(CORPUS, keep=1)
        history.collections += 1
        await anyio.sleep(0.05)


async def test_no_answer_mixes_generations_while_200_are_promoted(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Five readers, one writer and a garbage collector that keeps nothing: 0 mixed answers, 0 errors, 0 incomplete."""
    settings = WorkerSettings(
        home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url), database_pool_size=5
    )
    root, history = anyio.Path(tmp_path / "folder"), History()
    async with open_sapwood(settings) as app:
        await app.create_corpus(CORPUS, CorpusSettings(retention=RetentionSettings(generations=1)))
        await promote(app, root, 0, history)
        async with anyio.create_task_group() as group:
            for strategy in READERS:
                group.start_soon(read, settings, strategy, history, PAUSE)
            group.start_soon(collect, app, history)
            for number in range(1, PROMOTIONS + 1):
                await promote(app, root, number, history)
            history.done = True
    counts = Counter(answer[0] for answer in history.answers)
    generations = len({answer[1] for answer in history.answers})
    say(
        request,
        f"{dict(sorted(counts.items()))} answers from {generations} generations, {history.collections} collections",
    )
    assert len(history.rounds) == PROMOTIONS + 1
    assert history.mixed() == []
    assert [answer for answer in history.answers if not answer[3] or len(answer[2]) < len(FILES)] == []
    assert set(counts) == {strategy.value for strategy in READERS}
    assert generations > PROMOTIONS // 10


def test_the_check_sees_a_mixed_answer() -> None:
    """The negative control: an answer with one stale text is reported."""
    history = History(rounds={7: 3, 8: 4})
    history.answers = [("keyword", 8, (4, 4, 4), True), ("keyword", 8, (4, 3, 4), True), ("graph", 7, (4,), True)]
    assert history.mixed() == history.answers[1:]

"""Answers that mix generations: readers of every kind while one generation after the other is promoted and collected."""

from __future__ import annotations

import time

import anyio

from schemas.settings import CorpusSettings, RetentionSettings
from tests.bench.bench import Bench, Figure, home_of, opened
from tests.chaos.test_promotions import CORPUS, READERS, History, collect, promote, read
from worker.settings import WorkerSettings


async def run(bench: Bench) -> None:
    """Count. The texts of an answer say from which round they are, and a round is one generation."""
    promotions = 30 if bench.quick else 500
    root, history = anyio.Path(bench.scratch / "rounds"), History()
    settings = WorkerSettings(home=home_of(bench), database_pool_size=5)
    started = time.perf_counter()
    async with opened(bench) as app:
        await app.create_corpus(CORPUS, CorpusSettings(retention=RetentionSettings(generations=1)))
        await promote(app, root, 0, history)
        async with anyio.create_task_group() as group:
            for strategy in READERS:
                group.start_soon(read, settings, strategy, history)
            group.start_soon(collect, app, history)
            for number in range(1, promotions + 1):
                await promote(app, root, number, history)
            history.done = True
    mixed, partial = len(history.mixed()), sum(not answer[3] for answer in history.answers)
    shown = (
        f"{mixed} of {len(history.answers):,} reads under {promotions} promotions, {partial} incomplete "
        f"({time.perf_counter() - started:.0f} s)"
    )
    bench.add(Figure("generations mixed in one answer", shown, mixed, 0))

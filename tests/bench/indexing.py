"""Indexing without a paid model: throughput, and how soon a change of one file can be asked for."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import anyio
from anyio import to_thread

from schemas.events import Event
from schemas.query import QueryRequest, Strategy
from tests.bench.bench import Bench, Figure, finished, folder_of, load, opened, percentile
from worker.app import Sapwood

STAGES = {
    "planned": "plan",
    "code links": "links",
    "graph": "entities and relations",
    "communities": "communities",
    "promoted": "promote",
}


async def run(bench: Bench) -> None:
    """Measure."""
    async with opened(bench) as app:
        await throughput(bench, app, 1000)
        await throughput(bench, app, 2000 if bench.quick else 10_000)
        await small_changes(bench, app, bench.scratch / "passages-1000", 5 if bench.quick else 20)


async def throughput(bench: Bench, app: Sapwood, passages: int) -> None:
    """Index a folder of Markdown files from nothing, in this process, and ask it one question."""
    folder = await folder_of(bench, f"passages-{passages}", passages)
    started = time.perf_counter()
    run = await app.index(f"passages-{passages}", [str(folder)])
    finished(await app.work(run.run_id))
    seconds = time.perf_counter() - started
    counts = (await app.index_summary(run))["counts"]
    rate = counts["chunks"] / seconds
    shown = f"{rate:.0f} chunks/s ({counts['chunks']} in {seconds:.2f} s: {stages(await app.events(run.run_id))})"
    bench.add(
        Figure(f"index {passages:,} passages", shown, rate, 2000, "chunks/s", at_least=True, note=f"load {load()}")
    )


def stages(events: list[Event]) -> str:
    """Seconds of each stage of an index run, from its events."""
    marks: list[tuple[str, datetime]] = []
    for event in events:
        name = STAGES.get(getattr(event.body, "stage", event.body.type))
        if event.body.type == "documents":
            name = "batches"
        if name and marks and marks[-1][0] == name:
            marks.pop()
        if name:
            marks.append((name, datetime.fromisoformat(event.at)))
    begun = [datetime.fromisoformat(events[0].at), *(at for _, at in marks[:-1])]
    pairs = zip(marks, begun, strict=True)
    return ", ".join(f"{name} {(at - before).total_seconds():.2f}" for (name, at), before in pairs)


async def small_changes(bench: Bench, app: Sapwood, folder: Path, tries: int) -> None:
    """Edit one file, then add one, time after time, until a question finds it."""
    edits, additions, parts = list[float](), list[float](), ""
    for number in range(tries):
        edit, _ = await visible(app, "passages-1000", folder, "00007.md", f"zzedit{number}")
        addition, parts = await visible(app, "passages-1000", folder, f"new-{number}.md", f"zznew{number}")
        edits.append(edit)
        additions.append(addition)
    for what, seconds, limit in (("one-file edit visible", edits, 2.0), ("one new passage queryable", additions, 0.4)):
        worst = percentile(seconds, 95)
        shown = f"p50 {percentile(seconds, 50):.3f} s, p95 {worst:.3f} s"
        bench.add(
            Figure(
                f"{what}, 1,000 chunks",
                shown,
                worst,
                limit,
                "s (p95)",
                note=f"n {tries}; the last: {parts}; load {load()}",
            )
        )


async def visible(app: Sapwood, corpus: str, folder: Path, file: str, word: str, text: str = "") -> tuple[float, str]:
    """Seconds from the write of a file to the answer that holds its new word, and those of the run's stages."""
    body = f"# Note {word}\n\n{text or 'The Harbour Office keeps a ledger.'} It mentions {word} once.\n"
    path = folder / file
    await to_thread.run_sync(path.write_text, body)
    started = time.perf_counter()
    run = await app.index(corpus, [str(folder)])
    finished(await app.work(run.run_id))
    found = await app.query(corpus, QueryRequest(text=word, strategy=Strategy.KEYWORD, cache=False, deadline=60))
    seconds = time.perf_counter() - started
    if not any(word in hit.text for hit in found.hits):
        raise RuntimeError(f"{word} is not found in generation {found.generation}")
    parts = stages(await app.events(run.run_id))
    await anyio.sleep(0.1)
    return seconds, parts

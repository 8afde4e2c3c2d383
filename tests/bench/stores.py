"""The same corpus in PostgreSQL and in Neo4j: equal graphs and legs, and what each costs: `python -m tests.bench.stores`.

MuSiQue's ready-made triples, and the 200 questions of MuSiQue and HotpotQA. The Neo4j is a server of this benchmark's own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.testing.partitions import adjusted_rand, modularity
from schemas.query import QueryRequest, Strategy
from schemas.settings import CorpusSettings, GraphStorageSettings
from tests.bench.bench import ROOT, SHARED, Bench, Figure, asked, indexed, load, opened, scratch
from tests.bench.quality import triples_of
from tests.bench.quality_core import Question, passages, questions
from worker.app import Sapwood

STORES = ("postgres", "neo4j")
PAGE = 5_000
GRAPH_TABLES = ("entity", "relation", "mention", "membership")
Found = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Server:
    """A Neo4j that is up; `settings` are what an application must know, `data` is its folder."""

    data: Path
    settings: dict[str, str]

    def mib(self) -> float:
        """MiB of the database's files, its transaction logs left out; all is in them once the server is down."""
        files = (self.data / "data" / "databases" / "neo4j").rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file()) / 2**20


@asynccontextmanager
async def neo4j(bench: Bench) -> AsyncGenerator[Server]:
    """A server of one's own, ended afterwards."""
    data = bench.scratch / "neo4j"
    tools = ROOT / "deploy" / "neo4j"
    await to_thread.run_sync(lambda: subprocess.run([tools / "up", "--data", data], check=True, stdout=sys.stderr))
    try:
        lines = (data / "env").read_text("utf-8").splitlines()
        values = dict(line.removeprefix("export ").split("=", 1) for line in lines if "=" in line)
        named = {name.removeprefix("SAPWOOD_").lower(): value.strip("'\"") for name, value in values.items()}
        yield Server(data, named)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(
                lambda: subprocess.run([tools / "down", "--data", data], check=True, stdout=sys.stderr)
            )


async def graph_leg(app: Sapwood, corpus: str, wanted: Sequence[Question]) -> tuple[list[Found], list[float]]:
    """What the walk finds for every question, and the seconds of each."""
    found: list[Found] = []
    seconds: list[float] = []
    for question in wanted:
        request = QueryRequest(
            text=question.text, strategy=Strategy.GRAPH, ranking="walk", top_k=30, deadline=60, cache=False, dedup=False
        )
        started = time.perf_counter()
        result = await app.query(corpus, request)
        seconds.append(time.perf_counter() - started)
        if not result.complete:
            raise RuntimeError(f"{corpus}: {result.legs}")
        found.append([(hit.document, hit.score) for hit in result.hits])
    return found, seconds


async def partition(app: Sapwood, corpus: str) -> dict[int, tuple[int, ...]]:
    """The communities of every entity."""
    paths: dict[int, tuple[int, ...]] = {}
    async with app.services.pins.pin("default", corpus, Deadline.after(10)) as pinned:
        graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
        reader = app.services.graph_reader(pinned.manifest.graph_store)
        after: int | None = None
        while page := await reader.paths(graph, after, PAGE, Deadline.after(60)):
            paths.update(page)
            after = page[-1][0]
    return paths


async def edges(app: Sapwood, corpus: str) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Source, target and evidence of every relation."""
    async with app.services.pins.pin("default", corpus, Deadline.after(10)) as pinned:
        graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
        rows: list[tuple[int, int, int]] = []
        after: tuple[int, int, str] | None = None
        while page := await app.services.graphs["postgres"].relations(graph, after, PAGE, Deadline.after(60)):
            rows += [(one.source, one.target, one.evidence) for one in page]
            after = (page[-1].source, page[-1].target, page[-1].type)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


async def agreement(bench: Bench, app: Sapwood) -> None:
    """How far the clusterings of the worker and of the graph store agree, on entities that have relations."""
    ours, theirs = await partition(app, "postgres"), await partition(app, "neo4j")
    relations = await edges(app, "postgres")
    linked = np.unique(relations[:, :2])
    for name, level in (("coarsest", 0), ("finest", -1)):
        labels = [[paths[entity][level] for entity in linked.tolist()] for paths in (ours, theirs)]
        one, two = (modularity(linked, relations, label) for label in labels)
        rand = adjusted_rand(*labels)
        shown = f"modularity {one:.4f} and {two:.4f}, adjusted Rand index {rand:.3f}"
        note = f"{len(set(labels[0]))} and {len(set(labels[1]))} communities of {len(linked)} entities"
        bench.add(Figure(f"communities, {name} level: worker and GDS", shown, note=note))


async def run(bench: Bench) -> None:
    """Measure."""
    if not SHARED.is_dir():
        bench.add(Figure("stores", f"skipped: the shared data is missing ({SHARED}); set SAPWOOD_SHARED"))
        return
    corpus = await to_thread.run_sync(triples_of, bench.scratch)
    sets = ("musique", "hotpotqa")
    wanted = await to_thread.run_sync(lambda: [one for name in sets for one in questions(name, passages(name))])
    async with neo4j(bench) as server, opened(bench, **server.settings) as app:
        lines: dict[str, list[str]] = {}
        legs: dict[str, list[Found]] = {}
        for store in STORES:
            settings = CorpusSettings(graph_storage=GraphStorageSettings.model_validate({"backend": store}))
            summary = await app.index_summary(await indexed(app, store, corpus.source, settings))
            counts, seconds = summary["counts"], summary["seconds"]
            rows = f"{counts['chunks']} chunks, {counts['entities']} entities, {counts['relations']} relations"
            size = ""
            if store == "postgres":
                total = " + ".join(f"pg_total_relation_size('sapwood.{table}')" for table in GRAPH_TABLES)
                size = f", {await asked(app, f'select {total}') / 2**20:.0f} MiB of graph"
            bench.add(
                Figure(
                    f"{store}: indexed",
                    f"{seconds:.1f} s{size}",
                    note=f"{rows}; load {load()}",
                )
            )
            lines[store] = [line async for line in app.export_graph(store) if '"kind":"memberships"' not in line]
            await graph_leg(app, store, wanted[:20])
            legs[store], seconds_each = await graph_leg(app, store, wanted)
            bench.times(f"{store}: graph leg, a walk from 30 seeds", seconds_each, {50: None, 95: None})
        same = sum(one == two for one, two in zip(legs["postgres"], legs["neo4j"], strict=True))
        bench.add(
            Figure(
                "entities and relations, equal lines",
                f"{len(lines['postgres'])}",
                float(lines["postgres"] == lines["neo4j"]),
                1.0,
                "(equal)",
                at_least=True,
            )
        )
        bench.add(
            Figure(
                "graph legs, equal",
                f"{same} of {len(wanted)}",
                float(same),
                float(len(wanted)),
                "questions",
                at_least=True,
            )
        )
        await agreement(bench, app)
    size = await to_thread.run_sync(server.mib)
    bench.add(
        Figure("neo4j: size of the database", f"{size:.0f} MiB", note="one graph, its indexes, and the empty database")
    )


if __name__ == "__main__":
    from tests.bench.run import show

    with scratch() as at:
        bench = Bench(at)
        anyio.run(run, bench)
    show(bench.figures)

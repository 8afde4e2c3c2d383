"""Recall of gold passages by every ranking, and cost of indexing, through the product: `python -m tests.bench.quality`.

MuSiQue with its ready-made triples and as 2,000 text files read offline, and HotpotQA offline; embeddings `hash` and, where
the extra is installed, `wordllama`. The baselines are those that were measured on the same files with other programs.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import anyio
import numpy as np
import orjson
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).parents[2]))

from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.settings import CorpusSettings, EmbeddingSettings, FusionSettings
from tests.bench.bench import SHARED, Bench, Figure, indexed, load, opened, peak_mib, scratch, write_folder
from tests.bench.quality_core import Question, passages, questions
from worker.app import Sapwood

FILES = 2000
PLAIN, K10 = FusionSettings(), FusionSettings(rrf_k=10)
WEIGHTED = FusionSettings(rrf_k=10, dense_weight=0.5, keyword_weight=0.5)


@dataclass(frozen=True, slots=True)
class Ranking:
    """A way to ask."""

    name: str
    strategy: Strategy
    fusion: FusionSettings = PLAIN
    walk: bool = False


RANKINGS = (
    Ranking("keyword", Strategy.KEYWORD),
    Ranking("semantic", Strategy.SEMANTIC),
    Ranking("graph, walk", Strategy.GRAPH, walk=True),
    Ranking("graph, ppr", Strategy.GRAPH),
    Ranking("hybrid, default (k=60)", Strategy.HYBRID),
    Ranking("hybrid, k=60, walk", Strategy.HYBRID, walk=True),
    Ranking("hybrid, k=10", Strategy.HYBRID, K10),
    Ranking("hybrid, k=10, 0.5 0.5 1", Strategy.HYBRID, WEIGHTED),
)
WEIGHTED_NAME = RANKINGS[-1].name
BASELINES: dict[str, dict[tuple[str, str], tuple[float | None, float]]] = {
    "musique": {
        ("keyword", ""): (39.2, 49.8),
        ("semantic", "wordllama"): (36.5, 46.7),
        ("graph, ppr", ""): (47.5, 66.1),
        (WEIGHTED_NAME, "wordllama"): (53.8, 70.0),
        (WEIGHTED_NAME, "hash"): (48.3, 66.8),
    },
    "musique-triples": {
        ("keyword", ""): (39.2, 49.8),
        ("semantic", "wordllama"): (36.5, 46.7),
        (WEIGHTED_NAME, ""): (48.2, 67.7),
    },
    "hotpotqa": {
        ("keyword", ""): (59.5, 77.5),
        ("semantic", "wordllama"): (None, 69.5),
        ("graph, ppr", ""): (54.5, 84.0),
        (WEIGHTED_NAME, "wordllama"): (69.5, 91.0),
        (WEIGHTED_NAME, "hash"): (69.0, 89.5),
    },
}
"""R@2 and R@5 by ranking and embedding (any: ""), give or take 5 points. Hashed vectors stand beside no vectors at all."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A question set laid out as a source; document `i` of `documents` is passage i, the rest are distractors."""

    name: str
    data: str
    baselines: str
    source: Path
    documents: tuple[str, ...]


def triples_of(folder: Path) -> Corpus:
    """MuSiQue's passages with their ready-made triples, one document each."""
    rows = json.loads((SHARED / "musique" / "triples.json").read_text())["docs"]  # orjson takes no NaN
    names = tuple(f"{number:05}" for number in range(len(rows)))
    lines: list[bytes] = []
    for name, row, (title, text) in zip(names, rows, passages("musique"), strict=True):
        triples = [t for t in row["extracted_triples"] if len(t) == 3 and all(part.strip() for part in t)]
        lines.append(orjson.dumps({"document": name, "title": title, "passage": text, "triples": triples}))
    path = folder / "musique.jsonl"
    path.write_bytes(b"\n".join(lines))
    return Corpus("musique, ready-made triples", "musique", "musique-triples", path, names)


def files_of(folder: Path, data: str, size: int) -> Corpus:
    """Passages as Markdown files, filled up to `size` with passages of the other set."""
    found = passages(data)
    other = passages("hotpotqa" if data == "musique" else "musique")[: max(0, size - len(found))]
    write_folder(folder / data, [*found, *other])
    names = tuple(f"{number:05}.md" for number in range(len(found)))
    return Corpus(f"{data}, {len(found) + len(other)} files, offline", data, data, folder / data, names)


def recall(found: QueryResult, gold: frozenset[int], place: dict[str, int], k: int) -> float:
    return len({place.get(hit.document, -1) for hit in found.hits[:k]} & gold) / len(gold)


async def asked(
    app: Sapwood, name: str, corpus: Corpus, ranking: Ranking, settings: CorpusSettings, wanted: list[Question]
) -> tuple[float, float, float]:
    """R@2 and R@5 in percent, and milliseconds a question."""
    await app.create_corpus(name, settings.model_copy(update={"fusion": ranking.fusion}))
    place = {document: number for number, document in enumerate(corpus.documents)}
    pairs: list[tuple[float, float]] = []
    started = time.perf_counter()
    for question in wanted:
        request = QueryRequest(
            text=question.text,
            strategy=ranking.strategy,
            ranking="walk" if ranking.walk else "ppr",
            top_k=5,
            deadline=60,
            cache=False,
        )
        found = await app.query(name, request)
        if not found.complete:
            raise RuntimeError(f"{ranking.name}: {', '.join(found.missing)} missing")
        pairs.append((recall(found, question.gold, place, 2), recall(found, question.gold, place, 5)))
    seconds = (time.perf_counter() - started) / len(wanted)
    at2, at5 = np.mean(pairs, axis=0) * 100
    return float(at2), float(at5), seconds * 1000


async def measure(bench: Bench, app: Sapwood, corpus: Corpus, provider: str) -> None:
    """Index, then ask every question in every way."""
    name = f"{corpus.source.stem}-{corpus.source.suffix[1:]}-{provider}"
    settings = CorpusSettings(embedding=EmbeddingSettings(provider=provider))
    run = await indexed(app, name, corpus.source, settings)
    summary = await app.index_summary(run)
    counts, seconds = summary["counts"], summary["seconds"]
    title = f"{corpus.name}, {provider}"
    shown = (
        f"{counts['chunks'] / seconds:.0f} chunks/s, {counts['chunks']} chunks, {counts['entities']} entities, "
        f"{counts['relations']} relations, {counts['communities']} communities, peak {peak_mib():.0f} MiB"
    )
    bench.add(Figure(f"{title}: indexed", shown, note=f"load {load()}"))
    wanted = await to_thread.run_sync(lambda: questions(corpus.data, passages(corpus.data)))
    for ranking in RANKINGS:
        at2, at5, ms = await asked(app, name, corpus, ranking, settings, wanted)
        known = BASELINES[corpus.baselines]
        baseline = known.get((ranking.name, provider)) or known.get((ranking.name, ""))
        told = f"baseline R@2 {baseline[0] or '–'}, R@5 {baseline[1]}" if baseline else ""
        limit = baseline[1] if baseline else None
        shown = f"R@2 {at2:4.1f}  R@5 {at5:4.1f}  {ms:5.1f} ms"
        bench.add(Figure(f"{title}: {ranking.name}", shown, round(at5, 1), limit, "R@5", at_least=True, note=told))


async def run(bench: Bench) -> None:
    """Measure every set with every embedding that is there."""
    if not SHARED.is_dir():
        bench.add(Figure("quality", f"skipped: the shared data is missing ({SHARED}); set SAPWOOD_SHARED"))
        return
    folder = bench.scratch / "quality"
    folder.mkdir()
    corpora = [triples_of(folder), files_of(folder, "musique", FILES), files_of(folder, "hotpotqa", 0)]
    providers = ["hash", "wordllama"] if find_spec("wordllama") else ["hash"]
    async with opened(bench) as app:
        for corpus in corpora:
            for provider in providers:
                await measure(bench, app, corpus, provider)


if __name__ == "__main__":
    from tests.bench.run import show

    with scratch() as at:
        bench = Bench(at)
        anyio.run(run, bench)
    show(bench.figures)

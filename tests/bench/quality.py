"""Recall and MRR by every strategy, and cost of indexing, through the product: `python tests/bench/quality.py [SET …]`.

MuSiQue with its ready-made triples (`triples`) and as 2,000 text files read offline (`musique`), and HotpotQA offline
(`hotpotqa`); embeddings `hash` and, where the extra is installed, `wordllama`. The baselines are those that were measured
on the same files with other programs. TEMPORAL and REASONING are not here: the sets have no dates and no headings.
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

from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.settings import CorpusSettings, EmbeddingSettings, FusionSettings
from tests.bench.bench import SHARED, Bench, Figure, indexed, load, opened, peak_mib, scratch, write_folder
from tests.bench.offline_expander import MODEL, install
from tests.bench.quality_core import Question, passages, questions
from worker.app import Sapwood

FILES = 2000
PLAIN, K10 = FusionSettings(), FusionSettings(rrf_k=10)
WEIGHTED = FusionSettings(rrf_k=10, dense_weight=0.5, keyword_weight=0.5)


@dataclass(frozen=True, slots=True)
class Ranking:
    """A way to ask; `graph` says whether a third stream may be fused."""

    name: str
    strategy: Strategy
    fusion: FusionSettings = PLAIN
    walk: bool = False
    graph: bool = True

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


DEPTH = 10
"""Hits that are looked at for the MRR."""
RANKINGS = (
    Ranking("semantic", Strategy.SEMANTIC),
    Ranking("keyword", Strategy.KEYWORD),
    Ranking("hybrid without graph", Strategy.HYBRID, graph=False),
    Ranking("hybrid, default (k=60)", Strategy.HYBRID),
    Ranking("hybrid, k=60, walk", Strategy.HYBRID, walk=True),
    Ranking("hybrid, k=10", Strategy.HYBRID, K10),
    Ranking("hybrid, k=10, 0.5 0.5 1", Strategy.HYBRID, WEIGHTED),
    Ranking("graph, walk", Strategy.GRAPH, walk=True),
    Ranking("graph, ppr", Strategy.GRAPH),
    Ranking("multi_query, no model", Strategy.MULTI_QUERY),
    Ranking("multi_query, no model, k=10, 0.5 0.5 1", Strategy.MULTI_QUERY, WEIGHTED),
    Ranking("hierarchical", Strategy.HIERARCHICAL),
    Ranking("hierarchical, k=10, 0.5 0.5 1", Strategy.HIERARCHICAL, WEIGHTED),
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
_F = "hybrid, k=10, 0.5 0.5 1"
BASELINES: dict[str, dict[tuple[str, str], Plain]] = {
    "musique": {
        ("keyword", ""): Plain(39.2, 49.8),
        ("semantic", "wordllama"): Plain(36.5, 46.7),
        ("hybrid without graph", ""): _RRF["musique"],
        ("graph, ppr", ""): Plain(47.5, 66.1),
        (_F, "wordllama"): Plain(53.8, 70.0),
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
        ("hybrid without graph", ""): _RRF["hotpotqa"],
        ("graph, ppr", ""): Plain(54.5, 84.0),
        (_F, "wordllama"): Plain(69.5, 91.0),
        (_F, "hash"): Plain(69.0, 89.5),
        ("multi_query, no model", ""): _RRF["hotpotqa"],
        ("hierarchical", ""): _RRF["hotpotqa"],
    },
}
"""By ranking and embedding (any: ""). Hashed vectors stand beside no vectors at all."""


class Quality(NamedTuple):
    """How good one ranking is, in percent, and what a question costs in milliseconds."""

    at2: float
    at5: float
    mrr: float
    ms: float


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
    hits = [place.get(hit.document, -1) for hit in found.hits]
    first = next((rank for rank, hit in enumerate(hits, start=1) if hit in gold), 0)
    return len(set(hits[:2]) & gold) / len(gold), len(set(hits[:5]) & gold) / len(gold), 1 / first if first else 0.0


async def asked(
    app: Sapwood, name: str, corpus: Corpus, ranking: Ranking, settings: CorpusSettings, wanted: list[Question]
) -> Quality:
    """Ask all questions in one way."""
    await app.create_corpus(name, settings.model_copy(update={"fusion": ranking.fusion}))
    place = {document: number for number, document in enumerate(corpus.documents)}
    scores: list[tuple[float, float, float]] = []
    started = time.perf_counter()
    for question in wanted:
        found = await app.query(name, ranking.request(question.text))
        if not found.complete:
            raise RuntimeError(f"{ranking.name}: {', '.join(found.missing)} missing")
        scores.append(judged(found, question.gold, place))
    seconds = (time.perf_counter() - started) / len(wanted)
    at2, at5, mrr = (float(mean) for mean in np.mean(scores, axis=0) * 100)
    return Quality(at2, at5, mrr, seconds * 1000)


async def measure(bench: Bench, app: Sapwood, corpus: Corpus, provider: str) -> dict[str, tuple[Quality, Plain | None]]:
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
    table: dict[str, tuple[Quality, Plain | None]] = {}
    for ranking in RANKINGS:
        found = await asked(app, name, corpus, ranking, settings, wanted)
        known = BASELINES[corpus.baselines]
        baseline = known.get((ranking.name, provider)) or known.get((ranking.name, ""))
        table[ranking.name] = found, baseline
        told = f"baseline R@2 / R@5 {baseline}" if baseline else ""
        limit = baseline.at5 if baseline and not baseline.what else None
        shown = f"R@2 {found.at2:4.1f}  R@5 {found.at5:4.1f}  MRR {found.mrr:4.1f}  {found.ms:5.1f} ms"
        bench.add(
            Figure(f"{title}: {ranking.name}", shown, round(found.at5, 1), limit, "R@5", at_least=True, note=told)
        )
    return table


def show_table(tables: dict[str, dict[str, tuple[Quality, Plain | None]]]) -> None:
    """Print R@2, R@5 and MRR of every ranking on every set, each beside its baseline."""
    for title, rows in tables.items():
        shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in ("strategy", "R@2", "R@5", f"MRR@{DEPTH}", "ms", "plain baseline, R@2 / R@5"):
            shown.add_column(column, justify="left" if column in ("strategy", "plain baseline, R@2 / R@5") else "right")
        for name, (found, baseline) in rows.items():
            shown.add_row(name, *(f"{value:.1f}" for value in found), str(baseline or ""))
        Console(width=None if sys.stdout.isatty() else 120).print(shown, "")


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
    providers = ["hash", "wordllama"] if find_spec("wordllama") else ["hash"]
    found: dict[str, dict[str, tuple[Quality, Plain | None]]] = {}
    async with opened(bench) as app:
        for corpus in [made[name]() for name in sets]:
            for provider in providers:
                found[f"{corpus.name}, {provider}"] = await measure(bench, app, corpus, provider)
    return found


if __name__ == "__main__":
    with scratch() as at:
        bench = Bench(at)
        measured = anyio.run(tables, bench, sys.argv[1:] or SETS)
    show_table(measured)
    if not measured:
        print(bench.figures[-1].shown)

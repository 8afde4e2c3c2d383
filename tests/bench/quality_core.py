"""Recall of gold passages by every ranking on the shared question sets: `python tests/bench/quality_core.py [SET…]`.

Reads `$SAPWOOD_SHARED` or `../shared` beside the checkout. `wordllama`, where it is installed, gives the dense ranking.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.ingest.offline import carried, extract
from pipeline.retrieval.analyzer import pack, term_hash, tokens
from pipeline.retrieval.fuse import fuse
from pipeline.retrieval.ppr import ppr
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.seeds import question_seeds
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import Limits, walk
from schemas.ids import entity_id, entity_no, identity_key
from schemas.query import Leg
from schemas.settings import GraphSearchSettings

SHARED = Path(os.environ.get("SAPWOOD_SHARED", Path(__file__).parents[3] / "shared")) / "data"
K1, B = 1.2, 0.4
SETTINGS = GraphSearchSettings(top_k=50)
ROBUST = {Leg.KEYWORD: 0.5, Leg.DENSE: 0.5, Leg.GRAPH: 1.0}

Ranking = Sequence[tuple[int, float]]
Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the passages, by position, that its answer needs."""

    text: str
    gold: frozenset[int]


@dataclass(frozen=True, slots=True)
class Found:
    """What an extractor found in one passage: names with their types, and relations between names of the same types."""

    names: frozenset[tuple[str, str]]
    about: frozenset[tuple[str, str]] = frozenset()
    triples: tuple[tuple[tuple[str, str], str, tuple[str, str]], ...] = ()


def passages(name: str) -> list[tuple[str, str]]:
    data = json.loads((SHARED / name / "passages.json").read_text())
    if isinstance(data, list):
        return [(row["title"], row["text"]) for row in data]
    return [(title, "".join(sentences)) for title, sentences in data.items()]


def questions(name: str, texts: list[tuple[str, str]]) -> list[Question]:
    data = json.loads((SHARED / name / "questions.json").read_text())
    if "paragraphs" in data[0]:
        place = {passage: at for at, passage in enumerate(texts)}
        return [Question(row["question"], frozenset(_supporting(row, place))) for row in data]
    titles = {title: at for at, (title, _) in enumerate(texts)}
    return [Question(row["question"], frozenset(titles[title] for title, _ in row["supporting_facts"])) for row in data]


def _supporting(row: dict[str, Any], place: dict[tuple[str, str], int]) -> Iterable[int]:
    return (place[p["title"], p["paragraph_text"]] for p in row["paragraphs"] if p["is_supporting"])


def offline(title: str, text: str) -> Found:
    found = extract(text)
    about = frozenset((m.name, m.type) for m in carried(title, ()))
    names = {(m.name, m.type) for m in found.mentions}
    facts = tuple(((f.subject, f.subject_type), f.type, (f.object, f.object_type)) for f in found.facts)
    return Found(about | names, about, facts)


def ready_made(name: str) -> list[Found]:
    rows = json.loads((SHARED / name / "triples.json").read_text())["docs"]
    return [_triples(row["title"], row["extracted_entities"], row["extracted_triples"]) for row in rows]


def _triples(title: str, entities: list[str], triples: list[list[str]]) -> Found:
    kept = [t for t in triples if len(t) == 3]
    names = {title, *entities, *(end for s, _, o in kept for end in (s, o))}
    facts = tuple(((s, "thing"), p, (o, "thing")) for s, p, o in kept)
    return Found(frozenset((name, "thing") for name in names), frozenset({(title, "thing")}), facts)


def snapshot(texts: list[tuple[str, str]], found: list[Found]) -> Snapshot:
    """One chunk for each passage, with its position as chunk id."""
    bags = [pack(tokens(f"{title}\n{text}")) for title, text in texts]
    keys = {(name, kind): identity_key(name) for f in found for name, kind in f.names}
    numbers = {pair: entity_no(entity_id(pair[1], key)) for pair, key in keys.items() if key}
    entities = {numbers[pair]: keys[pair] for pair in numbers}
    pairs = sorted({(i, numbers[p], p in f.about) for i, f in enumerate(found) for p in f.names if p in numbers})
    edges = sorted(
        {(numbers[s], numbers[o], kind) for f in found for s, kind, o in f.triples if s in numbers and o in numbers}
    )
    none = np.empty(0, dtype=np.int64)
    return Snapshot.empty().apply(
        Delta(
            generation=1,
            dead_chunks=none,
            dead_entities=none,
            dead_relations=RelationRows(none, none, [], none.astype(np.float32)),
            chunks=ChunkRows(
                np.arange(len(texts)),
                [str(at) for at in range(len(texts))],
                np.zeros(len(texts), dtype=np.int32),
                np.array([length for _, length in bags], dtype=np.int32),
                [bag for bag, _ in bags],
            ),
            mentions=MentionRows(*(np.array(column) for column in zip(*pairs, strict=True))),
            entities=EntityRows(np.array(list(entities)), list(entities.values()), np.full(len(entities), -1)),
            relations=RelationRows(
                np.array([s for s, _, _ in edges], dtype=np.int64),
                np.array([t for _, t, _ in edges], dtype=np.int64),
                [kind for *_, kind in edges],
                np.ones(len(edges), dtype=np.float32),
            ),
        )
    )


def wordllama() -> Callable[[list[str]], np.ndarray[Any, np.dtype[np.float32]]] | None:
    try:
        import wordllama as package
        from wordllama import WordLlama
    except ImportError:
        return None
    model = WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)
    return lambda texts: np.asarray(model.embed(texts, norm=True), dtype=np.float32)


def ranked(rows: Any, scores: Any) -> Ranking:
    return list(zip(rows.tolist(), scores.tolist(), strict=True))


def keyword(view: Snapshot, question: str) -> Ranking:
    return ranked(*view.keyword.search([term_hash(t) for t in tokens(question)], 50, None, K1, B))


def nearest(vectors: Any, query: Any) -> Ranking:
    near = vectors @ query
    rows = np.argsort(-near, kind="stable")[:50]
    return ranked(rows, near[rows])


def graph_legs(view: Snapshot, question: str, dense: Ranking) -> dict[str, Ranking]:
    names = question_seeds(question, view)
    reached = walk(view, dense[:30], Limits.of(SETTINGS)).settle(dict(dense), 50)
    return {
        "ppr": ranked(*ppr(view.graph, names, (), SETTINGS)),
        "ppr, 5 dense seeds": ranked(*ppr(view.graph, names, dense[:5], SETTINGS)),
        "walk": ranked(reached.rows, reached.scores),
    }


def recall(ranking: Ranking, gold: frozenset[int], k: int) -> float:
    return len({row for row, _ in ranking[:k]} & gold) / len(gold)


def fusions(legs: dict[str, Ranking]) -> dict[str, Ranking]:
    k, d, g = legs["bm25"], legs["dense"], legs["ppr"]
    three: dict[Leg, Ranking] = {Leg.KEYWORD: k, Leg.DENSE: d, Leg.GRAPH: g}
    two: dict[Leg, Ranking] = {Leg.KEYWORD: k, Leg.GRAPH: g}
    runs = {
        "rrf k=60 bm25+dense": fuse({Leg.KEYWORD: k, Leg.DENSE: d}, 60, {}),
        "rrf k=60 of all three": fuse(three, 60, {}),
        "rrf k=60 with the walk": fuse({**three, Leg.GRAPH: legs["walk"]}, 60, {}),
        "F: k=10, 0.5 0.5 1": fuse(three, 10, ROBUST),
        "F without dense": fuse(two, 10, ROBUST),
    }
    return {name: [(hit.chunk_id, hit.score) for hit in hits] for name, hits in runs.items()}


def table(name: str, title: str, view: Snapshot, asked: list[Question], vectors: Any, queries: Any) -> None:
    results: dict[str, list[tuple[float, float]]] = {}
    started = time.perf_counter()
    for at, question in enumerate(asked):
        dense = nearest(vectors, queries[at]) if vectors is not None else []
        legs = {"bm25": keyword(view, question.text), "dense": dense, **graph_legs(view, question.text, dense)}
        for ranking, hits in {**legs, **fusions(legs)}.items():
            pair = (recall(hits, question.gold, 2), recall(hits, question.gold, 5))
            results.setdefault(ranking, []).append(pair)
    ms = (time.perf_counter() - started) * 1000 / len(asked)
    size = f"{len(view.chunk_ids)} passages, {len(view.graph.entities)} entities"
    print(f"\n{name}, {title}: {size}, {ms:.1f} ms a question")
    for ranking, pairs in results.items():
        at2, at5 = np.mean(pairs, axis=0) * 100
        print(f"  {ranking:24} R@2 {at2:5.1f}   R@5 {at5:5.1f}")


def main(names: Sequence[str]) -> None:
    if not SHARED.is_dir():
        print(f"skipped: the shared data is missing ({SHARED}); set SAPWOOD_SHARED")
        return
    embed = wordllama()
    print("dense: wordllama" if embed else "dense: none (pip install wordllama)")
    for name in names:
        texts = passages(name)
        asked = questions(name, texts)
        vectors = embed([f"{title}\n{text}" for title, text in texts]) if embed else None
        queries = embed([question.text for question in asked]) if embed else None
        extractions = {"offline extractor": [offline(title, text) for title, text in texts]}
        if (SHARED / name / "triples.json").exists():
            extractions["ready-made triples"] = ready_made(name)
        for title, found in extractions.items():
            table(name, title, snapshot(texts, found), asked, vectors, queries)


if __name__ == "__main__":
    main(sys.argv[1:] or ["musique", "hotpotqa"])

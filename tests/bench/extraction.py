"""Offline extraction and hash embedding: quality on annotated text, and speed on one core.

    python -m tests.bench.extraction

Entities: F1 over the distinct identity keys of each document, against all gold mentions (Re-DocRED, MIT). Precision of
relations is judged by reading: `--read N` prints N of them, chosen by a fixed seed, each with its sentence.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipeline.ingest.hashing import hash_vectors
from pipeline.ingest.offline import extract
from schemas.ids import identity_key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", type=int, default=0)
    count = parser.parse_args().read
    data = Path(os.environ.get("SAPWOOD_SHARED") or Path(__file__).resolve().parents[3] / "shared") / "data"
    if not data.is_dir():
        print(f"skipped: no evaluation data at {data}; set SAPWOOD_SHARED")
        return
    documents = orjson.loads((data / "redocred/dev.json").read_bytes())
    passages = [one["text"] for one in orjson.loads((data / "musique/passages.json").read_bytes())]
    questions = [one["question"] for one in orjson.loads((data / "musique/questions.json").read_bytes())] * 100
    precision, recall, f1 = entity_scores(documents)
    print(f"entities      precision {precision:.1%}  recall {recall:.1%}  F1 {f1:.1%}   (target: F1 >= 75%)")
    found = [extract(text) for text in passages]
    mentions, facts = (sum(len(getattr(one, part)) for one in found) / len(found) for part in ("mentions", "facts"))
    print(f"passages      {mentions:.1f} mentions and {facts:.2f} relations each")
    speed = rate(lambda texts: [extract(text) for text in texts], passages)
    print(f"extraction    {speed:,.0f} passages/s a core   (target: 3,000)")
    print(f"hash vectors  {rate(hash_vectors, questions):,.0f} questions/s a core   (target: 20,000)")
    stated = [(text, fact) for text, one in zip(passages, found, strict=True) for fact in one.facts]
    for text, fact in random.Random(1).sample(stated, count):
        print(f"  {fact.subject} --{fact.type}--> {fact.object}:  {text[max(0, fact.start - 40) : fact.end + 40]!r}")


def entity_scores(documents: Sequence[Any]) -> tuple[float, float, float]:
    right = proposed = gold_count = 0
    for document in documents:
        text = " ".join(word for sentence in document["sents"] for word in sentence)
        gold = {identity_key(one["name"]) for entity in document["vertexSet"] for one in entity} - {""}
        mine = {identity_key(one.name) for one in extract(text).mentions} - {""}
        right, proposed, gold_count = right + len(gold & mine), proposed + len(mine), gold_count + len(gold)
    precision, recall = right / proposed, right / gold_count
    return precision, recall, 2 * precision * recall / (precision + recall)


def rate(work: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    work(texts)
    started = time.process_time()
    work(texts)
    return len(texts) / (time.process_time() - started)


if __name__ == "__main__":
    main()

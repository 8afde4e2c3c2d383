"""The question in other words, and the fusion of what each of them found. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.errors import ModelRefused
from pipeline.ingest.clean import clean
from pipeline.retrieval.assistants import listed
from pipeline.retrieval.fuse import Fused
from schemas.query import Leg

MAX_CHARS = 2_000
"""Characters of a variant; a longer one is left out."""


def variants(question: str, answer: object, most: int) -> tuple[str, ...]:
    """Return the question and the first `most` usable ones of an expander's answer, each once, whatever its case.

    Raises:
        ModelRefused: the answer is no list of texts.
    """
    texts = _texts(answer)
    found = {_key(question): question}
    for text in texts:
        kept = " ".join(clean(text)[0].split())
        if kept and len(kept) <= MAX_CHARS:
            found.setdefault(_key(kept), kept)
    return tuple(found.values())[: most + 1]


def _texts(answer: object) -> list[str]:
    items = listed(answer)
    texts = [item for item in items or () if isinstance(item, str)]
    if items is not None and len(texts) == len(items):
        return texts
    raise ModelRefused("The expander's answer is no list of texts.")


def _key(text: str) -> str:
    return " ".join(text.casefold().split())


def fuse_variants(rankings: Sequence[Sequence[Fused]], k: int) -> list[Fused]:
    """Fuse what the question (first) and its variants found: the sum of `weight / (k + rank)` over the best such sum.

    A variant weighs 1 and the question as much as all variants together, so that they add to what it finds and do not
    outvote it: with poor variants this loses less than equal weights do. Searches that found nothing do not count. A chunk
    has its best rank in each stream; the order is by score, then by the first search that has the chunk and its place
    there.
    """
    others = sum(1 for ranking in rankings[1:] if ranking)
    weights = [max(others, 1), *[1] * (len(rankings) - 1)]
    sums: dict[int, float] = {}
    ranks: dict[int, dict[Leg, int]] = {}
    for weight, ranking in zip(weights, rankings, strict=True):
        for place, hit in enumerate(ranking, start=1):
            sums[hit.chunk_id] = sums.get(hit.chunk_id, 0.0) + weight / (k + place)
            best = ranks.setdefault(hit.chunk_id, {})
            for leg, rank in hit.ranks.items():
                best[leg] = min(rank, best.get(leg, rank))
    highest = sum(weight for weight, ranking in zip(weights, rankings, strict=True) if ranking) / (k + 1)
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return [Fused(chunk, total / highest, _in_order(ranks[chunk])) for chunk, total in ordered]


def _in_order(ranks: dict[Leg, int]) -> dict[Leg, int]:
    return {leg: ranks[leg] for leg in Leg if leg in ranks}

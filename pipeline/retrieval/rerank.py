"""The order of the best chunks by a model that reads them beside the question."""

from __future__ import annotations

import math
from dataclasses import replace

from pipeline.deadline import Deadline
from pipeline.errors import ModelRefused
from pipeline.retrieval.assistants import Assigned, Reranker, Spent, heard, listed
from pipeline.retrieval.fuse import Fused
from pipeline.retrieval.hydrate import StoredChunk

Best = list[tuple[Fused, StoredChunk]]


async def reranked(
    reranker: Assigned[Reranker], question: str, best: Best, deadline: Deadline, spent: Spent | None = None
) -> Best:
    """Return the same chunks in the reranker's order, with its scores; ties keep their order. `spent` gets what it costs.

    Raises:
        ModelError: it did not answer, or not in a form that can be used.
        DeadlineExceeded: it was late.
    """
    if not best:
        return best
    passages = [_passage(chunk) for _, chunk in best]
    answer = await heard(
        "reranker", lambda: reranker.provider.scores(reranker.model, question, passages, deadline), deadline, spent
    )
    given = scores(answer, len(best))
    scored = [(replace(hit, score=score), chunk) for score, (hit, chunk) in zip(given, best, strict=True)]
    return sorted(scored, key=lambda one: -one[0].score)


def scores(answer: object, count: int) -> list[float]:
    """Return a reranker's scores in 0..1: as they are or, where one is outside of that, their logistic function.

    Raises:
        ModelRefused: they are not `count` finite numbers.
    """
    given = listed(answer) or ()
    numbers = [float(one) for one in given if isinstance(one, int | float) and math.isfinite(one)]
    if len(given) != count or len(numbers) != count:
        raise ModelRefused(f"The reranker's answer is not {count} finite numbers.")
    if all(0.0 <= number <= 1.0 for number in numbers):
        return numbers
    return [_logistic(number) for number in numbers]


def _logistic(number: float) -> float:
    return 0.5 * (1.0 + math.tanh(number / 2))


def _passage(chunk: StoredChunk) -> str:
    above = " > ".join(dict.fromkeys(part for part in (chunk.title, *chunk.headings) if part))
    return f"{above}\n{chunk.text}" if above else chunk.text

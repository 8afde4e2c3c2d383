"""What models are asked about a question, and how a reranker's answer is read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pipeline.errors import ModelRefused
from pipeline.ingest.prompt import Messages, fenced
from pipeline.retrieval.assistants import Option

QUESTIONS = "questions-1"
"""To be raised whenever one of these prompts changes."""

_EXPAND = """You help a search engine find the passages that answer a question. Answer with one JSON object and nothing
else: {{"queries": ["...", ...]}} with up to {most} other texts to search for.
- Use other words than the question, or ask for one step of it where it takes several.
- Each text stands by itself: it names what it is about. It answers nothing and adds no fact."""

_NAVIGATE = """You help a search engine decide where to look for the answer to a question. First comes the question, then
a numbered list of documents or headings, each with the number of passages below it. Answer with one JSON object and
nothing else: {{"open": [3, ...]}} with the numbers of up to {most} of them that may hold the answer or a part of it, the
likeliest first; with an empty list if none may."""


def _schema(name: str, member: str, item: str) -> dict[str, Any]:
    members = {member: {"type": "array", "items": {"type": item}}}
    shape = {"type": "object", "properties": members, "required": [member], "additionalProperties": False}
    return {"name": name, "schema": shape, "strict": True}


EXPANSION_SCHEMA = _schema("variants", "queries", "string")
NAVIGATION_SCHEMA = _schema("choice", "open", "integer")


def expansion_messages(question: str, most: int) -> Messages:
    """Return the request for other ways to ask."""
    return fenced(_EXPAND.format(most=most), question, "question")


def navigation_messages(question: str, options: Sequence[Option], most: int) -> Messages:
    """Return the request for a choice."""
    lines = [f"{number}. {option.label} ({option.chunks})" for number, option in enumerate(options, start=1)]
    return fenced(_NAVIGATE.format(most=most), "\n".join([" ".join(question.split()), *lines]), "text")


def read_scores(answer: object, count: int) -> list[float]:
    """Return the scores of a `/rerank` answer in the order of the passages.

    Raises:
        ModelRefused: it does not give each passage one score.
    """
    try:
        rows = cast("Sequence[Any]", cast("Any", answer)["results"])
        found = {int(row["index"]): float(row["relevance_score"]) for row in rows}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelRefused("The reranking endpoint's answer does not follow the protocol.") from error
    if sorted(found) != list(range(count)):
        raise ModelRefused(f"The reranking endpoint scored {len(found)} passages of {count}, or mixed them up.")
    return [found[number] for number in range(count)]


def read_cost(answer: object) -> int:
    """Return the tokens that a `/rerank` answer says were used, 0 where it does not say."""
    try:
        count = cast("Any", answer)["usage"]["total_tokens"]
    except (KeyError, TypeError, IndexError):
        return 0
    return count if isinstance(count, int) else 0

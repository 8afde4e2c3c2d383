"""From a call's arguments to the request that retrieval gets: checked, cleaned, and with all that scopes it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from pipeline.deadline import Deadline
from pipeline.declare.actions import Action
from pipeline.declare.fence import holdable
from pipeline.declare.scope import RetrievalContext
from pipeline.declare.search import SearchSettings
from pipeline.errors import InvalidRequest
from schemas.query import QueryRequest, Strategy, Temporal

DAY = 86_400.0
MAX_SECONDS = 3600.0
"""What a request can have for a deadline."""


def parameters(action: Action, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of an action, with texts cleaned as documents are.

    Raises:
        InvalidRequest: one is missing, or the action has no such parameter.
    """
    action.check(arguments)
    return {key: holdable(value) if isinstance(value, str) else value for key, value in arguments.items()}


def question_text(action: Action, given: Mapping[str, object], context: RetrievalContext) -> str:
    """Return what is searched for; empty where nothing is."""
    if action.question is None:
        return ""
    return holdable(context.turn_message if context.turn_message is not None else action.question.text(given)).strip()


def chat_question(message: str, context: RetrievalContext) -> str:
    """Return what is searched for in a turn of a chat."""
    return holdable(context.turn_message if context.turn_message is not None else message).strip()


def request_of(
    settings: SearchSettings,
    question: str,
    fence: Collection[str],
    context: RetrievalContext,
    deadline: Deadline,
) -> QueryRequest:
    """Return the request to the query stage. It takes no part of an answer: what failed is the failure policy's.

    Raises:
        InvalidRequest: the question or a filter cannot be searched for.
        DeadlineExceeded: no time is left.
    """
    try:
        return QueryRequest(
            text=question,
            strategy=settings.strategy,
            top_k=settings.top_k,
            min_score=settings.min_score,
            deadline=deadline.budget(MAX_SECONDS),
            partial=False,
            dedup=settings.deduplicate,
            filters=dict(context.filters),
            fence=tuple(sorted(fence)),
            cache=False,
            expander=settings.query_expansion,
            variants=settings.variants,
            navigator_model=settings.navigator_model,
            temporal=_temporal(settings),
            rerank=settings.rerank,
            reranker=settings.reranker,
            top_n=settings.top_n if settings.rerank else None,
        )
    except ValidationError as error:
        problem = error.errors()[0]
        raise InvalidRequest(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _temporal(settings: SearchSettings) -> Temporal | None:
    if settings.strategy is not Strategy.TEMPORAL:
        return None
    since = None if settings.window_days is None else time.time() - settings.window_days * DAY
    return Temporal(
        field=settings.time_field, half_life_days=settings.half_life_days, weight=settings.time_weight, since=since
    )


def scope_key(context: RetrievalContext) -> tuple[object, ...]:
    """Return what of a request keeps its results apart from those of others."""
    filters: Any = b""
    if context.filters:
        try:
            filters = orjson.dumps(dict(context.filters), option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            raise InvalidRequest("filters must be values of JSON") from error
    return (filters, context.turn_message, context.conversation_id, context.source_paths)

"""From a call's arguments to the request that retrieval gets: checked, cleaned, and with all that scopes it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import orjson
from pydantic import ValidationError

from pipeline.deadline import Deadline
from pipeline.declare.actions import Action
from pipeline.declare.entries import Knowledge, KnowledgeType
from pipeline.declare.fence import holdable
from pipeline.declare.grounding import Grounding
from pipeline.declare.scope import RetrievalContext
from pipeline.declare.search import DEFAULTS, SearchSettings
from pipeline.errors import ConfigurationError, InvalidRequest
from schemas.query import QueryRequest, Strategy, Temporal

CONTEXT_PARAMETER = "context"
"""A parameter of this name gets the context mapping of the call; it is no argument of the action."""

DAY = 86_400.0
MAX_SECONDS = 3600.0
"""What a request can have for a deadline."""

_SHOWN_ONLY = ("context_window", "context_format", "include_spec", "on_failure", "query_param", "cache", "cache_ttl")
"""Members of a search that change how documents are shown or kept, never which ones are found."""


def takes_context(function: Callable[..., object]) -> bool:
    """Whether a function wants the context mapping."""
    return CONTEXT_PARAMETER in inspect.signature(function).parameters


def parameters(name: str, function: Callable[..., object], arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of an action's function, bound to its object, with texts cleaned as documents are.

    Raises:
        InvalidRequest: one is missing, or the action has no such parameter.
    """
    own = {CONTEXT_PARAMETER: None} if takes_context(function) else {}
    if own.keys() & arguments.keys():
        raise InvalidRequest(f"{name}: {CONTEXT_PARAMETER} is no argument, the action gets it from its dispatch")
    try:
        inspect.signature(function).bind(**arguments, **own)
    except TypeError as error:
        raise InvalidRequest(f"{name}: {error}") from error
    return {key: holdable(value) if isinstance(value, str) else value for key, value in arguments.items()}


def question_text(action: Action, given: Mapping[str, object], context: RetrievalContext) -> str:
    """Return what is searched for; empty where nothing is."""
    if action.question is None:
        return ""
    return holdable(context.turn_message if context.turn_message is not None else action.question.text(given)).strip()


def in_scope(entries: Collection[Knowledge], paths: Collection[str]) -> tuple[Knowledge, ...]:
    """Return the entries whose path or URL, as declared, is one of these; all where there are none."""
    return tuple(one for one in entries if not paths or one.path in paths or one.url in paths)


def source_of(entry: Knowledge) -> Knowledge:
    """Return the entry without what actions may set and what is done with its documents: what decides which they are."""
    return replace(entry, use=None, search=None, unit=None, select=None, max_tokens=None)


def request_of(
    settings: SearchSettings,
    question: str,
    sources: Collection[Knowledge],
    context: RetrievalContext,
    deadline: Deadline,
) -> QueryRequest:
    """Return the request to the query stage. It takes no part of an answer: what failed is the failure policy's.

    Raises:
        InvalidRequest: the question or a filter cannot be searched for.
        DeadlineExceeded: no time is left.
    """
    files = any(entry.type is KnowledgeType.FILE for entry in sources)
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
            fence=() if files else tuple(entry.name for entry in sources),
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


def documents_of(settings: SearchSettings) -> SearchSettings:
    """Return the settings with all that changes no document at its default: the settings' part of a result's key."""
    return replace(settings, **{member: getattr(DEFAULTS, member) for member in _SHOWN_ONLY})


def scope_key(context: RetrievalContext) -> tuple[object, ...]:
    """Return what of a request keeps its results apart from those of others."""
    filters: Any = b""
    if context.filters:
        try:
            filters = orjson.dumps(dict(context.filters), option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            raise InvalidRequest("filters must be values of JSON") from error
    return (filters, context.turn_message, context.conversation_id, context.source_paths)


def check_served(grounding: Grounding, files: Collection[Knowledge]) -> None:
    """Refuse what a declaration may say but retrieval does not do, rather than leave it out silently.

    Raises:
        ConfigurationError: there is such a thing; the message names the member.
    """
    for entry in grounding.sources:
        if member := next((name for name in ("format", "chunk_context") if getattr(entry, name)), ""):
            raise ConfigurationError(
                f"Knowledge entry {entry.name!r}: {member} is not served for the use SEARCH; leave it out."
            )
    search = grounding.search
    if search and search.query_expansion and search.strategy is not Strategy.MULTI_QUERY:
        raise ConfigurationError(f"search.query_expansion is for MULTI_QUERY, not for {search.strategy.name}.")
    if grounding.graph and not files:
        raise ConfigurationError("a GRAPH entry needs a FILE entry of the same class, whose graph it reads; add one.")

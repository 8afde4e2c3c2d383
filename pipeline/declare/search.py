"""How entries are searched: what a declaration says, how what several say is merged, and what follows from all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pipeline.declare.context import check_format
from pipeline.declare.rules import DAYS, FLAG, NAME, SECONDS, TEXT, Rule, check, number, one_of, whole, written
from pipeline.errors import ConfigurationError
from schemas.query import Strategy

NO_EXPANSION = "none"
"""The value of `query_expansion` that says so; any other names a model."""


class OnFailure(StrEnum):
    """What becomes of a call whose retrieval failed; an error of the configuration and a cancellation are neither's."""

    FAIL = "fail"
    CONTINUE = "continue"
    """The call goes on without context."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Search:
    """How an entry is searched; None means "not given", and `SearchSettings` says what each member is.

    An action's replaces the declared one as a whole. Of several sources in one scope, what one gives goes for all.
    """

    strategy: Strategy | None = None
    top_k: int | None = None
    min_score: float | None = None
    context_window: int | None = None
    context_format: str | None = None
    include_spec: bool | None = None
    on_failure: OnFailure | None = None
    deduplicate: bool | None = None
    rerank: bool | None = None
    reranker: str | None = None
    top_n: int | None = None
    query_expansion: str | None = None
    variants: int | None = None
    query_param: str | None = None
    navigator_model: str | None = None
    time_field: str | None = None
    time_weight: float | None = None
    half_life_days: float | None = None
    window_days: float | None = None
    cache: bool | None = None
    cache_ttl: float | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The members that are given, with their values."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) is not None}

    def __repr__(self) -> str:
        return written("Search", "", self.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """All there is to know about a search: what is given, with defaults for the rest.

    Attributes:
        strategy: how documents are found.
        top_k: how many are found at most.
        min_score: the score, from 0 to 1, that one has at least.
        context_window: tokens of the rendered context at most.
        context_format: how a document is rendered; `context.PLACEHOLDERS` are what it can name.
        include_spec: whether what the role says of itself is rendered as well.
        on_failure: what becomes of a call whose retrieval failed.
        deduplicate: whether equal documents are one.
        rerank: whether what was found is put in a better order by a model.
        reranker: the model that does so; empty without it.
        top_n: how many documents are left after that; `top_k` without it.
        query_expansion: the model that adds questions to the one asked; empty for none.
        variants: how many questions it adds at most.
        query_param: the parameter of an action that is the question; empty for the first that is a text.
        navigator_model: the model that REASONING walks the headings with; else empty.
        time_field: the key of a document's metadata that says for TEMPORAL when it is from; else empty.
        time_weight: how much of a score is recency with TEMPORAL, from 0 to 1; None for what the corpus says.
        half_life_days: the days after which recency is half as much; None for what the corpus says.
        window_days: the age in days up to which a document is found; None for any.
        cache: whether what was found is kept for the next one who asks the same.
        cache_ttl: for how many seconds.
    """

    strategy: Strategy = Strategy.SEMANTIC
    top_k: int = 5
    min_score: float = 0.0
    context_window: int = 2_000
    context_format: str = "[Source: ${source}]\n${content}\n\n"
    include_spec: bool = False
    on_failure: OnFailure = OnFailure.FAIL
    deduplicate: bool = True
    rerank: bool = False
    reranker: str = ""
    top_n: int = 5
    query_expansion: str = ""
    variants: int = 3
    query_param: str = ""
    navigator_model: str = ""
    time_field: str = ""
    time_weight: float | None = None
    half_life_days: float | None = None
    window_days: float | None = None
    cache: bool = True
    cache_ttl: float = 300.0


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "strategy": one_of(Strategy),
        "top_k": whole(1, 1_000),
        "min_score": number(0, 1),
        "context_window": whole(1, 1_000_000),
        "context_format": TEXT,
        "include_spec": FLAG,
        "on_failure": one_of(OnFailure),
        "deduplicate": FLAG,
        "rerank": FLAG,
        "reranker": NAME,
        "top_n": whole(1, 1_000),
        "query_expansion": NAME,
        "variants": whole(1, 10),
        "query_param": NAME,
        "navigator_model": NAME,
        "time_field": NAME,
        "time_weight": number(0, 1),
        "half_life_days": DAYS,
        "window_days": DAYS,
        "cache": FLAG,
        "cache_ttl": SECONDS,
    }
)

DEFAULTS = SearchSettings()

_OF_STRATEGY = {
    "navigator_model": Strategy.REASONING,
    "time_field": Strategy.TEMPORAL,
    "time_weight": Strategy.TEMPORAL,
    "half_life_days": Strategy.TEMPORAL,
    "window_days": Strategy.TEMPORAL,
}
"""Members that are for one strategy alone."""

_NEEDED = {
    Strategy.MULTI_QUERY: "query_expansion",
    Strategy.REASONING: "navigator_model",
    Strategy.TEMPORAL: "time_field",
}
"""Members without which a strategy cannot be."""


def check_search(search: Search) -> None:
    """Hold each member that is given to its rule. Raises ConfigurationError naming it."""
    check(search.given, RULES, "search.")
    if search.context_format is not None:
        check_format(search.context_format)


def merged(searches: Iterable[tuple[str, Search]]) -> Search:
    """Return all that these entries, each by its name, say of one search; their order does not matter.

    Raises:
        ConfigurationError: two of them give a member different values.
    """
    found: dict[str, tuple[str, Any]] = {}
    for name, search in searches:
        for member, value in search.given.items():
            first, earlier = found.setdefault(member, (name, value))
            if earlier != value:
                raise ConfigurationError(
                    f"search.{member} is {earlier!r} in entry {first!r} and {value!r} in entry {name!r}, which are searched "
                    f"together: give one value, or leave it to actions that name one entry each."
                )
    return Search(**{member: value for member, (_, value) in found.items()})


def settled(search: Search) -> SearchSettings:
    """Return the settings that follow: the defaults filled in.

    Raises:
        ConfigurationError: a member lacks another one that it needs, or has no effect beside the others.
    """
    given = search.given
    if given.get("query_expansion") == NO_EXPANSION:
        del given["query_expansion"]
    strategy = search.strategy or DEFAULTS.strategy
    _check_strategy(strategy, given)
    _check_effect(given)
    changes: dict[str, Any] = {"top_n": given.get("top_k", DEFAULTS.top_k), **given}
    return SearchSettings(**changes)


def _check_strategy(strategy: Strategy, given: Mapping[str, Any]) -> None:
    needed = _NEEDED.get(strategy)
    if needed is not None and needed not in given:
        raise ConfigurationError(f"search.strategy {strategy.name} needs search.{needed}; give it.")
    for member, owner in _OF_STRATEGY.items():
        if member in given and strategy is not owner:
            raise ConfigurationError(f"search.{member} is for {owner.name}, not for {strategy.name}; leave it out.")


def _check_effect(given: Mapping[str, Any]) -> None:
    """Refuse members that say nothing, or nothing that can be done, beside the others."""
    if given.get("rerank") and "reranker" not in given:
        raise ConfigurationError("search.rerank needs a model; name it in search.reranker.")
    idle = {
        "reranker": not given.get("rerank") and "search.rerank",
        "top_n": not given.get("rerank") and "search.rerank",
        "variants": "query_expansion" not in given and "search.query_expansion",
        "cache_ttl": given.get("cache") is False and "search.cache",
    }
    if wrong := [(member, missing) for member, missing in idle.items() if member in given and missing]:
        member, missing = wrong[0]
        raise ConfigurationError(f"search.{member} has no effect without {missing}; set that, or leave it out.")
    top_k, top_n = given.get("top_k", DEFAULTS.top_k), given.get("top_n", 1)
    if top_n > top_k:
        raise ConfigurationError(f"search.top_n ({top_n}) is more than search.top_k ({top_k}); raise that.")

"""A question and its answer, as they are on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schemas.moments import moment


class Strategy(StrEnum):
    """How chunks are found; none ever falls back to another. The last four search as HYBRID does, and something besides."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    BM25 = KEYWORD
    HYBRID = "hybrid"
    GRAPH = "graph"
    MULTI_QUERY = "multi_query"
    """A model asks the question in other words; the rankings of all of them are fused."""
    HIERARCHICAL = "hierarchical"
    """First the communities and sections that hold most of what was found, then the chunks inside of them."""
    TEMPORAL = "temporal"
    """Relevance combined with recency, by a time in the documents' metadata, perhaps inside a window."""
    REASONING = "reasoning"
    """A model walks down the headings of the documents; then the chunks below those that it chose."""

    @classmethod
    def _missing_(cls, value: object) -> Strategy | None:
        return cls.KEYWORD if value == "bm25" else None


class Leg(StrEnum):
    """One ranked retrieval stream of a query, in the order in which ties between streams are broken."""

    KEYWORD = "keyword"
    DENSE = "dense"
    GRAPH = "graph"


STREAM_NAMES = {Leg.KEYWORD: "bm25", Leg.DENSE: "vector", Leg.GRAPH: "graph"}
"""The names under which hits list their legs."""


class GraphStream(StrEnum):
    """What became of the graph in an answer."""

    FUSED = "fused"
    """Its ranking is in the answer: one of the streams of HYBRID, or all there is of GRAPH."""
    EMPTY = "empty"
    """A provider served, and found nothing."""
    NOT_CLAIMED = "not_claimed"
    """No provider serves this request, so HYBRID has two streams."""
    MISSING = "missing"
    """A provider was to serve, but failed or was late: see the leg's report."""


class Wire(BaseModel):
    """Immutable on the wire; an unknown key is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Time = Annotated[str, Field(min_length=1, max_length=64)] | float
"""ISO 8601, or seconds since 1970."""

ModelId = Annotated[str, Field(max_length=200)]
"""What a provider serves, such as `openai/gpt-4o-mini`; empty: the corpus's."""


class Temporal(Wire):
    """How TEMPORAL weighs time; what is not given is the corpus's.

    `field` is a key of the documents' metadata. Only what is at or after `since` and before `until` is found. A chunk's
    score is its relevance times `1 - weight + weight * 0.5 ** (age / half-life)`, the age being that at `now`, by default
    the time of the question.
    """

    field: str = Field(default="", max_length=200)
    half_life_days: float | None = Field(default=None, gt=0.0, le=36_500.0)
    weight: float | None = Field(default=None, ge=0.0, le=1.0)
    since: Time | None = None
    until: Time | None = None
    now: Time | None = None

    @field_validator("field")
    @classmethod
    def _can_be_a_key(cls, field: str) -> str:
        if field != field.replace("\0", "").encode("utf-8", "ignore").decode():
            raise ValueError("must be without NUL and lone surrogates")
        return field

    @field_validator("since", "until", "now")
    @classmethod
    def _is_a_time(cls, value: Time | None) -> Time | None:
        if value is not None and moment(value) is None:
            raise ValueError("must be an ISO 8601 date or time, or seconds since 1970")
        return value


class QueryRequest(Wire):
    """A question to one corpus.

    `deadline` is in seconds from the moment the edge accepts the request. With `partial` the answer at the deadline is what
    was found, flagged incomplete; without it, a DeadlineExceeded. `filters` match document metadata exactly; `vector`, if
    given, is used instead of embedding the text. `neighbors` adds that many chunks of the same document on either side of
    each hit. `ranking` overrides the corpus's graph ranking. `fence` names what may serve the graph leg: graph providers
    (`in-memory`, `knowledge-tools`, `neo4j`, those of others) and the corpus, which stands for the graph of its documents,
    wherever that is kept; empty means all.

    `expander` (with how many `variants` of the question it writes at most) goes with any strategy, and MULTI_QUERY needs one;
    `navigator_model` and `temporal` are for REASONING and TEMPORAL. With `rerank`, the model `reranker` orders the `top_k`
    distinct chunks anew, and the first `top_n` of them are the answer.
    """

    text: str = Field(min_length=1, max_length=20_000)
    strategy: Strategy = Strategy.HYBRID
    top_k: int = Field(default=5, ge=1, le=1000)
    min_score: float = Field(default=0.0, ge=0.0, le=1.0)
    deadline: float = Field(default=10.0, gt=0.0, le=3600.0)
    partial: bool = True
    dedup: bool = True
    neighbors: int = Field(default=0, ge=0, le=10)
    filters: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=20)
    ranking: Literal["walk", "ppr"] | None = None
    fence: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(default=(), max_length=100)
    vector: tuple[float, ...] | None = None
    cache: bool = True
    expander: ModelId = ""
    variants: int = Field(default=3, ge=1, le=10)
    navigator_model: ModelId = ""
    temporal: Temporal | None = None
    rerank: bool = False
    reranker: ModelId = ""
    top_n: int | None = Field(default=None, ge=1, le=1000)

    @model_validator(mode="after")
    def _reranks_on_purpose(self) -> Self:
        if not self.rerank and (self.reranker or self.top_n is not None):
            raise ValueError("reranker and top_n are for requests with rerank")
        return self

    @field_validator("text")
    @classmethod
    def _can_be_stored(cls, text: str) -> str:
        """Leave out what no store of text takes: NUL and lone surrogates."""
        kept = text.replace("\0", "").encode("utf-8", "ignore").decode()
        if not kept.strip():
            raise ValueError("text must not be blank")
        return kept


class Hit(Wire):
    """A chunk in a result. `lines` are the first and last line, from 1; `score` is in 0..1; `ranks` are from 1 by stream.

    `graph_source` is the provider that ranked it in the graph stream. A live triple is a hit too: its document is
    `knowledge-tools`, its metadata are its parts, and `chunk` follows from them.
    """

    document: str
    chunk: str
    lines: tuple[int, int]
    text: str
    score: float
    streams: tuple[str, ...]
    ranks: dict[str, int]
    title: str = ""
    headings: tuple[str, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    neighbor_of: str | None = None
    graph_source: str | None = None


class LegReport(Wire):
    """What one leg did: `state` is completed, empty, failed or missing (not done by the deadline); `seconds` is wall time.

    `of` names the search that it was part of, where a strategy makes several: `shortlist`, `variant-2`.
    """

    leg: Leg
    state: Literal["completed", "empty", "failed", "missing"]
    hits: int = 0
    seconds: float = 0.0
    error: str = ""
    counters: dict[str, int] = Field(default_factory=dict[str, int])
    of: str = ""

    @property
    def name(self) -> str:
        """What a result calls it where it is missing, e.g. `dense` or `variant-2.dense`."""
        return f"{self.of}.{self.leg.value}" if self.of else self.leg.value


class StageReport(Wire):
    """What one stage of a query did: how many chunks (texts, for `expand`) went in and came out, and the wall time.

    The tokens are those that its model was paid for, 0 where the server does not say.
    """

    name: str
    before: int
    after: int
    seconds: float = 0.0
    note: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class QueryResult(Wire):
    """The answer: all from one generation, but for what a provider of live data adds.

    `missing` names the legs that are not in it, and `expand`, `navigate` or `rerank` where that was not done in time or
    failed; then `complete` is false. `graph_stream` is None for a strategy that has no graph leg. `stages` are those that
    ran, in their order.
    """

    generation: int
    complete: bool
    missing: tuple[str, ...]
    hits: tuple[Hit, ...]
    legs: tuple[LegReport, ...] = ()
    graph_stream: GraphStream | None = None
    cached: bool = False
    seconds: float = 0.0
    stages: tuple[StageReport, ...] = ()

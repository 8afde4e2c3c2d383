"""A question and its answer, as they are on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Strategy(StrEnum):
    """How chunks are found; none ever falls back to another."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"
    GRAPH = "graph"


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


class QueryRequest(Wire):
    """A question to one corpus.

    `deadline` is in seconds from the moment the edge accepts the request. With `partial` the answer at the deadline is what
    was found, flagged incomplete; without it, a DeadlineExceeded. `filters` match document metadata exactly; `vector`, if
    given, is used instead of embedding the text. `neighbors` adds that many chunks of the same document on either side of
    each hit. `ranking` overrides the corpus's graph ranking. `fence` names what may serve the graph leg: graph providers
    (`in-memory`, `knowledge-tools`, `neo4j`, those of others) and the corpus, which stands for the graph of its documents,
    wherever that is kept; empty means all.
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
    """What one leg did: `state` is completed, empty, failed or missing (not done by the deadline); `seconds` is wall time."""

    leg: Leg
    state: Literal["completed", "empty", "failed", "missing"]
    hits: int = 0
    seconds: float = 0.0
    error: str = ""
    counters: dict[str, int] = Field(default_factory=dict[str, int])


class QueryResult(Wire):
    """The answer: all from one generation, but for what a provider of live data adds.

    `missing` names the legs that are not in it; then `complete` is false. `graph_stream` is None for a strategy that has
    no graph leg.
    """

    generation: int
    complete: bool
    missing: tuple[str, ...]
    hits: tuple[Hit, ...]
    legs: tuple[LegReport, ...] = ()
    graph_stream: GraphStream | None = None
    cached: bool = False
    seconds: float = 0.0

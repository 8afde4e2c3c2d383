"""The events of runs: a closed union of versioned types. Every run ends in exactly one terminal event."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from schemas.query import LegReport, QueryResult, Wire


class Queued(Wire):
    """The run was accepted and is durable."""

    type: Literal["queued"] = "queued"
    kind: str


class Started(Wire):
    """A worker took the run up (again, after a crash: `fence` tells how often it changed hands)."""

    type: Literal["started"] = "started"
    fence: int


class Planned(Wire):
    """The sources were listed and compared with the current generation; `batches` units of work follow."""

    type: Literal["planned"] = "planned"
    generation: int
    seen: int
    to_do: int
    unchanged: int
    removed: int
    batches: int


class Documents(Wire):
    """The outcomes of one batch of documents: counts of all, and each that is not simply indexed or unchanged."""

    type: Literal["documents"] = "documents"
    counts: dict[str, int]
    notable: tuple[tuple[str, str, str], ...] = ()
    chunks: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Progress(Wire):
    """A stage of an index run moved on: `done` of `total` in the stage's own unit (0 of 0: unknown)."""

    type: Literal["progress"] = "progress"
    stage: str
    done: int
    total: int


class Promoted(Wire):
    """The generation is current; `counts` are those of its manifest."""

    type: Literal["promoted"] = "promoted"
    generation: int
    counts: dict[str, int]
    outcomes: dict[str, int]


class Unchanged(Wire):
    """The index run found nothing to do; the current generation stays."""

    type: Literal["unchanged"] = "unchanged"
    generation: int
    outcomes: dict[str, int]


class Pinned(Wire):
    """The query reads this generation, whatever is promoted meanwhile."""

    type: Literal["pinned"] = "pinned"
    generation: int


class LegDone(Wire):
    """One leg of a query is done, or failed."""

    type: Literal["leg"] = "leg"
    report: LegReport


class Completed(Wire):
    """The query has its answer."""

    type: Literal["completed"] = "completed"
    result: QueryResult


class Failed(Wire):
    """The run failed for good. `code` is the name of the error's class."""

    type: Literal["failed"] = "failed"
    code: str
    message: str


class Cancelled(Wire):
    """The run was cancelled, and nothing of it runs any more."""

    type: Literal["cancelled"] = "cancelled"
    reason: str = ""


class Expired(Wire):
    """The deadline passed; a query that allows it carries what was found."""

    type: Literal["expired"] = "expired"
    result: QueryResult | None = None


Body = Annotated[
    Queued
    | Started
    | Planned
    | Documents
    | Progress
    | Promoted
    | Unchanged
    | Pinned
    | LegDone
    | Completed
    | Failed
    | Cancelled
    | Expired,
    Field(discriminator="type"),
]

TERMINAL_TYPES = frozenset({"promoted", "unchanged", "completed", "failed", "cancelled", "expired"})


class Event(Wire):
    """One event. `seq` is dense from 1 within its run; `at` is UTC ISO time by the database's clock."""

    version: Literal[1] = 1
    run_id: str
    corpus: str
    seq: int
    at: str
    body: Body

    @property
    def terminal(self) -> bool:
        """Whether no event of this run follows."""
        return self.body.type in TERMINAL_TYPES


BODY: TypeAdapter[Any] = TypeAdapter(Body)
"""Reads and writes bodies as JSON."""

"""Runs: durable pieces of work, and the units that workers claim."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from schemas.ids import CorpusId, RunId


class RunKind(StrEnum):
    """What a claimed unit does. `index` and `query` are what people ask for; `batch` is a part of an index run."""

    INDEX = "index"
    BATCH = "batch"
    QUERY = "query"


class RunState(StrEnum):
    """queued → running → (waiting → queued → running)* → one of the last four, which never change."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen to the run."""
        return self in _TERMINAL


_TERMINAL = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.EXPIRED})


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed unit: proof of ownership (`run_id`, `fence`, `owner`, `step`) and what to do.

    `root_id` is the run whose events people follow (the unit's own id, but for a batch). `deadline` is the seconds that
    were left at the claim, by the database's clock, or None. `generation` is the number an index run builds, once planned.
    `seconds` is the length of the lease; `attempts` counts the retryable failures so far.
    """

    run_id: RunId
    root_id: RunId
    corpus_id: CorpusId
    kind: RunKind
    fence: int
    owner: str
    step: int
    payload: dict[str, Any]
    generation: int | None = None
    deadline: float | None = None
    seconds: float = 15.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as people see it. Times are UTC ISO strings; `error` is empty unless it failed."""

    run_id: RunId
    corpus_id: CorpusId
    kind: RunKind
    state: RunState
    step: int
    generation: int | None
    crash_count: int
    shutdown_count: int
    last_seq: int
    error: str
    created_at: str
    finished_at: str | None

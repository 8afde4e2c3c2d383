"""What the routes take and give, beside the contract of `schemas`."""

from __future__ import annotations

import math
from typing import Annotated, Any, cast

from fastapi import Depends, Path
from pydantic import Field, model_validator

from pipeline.errors import Forbidden
from schemas.documents import Outcome, Source
from schemas.manifest import Manifest
from schemas.query import QueryRequest, Wire
from schemas.runs import RunInfo, RunKind, RunState
from schemas.settings import CorpusSettings
from worker.gateway.access import Principal, Scope, require

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_INT64 = 1 << 63
_DEPTH = 50

CorpusName = Annotated[str, Path(pattern=_NAME, description="Name of the corpus.")]
RunName = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$", description="Id of the run.")]
Key = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,200}$")]


Indexing = Annotated[Principal, Depends(require(Scope.INDEX))]
Asking = Annotated[Principal, Depends(require(Scope.QUERY))]
Reading = Annotated[Principal, Depends(require(Scope.INDEX, Scope.QUERY, Scope.INSPECT))]
Inspecting = Annotated[Principal, Depends(require(Scope.QUERY, Scope.INSPECT))]
"""May see questions and their answers, too."""


Exporting = Annotated[Principal, Depends(require(Scope.INSPECT))]
Administering = Annotated[Principal, Depends(require(Scope.ADMIN))]
Known = Annotated[Principal, Depends(require(*Scope))]
"""Whoever has a key at all."""


def may_see(principal: Principal, run: RunInfo) -> None:
    """Check that somebody may see what is in a run: answers are not for those who only index. Raises Forbidden."""
    if run.kind is RunKind.QUERY and not principal.scopes.intersection((Scope.QUERY, Scope.INSPECT)):
        raise Forbidden("This key lacks the scope `query` or `inspect`.")


class Order(Wire):
    """What a client sends: only values that every store can keep."""

    @model_validator(mode="before")
    @classmethod
    def _fits_every_store(cls, value: Any) -> Any:
        """Refuse NUL, lone surrogates, numbers that are none, integers beyond 64 bits, and depths."""
        _check(value)
        return value


class Question(Order, QueryRequest):
    """A question to one corpus; see the fields."""


class CorpusOrder(Order):
    """A corpus to be made."""

    name: str = Field(pattern=_NAME)
    settings: CorpusSettings = CorpusSettings()


class SettingsOrder(Order):
    """All settings of a corpus; what is left out gets its default."""

    settings: CorpusSettings


class IndexOrder(Order):
    """What a corpus is to mirror: folders, files, URLs, `git+https://…@revision`, `triples:FILE`; none: what it mirrors already.

    `uploads` adds the uploaded files of the corpus. `include` and `exclude` are globs for all folders. `actor` and
    `override_reason` let a sparse generation pass.
    """

    sources: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(default=[], max_length=1000)
    uploads: bool = False
    include: list[Annotated[str, Field(min_length=1, max_length=1000)]] = Field(default=[], max_length=100)
    exclude: list[Annotated[str, Field(min_length=1, max_length=1000)]] = Field(default=[], max_length=100)
    settings: CorpusSettings | None = None
    actor: str = Field(default="", max_length=200)
    override_reason: str = Field(default="", max_length=2000)


class CancelOrder(Order):
    """Why a run is cancelled; it is in the final event."""

    reason: str = Field(default="", max_length=1000)


class RollbackOrder(Order):
    """Which generation to publish again."""

    generation: int = Field(ge=1, le=2**31 - 1)


class CollectOrder(Order):
    """How many generations stay readable; by default the corpus's setting."""

    keep: int | None = Field(default=None, ge=1, le=1000)


class CorpusView(Wire):
    """A corpus; `generation` is null before the first promotion."""

    name: str
    generation: int | None
    settings: CorpusSettings
    sources: list[Source]


class RunView(Wire):
    """A run. `last_seq` is the number of its newest event; `error` is empty unless it failed."""

    run_id: str
    kind: RunKind
    state: RunState
    generation: int | None
    crash_count: int
    shutdown_count: int
    last_seq: int
    error: str
    created_at: str
    finished_at: str | None

    @classmethod
    def of(cls, run: RunInfo) -> RunView:
        """Return the view of a run."""
        return cls(**{name: getattr(run, name) for name in cls.model_fields})


class DocumentView(Wire):
    """How a document of a run ended; `reason` is empty only for indexed, unchanged and removed ones."""

    document_id: str
    outcome: Outcome
    reason: str
    chunks: int


class DocumentPage(Wire):
    """The accounting of a run: the counts of all outcomes, and a page of documents in order of their ids.

    Documents that were seen to be unchanged without being read are in the counts alone. `next` goes into `after`.
    """

    counts: dict[str, int]
    documents: list[DocumentView]
    next: str | None


class GenerationView(Wire):
    """A generation. `pins` are the processes that hold it now."""

    number: int
    state: str
    run_id: str
    created_at: str
    published_at: str | None
    manifest: Manifest | None
    pins: int


class RolledBack(Wire):
    """The number under which an earlier generation is current again."""

    generation: int
    source: int


class CommunityView(Wire):
    """A community of the current generation."""

    community_id: str
    level: int
    size: int
    name: str
    summary: str


def _check(value: object, depth: int = 0) -> None:
    if depth > _DEPTH:
        raise ValueError(f"values are nested at most {_DEPTH} deep")
    match value:
        case str() if "\0" in value or not _encodes(value):
            raise ValueError("text must hold no NUL and no lone surrogate")
        case int() if not -_INT64 <= value < _INT64:
            raise ValueError("integers have 64 bits")
        case float() if not math.isfinite(value):
            raise ValueError("numbers must be finite")
        case dict():
            for pair in cast("dict[object, object]", value).items():
                _check(list(pair), depth)
        case list():
            for item in cast("list[object]", value):
                _check(item, depth + 1)
        case _:
            pass


def _encodes(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)

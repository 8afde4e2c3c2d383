"""Corpora as stages and people see them."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.ids import CorpusId
from schemas.query import Wire
from schemas.settings import CorpusSettings


@dataclass(frozen=True, slots=True)
class Corpus:
    """One searchable collection of sources of one tenant; `generation` is None before the first promotion."""

    corpus_id: CorpusId
    tenant: str
    name: str
    settings: CorpusSettings
    generation: int | None


class CorpusSummary(Wire):
    """A corpus in a list. `counts` are the rows of its current generation by store."""

    name: str
    generation: int | None
    counts: dict[str, int]
    created_at: str

"""A small handbook with headings, dates and repetitions, and models that do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import numpy as np

from pipeline.deadline import Deadline
from pipeline.ports import Vectors
from pipeline.retrieval.assistants import Assistants, Option
from pipeline.retrieval.results import ResultCache
from pipeline.retrieval.stage import QueryStage
from pipeline.testing.corpus import EMBEDDING, MemoryStores, PinnedRows, chunk, manifest_of, rows_of
from schemas.ids import CorpusId
from schemas.query import QueryRequest, QueryResult, StageReport, Wire
from schemas.settings import CorpusSettings

CORPUS = CorpusId(7)
LONG = 30.0
"""Seconds no test here should need."""

WORDS = ("laser", "kiln", "pounds", "room", "built")

LASER, KILN, FEES, MOVED, BUILT, UNDATED, AGAIN = (
    "the laser cutter stands in room four",
    "the kiln reaches twelve hundred degrees",
    "members pay ten pounds a month",
    "the laser cutter moved to room nine",
    "the laser cutter is being built",
    "the laser cutter has no date",
    "the laser cutter stands in room four",
)
CHUNKS = [
    chunk("guide.md", 0, LASER, {"date": "2024-01-01", "tier": "approved"}, ("Guide", "Machines")),
    chunk("guide.md", 1, KILN, {"date": "2024-01-01", "tier": "approved"}, ("Guide", "Machines")),
    chunk("guide.md", 2, FEES, {"date": "2024-01-01", "tier": "approved"}, ("Guide", "Fees")),
    chunk("news.md", 0, MOVED, {"date": "2024-06-01T00:00:00Z", "tier": "draft"}, ("News",)),
    chunk("old.md", 0, BUILT, {"date": 1_577_836_800, "tier": "draft"}),
    chunk("undated.md", 0, UNDATED, {"date": "some day", "tier": "draft"}),
    chunk("copy.md", 0, AGAIN, {"tier": "draft"}),
]


def vector_of(text: str) -> list[float]:
    counts = np.array([text.lower().split().count(word) for word in WORDS], dtype=np.float64)
    return (counts / (np.linalg.norm(counts) or 1.0)).tolist()


@dataclass
class Embedder:
    """Counts the few words that it knows."""

    fingerprint: str = EMBEDDING
    paid: bool = False
    texts: list[str] = field(default_factory=list[str])

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        self.texts.extend(texts)
        return np.array([vector_of(text) for text in texts], dtype=np.float32)


@dataclass
class Model:
    """An expander, navigator or reranker that gives these answers, in turn and the last one again; or raises, or stalls."""

    answers: Sequence[Any] = ()
    error: Exception | None = None
    stalls: bool = False
    fingerprint: str = "told/1"
    model: str = "told"
    calls: list[Any] = field(default_factory=list[Any])
    left: int = 0

    def serves(self, model: str) -> bool:
        return model == self.model

    async def _answer(self, *asked: Any) -> Any:
        self.calls.append(asked)
        try:
            if self.stalls:
                await anyio.sleep_forever()
            if self.error:
                raise self.error
            return self.answers[min(len(self.calls), len(self.answers)) - 1]
        finally:
            self.left += 1

    async def expand(self, model: str, question: str, most: int, deadline: Deadline) -> Sequence[str]:
        return await self._answer(question, most)

    async def choose(
        self, model: str, question: str, options: Sequence[Option], most: int, deadline: Deadline
    ) -> Sequence[int]:
        return await self._answer(*(option.label for option in options))

    async def scores(self, model: str, question: str, passages: Sequence[str], deadline: Deadline) -> Sequence[float]:
        return await self._answer(*passages)


class World:
    """A stage over the handbook; `now` is its clock."""

    def __init__(
        self, expander: Model | None = None, navigator: Model | None = None, reranker: Model | None = None
    ) -> None:
        self.rows = rows_of(CHUNKS, np.array([vector_of(one.text) for one in CHUNKS], dtype=np.float32))
        self.stores = MemoryStores({(CORPUS, 3): self.rows})
        self.pinned = PinnedRows(CORPUS, manifest_of(self.rows, CORPUS, 3), CorpusSettings())
        self.embedder, self.results, self.events = Embedder(), ResultCache(), list[Wire]()
        self.now = 1_717_200_000.0  # 2024-06-01
        self.assistants = Assistants(
            [expander] if expander else [], [navigator] if navigator else [], [reranker] if reranker else []
        )

    def stage(self, dense: Any = None) -> QueryStage:
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        return QueryStage(
            self.stores,
            dense or self.stores,
            self.stores,
            lambda *_: self.embedder,
            self.results,
            assistants=self.assistants,
            now=clock,
        )

    def configured(self, **settings: Any) -> PinnedRows:
        return replace(self.pinned, settings=CorpusSettings.model_validate(settings))

    async def emit(self, event: Wire) -> None:
        self.events.append(event)

    async def ask(
        self, text: str, pinned: PinnedRows | None = None, dense: Any = None, seconds: float = LONG, **fields: Any
    ) -> QueryResult:
        request = QueryRequest.model_validate({"text": text, **fields})
        return await self.stage(dense).run(pinned or self.pinned, request, Deadline.after(seconds), self.emit)


def texts(result: QueryResult) -> list[str]:
    return [hit.text for hit in result.hits]


def stage(result: QueryResult, name: str) -> StageReport:
    (found,) = [one for one in result.stages if one.name == name]
    return found

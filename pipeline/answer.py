"""The handler of queued questions: the same stage as a library call, its events on the run's log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.generations.pins import Pinned
from pipeline.retrieval.query import Emit
from pipeline.retrieval.stage import QueryStage
from pipeline.runs import Work
from schemas.events import Completed, Expired
from schemas.payloads import QueryPayload
from schemas.query import QueryRequest, QueryResult, Wire
from schemas.runs import RunState

SAVE_SECONDS = 0.1
"""What an answer leaves of the run's time to be written down."""


class Pins(Protocol):
    """Holds generations for readers."""

    def pin(self, tenant: str, name: str, deadline: Deadline) -> AbstractAsyncContextManager[Pinned]:
        """Hold the current generation of a corpus until the end of the block. Raises NotFound."""
        ...


class Answerer:
    """Answers questions: `ask` for a caller who waits, `answer` for a claimed unit.

    `heard` is told of each event on the way and of the result; it must not block or raise.
    """

    def __init__(self, pins: Pins, stage: QueryStage, heard: Callable[[Wire], None] = lambda body: None) -> None:
        self._pins = pins
        self._stage = stage
        self._heard = heard

    async def ask(
        self, tenant: str, corpus: str, request: QueryRequest, deadline: Deadline, emit: Emit | None = None
    ) -> QueryResult:
        """Return the answer from the generation that is current now; `emit` gets what happens on the way.

        Raises what `QueryStage.run` raises, and NotFound.
        """
        async with self._pins.pin(tenant, corpus, deadline) as pinned:
            return await self._run(pinned, request, deadline, emit)

    async def answer(self, work: Work) -> None:
        """Answer a queued question; what was found by the deadline is in the final event, if the request takes a part."""
        payload = QueryPayload.model_validate(work.lease.payload)
        deadline = work.deadline.earlier(SAVE_SECONDS)

        async def emit(body: Wire) -> None:
            async with work.fenced() as tx:
                tx.event(body)

        async with self._pins.pin(payload.tenant, payload.corpus, deadline) as pinned:
            result = await self._run(pinned, payload.request, deadline, emit)
        expired = not result.complete and work.deadline.remaining() <= SAVE_SECONDS
        async with work.fenced() as tx:
            tx.event(Expired(result=result) if expired else Completed(result=result))
            tx.finish(RunState.EXPIRED if expired else RunState.COMPLETED)

    async def _run(
        self, pinned: Pinned, request: QueryRequest, deadline: Deadline, emit: Emit | None = None
    ) -> QueryResult:
        async def passing(body: Wire) -> None:
            self._heard(body)
            if emit is not None:
                await emit(body)

        result = await self._stage.run(pinned, request, deadline, passing)
        self._heard(result)
        return result

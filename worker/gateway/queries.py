"""Routes of questions: enqueued for the workers, or answered here and now."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Request, Response

from pipeline.errors import DeadlineExceeded, SapwoodError
from schemas.events import Completed, Expired, Failed
from schemas.query import QueryResult, Wire
from worker.gateway.access import sapwood_of
from worker.gateway.limits import Limits
from worker.gateway.orders import Asking, CorpusName, Key, Question, RunView
from worker.gateway.presence import while_there
from worker.gateway.problems import OURS, status_of
from worker.gateway.sse import DESCRIBED, MEDIA_TYPE, EventStream, Pace, Say

router = APIRouter(prefix="/v1/corpora/{corpus}", tags=["queries"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": QueryResult,
        "description": "The answer; or its events as they come, where the client accepts text/event-stream.",
        "content": DESCRIBED,
    },
}


@router.post("/query-runs", status_code=202, summary="Enqueue a question")
async def enqueue(
    corpus: CorpusName,
    question: Question,
    request: Request,
    response: Response,
    principal: Asking,
    idempotency_key: Annotated[Key | None, Header()] = None,
) -> RunView:
    """Enqueue a question for the workers; its deadline counts from now, and its answer is in the run's final event."""
    sapwood = sapwood_of(request, principal)
    await cast("Limits", request.app.state.limits).share(sapwood)
    run = await sapwood.enqueue_query(corpus, question, key=idempotency_key)
    response.headers["Location"] = f"/v1/runs/{run.run_id}"
    return RunView.of(run)


@router.post("/query", summary="Ask a question", response_model=QueryResult, responses=_ANSWERS)
async def ask(
    corpus: CorpusName,
    question: Question,
    request: Request,
    principal: Asking,
    accept: Annotated[str, Header(description=f"`{MEDIA_TYPE}` for events as they come.")] = "",
) -> QueryResult | Response:
    """Answer a question by its deadline. A client that leaves cancels it."""
    sapwood = sapwood_of(request, principal)
    limits = cast("Limits", request.app.state.limits)
    if MEDIA_TYPE not in accept:
        with limits.query(principal.tenant):
            return await while_there(request.receive, lambda: sapwood.query(corpus, question))
    await sapwood.corpus(corpus)

    async def produce(say: Say) -> None:
        async def emit(body: Wire) -> None:
            await say(getattr(body, "type", "event"), body.model_dump_json(), None)

        try:
            result = await sapwood.query(corpus, question, emit)
            await emit(Completed(result=result))
        except DeadlineExceeded:
            await emit(Expired())
        except SapwoodError as error:
            detail = OURS if status_of(type(error)) == 500 else str(error)
            await emit(Failed(code=type(error).__name__, message=detail))

    return EventStream(produce, cast("Pace", request.app.state.pace), limits.query(principal.tenant))

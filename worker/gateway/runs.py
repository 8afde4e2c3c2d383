"""Routes of runs: enqueued, shown, cancelled, accounted for, and followed event by event."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any, cast

import anyio.to_thread
from fastapi import APIRouter, Body, Header, Query, Request, Response

from pipeline.errors import Forbidden, InvalidRequest
from pipeline.feeds import Entry
from schemas.documents import Outcome
from schemas.runs import RunKind
from worker.gateway.access import Scope, sapwood_of
from worker.gateway.limits import Limits
from worker.gateway.local import check_model, check_places
from worker.gateway.orders import (
    CancelOrder,
    CorpusName,
    DocumentPage,
    DocumentView,
    Indexing,
    IndexOrder,
    Inspecting,
    Key,
    Reading,
    RunName,
    RunView,
    may_see,
)
from worker.gateway.sse import DESCRIBED, EventStream, Pace, Said, Say
from worker.gateway.uploads import source_of

router = APIRouter(prefix="/v1", tags=["runs"])

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events as they come.", "content": DESCRIBED},
}
_MOST = (1 << 63) - 1

After = Annotated[int, Query(ge=0, le=_MOST, description="Only events after this number.")]
LastEventId = Annotated[str | None, Header(description="What a client sends when it connects again; it wins.")]


@router.post("/corpora/{corpus}/index-runs", status_code=202, summary="Enqueue an index run")
async def index(
    corpus: CorpusName,
    request: Request,
    response: Response,
    principal: Indexing,
    order: Annotated[IndexOrder, Body(default_factory=IndexOrder)],
    idempotency_key: Annotated[Key | None, Header()] = None,
) -> RunView:
    """Enqueue a run that makes the corpus mirror these sources. The same Idempotency-Key returns the first run.

    For another request than the first, the key is refused.
    """
    sapwood = sapwood_of(request, principal)
    check_model(order.settings, request.app.state.settings)
    await anyio.to_thread.run_sync(check_places, order.sources, request.app.state.settings, principal.tenant)
    await cast("Limits", request.app.state.limits).share(sapwood)
    sources = list(order.sources)
    if order.uploads:
        sources.append(await source_of(request.app.state.settings, (await sapwood.corpus(corpus)).corpus_id))
    run = await sapwood.index(
        corpus,
        sources,
        settings=order.settings,
        include=order.include,
        exclude=order.exclude,
        actor=order.actor,
        override_reason=order.override_reason,
        key=idempotency_key,
    )
    response.headers["Location"] = f"/v1/runs/{run.run_id}"
    return RunView.of(run)


@router.get("/corpora/{corpus}/runs", summary="List runs")
async def list_runs(
    corpus: CorpusName, request: Request, principal: Reading, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> list[RunView]:
    """Return the runs of a corpus, newest first."""
    return [RunView.of(run) for run in await sapwood_of(request, principal).runs(corpus, limit)]


@router.get("/runs/{run_id}", summary="Show a run")
async def show_run(run_id: RunName, request: Request, principal: Reading) -> RunView:
    """Return the state of a run."""
    return RunView.of(await sapwood_of(request, principal).info(run_id))


@router.post("/runs/{run_id}/cancel", status_code=202, summary="Cancel a run")
async def cancel(
    run_id: RunName,
    request: Request,
    principal: Reading,
    order: Annotated[CancelOrder, Body(default_factory=CancelOrder)],
) -> RunView:
    """Ask a run to stop. Its final event says when nothing of it works any more; one that has ended stays as it is.

    Takes the scope that could have made the run: `index` or `query`.
    """
    sapwood = sapwood_of(request, principal)
    needed = Scope.QUERY if (await sapwood.info(run_id)).kind is RunKind.QUERY else Scope.INDEX
    if needed not in principal.scopes:
        raise Forbidden(f"This key lacks the scope `{needed}`.")
    return RunView.of(await sapwood.request_cancel(run_id, order.reason))


@router.get("/runs/{run_id}/documents", summary="Account for every document of a run")
async def documents(
    run_id: RunName,
    request: Request,
    principal: Reading,
    after: Annotated[
        str, Query(max_length=4096, pattern=r"^[^\x00]*$", description="The `next` of the page before.")
    ] = "",
    outcome: Annotated[Outcome | None, Query(description="Only these.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DocumentPage:
    """Return the counts of all outcomes, and a page of documents with theirs."""
    sapwood = sapwood_of(request, principal)
    counts, _ = await sapwood.accounting(run_id, 1)
    found = await sapwood.outcomes(run_id, after, outcome, limit + 1)
    page = [
        DocumentView(document_id=one.document_id, outcome=one.outcome, reason=one.reason, chunks=one.chunks)
        for one in found[:limit]
    ]
    return DocumentPage(counts=counts, documents=page, next=page[-1].document_id if len(found) > limit else None)


@router.get(
    "/runs/{run_id}/events",
    status_code=200,
    summary="Follow a run",
    response_class=EventStream,
    responses=STREAM | {204: {"description": "The run has ended, and this client has its final event."}},
)
async def run_events(
    run_id: RunName, request: Request, principal: Reading, after: After = 0, last_event_id: LastEventId = None
) -> Response:
    """Send the events of a run, each once, in order, up to the final one; `id` is the number within the run.

    A client that leaves cancels nothing.
    """
    sapwood = sapwood_of(request, principal)
    begin = position(last_event_id, after)
    run = await sapwood.services.feeds.ask((principal.tenant, run_id), lambda: sapwood.info(run_id))
    may_see(principal, run)
    if run.state.terminal and begin >= run.last_seq:
        return Response(status_code=204)  # which tells a browser not to connect again

    async def produce(say: Say) -> None:
        async with aclosing(sapwood.services.feeds.run(run.run_id, begin)) as feed:
            async for entries in feed:
                await say.together(map(told, entries))

    return stream(request, principal.tenant, produce)


@router.get(
    "/corpora/{corpus}/events",
    status_code=200,
    summary="Follow all runs of a corpus",
    response_class=EventStream,
    responses=STREAM,
)
async def corpus_events(
    corpus: CorpusName, request: Request, principal: Inspecting, after: After = 0, last_event_id: LastEventId = None
) -> Response:
    """Send the events of all runs of a corpus, without end; `id` is the position within the corpus.

    An event `reset` says that events after this position are beyond retention.
    """
    sapwood = sapwood_of(request, principal)
    begin = position(last_event_id, after)
    found = await sapwood.services.feeds.ask((principal.tenant, "corpus", corpus), lambda: sapwood.corpus(corpus))

    async def produce(say: Say) -> None:
        async with aclosing(sapwood.services.feeds.corpus(found.corpus_id, begin)) as feed:
            async for entries in feed:
                await say.together(map(told, entries))

    return stream(request, principal.tenant, produce)


def told(entry: Entry) -> Said:
    """Return an entry of a feed as the client is told of it."""
    return entry.event.body.type, entry.text, str(entry.place)


def stream(request: Request, tenant: str, produce: Any) -> EventStream:
    """Return the response that sends what `produce` says, within the tenant's number of streams."""
    return EventStream(
        produce, cast("Pace", request.app.state.pace), cast("Limits", request.app.state.limits).stream(tenant)
    )


def position(last_event_id: str | None, after: int) -> int:
    """Return where to begin. Raises InvalidRequest for an id that no event of ours has."""
    if not last_event_id:
        return after
    if not last_event_id.isascii() or not last_event_id.isdecimal() or int(last_event_id[:20]) > _MOST:
        raise InvalidRequest("Last-Event-ID is the `id` of an event of this stream.")
    return int(last_event_id)

"""Routes of corpora: made, listed, shown, set, deleted; their generations and what is kept of them."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Body, Query, Request, Response

from pipeline.errors import Conflict, InvalidRequest, NotFound
from schemas.corpora import CorpusSummary
from worker.app import Sapwood
from worker.gateway.access import sapwood_of
from worker.gateway.limits import Limits
from worker.gateway.lines import MEDIA_TYPE, JsonLines
from worker.gateway.local import check_model
from worker.gateway.orders import (
    CollectOrder,
    CommunityView,
    CorpusName,
    CorpusOrder,
    CorpusView,
    Exporting,
    GenerationView,
    Indexing,
    Inspecting,
    Reading,
    RollbackOrder,
    RolledBack,
    SettingsOrder,
)
from worker.gateway.sse import Pace

router = APIRouter(prefix="/v1/corpora", tags=["corpora"])


@router.get("", summary="List corpora")
async def list_corpora(request: Request, principal: Reading) -> list[CorpusSummary]:
    """Return all corpora by name, with the counts of their current generations."""
    return await sapwood_of(request, principal).corpora()


@router.post("", status_code=201, summary="Make a corpus")
async def create_corpus(order: CorpusOrder, request: Request, response: Response, principal: Indexing) -> CorpusView:
    """Make a corpus. One of this name that is there already is a conflict; its settings have a route of their own."""
    sapwood = sapwood_of(request, principal)
    check_model(order.settings, request.app.state.settings)
    try:
        await sapwood.corpus(order.name)
    except NotFound:
        await sapwood.create_corpus(order.name, order.settings)
        response.headers["Location"] = f"/v1/corpora/{order.name}"
        return await _view(sapwood, order.name)
    raise Conflict(f"There is a corpus {order.name!r} already.")


@router.get("/{corpus}", summary="Show a corpus")
async def show_corpus(corpus: CorpusName, request: Request, principal: Reading) -> CorpusView:
    """Return its settings, sources and current generation."""
    return await _view(sapwood_of(request, principal), corpus)


@router.put("/{corpus}/settings", summary="Replace the settings of a corpus")
async def set_settings(corpus: CorpusName, order: SettingsOrder, request: Request, principal: Indexing) -> CorpusView:
    """Replace all settings; the next index run follows them."""
    sapwood = sapwood_of(request, principal)
    check_model(order.settings, request.app.state.settings)
    await sapwood.set_settings(corpus, order.settings)
    return await _view(sapwood, corpus)


@router.delete("/{corpus}", status_code=204, summary="Delete a corpus")
async def delete_corpus(corpus: CorpusName, request: Request, principal: Indexing) -> None:
    """Delete a corpus with its uploaded files and all that came from it; a run under way finds itself fenced out."""
    await sapwood_of(request, principal).delete_corpus(corpus)


@router.get("/{corpus}/generations", summary="List generations")
async def list_generations(corpus: CorpusName, request: Request, principal: Reading) -> list[GenerationView]:
    """Return all generations, newest first."""
    found = await sapwood_of(request, principal).generations(corpus)
    return [GenerationView.model_validate(one) for one in found]


@router.get("/{corpus}/communities", summary="List communities")
async def list_communities(
    corpus: CorpusName,
    request: Request,
    principal: Inspecting,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[CommunityView]:
    """Return the communities of the current generation, largest first."""
    found = await sapwood_of(request, principal).communities(corpus, limit)
    return [CommunityView.model_validate(one) for one in found]


@router.get(
    "/{corpus}/export",
    status_code=200,
    summary="Export a generation",
    response_class=JsonLines,
    responses={
        200: {"description": "One JSON object a line.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
    },
)
async def export(
    corpus: CorpusName,
    request: Request,
    principal: Exporting,
    generation: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Which; default: the current one.")] = None,
    graph: Annotated[bool, Query(description="Only the current graph, from the store that serves it.")] = False,
) -> Response:
    """Send a generation as canonical JSON lines: equal contents give equal bytes after the first line.

    Counts as a stream. An answer that ends early has its connection cut; only a whole one ends in order.
    """
    if graph and generation is not None:
        raise InvalidRequest("`graph` reads the current generation; leave `generation` out.")
    sapwood = sapwood_of(request, principal)
    await sapwood.corpus(corpus)
    return JsonLines(
        lambda: sapwood.export_graph(corpus) if graph else sapwood.export(corpus, generation),
        cast("Pace", request.app.state.pace).send,
        cast("Limits", request.app.state.limits).stream(principal.tenant),
    )


@router.post("/{corpus}/rollback", summary="Publish an earlier generation again")
async def rollback(corpus: CorpusName, order: RollbackOrder, request: Request, principal: Indexing) -> RolledBack:
    """Publish a retained earlier generation under a new number."""
    number = await sapwood_of(request, principal).rollback(corpus, order.generation)
    return RolledBack(generation=number, source=order.generation)


@router.post("/{corpus}/gc", summary="Remove what nobody can see")
async def collect(
    corpus: CorpusName,
    request: Request,
    principal: Indexing,
    order: Annotated[CollectOrder, Body(default_factory=CollectOrder)],
) -> dict[str, Any]:
    """Remove what no current, retained or pinned generation can see, and return the counts of what went."""
    return await sapwood_of(request, principal).gc(corpus, order.keep)


async def _view(sapwood: Sapwood, name: str) -> CorpusView:
    corpus = await sapwood.corpus(name)
    sources = await sapwood.sources(name)
    return CorpusView(name=corpus.name, generation=corpus.generation, settings=corpus.settings, sources=sources)

"""Routes of graphs for agents: what is published, a proposal for it, and the query itself, for programs."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Request
from pydantic import Field, JsonValue
from starlette.responses import JSONResponse, Response

from pipeline.errors import Refusal
from pipeline.graphtools.definitions import QUERY
from pipeline.graphtools.refusal import Code
from schemas.exposed import Camel, GraphSchema
from schemas.published import NAME, Publication, PublishedGraph
from worker.gateway.access import sapwood_of
from worker.gateway.limits import Limits
from worker.gateway.orders import Administering, Asking, CorpusName, Exporting, Inspecting, Order
from worker.gateway.presence import while_there
from worker.gateway.problems import MEDIA_TYPE, Problem

router = APIRouter(prefix="/v1", tags=["graphs"])

GraphName = Annotated[str, Path(pattern=f"^{NAME}$", description="The name by which agents ask for the graph.")]

STATUS = {
    Code.UNKNOWN_KNOWLEDGE_SOURCE: 404,
    Code.QUERY_NOT_ALLOWED: 403,
    Code.QUERY_TIMEOUT: 504,
    Code.QUERY_FAILED: 500,
    Code.CONNECTION_FAILED: 503,
    Code.SPACE_NOT_FOUND: 404,
}
"""How refusals are answered; every other one is 422."""


class PublicationOrder(Order, Publication):
    """A graph to be published; see the fields."""


class MatchOrder(Order):
    """A portable MATCH query. `cursor` is the `nextCursor` of the page before, with the same query and parameters."""

    expression: str = Field(min_length=1, max_length=100_000)
    parameters: dict[str, JsonValue] = Field(default={}, max_length=1000)
    page_size: int | None = Field(default=None, ge=1, le=9999)
    cursor: str | None = Field(default=None, max_length=100)
    disclosure_token: str | None = Field(default=None, max_length=100_000)


class MatchMetadata(Camel):
    """About a page: `limit` names what cut it short, if something did."""

    record_count: int
    truncated: bool
    execution_time_millis: int
    has_next: bool
    next_cursor: str
    limit: str = ""


class MatchPage(Camel):
    """A page of records: values, nodes, edges and paths by the names of the columns, in their order."""

    knowledge_source_name: str
    records: list[dict[str, Any]]
    metadata: MatchMetadata


class RefusalProblem(Problem):
    """Why a query was refused: `code` as agents are told it; `line` and `column` say where, from 1, or are 0."""

    kind: str = ""
    line: int = 0
    column: int = 0


_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": RefusalProblem, "description": "The query is refused; `code` says why."} for status in (403, 422)
}


@router.get("/graphs", summary="List published graphs")
async def listing(request: Request, principal: Inspecting) -> list[PublishedGraph]:
    """Return what agents may ask of this tenant, by name."""
    return await sapwood_of(request, principal).graphs.listing()


@router.get("/graphs/{name}", summary="Show a published graph")
async def show(name: GraphName, request: Request, principal: Inspecting) -> PublishedGraph:
    """Return what is published under a name."""
    return await sapwood_of(request, principal).graphs.get(name)


@router.put("/graphs/{name}", summary="Publish a graph")
async def publish(
    name: GraphName, order: PublicationOrder, request: Request, principal: Administering
) -> PublishedGraph:
    """Let agents ask the graph of a corpus under this name, in place of what was published there."""
    what = Publication.model_validate({field: getattr(order, field) for field in Publication.model_fields})
    return await sapwood_of(request, principal).graphs.publish(name, what)


@router.delete("/graphs/{name}", status_code=204, summary="Publish a graph no longer")
async def remove(name: GraphName, request: Request, principal: Administering) -> None:
    """Take a graph away from agents; the corpus stays as it is."""
    await sapwood_of(request, principal).graphs.remove(name)


@router.post("/graphs/{name}/match", summary="Ask a graph", response_model=MatchPage, responses=_REFUSALS)
async def match(name: GraphName, order: MatchOrder, request: Request, principal: Asking) -> Response:
    """Return a page of the records of a query. A client that leaves cancels it."""
    sapwood = sapwood_of(request, principal)
    asked = {
        "knowledgeSourceName": name,
        "expression": order.expression,
        "parameters": order.parameters,
        "pageSize": order.page_size,
        "cursor": order.cursor,
        "disclosureToken": order.disclosure_token,
    }

    async def ask() -> dict[str, object]:
        return await (await sapwood.graphs.tools()).run(QUERY, asked)

    try:
        with cast("Limits", request.app.state.limits).query(principal.tenant):
            return JSONResponse(await while_there(request.receive, ask))
    except Refusal as refusal:
        return refused(refusal)


@router.get("/corpora/{corpus}/graph-schema", summary="Propose what to publish", response_model_exclude_defaults=True)
async def propose(corpus: CorpusName, request: Request, principal: Exporting) -> GraphSchema:
    """Return a schema made from what the current generation holds, most frequent types first; for a person to trim."""
    return await while_there(request.receive, lambda: sapwood_of(request, principal).graphs.propose(corpus))


def refused(refusal: Refusal) -> Response:
    """Return a refusal as problem details."""
    status = STATUS.get(cast("Code", refusal.code), 422)
    body = RefusalProblem(
        title=str(refusal.code),
        status=status,
        detail=str(refusal),
        code=str(refusal.code),
        kind=str(refusal.kind),
        line=refusal.line,
        column=refusal.column,
    )
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse(body.model_dump(), status, headers=headers, media_type=MEDIA_TYPE)

"""The route of questions about source code: read-only, bounded, and each answer from the generation that was current."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from pipeline.codegraph.questions import MAX_DEPTH, MAX_REFERENCES, Questions
from pipeline.errors import NotFound
from schemas.code import CodeAnswer, CodeQuestion
from worker.gateway.inspection import Inspecting, Text, looking
from worker.gateway.problems import RESPONSES

router = APIRouter(prefix="/api/graph/{corpus_id}/code", tags=["inspection"], responses=RESPONSES)

_SYMBOL = "`path::Class.method`, the end of it (`Class.method`), or a name."

SymbolText = Annotated[Text, Query(min_length=1, max_length=4096, description=_SYMBOL)]


@router.get("/{question}", summary="Ask about source code")
async def ask(
    request: Request,
    corpus_id: str,
    question: CodeQuestion,
    principal: Inspecting,
    symbol: SymbolText,
    to: Annotated[Text, Query(max_length=4096, description="For `path`: where the chain of calls is to end.")] = "",
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="How many steps to go; not for `path`.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MAX_REFERENCES)] = 100,
) -> CodeAnswer:
    """Answer who calls a symbol, what it calls, its bases and subclasses, who imports a module, or how calls lead on.

    A symbol that may be one of several is refused with the ids of those.
    """
    async with looking(request, principal, corpus_id) as look:
        if look is None:
            raise NotFound(f"There is no graph of {corpus_id} yet.")
        return await Questions(look.inspector, look.graph, look.deadline).ask(question, symbol, to, depth, limit)

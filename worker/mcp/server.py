"""The tools as an MCP server. This module needs the extra `mcp`, and is loaded only where the protocol is spoken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    TextContent,
    Tool,
    ToolAnnotations,
)

from pipeline.errors import RunCancelled, SapwoodError
from pipeline.graphtools.definitions import SYSTEM_PROMPT
from schemas.query import Wire
from worker.gateway.presence import while_there
from worker.mcp.toolbox import Answer, Toolbox, ToolSpec

VERSION = version("sapwood")
"""Read once, since it is a look at files."""

PROMPT = "graph-questions"

INSTRUCTIONS = (
    "Ask knowledge graphs in three stages (list types, describe some, query), and documents with `retrieve`. "
    f"The prompt `{PROMPT}` says how to write queries and what to do about errors."
)

Hold = Callable[[], AbstractContextManager[None]]
"""Returns what is held while a tool works; it raises where there are too many at work."""


def make_server(toolbox: Toolbox, hold: Hold = nullcontext) -> Server[Any]:
    """Return a server that offers the tools, and the prompt that says how to use them."""

    async def list_tools(_: Any, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(one) for one in await toolbox.listing()])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        said = 0

        async def emit(body: Wire) -> None:
            nonlocal said
            said += 1
            await context.session.report_progress(said, message=body.model_dump_json())

        async def work() -> Answer:
            with hold():
                return await toolbox.call(params.name, params.arguments or {}, emit)

        found = await _present(context, work)
        return CallToolResult(content=[TextContent(type="text", text=found.text)], is_error=found.wrong)

    async def list_prompts(_: Any, __: PaginatedRequestParams | None) -> ListPromptsResult:
        about = "How to answer questions from knowledge graphs with the three tools."
        return ListPromptsResult(prompts=[Prompt(name=PROMPT, description=about)])

    async def get_prompt(_: Any, params: GetPromptRequestParams) -> GetPromptResult:
        if params.name != PROMPT:
            raise MCPError(INVALID_PARAMS, f"There is no such prompt; there is {PROMPT}.")
        said = PromptMessage(role="user", content=TextContent(type="text", text=SYSTEM_PROMPT))
        return GetPromptResult(messages=[said])

    return Server(
        "sapwood",
        version=VERSION,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


async def _present(context: Any, work: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what the work returns; over HTTP it ends when the client leaves, too."""
    try:
        if context.request is None:
            return await work()
        return await while_there(context.request.receive, work)
    except RunCancelled:
        return Answer("Error: CANCELLED: The client left.", wrong=True)
    except SapwoodError as error:
        return Answer(f"Error: {type(error).__name__}: {error}", wrong=True)


def _tool(one: ToolSpec) -> Tool:
    hints = ToolAnnotations(
        read_only_hint=one.reads, destructive_hint=not one.reads, idempotent_hint=True, open_world_hint=False
    )
    return Tool(name=one.name, description=one.description, input_schema=one.schema, annotations=hints)

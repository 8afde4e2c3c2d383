"""Tool calls as the APIs of two model providers write them, and their answers under the same ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest
from pipeline.graphtools.present import Json
from pipeline.graphtools.tools import KnowledgeGraphTools


class _Lenient(BaseModel):
    """Of an object of an API, what is needed; there may be more in it. Objects of a client library do as well as dicts."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class _Function(_Lenient):
    name: str
    arguments: str


class _Call(_Lenient):
    id: str
    function: _Function


class _Block(_Lenient):
    type: str
    id: str = ""
    name: str = ""
    input: Any = None


T = TypeVar("T")

_calls: TypeAdapter[list[_Call]] = TypeAdapter(list[_Call])
_blocks: TypeAdapter[list[_Block]] = TypeAdapter(list[_Block])


async def answer_openai(
    tools: KnowledgeGraphTools, calls: Iterable[object], deadline: Deadline | None = None
) -> list[Json]:
    """Return the messages that answer the `tool_calls` of an assistant's message, one for each, in their order.

    Raises:
        InvalidRequest: these are no tool calls.
    """
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": await tools.call(call.function.name, call.function.arguments, deadline),
        }
        for call in _read(_calls, calls)
    ]


async def answer_anthropic(
    tools: KnowledgeGraphTools, content: Iterable[object], deadline: Deadline | None = None
) -> Json:
    """Return the message that answers the `tool_use` blocks of an assistant's content, in their order.

    Raises:
        InvalidRequest: this is no content.
    """
    results: list[Json] = []
    for block in _read(_blocks, content):
        if block.type == "tool_use":
            told = await tools.call(block.name, block.input, deadline)
            wrong = {"is_error": True} if told.startswith("Error: ") else {}
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": told, **wrong})
    return {"role": "user", "content": results}


def _read(adapter: TypeAdapter[list[T]], given: Iterable[object]) -> list[T]:
    try:
        return adapter.validate_python(list(given))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InvalidRequest(f"These are no calls of tools: {where} is missing or of another type.") from None

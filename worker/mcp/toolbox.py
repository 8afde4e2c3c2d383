"""What agents are offered, whatever the protocol: graph questions, retrieval, and facts that they keep for themselves."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from pydantic import Field, ValidationError

from pipeline.errors import SapwoodError, StoreRefused
from pipeline.graphs.knowledge import KnowledgeTools, tool_schemas
from pipeline.graphtools.definitions import DESCRIBE, LIST, QUERY
from pipeline.tenancy import apart
from schemas.query import QueryRequest, QueryResult, Wire
from worker.app import Sapwood

RETRIEVE = "retrieve"

MOST_CORPORA = 100
"""Corpora whose names stand in the definition of a tool."""

MOST_HITS = 50

FAILED = "Error: FAILED: Something is wrong inside of the service; its log says what."

_LIVE = tuple(str(one["name"]) for one in tool_schemas("anthropic"))
_WRITES = frozenset({"kg_add_triple", "kg_remove_triple"})

Emit = Callable[[Wire], Awaitable[None]]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as its callers see it; `reads` says that it changes nothing."""

    name: str
    description: str
    schema: dict[str, Any]
    reads: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned; `wrong` if it tells the caller what to do otherwise."""

    text: str
    wrong: bool = False


class RetrieveArguments(Wire):
    """Find passages of documents that help to answer a question. They come with their file and lines: name these."""

    question: str = Field(min_length=1, max_length=20_000, description="The question, in whole words.")
    corpus: str = Field(min_length=1, max_length=100, description="The corpus to search.")
    top_k: int = Field(default=5, ge=1, le=MOST_HITS, description="How many passages at most.")
    deadline: float = Field(default=10.0, gt=0, le=300, description="Seconds after which what was found is returned.")


class Toolbox:
    """The tools over one tenant's data. `live` holds triples that the caller keeps; without it those tools are not there.

    Triples are seen by all retrieval in the process: give one only where the process serves a single tenant.
    """

    def __init__(self, sapwood: Sapwood, live: KnowledgeTools | None = None) -> None:
        self._sapwood = sapwood
        self._live = live

    async def listing(self) -> list[ToolSpec]:
        """Return the tools as they are now: their definitions name what is published, and the corpora."""
        with apart(self._sapwood.tenant):
            graphs = (await self._sapwood.graphs.tools()).definitions("anthropic")
            corpora = [one.name for one in await self._sapwood.corpora() if one.generation is not None]
        live = tool_schemas("anthropic") if self._live else []
        return [_spec(one) for one in (*graphs, _retrieve(corpora), *live)]

    async def call(self, name: str, arguments: Mapping[str, Any], emit: Emit) -> Answer:
        """Run a tool. `emit` gets the events of a retrieval, and is waited for. A cancelled call ends in the stores, too."""
        with apart(self._sapwood.tenant):
            try:
                return await self._call(name, arguments, emit)
            except SapwoodError as error:
                if type(error) in (SapwoodError, StoreRefused):
                    _report(name, error)
                    return Answer(FAILED, wrong=True)
                return Answer(f"Error: {type(error).__name__}: {error}", wrong=True)
            except Exception as error:
                _report(name, error)
                return Answer(FAILED, wrong=True)

    async def _call(self, name: str, arguments: Mapping[str, Any], emit: Emit) -> Answer:
        if name in (LIST, DESCRIBE, QUERY):
            text = await (await self._sapwood.graphs.tools()).call(name, dict(arguments))
            return Answer(text, wrong=text.startswith("Error: "))
        if name == RETRIEVE:
            return await self._retrieved(arguments, emit)
        if self._live and name in _LIVE:
            told = self._live.call(name, dict(arguments))
            return Answer(orjson.dumps(told).decode(), wrong="error" in told)
        known = (LIST, DESCRIBE, QUERY, RETRIEVE, *(_LIVE if self._live else ()))
        return Answer(
            f"Error: UNKNOWN_TOOL: There is no tool {name[:100]!r}; there are {', '.join(known)}.", wrong=True
        )

    async def _retrieved(self, arguments: Mapping[str, Any], emit: Emit) -> Answer:
        try:
            asked = RetrieveArguments.model_validate(arguments)
            request = QueryRequest(text=asked.question, top_k=asked.top_k, deadline=asked.deadline)
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()]
            return Answer(f"Error: INVALID_ARGUMENT: {'; '.join(lines)}", wrong=True)
        return Answer(_passages(await self._sapwood.query(asked.corpus, request, emit)))


def _spec(definition: Mapping[str, Any]) -> ToolSpec:
    name = str(definition["name"])
    return ToolSpec(name, definition["description"], definition["input_schema"], name not in _WRITES)


def _retrieve(corpora: list[str]) -> dict[str, Any]:
    schema = RetrieveArguments.model_json_schema()
    fields = {name: {k: v for k, v in one.items() if k != "title"} for name, one in schema["properties"].items()}
    if 0 < len(corpora) <= MOST_CORPORA:
        fields["corpus"]["enum"] = corpora
    return {
        "name": RETRIEVE,
        "description": schema["description"],
        "input_schema": {
            "type": "object",
            "properties": fields,
            "required": schema["required"],
            "additionalProperties": False,
        },
    }


def _passages(result: QueryResult) -> str:
    shown = {"document", "lines", "title", "headings", "text", "score"}
    told = {
        "generation": result.generation,
        "complete": result.complete,
        "missing": result.missing,
        "hits": [hit.model_dump(mode="json", include=shown) for hit in result.hits],
    }
    return orjson.dumps(told).decode()


def _report(name: str, error: Exception) -> None:
    """Log what the caller is not told. Only our own errors are known to hold no statement and no secret."""
    text = str(error) if isinstance(error, SapwoodError) else ""
    places = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
    _log.warning("mcp.failed", tool=name, code=type(error).__name__, error=text, places=places[-3:])

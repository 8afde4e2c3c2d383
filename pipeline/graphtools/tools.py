"""The three tools with which an agent asks graphs: list the types, describe some of them, query.

Answers are texts: JSON, or `Error: CODE: message` where the agent is to do something else. Nothing that an agent sends can
name a store, a space, a generation or another tenant: it chooses among the sources that it was given, by name.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import anyio
import structlog
from anyio import to_thread

from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    NotFound,
    Refusal,
    SapwoodError,
    StoreUnavailable,
)
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.check import check
from pipeline.graphtools.cursor import Cursor, fingerprint
from pipeline.graphtools.definitions import (
    DESCRIBE,
    LIST,
    QUERY,
    Arguments,
    DescribeArguments,
    ListArguments,
    QueryArguments,
    Shape,
    definitions,
    parsed,
)
from pipeline.graphtools.disclosure import Disclosure
from pipeline.graphtools.execution import Bounds, Rows
from pipeline.graphtools.parse import parse, prepare
from pipeline.graphtools.plan import Plan
from pipeline.graphtools.present import Json, Presenter, cleaned, described, headed, listed, metadata
from pipeline.graphtools.query import Query
from pipeline.graphtools.refusal import Code, answer, invalid_argument
from pipeline.graphtools.source import KnowledgeSource, SourceSet

MOST_MESSAGE = 500
"""Characters of the message of an error."""

STALE = "graph page cursor belongs to data that is no longer kept; ask again without a cursor"

FOREIGN = (
    "graph page cursor belongs to a different query, or to data that is no longer kept; ask again without a cursor"
)

Mark = Callable[[str], str]
"""Returns the fingerprint of the query at hand for a graph id."""

_FAILED: Mapping[type[Arguments], tuple[Code, str]] = {
    ListArguments: (Code.SCHEMA_DISCLOSURE_FAILED, "The knowledge graph schema could not be listed"),
    DescribeArguments: (
        Code.SCHEMA_DISCLOSURE_FAILED,
        "The requested graph schema details could not be returned",
    ),
    QueryArguments: (Code.QUERY_FAILED, "The knowledge graph query could not be completed"),
}

_log = structlog.get_logger(__name__)


class KnowledgeGraphTools:
    """The tools over one tenant's sources. No state is kept between calls; any number of tasks may share it.

    With a `disclosure`, the second tool hands out a token that the third one demands: types that were not described, or
    not since the data changed, cannot be queried. A call that is cancelled ends in its store, too.
    """

    def __init__(self, sources: SourceSet, max_schema_elements: int = 10, disclosure: Disclosure | None = None) -> None:
        if max_schema_elements < 1:
            raise ConfigurationError("max schema elements must be positive")
        self._sources = sources
        self._most = max_schema_elements
        self._disclosure = disclosure
        self._prepared = False

    def definitions(self, shape: Shape = "openai") -> list[Json]:
        """Return the definitions of the tools, in their order, as the API of this name takes them."""
        demanding = [self._disclosed(source) is not None for source in self._sources]
        return definitions(self._sources, shape, any(demanding), all(demanding))

    async def list_types(self, knowledge_source_name: str) -> str:
        """Return the types that a source exposes, without their properties."""
        return await self.call(LIST, {"knowledgeSourceName": knowledge_source_name})

    async def describe_types(
        self, knowledge_source_name: str, node_labels: Sequence[str] = (), edge_types: Sequence[str] = ()
    ) -> str:
        """Return these types with their properties."""
        named = {"nodeLabels": node_labels, "edgeTypes": edge_types}
        return await self.call(DESCRIBE, {"knowledgeSourceName": knowledge_source_name, **named})

    async def query(
        self,
        knowledge_source_name: str,
        expression: str,
        parameters: Mapping[str, object] | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
        disclosure_token: str | None = None,
    ) -> str:
        """Return a page of the records of a query."""
        asked = {"knowledgeSourceName": knowledge_source_name, "expression": expression, "parameters": parameters}
        paged = {"pageSize": page_size, "cursor": cursor, "disclosureToken": disclosure_token}
        return await self.call(QUERY, asked | paged)

    async def call(self, name: str, arguments: object, deadline: Deadline | None = None) -> str:
        """Run a tool as a model asks for it: by name, with a mapping of arguments or its JSON text.

        It ends by the deadline, or that of the source if it is earlier.
        """
        try:
            return await self._answer(parsed(name, arguments), deadline or Deadline.never())
        except Refusal as refusal:
            return answer(Refusal(refusal.code, cleaned(str(refusal), MOST_MESSAGE)))

    async def run(self, name: str, arguments: object, deadline: Deadline | None = None) -> Json:
        """As `call`, for programs: return the answer as values. Raises Refusal."""
        text = await self._answer(parsed(name, arguments), deadline or Deadline.never())
        answer: Json = json.loads(text)
        return answer

    async def _answer(self, asked: Arguments, deadline: Deadline) -> str:
        try:
            return _text(await self._result(asked, deadline))
        except Refusal:
            raise
        except Exception as error:
            _report(error, asked.knowledge_source_name)
            raise Refusal(*_FAILED[type(asked)]) from error

    async def _result(self, asked: Arguments, deadline: Deadline) -> Json:
        source = self._source(asked.knowledge_source_name)
        match asked:
            case QueryArguments():
                return await self._query(source, asked, deadline)
            case DescribeArguments():
                return await self._describe(source, asked, deadline)
            case _:
                return _list(source)

    def _source(self, name: str) -> KnowledgeSource:
        if not name.strip():
            raise invalid_argument("knowledgeSourceName must not be blank")
        source = self._sources.get(name)
        if source is None:
            known = ", ".join(self._sources.names)
            message = f"Unknown knowledge source '{cleaned(name, 200)}'; available sources: [{known}]"
            raise Refusal(Code.UNKNOWN_KNOWLEDGE_SOURCE, message)
        return source

    def _disclosed(self, source: KnowledgeSource) -> Disclosure | None:
        return source.disclosure or self._disclosure

    async def _prepare(self) -> None:
        if not self._prepared:
            await to_thread.run_sync(prepare)
            self._prepared = True

    async def _describe(self, source: KnowledgeSource, asked: DescribeArguments, deadline: Deadline) -> Json:
        labels, types = (list(dict.fromkeys(names or ())) for names in (asked.node_labels, asked.edge_types))
        if not labels and not types:
            raise invalid_argument("At least one node label or edge type is required")
        if not all(name.strip() for name in (*labels, *types)):
            raise invalid_argument("Schema element names must not be blank")
        if len(labels) + len(types) > self._most:
            message = f"At most {self._most} schema elements may be expanded in one call"
            raise Refusal(Code.SCHEMA_DISCLOSURE_LIMIT, message)
        nodes = {node.label: node for node in source.schema.node_types}
        edges = {edge.type: edge for edge in source.schema.edge_types}
        told: Json = {
            "knowledgeSourceName": source.name,
            "nodeTypes": [described(nodes[_known(label, nodes, "node label")]) for label in labels],
            "edgeTypes": [described(edges[_known(kind, edges, "edge type")]) for kind in types],
            "nextStep": f"Build a portable MATCH query using only the returned names, then call {QUERY}.",
        }
        if disclosure := self._disclosed(source):
            deadline = _by(source, deadline)
            with _store(source, deadline):
                async with source.graphs.pin(None, deadline) as graph:
                    token = disclosure.token(source.name, graph.graph_id, labels, types)
            told["disclosureToken"] = token
        return told

    async def _query(self, source: KnowledgeSource, asked: QueryArguments, deadline: Deadline) -> Json:
        """Ask the store only what was checked: nothing before the last step touches it."""
        started, deadline = anyio.current_time(), _by(source, deadline)
        size = source.default_page_size if asked.page_size is None else asked.page_size
        if not 1 <= size <= source.max_page_size:
            raise invalid_argument(f"pageSize must be between 1 and {source.max_page_size}")
        await self._prepare()
        query = parse(asked.expression, asked.parameters or {})
        plan = check(query, source.schema, source.max_hops)
        cursor = Cursor.read(asked.cursor) if asked.cursor and asked.cursor.strip() else None
        mark = partial(fingerprint, source.name, source.space, query)
        with _store(source, deadline, paging=cursor is not None):
            graph = await _begun(source, mark, cursor, deadline) if cursor else None
            async with source.graphs.pin(graph, deadline) as pinned:
                if disclosure := self._disclosed(source):
                    labels, types = _used(query)
                    token = asked.disclosure_token
                    disclosure.check(token, source.name, pinned.graph_id, labels, types)
                offset = cursor.offset if cursor else 0
                bounds = Bounds(rows=size + 1, offset=offset, steps=source.steps, fetch=source.fetch)
                rows = await source.executor.match(pinned, plan, bounds, deadline)
        following = str(Cursor(offset + size, mark(pinned.graph_id))) if len(rows.rows) > size else ""
        spent = int((anyio.current_time() - started) * 1000)
        return _page(source, plan, Rows(rows.rows[:size], rows.limit), following, spent)


def _list(source: KnowledgeSource) -> Json:
    return {
        "knowledgeSourceName": source.name,
        "schema": headed(source.schema),
        "nodeTypes": [listed(one) for one in source.schema.node_types],
        "edgeTypes": [listed(one) for one in source.schema.edge_types],
        "nextStep": f"Call {DESCRIBE} for only the node and edge types needed by the query.",
    }


def _known(name: str, known: Collection[str], what: str) -> str:
    if name not in known:
        raise Refusal(Code.UNKNOWN_GRAPH_TYPE, f"Unknown {what}: {name}")
    return name


def _used(query: Query) -> tuple[list[str], list[str]]:
    """Return the labels and the edge types that a query names."""
    labels = [label for node in query.nodes for label in node.labels]
    return labels, [kind for edge in query.edges for kind in edge.types]


def _by(source: KnowledgeSource, deadline: Deadline) -> Deadline:
    return min(deadline, Deadline.after(source.timeout))


async def _begun(source: KnowledgeSource, mark: Mark, cursor: Cursor, deadline: Deadline) -> GraphRef:
    """Return the generation from which the walk that a cursor continues took its first page."""
    for graph in await source.graphs.retained(deadline):
        if mark(graph.graph_id) == cursor.fingerprint:
            return graph
    raise invalid_argument(FOREIGN)


def _page(source: KnowledgeSource, plan: Plan, rows: Rows, following: str, spent: int) -> Json:
    presenter, names = Presenter(source.schema), [column.name for column in plan.columns]
    return {
        "knowledgeSourceName": source.name,
        "records": [presenter.record(names, row) for row in rows.rows],
        "metadata": metadata(len(rows.rows), spent, following, rows.limit),
    }


def _text(told: Json) -> str:
    return json.dumps(told, ensure_ascii=False, allow_nan=False, indent=1, separators=(",", ":"))


@contextmanager
def _store(source: KnowledgeSource, deadline: Deadline, paging: bool = False) -> Generator[None, None, None]:
    """Bound what is asked of the store by the deadline, and tell its failures without its words.

    The deadline is the store's to keep; this only ends one that does not.
    """
    try:
        with anyio.fail_after(deadline.remaining()):
            yield
    except (DeadlineExceeded, TimeoutError) as error:
        raise _reported(error, source, Code.QUERY_TIMEOUT, "The knowledge graph query timed out") from error
    except StoreUnavailable as error:
        message = "The knowledge graph backend is unavailable"
        raise _reported(error, source, Code.CONNECTION_FAILED, message) from error
    except NotFound as error:
        if paging:
            raise invalid_argument(STALE) from error
        message = "The configured knowledge graph space is unavailable"
        raise _reported(error, source, Code.SPACE_NOT_FOUND, message) from error


def _reported(error: Exception, source: KnowledgeSource, code: Code, message: str) -> Refusal:
    _report(error, source.name)
    return Refusal(code, message)


def _report(error: Exception, source: str) -> None:
    """Log what an agent is not told. Only our own errors are known to hold no statement and no secret; of others, where."""
    code, text = type(error).__name__, str(error) if isinstance(error, SapwoodError) else ""
    places = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
    _log.warning("graphtools.failed", source=source, code=code, error=text, places=places[-3:])

"""The commands about graphs for agents: `sapwood graph …` and `sapwood match`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import anyio.to_thread
import orjson
import typer
from pydantic import ValidationError

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, Refusal
from pipeline.graphtools.definitions import QUERY
from pipeline.graphtools.ready import READY
from pipeline.graphtools.refusal import Code
from schemas.exposed import GraphSchema
from schemas.published import GraphLimits, Publication, PublishedGraph
from worker import show
from worker.app import Sapwood
from worker.code_commands import no_code_graph
from worker.commands import Json, run, seconds

MOST_PAGES = 10_000
"""Pages that `--all` fetches at most."""

TAB = 4
"""Columns of a tab in a line that is shown."""

MOST_SHOWN = 400
"""Characters of a cell that a table shows."""

USAGE, FAILED, STOPPED = 2, 1, 4

_CODES = {Code.QUERY_TIMEOUT: STOPPED, **dict.fromkeys((Code.CONNECTION_FAILED, Code.QUERY_FAILED), FAILED)}
"""Exit codes of refusals that are not about what was asked."""

Tenant = Annotated[str, typer.Option(help="Whose graph it is.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name by which agents ask for it.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A published graph: `sapwood graph list`.")]
Param = Annotated[
    list[str],
    typer.Option("--param", metavar="KEY=VALUE", help="The value of `:key`: JSON, or else text as it stands."),
]


graphs = typer.Typer(no_args_is_help=True, help="Let agents ask the graph of a corpus, through an allow-list.")


def valued(parameters: Sequence[str]) -> dict[str, object]:
    """Return the values in `key=value` texts; what is no JSON is text. Raises InvalidRequest."""
    found: dict[str, object] = {}
    for one in parameters:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--param {one!r}: write KEY=VALUE, e.g. `--param name=Ada` or `--param least=3`.")
        try:
            found[name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            found[name] = text
    return found


def read_schema(text: bytes, where: str) -> GraphSchema:
    """Return the schema in a text of JSON. Raises InvalidRequest, a line for each fault with its place."""
    try:
        return GraphSchema.model_validate_json(text)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'schema'}: {one['msg']}" for one in error.errors()]
        raise InvalidRequest("\n  ".join([f"{where} is no graph schema:", *lines])) from None


def pointed(expression: str, refusal: Refusal) -> str:
    """Return a refusal with the line of the query that it is about, and a caret under the column."""
    said = f"{refusal.code}: {refusal}"
    if not refusal.line:
        return said
    lines = expression.split("\n")
    line = lines[refusal.line - 1] if refusal.line <= len(lines) else ""
    lead = " " * len(line[: refusal.column - 1].expandtabs(TAB))
    return f"{said}\n  {line.expandtabs(TAB)}\n  {lead}^"


@graphs.command("propose")
def propose(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="Name of the corpus.")],
    tenant: Tenant = "default",
) -> None:
    """Print an allow-list made from what the graph of CORPUS holds, most frequent types first; then trim it.

    Example: `sapwood graph propose handbook > schema.json`
    """

    async def action(sapwood: Sapwood) -> int:
        proposal = await _for(sapwood, tenant).graphs.propose(corpus)
        sys.stdout.write(proposal.model_dump_json(indent=2, exclude_defaults=True) + "\n")
        return 0

    run(action)


@graphs.command("publish")
def publish(
    name: Name,
    schema: Annotated[
        str,
        typer.Argument(metavar="FILE", help="The allow-list as JSON; `-` reads standard input, `code` is ready-made."),
    ],
    corpus: Annotated[str, typer.Option(help="The corpus whose graph it is.")],
    description: Annotated[str, typer.Option(help="What agents are told is in it.")] = "",
    page_size: Annotated[int, typer.Option(help="Records of a page that asks for no size.")] = 20,
    max_page_size: Annotated[int, typer.Option(help="Records of a page at most.")] = 100,
    max_hops: Annotated[int, typer.Option(help="Hops of a query at most.")] = 3,
    deadline: Annotated[str, typer.Option(help="How long a query may take, e.g. `5s`.")] = "10s",
    steps: Annotated[int, typer.Option(help="Matches that a query may look at.")] = 1_000_000,
    demand_disclosure: Annotated[
        bool, typer.Option("--demand-disclosure", help="Types must be described before they are queried.")
    ] = False,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Let agents ask the graph of a corpus under NAME: what the allow-list names, and nothing else of it.

    A name that is published already is replaced. Workers and gateways follow at once. `code` stands for the allow-list of
    source code, which fits every corpus with `graph_indexing.build_code_graph`; a file of that name is `./code`.

    Example: `sapwood graph publish repository code --corpus sapwood`

    Example: `sapwood graph publish workshop schema.json --corpus handbook --description "Who may use which machine"`
    """
    limits: dict[str, Any] = {
        "page_size": page_size,
        "max_page_size": max_page_size,
        "max_hops": max_hops,
        "deadline": seconds(deadline),
        "steps": steps,
    }

    async def action(sapwood: Sapwood) -> int:
        what = await anyio.to_thread.run_sync(_publication, schema, corpus, description, limits, demand_disclosure)
        made = await _for(sapwood, tenant).graphs.publish(name, what)
        show.done(f"{made.name} is published: {_summary(made)}", made.model_dump(mode="json"), json)
        settings = await _for(sapwood, tenant).settings_of(corpus)
        if schema == "code" and not settings.graph_indexing.build_code_graph:
            show.hint(no_code_graph(corpus))
        return 0

    run(action)


@graphs.command("list")
def listing(tenant: Tenant = "default", json: Json = False) -> None:
    """List the published graphs.

    Example: `sapwood graph list`
    """

    async def action(sapwood: Sapwood) -> int:
        found = await _for(sapwood, tenant).graphs.listing()
        if json:
            show.as_json([one.model_dump(mode="json") for one in found])
            return 0
        rows: list[tuple[str, ...]] = []
        for one in found:
            counts = (str(len(one.graph_schema.node_types)), str(len(one.graph_schema.edge_types)))
            rows.append((one.name, one.corpus, *counts, one.description))
        show.grid(("name", "corpus", "labels", "edge types", "description"), rows)
        return 0

    run(action)


@graphs.command("show")
def show_one(name: Name, tenant: Tenant = "default") -> None:
    """Print what is published under NAME, as JSON; its `graph_schema` can be edited and published again.

    Example: `sapwood graph show workshop`
    """

    async def action(sapwood: Sapwood) -> int:
        found = await _for(sapwood, tenant).graphs.get(name)
        values = found.model_dump(mode="json", exclude={"graph_schema"})
        values["graph_schema"] = found.graph_schema.model_dump(mode="json", exclude_defaults=True)
        sys.stdout.write(orjson.dumps(values, option=orjson.OPT_INDENT_2).decode() + "\n")
        return 0

    run(action)


@graphs.command("remove")
def remove(name: Name, tenant: Tenant = "default", json: Json = False) -> None:
    """Publish a graph no longer; the corpus stays as it is.

    Example: `sapwood graph remove workshop`
    """

    async def action(sapwood: Sapwood) -> int:
        await _for(sapwood, tenant).graphs.remove(name)
        show.done(f"{name} is no longer published", {"name": name, "removed": True}, json)
        return 0

    run(action)


def match(
    source: Source,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A portable MATCH query.")],
    param: Param = [],  # noqa: B006 - typer copies it
    page_size: Annotated[int | None, typer.Option(help="Records of a page; default: that of the graph.")] = None,
    cursor: Annotated[str, typer.Option(help="Go on where a page ended: its `nextCursor`.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Fetch all pages.")] = False,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Ask a published graph what an agent may ask it, and print the records.

    Examples: `sapwood match workshop "MATCH (p:Person)-[:LIVES_IN]->(c:City) RETURN p.name AS person, c.name AS city"` ·
    `sapwood match workshop "MATCH (p:Person) WHERE p.name = :name RETURN p" --param name=Ada --json`
    """
    asked: dict[str, object] = {"knowledgeSourceName": source, "expression": query, "pageSize": page_size}

    async def action(sapwood: Sapwood) -> int:
        given = {**asked, "parameters": valued(param), "cursor": cursor or None}
        try:
            told = await _pages(_for(sapwood, tenant), given, MOST_PAGES if every else 1)
        except Refusal as refusal:
            show.problem(pointed(query, refusal))
            return _CODES.get(cast("Code", refusal.code), USAGE)
        _show_records(told, json)
        return 0

    run(action)


def _for(sapwood: Sapwood, tenant: str) -> Sapwood:
    return Sapwood(sapwood.services, tenant)


def _publication(
    schema: str, corpus: str, description: str, limits: Mapping[str, Any], demand_disclosure: bool
) -> Publication:
    exposed = READY.get(schema) or _read(schema)
    try:
        return Publication(
            corpus=corpus,
            description=description or exposed.description,
            graph_schema=exposed,
            limits=GraphLimits.model_validate(limits),
            demand_disclosure=demand_disclosure,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidRequest(f"{'.'.join(map(str, first['loc'])) or 'limits'}: {first['msg']}") from None


def _read(file: str) -> GraphSchema:
    """Return the allow-list in a file. Raises InvalidRequest."""
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    return read_schema(text, "the input" if file == "-" else file)


def _summary(one: PublishedGraph) -> str:
    schema = one.graph_schema
    return f"{len(schema.node_types)} labels and {len(schema.edge_types)} edge types of {one.corpus}"


async def _pages(sapwood: Sapwood, asked: dict[str, object], most: int) -> dict[str, Any]:
    """Return the answer with the records of so many pages, and the time they took together; the rest is of the last."""
    tools = await sapwood.graphs.tools()
    told: dict[str, Any] = {}
    records, milliseconds = list[Any](), 0
    for _ in range(most):
        told = dict(await tools.run(QUERY, asked, Deadline.never()))
        records += told["records"]
        milliseconds += told["metadata"]["executionTimeMillis"]
        if not told["metadata"]["hasNext"]:
            break
        asked = {**asked, "cursor": told["metadata"]["nextCursor"]}
    counted = {"recordCount": len(records), "executionTimeMillis": milliseconds}
    return {**told, "records": records, "metadata": {**told["metadata"], **counted}}


def _show_records(told: Mapping[str, Any], json: bool) -> None:
    if json:
        show.as_json(told)
        return
    records, metadata = told["records"], told["metadata"]
    show.grid(
        tuple(records[0]) if records else ("no records",),
        ([shown(cell) for cell in record.values()] for record in records),
    )
    cut = f", cut short by {metadata['limit']}" if metadata["truncated"] else ""
    show.hint(f"{metadata['recordCount']} records in {metadata['executionTimeMillis']} ms{cut}")
    if metadata["nextCursor"]:
        show.hint(f"more: --cursor {metadata['nextCursor']}")


def shown(cell: Any) -> str:
    """Return a cell for people: `Label:name` for a node, `a -TYPE-> b` for an edge, the edges of a path."""
    text = _text(cell)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def _text(cell: Any) -> str:
    match cell:
        case {"kind": "node"}:
            return _node(cell)
        case {"kind": "edge", "sourceId": source, "type": kind, "targetId": target}:
            return f"{source} -{kind}-> {target}"
        case {"kind": "subgraph", "nodes": nodes, "edges": edges}:
            names = {node["id"]: _node(node) for node in nodes}
            ends = [f"{names[one['sourceId']]} -{one['type']}-> {names[one['targetId']]}" for one in edges]
            return "; ".join(ends) or ", ".join(names.values())
        case None:
            return "-"
        case str():
            return cell
        case _:
            return orjson.dumps(cell).decode()


def _node(node: Mapping[str, Any]) -> str:
    return f"{'/'.join(node['labels'])}:{node['properties'].get('name') or node['id']}"

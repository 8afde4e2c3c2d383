"""How commands speak: tables and progress for people, JSON for programs; problems on stderr."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, cast

import orjson
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from schemas.corpora import Corpus, CorpusSummary
from schemas.documents import DocumentOutcome, Source
from schemas.events import Documents, Event, Planned
from schemas.query import Hit, QueryResult
from schemas.runs import RunInfo

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

sheet = Console(highlight=False, width=100_000)
"""For tables: a row is a line, which a narrow terminal wraps as it does all others."""


def as_json(value: Any) -> None:
    """Print one JSON value as one line."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS) + b"\n")
    sys.stdout.buffer.flush()


def problem(text: str) -> None:
    """Print one line that says what is wrong, on stderr."""
    err.print(f"[red]sapwood:[/red] {escape(text)}")


def hint(text: str) -> None:
    """Print one line that says what else there is to know, on stderr."""
    err.print(f"[dim]{escape(text)}[/dim]")


def done(text: str, values: Mapping[str, Any], json: bool) -> None:
    """Print that something is done."""
    if json:
        as_json(dict(values))
    else:
        out.print(escape(text))


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain texts, whole."""
    table = Table(*map(escape, headings), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    sheet.print(table)


def corpora(found: Sequence[CorpusSummary], json: bool) -> None:
    """Print a list of corpora."""
    if json:
        return as_json([corpus.model_dump() for corpus in found])
    counted = ("documents", "chunks", "entities", "relations")
    grid(
        ("corpus", "generation", *counted),
        ([one.name, str(one.generation or "-"), *(str(one.counts.get(name, 0)) for name in counted)] for one in found),
    )
    return None


def corpus(one: Corpus, json: bool, sources: Sequence[Source] = ()) -> None:
    """Print a corpus with its settings and sources."""
    value = {
        "name": one.name,
        "generation": one.generation,
        "settings": one.settings.model_dump(mode="json"),
        "sources": [{"kind": str(source.kind), "location": source.location} for source in sources],
    }
    if json:
        return as_json(value)
    out.print_json(orjson.dumps(value).decode())
    return None


def generations(found: Sequence[Mapping[str, Any]], json: bool) -> None:
    """Print generations, newest first."""
    if json:
        return as_json(list(found))
    counted = ("documents", "chunks", "entities", "relations")
    rows: list[list[str]] = []
    for one in found:
        manifest: dict[str, Any] = one["manifest"] or {"stores": {}, "communities": "-"}
        stores: dict[str, dict[str, int]] = manifest["stores"]
        counts = [str(stores[name]["rows"]) if stores else "-" for name in counted]
        published = (one["published_at"] or "-")[:19].replace("T", " ")
        rows.append([str(one["number"]), one["state"], published, *counts, str(manifest["communities"])])
    grid(("number", "state", "published (UTC)", *counted, "communities"), rows)
    return None


def collected(counts: Mapping[str, Any], json: bool) -> None:
    """Print what garbage collection took away."""
    if json:
        return as_json(dict(counts))
    parts: list[str] = []
    for name, found in counts.items():
        match found:
            case dict():
                rows = cast("dict[str, int]", found)
                parts += [f"{count} {name} of {kind}" for kind, count in rows.items() if count]
            case list() | tuple():
                numbers = cast("Sequence[int]", found)
                parts += [f"{name} {', '.join(map(str, numbers))}"] if numbers else []
            case _:
                parts += [f"{found} {name}"] if found else []
    out.print(escape(f"removed: {', '.join(parts)}" if parts else "nothing to remove"))
    return None


def event(one: Event, *, json: bool, position: int | None = None, quiet: bool = False) -> None:
    """Print an event: a line of JSON, or a short line for people; of a corpus with its position there and its run."""
    if quiet:
        return
    if json:
        value = one.model_dump(mode="json")
        as_json(value if position is None else {"position": position, **value})
        return
    body = one.body.model_dump(mode="json", exclude={"type", "result"}, exclude_defaults=True)
    details = " ".join(f"{key}={_short(value)}" for key, value in body.items())
    place = "" if position is None else f"{position} {one.run_id} "
    out.print(f"[dim]{place}{one.seq:>4}[/dim] [bold]{one.body.type}[/bold] {escape(details)}")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= 160 else f"{text[:157]}…"


async def follow_index(events: AsyncIterator[Event], json: bool) -> None:
    """Show an index run as it goes, until its terminal event: a bar on a terminal, lines elsewhere, nothing for `--json`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=json or not err.is_terminal, transient=True) as progress:
        task = progress.add_task("waiting for its turn", total=None)
        async for one in events:
            body = one.body
            if body.type == "started":
                progress.update(task, description="planning" if body.fence == 1 else "working")
            elif isinstance(body, Planned):
                progress.update(task, description="documents", total=body.to_do)
            elif isinstance(body, Documents):
                progress.advance(task, sum(body.counts.values()))
            elif body.type == "progress":
                progress.update(task, description=getattr(body, "stage", ""))
            if not json and not err.is_terminal:
                event(one, json=False)


def index_report(
    run: RunInfo,
    outcomes: Mapping[str, int],
    notable: Sequence[DocumentOutcome],
    summary: Mapping[str, Any],
    json: bool,
) -> None:
    """Print how an index run ended and how each document did."""
    if json:
        documents = [{"document": o.document_id, "outcome": str(o.outcome), "reason": o.reason} for o in notable]
        return as_json(
            {
                "run_id": run.run_id,
                "state": str(run.state),
                "error": run.error,
                "outcomes": dict(outcomes),
                "documents": documents,
                **summary,
            }
        )
    for one in notable:
        out.print(f"  {one.outcome!s:>9}  {escape(one.document_id)}  [dim]{escape(one.reason)}[/dim]")
    told = [run.error] if run.error else []
    if outcomes or not run.error:
        counted = ", ".join(f"{count} {name}" for name, count in outcomes.items())
        told.append(f"documents: {counted or 'none were found'}")
    out.print(f"[bold]{run.state}[/bold]  {escape('; '.join(told))}")
    if (number := summary.get("generation")) is not None:
        counts = ", ".join(f"{count} {name}" for name, count in dict(summary.get("counts", {})).items())
        out.print(f"generation {number}: {counts or 'current as before'} [dim]({summary.get('seconds')} s)[/dim]")
    code: Mapping[str, Mapping[str, int]] = summary.get("code", {})
    for part, numbers in code.items():
        if numbers:
            out.print(f"  {part}: {', '.join(f'{count} {escape(name)}' for name, count in numbers.items())}")
    return None


def answer(result: QueryResult, json: bool) -> None:
    """Print the answer to a question."""
    if json:
        return as_json(result.model_dump(mode="json"))
    for number, hit in enumerate(result.hits, 1):
        _hit(number, hit)
    if not result.hits:
        out.print("nothing found")
    legs = ", ".join(f"{leg.name} {leg.state} {leg.hits} in {leg.seconds * 1000:.0f} ms" for leg in result.legs)
    note = "" if result.complete else f" [yellow]incomplete, missing: {', '.join(result.missing)}[/yellow]"
    out.print(f"[dim]generation {result.generation} · {legs}{' · cached' if result.cached else ''}[/dim]{note}")
    for stage in result.stages:
        if stage.note:
            out.print(f"[dim]{stage.name}: {stage.before} → {stage.after}, {escape(stage.note)}[/dim]")
    return None


def _hit(number: int, hit: Hit) -> None:
    place = f"{hit.document}:{hit.lines[0]}-{hit.lines[1]}"
    out.print(f"[bold]{number}. {escape(place)}[/bold]  {hit.score:.3f}  [cyan]{' + '.join(hit.streams)}[/cyan]")
    text = " ".join(hit.text.split())
    out.print(f"   {escape(text if len(text) <= 400 else text[:397] + '…')}")

"""What the larger commands do with the application."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import anyio
from pydantic import ValidationError

from pipeline.errors import ConfigurationError, InvalidRequest, NotFound
from schemas.documents import SourceKind
from schemas.events import Event, Expired
from schemas.query import QueryRequest, QueryResult
from schemas.runs import RunInfo, RunState
from worker import show
from worker.app import Sapwood, open_sapwood
from worker.changes import apply_changes, first_fault
from worker.settings import load
from worker.supervise import supervise

OPTIONS = {
    "temporal.field": "--time-field",
    "temporal.half_life_days": "--half-life",
    "temporal.since": "--since",
    "temporal.until": "--until",
    "expander": "--expander",
    "navigator_model": "--navigator",
    "reranker": "--reranker",
}
"""The options of `sapwood query` whose names are not those of the fields they set."""

STOPPED = frozenset({RunState.CANCELLED, RunState.EXPIRED})


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """What `sapwood index` was asked for."""

    corpus: str
    sources: tuple[str, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    actor: str = ""
    override_reason: str = ""


async def index(sapwood: Sapwood, request: IndexRequest, *, detach: bool, watch: bool, json: bool) -> int:
    """Submit, work, report; with `watch` again after each change of the folders, until interrupted."""
    code = await _index_once(sapwood, request, detach=detach, json=json)
    if not watch:
        return code
    still = (SourceKind.URL, SourceKind.GIT)  # what changes there is not seen from here
    folders = [s.location for s in await sapwood.sources(request.corpus) if s.kind not in still]
    if not folders:
        raise InvalidRequest("--watch needs a folder or file among the sources")
    again = replace(request, sources=(), changes=())
    async for _ in sapwood.changes(folders):
        code = await _index_once(sapwood, again, detach=detach, json=json)
    return code


async def _index_once(sapwood: Sapwood, request: IndexRequest, *, detach: bool, json: bool) -> int:
    old = await sapwood.settings_of(request.corpus) if request.changes else None
    run = await sapwood.index(
        request.corpus,
        request.sources,
        settings=old and apply_changes(old, request.changes),
        include=request.include,
        exclude=request.exclude,
        actor=request.actor,
        override_reason=request.override_reason,
    )
    if detach:
        show.done(f"queued as {run.run_id}", {"run_id": run.run_id, "state": str(run.state)}, json)
        return 0
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(show.follow_index, sapwood.subscribe(run.run_id), json)
            run = await sapwood.work(run.run_id)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(5, shield=True):
            await sapwood.cancel(run.run_id, "interrupted")
        raise
    return await _index_report(sapwood, run, json)


async def _index_report(sapwood: Sapwood, run: RunInfo, json: bool) -> int:
    outcomes, notable = await sapwood.accounting(run.run_id)
    summary = await sapwood.index_summary(run)
    show.index_report(run, outcomes, notable, summary, json)
    if run.state is RunState.FAILED:
        return 1
    if run.state in STOPPED:
        return 4
    return 3 if outcomes.get("failed") else 0


def run_query(corpus: str, values: dict[str, Any], *, queue: bool, json: bool) -> int:
    """Check the request before anything is opened, then answer it."""
    try:
        request = QueryRequest.model_validate(values)
    except ValidationError as error:
        raise InvalidRequest(by_option(first_fault(error))) from error

    async def main() -> int:
        async with open_sapwood(load()) as sapwood:
            return await (_queued(sapwood, corpus, request, json) if queue else _direct(sapwood, corpus, request, json))

    return anyio.run(main)


async def _direct(sapwood: Sapwood, corpus: str, request: QueryRequest, json: bool) -> int:
    try:
        return _answer(await sapwood.query(corpus, request), json)
    except ConfigurationError as error:
        raise type(error)(by_option(str(error))) from error


def by_option(message: str) -> str:
    """Return a message about a field of a request with the option that sets it."""
    field, colon, rest = message.partition(": ")
    return f"{OPTIONS[field]} ({field}): {rest}" if colon and field in OPTIONS else message


async def _queued(sapwood: Sapwood, corpus: str, request: QueryRequest, json: bool) -> int:
    run = await sapwood.enqueue_query(corpus, request)
    with anyio.move_on_after(request.deadline + 2.0):
        async for event in sapwood.subscribe(run.run_id):
            show.event(event, json=False, quiet=json)
            if event.terminal:
                return _terminal(event, json)
    show.problem(f"nobody answered {run.run_id}; start `sapwood worker`, then `sapwood events {run.run_id} --follow`")
    return 4


def _terminal(event: Event, json: bool) -> int:
    result = getattr(event.body, "result", None)
    if isinstance(result, QueryResult):
        code = _answer(result, json)
        return 4 if isinstance(event.body, Expired) else code
    show.problem(f"{event.body.type}: {getattr(event.body, 'message', '') or getattr(event.body, 'reason', '')}")
    return 4 if event.body.type in ("cancelled", "expired") else 1


def _answer(result: QueryResult, json: bool) -> int:
    show.answer(result, json)
    return 0 if result.complete else 3


async def events(sapwood: Sapwood, target: str, after: int, *, follow: bool, json: bool) -> int:
    """Print a run's events, or a corpus's."""
    try:
        await sapwood.info(target)
    except NotFound:
        return await _corpus_events(sapwood, target, after, follow=follow, json=json)
    if follow:
        async for event in sapwood.subscribe(target, after=after):
            show.event(event, json=json)
        return 0
    for event in await sapwood.events(target, after):
        show.event(event, json=json)
    return 0


async def _corpus_events(sapwood: Sapwood, corpus: str, after: int, *, follow: bool, json: bool) -> int:
    if follow:
        async for position, event in sapwood.subscribe_corpus(corpus, after=after):
            show.event(event, json=json, position=position)
        return 0
    for position, event in await sapwood.corpus_events(corpus, after):
        show.event(event, json=json, position=position)
    return 0


async def retained(sapwood: Sapwood, corpus: str) -> str:
    """Return a sentence that says which earlier generations of a corpus are there, and how more of them would be."""
    numbers = [str(one["number"]) for one in await sapwood.generations(corpus) if one["state"] == "superseded"]
    keeps = (await sapwood.corpus(corpus)).settings.retention.generations
    there = f"Earlier ones that are there: {', '.join(numbers) or 'none'}"
    return f"{there}; the setting retention.generations says how many generations are kept: {keeps}."


async def cancel(sapwood: Sapwood, run_id: str, reason: str, *, json: bool) -> int:
    """Cancel, then wait for the end of the run."""
    with anyio.move_on_after(30):
        info = await sapwood.cancel(run_id, reason)
        show.done(f"{run_id} is {info.state}", {"run_id": run_id, "state": str(info.state)}, json)
        return 0
    show.problem(f"{run_id} has not stopped within 30 s; `sapwood events {run_id}` shows what it does")
    return 1


def run_worker_process() -> int:
    """Work until SIGTERM or SIGINT."""
    return anyio.run(supervise, load())

"""Sapwood as a library: everything a command or a gateway does, one method each."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, cast

import anyio
import anyio.to_thread
import structlog
import watchfiles

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound, SapwoodError
from pipeline.graphs.export import graph_lines
from pipeline.graphs.parts import GraphRef
from pipeline.ingest.sources import make_source
from pipeline.protocol import digest_of
from pipeline.retrieval.query import Emit
from schemas.corpora import Corpus, CorpusSummary
from schemas.documents import DocumentOutcome, Outcome, Source
from schemas.events import Event
from schemas.ids import CorpusId, RunId
from schemas.payloads import IndexPayload, QueryPayload
from schemas.query import QueryRequest, QueryResult
from schemas.runs import RunInfo, RunKind, RunState
from schemas.settings import CorpusSettings
from worker import tracing
from worker.compose import Services, open_services
from worker.graphs import Graphs
from worker.maintenance import keep_pins, look_after
from worker.process import lanes, run_inline
from worker.settings import WorkerSettings, load

CALL = 30.0
"""Seconds for a small read or write of the application itself."""

LONG = 3600.0
EVENT_PAGE = 1000

_log = structlog.get_logger(__name__)

Watch = Callable[..., AsyncGenerator[object, None]]


class Sapwood:
    """An open application, for one tenant. Made by `open_sapwood`; usable from one event loop."""

    def __init__(self, services: Services, tenant: str) -> None:
        self.services = services
        self.tenant = tenant

    @property
    def graphs(self) -> Graphs:
        """What agents may ask of the graphs of the tenant's corpora."""
        return Graphs(self.services, self.tenant)

    async def corpora(self) -> list[CorpusSummary]:
        """Return all corpora by name."""
        return await self.services.corpora.listing(self.tenant, _soon())

    async def corpus(self, name: str) -> Corpus:
        """Return a corpus. Raises NotFound."""
        return await self.services.corpora.get(self.tenant, name, _soon())

    async def create_corpus(self, name: str, settings: CorpusSettings | None = None) -> Corpus:
        """Return the corpus, made if missing; settings given for one that exists replace its own."""
        return await self.services.corpora.create(self.tenant, name, settings, _soon())

    async def settings_of(self, name: str) -> CorpusSettings:
        """Return the settings of a corpus, or the defaults where there is none of this name."""
        try:
            return (await self.corpus(name)).settings
        except NotFound:
            return CorpusSettings()

    async def set_settings(self, name: str, settings: CorpusSettings) -> Corpus:
        """Replace the settings of a corpus; a run that is under way keeps those it started with. Raises NotFound."""
        await self.corpus(name)
        return await self.create_corpus(name, settings)

    async def delete_corpus(self, name: str) -> None:
        """Delete a corpus with its uploads and everything that came from it; a run under way finds itself fenced out.

        What it has in a store that cannot be reached now goes as soon as a worker reaches that store.
        """
        corpus = await self.corpus(name)
        self.services.snapshots.forget(corpus.corpus_id)
        await self.forget_uploads(corpus.corpus_id)  # before its rows: whoever is cut off here may delete it again
        await self.services.corpora.delete(self.tenant, name, Deadline.after(LONG))
        await self.services.outside.inter(Deadline.after(LONG))

    async def forget_uploads(self, corpus: CorpusId) -> None:
        """Delete the uploaded files of a corpus, if it has any."""
        if self.services.uploads is not None:
            folder = self.services.uploads / str(corpus)
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))

    async def sources(self, name: str) -> list[Source]:
        """Return the sources that a corpus mirrors."""
        return await self.services.corpora.sources((await self.corpus(name)).corpus_id, _soon())

    async def index(
        self,
        corpus: str,
        sources: Sequence[str | Source] = (),
        *,
        settings: CorpusSettings | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        actor: str = "",
        override_reason: str = "",
        key: str | None = None,
    ) -> RunInfo:
        """Enqueue an index run that makes the corpus mirror these sources; none given: the remembered ones.

        `include` and `exclude` are globs for all folders among them. A second call with the same `key` returns the first
        run and changes nothing; for another request, it is an InvalidRequest. Raises InvalidRequest, Refused or
        ConfigurationError before anything is enqueued.
        """
        asked = {
            "sources": [one if isinstance(one, str) else asdict(one) for one in sources],
            "settings": settings and settings.model_dump(mode="json", exclude_defaults=True),
            "include": list(include),
            "exclude": list(exclude),
            "actor": actor,
            "override_reason": override_reason,
        }
        digest = digest_of({name: value for name, value in asked.items() if value not in ([], "", None)})
        if key is not None and (earlier := await self._earlier(corpus, RunKind.INDEX, key, digest)):
            return earlier
        made = [await self._source(one, include, exclude) for one in sources]
        if not made and not await self.sources(corpus):
            raise InvalidRequest(f"{corpus} has no sources yet; name a folder, a file or a URL.")
        await self._check(settings or await self.settings_of(corpus))  # before they are the corpus's
        found = await self.create_corpus(corpus, settings)
        with tracing.enqueueing(RunKind.INDEX) as traceparent:
            payload = IndexPayload(
                corpus=corpus,
                sources=tuple(made) or None,
                settings=found.settings,
                actor=actor,
                reason=override_reason,
                traceparent=traceparent,
            )
            values = payload.model_dump(mode="json")
            return await self.services.runs.submit(found.corpus_id, RunKind.INDEX, values, key=key, digest=digest)

    async def work(self, run_id: str) -> RunInfo:
        """Work on a run in this process until it has ended, beside whatever workers there are. Raises NotFound."""
        await self.info(run_id)
        info = await run_inline(self.services.parts(), RunId(run_id), lanes())
        if info.kind is RunKind.INDEX and info.state is RunState.COMPLETED:
            await self._collect(info.corpus_id)
        return info

    async def query(self, corpus: str, request: QueryRequest, emit: Emit | None = None) -> QueryResult:
        """Answer a question here and now, by its deadline; `emit` gets what happens on the way, and is waited for."""
        deadline = Deadline.after(request.deadline)
        with tracing.span("sapwood.ask"), self.services.vitals.metrics.by(deadline, RunKind.QUERY):
            return await self.services.answerer.ask(self.tenant, corpus, request, deadline, emit)

    async def enqueue_query(self, corpus: str, request: QueryRequest, *, key: str | None = None) -> RunInfo:
        """Enqueue a question for the workers; its deadline counts from now. `key` is as in `index`."""
        found = await self.corpus(corpus)
        digest = digest_of(request.model_dump(mode="json", exclude_defaults=True))
        with tracing.enqueueing(RunKind.QUERY) as traceparent:
            payload = QueryPayload(tenant=self.tenant, corpus=corpus, request=request, traceparent=traceparent)
            values = payload.model_dump(mode="json")
            return await self.services.runs.submit(
                found.corpus_id, RunKind.QUERY, values, seconds=request.deadline, key=key, digest=digest
            )

    async def subscribe(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events of a run after this number, each once, in order, up to its final one. Raises NotFound."""
        await self.info(run_id)
        async with aclosing(self.services.feeds.run(RunId(run_id), after)) as found:
            async for entries in found:
                for entry in entries:
                    yield entry.event

    async def subscribe_corpus(self, corpus: str, after: int = 0) -> AsyncGenerator[tuple[int, Event], None]:
        """Yield the events of all runs of a corpus with their positions, without end."""
        found = await self.corpus(corpus)
        async with aclosing(self.services.feeds.corpus(found.corpus_id, after)) as feed:
            async for entries in feed:
                for entry in entries:
                    yield entry.place, entry.event

    async def events(self, run_id: str, after: int = 0) -> list[Event]:
        """Return the events of a run that are there now. Raises NotFound."""
        await self.info(run_id)
        found: list[Event] = []
        while page := await self.services.events.read(RunId(run_id), after, EVENT_PAGE):
            found += page
            after = page[-1].seq
        return found

    async def corpus_events(self, corpus: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events of all runs of a corpus that are there now, with their positions."""
        corpus_id = (await self.corpus(corpus)).corpus_id
        found: list[tuple[int, Event]] = []
        while page := await self.services.events.read_corpus(corpus_id, after, EVENT_PAGE):
            found += page
            after = page[-1][0]
        return found

    async def info(self, run_id: str) -> RunInfo:
        """Return a run. Raises NotFound."""
        return await self.services.runs.info_of(self.tenant, RunId(run_id))

    async def runs(self, corpus: str, limit: int = 100) -> list[RunInfo]:
        """Return the runs of a corpus, newest first."""
        return await self.services.runs.list((await self.corpus(corpus)).corpus_id, limit)

    async def open_runs(self, limit: int) -> int:
        """Return how many runs have not ended; counted up to the limit."""
        return await self.services.runs.open_runs(self.tenant, limit)

    async def request_cancel(self, run_id: str, reason: str = "") -> RunInfo:
        """Ask a run to stop and return at once; its final event says when it has. One that has ended stays as it is."""
        await self.info(run_id)
        await self.services.runs.cancel(RunId(run_id), reason)
        return await self.info(run_id)

    async def cancel(self, run_id: str, reason: str = "") -> RunInfo:
        """Cancel a run and wait until it has ended."""
        await self.request_cancel(run_id, reason)
        async for _ in self.subscribe(run_id):
            pass
        return await self.info(run_id)

    async def accounting(self, run_id: str, limit: int = 1000) -> tuple[dict[str, int], list[DocumentOutcome]]:
        """Return the counts of a run's outcomes, and the documents that were not simply indexed or unchanged."""
        await self.info(run_id)
        return await self.services.corpora.accounting(RunId(run_id), limit, _soon())

    async def outcomes(
        self, run_id: str, after: str = "", outcome: Outcome | None = None, limit: int = 1000
    ) -> list[DocumentOutcome]:
        """Return a page of a run's documents after this id, with their outcomes.

        Those that the plan found unchanged are in the counts of `accounting` alone.
        """
        await self.info(run_id)
        return await self.services.corpora.outcomes(RunId(run_id), after, outcome, limit, _soon())

    async def index_summary(self, run: RunInfo) -> dict[str, Any]:
        """Return what an index run achieved: its final event, shortened."""
        await self.info(run.run_id)
        end, _ = await self.services.events.end_of(run.run_id)
        ends = [await self.services.events.read(run.run_id, seq, 1) for seq in ((0, end - 1) if end else ())]
        body, seconds = {}, 0.0
        if ends:
            [[first], [last]] = ends
            body, seconds = last.body.model_dump(), _between(first.at, last.at)
        return {
            "generation": body.get("generation"),
            "result": body.get("type"),
            "counts": body.get("counts", {}),
            "seconds": round(seconds, 3),
            **await self._code_account(run, body),
        }

    async def _code_account(self, run: RunInfo, body: dict[str, Any]) -> dict[str, Any]:
        """Return the policy of the generation that the run published, and the account of its code graph if it has one."""
        if body.get("type") != "promoted":
            return {}
        manifest = await self.services.generations.manifest(run.corpus_id, body["generation"], _soon())
        code = {"code": manifest.code.model_dump(mode="json")} if manifest.code else {}
        return {"policy": manifest.policy, **code}

    async def generations(self, corpus: str) -> list[dict[str, Any]]:
        """Return all generations of a corpus, newest first."""
        found = await self.services.generations.list((await self.corpus(corpus)).corpus_id, _soon())
        return [
            {**asdict(one), "manifest": one.manifest.model_dump(mode="json") if one.manifest else None} for one in found
        ]

    async def communities(self, corpus: str, limit: int = 100) -> Sequence[dict[str, Any]]:
        """Return the communities of the current generation, largest first."""
        async with self.services.pins.pin(self.tenant, corpus, _soon()) as pinned:
            return await self.services.corpora.communities(pinned.corpus_id, pinned.manifest.generation, limit, _soon())

    async def rollback(self, corpus: str, number: int) -> int:
        """Publish a retained earlier generation again and return its new number."""
        found = await self.corpus(corpus)
        return await self.services.rollback(found.corpus_id, number, Deadline.after(LONG))

    async def gc(self, corpus: str, keep: int | None = None) -> dict[str, Any]:
        """Take away what nobody can see; `keep` generations stay readable (default: the corpus's setting)."""
        found = await self.corpus(corpus)
        keep = keep or found.settings.retention.generations
        inside = await self.services.collector.collect(found.corpus_id, keep, Deadline.after(LONG))
        outside = await self.services.outside.collect(found.corpus_id, Deadline.after(LONG))
        return {**asdict(inside), **asdict(outside)}

    async def export(self, corpus: str, generation: int | None = None) -> AsyncGenerator[str, None]:
        """Yield the canonical lines of a generation, the current one if none is named."""
        async with self.services.pins.pin(self.tenant, corpus, _soon()) as pinned:
            number = generation or pinned.manifest.generation
            async with aclosing(self.services.export(pinned.corpus_id, number, Deadline.after(LONG))) as lines:
                async for line in lines:
                    yield line.rstrip("\n")

    async def export_graph(self, corpus: str) -> AsyncGenerator[str, None]:
        """Yield the canonical lines of the current generation's graph, from the store that serves it.

        Raises ConfigurationError where this process was not told of that store.
        """
        async with self.services.pins.pin(self.tenant, corpus, _soon()) as pinned:
            reader = self.services.graph_reader(pinned.manifest.graph_store)
            graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
            async with aclosing(graph_lines(reader, graph, Deadline.after(LONG))) as lines:
                async for line in lines:
                    yield line

    async def changes(self, folders: Sequence[str]) -> AsyncGenerator[None, None]:
        """Yield whenever something below these folders has changed and come to rest."""
        watch = cast("Watch", vars(watchfiles)["awatch"])  # its stubs name a type of a library that is not there
        async for _ in watch(*folders, debounce=500, step=100):
            yield

    async def _collect(self, corpus: CorpusId) -> None:
        for one, keep, _ in await self.services.collector.corpora(_soon()):
            if one == corpus:
                await self.services.collector.collect(corpus, keep, Deadline.after(LONG))
        await self.services.repositories.prune(_soon())
        try:
            await self.services.outside.collect(corpus, Deadline.after(LONG))
        except SapwoodError as error:  # the run is done whatever that store says; the next pass finds what is left
            _log.warning("outside.collect", error=str(error))

    async def _check(self, settings: CorpusSettings) -> None:
        """Check that this process could index by these settings. Raises ConfigurationError."""
        self.services.projection.check(settings)
        self.services.models.embedding(settings.embedding)
        if not settings.graph_indexing.build_code_graph:
            await self.services.models.extractor(settings)

    async def _earlier(self, corpus: str, kind: RunKind, key: str, digest: bytes) -> RunInfo | None:
        try:
            found = await self.corpus(corpus)
        except NotFound:
            return None
        return await self.services.runs.earlier(found.corpus_id, kind, key, digest)

    async def _source(self, one: str | Source, include: Sequence[str], exclude: Sequence[str]) -> Source:
        if isinstance(one, Source):
            return one
        return await anyio.to_thread.run_sync(make_source, one, tuple(include), tuple(exclude))


@asynccontextmanager
async def open_sapwood(
    settings: WorkerSettings | None = None, tenant: str = "default"
) -> AsyncGenerator[Sapwood, None]:
    """Open the application; embedded servers are started where the settings name no others.

    Raises:
        ConfigurationError: something has to be set or mended first; the message says what.
        StoreUnavailable: a server cannot be reached.
    """
    try:
        async with open_services(settings or load()) as services, anyio.create_task_group() as group:
            group.start_soon(keep_pins, services.pins)
            group.start_soon(look_after, services.promotions, services.generations, services.snapshots, services.dense)
            try:
                yield Sapwood(services, tenant)
            finally:
                group.cancel_scope.cancel()
                with anyio.move_on_after(1.0, shield=True):
                    await services.pins.close(Deadline.after(1.0))
    except BaseExceptionGroup as errors:
        raise _only(errors) from errors


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that the task groups around a block wrapped, or the group where there are several."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        inner = cast("tuple[BaseException, ...]", found.exceptions)
        if len(inner) != 1:
            return group
        found = inner[0]
    return found


def _soon() -> Deadline:
    return Deadline.after(CALL)


def _between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()

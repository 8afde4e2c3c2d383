"""Evidence for one call or turn: found or taken from what was kept, under the failure policy, and rendered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio.to_thread
import structlog

from pipeline.deadline import Deadline
from pipeline.declare import asking
from pipeline.declare.context import Rendered, Spec, render
from pipeline.declare.demands import Inventory
from pipeline.declare.entries import Knowledge, Unit
from pipeline.declare.failures import SOURCE_LOADING, failure_of
from pipeline.declare.kept import Found, KeptResults
from pipeline.declare.keys import Evidence
from pipeline.declare.plan import Plan, source_of
from pipeline.declare.scope import RetrievalContext
from pipeline.declare.search import OnFailure, SearchSettings
from pipeline.declare.tokens import Estimate, Tokenizer
from pipeline.declare.units import render_units, unit_of, units_of
from pipeline.errors import NotFound, RetrievalError, SapwoodError
from pipeline.graphs.claims import serving
from schemas.query import Hit
from worker.app import Sapwood
from worker.bindings import Bindings

LARGE = 100_000
"""Characters of documents that are rendered in a thread rather than on the event loop."""

MAX_NUMBERS = 4096
"""Kinds of searches that a process tells apart by a number; what was found by those before is forgotten."""


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be grounded: one call of an action, or one turn of a chat."""

    plan: Plan
    question: str
    scope: RetrievalContext
    deadline: Deadline


class Retriever:
    """Grounds turns for an application. `inventory` has the graph providers."""

    def __init__(self, app: Sapwood, bindings: Bindings, inventory: Inventory, tokenizer: Tokenizer) -> None:
        self._app, self._bindings, self._inventory, self._tokenizer = app, bindings, inventory, tokenizer
        self._kept = KeptResults()
        self._numbers: dict[Hashable, int] = {}
        self._serials = itertools.count()

    async def evidence(self, turn: Turn) -> Evidence:
        """Retrieve under the failure policy, then render.

        Raises:
            ConfigurationError, InvalidRequest: whatever the policy.
            RetrievalError: the knowledge could not be had, and the policy is FAIL.
        """
        plan = turn.plan
        try:
            whole = [(one, await self._units(turn, one)) for one in plan.shown]
            found = await self._found(turn)
        except SapwoodError as error:
            failure = failure_of(error)
            if failure is None:
                raise
            if plan.search.on_failure is OnFailure.CONTINUE:
                _log.warning(
                    "grounding.left_out", owner=plan.owner.__qualname__, reason=failure.reason, error=str(failure)
                )
                return Evidence()
            raise failure from error
        specs, parts = plan.specs, list[Evidence]()
        for entry, hits in whole:
            rendered = await self._rendered(hits, partial(self._of_units, entry, hits, plan, specs))
            specs = () if rendered.shown else specs  # said once, above the first of them
            parts.append(_evidence(rendered, len(hits)))
        rendered = await self._of_hits(found, plan.search, specs)
        return _joined([*parts, _evidence(rendered, len(found.hits), found.stale)])

    # --- What is found.

    async def _found(self, turn: Turn) -> Found:
        """Search: from what was kept, or through the binding. Stale results stand in for a failure where they are taken."""
        plan, scope = turn.plan, turn.scope
        if plan.sources is None or not turn.question:
            return Found((), 0)
        app = Sapwood(self._app.services, scope.tenant) if scope.tenant else self._app
        key = (self._number(plan), app.tenant, turn.question, asking.scope_key(scope))
        try:
            return await self._search(turn, app, plan.sources, key)
        except SapwoodError as error:
            stale = self._kept.stale(key) if scope.accept_stale and failure_of(error) else None
            if stale is None:
                raise
            _log.warning("grounding.stale", owner=plan.owner.__qualname__, error=str(error))
            return stale

    async def _search(self, turn: Turn, app: Sapwood, sources: Sequence[Knowledge], key: Hashable) -> Found:
        owner, search = turn.plan.owner, turn.plan.search
        bound = await self._bindings.bind(app, owner, sources)
        if bound.empty and sources:
            return Found((), bound.number)

        async def find() -> Found:
            fence = turn.plan.fence(bound.corpus)
            request = asking.request_of(search, turn.question, fence, turn.scope, turn.deadline)
            try:
                result = await app.query(bound.corpus, request)
            except NotFound as error:
                self._bindings.invalidate(owner)  # whoever asks next has it made anew
                raise RetrievalError("The corpus of the declared sources was deleted.", SOURCE_LOADING) from error
            return Found(result.hits, bound.number)

        if not search.cache or self._is_live(turn.plan):
            return await find()
        return await self._kept.serve(key, bound.number, search.cache_ttl, turn.deadline, find)

    def _is_live(self, plan: Plan) -> bool:
        """Whether the answer can be another one while the sources stay the same: then none is kept."""
        if plan.graph is None:
            return False
        provider = serving(self._inventory.graphs, plan.graph.reach(self._inventory.graph_store))
        return provider is not None and provider.live

    def _number(self, plan: Plan) -> int:
        """Return what stands for all of a plan that decides which documents are found."""
        key = (plan.owner, plan.sources, plan.documents)
        if (number := self._numbers.get(key)) is None:
            if len(self._numbers) >= MAX_NUMBERS:
                self._numbers.clear()
            number = self._numbers[key] = next(self._serials)
        return number

    async def _units(self, turn: Turn, entry: Knowledge) -> tuple[Hit, ...]:
        app = Sapwood(self._app.services, turn.scope.tenant) if turn.scope.tenant else self._app
        cut = unit_of(entry) is Unit.CHUNK
        documents = await self._bindings.load(app, turn.plan.owner, source_of(entry), cut, turn.deadline)
        return await anyio.to_thread.run_sync(units_of, entry, documents)

    # --- How it becomes text.

    async def _of_hits(self, found: Found, search: SearchSettings, specs: Sequence[Spec]) -> Rendered:
        """Return the text of what was found; it is made once for each way to show it."""
        how = (search.context_format, search.context_window, tuple(specs))
        if (known := found.texts.get(how)) is None:
            work = partial(render, found.hits, search.context_format, search.context_window, self._tokenizer, specs)
            known = found.texts[how] = await self._rendered(found.hits, work)
        return known

    def _of_units(self, entry: Knowledge, hits: Sequence[Hit], plan: Plan, specs: Sequence[Spec]) -> Rendered:
        window = entry.max_tokens or plan.search.context_window
        return render_units(entry, hits, plan.search.context_format, window, self._tokenizer, specs)

    async def _rendered(self, hits: Sequence[Hit], work: Callable[[], Rendered]) -> Rendered:
        """Render where it does not keep the event loop waiting; a real tokenizer takes tens of milliseconds."""
        small = sum(len(hit.text) for hit in hits) <= LARGE and isinstance(self._tokenizer, Estimate)
        return work() if small or not hits else await anyio.to_thread.run_sync(work)


def _evidence(rendered: Rendered, count: int, stale: bool = False) -> Evidence:
    return Evidence(rendered.text, count, rendered.truncated, stale, rendered.sources)


def _joined(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of several entries as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    return Evidence(
        "\n\n".join(part.text for part in parts if part.text),
        sum(part.count for part in parts),
        any(part.truncated for part in parts),
        any(part.stale for part in parts),
        tuple(dict.fromkeys(source for part in parts for source in part.sources)),
    )

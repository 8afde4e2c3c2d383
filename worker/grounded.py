"""Actions with the knowledge that their classes declare, carried out on an open application.

A dispatch goes: clear the reserved keys → check the parameters → choose the question → retrieve (cache, binding, query
stage) → render → write the keys → splice and ask the model, or call the function.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
import anyio.to_thread
from structlog.contextvars import bound_contextvars

from pipeline.deadline import FLOOR, Deadline
from pipeline.declare import asking
from pipeline.declare.actions import Action, ActionType
from pipeline.declare.chat import ChatModel, Prompt, prompt_of
from pipeline.declare.classes import Declaration, declaration_of
from pipeline.declare.context import Rendered, Spec, render
from pipeline.declare.demands import EmbeddingDemand, Inventory, MemoryDemand, check_demands, demands
from pipeline.declare.entries import Knowledge, KnowledgeType
from pipeline.declare.failures import SOURCE_LOADING, failure_of
from pipeline.declare.fence import BOUNDARY, check_boundary
from pipeline.declare.grounding import Grounding
from pipeline.declare.kept import Found, KeptResults
from pipeline.declare.keys import Evidence, clear, write
from pipeline.declare.rules import within
from pipeline.declare.scope import RetrievalContext
from pipeline.declare.search import DEFAULTS, OnFailure, SearchSettings
from pipeline.declare.tokens import Tokenizer, choose
from pipeline.declare.units import render_units, units_of
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    ModelError,
    NotFound,
    RetrievalError,
    SapwoodError,
)
from pipeline.ingest.embed import ENTRY_POINTS
from pipeline.ingest.urls import Fetcher
from schemas.query import Hit
from schemas.settings import CorpusSettings, EmbeddingSettings
from worker.app import Sapwood
from worker.bindings import Bindings

SECONDS = 60.0
"""What a request gets that brings no deadline."""

LARGE = 100_000
"""Characters of documents that are rendered in a thread rather than on the event loop."""

Memories = Mapping[str, Mapping[str, str]]
"""By the names of MEMORY entries, their documents by name; a name with a suffix, such as `notes.md`, says what it is."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One call of an action, with its stages' inputs settled."""

    declaration: Declaration
    action: Action
    given: Mapping[str, object]
    question: str
    scope: RetrievalContext
    deadline: Deadline

    @property
    def grounding(self) -> Grounding:
        """What grounds the action, narrowed to the sources that are in scope."""
        found = self.action.grounding
        return replace(found, entries=asking.in_scope(found.entries, self.scope.source_paths))


class Grounded:
    """Carries out actions; made by `open_grounded`. Usable from the application's event loop, by any number of calls."""

    def __init__(
        self, app: Sapwood, bindings: Bindings, model: ChatModel | None, inventory: Inventory, words: _Words
    ) -> None:
        self._app, self._bindings, self._model, self._inventory, self._words = app, bindings, model, inventory, words
        self._kept = KeptResults()
        self._declared: dict[type, Declaration] = {}

    async def check(self, owner: type) -> None:
        """Hold a class's declaration to what this process has. Reads nothing; each class is checked once.

        Raises:
            ConfigurationError: something it needs is missing or not served; also the errors for models and graphs.
        """
        await self._declaration(owner)

    async def _declaration(self, owner: type) -> Declaration:
        if (known := self._declared.get(owner)) is not None:
            return known
        declaration = declaration_of(owner)
        needed = [one for one in demands(declaration) if isinstance(one, MemoryDemand | EmbeddingDemand)]
        check_demands(needed, self._inventory)
        files = _files(declaration)
        for action in declaration.actions.values():
            with within(f"{declaration.title}: action {action.name!r}"):
                await self._check_action(action, files)
        self._declared[owner] = declaration
        return declaration

    async def invalidate(self, owner: type) -> None:
        """Have the sources of a class read anew when they are used next; until then, nothing of them changes."""
        self._bindings.invalidate(owner)

    async def call(
        self,
        owner: object,
        action: str,
        arguments: Mapping[str, object] | None = None,
        context: MutableMapping[str, object] | None = None,
        scope: RetrievalContext | None = None,
    ) -> Any:
        """Carry out an action of an object of a role or an agent: return what its function or the model returns.

        `context` has the reserved keys afterwards; a LOCAL function gets it as its parameter `context`, if there is one. It
        is awaited if it is a coroutine function; any other runs on the event loop, and must not block.

        Raises:
            ConfigurationError: something that is declared is missing or not served; before anything is read.
            InvalidRequest: the arguments or filters do not fit, or the context window has room for nothing of what was found;
                the model is not asked.
            RetrievalError: its knowledge could not be had, and `on_failure` is FAIL.
            RunCancelled, DeadlineExceeded: whatever `on_failure` says.
            ModelError: the model of an LLM action failed.
        """
        context = {} if context is None else context
        dispatch, evidence = await self._ground(owner, action, arguments or {}, context, scope)
        if dispatch.action.type is ActionType.LLM:
            async with aclosing(self._ask(dispatch, evidence)) as pieces:
                return "".join([piece async for piece in pieces])
        if dispatch.action.type is not ActionType.LOCAL:
            raise ConfigurationError(f"{dispatch.action.type.name} actions are carried out by the application.")
        function = dispatch.action.of(owner)
        own = {asking.CONTEXT_PARAMETER: context} if asking.takes_context(function) else {}
        with dispatch.scope.limits(dispatch.deadline):
            result = function(**dispatch.given, **own)
            return await result if inspect.isawaitable(result) else result

    async def stream(
        self,
        owner: object,
        action: str,
        arguments: Mapping[str, object] | None = None,
        context: MutableMapping[str, object] | None = None,
        scope: RetrievalContext | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yield the answer to an LLM action as the model gives it; all else is as in `call`."""
        context = {} if context is None else context
        dispatch, evidence = await self._ground(owner, action, arguments or {}, context, scope)
        if dispatch.action.type is not ActionType.LLM:
            raise ConfigurationError(f"{action}: only LLM actions have an answer to stream.")
        async with aclosing(self._ask(dispatch, evidence)) as pieces:
            async for piece in pieces:
                yield piece

    async def prompt(
        self,
        owner: object,
        action: str,
        arguments: Mapping[str, object] | None = None,
        scope: RetrievalContext | None = None,
    ) -> Prompt:
        """Return the prompt that `call` sends for an LLM action, without sending it; it retrieves as that does."""
        return self._prompt(*await self._ground(owner, action, arguments or {}, {}, scope))

    # --- The stages of a dispatch, in their order.

    async def _ground(
        self,
        owner: object,
        name: str,
        arguments: Mapping[str, object],
        context: MutableMapping[str, object],
        scope: RetrievalContext | None,
    ) -> tuple[Dispatch, Evidence | None]:
        clear(context)
        declaration = await self._declaration(type(owner))
        dispatch = _dispatch(owner, declaration, name, arguments, scope or RetrievalContext())
        if not dispatch.action.grounding.entries:
            return dispatch, None
        with dispatch.scope.limits(dispatch.deadline), bound_contextvars(**dispatch.scope.labels):
            evidence = await self._evidence(dispatch)
        write(context, evidence)
        return dispatch, evidence

    async def _evidence(self, dispatch: Dispatch) -> Evidence:
        """Retrieve under the failure policy, then render."""
        search = dispatch.grounding.search or DEFAULTS
        try:
            whole = [(one, await self._units(dispatch, one)) for one in _unsearched(dispatch.grounding)]
            found = await self._found(dispatch)
        except SapwoodError as error:
            failure = failure_of(error)
            if failure is None:
                raise
            if search.on_failure is OnFailure.CONTINUE:
                return Evidence()
            raise failure from error
        specs = _specs(dispatch.declaration) if search.include_spec else ()
        parts: list[Evidence] = []
        for entry, hits in (*whole, (None, found.hits)):
            rendered = await self._words.render(entry, hits, search, specs)
            specs = () if rendered.shown else specs  # said once, above the first of them
            parts.append(_evidence(rendered, len(hits), found.stale and entry is None))
        return _joined(parts)

    async def _found(self, dispatch: Dispatch) -> Found:
        """Search: from the cache, or through the binding. Stale results stand in for a failure where they are taken."""
        grounding, search = dispatch.grounding, dispatch.grounding.search
        entries = grounding.sources or (_files(dispatch.declaration) if grounding.graph else ())
        sources = tuple(map(asking.source_of, entries))
        if search is None or not sources or not dispatch.question:
            return Found((), 0)
        app = self._app_of(dispatch.scope)
        owner, scope = dispatch.declaration.owner, dispatch.scope
        key = (owner, app.tenant, sources, dispatch.question, asking.documents_of(search), asking.scope_key(scope))
        try:
            return await self._search(dispatch, app, sources, search, key)
        except SapwoodError as error:
            stale = self._kept.stale(key) if scope.accept_stale and failure_of(error) else None
            if stale is None:
                raise
            return stale

    async def _search(
        self,
        dispatch: Dispatch,
        app: Sapwood,
        sources: Sequence[Knowledge],
        search: SearchSettings,
        key: tuple[Any, ...],
    ) -> Found:
        owner = dispatch.declaration.owner
        bound = await self._bindings.bind(app, owner, sources)

        async def find() -> Found:
            request = asking.request_of(search, dispatch.question, sources, dispatch.scope, dispatch.deadline)
            try:
                result = await app.query(bound.corpus, request)
            except NotFound as error:
                self._bindings.invalidate(owner)  # whoever asks next has it made anew
                raise RetrievalError("The corpus of the declared sources was deleted.", SOURCE_LOADING) from error
            return Found(result.hits, bound.number)

        if not search.cache:
            return await find()
        return await self._kept.serve(key, bound.number, search.cache_ttl, dispatch.deadline, find)

    async def _units(self, dispatch: Dispatch, entry: Knowledge) -> tuple[Hit, ...]:
        app = self._app_of(dispatch.scope)
        documents = await self._bindings.load(
            app, dispatch.declaration.owner, asking.source_of(entry), dispatch.deadline
        )
        return await anyio.to_thread.run_sync(units_of, entry, documents)

    def _prompt(self, dispatch: Dispatch, evidence: Evidence | None) -> Prompt:
        return prompt_of(dispatch.declaration, dispatch.action, evidence, dispatch.given, self._words.boundary)

    async def _ask(self, dispatch: Dispatch, evidence: Evidence | None) -> AsyncGenerator[str, None]:
        assert self._model is not None, "checked with the class"
        prompt = self._prompt(dispatch, evidence)
        async with aclosing(self._model.stream(prompt, dispatch.deadline)) as pieces:
            while True:
                with dispatch.scope.limits(dispatch.deadline):
                    piece = await _next(pieces, dispatch.deadline)
                if piece is None:
                    return
                yield piece

    async def _check_action(self, action: Action, files: Sequence[Knowledge]) -> None:
        asking.check_served(action.grounding, files)
        if action.type is ActionType.LLM and self._model is None:
            raise ConfigurationError("an LLM action needs a model: set SAPWOOD_OPENAI_API_KEY, or give one.")
        if action.grounding.search:
            scope, deadline = RetrievalContext(), Deadline.after(SECONDS)
            request = asking.request_of(action.grounding.search, "check", action.grounding.sources, scope, deadline)
            await self._app.services.agents.assistants.serving(request)

    def _app_of(self, scope: RetrievalContext) -> Sapwood:
        return Sapwood(self._app.services, scope.tenant) if scope.tenant else self._app


@dataclass(frozen=True, slots=True)
class _Words:
    """How what was found becomes text."""

    tokenizer: Tokenizer
    boundary: str

    async def render(
        self, entry: Knowledge | None, hits: Sequence[Hit], search: SearchSettings, specs: Sequence[Spec]
    ) -> Rendered:
        """Return the text of what was found or, with an entry, of what that entry gives."""

        def work() -> Rendered:
            if entry is None:
                return render(hits, search.context_format, search.context_window, self.tokenizer, specs)
            window = entry.max_tokens or search.context_window
            return render_units(entry, hits, search.context_format, window, self.tokenizer, specs)

        return await anyio.to_thread.run_sync(work) if _is_large(hits) else work()


@asynccontextmanager
async def open_grounded(
    app: Sapwood,
    *,
    memories: Memories | None = None,
    model: ChatModel | None = None,
    settings: CorpusSettings | None = None,
    boundary: str = BOUNDARY,
    tokenizer: Tokenizer | None = None,
    fetcher: Fetcher | None = None,
) -> AsyncGenerator[Grounded, None]:
    """Open what carries out actions on this application.

    `memories` are the documents of MEMORY entries. `model` carries out LLM actions, by default that of the application's
    endpoint. `settings` are those of the corpora that sources are indexed into; by default they are embedded by the one
    provider that is installed, else hashed. `fetcher` fetches the pages that are used without a search.

    Raises:
        ConfigurationError: the boundary, the name of a document or what is installed cannot be used.
    """
    check_boundary(boundary)
    given = memories or {}
    installed = await anyio.to_thread.run_sync(_installed)
    found = await anyio.to_thread.run_sync(choose) if tokenizer is None else tokenizer
    words = _Words(found, boundary)
    folder = await anyio.to_thread.run_sync(lambda: tempfile.TemporaryDirectory(prefix="sapwood-memory-"))
    try:
        await anyio.to_thread.run_sync(_write_memories, Path(folder.name), given)
        chosen = settings or _settings(installed)
        bindings = Bindings(chosen, tuple(given), Path(folder.name), fetcher or Fetcher())
        inventory = Inventory(embeddings=() if settings else installed, memories=tuple(given))
        yield Grounded(app, bindings, model or app.services.agents.chat, inventory, words)
    finally:
        with anyio.move_on_after(5.0, shield=True):
            await anyio.to_thread.run_sync(folder.cleanup)


async def _next(pieces: AsyncGenerator[str, None], deadline: Deadline) -> str | None:
    """Return the next piece of an answer, None after the last."""
    try:
        return await anext(pieces, None)
    except ModelError:
        if deadline.remaining() < FLOOR:
            raise DeadlineExceeded() from None  # the model's clock ran out a moment before ours
        raise


def _installed() -> tuple[str, ...]:
    return tuple(point.name for point in entry_points(group=ENTRY_POINTS))


def _settings(installed: Sequence[str]) -> CorpusSettings:
    """Return the settings of corpora; several providers are an error of whatever class needs one."""
    name = installed[0] if len(installed) == 1 else "hash"
    return CorpusSettings(embedding=EmbeddingSettings(provider=name))


def _write_memories(folder: Path, memories: Memories) -> None:
    """Write down the documents of each entry. Blocking: for a thread."""
    for number, (entry, documents) in enumerate(memories.items()):
        place = folder / str(number)
        place.mkdir(mode=0o700)
        for name, text in documents.items():
            path = PurePosixPath(name)
            if path.is_absolute() or any(part.startswith(".") for part in path.parts) or not path.name or "\0" in name:
                raise ConfigurationError(f"MEMORY entry {entry!r}: {name[:80]!r} is no name for a document.")
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text, "utf-8", "replace")


def _dispatch(
    owner: object, declaration: Declaration, name: str, arguments: Mapping[str, object], scope: RetrievalContext
) -> Dispatch:
    if (action := declaration.actions.get(name)) is None:
        names = ", ".join(declaration.actions) or "none"
        raise NotFound(f"{declaration.title} has no action {name!r}; there are: {names}.")
    given = asking.parameters(name, action.of(owner), arguments)
    question = asking.question_text(action, given, scope)
    return Dispatch(declaration, action, given, question, scope, scope.deadline or Deadline.after(SECONDS))


def _files(declaration: Declaration) -> tuple[Knowledge, ...]:
    """Return the sources whose graph a GRAPH entry reads."""
    return tuple(one for one in declaration.entries if one.type is KnowledgeType.FILE and one.searched)


def _unsearched(grounding: Grounding) -> list[Knowledge]:
    return [one for one in grounding.entries if not one.searched and one.type is not KnowledgeType.GRAPH]


def _specs(declaration: Declaration) -> tuple[Spec, ...]:
    return tuple(Spec(one.name, one.description) for one in (declaration.role, declaration.agent) if one)


def _is_large(hits: Sequence[Hit]) -> bool:
    return sum(len(hit.text) for hit in hits) > LARGE


def _evidence(rendered: Rendered, count: int, stale: bool) -> Evidence:
    return Evidence(rendered.text, count, rendered.truncated, stale, rendered.sources)


def _joined(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of several entries as one, in their order."""
    return Evidence(
        "\n\n".join(part.text for part in parts if part.text),
        sum(part.count for part in parts),
        any(part.truncated for part in parts),
        any(part.stale for part in parts),
        tuple(dict.fromkeys(source for part in parts for source in part.sources)),
    )

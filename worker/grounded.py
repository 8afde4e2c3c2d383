"""Actions and chats with the knowledge that their classes declare, carried out on an open application.

A dispatch goes: clear the reserved keys → check the parameters → choose the question → retrieve (cache, binding, query
stage) → render → write the keys → splice and ask the model, or call the function. A turn of a chat goes the same way, with
its message for the question; what grounds it is the agent's own, never what actions name.
"""

from __future__ import annotations

import hashlib
import inspect
import tempfile
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
import anyio.to_thread
from structlog.contextvars import bound_contextvars

from pipeline.deadline import FLOOR, Deadline
from pipeline.declare import asking
from pipeline.declare.actions import CONTEXT_PARAMETER, Action, ActionType
from pipeline.declare.chat import ChatModel, Prompt, chat_prompt_of, prompt_of
from pipeline.declare.classes import Declaration, declaration_of
from pipeline.declare.demands import (
    EmbeddingDemand,
    GraphDemand,
    Inventory,
    MemoryDemand,
    check_demands,
    demands,
    files_of,
)
from pipeline.declare.fence import BOUNDARY, check_boundary
from pipeline.declare.grounding import Grounding
from pipeline.declare.keys import Evidence, clear, write
from pipeline.declare.plan import Plan, check_served, contextual, plan_of
from pipeline.declare.rules import within
from pipeline.declare.scope import RetrievalContext
from pipeline.declare.tokens import Tokenizer
from pipeline.errors import ConfigurationError, DeadlineExceeded, InvalidRequest, ModelError, NotFound
from pipeline.ingest.embed import ENTRY_POINTS
from pipeline.ingest.paid import retried
from pipeline.ingest.urls import Fetcher
from pipeline.retrieval.assistants import Counted, Spent
from schemas.settings import CorpusSettings, EmbeddingSettings
from worker.app import Sapwood
from worker.bindings import NOTHING, Bindings
from worker.evidence import Retriever, Turn

SECONDS = 60.0
"""What a request gets that brings no deadline."""

MAX_PLANS = 1024
"""Plans that are kept: one for each action or chat and each choice of sources in scope."""

Memories = Mapping[str, Mapping[str, str]]
"""By the names of MEMORY entries, their documents by name; a name with a suffix, such as `notes.md`, says what it is."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One call of an action, settled."""

    declaration: Declaration
    action: Action
    given: Mapping[str, object]
    turn: Turn


class Grounded:
    """Carries out actions and chats; made by `open_grounded`. Usable from the application's event loop, by any number of
    calls. `spent` are the tokens of all answers that were heard to their end, where the model counts them.
    """

    def __init__(
        self,
        app: Sapwood,
        bindings: Bindings,
        retriever: Retriever,
        model: ChatModel | None,
        inventory: Inventory,
        boundary: str,
    ) -> None:
        self._app, self._bindings, self._retriever = app, bindings, retriever
        self._model, self._inventory, self._boundary = model, inventory, boundary
        self.spent = Spent()
        self._declared: dict[type, Declaration] = {}
        self._plans: dict[tuple[type, str | None, tuple[str, ...], type | None], Plan] = {}

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
        needed = [one for one in demands(declaration) if isinstance(one, MemoryDemand | EmbeddingDemand | GraphDemand)]
        check_demands(needed, self._inventory)
        for action in declaration.actions.values():
            with within(f"{declaration.title}: action {action.name!r}"):
                await self._check_grounding(action.grounding, declaration)
                if action.type is ActionType.LLM:
                    self._check_model("an LLM action")
        with within(f"{declaration.title}: chat"):
            await self._check_grounding(declaration.chat, declaration)
        self._declared[owner] = declaration
        return declaration

    async def _check_grounding(self, grounding: Grounding, declaration: Declaration) -> None:
        check_served(grounding)
        for entry in contextual(grounding, files_of(declaration)):
            with within(f"knowledge entry {entry.name!r}: chunk_context_model"):
                await self._app.services.agents.assistants.writer(entry.chunk_context_model or "")
        if grounding.search:
            scope, deadline = RetrievalContext(), Deadline.after(SECONDS)
            request = asking.request_of(grounding.search, "check", (), scope, deadline)
            await self._app.services.agents.assistants.serving(request)

    def _check_model(self, what: str) -> ChatModel:
        if self._model is None:
            raise ConfigurationError(f"{what} needs a model: set SAPWOOD_OPENAI_API_KEY, or give one.")
        return self._model

    async def invalidate(self, owner: type) -> None:
        """Have the sources of a class read anew when they are used next; until then, nothing of them changes."""
        self._bindings.invalidate(owner)

    # --- Actions.

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
        is awaited if it is a coroutine function; any other runs on the event loop, and must not block. A model that fails in
        passing before it has said anything is asked again.

        Raises:
            ConfigurationError: something that is declared is missing or not served; before anything is read.
            InvalidRequest: the arguments or filters do not fit, or the context window has room for nothing of what was found;
                the model is not asked.
            RetrievalError: its knowledge could not be had, and `on_failure` is FAIL.
            RunCancelled, DeadlineExceeded: whatever `on_failure` says.
            ModelError: the model of an LLM action failed.
        """
        context = {} if context is None else context
        dispatch, evidence = await self._dispatched(owner, action, arguments or {}, context, scope)
        if dispatch.action.type is ActionType.LLM:
            return await self._answer(dispatch.turn, self._prompt(dispatch, evidence))
        if dispatch.action.type is not ActionType.LOCAL:
            raise ConfigurationError(f"{dispatch.action.type.name} actions are carried out by the application.")
        function = dispatch.action.of(owner)
        own = {CONTEXT_PARAMETER: context} if dispatch.action.takes_context else {}
        with dispatch.turn.scope.limits(dispatch.turn.deadline):
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
        dispatch, evidence = await self._dispatched(owner, action, arguments or {}, context, scope)
        if dispatch.action.type is not ActionType.LLM:
            raise ConfigurationError(f"{action}: only LLM actions have an answer to stream.")
        async with aclosing(self._pieces(dispatch.turn, self._prompt(dispatch, evidence))) as pieces:
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
        return self._prompt(*await self._dispatched(owner, action, arguments or {}, {}, scope))

    # --- Chats.

    async def chat(
        self,
        agent: object,
        message: str,
        history: Prompt = (),
        context: MutableMapping[str, object] | None = None,
        scope: RetrievalContext | None = None,
    ) -> str:
        """Return the answer of an agent's model to a message, grounded by what the agent declares for its chats.

        `history` are the turns before, with `role` (user or assistant) and `content`; they are sent, not searched. `context`
        has the reserved keys afterwards.

        Raises what `call` raises for an LLM action, and ConfigurationError for what is no agent.
        """
        turn, prompt = await self._chat(agent, message, history, {} if context is None else context, scope)
        return await self._answer(turn, prompt)

    async def chat_stream(
        self,
        agent: object,
        message: str,
        history: Prompt = (),
        context: MutableMapping[str, object] | None = None,
        scope: RetrievalContext | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yield the answer to a message as the model gives it; all else is as in `chat`."""
        turn, prompt = await self._chat(agent, message, history, {} if context is None else context, scope)
        async with aclosing(self._pieces(turn, prompt)) as pieces:
            async for piece in pieces:
                yield piece

    async def chat_prompt(
        self, agent: object, message: str, history: Prompt = (), scope: RetrievalContext | None = None
    ) -> Prompt:
        """Return the prompt that `chat` sends, without sending it; it retrieves as that does."""
        return (await self._chat(agent, message, history, {}, scope))[1]

    # --- The stages of a dispatch, in their order.

    async def _dispatched(
        self,
        owner: object,
        name: str,
        arguments: Mapping[str, object],
        context: MutableMapping[str, object],
        scope: RetrievalContext | None,
    ) -> tuple[Dispatch, Evidence | None]:
        clear(context)
        scope = scope or RetrievalContext()
        declaration = await self._declaration(type(owner))
        if (action := declaration.actions.get(name)) is None:
            names = ", ".join(declaration.actions) or "none"
            raise NotFound(f"{declaration.title} has no action {name!r}; there are: {names}.")
        given = asking.parameters(action, arguments)
        question = asking.question_text(action, given, scope)
        turn = await self._turn(declaration, name, question, scope)
        evidence = await self._ground(turn, action.grounding, context)
        return Dispatch(declaration, action, given, turn), evidence

    async def _chat(
        self,
        agent: object,
        message: str,
        history: Prompt,
        context: MutableMapping[str, object],
        scope: RetrievalContext | None,
    ) -> tuple[Turn, Prompt]:
        clear(context)
        scope = scope or RetrievalContext()
        declaration = await self._declaration(type(agent))
        if declaration.agent is None:
            raise ConfigurationError(f"{declaration.title} is no agent, and only agents chat.")
        self._check_model(f"{declaration.title}: a chat")
        chat_prompt_of(declaration, history, message, None, self._boundary)  # before anything is read
        turn = await self._turn(declaration, None, asking.chat_question(message, scope), scope)
        evidence = await self._ground(turn, declaration.chat, context)
        return turn, chat_prompt_of(declaration, history, message, evidence, self._boundary)

    async def _turn(self, declaration: Declaration, name: str | None, question: str, scope: RetrievalContext) -> Turn:
        """Return what is to be grounded: the action of this name, or the chat."""
        key = (declaration.owner, name, scope.source_paths, scope.agent)
        if (plan := self._plans.get(key)) is None:
            agent = await self._declaration(scope.agent) if scope.agent else None
            if agent and declaration.owner not in agent.roles:
                raise InvalidRequest(f"agent: {agent.title} does not have {declaration.title}")
            grounding = declaration.actions[name].grounding if name is not None else declaration.chat
            plan = plan_of(declaration, grounding, scope.source_paths, agent)
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return Turn(plan, question, scope, scope.deadline or Deadline.after(SECONDS))

    async def _ground(self, turn: Turn, grounding: Grounding, context: MutableMapping[str, object]) -> Evidence | None:
        if not grounding.entries:
            return None
        with turn.scope.limits(turn.deadline), bound_contextvars(**turn.scope.labels):
            evidence = await self._retriever.evidence(turn)
        write(context, evidence)
        return evidence

    def _prompt(self, dispatch: Dispatch, evidence: Evidence | None) -> Prompt:
        return prompt_of(dispatch.declaration, dispatch.action, evidence, dispatch.given, self._boundary)

    async def _answer(self, turn: Turn, prompt: Prompt) -> str:
        async with aclosing(self._pieces(turn, prompt)) as pieces:
            return "".join([piece async for piece in pieces])

    async def _pieces(self, turn: Turn, prompt: Prompt) -> AsyncGenerator[str, None]:
        model, deadline = self._check_model("it"), turn.deadline

        async def begin() -> tuple[AsyncGenerator[str | Counted[str], None], str | None]:
            """Ask; until the model says something, nothing is lost if it is asked again."""
            pieces = model.stream(prompt, deadline)
            piece: str | None = ""
            while piece == "":
                piece = self._heard(await _next(pieces, deadline))
            return pieces, piece

        with turn.scope.limits(deadline):
            pieces, piece = await retried(begin, deadline)
        async with aclosing(pieces):
            while piece is not None:
                if piece:
                    yield piece
                with turn.scope.limits(deadline):
                    piece = self._heard(await _next(pieces, deadline))

    def _heard(self, piece: str | Counted[str] | None) -> str | None:
        """Return a piece by itself; what it cost is counted."""
        if isinstance(piece, Counted):
            cost = {"input_tokens": piece.input_tokens, "output_tokens": piece.output_tokens}
            self._app.services.vitals.metrics.paid(cost)
        return None if piece is None else self.spent.note(piece)


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
    """Open what carries out actions and chats on this application.

    `memories` are the documents of MEMORY entries. `model` carries out LLM actions and chats, by default that of the
    application's endpoint. `settings` are those of the corpora that sources are indexed into; by default they are embedded by
    the one provider that is installed, else hashed. `tokenizer` counts the tokens of contexts, by default that of
    SAPWOOD_TOKENIZER_FILE, else the one that is installed, else an estimate. `fetcher` fetches the pages that are used
    without a search.

    Raises:
        ConfigurationError: the boundary, the name of a document or what is installed cannot be used.
    """
    check_boundary(boundary)
    given, agents = memories or {}, app.services.agents
    installed = await anyio.to_thread.run_sync(_installed)
    counting = await anyio.to_thread.run_sync(agents.tokenizer) if tokenizer is None else tokenizer
    chosen = settings or _settings(installed)
    folder = await anyio.to_thread.run_sync(lambda: tempfile.TemporaryDirectory(prefix="sapwood-memory-"))
    try:
        digests = await anyio.to_thread.run_sync(_write_memories, Path(folder.name), given)
        bindings = Bindings(chosen, digests, Path(folder.name), fetcher or Fetcher(), app.services.preparer)
        inventory = Inventory(
            embeddings=() if settings else installed,
            graphs=await agents.graphs.all() if chosen.graph_search.enabled else (),
            graph_store=chosen.graph_storage.backend if chosen.graph_indexing.enabled else "",
            memories=tuple(given),
        )
        retriever = Retriever(app, bindings, inventory, counting)
        yield Grounded(app, bindings, retriever, model or agents.chat, inventory, boundary)
    finally:
        with anyio.move_on_after(5.0, shield=True):
            await anyio.to_thread.run_sync(folder.cleanup)


async def _next(pieces: AsyncGenerator[str | Counted[str], None], deadline: Deadline) -> str | Counted[str] | None:
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


def _write_memories(folder: Path, memories: Memories) -> dict[str, str]:
    """Write down the documents of each entry, beside a folder that has none, and return a digest of them by its name.
    Blocking: for a thread.
    """
    (folder / NOTHING).mkdir(mode=0o700)
    digests: dict[str, str] = {}
    for number, (entry, documents) in enumerate(memories.items()):
        place = folder / str(number)
        place.mkdir(mode=0o700)
        for name, text in documents.items():
            path = PurePosixPath(name)
            if path.is_absolute() or any(part.startswith(".") for part in path.parts) or not path.name or "\0" in name:
                raise ConfigurationError(f"MEMORY entry {entry!r}: {name[:80]!r} is no name for a document.")
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text, "utf-8", "replace")
        written = "\0".join(f"{name}\0{text}" for name, text in sorted(documents.items()))
        digests[entry] = hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()
    return digests

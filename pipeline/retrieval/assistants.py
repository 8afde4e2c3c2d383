"""The models that assist a query (expander, navigator, reranker) or an index (writer of contexts): their contracts, and how
the one for a request or a corpus is found.

What a request names is served by exactly one provider, or the request is an error: nothing is done without it instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import anyio
import anyio.to_thread

from pipeline.deadline import FLOOR, Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, ModelError, ProviderUnavailable, SapwoodError
from pipeline.ingest.paid import retried
from schemas.query import QueryRequest, Strategy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Counted(Generic[T]):
    """An answer with the tokens that were paid for it; a provider that does not count them returns the answer alone."""

    answer: T
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True)
class Spent:
    """The tokens that were paid for in one stage of a query."""

    input_tokens: int = 0
    output_tokens: int = 0

    def note(self, answer: T | Counted[T]) -> T:
        """Add what an answer cost, and return the answer by itself."""
        if not isinstance(answer, Counted):
            return answer
        counted = cast("Counted[T]", answer)
        self.input_tokens += counted.input_tokens
        self.output_tokens += counted.output_tokens
        return counted.answer


@runtime_checkable
class Assistant(Protocol):
    """What all three have in common. Entry points are callables without arguments that return one."""

    @property
    def fingerprint(self) -> str:
        """Name and version: results of two fingerprints are kept apart."""
        ...

    def serves(self, model: str) -> bool:
        """Whether it has this model. No I/O: it is asked on the event loop, for each request."""
        ...


@runtime_checkable
class QueryExpander(Assistant, Protocol):
    """Asks a question in other words. Installed ones are in the group `sapwood.query_expansion`."""

    async def expand(
        self, model: str, question: str, most: int, deadline: Deadline
    ) -> Sequence[str] | Counted[Sequence[str]]:
        """Return up to `most` other ways to ask it; each stands by itself.

        Raises:
            ModelError: the model did not answer, or not in a form that can be used.
        """
        ...


@dataclass(frozen=True, slots=True)
class Option:
    """A document or heading that a navigator may open, with how many chunks lie below it."""

    label: str
    chunks: int


@runtime_checkable
class Navigator(Assistant, Protocol):
    """Chooses where in the headings to look. Installed ones are in the group `sapwood.navigation`."""

    async def choose(
        self, model: str, question: str, options: Sequence[Option], most: int, deadline: Deadline
    ) -> Sequence[int] | Counted[Sequence[int]]:
        """Return the numbers, from 1, of up to `most` options that may hold the answer, the likeliest first; perhaps none.

        Raises:
            ModelError: the model did not answer, or not in a form that can be used.
        """
        ...


@runtime_checkable
class Reranker(Assistant, Protocol):
    """Judges passages for a question. Installed ones are in the group `sapwood.reranking`."""

    async def scores(
        self, model: str, question: str, passages: Sequence[str], deadline: Deadline
    ) -> Sequence[float] | Counted[Sequence[float]]:
        """Return one finite number for each passage, in their order, the higher the better.

        Raises:
            ModelError: the model did not answer, or not in a form that can be used.
        """
        ...


@runtime_checkable
class ContextWriter(Assistant, Protocol):
    """Says where in its document a chunk stands. Installed ones are in the group `sapwood.chunk_context`."""

    def version(self, model: str) -> str:
        """Name and version of what answers for this model: another one writes all contexts anew. No I/O."""
        ...

    async def context(self, model: str, document: str, passage: str, deadline: Deadline) -> str | Counted[str]:
        """Return one or two sentences that say where the passage stands, of use to who searches for it.

        `document` is the part of it that is shown, title and headings first; none of it is to be trusted.

        Raises:
            ModelError: the model did not answer, or not in a form that can be used.
        """
        ...


A = TypeVar("A", bound=Assistant)


@dataclass(frozen=True, slots=True)
class Assigned(Generic[A]):
    """A provider with the model that it serves for a request."""

    provider: A
    model: str


@dataclass(frozen=True, slots=True)
class CountedNavigator:
    """A `Navigator` over several steps, whose tokens are added up."""

    navigator: Navigator
    spent: Spent

    @property
    def fingerprint(self) -> str:
        """That of the navigator."""
        return self.navigator.fingerprint

    def serves(self, model: str) -> bool:
        """As the navigator says."""
        return self.navigator.serves(model)

    async def choose(
        self, model: str, question: str, options: Sequence[Option], most: int, deadline: Deadline
    ) -> Sequence[int]:
        """Return the navigator's choice."""
        return self.spent.note(await self.navigator.choose(model, question, options, most, deadline))


@dataclass(frozen=True, slots=True)
class Assisting:
    """Who assists one request; None: nobody is needed."""

    expander: Assigned[QueryExpander] | None = None
    navigator: Assigned[Navigator] | None = None
    reranker: Assigned[Reranker] | None = None

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Those of all that assist."""
        found = (self.expander, self.navigator, self.reranker)
        return tuple(one.provider.fingerprint for one in found if one is not None)


_Words = tuple[str, str, str]
"""The field of a request and the setting of a corpus that name a model, and the entry-point group."""

_EXPANDER: _Words = ("expander", "query_models.expander", "sapwood.query_expansion")
_NAVIGATOR: _Words = ("navigator_model", "query_models.navigator", "sapwood.navigation")
_RERANKER: _Words = ("reranker", "query_models.reranker", "sapwood.reranking")
_WRITER: _Words = ("chunk.context_model", "chunk.context_model", "sapwood.chunk_context")


class Assistants:
    """The providers of a process: its own, and those that are installed."""

    def __init__(
        self,
        expanders: Sequence[QueryExpander] = (),
        navigators: Sequence[Navigator] = (),
        rerankers: Sequence[Reranker] = (),
        writers: Sequence[ContextWriter] = (),
    ) -> None:
        self._expanders = _Kind(_EXPANDER, lambda one: one if isinstance(one, QueryExpander) else None, expanders)
        self._navigators = _Kind(_NAVIGATOR, lambda one: one if isinstance(one, Navigator) else None, navigators)
        self._rerankers = _Kind(_RERANKER, lambda one: one if isinstance(one, Reranker) else None, rerankers)
        self._writers = _Kind(_WRITER, lambda one: one if isinstance(one, ContextWriter) else None, writers)

    async def writer(self, model: str) -> Assigned[ContextWriter]:
        """Return who writes the contexts of chunks where a corpus names this model. Raises as `serving` does."""
        return await self._writers.serving(model)

    async def serving(self, request: QueryRequest) -> Assisting:
        """Return who assists a request whose model ids are those that hold, the corpus's included.

        Any strategy has its question asked in other words where the request names an expander.

        Raises:
            ConfigurationError: it needs a model and names none, several providers serve it, or one cannot be loaded.
            ProviderUnavailable: nobody serves the model.
        """
        expands = request.strategy is Strategy.MULTI_QUERY or bool(request.expander)
        walks = request.strategy is Strategy.REASONING
        return Assisting(
            await self._expanders.serving(request.expander) if expands else None,
            await self._navigators.serving(request.navigator_model) if walks else None,
            await self._rerankers.serving(request.reranker) if request.rerank else None,
        )


class _Kind(Generic[A]):
    """The providers of one kind; `checked` returns None for what does not keep its contract."""

    def __init__(self, words: _Words, checked: Callable[[object], A | None], own: Sequence[A]) -> None:
        self._field, self._setting, self._group = words
        self._check = checked
        self._own = tuple(own)

    async def serving(self, model: str) -> Assigned[A]:
        if not model.strip():
            raise ConfigurationError(f"{self._field}: name a model here or in {self._setting} of the corpus.")
        # In a thread since the first call imports. Others who ask meanwhile do the same, and come to the same.
        found = await anyio.to_thread.run_sync(installed, self._group, abandon_on_cancel=True)
        serving = [one for one in (*self._own, *map(self._checked, found)) if self._serves(one, model)]
        if not serving:
            raise ProviderUnavailable(f"{self._field}: no provider serves the model {model!r}.")
        if len(serving) > 1:
            raise ConfigurationError(f"{self._field}: several providers serve the model {model!r}; remove one.")
        return Assigned(serving[0], model)

    def _checked(self, provider: object) -> A:
        if (kept := self._check(provider)) is not None:
            return kept
        raise ConfigurationError(f"{self._group}: {type(provider).__name__} does not keep the contract; remove it.")

    def _serves(self, provider: A, model: str) -> bool:
        try:
            return provider.serves(model)
        except Exception as error:
            name = type(provider).__name__
            raise ConfigurationError(
                f"{self._group}: {name} cannot say what it serves ({type(error).__name__})."
            ) from error


@cache
def installed(group: str) -> tuple[object, ...]:
    """Load the installed providers of a group, once for a process. Raises ConfigurationError naming what will not load."""
    return tuple(_loaded(group, point) for point in entry_points(group=group))


def _loaded(group: str, point: EntryPoint) -> object:
    try:
        return point.load()()
    except Exception as error:
        problem = f"{group}: {point.name!r} cannot be loaded ({type(error).__name__}); mend or remove it."
        raise ConfigurationError(problem) from error


async def heard(
    what: str, call: Callable[[], Awaitable[T | Counted[T]]], deadline: Deadline, spent: Spent | None = None
) -> T:
    """Return what an assistant answers by the deadline, asked again where it fails in passing; what it raises becomes one
    of our errors, and what it costs is added to `spent`.

    Raises:
        DeadlineExceeded: it did not answer in time, whether it noticed or not.
        SapwoodError: its own, as it is.
        ModelError: anything else that it raised.
    """
    deadline.budget(FLOOR)
    try:
        with anyio.CancelScope(deadline=deadline.at):
            return (spent or Spent()).note(await retried(call, deadline))
    except ModelError:
        if deadline.remaining() < FLOOR:
            raise DeadlineExceeded() from None  # its own clock ran out a moment before ours
        raise
    except SapwoodError:
        raise
    except Exception as error:
        raise ModelError(f"The {what} failed with {type(error).__name__}.") from error
    raise DeadlineExceeded()


def listed(answer: object) -> Sequence[object] | None:
    """Return an answer that is a list or a tuple, None for any other: what is installed may return anything."""
    return cast("Sequence[object]", answer) if isinstance(answer, list | tuple) else None

"""Actions: functions that an agent can be asked for, with the knowledge that grounds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from pipeline.declare.entries import Knowledge
from pipeline.declare.grounding import Grounding, for_action
from pipeline.declare.question import Question, question_of, signature_of
from pipeline.declare.rules import TEXT, check, one_of, within
from pipeline.errors import ConfigurationError, InvalidRequest

Entries: TypeAlias = Knowledge | Iterable[Knowledge]
"""One entry, or several."""

CONTEXT_PARAMETER = "context"
"""A parameter of this name gets the context mapping of the call; it is no argument of the action."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = "__sapwood_action__"


class ActionType(StrEnum):
    """What carries an action out."""

    LOCAL = "local"
    """The function itself; its context is fetched before it runs."""
    LLM = "llm"
    """A model, whose prompt has the context."""
    WEB_SERVICE = "web_service"
    MCP_TOOL = "mcp_tool"


GROUNDED = frozenset({ActionType.LOCAL, ActionType.LLM})
"""Types of actions that may name knowledge."""

_RULES = {"name": TEXT, "type": one_of(ActionType), "description": TEXT}


@dataclass(frozen=True, slots=True)
class Mark:
    """What `action` notes on a function: all that can be known without its class."""

    name: str
    type: ActionType
    description: str
    knowledge: tuple[Knowledge, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a class, ready to be asked for.

    Attributes:
        function: what carries it out; of a method, the function without its object.
        signature: how it is called; of a method, without its object.
        attribute: the name of a method in its class; empty for a function that is listed.
        grounding: what grounds it; empty for an action without knowledge.
        question: what is searched for; None where nothing is.
    """

    name: str
    type: ActionType
    description: str
    function: Callable[..., Any]
    signature: inspect.Signature
    attribute: str
    grounding: Grounding
    question: Question | None

    @property
    def takes_context(self) -> bool:
        """Whether the function wants the context mapping."""
        return CONTEXT_PARAMETER in self.signature.parameters

    def check(self, arguments: Mapping[str, object]) -> None:
        """Do nothing if these are arguments of the action. Raises InvalidRequest naming the one that is missing or more."""
        if CONTEXT_PARAMETER in arguments and self.takes_context:
            raise InvalidRequest(
                f"{self.name}: {CONTEXT_PARAMETER} is no argument, the action gets it from its dispatch"
            )
        own = {CONTEXT_PARAMETER: None} if self.takes_context else {}
        try:
            self.signature.bind(**arguments, **own)
        except TypeError as error:
            raise InvalidRequest(f"{self.name}: {error}") from error

    def of(self, owner: object) -> Callable[..., Any]:
        """Return what is to be called for this object of the class."""
        found: Callable[..., Any] = getattr(owner, self.attribute) if self.attribute else self.function
        return found


def action(
    type: ActionType, description: str, *, name: str | None = None, knowledge: Entries = ()
) -> Callable[[_Function], _Function]:
    """Declare a method of a role or an agent, or a function that one of them lists, as an action.

    The function stays what it is. `name` is what it is asked for by, its own where it is not given; `knowledge` names
    entries of the class.

    Raises:
        ConfigurationError: when the function is defined: knowledge on a type of action that takes none, or a wrong value.
            What depends on the class shows when that is made.
    """

    def declare(function: _Function) -> _Function:
        target = getattr(function, "__func__", function)
        called = name if name is not None else getattr(target, "__name__", "")
        with within(f"Action {getattr(target, '__qualname__', called)!r}"):
            mark = Mark(called, type, description, entries_of(knowledge))
            check({"type": type, "name": called, "description": description}, _RULES)
            if mark.knowledge and type not in GROUNDED:
                raise ConfigurationError(
                    f"{type.name} actions take no knowledge, only LLM and LOCAL ones; leave it out."
                )
            _note(target, mark)
        return function

    return declare


def mark_of(function: object) -> Mark | None:
    """Return what `action` noted on a function, a static or a class method; None where it noted nothing."""
    mark = getattr(getattr(function, "__func__", function), _MARK, None)
    return mark if isinstance(mark, Mark) else None


def _note(function: object, mark: Mark) -> None:
    if not callable(function) or mark_of(function) is not None:
        raise ConfigurationError("put @action on a function, and once.")
    try:
        setattr(function, _MARK, mark)
    except AttributeError as error:
        raise ConfigurationError(
            "nothing can be noted on this; put @action on a function written in Python."
        ) from error


def entries_of(knowledge: Entries) -> tuple[Knowledge, ...]:
    """Return one or several entries as several."""
    return (knowledge,) if isinstance(knowledge, Knowledge) else tuple(knowledge)


def bound(
    mark: Mark,
    function: Callable[..., Any],
    declaration: Sequence[Knowledge],
    attribute: str = "",
    *,
    method: bool = False,
) -> Action:
    """Return the action that a function is in a class that declares these entries.

    `method` says whether the function's first parameter is the object or the class.

    Raises:
        ConfigurationError: the function cannot be grounded like this.
    """
    grounding = for_action(declaration, mark.knowledge)
    question = question_of(function, grounding.search.query_param, method=method) if grounding.search else None
    signature = signature_of(function, method=method)
    return Action(mark.name, mark.type, mark.description, function, signature, attribute, grounding, question)

"""Roles and agents: classes that declare knowledge for their actions and their chats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from pipeline.declare.actions import Action, Entries, Mark, bound, entries_of, mark_of
from pipeline.declare.entries import Knowledge, declared
from pipeline.declare.grounding import Grounding, for_agent, shared
from pipeline.declare.rules import TEXT, check, within
from pipeline.errors import ConfigurationError

_Class = TypeVar("_Class", bound=type)
_ROLE, _AGENT = "__sapwood_role__", "__sapwood_agent__"


@dataclass(frozen=True, slots=True)
class Spec:
    """What a class says of itself as a role or as an agent."""

    name: str
    description: str
    knowledge: tuple[Knowledge, ...] = ()
    actions: tuple[Callable[..., Any], ...] = ()
    roles: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that a class declares, with what it inherits.

    Attributes:
        role, agent: what it says of itself; one of them is there at least.
        entries: the entries of both, those of its bases first.
        actions: its actions, by name.
        chat: what grounds its chats, whose turns name no action; empty for what is no agent.
    """

    owner: type
    role: Spec | None
    agent: Spec | None
    entries: tuple[Knowledge, ...]
    actions: Mapping[str, Action]
    chat: Grounding

    @property
    def title(self) -> str:
        """What errors call it."""
        specs = {_ROLE: self.role, _AGENT: self.agent}
        return _place({kind: spec for kind, spec in specs.items() if spec})

    @property
    def roles(self) -> tuple[type, ...]:
        """The roles of an agent."""
        return self.agent.roles if self.agent else ()


def role(
    name: str, description: str, *, knowledge: Entries = (), actions: Iterable[Callable[..., Any]] = ()
) -> Callable[[_Class], _Class]:
    """Declare a class as a role. Its methods under `@action` are its actions, and so are the functions in `actions`.

    A class inherits the entries and actions of its bases; an entry of the same name takes the place of theirs, and a method
    that overrides an action is the action, with what was declared there.

    Raises:
        ConfigurationError: when the class is made: anything is wrong with what it declares.
    """
    return _decorator(_ROLE, Spec(name, description, entries_of(knowledge), tuple(actions)))


def agent(
    description: str,
    *,
    name: str | None = None,
    knowledge: Entries = (),
    actions: Iterable[Callable[..., Any]] = (),
    roles: Iterable[type] = (),
) -> Callable[[_Class], _Class]:
    """Declare a class as an agent with these roles; its knowledge grounds its chats too. All else is as for a role.

    `name` is that of the class where it is not given. A class may be a role as well; then it has the entries of both.
    """
    return _decorator(_AGENT, Spec(name or "", description, entries_of(knowledge), tuple(actions), tuple(roles)))


def declaration_of(owner: type) -> Declaration:
    """Return what a class declares.

    A class without a decorator of its own has what its bases declare, and the actions that it adds show here for the
    first time.

    Raises:
        ConfigurationError: it is neither a role nor an agent, or something is wrong with what it declares.
    """
    specs = _specs(owner)
    if not specs:
        raise ConfigurationError(
            f"{owner.__qualname__} is neither a role nor an agent; decorate it with one of the two."
        )
    with within(_place(specs)):
        entries, of_agent = _entries(owner)
        shared(entries)
        actions = _actions(owner, entries)
        chat = for_agent(entries, of_agent)
    return Declaration(owner, specs.get(_ROLE), specs.get(_AGENT), entries, MappingProxyType(actions), chat)


def _decorator(kind: str, spec: Spec) -> Callable[[_Class], _Class]:
    def declare(owner: _Class) -> _Class:
        own = spec if kind == _ROLE else replace(spec, name=spec.name or owner.__name__)
        with within(_place({kind: own})):
            check({"name": own.name, "description": own.description}, {"name": TEXT, "description": TEXT})
            if kind in vars(owner):
                raise ConfigurationError("it is declared twice; leave one of the decorators out.")
            for one in own.roles:
                if not _is_role(one):
                    raise ConfigurationError(f"{getattr(one, '__name__', one)!r} is no role; decorate it with @role.")
        setattr(owner, kind, own)
        declaration_of(owner)
        return owner

    return declare


def _is_role(owner: object) -> bool:
    return inspect.isclass(owner) and _ROLE in _specs(owner)


def _specs(owner: type) -> dict[str, Spec]:
    """Return what a class says of itself or, where it says nothing, its nearest base, by kind."""
    found = {kind: getattr(owner, kind, None) for kind in (_ROLE, _AGENT)}
    return {kind: spec for kind, spec in found.items() if isinstance(spec, Spec)}


def _own_specs(owner: type) -> Iterator[dict[str, Spec]]:
    """Yield what each class says of itself, by kind, the furthest base first."""
    for one in reversed(owner.__mro__):
        own = {kind: vars(one).get(kind) for kind in (_ROLE, _AGENT)}
        yield {kind: spec for kind, spec in own.items() if isinstance(spec, Spec)}


def _entries(owner: type) -> tuple[tuple[Knowledge, ...], tuple[Knowledge, ...]]:
    """Return the entries of a class, and those of them that are there for it as an agent."""
    found: dict[str, tuple[Knowledge, str]] = {}
    for own in _own_specs(owner):
        kinds = [kind for kind, spec in own.items() for _ in spec.knowledge]
        entries = declared(entry for spec in own.values() for entry in spec.knowledge)
        found |= {entry.name: (entry, kind) for entry, kind in zip(entries, kinds, strict=True)}
    chat = tuple(entry for entry, kind in found.values() if kind == _AGENT)
    return tuple(entry for entry, _ in found.values()), chat


def _actions(owner: type, entries: tuple[Knowledge, ...]) -> dict[str, Action]:
    """Return the actions of a class by name: the methods, then the functions that it lists."""
    actions: dict[str, Action] = {}
    for attribute, function, mark in (*_methods(owner), *_listed(owner)):
        with within(f"action {mark.name!r}"):
            if mark.name in actions:
                raise ConfigurationError("there are two of that name; give one of them another.")
            method = bool(attribute) and not _is_static(function)
            target = getattr(function, "__func__", function)
            actions[mark.name] = bound(mark, target, entries, attribute, method=method)
    return actions


def _is_static(function: object) -> bool:
    return isinstance(function, staticmethod)


def _methods(owner: type) -> Iterator[tuple[str, Any, Mark]]:
    """Yield the attributes that are actions, with what they are in the end and what was declared last."""
    marks: dict[str, Mark] = {}
    for one in reversed(owner.__mro__):
        marks |= {name: mark for name, value in vars(one).items() if (mark := mark_of(value))}
    for name, mark in marks.items():
        function = inspect.getattr_static(owner, name)
        if not callable(getattr(function, "__func__", function)):
            raise ConfigurationError(
                f"{name} was an action in a base and is no function any more; give it another name."
            )
        yield name, function, mark


def _listed(owner: type) -> Iterator[tuple[str, Any, Mark]]:
    functions = (one for own in _own_specs(owner) for spec in own.values() for one in spec.actions)
    for function in dict.fromkeys(functions):
        mark = mark_of(function)
        if mark is None:
            name = getattr(function, "__qualname__", function)
            raise ConfigurationError(f"{name!r} is listed as an action but is none; decorate it with @action.")
        yield "", function, mark


def _place(specs: Mapping[str, Spec]) -> str:
    titles = {_ROLE: "Role", _AGENT: "Agent"}
    return " and ".join(f"{titles[kind]} {spec.name!r}" for kind, spec in specs.items())

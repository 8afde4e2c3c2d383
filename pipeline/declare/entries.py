"""Entries of knowledge and the rules for them: pure, so that every mistake shows at start-up, before any I/O.

A role or an agent declares entries; an action names some of them and may override a few members. None always means "not
given": an empty text, an empty tuple, False and 0 are values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from enum import StrEnum

from pipeline.errors import ConfigurationError
from schemas.query import Strategy


class KnowledgeType(StrEnum):
    """What an entry stands for."""

    FILE = "file"
    HTTP = "http"
    MEMORY = "memory"
    GRAPH = "graph"
    """Not a source but a handle: a graph provider serves it."""


class Use(StrEnum):
    """How what an entry stands for comes into the context: searched, whole, or in order."""

    SEARCH = "search"
    DIRECT = "direct"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How an entry is searched. An action's replaces the declared one as a whole."""

    strategy: Strategy | None = None


@dataclass(frozen=True, slots=True)
class Knowledge:
    """An entry of a declaration or, on an action, the name of a declared one with what is overridden there.

    `type` is FILE and `use` is SEARCH where neither is given. The members after `search` say where a source is and how it
    is loaded; `max_tokens` bounds what of it may go into the context.
    """

    name: str
    _: KW_ONLY
    type: KnowledgeType | None = None
    use: Use | None = None
    search: Search | None = None
    path: str | None = None
    connection: str | None = None
    query: str | None = None
    format: str | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    unit: str | None = None
    chunk_context: bool | None = None
    chunk_context_model: str | None = None
    select: str | None = None
    max_tokens: int | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the members that are given, `name` left out."""
        return tuple(item.name for item in fields(self)[1:] if getattr(self, item.name) is not None)


SOURCE_MEMBERS = frozenset(item.name for item in fields(Knowledge)) - {"name", "type", "use", "search"}
"""Members of a source of documents: a GRAPH entry has none."""

OVERRIDES = frozenset({"use", "search", "max_tokens"})
"""Members that an action may set on an entry it names."""


def declared(entries: Iterable[Knowledge]) -> tuple[Knowledge, ...]:
    """Return the entries of a declaration in their order, with `type`, `use` and the strategy of GRAPH entries filled in.

    Any other strategy that is not given stays so, since members of several entries are still to be merged.

    Raises:
        ConfigurationError: a name is blank or there twice, or a GRAPH entry breaks a rule.
    """
    settled = tuple(_settled(entry) for entry in entries)
    if not all(entry.name.strip() for entry in settled):
        raise ConfigurationError("A knowledge entry has a blank name: give it one that actions can call it by.")
    _refuse_repeats(settled, "it is declared twice; give one of the two another name.")
    return settled


def named(declaration: Sequence[Knowledge], entries: Iterable[Knowledge]) -> tuple[Knowledge, ...]:
    """Return what an action names, in its order: entries of `declaration`, as `declared` returned it, with its overrides.

    Raises:
        ConfigurationError: a name is unknown or there twice, a member is not the action's to set, or a GRAPH rule is broken.
    """
    known = {entry.name: entry for entry in declaration}
    chosen = tuple(_overridden(known, entry) for entry in entries)
    _refuse_repeats(chosen, "it is named twice by one action; name it once.")
    graphs = [entry.name for entry in chosen if entry.type == KnowledgeType.GRAPH]
    others = [entry.name for entry in chosen if entry.name not in graphs]
    if len(graphs) > 1:
        raise ConfigurationError(f"An action names several GRAPH entries ({', '.join(graphs)}): keep one of them.")
    if graphs and others:
        raise _wrong(graphs[0], f"a GRAPH entry is named alone; leave {', '.join(others)} to another action.")
    return chosen


def for_chat(entries: Iterable[Knowledge]) -> tuple[Knowledge, ...]:
    """Return those of an agent's entries that ground its chat: GRAPH and SEQUENTIAL ones are for actions only."""
    return tuple(entry for entry in entries if entry.type != KnowledgeType.GRAPH and entry.use != Use.SEQUENTIAL)


def _settled(entry: Knowledge) -> Knowledge:
    whole = replace(entry, type=entry.type or KnowledgeType.FILE, use=entry.use or Use.SEARCH)
    return _graph_handle(whole) if whole.type == KnowledgeType.GRAPH else whole


def _graph_handle(entry: Knowledge) -> Knowledge:
    search = entry.search or Search()
    if foreign := [member for member in entry.given if member in SOURCE_MEMBERS]:
        raise _wrong(entry.name, f"a GRAPH entry loads no documents; leave out {', '.join(foreign)}.")
    if entry.use != Use.SEARCH:
        raise _wrong(entry.name, "the use of a GRAPH entry is SEARCH; leave out use.")
    if search.strategy not in (None, Strategy.GRAPH):
        raise _wrong(entry.name, "the strategy of a GRAPH entry is GRAPH; leave out search.strategy.")
    return replace(entry, search=replace(search, strategy=Strategy.GRAPH))


def _overridden(known: dict[str, Knowledge], entry: Knowledge) -> Knowledge:
    if entry.name not in known:
        raise _wrong(entry.name, f"named by an action, but not declared; name one of: {', '.join(known) or 'none'}.")
    if foreign := [member for member in entry.given if member not in OVERRIDES]:
        raise _wrong(entry.name, f"an action may not set {', '.join(foreign)}; set that where the entry is declared.")
    return _settled(replace(known[entry.name], **{member: getattr(entry, member) for member in entry.given}))


def _refuse_repeats(entries: Sequence[Knowledge], problem: str) -> None:
    names = [entry.name for entry in entries]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise _wrong(repeated, problem)


def _wrong(name: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"Knowledge entry {name!r}: {problem}")

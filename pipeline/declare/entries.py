"""Entries of knowledge and the rules for them: pure, so that every mistake shows at start-up, before any I/O.

A role or an agent declares entries; an action names some of them and may override a few members. None always means "not
given": an empty text, an empty tuple, False and 0 are values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import urljoin, urlsplit, urlunsplit

from pipeline.declare.rules import FLAG, NAME, TEXT, TEXTS, Rule, check, one_of, whole, within, written
from pipeline.declare.search import Search, check_search, settled
from pipeline.egress import checked
from pipeline.errors import ConfigurationError, InvalidRequest
from pipeline.ingest import formats
from pipeline.ingest.folders import globs
from schemas.query import Strategy


class KnowledgeType(StrEnum):
    """What an entry stands for."""

    FILE = "file"
    """A file, or the files below a folder."""
    HTTP = "http"
    """A page of the web."""
    MEMORY = "memory"
    """Documents that the application hands over, under the entry's name."""
    GRAPH = "graph"
    """Not a source but a handle: a graph provider serves it."""


class Use(StrEnum):
    """How what an entry stands for comes into the context: what is found, all of it, or one unit after the other."""

    SEARCH = "search"
    DIRECT = "direct"
    SEQUENTIAL = "sequential"


class Unit(StrEnum):
    """What SEQUENTIAL gives at a time."""

    DOCUMENT = "document"
    SECTION = "section"
    CHUNK = "chunk"


@dataclass(frozen=True, slots=True, repr=False)
class Knowledge:
    """An entry of a declaration or, on an action, the name of a declared one with what is overridden there.

    Attributes:
        name: what actions call it by.
        type: FILE where it is not given.
        use: SEARCH where it is not given.
        search: how it is searched; only for SEARCH.
        path: of a FILE, the file or folder, relative to the working directory; of an HTTP entry, the URL, or what of it
            comes after `connection`.
        connection: the URL that `path` is relative to.
        query: the query of the URL, as it is on the wire.
        format: what all its documents are read as, whatever their names say: a suffix, such as `md`.
        include, exclude: which files below the folder are documents, as globs of `.gitignore`'s kind.
        unit: what SEQUENTIAL gives at a time; a section where it is not given.
        chunk_context: whether a model says where in its document a chunk stands, for the index; title and headings are in
            there in any case.
        chunk_context_model: that model.
        select: the heading of the sections that DIRECT and SEQUENTIAL are to use; all where it is not given.
        max_tokens: how much of it may go into the context.
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
    unit: Unit | None = None
    chunk_context: bool | None = None
    chunk_context_model: str | None = None
    select: str | None = None
    max_tokens: int | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the members that are given, `name` left out."""
        return tuple(item.name for item in fields(self)[1:] if getattr(self, item.name) is not None)

    def __repr__(self) -> str:
        secret = ("path", "connection", "query") if self.type is KnowledgeType.HTTP else ()
        return written("Knowledge", repr(self.name), {member: getattr(self, member) for member in self.given}, secret)

    @property
    def searched(self) -> bool:
        """Whether it is a source of documents that are searched; known once the entry is settled."""
        return self.use is Use.SEARCH and self.type is not KnowledgeType.GRAPH

    @property
    def url(self) -> str:
        """The whole URL of an HTTP entry."""
        parts = urlsplit(urljoin(self.connection or "", self.path or ""))
        query = "&".join(part for part in (parts.query, self.query) if part)
        return urlunsplit(parts._replace(query=query))

    @property
    def media_type(self) -> str:
        """The media type that `format` stands for; empty where that is not given or nothing that is read."""
        kind = formats.by_name(f"document.{self.format.removeprefix('.')}") if self.format else ""
        return formats.FIXED if kind == formats.TEXT else kind


SOURCE_MEMBERS = frozenset(item.name for item in fields(Knowledge)) - {"name", "type", "use", "search"}
"""Members of a source of documents: a GRAPH entry has none."""

OVERRIDES = frozenset({"use", "search", "max_tokens"})
"""Members that an action may set on an entry it names."""

_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "name": NAME,
        "type": one_of(KnowledgeType),
        "use": one_of(Use),
        "search": Rule("a Search", lambda value: isinstance(value, Search)),
        "path": TEXT,
        "connection": TEXT,
        "query": TEXT,
        "format": TEXT,
        "include": TEXTS,
        "exclude": TEXTS,
        "unit": one_of(Unit),
        "chunk_context": FLAG,
        "chunk_context_model": TEXT,
        "select": TEXT,
        "max_tokens": whole(1, 1_000_000),
    }
)

_FOREIGN = {
    KnowledgeType.FILE: ("a FILE entry is below its path", {"connection", "query"}),
    KnowledgeType.HTTP: ("an HTTP entry is one page", {"include", "exclude"}),
    KnowledgeType.MEMORY: (
        "the application hands over what a MEMORY entry has",
        {"path", "connection", "query", "include", "exclude"},
    ),
    KnowledgeType.GRAPH: ("a GRAPH entry loads no documents", SOURCE_MEMBERS),
}
"""By type, what its entries cannot have, and why."""


def declared(entries: Iterable[Knowledge]) -> tuple[Knowledge, ...]:
    """Return the entries of a declaration in their order, with `type`, `use` and the strategy of GRAPH entries filled in.

    Any other strategy that is not given stays so, since members of several entries are still to be merged.

    Raises:
        ConfigurationError: a name is blank or there twice, or an entry breaks a rule.
    """
    settled = tuple(map(_declared, entries))
    _refuse_repeats(settled, "it is declared twice; give one of the two another name.")
    return settled


def named(declaration: Sequence[Knowledge], entries: Iterable[Knowledge]) -> tuple[Knowledge, ...]:
    """Return what an action names, in its order: entries of `declaration`, as `declared` returned it, with its overrides.

    One that is not searched here has no `search`, whatever its declaration says.

    Raises:
        ConfigurationError: a name is unknown or there twice, a member is not the action's to set, or a rule is broken.
    """
    known = {entry.name: entry for entry in declaration}
    chosen = tuple(_overridden(known, entry) for entry in entries)
    _refuse_repeats(chosen, "it is named twice by one action; name it once.")
    graphs = [entry.name for entry in chosen if entry.type is KnowledgeType.GRAPH]
    others = [entry.name for entry in chosen if entry.name not in graphs]
    if len(graphs) > 1:
        raise ConfigurationError(f"An action names several GRAPH entries ({', '.join(graphs)}): keep one of them.")
    if graphs and others:
        with within(_place(graphs[0])):
            raise ConfigurationError(f"a GRAPH entry is named alone; leave {', '.join(others)} to another action.")
    return chosen


def for_chat(entries: Iterable[Knowledge]) -> tuple[Knowledge, ...]:
    """Return those of an agent's entries that ground its chat: GRAPH and SEQUENTIAL ones are for actions only."""
    return tuple(
        entry for entry in entries if entry.type is not KnowledgeType.GRAPH and entry.use is not Use.SEQUENTIAL
    )


def _declared(entry: Knowledge) -> Knowledge:
    _check_entry(entry)
    with within(_place(entry.name)):
        whole_entry = replace(entry, type=entry.type or KnowledgeType.FILE, use=entry.use or Use.SEARCH)
        _check_type(whole_entry)
        _check_source(whole_entry)
        return _with_use(whole_entry, entry.search)


def _overridden(known: Mapping[str, Knowledge], entry: Knowledge) -> Knowledge:
    _check_entry(entry)
    with within(_place(entry.name)):
        if entry.name not in known:
            names = ", ".join(known) or "none"
            raise ConfigurationError(f"named by an action, but not declared; name one of: {names}.")
        if foreign := [member for member in entry.given if member not in OVERRIDES]:
            names = ", ".join(foreign)
            raise ConfigurationError(f"an action may not set {names}; set that where the entry is declared.")
        changed = replace(known[entry.name], **{member: getattr(entry, member) for member in entry.given})
        _check_type(changed)
        return _with_use(changed, entry.search)


def _check_entry(entry: object) -> None:
    """Hold the entry and what is given in it to the rules that hold for any entry, wherever it is written."""
    if not isinstance(entry, Knowledge):
        raise ConfigurationError(f"knowledge is made of Knowledge entries, and {type(entry).__name__} is none.")
    if not TEXT.holds(entry.name):
        raise ConfigurationError("A knowledge entry has a blank name: give it one that actions can call it by.")
    with within(_place(entry.name[:80])):
        check({"name": entry.name}, _RULES)
        always = ("type", "use", "search")
        check({member: getattr(entry, member) for member in entry.given if member in always}, _RULES)
        if entry.search is not None:
            check_search(entry.search)


def _check_type(entry: Knowledge) -> None:
    """Refuse what entries of this type cannot have, then all values that break a rule."""
    why, members = _FOREIGN[entry.type or KnowledgeType.FILE]
    if foreign := [member for member in entry.given if member in members]:
        raise ConfigurationError(f"{why}; leave out {', '.join(foreign)}.")
    check({member: getattr(entry, member) for member in entry.given}, _RULES)


def _check_source(entry: Knowledge) -> None:
    """Hold a source to what its members mean, as far as that shows without looking for it."""
    if entry.type is KnowledgeType.FILE and entry.path is None:
        raise ConfigurationError("a FILE entry needs a path; give the file or folder.")
    if entry.format is not None and not entry.media_type:
        raise ConfigurationError(f"format {entry.format!r} is none that is read; give a suffix such as {_FORMATS}.")
    if entry.chunk_context and entry.chunk_context_model is None:
        raise ConfigurationError("chunk_context needs a model; name it in chunk_context_model.")
    if entry.chunk_context_model is not None and not entry.chunk_context:
        raise ConfigurationError("chunk_context_model has no effect without chunk_context; set that, or leave it out.")
    try:
        if entry.type is KnowledgeType.HTTP:
            checked(entry.url, None)
        globs([*(entry.include or ()), *(entry.exclude or ())], strict=True)
    except InvalidRequest as error:
        member = "include or exclude" if entry.type is KnowledgeType.FILE else "path"
        raise ConfigurationError(f"{member}: {error}.") from error


_FORMATS = "md, txt, rst, html, json, jsonl, yaml, csv, pdf or docx"


def _with_use(entry: Knowledge, own: Search | None) -> Knowledge:
    """Return the entry with the search that its use allows; `own` is what was written beside that use."""
    if entry.type is KnowledgeType.GRAPH:
        return _graph_handle(entry)
    if entry.use is Use.SEARCH:
        return entry
    if own is not None:
        raise ConfigurationError("search is for entries whose use is SEARCH; leave one of the two out.")
    return replace(entry, search=None)


def _graph_handle(entry: Knowledge) -> Knowledge:
    search = entry.search or Search()
    if entry.use is not Use.SEARCH:
        raise ConfigurationError("the use of a GRAPH entry is SEARCH; leave out use.")
    if search.strategy not in (None, Strategy.GRAPH):
        raise ConfigurationError("the strategy of a GRAPH entry is GRAPH; leave out search.strategy.")
    search = replace(search, strategy=Strategy.GRAPH)
    settled(search)
    return replace(entry, search=search)


def _refuse_repeats(entries: Sequence[Knowledge], problem: str) -> None:
    names = [entry.name for entry in entries]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{_place(repeated)}: {problem}")


def _place(name: str) -> str:
    return f"Knowledge entry {name!r}"

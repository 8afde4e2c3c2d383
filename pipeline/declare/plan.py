"""What is to be done to ground a call or a turn: settled once for its declaration and the sources in scope."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pipeline.declare.classes import Declaration
from pipeline.declare.context import Spec
from pipeline.declare.demands import GraphDemand, files_of, graph_demand
from pipeline.declare.entries import Knowledge, KnowledgeType
from pipeline.declare.grounding import Grounding
from pipeline.declare.search import DEFAULTS, SearchSettings
from pipeline.errors import ConfigurationError

_SHOWN_ONLY = ("context_window", "context_format", "include_spec", "on_failure", "query_param", "cache", "cache_ttl")
"""Members of a search that change how documents are shown or kept, never which ones are found."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a grounding comes to.

    Attributes:
        owner: the class whose sources they are.
        search: how they are searched, and what becomes of what is found.
        shown: the entries that are used without a search, in their order.
        sources: what is searched, as a source alone; none for a GRAPH entry without FILE entries, whose provider has data of
            its own. None: nothing is searched.
        documents: the settings with all that changes no document at its default: their part of a result's key.
        graph: what it needs of graph providers; None where it asks no graph.
        specs: what is said of the class above the documents.
    """

    owner: type
    search: SearchSettings
    shown: tuple[Knowledge, ...]
    sources: tuple[Knowledge, ...] | None
    documents: SearchSettings
    graph: GraphDemand | None
    specs: tuple[Spec, ...]

    def fence(self, corpus: str) -> frozenset[str]:
        """Return what may serve the graph leg, as start-up was told: the entries that are searched, with the corpus for the
        graph of those that are files; none for a GRAPH entry, which fences nobody.
        """
        named = self.graph.fence if self.graph else frozenset[str]()
        files = any(one.type is KnowledgeType.FILE for one in self.sources or ())
        return named | {corpus} if named and files else named


def plan_of(
    declaration: Declaration, grounding: Grounding, paths: Collection[str] = (), agent: Declaration | None = None
) -> Plan:
    """Return the plan for those of a grounding's sources whose path or URL, as declared, is one of `paths`; for all where
    there are none. `agent` is whose role the class is.
    """
    search = grounding.search or DEFAULTS
    chosen = replace(grounding, entries=in_scope(grounding.entries, paths))
    files = files_of(declaration, agent)
    specs = [Spec(one.name, one.description) for one in (declaration.role, declaration.agent) if one]
    return Plan(
        declaration.owner,
        search,
        tuple(one for one in chosen.entries if not one.searched and one.type is not KnowledgeType.GRAPH),
        _sources(chosen, files, paths),
        documents_of(search),
        graph_demand("", chosen, frozenset(one.name for one in files)),
        tuple(specs) if search.include_spec else (),
    )


def in_scope(entries: Collection[Knowledge], paths: Collection[str]) -> tuple[Knowledge, ...]:
    """Return the entries whose path or URL, as declared, is one of these; all where there are none. A GRAPH entry has
    neither, and stays.
    """
    if not paths:
        return tuple(entries)
    return tuple(one for one in entries if one.type is KnowledgeType.GRAPH or one.path in paths or one.url in paths)


def _sources(
    grounding: Grounding, files: Collection[Knowledge], paths: Collection[str]
) -> tuple[Knowledge, ...] | None:
    if grounding.graph and not files:
        return ()
    found = grounding.sources or (in_scope(files, paths) if grounding.graph else ())
    return tuple(map(source_of, found)) or None


def source_of(entry: Knowledge) -> Knowledge:
    """Return the entry without what actions may set and what is done with its documents: what decides which they are."""
    return replace(entry, use=None, search=None, unit=None, select=None, max_tokens=None)


def documents_of(settings: SearchSettings) -> SearchSettings:
    """Return the settings with all that changes no document at its default."""
    return replace(settings, **{member: getattr(DEFAULTS, member) for member in _SHOWN_ONLY})


def check_served(grounding: Grounding) -> None:
    """Refuse what a declaration may say but retrieval does not do, rather than leave it out silently.

    Raises:
        ConfigurationError: there is such a thing; the message names the member.
    """
    read: dict[str, Knowledge] = {}
    for entry in grounding.sources:
        other = read.setdefault(entry.path or entry.url or entry.name, entry)
        for member, mine, theirs in (
            ("format", entry.media_type, other.media_type),
            ("chunk_context_model", entry.chunk_context_model, other.chunk_context_model),
        ):
            if mine != theirs:
                raise ConfigurationError(
                    f"Knowledge entry {entry.name!r}: {member} is another one than that of {other.name!r}, which is the same "
                    f"source and is searched together with it; give one."
                )


def contextual(grounding: Grounding, files: Collection[Knowledge]) -> tuple[Knowledge, ...]:
    """Return the entries that a grounding searches of which a model says where the chunks stand; where it asks a graph,
    `files` are those in reach.
    """
    searched = (*grounding.sources, *(files if grounding.graph else ()))
    return tuple(one for one in searched if one.chunk_context_model)

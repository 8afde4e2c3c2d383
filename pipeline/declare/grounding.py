"""What grounds a call or a chat: its entries, and how those of them that are searched are searched together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.declare.entries import Knowledge, KnowledgeType, Use, for_chat, named
from pipeline.declare.search import Search, SearchSettings, merged, settled


@dataclass(frozen=True, slots=True)
class Grounding:
    """Entries with all overrides in place.

    `search` is for all of them whose use is SEARCH: they are searched as one. It is None where no entry is.
    """

    entries: tuple[Knowledge, ...] = ()
    search: SearchSettings | None = None

    @property
    def sources(self) -> tuple[Knowledge, ...]:
        """The entries whose documents are searched."""
        return tuple(entry for entry in self.entries if entry.searched)

    @property
    def graph(self) -> Knowledge | None:
        """The GRAPH entry, which then is the only one."""
        return next((entry for entry in self.entries if entry.type is KnowledgeType.GRAPH), None)


def shared(declaration: Iterable[Knowledge]) -> Search:
    """Return what the sources of a class's whole declaration say of their search, each for all of them.

    Raises:
        ConfigurationError: they contradict each other, or together they make no search.
    """
    search = _together(declaration)
    settled(search)
    return search


def for_action(declaration: Sequence[Knowledge], entries: Sequence[Knowledge]) -> Grounding:
    """Return what grounds an action that names these entries of a class's whole declaration.

    An entry that keeps its declared search keeps with it what the other sources of the class say; whatever the action's
    own entries say comes before that.

    Raises:
        ConfigurationError: an entry may not be named like this, or the entries contradict each other.
    """
    chosen = named(declaration, entries)
    if any(entry.type is KnowledgeType.GRAPH for entry in chosen):
        return Grounding(chosen, settled(chosen[0].search or Search()))
    if not any(entry.searched for entry in chosen):
        return Grounding(chosen)
    said = _together(chosen)
    kept = any(now.searched and own.search is None for now, own in zip(chosen, entries, strict=True))
    whole = Search(**{**(_together(declaration).given if kept else {}), **said.given})
    return Grounding(chosen, settled(whole))


def for_agent(declaration: Sequence[Knowledge], entries: Iterable[Knowledge]) -> Grounding:
    """Return what grounds an agent's chat: of its own `entries`, those for chats, searched as the whole class declares."""
    chosen = for_chat(entries)
    searched = any(entry.use is Use.SEARCH for entry in chosen)
    return Grounding(chosen, settled(shared(declaration)) if searched else None)


def _together(entries: Iterable[Knowledge]) -> Search:
    return merged((entry.name, entry.search) for entry in entries if entry.searched and entry.search is not None)

"""Summaries of communities by a model, where one is set; one that was paid for is kept while its community lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.errors import SapwoodError
from pipeline.ingest.communities import Graph, Labels, leading
from schemas.graph import Community

MEMBERS_SHOWN = 30
"""How many members a model is told of, best-connected first."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A community as a model sees it: its size and its best-connected members as `name: description`."""

    size: int
    members: tuple[str, ...]


class Summariser(Protocol):
    """Writes a few sentences on what the members of a community have in common."""

    async def summarise(self, topics: Sequence[Topic], deadline: Deadline) -> list[str | SapwoodError]:
        """Return a summary for each topic in order, or why it failed; one bad answer never fails another topic."""
        ...


Named = tuple[int, str, str]
"""Size, name and summary of a community."""


def known(stored: Mapping[int, Named], summariser: Summariser | None) -> dict[int, tuple[str, str]]:
    """Return by id the names and summaries that hold as long as nothing about the members changes; where a model summarises,
    only of communities that need no summary of it or have one.
    """
    return {
        number: (name, summary)
        for number, (size, name, summary) in stored.items()
        if summariser is None or size == 1 or _paid(size, summary)
    }


async def summarised(
    graph: Graph,
    labels: Labels,
    communities: Sequence[Community],
    stored: Mapping[int, Named],
    summariser: Summariser,
    deadline: Deadline,
) -> tuple[list[Community], int]:
    """Replace offline summaries by the model's, and return how many failed; those keep their offline summary.

    `stored` are the communities of the previous generation by id, and `labels` are at least of the members of those that are
    not `known`. A community of one member, and one that has a summary of a model, is never asked about; a failed one is asked
    about when communities are next written.
    """
    before = {one.community_id: stored[one.community_id] for one in communities if one.community_id in stored}
    kept = {number: summary for number, (size, _, summary) in before.items() if _paid(size, summary)}
    asked = [c for c in communities if c.community_id not in kept and len(c.members) > 1]
    answers = await summariser.summarise(_topics(graph, labels, asked), deadline) if asked else []
    for community, answer in zip(asked, answers, strict=True):
        if isinstance(answer, str) and answer.strip():
            kept[community.community_id] = answer.strip()
    written = [replace(c, summary=kept.get(c.community_id, c.summary)) for c in communities]
    return written, sum(c.community_id not in kept for c in asked)


def _topics(graph: Graph, labels: Labels, communities: Sequence[Community]) -> list[Topic]:
    described = zip(labels.shown, labels.descriptions, strict=True)
    lines = [f"{name}: {text}" if text else name for name, text in described]
    members = leading(communities, graph, labels, lines, MEMBERS_SHOWN)
    return [Topic(len(c.members), tuple(shown)) for c, shown in zip(communities, members, strict=True)]


def _paid(size: int, summary: str) -> bool:
    """Whether a model wrote a summary: an offline one begins with the count of the members."""
    return not summary.startswith(f"{size} related entities around ")

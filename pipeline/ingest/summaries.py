"""Summaries of communities by a model, where one is set; one that was paid for is kept while its community lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.errors import SapwoodError
from pipeline.ingest.communities import Graph, Partition, leading
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


async def summarised(
    partition: Partition,
    graph: Graph,
    communities: Sequence[Community],
    stored: Mapping[int, str],
    summariser: Summariser,
    deadline: Deadline,
) -> tuple[list[Community], int]:
    """Replace offline summaries by the model's, and return how many failed; those keep their offline summary.

    `stored` are the summaries of the previous generation by community id. A community of one member, and one that has a
    summary of a model, is never asked about; a failed one is asked about when communities are next written.
    """
    kept = {c.community_id: stored[c.community_id] for c in communities if _paid(c, stored)}
    asked = [c for c in communities if c.community_id not in kept and len(c.members) > 1]
    answers = await summariser.summarise(_topics(partition, graph, asked), deadline) if asked else []
    for community, answer in zip(asked, answers, strict=True):
        if isinstance(answer, str) and answer.strip():
            kept[community.community_id] = answer.strip()
    written = [replace(c, summary=kept.get(c.community_id, c.summary)) for c in communities]
    return written, sum(c.community_id not in kept for c in asked)


def _topics(partition: Partition, graph: Graph, communities: Sequence[Community]) -> list[Topic]:
    named = zip(graph.names, graph.ids, graph.descriptions, strict=True)
    lines = [f"{name or public}: {text}" if text else name or public for name, public, text in named]
    members = leading(partition, graph, lines, MEMBERS_SHOWN)
    return [Topic(len(c.members), tuple(members[c.community_id])) for c in communities]


def _paid(community: Community, stored: Mapping[int, str]) -> bool:
    """Whether a model wrote the stored summary: an offline one begins with the count of its members."""
    summary = stored.get(community.community_id)
    return summary is not None and not summary.startswith(f"{len(community.members)} related entities around ")

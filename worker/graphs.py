"""Graphs for agents: proposing an allow-list, publishing it, and the tools over what a tenant has published."""

from __future__ import annotations

import re

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.propose import propose
from pipeline.graphtools.published import sources_of
from pipeline.graphtools.tools import KnowledgeGraphTools
from schemas.exposed import GraphSchema
from schemas.published import NAME, Publication, PublishedGraph
from worker.compose import Services

CALL = 30.0
"""Seconds for a small read or write."""

SURVEY = 60.0
"""Seconds for counting what a generation holds."""


class Graphs:
    """The published graphs of one tenant. Made by `Sapwood.graphs`."""

    def __init__(self, services: Services, tenant: str) -> None:
        self._services = services
        self._tenant = tenant

    async def propose(self, corpus: str) -> GraphSchema:
        """Return a schema made from the current generation of a corpus, for a person to trim. Raises NotFound."""
        deadline = Deadline.after(SURVEY)
        async with self._services.pins.pin(self._tenant, corpus, deadline) as pinned:
            found = await self._services.agents.surveyor.survey(
                GraphRef.of(pinned.corpus_id, pinned.manifest), deadline
            )
        return propose(corpus, str(pinned.manifest.generation), found)

    async def publish(self, name: str, what: Publication) -> PublishedGraph:
        """Let agents ask a corpus under this name, in place of what was published there.

        Raises InvalidRequest for a name that is none, NotFound or Conflict.
        """
        if not re.fullmatch(NAME, name):
            raise InvalidRequest(
                f"{name!r} is no name for a graph: up to 100 letters, digits, dots, dashes, underscores."
            )
        return await self._services.agents.published.publish(self._tenant, name, what, _soon())

    async def listing(self) -> list[PublishedGraph]:
        """Return what is published, by name."""
        return [one.graph for one in await self._services.agents.published.listing(self._tenant, _soon())]

    async def get(self, name: str) -> PublishedGraph:
        """Return what is published under a name. Raises NotFound."""
        return (await self._services.agents.published.get(self._tenant, name, _soon())).graph

    async def remove(self, name: str) -> None:
        """Publish a graph no longer. Raises NotFound."""
        await self._services.agents.published.remove(self._tenant, name, _soon())

    async def tools(self) -> KnowledgeGraphTools:
        """Return the three tools over what is published now."""
        services, agents = self._services, self._services.agents
        found = await sources_of(self._tenant, agents.published, services.pins, agents.match, _soon())
        return KnowledgeGraphTools(found)


def _soon() -> Deadline:
    return Deadline.after(CALL)

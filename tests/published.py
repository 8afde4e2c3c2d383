"""A corpus whose graph agents may ask, and ways to see what its database is doing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import asyncpg

from schemas.published import GraphLimits, Publication
from tests.cli_driver import HANDBOOK
from worker.app import Sapwood

PATIENCE = 60.0
"""Seconds after which a test gives up; nothing is asserted about times."""

TEAMS = "MATCH (a:Organization)-[:PART_OF]->(b:Organization) RETURN a.name AS team, b.name AS department ORDER BY team"
"""A query that the handbook's graph answers with five records."""

WORKING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


async def publish(app: Sapwood, name: str = "workshop", corpus: str = "handbook") -> None:
    """Index the handbook for the tenant of the application, and publish all that is proposed for its graph."""
    run = await app.work((await app.index(corpus, [str(HANDBOOK)])).run_id)
    assert run.generation, run
    schema = await app.graphs.propose(corpus)
    limits = GraphLimits(deadline=PATIENCE)
    await app.graphs.publish(
        name, Publication(corpus=corpus, description="A workshop", graph_schema=schema, limits=limits)
    )


@dataclass(frozen=True, slots=True)
class Stuck:
    """A database in which whoever reads relations has to wait."""

    connection: asyncpg.Connection

    async def until(self, waiting: int) -> None:
        """Wait until so many statements wait."""
        with anyio.fail_after(PATIENCE):
            while await self.connection.fetchval(WORKING) != waiting:  # noqa: ASYNC110 - another process's work
                await anyio.sleep(0.02)


@asynccontextmanager
async def stuck(database: str) -> AsyncGenerator[Stuck, None]:
    """Let nobody read relations until the end of the block: a query then works for as long as it is let."""
    connection = await asyncpg.connect(database)
    try:
        async with connection.transaction():
            await connection.execute("lock table sapwood.relation in access exclusive mode")
            yield Stuck(connection)
    finally:
        await connection.close()

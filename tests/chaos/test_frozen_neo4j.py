"""Neo4j frozen (SIGSTOP): callers are let go all the same, and afterwards nothing is left over and nothing is missing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from pipeline.adapters.neo4j_driver import Neo4j, open_neo4j
from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded
from tests.figures import say
from tests.neo4j_server import PATIENCE, WAITS, Neo4jServer

QUERIES, POOL, WRITERS = 50, 20, 10
DEADLINE, BOUND = 0.5, 3.0
"""Seconds; nothing that was told to end may take as long as the bound."""


async def read(db: Neo4j, deadline: Deadline) -> None:
    await db.read("neo4j", "RETURN 1 AS one", {}, deadline)


async def write(db: Neo4j, name: str, deadline: Deadline) -> None:
    await db.write("neo4j", WAITS, {"name": name}, deadline)


@asynccontextmanager
async def filled(server: Neo4jServer) -> AsyncIterator[Neo4j]:
    """A pool whose connections are all open."""
    async with open_neo4j(server.config(pool_size=POOL)) as db:
        assert await at_once(db, server, POOL) == POOL
        yield db


async def at_once(db: Neo4j, server: Neo4jServer, wanted: int) -> int:
    """Return how many of so many transactions are open in the server at once; all of them must then come to their end."""
    async with anyio.create_task_group() as group, server.locked("whole"):
        for _ in range(wanted):
            group.start_soon(write, db, "whole", Deadline.after(PATIENCE))
        with anyio.move_on_after(PATIENCE / 10):
            await server.wait_for(wanted, "n.waited")
        found = sum("n.waited" in query for query in await server.open_transactions())
    return found


async def test_fifty_queries_are_cancelled_while_the_server_is_frozen(
    neo4j_server: Neo4jServer, request: pytest.FixtureRequest
) -> None:
    """Ten of them have a transaction open in the server, others have only a connection or wait for one."""
    async with filled(neo4j_server) as db:
        async with neo4j_server.locked("held"), anyio.create_task_group() as group:
            for _ in range(WRITERS):
                group.start_soon(write, db, "held", Deadline.after(PATIENCE * 2))
            await neo4j_server.wait_for(WRITERS, "n.waited")
            with neo4j_server.frozen():
                for _ in range(QUERIES - WRITERS):
                    group.start_soon(read, db, Deadline.after(PATIENCE * 2))
                await anyio.sleep(0.5)
                assert db.busy == POOL
                started = time.perf_counter()
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True), anyio.fail_after(BOUND):
                    while db.busy:  # noqa: ASYNC110 - nobody tells when the last one has gone
                        await anyio.sleep(0.001)
                seconds = time.perf_counter() - started
            await neo4j_server.wait_for(0, "n.waited")
        assert not await neo4j_server.open_transactions()
        assert await at_once(db, neo4j_server, POOL) == POOL
    say(request, f"{QUERIES} queries cancelled while Neo4j was frozen: all gone after {seconds * 1000:.0f} ms")


async def test_fifty_deadlines_pass_while_the_server_is_frozen(
    neo4j_server: Neo4jServer, request: pytest.FixtureRequest
) -> None:
    """Each query ends with its own deadline's error, those with an open transaction like those that never got through."""
    late: list[float] = []

    async def overshoot(db: Neo4j, number: int) -> None:
        started = time.perf_counter()
        with pytest.raises(DeadlineExceeded):
            if number < WRITERS:
                await write(db, "held", Deadline.after(DEADLINE))
            else:
                await read(db, Deadline.after(DEADLINE))
        late.append(time.perf_counter() - started - DEADLINE)

    async with filled(neo4j_server) as db:
        async with neo4j_server.locked("held"):
            with neo4j_server.frozen(), anyio.fail_after(BOUND):
                async with anyio.create_task_group() as group:
                    for number in range(QUERIES):
                        group.start_soon(overshoot, db, number)
            await neo4j_server.wait_for(0, "n.waited")
        assert not await neo4j_server.open_transactions()
        assert await at_once(db, neo4j_server, POOL) == POOL
    late.sort()
    say(
        request,
        f"{QUERIES} deadlines of {DEADLINE} s while Neo4j was frozen: late by "
        f"{late[len(late) // 2] * 1000:.0f} ms in the middle, {late[-1] * 1000:.0f} ms at most",
    )


async def test_closing_does_not_wait_for_a_frozen_server(neo4j_server: Neo4jServer) -> None:
    with anyio.fail_after(PATIENCE):
        async with filled(neo4j_server):
            freezer = neo4j_server.frozen()
            freezer.__enter__()
        freezer.__exit__(None, None, None)
    assert not await neo4j_server.open_transactions()


async def test_the_probes_see_what_they_are_for(neo4j_server: Neo4jServer) -> None:
    """Negative controls: a frozen server answers nobody, an open transaction is seen, and so is a pool that lacks one."""
    async with filled(neo4j_server) as db:
        with neo4j_server.frozen(), anyio.move_on_after(0.5) as waiting:
            await read(db, Deadline.after(PATIENCE))
        assert waiting.cancelled_caught
        async with neo4j_server.locked("taken"):
            assert len(await neo4j_server.open_transactions()) == 1
            assert await at_once(db, neo4j_server, POOL + 1) == POOL

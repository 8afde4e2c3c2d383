"""A corpus is indexed into Neo4j anew while it is asked, and the worker is killed while the graph is half written."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL

import anyio
import pytest
from anyio import to_thread
from anyio.abc import Process

from pipeline.deadline import Deadline
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunInfo, RunState
from tests.cli_driver import ROOT, Cli
from tests.figures import say
from tests.integration.test_neo4j_index import (
    NEO4J,
    collected,
    graph_of,
    graphs_in_neo4j,
    indexed,
    lay_out,
    nodes_of,
    opened,
)
from tests.neo4j_server import Neo4jServer
from worker.app import Sapwood

DOCUMENTS = 300
PATIENCE = 300.0
TOWNS = ("Bristol", "Leeds", "York", "Derby", "Exeter")
FOLLOW = 4


def documents(round_number: int) -> dict[str, str]:
    """Every text names its round, and every relation joins entities of one round only."""
    return {
        f"{n:03}.md": f"# Crane {n}\n\nThe Crane Number {n} of Round {round_number} is located in {TOWNS[n % 5]} {round_number}. "
        f"The Crane Number {n} of Round {round_number} was made by Maker {n % 7} Round {round_number}."
        for n in range(DOCUMENTS)
    }


@dataclass
class Reader:
    """Asks all the time by the graph and keeps what came: (generation, rounds in the texts), and legs that were missing."""

    answers: list[tuple[int, frozenset[str]]] = field(default_factory=list[tuple[int, frozenset[str]]])
    missing: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    async def read(self, app: Sapwood, strategy: Strategy) -> None:
        request = QueryRequest(
            text="Which crane was made by Maker 3?",
            strategy=strategy,
            ranking="walk",
            top_k=20,
            cache=False,
            deadline=PATIENCE,
        )
        while True:
            result = await app.query("cranes", request)
            rounds = frozenset(hit.text.partition(" of Round ")[2].split()[0] for hit in result.hits)
            self.answers.append((result.generation, rounds))
            self.missing += [result.missing] if result.missing else []
            await anyio.sleep(0.02)


async def started(database: str, redis_url: str, home: Path, server: Neo4jServer) -> Process:
    """Start a worker process that knows the graph store."""
    environment = Cli(
        home,
        {
            "SAPWOOD_DATABASE_URL": database,
            "SAPWOOD_REDIS_URL": redis_url,
            "SAPWOOD_GRAPH_NEO4J_URI": server.uri,
            "SAPWOOD_GRAPH_NEO4J_USER": server.user,
            "SAPWOOD_GRAPH_NEO4J_PASSWORD": server.password,
            "SAPWOOD_GRAPH_NEO4J_DATABASE": server.database,
            "SAPWOOD_LEASE_SECONDS": "1",
        },
    ).environment
    command = [sys.executable, "-m", "worker", "worker"]
    return await anyio.open_process(command, cwd=ROOT, env=environment, stdout=None, stderr=None)


async def half_written(app: Sapwood, run: RunInfo) -> tuple[str, int]:
    """Wait until a part of the run's graph is in Neo4j; return its id and how many nodes it has."""
    graphs = app.services.stores.graphs["neo4j"]
    corpus = await app.corpus("cranes")
    with anyio.fail_after(PATIENCE):
        while True:
            info = await app.info(run.run_id)
            assert not info.state.terminal, f"the run ended before it could be disturbed: {info.error}"
            if info.step == FOLLOW and info.generation is not None:
                uid = (await app.services.records.identity(corpus.corpus_id, Deadline.after(10))).uid
                graph_id = f"{uid}-{info.generation}"
                if graph_id in await graphs.graphs("cranes", uid, Deadline.after(10)):
                    return graph_id, info.generation
            await anyio.sleep(0.005)


async def heard(readers: list[Reader], generation: int) -> None:
    """Wait until each reader has had an answer from this generation."""
    with anyio.fail_after(PATIENCE):
        while not all(any(found == generation for found, _ in reader.answers) for reader in readers):  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def completed(app: Sapwood, run: RunInfo) -> RunInfo:
    with anyio.fail_after(PATIENCE):
        async for _ in app.subscribe(run.run_id):
            pass
    info = await app.info(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return info


async def test_a_kill_in_the_middle_of_a_graph_mixes_nothing_and_leaves_nothing(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer, request: pytest.FixtureRequest
) -> None:
    """Old answers until the promotion, new ones after it, none of both; then one graph, and no node of any other."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "cranes", folder, documents(0), NEO4J)
        (first,) = await graphs_in_neo4j(app, "cranes")
        await to_thread.run_sync(lay_out, folder, documents(1))
        readers = [Reader(), Reader()]
        victim = await started(database, redis_url, tmp_path, neo4j_server)
        other: Process | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(readers[0].read, app, Strategy.GRAPH)
                group.start_soon(readers[1].read, app, Strategy.HYBRID)
                run = await app.index("cranes", [str(folder)])
                second, number = await half_written(app, run)
                victim.send_signal(SIGKILL)
                await victim.wait()
                left = await nodes_of(neo4j_server, {second})
                other = await started(database, redis_url, tmp_path, neo4j_server)
                info = await completed(app, run)
                await heard(readers, number)
                group.cancel_scope.cancel()
        finally:
            for process in (victim, other):
                if process is not None and process.returncode is None:
                    process.kill()
                    await process.wait()
        answers = [answer for reader in readers for answer in reader.answers]
        say(request, f"killed with {left} nodes written; {len(answers)} answers, {len(set(answers))} kinds")
        assert info.generation == number and info.crash_count == 1
        assert set(answers) == {(1, frozenset({"0"})), (number, frozenset({"1"}))}
        assert [missing for reader in readers for missing in reader.missing] == []
        assert await graph_of(app, "cranes", "neo4j") == await graph_of(app, "cranes", "postgres")
        await collected(app, "cranes")
        assert await graphs_in_neo4j(app, "cranes") == {second}
        assert await nodes_of(neo4j_server, {first}) == 0 < await nodes_of(neo4j_server, {second})


async def test_a_dead_build_leaves_nothing(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """A run that is cancelled while its graph is written: the next garbage collection takes its nodes away."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "cranes", folder, documents(0), NEO4J)
        (first,) = await graphs_in_neo4j(app, "cranes")
        await to_thread.run_sync(lay_out, folder, documents(1))
        worker = await started(database, redis_url, tmp_path, neo4j_server)
        try:
            run = await app.index("cranes", [str(folder)])
            second, _ = await half_written(app, run)
            assert (await app.cancel(run.run_id, "not wanted")).state is RunState.CANCELLED
        finally:
            worker.kill()
            await worker.wait()
        await app.gc("cranes")
        assert await graphs_in_neo4j(app, "cranes") == {first}
        assert await nodes_of(neo4j_server, {second}) == 0

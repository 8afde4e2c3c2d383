"""The driver of Neo4j against real servers: what it runs, what can go wrong, and which error of ours that is."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pytest

from pipeline.adapters import neo4j_driver
from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.adapters.neo4j_driver import Neo4j, Neo4jConfig, check_version, open_neo4j
from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    Conflict,
    DeadlineExceeded,
    MissingDatabase,
    SapwoodError,
    StoreRefused,
    StoreUnavailable,
)
from tests.neo4j_server import PATIENCE, WAITS, Neo4jServer, running

CORPUS, DATABASE = "Sales_2024", "sales-2024"


@pytest.fixture(scope="module")
def corpus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neo4jServer]:
    """A server without Graph Data Science whose only database has the name that one corpus needs."""
    with running(tmp_path_factory.mktemp("corpus"), database=DATABASE, heap="512m", gds=False) as server:
        yield server


def soon() -> Deadline:
    return Deadline.after(PATIENCE)


async def failing(call: Callable[[], Awaitable[object]]) -> SapwoodError:
    """Return the error of ours that a call ends with, after a look at what it says."""
    with anyio.fail_after(PATIENCE), pytest.raises(SapwoodError) as caught:
        await call()
    assert not any(word in str(caught.value) for word in ("127.0.0.1", "bolt://", "MATCH", "canary"))
    return caught.value


async def waiting(db: Neo4j, server: Neo4jServer, name: str, deadline: Deadline) -> object:
    """Write where a lock is held."""
    return await db.write(server.database, WAITS, {"name": name}, deadline)


async def test_records_come_as_written(neo4j_server: Neo4jServer) -> None:
    """Values travel both ways as parameters; what is written is there for the next read."""
    values = {"text": "a`b 'c' \\ ü", "list": [1, 2.5, None], "map": {"x": True}}
    async with open_neo4j(neo4j_server.config()) as db:
        await db.verify(soon())
        await db.write("neo4j", "MERGE (n:Kept {text: $text}) RETURN n.text AS text", {"text": values["text"]}, soon())
        kept = await db.read("neo4j", "MATCH (n:Kept) RETURN n.text AS text", {}, soon())
        assert kept == [{"text": values["text"]}]
        assert await db.read("neo4j", "RETURN $text AS text, $list AS list, $map AS map", values, soon()) == [values]
        many = await db.read("neo4j", "UNWIND range(1, 3000) AS number RETURN number", {}, soon())
        assert [row["number"] for row in many] == list(range(1, 3001))


async def test_a_wrong_password(neo4j_server: Neo4jServer) -> None:
    async with open_neo4j(neo4j_server.config(password="canary")) as db:
        error = await failing(lambda: db.verify(soon()))
    assert type(error) is ConfigurationError
    assert "SAPWOOD_GRAPH_NEO4J_PASSWORD" in str(error)


async def test_a_password_is_never_shown(neo4j_server: Neo4jServer) -> None:
    assert neo4j_server.password not in repr(neo4j_server.config())


async def test_a_server_that_is_down() -> None:
    """Opening takes no server; each call fails soon, and says so."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config = Neo4jConfig(f"bolt://127.0.0.1:{free.getsockname()[1]}", "neo4j", "canary")
        async with open_neo4j(config) as db:
            error = await failing(lambda: db.verify(soon()))
            assert type(error) is StoreUnavailable
            assert "graph store" in str(error)
            assert type(await failing(lambda: db.verify(Deadline.after(0.3)))) in {StoreUnavailable, DeadlineExceeded}


@pytest.mark.parametrize("uri", ["", "canary", "http://canary", "redis://canary"])
async def test_an_address_that_is_none(uri: str) -> None:
    async def opened() -> None:
        async with open_neo4j(Neo4jConfig(uri, "neo4j", "canary")):
            pass

    error = await failing(opened)
    assert type(error) is ConfigurationError
    assert "SAPWOOD_GRAPH_NEO4J_URI" in str(error)


async def test_a_server_that_speaks_something_else() -> None:
    """The driver takes it for a server that is not ready yet."""
    with anyio.fail_after(PATIENCE):
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)

        async def greet(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                await stream.receive()
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, greet)
            async with open_neo4j(Neo4jConfig(f"bolt://127.0.0.1:{port}", "neo4j", "canary")) as db:
                error = await failing(lambda: db.verify(soon()))
            group.cancel_scope.cancel()
    assert type(error) is StoreUnavailable
    assert "SAPWOOD_GRAPH_NEO4J_URI" in str(error)


@pytest.mark.parametrize("version", ["4.4.40", "2025.06.0", "", "five"])
def test_a_wrong_version(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Neo4j 5\.x is required"):
        check_version(version)


def test_the_right_version() -> None:
    check_version("5.26.16")


async def test_graph_data_science_is_missing(corpus_server: Neo4jServer, neo4j_server: Neo4jServer) -> None:
    """The server without the library serves reads all the same; the one with it passes."""
    async with open_neo4j(corpus_server.config()) as db:
        await db.verify(soon())
        error = await failing(lambda: GdsLeiden(db).verify(DATABASE, soon()))
        assert type(error) is ConfigurationError
        assert str(error) == "GDS 2.13.x is required for Leiden; found none"
        assert await db.read(DATABASE, "RETURN 1 AS one", {}, soon()) == [{"one": 1}]
        called = await failing(lambda: db.write(DATABASE, "CALL gds.graph.drop('x')", {}, soon()))
        assert type(called) is ConfigurationError
        assert "Graph Data Science 2.13" in str(called)
    async with open_neo4j(neo4j_server.config()) as db:
        await GdsLeiden(db).verify("neo4j", soon())


async def test_all_connections_are_busy(neo4j_server: Neo4jServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits too long for a connection is told about the pool; whose deadline comes first, about that."""
    async with (
        open_neo4j(neo4j_server.config(pool_size=1)) as db,
        neo4j_server.locked("busy"),
        anyio.create_task_group() as group,
    ):
        monkeypatch.setattr(neo4j_driver, "CONNECT_CAP", 0.3)
        group.start_soon(waiting, db, neo4j_server, "busy", soon())
        await neo4j_server.wait_for(1, "n.waited")
        error = await failing(lambda: db.read("neo4j", "RETURN 1", {}, soon()))
        assert type(error) is StoreUnavailable
        assert "pool" in str(error)
        error = await failing(lambda: db.read("neo4j", "RETURN 1", {}, Deadline.after(0.1)))
        assert type(error) is DeadlineExceeded
        group.cancel_scope.cancel()
    async with open_neo4j(neo4j_server.config(pool_size=1)) as db:
        assert await db.read("neo4j", "RETURN 1 AS one", {}, soon()) == [{"one": 1}]


async def test_the_server_ends_a_transaction_by_itself(
    neo4j_server: Neo4jServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline goes to the server too, a little later. Here it comes there first: it looks every two seconds."""
    monkeypatch.setattr(neo4j_driver, "_SERVER_SLACK", 0.2 - PATIENCE)
    async with open_neo4j(neo4j_server.config()) as db, neo4j_server.locked("slow"):
        error = await failing(lambda: waiting(db, neo4j_server, "slow", soon()))
        assert type(error) is StoreUnavailable
        assert "took too long" in str(error)


async def test_a_deadline_or_a_cancellation_ends_the_transaction_on_the_server(neo4j_server: Neo4jServer) -> None:
    """The server runs on, and the statement waits in it: neither its end nor its transaction is waited for."""
    async with open_neo4j(neo4j_server.config(pool_size=2)) as db, neo4j_server.locked("left"):
        error = await failing(lambda: waiting(db, neo4j_server, "left", Deadline.after(0.5)))
        assert type(error) is DeadlineExceeded
        async with anyio.create_task_group() as group:
            group.start_soon(waiting, db, neo4j_server, "left", soon())
            await neo4j_server.wait_for(1, "n.waited")
            group.cancel_scope.cancel()
        await neo4j_server.wait_for(0, "n.waited")


async def test_what_the_server_refuses(neo4j_server: Neo4jServer) -> None:
    values = {"key": "canary"}
    async with open_neo4j(neo4j_server.config()) as db:
        unique = "CREATE CONSTRAINT single IF NOT EXISTS FOR (n:Single) REQUIRE n.key IS UNIQUE"
        await db.write("neo4j", unique, {}, soon())
        await db.write("neo4j", "MERGE (:Single {key: $key})", values, soon())
        for call, expected in (
            (lambda: db.write("neo4j", "CREATE (:Single {key: $key})", values, soon()), Conflict),
            (lambda: db.read("neo4j", "CREATE (:Other {key: $key})", values, soon()), StoreRefused),
            (lambda: db.read("neo4j", "MATCH canary", values, soon()), StoreRefused),
            (lambda: db.read("neo4j", "RETURN $canary", values, soon()), StoreRefused),
            (lambda: db.read("neo4j", "RETURN $key", {"key": 1 << 64}, soon()), StoreRefused),
            (lambda: db.read("nowhere", "RETURN $key", values, soon()), MissingDatabase),
        ):
            assert type(await failing(call)) is expected
        await db.write("neo4j", "MATCH (n:Single) DELETE n", {}, soon())
        await db.write("neo4j", "DROP CONSTRAINT single", {}, soon())


async def test_a_corpus_with_a_database_of_its_own(corpus_server: Neo4jServer) -> None:
    """The server's only database has the corpus's name: the corpus is served, another one gets a clear error."""
    async with open_neo4j(corpus_server.config(mode="per_corpus", prefix="", database="ignored")) as db:
        await db.verify(soon())
        assert db.database_of(CORPUS) == DATABASE
        await db.write(db.database_of(CORPUS), "MERGE (:Kept {key: 1})", {}, soon())
        assert await db.read(db.database_of(CORPUS), "MATCH (n:Kept) RETURN count(n) AS kept", {}, soon()) == [
            {"kept": 1}
        ]
        other = db.database_of("other")
        created = await failing(lambda: db.write(other, "MERGE (:Kept {key: 1})", {}, soon()))
        assert type(created) is ConfigurationError
        assert all(cure in str(created) for cure in ("Enterprise", "default database", "`shared`"))
        read = await failing(lambda: db.read(other, "RETURN 1", {}, soon()))
        assert type(read) is MissingDatabase
        assert "no such database" in str(read)


async def test_a_database_is_created_only_where_that_is_wanted(corpus_server: Neo4jServer) -> None:
    for changes in ({"mode": "per_corpus", "auto_create": False}, {"mode": "shared"}):
        async with open_neo4j(corpus_server.config(**changes)) as db:
            error = await failing(lambda db=db: db.write("other", "MERGE (:Kept {key: 1})", {}, soon()))
            assert "no such database" in str(error)


async def test_a_shared_database_serves_every_corpus(corpus_server: Neo4jServer) -> None:
    async with open_neo4j(corpus_server.config()) as db:
        assert {db.database_of("one"), db.database_of("???")} == {DATABASE}

"""A corpus whose graph lies in Neo4j, from its sources to its deletion: the same graph, the same answers, nothing left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from pydantic import SecretStr

from pipeline.adapters.neo4j_communities import GdsLeiden
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError
from pipeline.graphs.export import graph_lines
from pipeline.graphs.parts import Clusters, GraphRef
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunState
from schemas.settings import CorpusSettings, GraphIndexingSettings, GraphStorageSettings
from tests.neo4j_server import Neo4jServer, running
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

NEO4J = CorpusSettings(graph_storage=GraphStorageSettings(backend="neo4j"))
FIRST = {
    "library.md": (
        "# Library\n\nThe Harbour Tool Library is located in Bristol. "
        "The Harbour Tool Library was founded by the Redcliffe Association."
    ),
    "cutter.md": "# Cutter\n\nThe Laser Cutter was made by Trotec. Trotec is based in Marchtrenk.",
    "teams.md": (
        "# Teams\n\nThe Workshop Team is part of the Workshop Department.\n\n"
        "The Safety Team is part of the Workshop Department."
    ),
    "odd.md": "# Odd\n\nThe Redcliffe Association is based in Bristol. Größe, 東京 and a ﬁne ligature.",
}


def settings_of(database: str, redis_url: str, home: Path, server: Neo4jServer, **changes: Any) -> WorkerSettings:
    given = {
        "graph_neo4j_uri": server.uri,
        "graph_neo4j_user": server.user,
        "graph_neo4j_password": SecretStr(server.password),
        "graph_neo4j_database": server.database,
    }
    return WorkerSettings(
        home=home, database_url=SecretStr(database), redis_url=SecretStr(redis_url), **{**given, **changes}
    )


@asynccontextmanager
async def opened(
    database: str, redis_url: str, home: Path, server: Neo4jServer, **changes: Any
) -> AsyncIterator[Sapwood]:
    async with open_sapwood(settings_of(database, redis_url, home, server, **changes)) as app:
        yield app


def lay_out(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")


async def indexed(app: Sapwood, corpus: str, folder: Path, texts: dict[str, str], settings: CorpusSettings) -> int:
    """Index a folder with these texts and return the generation."""
    await to_thread.run_sync(lay_out, folder, texts)
    run = await app.index(corpus, [str(folder)], settings=settings)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return (await app.corpus(corpus)).generation or 0


async def graph_of(app: Sapwood, corpus: str, store: str) -> list[str]:
    """The canonical graph of the current generation, as one of the stores has it."""
    async with app.services.pins.pin("default", corpus, Deadline.after(10)) as pinned:
        graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
        return [line async for line in graph_lines(app.services.graphs[store], graph, Deadline.after(30))]


async def graphs_in_neo4j(app: Sapwood, corpus: str) -> set[str]:
    """The ids of all graphs that the server has of a corpus."""
    found = await app.corpus(corpus)
    identity = await app.services.records.identity(found.corpus_id, Deadline.after(10))
    return set(await app.services.stores.graphs["neo4j"].graphs(identity.name, identity.uid, Deadline.after(10)))


async def collected(app: Sapwood, corpus: str) -> None:
    """Leave the current generation alone; what this process has pinned is given back first."""
    await app.services.pins.close(Deadline.after(5))
    await app.gc(corpus, keep=1)


async def nodes_of(server: Neo4jServer, graph_ids: set[str]) -> int:
    """Every node of these graphs, whatever its label."""
    query = "MATCH (n) WHERE n.graph_id IN $ids RETURN count(n) AS nodes"
    async with server.raw() as driver:
        found = await driver.execute_query(query, ids=sorted(graph_ids), database_=server.database)
    return int(found.records[0]["nodes"])


async def test_both_stores_hold_the_same_graph_through_edits(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """Entities, relations and communities are equal line by line after an index, an edit, a removal and a rollback."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        first = await indexed(app, "shop", folder, FIRST, NEO4J)
        one = await graph_of(app, "shop", "neo4j")
        assert one == await graph_of(app, "shop", "postgres")
        assert [line async for line in app.export_graph("shop")] == one
        assert any('"kind":"relations"' in line for line in one)
        manifest = (await app.generations("shop"))[0]["manifest"]
        assert manifest["graph_store"] == "neo4j"
        assert manifest["graph_rows"]["entities"] == manifest["stores"]["entities"]["rows"] > 0

        edited = {**FIRST, "cutter.md": "# Cutter\n\nThe Laser Cutter was made by Epilog. Epilog is based in Golden."}
        await indexed(app, "shop", folder, edited, NEO4J)
        two = await graph_of(app, "shop", "neo4j")
        assert two == await graph_of(app, "shop", "postgres") != one

        await indexed(app, "shop", folder, {n: t for n, t in edited.items() if n != "teams.md"}, NEO4J)
        assert await graph_of(app, "shop", "neo4j") == await graph_of(app, "shop", "postgres") != two

        again = await app.rollback("shop", first + 1)
        assert again > first + 2
        assert await graph_of(app, "shop", "neo4j") == await graph_of(app, "shop", "postgres") == two


async def test_an_incremental_build_equals_a_fresh_one(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """Communities by GDS included: they follow from the graph, not from the order in which the server got it."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "old", folder, {**FIRST, "gone.md": "# Gone\n\nTrotec is part of the Laser Group."}, NEO4J)
        await indexed(app, "old", folder, FIRST, NEO4J)
        await indexed(app, "new", folder, FIRST, NEO4J)
        old, new = [[line async for line in app.export(name)][1:] for name in ("old", "new")]
        assert old == new


@pytest.fixture
def clustered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the graphs that were really clustered in Neo4j, in order."""
    found: list[str] = []
    real = GdsLeiden.cluster

    async def cluster(self: GdsLeiden, graph: GraphRef, deadline: Deadline) -> Clusters:
        found.append(graph.graph_id)
        return await real(self, graph, deadline)

    monkeypatch.setattr(GdsLeiden, "cluster", cluster)
    return found


async def test_communities_are_found_anew_only_if_a_relation_changed(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer, clustered: list[str]
) -> None:
    """A new text and a new entity without relations change none; other settings group anew."""
    folder = tmp_path / "folder"
    more = {**FIRST, "note.md": "# Note\n\nOpen on Tuesdays. Ada Lovelace came by."}
    told = {**FIRST, "note.md": "# Note\n\nOpen on Fridays. Ada Lovelace was born in London."}
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "shop", folder, FIRST, NEO4J)
        assert len(clustered) == 1
        await indexed(app, "shop", folder, more, NEO4J)
        await indexed(app, "fresh", folder, more, NEO4J)
        assert len(clustered) == 2  # that of the fresh one
        old, new = [[line async for line in app.export(name)][1:] for name in ("shop", "fresh")]
        assert old == new
        assert await graph_of(app, "shop", "neo4j") == await graph_of(app, "shop", "postgres")
        manifests = [one["manifest"] for one in await app.generations("shop")]
        assert manifests[0]["modularity"] == manifests[1]["modularity"] > 0
        assert manifests[0]["stores"]["entities"]["rows"] > manifests[1]["stores"]["entities"]["rows"]

        await indexed(app, "shop", folder, told, NEO4J)
        assert len(clustered) == 3
        assert await graph_of(app, "shop", "neo4j") == await graph_of(app, "shop", "postgres")

        other = NEO4J.model_copy(update={"graph_indexing": GraphIndexingSettings(max_cluster_size=7)})
        await indexed(app, "shop", folder, told, other)
        assert len(clustered) == 4


async def test_a_corpus_moves_between_the_stores(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """A change of `graph_storage.backend` alone builds a generation; the old one still reads from where it lies."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "shop", folder, FIRST, CorpusSettings())
        number = await indexed(app, "shop", folder, FIRST, NEO4J)
        assert number == 2 and len(await graphs_in_neo4j(app, "shop")) == 1
        assert await graph_of(app, "shop", "neo4j") == await graph_of(app, "shop", "postgres")
        await indexed(app, "shop", folder, FIRST, CorpusSettings())
        await collected(app, "shop")
        assert await graphs_in_neo4j(app, "shop") == set()


async def test_nothing_is_left_of_dead_generations_and_deleted_corpora(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """Garbage collection leaves one graph, deletion none, and a neighbour with a longer name keeps its own (W48)."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "a", folder, FIRST, NEO4J)
        await indexed(app, "a__b", folder, FIRST, NEO4J)
        seen = await graphs_in_neo4j(app, "a")
        for number in range(3):
            await indexed(app, "a", folder, {**FIRST, f"{number}.md": f"Trotec is based in Town {number}."}, NEO4J)
            seen |= await graphs_in_neo4j(app, "a")
        await collected(app, "a")
        (left,) = await graphs_in_neo4j(app, "a")
        assert len(seen) == 4 and await nodes_of(neo4j_server, seen - {left}) == 0 < await nodes_of(
            neo4j_server, {left}
        )
        await app.delete_corpus("a")
        assert await nodes_of(neo4j_server, seen) == 0
        assert len(await graphs_in_neo4j(app, "a__b")) == 1


async def test_a_deleted_corpus_goes_from_a_store_that_was_away(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """What could not be reached at the deletion is remembered, and goes with the next process that reaches it."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "shop", folder, FIRST, NEO4J)
        seen = await graphs_in_neo4j(app, "shop")
    async with opened(database, redis_url, tmp_path, neo4j_server, graph_neo4j_uri="bolt://127.0.0.1:9") as app:
        await app.delete_corpus("shop")
        assert await nodes_of(neo4j_server, seen) > 0
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await app.services.outside.inter(Deadline.after(30))
        assert await nodes_of(neo4j_server, seen) == 0


@pytest.mark.parametrize("strategy", [Strategy.HYBRID, Strategy.GRAPH])
async def test_the_graph_leg_comes_from_neo4j(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer, strategy: Strategy
) -> None:
    """The same walk gives the same chunks and scores from either store, and hits say where the graph lies."""
    folder = tmp_path / "folder"
    request = QueryRequest(
        text="Who made the Laser Cutter?", strategy=strategy, ranking="walk", top_k=5, cache=False, deadline=30
    )
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "there", folder, FIRST, NEO4J)
        await indexed(app, "here", folder, FIRST, CorpusSettings())
        there, here = await app.query("there", request), await app.query("here", request)
        assert there.complete and here.complete
        assert [(h.document, h.score, h.ranks) for h in there.hits] == [
            (h.document, h.score, h.ranks) for h in here.hits
        ]
        assert {h.graph_source for h in there.hits if "graph" in h.streams} <= {"neo4j"}


async def test_the_rest_is_answered_while_neo4j_is_away(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """The result names the missing leg, without an address; a run that needs the store fails with a hint."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, neo4j_server) as app:
        await indexed(app, "shop", folder, FIRST, NEO4J)
    async with opened(database, redis_url, tmp_path, neo4j_server, graph_neo4j_uri="bolt://127.0.0.1:9") as app:
        request = QueryRequest(text="Who made the Laser Cutter?", top_k=3, cache=False, deadline=20)
        result = await app.query("shop", request)
        assert result.hits and result.missing == ("graph",)
        (leg,) = [leg for leg in result.legs if leg.leg == "graph"]
        assert leg.state == "failed" and "graph store" in leg.error and "127.0.0.1" not in leg.error


async def test_an_unknown_store_is_refused_before_anything_is_enqueued(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """A process that was not told of Neo4j says which settings are missing."""
    async with opened(database, redis_url, tmp_path, neo4j_server, graph_neo4j_uri=None) as app:
        with pytest.raises(ConfigurationError, match="SAPWOOD_GRAPH_NEO4J_URI"):
            await app.index("shop", [str(tmp_path)], settings=NEO4J)


@pytest.fixture
def shop_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neo4jServer]:
    """A server whose only database is that of the corpus `shop`."""
    with running(tmp_path_factory.mktemp("shop"), database="sapwood-shop") as server:
        yield server


async def test_each_corpus_has_a_database_of_its_own(
    tmp_path: Path, database: str, redis_url: str, shop_server: Neo4jServer
) -> None:
    """The corpus whose database is there is served; one without gets an error that names the cures, and leaves nothing."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path, shop_server, graph_neo4j_database_mode="per_corpus") as app:
        await indexed(app, "shop", folder, FIRST, NEO4J)
        assert await graph_of(app, "shop", "neo4j") == await graph_of(app, "shop", "postgres")
        run = await app.index("other", [str(folder)], settings=NEO4J)
        info = await app.work(run.run_id)
        assert info.state is RunState.FAILED
        assert "Enterprise" in info.error and "`shared`" in info.error
        assert (await app.corpus("other")).generation is None
        await app.delete_corpus("other")
        await app.delete_corpus("shop")
        async with shop_server.raw() as driver:
            found = await driver.execute_query("MATCH (n) RETURN count(n) AS nodes", database_="sapwood-shop")
        assert found.records[0]["nodes"] == 0

"""Properties from a file of triples to whoever reads the graph: edited, taken away, rolled back, and never derived in vain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from anyio import to_thread
from pydantic import SecretStr

from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.graphs.export import graph_lines
from pipeline.graphs.inspection import edge_view, entity_view
from pipeline.graphs.parts import GraphRef
from pipeline.testing.rows import Triple, document
from schemas.graph import MAX_PROPERTIES
from schemas.runs import RunState
from schemas.settings import CorpusSettings, GraphStorageSettings
from tests.generation_builder import Builder
from tests.neo4j_server import Neo4jServer
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

NEO4J = CorpusSettings(graph_storage=GraphStorageSettings(backend="neo4j"))
BORN: dict[str, Any] = {
    "born": 1815,
    "height": 1.0,
    "known": True,
    "file_path": "ada.md",
    "stars": 1e22,
    "note": "x: é",
}
SINCE: dict[str, Any] = {"since": 1833, "warmth": 0.5}

Record = dict[str, Any]


def line(document_id: str, passage: str, born: Mapping[str, Any], since: Mapping[str, Any]) -> Record:
    """Ada, who knew Babbage, with what is told of her and of that; Turing, of whom nothing is."""
    return {
        "document": document_id,
        "passage": passage,
        "triples": [
            {"subject": "Ada", "predicate": "knew", "object": "Babbage", "properties": since},
            ["Turing", "knew", "Babbage"],
        ],
        "entities": [{"name": "Ada", "type": "Person", "properties": born}],
    }


FIRST = [line("one", "Ada knew Babbage.", BORN, SINCE), line("two", "Turing came later.", {}, {})]


async def index(app: Sapwood, corpus: str, path: Path, records: Sequence[Record], settings: CorpusSettings) -> int:
    """Index a file with these lines and return the generation."""
    await to_thread.run_sync(path.write_bytes, b"".join(orjson.dumps(one) + b"\n" for one in records))
    run = await app.index(corpus, [str(path)], settings=settings)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return (await app.corpus(corpus)).generation or 0


async def told(app: Sapwood, corpus: str) -> dict[str, list[Any]]:
    """What an export says of properties, by the kind of line; a line without any has no such key."""
    lines = [orjson.loads(one) async for one in app.export(corpus)]
    assert all(one.get("properties", True) for one in lines)
    kinds = ("mentions", "facts", "entities", "relations")
    return {kind: [one["properties"] for one in lines if one["kind"] == kind and "properties" in one] for kind in kinds}


async def graph_of(app: Sapwood, corpus: str, store: str) -> list[str]:
    """The canonical graph of the current generation, as one of the stores has it."""
    async with app.services.pins.pin("default", corpus, Deadline.after(10)) as pinned:
        graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
        return [line async for line in graph_lines(app.services.graphs[store], graph, Deadline.after(30))]


async def body(app: Sapwood, corpus: str) -> list[str]:
    return [one async for one in app.export(corpus)][1:]


@dataclass(frozen=True)
class Given:
    """An installation over empty servers, and how its corpora are to be kept."""

    installation: WorkerSettings
    settings: CorpusSettings
    store: str


@pytest.fixture(params=["postgres", "neo4j"])
def given(request: pytest.FixtureRequest, tmp_path: Path, database: str, redis_url: str) -> Given:
    store: str = request.param
    found: dict[str, Any] = {}
    if store == "neo4j":
        server: Neo4jServer = request.getfixturevalue("neo4j_server")
        found = {
            "graph_neo4j_uri": server.uri,
            "graph_neo4j_user": server.user,
            "graph_neo4j_password": SecretStr(server.password),
            "graph_neo4j_database": server.database,
        }
    addresses = {"database_url": SecretStr(database), "redis_url": SecretStr(redis_url)}
    settings = NEO4J if store == "neo4j" else CorpusSettings()
    return Given(WorkerSettings(home=tmp_path, **addresses, **found), settings, store)


async def test_they_follow_every_edit_and_a_rollback(given: Given, tmp_path: Path) -> None:
    """From the file to the export, and to the store that serves the graph: whole numbers stay whole."""
    async with open_sapwood(given.installation) as app:
        await follows(app, given.settings, given.store, tmp_path / "facts.jsonl")


async def follows(app: Sapwood, settings: CorpusSettings, store: str, path: Path) -> None:
    """Index, edit, take away, roll back and collect."""
    first = await index(app, "shop", path, FIRST, settings)
    assert await told(app, "shop") == {
        "mentions": [BORN], "facts": [SINCE], "entities": [BORN], "relations": [SINCE],
    }  # fmt: skip
    (shown,) = (await told(app, "shop"))["entities"]
    assert {name: type(value) for name, value in shown.items()} == {name: type(value) for name, value in BORN.items()}
    assert await graph_of(app, "shop", store) == await graph_of(app, "shop", "postgres")
    assert any('"properties"' in line for line in await graph_of(app, "shop", store))

    edited = [line("one", "Ada knew Babbage.", {**BORN, "born": 1815.0}, {**SINCE, "since": 1834}), FIRST[1]]
    await index(app, "shop", path, edited, settings)
    after = await told(app, "shop")
    assert str(after["entities"][0]["born"]) == "1815.0"
    assert after["relations"] == [{**SINCE, "since": 1834}]
    two = await body(app, "shop")
    assert await graph_of(app, "shop", store) == await graph_of(app, "shop", "postgres")

    await index(app, "shop", path, [line("one", "Ada knew Babbage.", {}, {}), FIRST[1]], settings)
    assert not any((await told(app, "shop")).values())
    assert await graph_of(app, "shop", store) == await graph_of(app, "shop", "postgres")

    await app.rollback("shop", first + 1)
    assert await body(app, "shop") == two
    assert await graph_of(app, "shop", store) == await graph_of(app, "shop", "postgres")
    await app.services.pins.close(Deadline.after(5))
    await app.gc("shop", keep=1)
    assert await body(app, "shop") == two


async def test_they_are_shown_to_people(given: Given, tmp_path: Path) -> None:
    """As properties of the entity and of the relationship; its file is the entity's own."""
    async with open_sapwood(given.installation) as app:
        await index(app, "shop", tmp_path / "facts.jsonl", FIRST, given.settings)
        inspector = app.services.inspectors[given.store]
        async with app.services.pins.pin("default", "shop", Deadline.after(10)) as pinned:
            graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
            (ada,) = await inspector.named(graph, "Person", "ada", 9, Deadline.after(10))
            (edge,) = await inspector.edges(graph, [ada.entity.entity_no], None, Deadline.after(10))
    view = entity_view(ada)
    assert view.file_path == "ada.md"
    assert {name: value for name, value in BORN.items() if name != "file_path"}.items() <= view.properties.items()
    assert edge_view(edge).properties == {**SINCE, "evidence": 2}


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


def documents(first: str, second: str) -> list[Any]:
    """Two documents that tell of `A`, the second also of `c`."""
    return [document("x", [("A", "R", "b", first)]), document("y", [("A", "R", "b", second)], [("c", "", "d", second)])]


async def derived(corpus: Builder, number: int) -> dict[str, dict[str, Any]]:
    """The properties of all entities and relations that a generation sees, by name or type."""
    lines = [orjson.loads(one) for one in await corpus.body(number)]
    return {
        one.get("name", one["type"]): one.get("properties", {})
        for one in lines
        if one["kind"] in ("entities", "relations")
    }


async def versions(pool: Pool, corpus: Builder, number: int) -> tuple[int, int]:
    """How many entities and relations were born at a number."""
    async with pool.connection(Deadline.after(10)) as tx:
        row = await tx.fetchrow(
            "select (select count(*) from entity where corpus_id = $1 and born = $2),"
            " (select count(*) from relation where corpus_id = $1 and born = $2)",
            corpus.corpus,
            number,
        )
    return tuple(row)


async def test_another_value_is_another_version_and_touches_no_community(pool: Pool) -> None:
    """Of what has it alone; 1 and 1.0 are other values, although PostgreSQL holds them equal."""
    corpus = await Builder.new(pool, "edited")
    await corpus.build(*documents('{"p": 1}', "{}"))
    assert await derived(corpus, 1) == {"A": {"p": 1}, "b": {}, "c": {}, "d": {}, "R": {"p": 1}}
    number, collection = await corpus.begin()
    await corpus.write(number, collection, documents('{"p": 1.0}', "{}")[:1])
    found = await corpus.assemble(number)
    assert (found.entities, found.relations, found.graph_changed) == (2, 2, False)
    await corpus.promote(number, collection)
    assert await versions(pool, corpus, number) == (1, 1)
    assert '"p":1.0' in "".join(await corpus.body(number))
    number, collection = await corpus.begin()
    await corpus.write(number, collection, documents('{"p": 1.0}', "{}"))
    assert (await corpus.assemble(number)).entities == 0


async def test_the_first_chunk_that_tells_has_the_word_for_each_property(pool: Pool) -> None:
    """First by id: the order in which documents were written leaves no trace."""
    corpus, other = await Builder.new(pool, "one"), await Builder.new(pool, "other")
    written = documents('{"p": 1, "q": 1}', '{"p": 2, "r": 2}')
    await corpus.build(*written)
    await other.build(written[1])
    await other.build(written[0])
    chunks = [one.chunks[0].chunk_id for one in written]
    first = {"p": 1 if chunks[0] < chunks[1] else 2, "q": 1, "r": 2}
    assert await derived(corpus, 1) == {"A": first, "b": {}, "c": {"p": 2, "r": 2}, "d": {}, "R": first}
    assert await corpus.body(1) == await other.body(2)


async def test_an_entity_has_no_more_than_its_number(pool: Pool) -> None:
    """However many chunks tell of it: the first by name."""
    corpus = await Builder.new(pool, "many")
    names = [f"p{n:03d}" for n in range(MAX_PROPERTIES * 2)]
    parts = [names[at::4] for at in range(4)]
    told = [orjson.dumps(dict.fromkeys(part, 1)).decode() for part in parts]
    passages: list[list[Triple]] = [[("A", "R", f"b{n}", one)] for n, one in enumerate(told)]
    await corpus.build(document("x", *passages))
    assert (await derived(corpus, 1))["A"] == dict.fromkeys(names[:MAX_PROPERTIES], 1)

"""A code graph whose store is Neo4j: the same graph as in PostgreSQL, found by the ids that source code gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.graphs.export import graph_lines
from pipeline.graphs.parts import GraphRef
from schemas.settings import GraphStorageSettings
from tests.code_repository import CODE, Place
from tests.neo4j_server import Neo4jServer
from worker.app import Sapwood

SETTINGS = CODE.model_copy(update={"graph_storage": GraphStorageSettings(backend="neo4j")})
FILES = {
    "server/retrieval/rerank.py": "class Reranker:\n    def __init__(self):\n        pass\n",
    "a b/\u00fc %.py": "from server.retrieval.rerank import Reranker\n\n\ndef it_s():\n    return Reranker()\n",
    "it's.py": "import os\n\n\ndef here():\n    return os.getcwd()\n",
}


async def both(app: Sapwood, corpus: str) -> list[list[str]]:
    """Return the canonical graph of the current generation as each store has it."""
    async with app.services.pins.pin("default", corpus, Deadline.after(10)) as pinned:
        graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
        return [
            [line async for line in graph_lines(app.services.graphs[store], graph, Deadline.after(30))]
            for store in ("postgres", "neo4j")
        ]


@pytest.fixture
def place(database: str, redis_url: str, tmp_path: Path, neo4j_server: Neo4jServer) -> Place:
    given = {
        "graph_neo4j_uri": neo4j_server.uri,
        "graph_neo4j_user": neo4j_server.user,
        "graph_neo4j_password": SecretStr(neo4j_server.password),
        "graph_neo4j_database": neo4j_server.database,
    }
    return Place(database, redis_url, tmp_path, given)


async def test_both_stores_hold_the_same_code_graph_through_edits(place: Place) -> None:
    async with place.open() as repository:
        app, seen = repository.app, list[list[str]]()
        for files in (
            FILES,
            {**FILES, "server/retrieval/rerank.py": "class Ranker:\n    pass\n"},
            {"it's.py": "x = 1\n"},
        ):
            await repository.index(files, settings=SETTINGS)
            postgres, neo4j = await both(app, "code")
            assert postgres == neo4j
            seen.append(neo4j)
        assert seen[0] != seen[1] != seen[2]
        await app.rollback("code", 2)
        assert await both(app, "code") == [seen[1], seen[1]]


async def test_w13_an_entity_is_found_by_its_path_in_either_store(place: Place) -> None:
    async with place.open() as repository:
        await repository.index(FILES, settings=SETTINGS)
        async with repository.app.services.pins.pin("default", "code", Deadline.after(10)) as pinned:
            graph = GraphRef.of(pinned.corpus_id, pinned.manifest)
            for store in ("postgres", "neo4j"):
                inspector = repository.app.services.inspector(store)
                for name in await repository.entities():
                    found = await inspector.entity(graph, name, Deadline.after(10))
                    assert found is not None, name
                    assert found.entity.entity_id == name
                centre = await inspector.entity(graph, "server/retrieval/rerank.py::Reranker", Deadline.after(10))
                assert centre is not None
                near = await inspector.reached(graph, centre.entity.entity_no, 1, 10, Deadline.after(10))
                assert {one.entity.entity_id for one in near.entities} == {
                    "server/retrieval/rerank.py::Reranker", "server/retrieval/rerank.py::Reranker.__init__",
                    "server/retrieval/rerank.py", "a b/\u00fc %.py::it_s",
                }  # fmt: skip

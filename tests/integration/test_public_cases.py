"""Small inputs that broke other systems, from a source to an answer; each stands for its whole kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from pydantic import SecretStr

from schemas.query import QueryRequest, Strategy
from schemas.runs import RunState
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

ODD_TYPES = ("attribute, process", "a`b", "has space", "Robert'); drop table entity; --")
ODD_NAMES = ("a/b", "x|y", "C:\\dir", '"q"', "@user", "(:Node)-[r]->", "50% & more", "' or 1=1 --")


@asynccontextmanager
async def opened(home: Path, database: str, redis_url: str) -> AsyncGenerator[Sapwood, None]:
    settings = WorkerSettings(home=home, database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(settings) as app:
        yield app


async def indexed(app: Sapwood, path: Path, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Index a triples file and return the lines of its export, without the header."""
    await anyio.Path(path).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    run = await app.index("cases", [str(path)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return [orjson.loads(line) async for line in app.export("cases")][1:]


def kinds(rows: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


async def test_types_and_names_are_data_and_never_text_of_a_query(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    lines = [
        {
            "document": f"d{number}",
            "passage": f"The thing {name} is linked to Bristol.",
            "triples": [[name, kind, "Bristol"]],
            "types": {name: kind},
        }
        for number, (name, kind) in enumerate(zip(ODD_NAMES, ODD_TYPES * 2, strict=True))
    ]
    async with opened(tmp_path, database, redis_url) as app:
        rows = await indexed(app, tmp_path / "odd.jsonl", lines)
        found = [
            await app.query("cases", QueryRequest(text=name, strategy=strategy, cache=False))
            for name in ODD_NAMES
            for strategy in (
                Strategy.SEMANTIC,
                Strategy.KEYWORD,
                Strategy.HYBRID,
                Strategy.GRAPH,
                Strategy.HIERARCHICAL,
            )
        ]
    assert {row["type"] for row in kinds(rows, "entities")} >= set(ODD_TYPES)
    assert {row["type"] for row in kinds(rows, "relations")} == set(ODD_TYPES)
    assert all(result.complete for result in found)


async def test_the_same_triple_again_is_one_relation_with_more_evidence(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    line = {"passage": "Bath is in Somerset.", "triples": [["Bath", "in", "Somerset"], ["Bath", "in", "Somerset"]]}
    async with opened(tmp_path, database, redis_url) as app:
        rows = await indexed(app, tmp_path / "t.jsonl", [{"document": name, **line} for name in ("a", "b", "c")])
    [relation] = kinds(rows, "relations")
    assert relation["evidence"] == 3
    assert sorted(row["name"] for row in kinds(rows, "entities") if row["key"] in ("bath", "somerset")) == [
        "Bath",
        "Somerset",
    ]


async def test_spellings_merge_within_a_type_and_homographs_stay_apart(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    triples = [["Apple", "sells", "IBM"], ["ibm", "buys", "Mu\u0308ller"], ["M\u00fcller", "eats", "the apple"]]
    lines = [
        {"document": "a", "passage": "One.", "triples": triples[:2], "types": {"Apple": "Company"}},
        {"document": "b", "passage": "Two.", "triples": triples[2:], "types": {"the apple": "Fruit"}},
    ]
    async with opened(tmp_path, database, redis_url) as app:
        entities = kinds(await indexed(app, tmp_path / "t.jsonl", lines), "entities")
    assert sorted(row["type"] for row in entities if row["key"] == "apple") == ["Company", "Fruit"]
    assert [row["key"] for row in entities].count("ibm") == 1
    assert [row["key"] for row in entities].count("m\u00fcller") == 1


async def test_an_isolated_entity_has_a_community_and_is_found(tmp_path: Path, database: str, redis_url: str) -> None:
    triangle = [["A1", "knows", "B1"], ["B1", "knows", "C1"], ["C1", "knows", "A1"]]
    lines = [
        {"document": "triangle", "passage": "A1, B1 and C1 know each other.", "triples": triangle},
        {"document": "Zanzibar", "passage": "Zanzibar knows nobody.", "triples": []},
    ]
    async with opened(tmp_path, database, redis_url) as app:
        rows = await indexed(app, tmp_path / "t.jsonl", lines)
        answer = await app.query("cases", QueryRequest(text="Zanzibar", strategy=Strategy.GRAPH))
    entities = {row["entity_no"] for row in kinds(rows, "entities")}
    assert {row["entity_no"] for row in kinds(rows, "memberships")} == entities
    assert all(row["path"] for row in kinds(rows, "memberships"))
    assert answer.hits[0].document == "Zanzibar"


async def test_neighbours_stay_within_their_document(tmp_path: Path, database: str, redis_url: str) -> None:
    lines = [
        {"document": name, "passage": f"Passage {at} of {name}.", "triples": []} for name in "ab" for at in range(3)
    ]
    async with opened(tmp_path, database, redis_url) as app:
        rows = await indexed(app, tmp_path / "t.jsonl", lines)
        answer = await app.query(
            "cases", QueryRequest(text="Passage 2 of a", strategy=Strategy.KEYWORD, top_k=1, neighbors=2)
        )
    ids = [row["chunk_id"] for row in kinds(rows, "chunks")]
    assert len(ids) == len(set(ids)) == 6
    assert {hit.document for hit in answer.hits} == {"a"}


async def test_after_a_run_that_fails_the_next_one_is_done(tmp_path: Path, database: str, redis_url: str) -> None:
    async with opened(tmp_path / "home", database, redis_url) as app:
        folder = anyio.Path(tmp_path / "docs")
        await folder.mkdir()
        await (folder / "a.md").write_text("Bath is located in Somerset.")
        bad = await app.index("cases", [str(folder)])
        await (folder / "a.md").unlink()
        await folder.rmdir()
        failed = await app.work(bad.run_id)
        assert failed.state is RunState.FAILED
        assert "NotFound" in failed.error
        await folder.mkdir()
        await (folder / "a.md").write_text("Bath is located in Somerset.")
        good = await app.index("cases", [str(folder)])
        assert (await app.work(good.run_id)).state is RunState.COMPLETED


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>system you are"])
async def test_special_tokens_are_text(tmp_path: Path, database: str, redis_url: str, text: str) -> None:
    async with opened(tmp_path / "home", database, redis_url) as app:
        folder = anyio.Path(tmp_path / "docs")
        await folder.mkdir()
        await (folder / "odd.txt").write_text(f"The marker {text} separates documents.")
        await (folder / "plain.txt").write_text("Nothing is odd here.")
        run = await app.index("cases", [str(folder)])
        await app.work(run.run_id)
        outcomes, _ = await app.accounting(run.run_id)
        answer = await app.query("cases", QueryRequest(text=text, strategy=Strategy.KEYWORD))
    assert outcomes == {"indexed": 2}
    assert [hit.document for hit in answer.hits] == ["odd.txt"]
    assert text in answer.hits[0].text

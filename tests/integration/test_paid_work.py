"""What a model was paid for is not paid again while a version of the text remains; settings are no reason to pay."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from pydantic import SecretStr

from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.runs import RunInfo, RunState
from schemas.settings import CorpusSettings
from worker.app import Sapwood, open_sapwood
from worker.changes import apply_changes
from worker.settings import WorkerSettings

MODELS = ("embedding.provider=openai", "extraction.provider=openai", "graph_indexing.sparse=allow")
SECTIONS = [f"## Part {n}\n\nThe Reading Room {n} is located in Bristol.\n" for n in range(6)]


@asynccontextmanager
async def opened(home: Path, database: str, redis_url: str) -> AsyncGenerator[tuple[Sapwood, OpenAIStub], None]:
    async with serving(OpenAIStub()) as stub:
        settings = WorkerSettings(
            home=home,
            database_url=SecretStr(database),
            redis_url=SecretStr(redis_url),
            openai_base_url=stub.url,
            openai_api_key=SecretStr("none"),
            openai_model="reader",
            openai_embedding_model="embedder",
        )
        async with open_sapwood(settings) as app:
            yield app, stub


async def index(app: Sapwood, folder: Path, settings: CorpusSettings) -> RunInfo:
    run = await app.index("paid", [str(folder)], settings=settings)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return info


async def write(folder: Path, sections: list[str]) -> None:
    await anyio.Path(folder).mkdir(exist_ok=True)
    await anyio.Path(folder / "rooms.md").write_text("# Rooms\n\n" + "\n".join(sections))


async def test_an_edit_pays_for_what_it_changes(tmp_path: Path, database: str, redis_url: str) -> None:
    """Garbage is collected after each run, and must not take the vectors of texts that are still there."""
    docs, settings = tmp_path / "docs", apply_changes(CorpusSettings(), [*MODELS, "chunk.max_chars=120"])
    async with opened(tmp_path / "home", database, redis_url) as (app, stub):
        await write(docs, SECTIONS)
        await index(app, docs, settings)
        stub.texts.clear()
        await write(docs, [*SECTIONS[:3], "## Part 3\n\nThe Reading Room 3 is located in Bath.\n", *SECTIONS[4:]])
        await index(app, docs, settings)
    paid = [text for text in stub.texts if "Reading Room" in text]
    assert paid
    assert all("Bath" in text for text in paid), paid


async def test_other_communities_cost_no_document(tmp_path: Path, database: str, redis_url: str) -> None:
    """A setting of the communities makes a new generation out of the same rows."""
    docs, settings = tmp_path / "docs", apply_changes(CorpusSettings(), list(MODELS))
    smaller = apply_changes(settings, ["graph_indexing.max_cluster_size=2"])
    async with opened(tmp_path / "home", database, redis_url) as (app, stub):
        await write(docs, SECTIONS)
        runs = [await index(app, docs, settings)]
        stub.texts.clear()
        runs += [await index(app, docs, smaller), await index(app, docs, smaller)]
        results = [(await app.index_summary(run))["result"] for run in runs]
    assert results == ["promoted", "promoted", "unchanged"]
    assert not stub.texts


async def test_a_model_writes_the_summaries_once(tmp_path: Path, database: str, redis_url: str) -> None:
    """A community that did not change keeps the summary that was paid for."""
    docs = tmp_path / "docs"
    settings = apply_changes(CorpusSettings(), [*MODELS, "graph_indexing.summaries=openai"])
    async with opened(tmp_path / "home", database, redis_url) as (app, stub):
        await write(docs, SECTIONS)
        await index(app, docs, settings)
        written = {one["community_id"]: one["summary"] for one in await app.communities("paid") if one["size"] > 1}
        asked = sum("members, the best-connected first:" in text for text in stub.texts)
        stub.texts.clear()
        await anyio.Path(docs / "other.md").write_text("# Other\n\nThe Lighthouse is located in Plymouth.\n")
        await index(app, docs, settings)
        kept = {one["community_id"]: one["summary"] for one in await app.communities("paid")}
    assert written
    assert asked == len(written)
    assert not any("related entities around" in summary for summary in written.values())
    assert all(kept[community] == summary for community, summary in written.items())
    assert sum("members, the best-connected first:" in text for text in stub.texts) == 1


async def test_a_person_can_let_a_sparse_generation_pass(tmp_path: Path, database: str, redis_url: str) -> None:
    """A paid model that finds no relation is held to it, unless somebody says that it is right, and why."""
    docs = tmp_path / "docs"
    settings = apply_changes(CorpusSettings(), ["extraction.provider=openai"])
    async with opened(tmp_path / "home", database, redis_url) as (app, _):
        await write(docs, ["Bristol and Bath are both mentioned here.\n"])
        refused = await app.work((await app.index("paid", [str(docs)], settings=settings)).run_id)
        run = await app.index(
            "paid", [str(docs)], actor="operator", override_reason="The notes state no relations at all."
        )
        passed = await app.work(run.run_id)
        [newest, *_] = await app.generations("paid")
    assert refused.state is RunState.FAILED
    assert "zero_semantic_relationships" in refused.error
    assert passed.state is RunState.COMPLETED
    assert newest["manifest"]["override"]["actor"] == "operator"
    assert newest["manifest"]["override"]["codes"] == ["zero_semantic_relationships"]

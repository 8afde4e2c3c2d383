"""A corpus whose vectors lie in Qdrant (the client's local mode), from its sources to its deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunState
from schemas.settings import CorpusSettings, DenseStorageSettings
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

QDRANT = CorpusSettings(dense_storage=DenseStorageSettings(backend="qdrant"))
FIRST = {
    "library.md": "# Library\n\nThe Harbour Tool Library is located in Bristol. It lends planes, saws and clamps.",
    "cutter.md": "# Cutter\n\nThe Laser Cutter was made by Trotec. Members need an induction before they use it.",
    "teams.md": "# Teams\n\nThe Workshop Team is part of the Workshop Department. It meets on Mondays.",
}
QUESTIONS = ("Who made the cutter?", "where is the library", "Which team meets on Mondays?")


@asynccontextmanager
async def opened(database: str, redis_url: str, home: Path, **changes: Any) -> AsyncIterator[Sapwood]:
    given = {"qdrant_url": str(home / "qdrant"), **changes}
    settings = WorkerSettings(home=home, database_url=SecretStr(database), redis_url=SecretStr(redis_url), **given)
    async with open_sapwood(settings) as app:
        yield app


async def indexed(app: Sapwood, corpus: str, folder: Path, texts: dict[str, str], settings: CorpusSettings) -> int:
    """Index a folder with these texts and return the generation."""

    def lay_out() -> None:
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")

    await to_thread.run_sync(lay_out)
    run = await app.index(corpus, [str(folder)], settings=settings)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return (await app.corpus(corpus)).generation or 0


async def answers(app: Sapwood, corpus: str, questions: Sequence[str] = QUESTIONS) -> list[list[tuple[str, float]]]:
    """What the dense leg finds for each question."""
    found: list[list[tuple[str, float]]] = []
    for question in questions:
        request = QueryRequest(text=question, strategy=Strategy.SEMANTIC, top_k=10, cache=False, deadline=30)
        result = await app.query(corpus, request)
        assert result.complete
        found.append([(hit.document, hit.score) for hit in result.hits])
    return found


async def alike(app: Sapwood, one: str, two: str) -> None:
    """The same documents in the same order; scores differ by no more than half precision costs."""
    for left, right in zip(await answers(app, one), await answers(app, two), strict=True):
        assert [document for document, _ in left] == [document for document, _ in right]
        assert [score for _, score in left] == pytest.approx([score for _, score in right], abs=0.005)


async def vectors(app: Sapwood, corpus: str) -> dict[str, int]:
    """Versions of vectors in every collection of a corpus that the newest number sees."""
    found = await app.corpus(corpus)
    kept = await app.services.records.kept(found.corpus_id, Deadline.after(10))
    assert kept is not None
    store = app.services.stores.vectors["qdrant"]
    return {name: await store.count(name, kept.last, kept.void, Deadline.after(10)) for name in kept.collections}


async def test_both_stores_answer_alike_through_edits(tmp_path: Path, database: str, redis_url: str) -> None:
    """After an index, an edit, a removal and a rollback the dense legs find the same chunks, near enough the same scores."""
    folder = tmp_path / "folder"
    edited = {**FIRST, "cutter.md": "# Cutter\n\nThe Laser Cutter was made by Epilog. It has a new lens."}
    histories = [FIRST, edited, {name: text for name, text in edited.items() if name != "teams.md"}]
    async with opened(database, redis_url, tmp_path) as app:
        for texts in histories:
            await indexed(app, "there", folder, texts, QDRANT)
            await indexed(app, "here", folder, texts, CorpusSettings())
            await alike(app, "there", "here")
        (count,) = (await vectors(app, "there")).values()
        assert count == 2
        assert await app.rollback("there", 2) == await app.rollback("here", 2) == 4
        await alike(app, "there", "here")
        manifest = (await app.generations("there"))[0]["manifest"]
        assert manifest["dense_store"] == "qdrant" and manifest["stores"]["dense"]["rows"] == 3


async def test_a_corpus_moves_to_another_vector_store_and_nothing_is_left(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """A change of the store embeds anew; the old collection goes once no generation names it; deletion takes the rest."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path) as app:
        await indexed(app, "shop", folder, FIRST, QDRANT)
        (old,) = await vectors(app, "shop")
        await indexed(app, "shop", folder, FIRST, CorpusSettings())
        await app.services.pins.close(Deadline.after(5))
        assert old in (await app.gc("shop", keep=1))["collections"]
        assert await vectors(app, "shop") == {}
        await indexed(app, "shop", folder, FIRST, QDRANT)
        (new,) = await vectors(app, "shop")
        await app.delete_corpus("shop")
        store = app.services.stores.vectors["qdrant"]
        await store.ensure(new, 128, Deadline.after(10))
        assert await store.count(new, 100, (), Deadline.after(10)) == 0


async def test_dead_versions_of_vectors_are_reclaimed(tmp_path: Path, database: str, redis_url: str) -> None:
    """Ten edits of one file leave the versions of the retained generations only."""
    folder = tmp_path / "folder"
    async with opened(database, redis_url, tmp_path) as app:
        for number in range(5):
            await indexed(app, "shop", folder, {**FIRST, "n.md": f"Note {number} says something new."}, QDRANT)
        await app.services.pins.close(Deadline.after(5))
        await app.gc("shop", keep=1)
        (count,) = (await vectors(app, "shop")).values()
        assert count == 4
        result = await answers(app, "shop", ["Note 4 says something new."])
        assert result[0][0][0] == "n.md"


async def test_an_unknown_vector_store_is_refused_before_anything_is_enqueued(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """A process that was not told of Qdrant says which setting is missing."""
    async with opened(database, redis_url, tmp_path, qdrant_url=None) as app:
        with pytest.raises(ConfigurationError, match="SAPWOOD_QDRANT_URL"):
            await app.index("shop", [str(tmp_path)], settings=QDRANT)

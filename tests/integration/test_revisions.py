"""The manifest tells the truth about the revision of a repository, also where no document changed with it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from pydantic import SecretStr

from pipeline.deadline import Deadline
from schemas.events import Event, Planned, Progress
from schemas.manifest import Manifest
from schemas.query import QueryRequest, Strategy
from schemas.runs import RunState
from schemas.settings import CorpusSettings
from tests.git_world import commit, repository
from worker.app import Sapwood, open_sapwood
from worker.changes import apply_changes
from worker.settings import WorkerSettings

TEXTS = {
    "teams.md": "# Teams\n\nThe Workshop Team is part of the Workshop Department.\n",
    "cutter.md": "# Cutter\n\nThe Laser Cutter was made by Trotec.\n",
}
CODE = {"a.py": "from b import g\n\n\ndef f():\n    g()\n", "b.py": "def g():\n    return 1\n"}
OWN = {"generation", "run_id", "outcomes", "revisions", "void", "promoted_at"} | {
    "selected_chunks", "failed_chunks", "truncated_chunks", "contexts", "failed_contexts", "input_tokens", "output_tokens",
}  # fmt: skip


class Corpus:
    """A corpus of a repository, beside a folder."""

    def __init__(self, app: Sapwood, top: Path, settings: CorpusSettings) -> None:
        self.app = app
        self.top = top
        self.settings = settings
        self.location = f"git+file://{top}@main"

    async def commit(self, texts: dict[str, str] | None = None) -> str:
        return await to_thread.run_sync(commit, self.top, texts or {})

    async def index(self, *more: Path, settings: CorpusSettings | None = None) -> list[Event]:
        """Index to the end and return the events."""
        sources = [self.location, *map(str, more)]
        run = await self.app.index("c", sources, settings=settings or self.settings)
        info = await self.app.work(run.run_id)
        assert info.state is RunState.COMPLETED, info.error
        return await self.app.events(run.run_id)

    async def manifest(self) -> Manifest:
        found = await self.app.corpus("c")
        assert found.generation
        return await self.app.services.generations.manifest(found.corpus_id, found.generation, Deadline.after(10))

    async def body(self) -> list[str]:
        return [line async for line in self.app.export("c")][1:]

    async def verified(self, manifest: Manifest) -> bool:
        corpus = (await self.app.corpus("c")).corpus_id
        found = await self.app.services.generations.verify(corpus, manifest.generation, Deadline.after(10))
        return found == manifest.stores


def last(events: list[Event]) -> str:
    return str(events[-1].body.type)


def stages(events: list[Event]) -> list[str]:
    return [event.body.stage for event in events if isinstance(event.body, Progress)]


@dataclass(frozen=True)
class Place:
    """A repository of texts or of source code, and where the application lies that indexes it."""

    home: Path
    database: str
    redis_url: str
    texts: dict[str, str]
    settings: CorpusSettings
    edit: dict[str, str]

    @asynccontextmanager
    async def open(self, **more: Any) -> AsyncGenerator[Corpus, None]:
        urls = {"database_url": SecretStr(self.database), "redis_url": SecretStr(self.redis_url)}
        await to_thread.run_sync(repository, self.home / "repo", self.texts)
        async with open_sapwood(WorkerSettings(home=self.home / "home", **urls, **more)) as app:
            yield Corpus(app, self.home / "repo", self.settings)


@pytest.fixture
def texts(database: str, redis_url: str, tmp_path: Path) -> Place:
    edit = {"cutter.md": TEXTS["cutter.md"].replace("Trotec", "Epilog")}
    return Place(tmp_path, database, redis_url, TEXTS, CorpusSettings(), edit)


@pytest.fixture(params=["texts", "code"])
def place(request: pytest.FixtureRequest, texts: Place) -> Place:
    if request.param == "texts":
        return texts
    settings = apply_changes(CorpusSettings(), ["graph_indexing.build_code_graph=true"])
    return replace(texts, texts=CODE, settings=settings, edit={"b.py": "def g():\n    return 2\n"})


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder beside the repository."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/n.md").write_text("# Notes\n\nNothing.\n")
    return tmp_path / "notes"


async def touch(notes: Path, seconds: int) -> None:
    await to_thread.run_sync(os.utime, notes / "n.md", (seconds, seconds))


async def test_a_revision_that_moves_alone_is_published(place: Place) -> None:
    """The same rows under the next number, checked by counting them all; nothing is read, derived or clustered for it."""
    async with place.open() as corpus:
        await corpus.index()
        before, body = await corpus.manifest(), await corpus.body()
        moved = await corpus.commit()
        assert before.revisions != {corpus.location: moved}
        events = await corpus.index()
        after = await corpus.manifest()
        assert (last(events), after.generation, after.revisions) == ("promoted", 2, {corpus.location: moved})
        assert (after.outcomes, after.run_id) == ({"unchanged": 2}, events[0].run_id)
        assert after.model_dump(exclude=OWN) == before.model_dump(exclude=OWN)
        assert await corpus.body() == body and await corpus.verified(after)
        (planned,) = (event.body for event in events if isinstance(event.body, Planned))
        assert (planned.to_do, planned.batches, planned.unchanged) == (0, 0, 2)
        assert not {"graph", "communities"} & set(stages(events))

        again = await corpus.index()
        assert (last(again), (await corpus.manifest()).generation) == ("unchanged", 2)


async def test_an_edit_after_it_costs_what_it_costs(place: Place) -> None:
    """What the republished generation says of itself is enough to build upon; the bytes are those of a fresh index."""
    async with place.open() as corpus:
        await corpus.index()
        await corpus.commit()
        await corpus.index()
        moved = await corpus.commit(place.edit)
        assert last(await corpus.index()) == "promoted"
        made = await corpus.manifest()
        assert (made.generation, made.revisions) == (3, {corpus.location: moved})
        assert made.outcomes == {"indexed": 1, "unchanged": 1} and await corpus.verified(made)
        run = await corpus.app.index("fresh", [corpus.location], settings=corpus.settings)
        await corpus.app.work(run.run_id)
        assert [line async for line in corpus.app.export("fresh")][1:] == await corpus.body()


async def test_it_is_told_too_where_documents_had_to_be_read(place: Place, notes: Path) -> None:
    """A file with a new time stamp and the same text beside it: without a move nothing is published, with one it is."""
    async with place.open() as corpus:
        await corpus.index(notes)
        await touch(notes, 1_000)
        assert last(await corpus.index(notes)) == "unchanged"
        await touch(notes, 2_000)
        moved = await corpus.commit()
        events = await corpus.index(notes)
        made = await corpus.manifest()
        assert (last(events), made.revisions, made.outcomes) == ("promoted", {corpus.location: moved}, {"unchanged": 3})
        assert await corpus.verified(made) and not {"graph", "communities"} & set(stages(events))


async def test_after_a_rollback_communities_are_found_anew(place: Place) -> None:
    """By which settings those of the restored generation were found is not known, so they are not passed on as these."""
    async with place.open() as corpus:
        await corpus.index()
        body = await corpus.body()
        other = apply_changes(corpus.settings, ["graph_indexing.max_cluster_size=3"])
        await corpus.index(settings=other)
        await corpus.app.rollback("c", 1)
        moved = await corpus.commit()
        events = await corpus.index(settings=other)
        made = await corpus.manifest()
        assert (last(events), made.revisions, made.rolled_back_from) == ("promoted", {corpus.location: moved}, None)
        assert "communities" in stages(events)
        await corpus.index(settings=corpus.settings)
        assert await corpus.body() == body


async def test_settings_that_group_otherwise_are_obeyed(place: Place) -> None:
    """A move of the revision beside them does not hide them."""
    async with place.open() as corpus:
        await corpus.index()
        await corpus.commit()
        events = await corpus.index(settings=apply_changes(corpus.settings, ["graph_indexing.max_cluster_size=3"]))
        assert last(events) == "promoted" and "communities" in stages(events)


async def test_vectors_elsewhere_are_those_of_the_generation_before(texts: Place, notes: Path) -> None:
    """Numbers that were given up meanwhile stay void in the store that has them."""
    place = replace(texts, settings=apply_changes(CorpusSettings(), ["dense_storage.backend=qdrant"]))
    async with place.open(qdrant_url=str(texts.home / "qdrant")) as corpus:
        await corpus.index(notes)
        before = await corpus.manifest()
        await touch(notes, 1_000)
        assert last(await corpus.index(notes)) == "unchanged"
        moved = await corpus.commit()
        assert last(await corpus.index(notes)) == "promoted"
        made = await corpus.manifest()
        assert (made.generation, made.void, made.revisions) == (3, (2,), {corpus.location: moved})
        assert (made.collection, made.stores) == (before.collection, before.stores)
        request = QueryRequest(text="Who made the cutter?", strategy=Strategy.SEMANTIC, cache=False, deadline=30)
        result = await corpus.app.query("c", request)
        assert result.complete and {hit.document for hit in result.hits} == {"n.md", *TEXTS}

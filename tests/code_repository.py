"""A folder of source code, and an application that indexes it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from anyio import to_thread
from pydantic import SecretStr

from schemas.runs import RunInfo, RunState
from schemas.settings import CorpusSettings
from worker.app import Sapwood, open_sapwood
from worker.changes import apply_changes
from worker.settings import WorkerSettings

CODE = apply_changes(CorpusSettings(), ["graph_indexing.build_code_graph=true"])
Texts = Mapping[str, str | bytes]


def lay_out(folder: Path, texts: Texts) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.unlink()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


class Repository:
    """A folder of source code and the application that indexes it."""

    def __init__(self, app: Sapwood, folder: Path) -> None:
        self.app = app
        self.folder = folder

    async def index(self, texts: Texts, corpus: str = "code", settings: CorpusSettings = CODE) -> RunInfo:
        """Index exactly these files."""
        await to_thread.run_sync(lay_out, self.folder, texts)
        run = await self.app.index(corpus, [str(self.folder)], settings=settings)
        info = await self.app.work(run.run_id)
        assert info.state is RunState.COMPLETED, info.error
        return info

    async def lines(self, kind: str, corpus: str = "code") -> list[dict[str, Any]]:
        """Return the lines of one kind of an export."""
        found = [orjson.loads(line) async for line in self.app.export(corpus)]
        return [line for line in found if line["kind"] == kind]

    async def body(self, corpus: str = "code") -> list[str]:
        """Return an export without its header."""
        return [line async for line in self.app.export(corpus)][1:]

    async def edges(self, *kinds: str, corpus: str = "code") -> list[tuple[str, str, str]]:
        """Return the relations of these kinds by the ids of their ends, in order."""
        names = {one["entity_no"]: one["entity_id"] for one in await self.lines("entities", corpus)}
        return sorted(
            (names[one["source_no"]], one["type"], names[one["target_no"]])
            for one in await self.lines("relations", corpus)
            if one["type"] in kinds
        )

    async def entities(self, corpus: str = "code") -> dict[str, str]:
        """Return the types of all entities by id."""
        return {one["entity_id"]: one["type"] for one in await self.lines("entities", corpus)}

    async def report(self, info: RunInfo) -> dict[str, Any]:
        """Return what people are shown of a run."""
        return await self.app.index_summary(info)


@dataclass(frozen=True)
class Place:
    """Where a test's application and files lie."""

    database: str
    redis_url: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Repository, None]:
        """Open the application."""
        settings = WorkerSettings(
            home=self.folder / "home",
            database_url=SecretStr(self.database),
            redis_url=SecretStr(self.redis_url),
            **self.settings,
        )
        async with open_sapwood(settings) as app:
            yield Repository(app, self.folder / "repository")

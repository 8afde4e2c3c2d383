"""What tests of declared knowledge share: the settings, the folder of a workshop, and how an action is looked at."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from pipeline.declare.keys import Evidence, read
from pipeline.declare.scope import RetrievalContext
from pipeline.testing.openai_stub import OpenAIStub
from schemas.settings import ChunkSettings, CorpusSettings
from worker.app import Sapwood, open_sapwood
from worker.grounded import Grounded, open_grounded
from worker.settings import WorkerSettings

KEY = "sk-very-secret-0123456789"
CHATS = "/v1/chat/completions"
KILN = "The kiln reaches twelve hundred degrees and stands in room four."
FEES = "Members pay ten pounds a month for the lathe."
SETTINGS = CorpusSettings(chunk=ChunkSettings(max_chars=200))


def settings(home: Path, database: str, redis_url: str, stub: OpenAIStub | None = None, **more: Any) -> WorkerSettings:
    """Return the settings of a process on these servers, with a model where there is one."""
    model = {"openai_base_url": stub.url, "openai_api_key": SecretStr(KEY), "openai_model": "m"} if stub else {}
    return WorkerSettings.model_validate(
        {"home": home, "database_url": SecretStr(database), "redis_url": SecretStr(redis_url), **model, **more}
    )


@asynccontextmanager
async def opened(given: WorkerSettings, **more: Any) -> AsyncGenerator[tuple[Sapwood, Grounded], None]:
    """Open all of it in the task of the test, in which its scopes have to end too."""
    async with open_sapwood(given) as app, open_grounded(app, **({"settings": SETTINGS} | more)) as grounded:
        yield app, grounded


def workshop(folder: Path) -> Path:
    """Return a folder with the two documents of a workshop."""
    folder.mkdir()
    (folder / "kiln.md").write_text(f"---\ntier: approved\n---\n# Kiln\n\n{KILN}\n")
    (folder / "fees.md").write_text(f"---\ntier: draft\n---\n# Fees\n\n{FEES}\n")
    return folder


async def look(
    grounded: Grounded, owner: object, question: str, name: str = "look", scope: RetrievalContext | None = None
) -> Evidence:
    """Return what grounds an action that returns the context it gets."""
    found: Mapping[str, object] = await grounded.call(owner, name, {"question": question}, {}, scope)
    evidence = read(found)
    assert evidence is not None
    return evidence

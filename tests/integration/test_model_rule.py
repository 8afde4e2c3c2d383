"""Whoever may set a corpus's settings over HTTP may not have any folder of a worker read as a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import Refused
from schemas.settings import CorpusSettings
from tests.gateway_driver import running, settings
from worker.app import open_sapwood
from worker.changes import apply_changes


def asking(model: str) -> dict[str, dict[str, str]]:
    return {"embedding": {"provider": "onnx", "model": model}}


async def test_with_keys_every_way_in_is_closed(tmp_path: Path, database: str, redis_url: str) -> None:
    """A corpus that is made, its settings, and those of a run; what lies below the root is let in."""
    given = settings(tmp_path, database, redis_url, gateway_auth="keys", models_root=tmp_path / "models")
    async with running(given) as gateway:
        await gateway.ok("POST", "/v1/corpora", 201, json={"name": "c"})
        for order in (asking("/etc"), asking("../x"), asking(str(tmp_path / "other"))):
            ways = (
                ("POST", "/v1/corpora", {"name": "d", "settings": order}),
                ("PUT", "/v1/corpora/c/settings", {"settings": order}),
                ("POST", "/v1/corpora/c/index-runs", {"settings": order, "uploads": True}),
            )
            for method, path, body in ways:
                problem = await gateway.ok(method, path, 422, json=body)
                assert "model rule" in problem["detail"] and str(tmp_path) not in problem["detail"]
        await gateway.ok("GET", "/v1/corpora/d", 404)
        await gateway.ok("PUT", "/v1/corpora/c/settings", json={"settings": asking("minilm")})


async def test_without_keys_a_database_of_a_server_asks_for_the_root(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """However the setting got there: no model is opened before the root is set, nor beside it."""
    chosen = apply_changes(CorpusSettings(), ["embedding.provider=onnx", f"embedding.model={tmp_path}"])
    for more, said in (({}, "which is not set$"), ({"models_root": tmp_path / "models"}, "below SAPWOOD_MODELS_ROOT$")):
        async with open_sapwood(settings(tmp_path / "home", database, redis_url, **more)) as app:
            with pytest.raises(Refused, match=said):
                await app.index("c", ["README.md"], settings=chosen)
            with pytest.raises(Refused, match=said):
                app.services.models.embedding(chosen.embedding)

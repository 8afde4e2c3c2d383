"""The doctor: each finding names its cure, and no finding holds a secret."""

from __future__ import annotations

import json
import re
import secrets
from importlib.util import find_spec
from pathlib import Path

import anyio
import anyio.to_thread
import asyncpg
import pytest
from redis.asyncio import Redis

from pipeline.adapters.postgres_corpora import PostgresCorpora
from pipeline.adapters.postgres_pool import open_pool
from pipeline.deadline import Deadline
from schemas.settings import CorpusSettings
from tests.neo4j_server import Neo4jServer
from worker import doctor, embedded
from worker.changes import apply_changes
from worker.doctor import Check
from worker.embedded import Endpoints
from worker.settings import load

SECRET = "correct-horse-battery"


async def diagnose(home: Path, database: str, redis: str, **more: str) -> dict[str, Check]:
    given = {"SAPWOOD_HOME": str(home), "SAPWOOD_DATABASE_URL": database, "SAPWOOD_REDIS_URL": redis}
    settings = load(given | more)
    return {check.name: check for check in await doctor.diagnose(settings)}


async def test_a_healthy_installation_has_nothing_to_mend(tmp_path: Path, database: str, redis_url: str) -> None:
    found = await diagnose(tmp_path, database, redis_url)
    assert [check for check in found.values() if not check.ok] == []
    assert found["database"].detail == "PostgreSQL 18"
    assert list(found)[:3] == ["python", "extras", "environment"]


async def test_a_database_without_migrations_is_told_to_migrate(
    tmp_path: Path, servers: Endpoints, redis_url: str
) -> None:
    found = await diagnose(tmp_path, servers.database_url, redis_url)
    assert not found["migrations"].ok
    assert "sapwood migrate" in found["migrations"].cure


async def test_a_database_from_the_future_asks_for_an_update(tmp_path: Path, database: str, redis_url: str) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("insert into sapwood.schema_migration (version, checksum) values (9999, '')")
    await connection.close()
    found = await diagnose(tmp_path, database, redis_url)
    assert not found["migrations"].ok
    assert "Update sapwood" in found["migrations"].cure


async def test_servers_that_do_not_answer_are_named_by_setting_and_their_passwords_stay_hidden(tmp_path: Path) -> None:
    found = await diagnose(tmp_path, f"postgresql://me:{SECRET}@127.0.0.1:1/x", f"redis://:{SECRET}@127.0.0.1:1")
    assert not found["database"].ok
    assert not found["redis"].ok
    assert "SAPWOOD_DATABASE_URL" in found["database"].cure
    assert "SAPWOOD_REDIS_URL" in found["redis"].cure
    assert SECRET not in repr(found)


async def test_a_cache_that_may_evict_is_found(tmp_path: Path, database: str, redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        await client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = await diagnose(tmp_path, database, redis_url)
        finally:
            await client.config_set("maxmemory-policy", "noeviction")
    assert not found["eviction"].ok
    assert "noeviction" in found["eviction"].cure


async def test_a_home_that_cannot_be_used_is_one_finding_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = {check.name: check for check in await doctor.diagnose(load({"SAPWOOD_HOME": str(tmp_path / "file")}))}
    assert not found["embedded"].ok
    assert "SAPWOOD_HOME" in found["embedded"].detail
    assert found["python"].ok


async def test_a_misspelt_variable_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_LEASE_SECOND", "3")
    found = await diagnose(tmp_path, "postgresql://127.0.0.1:1/x", "redis://127.0.0.1:1")
    assert "SAPWOOD_LEASE_SECONDS" in found["environment"].cure


async def test_the_graph_store_is_looked_at_where_there_is_one(
    tmp_path: Path, database: str, redis_url: str, neo4j_server: Neo4jServer
) -> None:
    """Its versions where it answers; without it nothing else is wrong, and a bad login shows no password."""
    assert "neo4j" not in await diagnose(tmp_path, database, redis_url)
    where = {"SAPWOOD_GRAPH_NEO4J_URI": neo4j_server.uri, "SAPWOOD_GRAPH_NEO4J_USER": neo4j_server.user}
    good = await diagnose(tmp_path, database, redis_url, **where, SAPWOOD_GRAPH_NEO4J_PASSWORD=neo4j_server.password)
    assert good["neo4j"].ok
    bad = await diagnose(tmp_path, database, redis_url, **where, SAPWOOD_GRAPH_NEO4J_PASSWORD=SECRET)
    assert not bad["neo4j"].ok
    assert "SAPWOOD_GRAPH_NEO4J_PASSWORD" in bad["neo4j"].detail and SECRET not in str(bad)


async def test_a_login_that_may_not_act_for_a_tenant_is_told_the_grant_it_lacks(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """The grant that is named mends it, and so do the statements for a table whose policies were switched off."""
    admin, name = await asyncpg.connect(database), f"login_{secrets.token_hex(4)}"
    try:
        await admin.execute(f"create role {name} login; grant usage on schema sapwood to {name}")
        await admin.execute(f"grant select on all tables in schema sapwood to {name}")
        own = re.sub(r"//.*?@", f"//{name}@", database)
        found = await diagnose(tmp_path, own, redis_url)
        assert found["row security"].ok and not found["tenant role"].ok
        grant = re.search(r"`(.*)`", found["tenant role"].cure)
        assert grant and name in grant[1]
        await admin.execute(grant[1])
        assert (await diagnose(tmp_path, own, redis_url))["tenant role"].ok
        await admin.execute("alter table sapwood.chunk disable row level security")
        await admin.execute("alter table sapwood.pin no force row level security")
        loose = (await diagnose(tmp_path, own, redis_url))["row security"]
        assert (loose.ok, loose.detail) == (False, "not behind its policies: chunk, pin")
        cure = re.search(r"`(.*)`", loose.cure)
        assert cure
        await admin.execute(cure[1])
        assert (await diagnose(tmp_path, own, redis_url))["row security"].ok
    finally:
        await admin.execute(f"drop owned by {name} cascade; drop role {name}")
        await admin.close()


async def test_git_is_a_matter_of_repositories_alone(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version where it is there; without it, or with one that is too old to fetch safely, nothing else is wrong."""
    assert re.fullmatch(r"2\.\d+(\.\d+)*", (await diagnose(tmp_path, database, redis_url))["git"].detail)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = (await diagnose(tmp_path, database, redis_url))["git"]
    assert (found.ok, found.detail) == (True, "not installed") and "install git 2.37 or newer" in found.cure
    fake = anyio.Path(tmp_path / "git")
    await fake.write_text("#!/bin/sh\necho 'git version 2.20.1 (of somebody)'\n")
    await fake.chmod(0o755)
    found = (await diagnose(tmp_path, database, redis_url))["git"]
    assert found.ok and found.detail.startswith("2.20.1, ") and "Only for repositories" in found.cure


async def test_extras_say_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are missing, with what installs them; half of one is missing."""
    there = {"onnxruntime", "mcp"}
    monkeypatch.setattr(doctor, "find_spec", lambda name: name if name in there else None)
    (check,) = doctor._extras()
    assert check.ok and check.detail == "installed: mcp"
    assert "onnx (embeddings by a model in a folder)" in check.cure
    assert check.cure.endswith("pip install 'sapwood[local,onnx,tokens,nlp,neo4j,qdrant,otel]'")


async def test_files_of_models_are_looked_at_where_they_are_named(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """The tokenizer, the folder of models, and what corpora ask for there."""
    found = await diagnose(tmp_path, database, redis_url)
    assert not {"tokenizer", "models", "onnx model"} & found.keys()
    root = anyio.Path(tmp_path / "models")
    where = {"SAPWOOD_TOKENIZER_FILE": str(tmp_path / "t.json"), "SAPWOOD_MODELS_ROOT": str(root)}
    found = await diagnose(tmp_path, database, redis_url, **where)
    assert not found["tokenizer"].ok and "SAPWOOD_TOKENIZER_FILE" in found["tokenizer"].cure
    assert not found["models"].ok and "SAPWOOD_MODELS_ROOT" in found["models"].cure

    await (root / "small").mkdir(parents=True)
    await (root / "small/model.onnx").write_bytes(b"x")
    words = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
        "added_tokens": [],
    }
    await anyio.Path(tmp_path / "t.json").write_text(json.dumps(words))
    await corpus_with(database, "one", "small")
    await corpus_with(database, "two", "/etc")
    found = await diagnose(tmp_path, database, redis_url, **where)
    assert found["tokenizer"].ok and found["models"].detail.endswith(": small")
    asked = await all_of("onnx model", tmp_path, database, redis_url, **where)
    assert [one.ok for one in asked] == [False, False]
    assert "/etc: model rule" in asked[0].detail
    if find_spec("onnxruntime") is None:  # then that is all that can be said of a model
        assert "pip install sapwood[onnx]" in asked[1].detail
        return
    assert "tokenizer.json cannot be read" in asked[1].detail
    await (root / "small/tokenizer.json").write_text("{}")
    asked = await all_of("onnx model", tmp_path, database, redis_url, **where)
    assert asked[1].ok and asked[1].detail.startswith("small: onnx-1/") and not asked[1].cure


async def test_fetched_repositories_are_counted(tmp_path: Path, database: str, redis_url: str) -> None:
    assert "repositories" not in await diagnose(tmp_path, database, redis_url)
    folder = anyio.Path(tmp_path / "git" / f"{'0' * 32}.git")
    await (folder / "objects").mkdir(parents=True)
    await (folder / "HEAD").write_text("x" * (3 << 20))
    found = (await diagnose(tmp_path, database, redis_url, SAPWOOD_GIT_CACHE_BYTES=str(5 << 20)))["repositories"]
    assert found.ok and found.detail == f"1 fetched, 3.0 MiB of at most 5.0 MiB, in {tmp_path / 'git'}"


async def corpus_with(database: str, name: str, model: str) -> None:
    async with open_pool(database) as pool:
        settings = apply_changes(CorpusSettings(), ["embedding.provider=onnx", f"embedding.model={model}"])
        await PostgresCorpora(pool).create("default", name, settings, Deadline.after(10))


async def all_of(name: str, home: Path, database: str, redis: str, **more: str) -> list[Check]:
    given = {"SAPWOOD_HOME": str(home), "SAPWOOD_DATABASE_URL": database, "SAPWOOD_REDIS_URL": redis}
    return [check for check in await doctor.diagnose(load(given | more)) if check.name == name]


async def test_a_data_folder_that_others_may_look_into_is_named_with_its_cure(tmp_path: Path) -> None:
    """And the doctor does not send to the doctor."""
    home = tmp_path / "home"

    def spoil() -> None:
        embedded.up(home)
        embedded.down(home)
        (file,) = home.rglob("postgresql.conf")
        file.parent.chmod(0o755)

    try:
        await anyio.to_thread.run_sync(spoil)
        found = {check.name: check for check in await doctor.diagnose(load({"SAPWOOD_HOME": str(home)}))}
    finally:
        await anyio.to_thread.run_sync(embedded.down, home)
    assert not found["embedded"].ok and "`chmod 0700`" in found["embedded"].detail
    assert "sapwood doctor" not in found["embedded"].detail

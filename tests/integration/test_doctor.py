"""The doctor: each finding names its cure, and no finding holds a secret."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.neo4j_server import Neo4jServer
from worker import doctor
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

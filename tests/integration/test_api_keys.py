"""Keys and tenants in PostgreSQL, and the gateway's view of them by a clock that the test holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import anyio
import asyncpg
import pytest
from pydantic import SecretStr

from pipeline.adapters import postgres_migrations
from pipeline.adapters.postgres_keys import PostgresKeys
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound, StoreRefused, Unauthorized
from pipeline.tenancy import NOBODY, act_for, apart
from schemas.keys import ApiKey, KeyInfo, Scope
from worker.app import open_sapwood
from worker.gateway.access import Principal
from worker.gateway.keys import REMEMBER, KeyAuthenticator
from worker.settings import WorkerSettings

TENANTS = ("red", "green", "blue")


def soon() -> Deadline:
    return Deadline.after(10)


@dataclass
class Clock:
    """Says the time that the test wants."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Office:
    """Keys in a database, and a gateway's view of them."""

    pool: Pool
    keys: PostgresKeys
    clock: Clock
    authenticator: KeyAuthenticator

    async def key(self, tenant: str = "default", *scopes: str, seconds: float | None = None) -> tuple[ApiKey, KeyInfo]:
        key = ApiKey.new()
        info = await self.keys.add(
            key.key_id,
            key.hash(),
            tenant=tenant,
            name="a test's",
            scopes=scopes or ("query",),
            seconds=seconds,
            deadline=soon(),
        )
        return key, info

    async def admits(self, key: ApiKey) -> bool:
        try:
            await self.principal(key)
        except Unauthorized as error:
            assert str(error) == "No valid key was given."
            return False
        return True

    async def principal(self, key: ApiKey) -> Principal:
        with apart():
            act_for(NOBODY)  # as a request does, whose tenant is not known before
            return await self.authenticator.principal(f"Bearer {key.reveal()}")

    async def execute(self, statement: str, *values: object) -> str:
        async with self.pool.connection(soon()) as tx:
            return await tx.execute(statement, *values)


@asynccontextmanager
async def opened(database: str) -> AsyncGenerator[Office, None]:
    async with open_pool(database, 4) as pool:
        keys, clock = PostgresKeys(pool), Clock()
        yield Office(pool, keys, clock, KeyAuthenticator(keys, clock))


async def test_a_key_says_who_asks_until_it_is_revoked(database: str) -> None:
    """Until the seconds are over in which a process remembers it, a revoked key is taken; then it is not."""
    async with opened(database) as office:
        await office.keys.create_tenant("acme", soon())
        key, info = await office.key("acme", "index", "query")
        found = await office.principal(key)
        assert (found.tenant, found.key_id, found.scopes) == (
            "acme",
            info.key_id,
            frozenset({Scope.INDEX, Scope.QUERY}),
        )
        ended = await office.keys.revoke(key.key_id, "acme", soon())
        assert ended.ended and ended.revoked_at is not None
        assert await office.admits(key), "remembered"
        office.clock.now += REMEMBER
        assert not await office.admits(key)
        assert await office.keys.revoke(key.key_id, None, soon()) == ended, "the first time stays"


async def test_unknown_wrong_expired_and_revoked_keys_are_refused_alike(database: str) -> None:
    """`admits` compares the words; expiry is by the database's clock."""
    async with opened(database) as office:
        good, _ = await office.key(seconds=3600)
        expired, _ = await office.key(seconds=3600)
        await office.execute(
            "update api_key set expires_at = clock_timestamp() - interval '1 ms' where key_id = $1", expired.key_id
        )
        revoked, _ = await office.key()
        await office.keys.revoke(revoked.key_id, None, soon())
        for key in (ApiKey.new(), ApiKey(good.key_id, expired.secret), expired, revoked):
            assert not await office.admits(key)
        assert await office.admits(good)
        states = {one.key_id: one.ended for one in await office.keys.listing("default", soon())}
        assert states == {good.key_id: False, expired.key_id: True, revoked.key_id: True}


async def test_a_key_with_an_end_has_one(database: str) -> None:
    async with opened(database) as office:
        _, info = await office.key(seconds=90 * 86400)
        assert info.expires_at is not None
        life = datetime.fromisoformat(info.expires_at) - datetime.fromisoformat(info.created_at)
        assert life.days in (89, 90)
        assert (await office.key())[1].expires_at is None


async def test_the_last_use_is_noted_at_most_once_a_minute(database: str) -> None:
    async with opened(database) as office:
        key, info = await office.key()
        assert info.last_used_at is None
        assert await office.admits(key)
        first = (await office.keys.listing(None, soon()))[0].last_used_at
        assert first is not None
        other = KeyAuthenticator(office.keys, office.clock)  # another process: within the minute it changes nothing
        with apart():
            await other.principal(f"Bearer {key.reveal()}")
        assert (await office.keys.listing(None, soon()))[0].last_used_at == first
        await office.execute("update api_key set last_used_at = last_used_at - interval '61 s'")
        before = (await office.keys.listing(None, soon()))[0].last_used_at
        assert await office.admits(key)
        assert (await office.keys.listing(None, soon()))[0].last_used_at == before, "noted by this process already"
        office.clock.now += 60
        assert await office.admits(key)
        assert (await office.keys.listing(None, soon()))[0].last_used_at not in (before, first)


async def test_the_database_holds_the_hash_alone(database: str) -> None:
    """No row of any table has the secret; the public part is there, which shows that the search finds things."""
    async with opened(database) as office:
        key, _ = await office.key()
        assert await office.admits(key)
        async with office.pool.connection(soon()) as tx:
            tables = await tx.fetch(
                "select relname from pg_class where relkind = 'r' and relnamespace = 'sapwood'::regnamespace"
            )
            rows = [await tx.fetch(f"select to_jsonb(t)::text as row from {table['relname']} t") for table in tables]
        dump = "".join(row["row"] for table in rows for row in table)
        assert key.key_id in dump and key.hash().hex() in dump
        assert key.secret not in dump


async def test_keys_and_revocations_stay_within_their_tenant(database: str) -> None:
    async with opened(database) as office:
        for tenant in TENANTS:
            await office.keys.create_tenant(tenant, soon())
        key, _ = await office.key("red")
        await office.key("green")
        assert [one.key_id for one in await office.keys.listing("red", soon())] == [key.key_id]
        assert [one.tenant for one in await office.keys.listing(None, soon())] == ["green", "red"]
        for tenant in ("green", "default", "nobody"):
            with pytest.raises(NotFound):
                await office.keys.revoke(key.key_id, tenant, soon())
        assert await office.admits(key)
        with pytest.raises(NotFound, match="no tenant 'nobody'"):
            await office.key("nobody")


async def test_tenants_are_made_once_and_have_proper_names(database: str) -> None:
    async with opened(database) as office:
        made = await office.keys.create_tenant("acme", soon())
        await office.key("acme")
        again = await office.keys.create_tenant("acme", soon())
        assert (again.created_at, again.keys, made.keys) == (made.created_at, 1, 0)
        assert [one.name for one in await office.keys.tenants(soon())] == ["acme", "default"]
        assert (await office.keys.tenant("default", soon())).limits == {}
        for name in ("", "-x", "a b", "a/b", "x" * 101, "é", "a\n", "a\0"):
            with pytest.raises(InvalidRequest):
                await office.keys.create_tenant(name, soon())
        with pytest.raises(NotFound):
            await office.keys.tenant("nobody", soon())


async def test_a_corpus_belongs_to_a_tenant_that_exists(tmp_path: Path, database: str, redis_url: str) -> None:
    """The application says so before it writes; the database would refuse it all the same."""
    settings = WorkerSettings(home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(settings, "nobody") as app:
        for call in (app.create_corpus("c"), app.index("c", [str(tmp_path)])):
            with pytest.raises(NotFound, match="no tenant 'nobody'"):
                await call
        with pytest.raises(StoreRefused, match="23503"):
            async with app.services.pool.connection(soon()) as tx:
                await tx.execute("insert into corpus (tenant, name) values ('nobody', 'c')")
        await app.services.keys.create_tenant("nobody", soon())
        assert (await app.create_corpus("c")).tenant == "nobody"


async def test_tenants_of_corpora_that_are_there_already_become_tenants(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those with names that nobody could give today."""
    shipped = await anyio.to_thread.run_sync(postgres_migrations.available)
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("drop schema sapwood cascade")
        monkeypatch.setattr(postgres_migrations, "available", lambda: shipped[:3])
        await postgres_migrations.migrate(database)
        await connection.execute(
            "insert into sapwood.corpus (tenant, name) values ('Old & odd', 'a'), ('Old & odd', 'b')"
        )
        monkeypatch.setattr(postgres_migrations, "available", lambda: shipped)
        assert (await postgres_migrations.migrate(database))[0] == "0004_keys.sql"
        found = await connection.fetch("select name from sapwood.tenant")
        assert {row["name"] for row in found} == {"default", "Old & odd"}
    finally:
        await connection.close()


def settings(tmp_path: Path, database: str, redis_url: str) -> WorkerSettings:
    return WorkerSettings(home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url))

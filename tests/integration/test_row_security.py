"""Row-level security: below every statement, what is done for a tenant reaches the rows of that tenant alone."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest

from pipeline.adapters.postgres_migrations import migrate
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, StoreRefused
from pipeline.tenancy import EVERYBODY, act_for, acting_for, apart

SHARED = {"schema_migration", "buried"}
"""Tables that belong to no tenant: the numbers of the migrations, and what is left of corpora that are gone."""

UNSECURED = """
select c.relname from pg_class c
where c.relnamespace = 'sapwood'::regnamespace and c.relkind in ('r', 'p', 'm', 'f') and not (
    c.relrowsecurity and c.relforcerowsecurity
    and exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'of_tenant'
        and p.polroles = array['sapwood_tenant'::regrole::oid] and p.polqual is not null and p.polwithcheck is not null)
    and not exists (select from pg_policy p where p.polrelid = c.oid and p.polname <> 'of_tenant'
        and (p.polroles && array[0::oid, 'sapwood_tenant'::regrole::oid]))
)
"""


def soon() -> Deadline:
    return Deadline.after(10)


@asynccontextmanager
async def opened(database: str, size: int = 2) -> AsyncGenerator[Pool, None]:
    """Open a pool on a database in which `red` and `green` have a corpus `shared` each, with a dense table."""
    async with open_pool(database, size) as pool:
        async with pool.connection(soon()) as tx:
            await tx.execute("insert into tenant (name) values ('red'), ('green')")
            await tx.execute("insert into corpus (tenant, name) values ('red', 'shared'), ('green', 'shared')")
            await tx.execute(
                "select ensure_collection(corpus_id, format('dense_%s_0123456789ab', corpus_id), 'e', 2) from corpus"
            )
        yield pool


async def tenants(pool: Pool) -> list[str]:
    async with pool.connection(soon()) as tx:
        return [row["tenant"] for row in await tx.fetch("select tenant from corpus order by tenant")]


async def test_no_table_is_without_its_policies(database: str) -> None:
    """A new table is listed here until it says whose its rows are; so is one whose policy was loosened."""
    async with opened(database) as pool, pool.connection(soon()) as tx:

        async def unsecured() -> set[str]:
            return {row["relname"] for row in await tx.fetch(UNSECURED)}

        assert await unsecured() == SHARED
        await tx.execute("create table forgotten (corpus_id int not null)")
        await tx.execute("create policy loose on event using (true)")
        await tx.execute("alter table pin no force row level security")
        assert await unsecured() == SHARED | {"forgotten", "event", "pin"}


async def test_a_tenant_sees_its_own_and_everybody_all(database: str) -> None:
    """The same statement, over one pooled connection, time after time."""
    async with opened(database, size=1) as pool:
        for _ in range(3):
            with apart():
                act_for("red")
                assert await tenants(pool) == ["red"]
                act_for("green")
                assert await tenants(pool) == ["green"]
                act_for("nobody")
                assert await tenants(pool) == []
            assert acting_for() == EVERYBODY
            assert await tenants(pool) == ["green", "red"]


async def test_without_a_tenant_the_role_sees_nothing(database: str) -> None:
    async with opened(database) as pool, pool.transaction(soon()) as tx:
        await tx.execute("set local role sapwood_tenant")
        for table in ("corpus", "tenant", "collection"):
            assert await tx.fetchval(f"select count(*) from {table}") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "insert into corpus (tenant, name) values ('green', 'planted')",
        "update corpus set tenant = 'green'",
        "insert into pin (corpus_id, number, holder, lease_until) values ($1, 1, 'h', now())",
        "insert into run (run_id, root_id, corpus_id, kind) values ('r', 'r', $1, 'query')",
        "select ensure_collection($1, format('dense_%s_ffffffffffff', $1::int), 'e', 2)",
        "select drop_collections($1)",
        "select drop_collection($1, format('dense_%s_0123456789ab', $1::int))",
        "drop table event",
        "alter table corpus disable row level security",
        "select * from schema_migration",
    ],
)
async def test_a_tenant_can_write_nothing_foreign(database: str, statement: str) -> None:
    """The database refuses what no statement of ours asks for."""
    async with opened(database) as pool:
        async with pool.connection(soon()) as tx:
            green = await tx.fetchval("select corpus_id from corpus where tenant = 'green'")
        values = [green] if "$1" in statement else []
        with apart():
            act_for("red")
            with pytest.raises(StoreRefused, match="42501"):
                async with pool.connection(soon()) as tx:
                    await tx.execute(statement, *values)


async def test_a_tenant_changes_no_foreign_row_and_drops_its_own_table(database: str) -> None:
    async with opened(database) as pool:
        with apart():
            act_for("red")
            async with pool.transaction(soon()) as tx:
                assert await tx.execute("update corpus set settings = '{}'") == "UPDATE 1"
                assert await tx.execute("delete from collection where corpus_id <> (select corpus_id from corpus)") == (
                    "DELETE 0"
                )
                await tx.execute("select drop_collections(corpus_id) from corpus")
                assert await tx.execute("delete from corpus") == "DELETE 1"
        assert await tenants(pool) == ["green"]
        async with pool.connection(soon()) as tx:
            left = await tx.fetchval("select count(*) from pg_class where relname like 'dense%ab' and relkind = 'r'")
        assert left == 1


async def test_many_tenants_over_few_connections_never_see_each_other(database: str) -> None:
    """Tasks of both and of nobody in particular take turns, some are cancelled in the middle, some fail."""
    async with opened(database, size=3) as pool:
        seen = {"red": 0, "green": 0, EVERYBODY: 0}

        async def work(tenant: str, number: int) -> None:
            act_for(tenant)
            for turn in range(20):
                with anyio.move_on_after(0.002 * ((number + turn) % 3)) as scope:
                    async with pool.transaction(soon()) as tx:
                        await tx.fetchval("select pg_sleep(0.001)")
                if scope.cancelled_caught and turn % 5 == 0:
                    with pytest.raises(StoreRefused):
                        async with pool.connection(soon()) as tx:
                            await tx.fetchval("select 1 / 0")
                assert await tenants(pool) == ([tenant] if tenant else ["green", "red"])
                seen[tenant] += 1

        async with anyio.create_task_group() as group:
            for number in range(9):
                group.start_soon(work, list(seen)[number % 3], number)
        assert acting_for() == EVERYBODY
        assert set(seen.values()) == {60}


@pytest.mark.parametrize("granted", [True, False])
async def test_an_owner_who_is_no_superuser_works_for_all_and_for_one(database: str, granted: bool) -> None:
    """As on a managed server: somebody who may has made the role and granted it to the owner; without that, no migration."""
    admin = await asyncpg.connect(database)
    name = f"owner_{secrets.token_hex(4)}"
    try:
        await admin.execute("drop schema sapwood cascade")
        await admin.execute(
            f"create role {name} login; grant create on database {urlsplit(database).path[1:]} to {name}"
        )
        if granted:
            await admin.execute(f"grant sapwood_tenant to {name} with inherit false, set true")
        own = re.sub(r"//.*?@", f"//{name}@", database)
        if not granted:
            with pytest.raises(ConfigurationError, match=r"0005_row_security\.sql \(42501\)"):
                await migrate(own)
            return
        await migrate(own)
        async with opened(own) as pool:
            assert await tenants(pool) == ["green", "red"]
            with apart():
                act_for("red")
                assert await tenants(pool) == ["red"]
                async with pool.transaction(soon()) as tx:
                    await tx.execute("select drop_collections(corpus_id) from corpus")
                    assert await tx.execute("delete from corpus") == "DELETE 1"
            assert await tenants(pool) == ["green"]
            async with pool.connection(soon()) as tx:
                await tx.execute(
                    "insert into run (run_id, root_id, corpus_id, kind) select 'r', 'r', corpus_id, 'q' from corpus"
                )
                assert await tx.execute("delete from corpus") == "DELETE 1"
                assert await tx.fetchval("select count(*) from run") == 0, "a cascade reaches behind the wall"
    finally:
        await admin.execute(f"drop owned by {name} cascade; drop role {name}")
        await admin.close()

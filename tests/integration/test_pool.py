"""The pool: deadlines hold against a frozen server, cancellations leak nothing, errors are ours."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import anyio
import asyncpg
import psutil
import pytest

from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, Duplicate, SapwoodError, StoreRefused, StoreUnavailable
from worker import embedded

SIZE = 4
LEFT_OPEN = "select count(*) from pg_stat_activity where application_name = 'sapwood' and state <> 'idle'"


@contextmanager
def frozen(home: Path) -> Iterator[None]:
    """Stop the postmaster of this home, then its children, by pid; let all go on at the end."""
    pid = next(server.pid for server in embedded.status(home) if server.name == "postgres")
    processes = [psutil.Process(pid)]
    processes[0].send_signal(SIGSTOP)
    try:
        for child in processes[0].children(recursive=True):
            child.send_signal(SIGSTOP)
            processes.append(child)
        yield
    finally:
        for process in reversed(processes):
            process.send_signal(SIGCONT)


async def all_slots_work(pool: Pool) -> None:
    """As many transactions as the pool has connections are open at the same time."""
    together = anyio.Event()
    inside = 0

    async def one() -> None:
        nonlocal inside
        async with pool.transaction(Deadline.after(10)) as tx:
            await tx.fetchval("select 1")
            inside += 1
            if inside == SIZE:
                together.set()
            await together.wait()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(SIZE):
                group.start_soon(one)


async def test_a_frozen_server_holds_nobody_and_costs_no_connection(tmp_path: Path) -> None:
    """A 300 ms deadline returns within 800 ms (the best of three: the machine has neighbours)."""
    home = tmp_path / "home"
    endpoints = await anyio.to_thread.run_sync(embedded.up, home)
    worst: list[float] = []
    try:
        async with open_pool(endpoints.database_url, SIZE) as pool:
            await all_slots_work(pool)
            for _ in range(3):
                freezer, seconds = frozen(home), list[float]()

                async def try_it(read: bool, seconds: list[float] = seconds) -> None:
                    started = time.perf_counter()
                    with pytest.raises((DeadlineExceeded, StoreUnavailable)):
                        async with (pool.connection if read else pool.transaction)(Deadline.after(0.3)) as tx:
                            await tx.fetchval("select 1")
                    seconds.append(time.perf_counter() - started)

                await anyio.to_thread.run_sync(freezer.__enter__)
                try:
                    async with anyio.create_task_group() as group:
                        for number in range(SIZE * 2):
                            group.start_soon(try_it, number % 2 == 0)
                finally:
                    await anyio.to_thread.run_sync(freezer.__exit__, None, None, None)
                worst.append(max(seconds))
                await all_slots_work(pool)
        assert min(worst) <= 0.8, worst
    finally:
        await anyio.to_thread.run_sync(embedded.down, home)


async def test_a_thousand_cancellations_leak_nothing(database: str) -> None:
    chance = random.Random(1)

    async def one(pool: Pool, number: int) -> None:
        deadline = Deadline.after(0.02 + chance.random() * 0.03 if number % 3 == 0 else 10)
        with anyio.move_on_after(chance.random() * 0.03):
            try:
                async with (pool.transaction if number % 2 else pool.connection)(deadline) as tx:
                    await tx.fetchval("select pg_sleep($1)", chance.random() * 0.03)
                    await tx.fetchval("select 1")
            except DeadlineExceeded:
                return

    watcher = await asyncpg.connect(database)
    try:
        async with open_pool(database, SIZE) as pool:
            for _ in range(100):
                async with anyio.create_task_group() as group:
                    for number in range(10):
                        group.start_soon(one, pool, number)
            await all_slots_work(pool)
            assert await watcher.fetchval(LEFT_OPEN + " and datname = current_database()") == 0
    finally:
        await watcher.close()


async def test_a_cancelled_statement_stops_on_the_server_too(database: str) -> None:
    watcher = await asyncpg.connect(database)
    sleeping = "select count(*) from pg_stat_activity where query like 'select pg_sleep(77%' and state = 'active'"
    try:
        async with open_pool(database, SIZE) as pool:
            with anyio.move_on_after(0.3):
                async with pool.connection(Deadline.never()) as tx:
                    await tx.fetchval("select pg_sleep(77)")
            with anyio.fail_after(5):
                while await watcher.fetchval(sleeping):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
    finally:
        await watcher.close()


async def test_errors_are_ours_and_leave_the_pool_usable(database: str) -> None:
    async with open_pool(database, 1) as pool:
        for statement, kind in (
            ("insert into corpus (name) values ('a'), ('a')", Duplicate),
            ("select nothing_of_the_kind", StoreRefused),
            ("select pg_terminate_backend(pg_backend_pid())", StoreUnavailable),
        ):
            with pytest.raises(kind) as caught:
                async with pool.transaction(Deadline.after(10)) as tx:
                    await tx.execute(statement)
            assert isinstance(caught.value, SapwoodError)
            assert statement not in str(caught.value)
        with pytest.raises(StoreRefused):
            async with pool.connection(Deadline.after(10)) as tx:
                await tx.fetchval("select $1::int", "seven")
        async with pool.connection(Deadline.after(10)) as tx:
            assert await tx.fetchval("select $1::jsonb", {"a": [1, None, "ü"]}) == {"a": [1, None, "ü"]}


async def test_an_unreachable_database_is_named_by_its_role_only() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        async with open_pool("postgresql://someone:secret@/x?host=/nonexistent"):
            pass
    assert "secret" not in str(caught.value)
    assert "nonexistent" not in str(caught.value)


async def test_copy_fails_as_a_whole(database: str) -> None:
    async with open_pool(database, 1) as pool:
        with pytest.raises(Duplicate):
            async with pool.transaction(Deadline.after(10)) as tx:
                await tx.copy("corpus", ["name"], [("x",), ("y",), ("x",)])
        async with pool.transaction(Deadline.after(10)) as tx:
            await tx.copy("corpus", ["name", "settings"], [("x", {"k": 1})])
        async with pool.connection(Deadline.after(10)) as tx:
            assert [tuple(row) for row in await tx.fetch("select name, settings from corpus")] == [("x", {"k": 1})]

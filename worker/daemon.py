"""A server process that outlives its starter: launched detached, recognised by pid and folder, ended gently.

A recorded pid alone proves nothing: after a reboot it may be anybody's. A process is ours when it is alive, carries the
server's name, and its working folder is the service's data folder (both servers change into it; this survives a
renamed home). Anything else is foreign and is never signalled.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

import psutil

from worker.account import Account

POLL_SECONDS = 0.01
TAIL_BYTES = 2_000
LOG_BYTES = 10_000_000
"""A log above this size is set aside as `.old` at the next start."""

_DETACHED = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'


@dataclass(frozen=True, slots=True)
class Service:
    """Where one embedded server keeps what. `program` is its process name; it writes its `pidfile` itself."""

    name: str
    program: str
    data: Path
    socket: Path
    pidfile: Path
    log: Path

    def process(self) -> psutil.Process | None:
        """Return this service's running process, or None when its pid file is missing, stale or names a stranger."""
        pid = self.recorded_pid()
        try:
            process = None if pid is None else psutil.Process(pid)
        except psutil.NoSuchProcess:
            return None
        return process if process is not None and self._ours(process) else None

    def processes(self) -> list[psutil.Process]:
        """Return every running process of this service, also those that a killed parent left behind."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def recorded_pid(self) -> int | None:
        """Return the first word of the pid file; None when there is none."""
        try:
            return int(self.pidfile.read_text("utf-8").split(maxsplit=1)[0])
        except (OSError, ValueError, IndexError):
            return None

    def _ours(self, process: psutil.Process) -> bool:
        try:
            named = process.name() == self.program and running(process)
            return named and Path(process.cwd()) == self.data.resolve()
        except (OSError, psutil.Error):
            return False


def launch(argv: Sequence[str], log: Path, account: Account) -> int:
    """Start a server in its own session with nothing of ours but its arguments, and return its pid.

    The shell in between makes it a child of init, so it is no zombie of ours when it ends; its environment is bare, so
    no secret and no `PG*` variable reaches it.
    """
    if size(log) > LOG_BYTES:
        log.replace(log.with_suffix(".old"))
    started = subprocess.run(
        ["/bin/sh", "-c", _DETACHED, "sh", str(log), *account.prefix, *argv],
        cwd="/",
        env=environment(),
        umask=0o077,
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
        start_new_session=True,
        capture_output=True,
        check=True,
    )
    return int(started.stdout)


def environment() -> dict[str, str]:
    """Return the little that a server needs of our environment."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {"LC_ALL": "C", "TZ": "UTC"} | {name: os.environ[name] for name in kept if name in os.environ}


def running(process: psutil.Process) -> bool:
    """Return whether the process runs; a zombie, which a lazy init may keep for ever, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def alive(pid: int) -> bool:
    """Return whether the pid is that of a running process."""
    try:
        return running(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds, at most so many seconds, and return whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def end(process: psutil.Process, *steps: tuple[Signals, float]) -> bool:
    """Send each signal in turn, with its seconds of grace, until the process is gone; return whether it is."""
    for signal, grace in steps:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal)
        if until(lambda: not running(process), grace):
            return True
    return False


def size(log: Path) -> int:
    """Return the size of a log in bytes; 0 when there is none."""
    return log.stat().st_size if log.exists() else 0


def tail(log: Path, start: int = 0) -> str:
    """Return the end, at most a few lines, of what was logged from byte `start` on; empty when unreadable."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start if start < end else 0, end - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""

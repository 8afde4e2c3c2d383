"""Runs `git`: without a shell, a terminal, hooks, anybody's configuration or credentials, and within bounds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
from anyio.abc import ByteReceiveStream, Process

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, GitFailed, Refused

MAX_OUTPUT = 256 << 20
_MAX_ERROR = 1 << 16
_GRACE = 2.0
"""Seconds in which a killed process must be gone."""

_PASSED_ON = ("PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO")
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",  # what may be fetched from, says who fetches
}
_SETTINGS = (
    "protocol.ext.allow=never",
    f"core.hooksPath={os.devnull}",
    f"core.attributesFile={os.devnull}",
    "core.fsmonitor=false",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.recurseSubmodules=false",
)


async def run(
    arguments: Sequence[str],
    deadline: Deadline,
    *,
    seconds: float,
    given: bytes = b"",
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    most: int = MAX_OUTPUT,
) -> bytes:
    """Return what git writes, `most` bytes at most; `given` is its standard input. Cancelled, it and its children are gone.

    Raises:
        ConfigurationError: git is not installed.
        GitFailed: it ended with an error.
        Refused: it writes more than that.
        DeadlineExceeded: it took longer than `seconds`, or the deadline came.
    """
    options = [part for one in (*_SETTINGS, *settings) for part in ("-c", one)]
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    with anyio.move_on_after(deadline.budget(seconds)):
        process = await _started(["git", *options, *arguments], {**passed, **_ENVIRONMENT, **(environment or {})})
        try:
            out, said = await _talk(process, given, most)
            status = await process.wait()
        finally:
            await _end(process)
        if len(out) > most:
            raise Refused(f"size rule: git answers with more than {most >> 20} MiB")
        if status:
            raise GitFailed(arguments[0], said.decode("utf-8", "replace").strip())
        return out
    raise DeadlineExceeded("git took too long")


async def _started(command: Sequence[str], environment: Mapping[str, str]) -> Process:
    try:
        return await anyio.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ConfigurationError(
            "`git` is not installed here, or not in PATH: install it, or index a checkout as a folder."
        ) from error


async def _talk(process: Process, given: bytes, most: int) -> tuple[bytes, bytes]:
    """Give the input and read both outputs side by side; once there is too much of one, its rest is not read."""
    found: dict[str, bytes] = {}

    async def read(name: str, stream: ByteReceiveStream, limit: int) -> None:
        data = bytearray()
        async for part in stream:
            data += part
            if len(data) > limit and name == "out":
                _kill(process)
                break
            if len(data) > limit:
                del data[:-limit]
        found[name] = bytes(data)

    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    async with anyio.create_task_group() as group:
        group.start_soon(read, "out", process.stdout, most)
        group.start_soon(read, "said", process.stderr, _MAX_ERROR)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.send(given)
        await process.stdin.aclose()
    return found["out"], found["said"]


async def _end(process: Process) -> None:
    """Kill the process if it still runs, with its children, and bury it."""
    with anyio.move_on_after(_GRACE, shield=True):
        if process.returncode is None:
            _kill(process)
        await process.aclose()


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)

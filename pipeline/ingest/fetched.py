"""Commits from servers, fetched into a cache one commit deep, by the rules for URLs: no name or redirect leads elsewhere."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from pipeline.addresses import literal
from pipeline.deadline import Deadline
from pipeline.egress import Egress, port_of
from pipeline.errors import ConfigurationError, GitFailed, NotFound, Refused, SapwoodError, Unreachable
from pipeline.ingest.git import run
from pipeline.ingest.objects import CALL, COMMIT, Objects, make_empty

FETCH = 900.0
"""Seconds that fetching a commit may take."""

MAX_BYTES = 4 << 30
"""Bytes that the cache of one repository may grow to."""

_TIP = "refs/sapwood/tip"
_LEAST_GIT = (2, 37)  # the first with `http.curloptResolve`
_POLL = 0.25


class Fetched:
    """A cache of repositories below a folder, which may be deleted at any time. Processes may share it."""

    def __init__(self, home: Path, egress: Egress, max_blob: int) -> None:
        self._home = home
        self._egress = egress
        self._max_blob = max_blob

    async def commit(self, url: str, revision: str, deadline: Deadline) -> tuple[Objects, str]:
        """Return where a revision's objects are, but for files that are too large, and its commit.

        A branch or tag is asked for anew each time, a commit that is here is not.

        Raises:
            Refused: a rule for URLs, or it is too large.
            NotFound: no such repository or revision.
            Unreachable: the server is away.
        """
        folder = self._home / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.git"
        objects = Objects(self._home / "reader.git", folder / "objects")
        for one in (folder, objects.reader):
            await anyio.to_thread.run_sync(make_empty, one)
        if COMMIT.fullmatch(revision) and await objects.has(revision, deadline):
            return objects, revision
        async with _alone(folder.with_suffix(".lock"), deadline):
            await self._fetch(folder, url, revision, deadline)
            own = {"GIT_DIR": str(folder)}
            said = await run(["rev-parse", "--verify", f"{_TIP}^{{commit}}"], deadline, seconds=CALL, environment=own)
        return objects, said.decode("ascii").strip()

    async def _fetch(self, folder: Path, url: str, revision: str, deadline: Deadline) -> None:
        parts = self._egress.check(url)
        await _check_version(deadline)
        addresses = ",".join(await self._egress.addresses(parts))
        host = parts.hostname or ""
        command = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--depth=1"]
        wanted = [f"--filter=blob:limit={self._max_blob + 1}", "--end-of-options", url, f"+{revision}:{_TIP}"]
        settings = ["http.followRedirects=false", "http.lowSpeedLimit=1000", "http.lowSpeedTime=60"]
        if not literal(host):  # the connection goes to an address that was checked
            settings.append(f"http.curloptResolve={host.encode('idna').decode()}:{port_of(parts)}:{addresses}")
        own = {"GIT_DIR": str(folder), "GIT_ALLOW_PROTOCOL": parts.scheme}
        failed: list[SapwoodError] = []

        async def fetch(done: anyio.CancelScope) -> None:
            try:
                await run([*command, *wanted], deadline, seconds=FETCH, settings=settings, environment=own)
            except GitFailed as error:
                failed.append(_said(error.said, revision))
            except SapwoodError as error:
                failed.append(error)
            done.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(fetch, group.cancel_scope)
            while True:
                await anyio.sleep(_POLL)
                if await anyio.to_thread.run_sync(_bytes, folder / "objects") > MAX_BYTES:
                    break
            failed.append(Refused(f"size rule: the repository has more than {MAX_BYTES >> 30} GiB"))
            group.cancel_scope.cancel()
        if failed:
            raise failed[0]


def _said(text: str, revision: str) -> SapwoodError:
    """Return what is wrong by git's own words, which are not shown: they name the address."""
    lowered = text.lower()
    if re.search(r"couldn't find remote ref|not our ref|no such remote ref", lowered):
        return NotFound(f"the repository has no revision {revision!r}")
    if re.search(r"could not read username|authentication failed|terminal prompts disabled|error: 40[13]", lowered):
        return Refused("credential rule: the repository asks for a password; index a checkout of it instead")
    if re.search(r"redirect|error: 30\d", lowered):
        return Refused("redirect rule: the repository has moved; name the address that it moved to")
    if re.search(r"not found|error: 4\d\d|not valid: is this a git repository", lowered):
        return NotFound("there is no repository at this address")
    return Unreachable("the repository could not be fetched")


async def _check_version(deadline: Deadline) -> None:
    said = (await run(["version"], deadline, seconds=CALL)).decode("ascii", "replace")
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < _LEAST_GIT:
        least = ".".join(map(str, _LEAST_GIT))
        raise ConfigurationError(
            f"`git` {least} or newer is needed to fetch a repository safely; this is {said.strip()}."
        )


@asynccontextmanager
async def _alone(lock: Path, deadline: Deadline) -> AsyncGenerator[None, None]:
    """Keep every other task and process out; who waits longer than the deadline gets DeadlineExceeded."""
    descriptor = await anyio.to_thread.run_sync(lambda: os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        while not _locked(descriptor):
            deadline.budget(FETCH)
            await anyio.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bytes(folder: Path) -> int:
    """Return the bytes below a folder. Blocking: for a thread."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:  # a temporary file of git's
                continue
    return total

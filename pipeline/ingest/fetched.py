"""Commits from servers, fetched into a cache one commit deep, by the rules for URLs: no name or redirect leads elsewhere."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
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

OWNERS = "owners"
_TIP = "refs/sapwood/tip"
LEAST_GIT = (2, 37)  # the first with `http.curloptResolve`
_POLL = 0.25


class Fetched:
    """A cache of repositories below a folder, which processes may share. One that nobody reads may be deleted at any time.

    Whoever reads a repository has a shared lock on its folder. `owners/` names the repositories of which it is a submodule.
    """

    def __init__(self, home: Path, egress: Egress, max_blob: int) -> None:
        self._home = home
        self._egress = egress
        self._max_blob = max_blob

    @asynccontextmanager
    async def commit(
        self, url: str, revision: str, deadline: Deadline, owner: str = ""
    ) -> AsyncGenerator[tuple[Objects, str], None]:
        """Yield where a revision's objects are, but for files that are too large, and its commit; they stay that long.

        A branch or tag is asked for anew each time, a commit that is here is not. `owner` is the address of the repository
        of which this one is a submodule.

        Raises:
            Refused: a rule for URLs, or it is too large.
            NotFound: no such repository or revision.
            Unreachable: the server is away.
        """
        folder = self._home / f"{key_of(url)}.git"
        objects = Objects(self._home / "reader.git", folder / "objects")
        await anyio.to_thread.run_sync(make_empty, objects.reader)
        async with _used(folder, key_of(owner) if owner else "", deadline):
            if COMMIT.fullmatch(revision) and await objects.has(revision, deadline):
                yield objects, revision
            else:
                yield objects, await self._tip(folder, url, revision, deadline)

    async def _tip(self, folder: Path, url: str, revision: str, deadline: Deadline) -> str:
        """Fetch a revision and return its commit."""
        async with _alone(folder.with_suffix(".lock"), deadline):
            await self._fetch(folder, url, revision, deadline)
            own = {"GIT_DIR": str(folder)}
            said = await run(["rev-parse", "--verify", f"{_TIP}^{{commit}}"], deadline, seconds=CALL, environment=own)
        return said.decode("ascii").strip()

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
                if await anyio.to_thread.run_sync(bytes_of, folder / "objects") > MAX_BYTES:
                    break
            failed.append(Refused(f"size rule: the repository has more than {MAX_BYTES >> 30} GiB"))
            group.cancel_scope.cancel()
        if failed:
            raise failed[0]


def key_of(url: str) -> str:
    """Return the name of a repository in a cache."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]


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


async def git_version(deadline: Deadline) -> tuple[int, ...]:
    """Return the version of git, e.g. (2, 47, 1); () if it says none. Raises ConfigurationError: it is not installed."""
    said = (await run(["version"], deadline, seconds=CALL)).decode("ascii", "replace")
    found = re.search(r"\d+(?:\.\d+)+", said)
    return tuple(map(int, found[0].split("."))) if found else ()


async def _check_version(deadline: Deadline) -> None:
    found = await git_version(deadline)
    if found < LEAST_GIT:
        least, this = (".".join(map(str, one)) for one in (LEAST_GIT, found))
        raise ConfigurationError(f"`git` {least} or newer is needed to fetch a repository safely; this is {this}.")


@asynccontextmanager
async def _used(folder: Path, owner: str, deadline: Deadline) -> AsyncGenerator[None, None]:
    """Keep a repository from being removed, and note that it was used; it is made where it is not there."""

    def held() -> int | None:
        try:
            make_empty(folder)
            (folder / OWNERS).mkdir(mode=0o700, exist_ok=True)
            if owner:
                (folder / OWNERS / owner).touch(mode=0o600)
            os.utime(folder / "HEAD")
            return _shared(folder)
        except FileNotFoundError:  # it is being removed
            return None

    while (descriptor := await anyio.to_thread.run_sync(held)) is None:
        deadline.budget(FETCH)
        await anyio.sleep(_POLL)
    try:
        yield
    finally:
        os.close(descriptor)


def _shared(folder: Path) -> int | None:
    """Return a shared lock on a folder, or None if it is being removed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(FileNotFoundError):
        if _locked(descriptor, fcntl.LOCK_SH) and os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            return descriptor
    os.close(descriptor)
    return None


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


def _locked(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def bytes_of(folder: Path) -> int:
    """Return the bytes below a folder. Blocking: for a thread."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:  # a temporary file of git's
                continue
    return total

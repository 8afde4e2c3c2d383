"""The objects of a git repository, read through an empty repository of our own, so that nothing is configured by theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.errors import DocumentError, GitFailed, NotFound
from pipeline.ingest.git import run

CALL = 120.0
"""Seconds that reading objects may take at a time."""

COMMIT = re.compile(r"[0-9a-f]{40}")
LINK, SUBMODULE = "120000", "160000"
"""Modes of entries that are no files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a tree: its mode, its object and its path, whose odd bytes are surrogates as in `os.fsdecode`."""

    mode: str
    object: str
    path: str


@dataclass(frozen=True, slots=True)
class Objects:
    """A store of objects (`…/objects`), and the empty repository through which it is read. Nothing is ever fetched."""

    reader: Path
    folder: Path

    async def has(self, commit: str, deadline: Deadline) -> bool:
        """Whether a commit is here with its tree."""
        try:
            await self._git(["cat-file", "-e", f"{commit}^{{tree}}"], deadline)
        except GitFailed:
            return False
        return True

    async def tree(self, commit: str, deadline: Deadline) -> list[Entry]:
        """Return all files of a commit, links and submodules among them. Raises NotFound if it is not all here."""
        try:
            listed = await self._git(["ls-tree", "-r", "-z", "--full-tree", commit], deadline)
        except GitFailed as error:
            raise NotFound(f"the commit {commit} is not here as a whole") from error
        return await anyio.to_thread.run_sync(_entries, listed)

    async def attributes(
        self, commit: str, names: Sequence[str], paths: Sequence[str], deadline: Deadline
    ) -> dict[str, dict[str, str]]:
        """Return the values of these attributes for each path, as the `.gitattributes` files of the commit have them."""
        found: dict[str, dict[str, str]] = {path: {} for path in paths}
        async with anyio.TemporaryDirectory(prefix="sapwood-") as folder:
            index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            await self._git(["read-tree", commit], deadline, more=index)
            asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
            said = await self._git(["check-attr", "--cached", "-z", "--stdin", *names], deadline, asked, index)
        parts = said.split(b"\0")[:-1]
        for path, name, value in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            found[os.fsdecode(path)][name.decode()] = value.decode("utf-8", "replace")
        return found

    async def sizes(self, ids: Iterable[str], deadline: Deadline) -> dict[str, int]:
        """Return the bytes of each blob that is here."""
        asked = "".join(f"{one}\n" for one in dict.fromkeys(ids)).encode()
        if not asked:
            return {}
        said = await self._git(["cat-file", "--batch-check=%(objectname) %(objectsize)"], deadline, asked)
        rows = (line.split(" ") for line in said.decode("ascii").splitlines())
        return {name: int(size) for name, size in rows if size != "missing"}

    async def blobs(self, ids: Iterable[str], deadline: Deadline) -> dict[str, bytes]:
        """Return the bytes of each blob that is here."""
        asked = list(dict.fromkeys(ids))
        said = memoryview(await self._git(["cat-file", "--batch"], deadline, "".join(f"{o}\n" for o in asked).encode()))
        found: dict[str, bytes] = {}
        at = 0
        for name in asked:
            line, at = _line(said, at)
            kind, _, size = line.removeprefix(name).strip().partition(" ")
            if kind == "missing":
                continue
            end = at + int(size)
            if kind == "blob":
                found[name] = bytes(said[at:end])
            at = end + 1
        return found

    async def _git(
        self, arguments: Sequence[str], deadline: Deadline, given: bytes = b"", more: dict[str, str] | None = None
    ) -> bytes:
        own = {"GIT_DIR": str(self.reader), "GIT_OBJECT_DIRECTORY": str(self.folder)}
        return await run(arguments, deadline, seconds=CALL, given=given, environment={**own, **(more or {})})


def _entries(listed: bytes) -> list[Entry]:
    entries: list[Entry] = []
    for line in listed.split(b"\0")[:-1]:
        head, _, path = line.partition(b"\t")
        mode, _, name = head.decode("ascii").split(" ")
        entries.append(Entry(mode, name, os.fsdecode(path)))
    return entries


def make_empty(repository: Path) -> None:
    """Make an empty bare repository, if it is not there. Blocking: for a thread."""
    for name in ("objects", "refs"):
        (repository / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    head = repository / "HEAD"
    if not head.exists():
        head.write_text("ref: refs/heads/none\n")


def _line(data: memoryview, start: int) -> tuple[str, int]:
    """Return the line that starts here, which is short, and where the next one does."""
    head = bytes(data[start : start + 200])
    end = head.find(b"\n")
    if end < 0:
        raise DocumentError("git's answer is not what it should be")
    return head[:end].decode("ascii", "replace"), start + end + 1

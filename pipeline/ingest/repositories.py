"""Repositories at a revision: which documents they hold, and their bytes, straight out of git's store of objects.

There is no work tree, so nothing of a checkout that is not committed is seen. The id of a blob follows from its bytes: it is
the place of a document, so one that is known by it is not read again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin

import anyio.to_thread

from pipeline.addresses import forbidden
from pipeline.deadline import Deadline
from pipeline.egress import Egress, Resolver, resolve
from pipeline.errors import DependencyError, DocumentError, GitFailed, LeftOut, NotFound, Refused, SapwoodError
from pipeline.ingest import formats, generated
from pipeline.ingest.fetched import Fetched
from pipeline.ingest.folders import MAX_BYTES, Found, Selection, show, too_large
from pipeline.ingest.git import run
from pipeline.ingest.objects import CALL, LINK, SUBMODULE, Entry, Objects, make_empty
from pipeline.ingest.revisions import PREFIX, Place, place_of
from schemas.documents import Item, Source

MAX_DEPTH = 4
"""Submodules within submodules that are followed."""

_LFS = b"version https://git-lfs.github.com/spec/"
_GITATTRIBUTES = ".gitattributes"


@dataclass(frozen=True, slots=True)
class Tree:
    """What a repository holds at the commit that its source names now; `found` in canonical order."""

    revision: str
    found: list[Found]


class Repositories:
    """Lists and reads repositories, with a cache below `home`.

    `resolver`, `rule` and `ports` are there for tests, which serve from loopback; the defaults are the strict ones.
    """

    def __init__(
        self,
        home: Path,
        *,
        resolver: Resolver = resolve,
        rule: Callable[[str], str] = forbidden,
        ports: Mapping[str, int] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._home = home
        self._max_bytes = max_bytes
        self._fetched = Fetched(home, Egress(resolver=resolver, rule=rule, ports=ports), max_bytes)

    async def listing(self, source: Source, deadline: Deadline) -> Tree:
        """Return the documents of a repository, and what a rule leaves out with the reason.

        What the globs or the rule for hidden files deselect is not returned, as for folders.

        Raises:
            NotFound: no such repository or revision; Refused: a rule for paths or URLs; Unreachable: the server is away.
            ConfigurationError: git is not installed, or too old.
        """
        place, selection = place_of(source.location), Selection.of(source)
        async with self._at(place, deadline) as (objects, commit):
            found = await self._below(objects, place, replace(source, revision=commit), selection, deadline)
        return Tree(commit, sorted(found, key=lambda one: (one.name, one.locator)))

    async def read(self, items: Sequence[Item], deadline: Deadline) -> list[bytes | SapwoodError]:
        """Return each document's bytes, in order, or why it is left out or cannot be read.

        Raises:
            DependencyError: a server is away.
        """
        held = {source: await self._blobs(source, items, deadline) for source in {item.source for item in items}}
        return [_document(item, held[item.source], self._max_bytes) for item in items]

    async def _blobs(
        self, source: Source, items: Sequence[Item], deadline: Deadline
    ) -> Mapping[str, bytes] | SapwoodError:
        try:
            async with self._at(replace(place_of(source.location), revision=source.revision), deadline) as (objects, _):
                return await objects.blobs([item.locator for item in items if item.source == source], deadline)
        except DependencyError:
            raise
        except GitFailed:
            return DocumentError("the repository cannot be read")
        except SapwoodError as error:
            return error

    @asynccontextmanager
    async def _at(self, place: Place, deadline: Deadline, owner: str = "") -> AsyncGenerator[tuple[Objects, str], None]:
        """Yield where a place's objects are, and the commit that its revision names."""
        if place.url:
            async with self._fetched.commit(place.url, place.revision, deadline, owner) as found:
                yield found
        else:
            yield await self._here(place, deadline)

    async def _here(self, place: Place, deadline: Deadline) -> tuple[Objects, str]:
        """Return the same of a repository on this machine."""
        reader = self._home / "reader.git"
        await anyio.to_thread.run_sync(make_empty, reader)
        # Owned by somebody else is fine: of its configuration nothing is used but where its objects are.
        top = await anyio.to_thread.run_sync(os.path.realpath, place.path)
        inside, above = ["-C", top, "rev-parse"], {"GIT_CEILING_DIRECTORIES": os.path.dirname(top)}
        where = ["--path-format=absolute", "--show-object-format", "--git-path", "objects"]
        trust = ["safe.directory=*"]
        try:
            said = await run([*inside, *where], deadline, seconds=CALL, settings=trust, environment=above)
        except GitFailed as error:
            raise NotFound(f"no git repository: {place.path}; name its top folder") from error
        kind, folder = os.fsdecode(said).splitlines()
        if kind != "sha1":
            raise Refused("format rule: a repository with SHA-256 objects is not read")
        wanted = ["--verify", "--quiet", f"{place.revision}^{{commit}}"]
        try:
            said = await run([*inside, *wanted], deadline, seconds=CALL, settings=trust, environment=above)
        except GitFailed as error:
            raise NotFound(f"the repository has no revision {place.revision!r}") from error
        return Objects(reader, Path(folder)), said.decode("ascii").strip()

    async def _below(
        self,
        objects: Objects,
        place: Place,
        source: Source,
        selection: Selection,
        deadline: Deadline,
        prefix: str = "",
        depth: int = MAX_DEPTH,
        owner: str = "",
    ) -> list[Found]:
        """Return what a commit holds; `source` is the one that its documents are read from, `prefix` where it lies in the
        outermost repository, and `owner` that one's address or path.
        """
        tree = await objects.tree(source.revision, deadline)
        entries = await anyio.to_thread.run_sync(_selected, tree, selection, prefix)
        said: Mapping[str, Mapping[str, str]] = {}
        if not place.generated and any(one.path.rsplit("/", 1)[-1] == _GITATTRIBUTES for one in tree):
            paths = [one.path for one in entries]
            said = await objects.attributes(source.revision, generated.ATTRIBUTES, paths, deadline)
        kept, found = await anyio.to_thread.run_sync(_ruled, entries, said, place.generated)
        sizes = await objects.sizes((one.object for one in kept if one.mode != SUBMODULE), deadline)
        submodules: list[Entry] = []
        for one in kept:
            if one.mode == SUBMODULE:
                submodules.append(one)
            elif one.object not in sizes and not place.url:
                found.append(Found(one.path, fault="partial clone rule: its content is not in this repository"))
            elif sizes.get(one.object, self._max_bytes + 1) > self._max_bytes:  # it was not even fetched
                found.append(Found(one.path, fault=too_large(self._max_bytes)))
            else:
                found.append(Found(one.path, one.object, sizes[one.object], 0, source=source))
        found = [replace(one, name=show(prefix + one.name)) for one in found]
        if not place.submodules or not depth:
            fault = "submodule rule: it is not followed"
            return found + [Found(show(prefix + one.path), fault=fault) for one in submodules]
        addresses = await _addresses(objects, place, tree, deadline) if submodules else {}
        owner = owner or place.url or place.path
        for one in submodules:
            at = prefix + one.path
            try:
                below = _submodule(place, addresses.get(one.path, ""), one.object)
                async with self._at(below, deadline, owner) as (inner, commit):
                    own = replace(source, location=below.location, revision=commit)
                    found += await self._below(inner, below, own, selection, deadline, f"{at}/", depth - 1, owner)
            except DependencyError:
                raise
            except SapwoodError as error:
                found.append(Found(show(at), fault=str(error)))
        return found


def _selected(tree: Sequence[Entry], selection: Selection, prefix: str) -> list[Entry]:
    """Return what the globs select, by its path below the top of the outermost repository."""
    seen = [one for one in tree if selection.hidden or not f"/{prefix}{one.path}".count("/.")]
    return [one for one in seen if selection.takes(prefix + one.path)]


def _ruled(
    entries: Sequence[Entry], said: Mapping[str, Mapping[str, str]], everything: bool
) -> tuple[list[Entry], list[Found]]:
    """Return the entries that no rule about their names leaves out, and the others with the rule; of a folder, one."""
    kept: list[Entry] = []
    left: list[Found] = []
    folders: Counter[str] = Counter()
    for one in entries:
        fault = ""
        if one.mode == LINK:
            fault = "symlink rule: links in a repository are not followed"
        elif one.mode != SUBMODULE and formats.is_media(one.path):
            fault = "a format that is not read"
        elif not everything:
            ruled = generated.by_attributes(said.get(one.path, {}))
            folder = generated.folder_of(one.path) if ruled is None else ""
            if folder:
                folders[folder] += 1
                continue
            fault = generated.by_name(one.path) if ruled is None else ruled
        if fault:
            left.append(Found(one.path, fault=fault))
        else:
            kept.append(one)
    for folder, count in folders.items():
        left.append(Found(folder, fault=f"vendored rule: {count} files that others wrote, or that a build made"))
    return kept, left


async def _addresses(objects: Objects, place: Place, tree: Sequence[Entry], deadline: Deadline) -> dict[str, str]:
    """Return the address of each submodule by its path, as `.gitmodules` has it."""
    file = next((one.object for one in tree if one.path == ".gitmodules"), "")
    data = (await objects.blobs([file], deadline)).get(file, b"") if file else b""
    asked = ["config", "--file", "-", "-z", "--get-regexp", r"^submodule\..*\.(path|url)$"]
    try:
        said = await run(asked, deadline, seconds=CALL, given=data)
    except GitFailed:  # there is none, or it is no such file
        return {}
    values: dict[str, dict[str, str]] = {}
    for record in os.fsdecode(said).split("\0")[:-1]:
        key, _, value = record.partition("\n")
        name, _, what = key.removeprefix("submodule.").rpartition(".")
        values.setdefault(name, {})[what] = value
    return {one["path"]: one["url"] for one in values.values() if one.keys() >= {"path", "url"}}


def _submodule(place: Place, address: str, commit: str) -> Place:
    """Return where a submodule lies. Raises Refused where it has no address on the web."""
    if address.startswith(("./", "../")) and place.url:
        address = urljoin(f"{place.url.rstrip('/')}/", address)
    if not address.lower().startswith(("https://", "http://")) or "@" in address or "#" in address:
        raise Refused("submodule rule: only addresses on the web are followed")
    return replace(place_of(f"{PREFIX}{address}@{commit}"), generated=place.generated, submodules=True)


def _document(item: Item, held: Mapping[str, bytes] | SapwoodError, max_bytes: int) -> bytes | SapwoodError:
    """Return what was read of a document, or what is wrong with it."""
    if isinstance(held, SapwoodError):
        return held
    data = held.get(item.locator)
    if data is None:
        return DocumentError("it is not in the repository any more")
    if len(data) > max_bytes:
        return DocumentError(too_large(max_bytes))
    if data.startswith(_LFS):
        return LeftOut("LFS rule: a pointer to a file that lies elsewhere")
    if data and not formats.by_name(item.document_id) and not formats.by_content(data[:8192]):
        return LeftOut("a binary format that is not read")
    fault = "" if place_of(item.source.location).generated else generated.by_content(data)
    return LeftOut(fault) if fault else data

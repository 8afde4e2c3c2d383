"""Files below a root: which ones there are, and their bytes, without ever leaving the root.

Listing may look at names by path, for what it says is only a plan; reading goes from the root down by descriptors, so
that nothing exchanged in between (a folder for a symlink, a file for a device) is followed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_to_bytes

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from pipeline.errors import DocumentError, InvalidRequest, NotFound, Refused
from pipeline.ingest import formats
from schemas.documents import Source, SourceKind

MAX_BYTES = 20 * 1024 * 1024
"""Bytes that one document may have."""

_NEVER = frozenset({".git", ".hg", ".svn", ".bzr", ".jj", "CVS", "__pycache__", "node_modules"})
_MAX_STARS = 10  # each may cost a pass over the name
_PROBE = 8192
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # O_NONBLOCK: opening a pipe must not wait for a writer


@dataclass(frozen=True, slots=True)
class Found:
    """A file below a root: its name for people, its true place for `read_file`, or why it is left out.

    `source` is where it is read from, if that is not the source that was listed.
    """

    name: str
    locator: str = ""
    size: int = 0
    mtime_ns: int = 0
    fault: str = ""
    source: Source | None = None


def list_folder(source: Source, max_bytes: int = MAX_BYTES) -> list[Found]:
    """Return the documents below a folder, and the entries that look like one but are left out, with the reason.

    What the globs, `.gitignore` files, the hidden-file rule and the version control rule deselect is not returned.
    Globs are in gitignore's syntax, relative to the root. Hidden files need an include glob that names a dot.

    Raises:
        NotFound: the folder is not there, or cannot be listed; such a source must not look like an empty one.
    """
    if not os.path.isdir(source.location):
        raise NotFound(f"no such folder: {source.location}")
    try:
        os.scandir(source.location).close()
    except OSError as error:
        raise NotFound(f"the folder cannot be listed ({error.strerror}): {source.location}") from error
    walk = _Walk(os.path.realpath(source.location), Selection.of(source), max_bytes)
    walk.folder("", "", ())
    walk.follow_links()
    return sorted(walk.found, key=lambda found: (found.name, found.locator))


def list_file(source: Source, max_bytes: int = MAX_BYTES) -> list[Found]:
    """Return the one document of a file source. Raises NotFound."""
    path = Path(source.location)
    try:
        info = path.stat()
    except OSError as error:
        raise NotFound(f"no such file: {source.location}") from error
    return [_found(show(path.name), escape(path.name), source.location, info, max_bytes)]


def read_file(
    source: Source, locator: str, parts: tuple[tuple[int, int], ...] = (), max_bytes: int = MAX_BYTES
) -> bytes:
    """Return the bytes of a file below a source's root, or of the given byte ranges of it, a line end after each.

    Raises:
        DocumentError: it vanished, cannot be read, or grew over the limit.
        Refused: a symlink, or no regular file.
    """
    # The file that a source names may itself be a link; below a folder only true places are named.
    if source.kind is SourceKind.FOLDER:
        root, names = source.location, [_real_name(name) for name in locator.split("/")]
    else:
        root, name = os.path.split(os.path.realpath(source.location))
        names = [name]
    if any(name in ("", ".", "..") or "/" in name for name in names):
        raise Refused("path rule: a document's place must lie below its root")
    try:
        with open(_descend(root, names), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise Refused("file rule: not a regular file")
            wanted = sum(end - start for start, end in parts) if parts else info.st_size
            if wanted > max_bytes:
                raise DocumentError(too_large(max_bytes))
            data = b"".join(_ranges(file.fileno(), parts)) if parts else file.read(max_bytes + 1)
    except OSError as error:
        raise _reading_failed(error) from error
    if len(data) > max_bytes + len(parts):
        raise DocumentError(too_large(max_bytes))
    return data


def escape(path: str) -> str:
    """Return a path as every store takes it and `read_file` understands it: `%XX` for %, controls and odd bytes."""
    return "".join(f"%{ord(c):02X}" if c < " " or c in "%\x7f" else _stored(c) for c in path)


def show(path: str) -> str:
    """Return a path as a document id: NFC, with `%XX` for control characters and for bytes that are no UTF-8."""
    return unicodedata.normalize("NFC", escape(path).replace("%25", "%"))


def globs(lines: Iterable[str], *, strict: bool = False) -> GitIgnoreSpec:
    """Return patterns in gitignore's syntax; one that is none is left out, as git does it, or refused.

    Raises:
        InvalidRequest: `strict`, and a line is no pattern.
    """
    patterns: list[GitIgnoreSpecPattern] = []
    for line in lines:
        try:
            if line.count("*") > _MAX_STARS:
                raise ValueError("too many stars")
            patterns += map(GitIgnoreSpecPattern, filter(str.strip, [line]))
        except (ValueError, re.error) as error:
            if strict:
                raise InvalidRequest(f"not a glob: {line!r}") from error
    # One backend everywhere: the library takes another where it finds one installed.
    return GitIgnoreSpec(patterns, backend="simple")


@dataclass(frozen=True, slots=True)
class Selection:
    """What the globs of a source select; hidden files only if a glob names a dot."""

    include: GitIgnoreSpec | None
    exclude: GitIgnoreSpec
    hidden: bool

    @classmethod
    def of(cls, source: Source) -> Selection:
        """Return the selection of a source. Raises InvalidRequest."""
        include = globs(source.include, strict=True) if source.include else None
        hidden = any(part.startswith(".") for glob in source.include for part in glob.lstrip("!").split("/"))
        return cls(include, globs(source.exclude, strict=True), hidden)

    def enters(self, path: str) -> bool:
        """Whether a folder is looked into."""
        return not self.exclude.match_file(_matchable(path) + "/")

    def takes(self, path: str) -> bool:
        """Whether a file is wanted."""
        path = _matchable(path)
        return not self.exclude.match_file(path) and (self.include is None or self.include.match_file(path))


_Ignores = tuple[tuple[str, GitIgnoreSpec], ...]
"""The `.gitignore` files that apply, outermost first, each with the folder it stands in (`""` or `a/b/`)."""


@dataclass(slots=True)
class _Walk:
    """One pass over a tree: true files first, then the links that lead to something not listed yet."""

    root: str
    selection: Selection
    max_bytes: int
    found: list[Found] = field(default_factory=list[Found])
    links: list[tuple[str, str, _Ignores]] = field(default_factory=list[tuple[str, str, _Ignores]])
    seen: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # device and inode

    def folder(self, name: str, real: str, ignores: _Ignores) -> None:
        """List a folder and all below it; `name` and `real` are its path as shown and in truth (`""` or `a/b/`)."""
        stack = [(name, real, ignores)]
        while stack:
            name, real, ignores = stack.pop()
            try:
                info = os.stat(self._path(real))
                with os.scandir(self._path(real)) as entries:
                    children = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self._leave_out(name.rstrip("/"), f"folder cannot be listed ({error.strerror})")
                continue
            if (info.st_dev, info.st_ino) in self.seen:
                continue
            self.seen.add((info.st_dev, info.st_ino))
            ignores = self._with_gitignore(name, real, ignores)
            stack += [folder for child in children if (folder := self._entry(child, name, real, ignores))]

    def follow_links(self) -> None:
        """List what links lead to, unless that is outside the root or listed already; so every loop ends."""
        while self.links:
            self.links.sort(key=lambda link: link[0], reverse=True)
            name, real, ignores = self.links.pop()
            try:
                target = os.path.realpath(self._path(real), strict=True)
                info = os.stat(target, follow_symlinks=False)
            except OSError:
                self._leave_out(name, "symlink rule: it leads nowhere, or in a circle")
                continue
            inside = os.path.relpath(target, self.root)
            if inside.split("/", 1)[0] == "..":
                self._leave_out(name, "symlink rule: it leaves the root")
            elif not _NEVER.isdisjoint(inside.split("/")):
                self._leave_out(name, "symlink rule: it leads to version control or installed packages")
            elif inside == "." or (info.st_dev, info.st_ino) in self.seen:
                self._leave_out(name, "symlink rule: what it leads to is listed itself")
            elif stat.S_ISDIR(info.st_mode):
                self.folder(f"{name}/", f"{inside}/", ignores)
            elif self.selection.takes(name):
                self._add(name, inside, info)

    def _entry(
        self, entry: os.DirEntry[str], name: str, real: str, ignores: _Ignores
    ) -> tuple[str, str, _Ignores] | None:
        """Take one entry of a folder; return it if it is a folder to go into."""
        shown, place = name + entry.name, real + entry.name
        if entry.name in _NEVER or (entry.name.startswith(".") and not self.selection.hidden):
            return None
        is_folder = entry.is_dir(follow_symlinks=False)
        if _ignored(shown, is_folder, ignores):
            return None
        if is_folder:
            return (f"{shown}/", f"{place}/", ignores) if self.selection.enters(shown) else None
        if entry.is_symlink():
            if not self.selection.exclude.match_file(_matchable(shown)):
                self.links.append((shown, place, ignores))
        elif self.selection.takes(shown):
            try:
                self._add(shown, place, entry.stat(follow_symlinks=False))
            except OSError as error:
                self._leave_out(shown, f"cannot be read ({error.strerror})")
        return None

    def _add(self, name: str, real: str, info: os.stat_result) -> None:
        self.seen.add((info.st_dev, info.st_ino))
        self.found.append(_found(show(name), escape(real), self._path(real), info, self.max_bytes))

    def _leave_out(self, name: str, fault: str) -> None:
        self.found.append(Found(show(name), fault=fault))

    def _with_gitignore(self, name: str, real: str, ignores: _Ignores) -> _Ignores:
        try:
            with open(
                _descend(self.root, [*real.split("/")[:-1], ".gitignore"]), encoding="utf-8", errors="replace"
            ) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return ignores
                return (*ignores, (name, globs(file.read(_PROBE * 32).splitlines())))
        except OSError:
            return ignores

    def _path(self, real: str) -> str:
        return os.path.join(self.root, real)


def _ignored(path: str, is_folder: bool, ignores: _Ignores) -> bool:
    """Whether git would ignore this: the innermost file that says anything decides."""
    for folder, spec in reversed(ignores):
        verdict = spec.check_file(_matchable(path[len(folder) :]) + ("/" if is_folder else "")).include
        if verdict is not None:
            return verdict
    return False


def _matchable(path: str) -> str:
    """Return the path as patterns can be matched with it: a byte that is no UTF-8 is a question mark."""
    return path.encode("utf-8", "replace").decode()


def _found(name: str, locator: str, path: str, info: os.stat_result, max_bytes: int) -> Found:
    fault = ""
    if not stat.S_ISREG(info.st_mode):
        fault = "file rule: not a regular file"
    elif info.st_size > max_bytes:
        fault = too_large(max_bytes)
    elif info.st_size and formats.is_media(name):
        fault = "a format that is not read"
    elif info.st_size and not formats.by_name(name):
        fault = _sniffed(path)
    return Found(name, locator, info.st_size, info.st_mtime_ns, fault)


def _sniffed(path: str) -> str:
    """Return what keeps a file of unknown kind from being read; one that cannot be opened says so later."""
    try:
        with open(os.open(path, _FILE), "rb") as file:
            return "" if formats.by_content(file.read(_PROBE)) else "a binary format that is not read"
    except OSError:
        return ""


def _descend(root: str, names: list[str]) -> int:
    """Open a file by descriptors, one folder at a time; no component but the root's own may be a link."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            below = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(names[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)


def _ranges(descriptor: int, parts: tuple[tuple[int, int], ...]) -> Iterator[bytes]:
    for start, end in parts:
        yield os.pread(descriptor, end - start, start)
        yield b"\n"


def _reading_failed(error: OSError) -> DocumentError | Refused:
    if isinstance(error, FileNotFoundError):
        return DocumentError("it vanished after it was listed")
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):  # by O_NOFOLLOW, on Linux, macOS and BSD
        return Refused("symlink rule: a link where a file or folder was")
    return DocumentError(f"it cannot be read ({error.strerror})")


def too_large(max_bytes: int) -> str:
    """Return the rule that a document above the limit breaks."""
    return f"size rule: more than {max_bytes / (1 << 20):g} MiB"


def _stored(character: str) -> str:
    """Write a lone surrogate as the byte that it stands for."""
    if "\ud800" <= character <= "\udfff":
        return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))
    return character


def _real_name(escaped: str) -> str:
    return os.fsdecode(unquote_to_bytes(escaped)) if "%" in escaped else escaped

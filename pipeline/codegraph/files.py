"""The source files of a corpus as the linker sees them, over summaries that are handed in before they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache

from pipeline.codegraph.summary import Summary, decode
from pipeline.errors import Wanted
from schemas.ids import number_of

DECODED = 256
"""Summaries that are kept as objects; the linker keeps what it makes of them by itself."""


def read_no(read: str) -> int:
    """Return the number under which it is stored that a file looked at this path, folder (`a/`) or name (`*/b.py`)."""
    return number_of("read", read)


def folder_of(path: str) -> str:
    """Return the folder of a file, with `/` at its end; empty for the root."""
    return path[: path.rfind("/") + 1]


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path[path.rfind("/") + 1 :]


def file_of(public_id: str, paths: Container[str]) -> str:
    """Return the file of an entity of the corpus; a path may hold the mark that ends it in the id of a definition."""
    return public_id if public_id in paths else public_id.rpartition("::")[0]


class SourceFiles:
    """A `Files` over the paths of a corpus. Raises Wanted for a summary that is not there yet."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset(paths)
        self._encoded: dict[str, bytes] = {}
        self._decoded = lru_cache(DECODED)(self._read)
        self._folders: dict[str, tuple[str, ...]] | None = None
        self._names: dict[str, tuple[str, ...]] | None = None

    def give(self, encoded: Mapping[str, bytes]) -> None:
        """Take summaries."""
        self._encoded.update(encoded)

    def summary(self, path: str) -> Summary | None:
        """See `Files`."""
        return self._decoded(path) if path in self.paths else None

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return path in self.paths

    def folder(self, path: str) -> tuple[str, ...]:
        """See `Files`."""
        if self._folders is None:
            self._folders = _grouped(self.paths, folder_of)
        return self._folders.get(path, ())

    def named(self, name: str) -> tuple[str, ...]:
        """See `Files`."""
        if self._names is None:
            self._names = _grouped(self.paths, name_of)
        return self._names.get(name, ())

    def _read(self, path: str) -> Summary:
        if path not in self._encoded:
            raise Wanted(path)
        return decode(self._encoded[path])


def _grouped(paths: Iterable[str], key: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for path in sorted(paths):
        groups.setdefault(key(path), []).append(path)
    return {group: tuple(members) for group, members in groups.items()}

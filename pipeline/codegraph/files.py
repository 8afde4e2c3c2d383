"""The source files of a corpus as the linker sees them, over summaries that are handed in before they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import lru_cache

from pipeline.codegraph.summary import Summary, decode
from pipeline.errors import Wanted
from schemas.ids import number_of

DECODED = 256
"""Summaries that are kept as objects; the linker keeps what it makes of them by itself."""


_MARK = "\0"
_ASKED = 4  # bytes of what was asked; two questions that look alike cost a link too many

Touched = Mapping[int, frozenset[bytes] | None]
"""Reads whose answers a change may have changed, by number: what must have been asked there, or None for any read of it."""


def read_no(read: str) -> int:
    """Return the number under which it is stored that a file looked at this: see `Linked.reads`."""
    return number_of("read", read)


def read_of(place: str, *question: str) -> str:
    """Return the read that a question is: one about a file, or (`linker.asked.place_of`) about all files of a folder."""
    return _MARK.join((place, *question))


def all_of(path: str) -> str:
    """Return the read of everything that a file says."""
    return read_of(path, "")


def numbered(reads: Iterable[str]) -> dict[int, bytes]:
    """Return reads as they are stored: by number, with what was asked there."""
    return {read_no(place): b"".join(sorted(asked)) for place, (asked, _) in _by_place(reads).items()}


def joined(one: Mapping[int, bytes], other: Mapping[int, bytes]) -> dict[int, bytes]:
    """Return the reads that either holds."""
    found = dict(one)
    for number, asked in other.items():
        before = found.get(number, asked)
        found[number] = asked if before == asked else b"".join(sorted({*_parts(before), *_parts(asked)}))
    return found


def touched(reads: Iterable[str]) -> dict[int, frozenset[bytes] | None]:
    """Return reads whose answers may have changed as they are looked for."""
    places = _by_place(reads)
    return {read_no(place): None if itself else frozenset(asked) for place, (asked, itself) in places.items()}


def meets(asked: bytes, touched: frozenset[bytes] | None) -> bool:
    """Whether any of what was asked somewhere is touched."""
    return touched is None or not touched.isdisjoint(_parts(asked))


def _by_place(reads: Iterable[str]) -> dict[str, tuple[set[bytes], bool]]:
    """Return what is asked where, and whether the place itself is read."""
    found: dict[str, tuple[set[bytes], bool]] = {}
    for read in reads:
        place, mark, question = read.partition(_MARK)
        asked, itself = found.get(place) or (set[bytes](), False)
        if mark:
            asked.add(_number(question))
        found[place] = asked, itself or not mark
    return found


@lru_cache(100_000)
def _number(question: str) -> bytes:
    return number_of("asked", question).to_bytes(8, "big")[-_ASKED:]


def _parts(asked: bytes) -> Iterator[bytes]:
    return (asked[at : at + _ASKED] for at in range(0, len(asked), _ASKED))


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

    def package(self, path: str) -> str | None:
        """See `Files`."""
        summary = self.summary(path)
        return None if summary is None else summary.package

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

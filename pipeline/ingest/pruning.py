"""What keeps the cache of fetched repositories small: those go that no corpus names, and of the rest those least used."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.ingest.fetched import MAX_BYTES, OWNERS, bytes_of, key_of
from pipeline.ingest.revisions import place_of
from pipeline.tenancy import apart

GRACE = 600.0
"""Seconds after its last use in which a repository stays: who asked for it may not be known yet."""

FULL = MAX_BYTES * 3 // 4
"""Bytes from which a repository begins anew: commits pile up in it, and at MAX_BYTES it would take no more."""

_GONE = ".gone-"

Named = Callable[[Deadline], Awaitable[Mapping[str, bool]]]
"""Returns the locations of all repositories that are sources, each with whether a run that has not ended may read it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A repository in the cache: its name there, its bytes, when it was last used (seconds since the epoch), and for which
    sources it is there: itself, and those of which it is a submodule, by the names that they would have.
    """

    name: str
    size: int
    used: float
    owners: frozenset[str]


def surplus(held: Sequence[Held], most: int, named: Collection[str], busy: Collection[str], now: float) -> list[Held]:
    """Return what has to go so that at most `most` bytes stay: first what nobody names or is full, then the least used.

    What a run may read, and what was used just now, stays even where that is too much.
    """
    idle = [one for one in held if one.owners.isdisjoint(busy) and now - one.used > GRACE]
    gone = [one for one in idle if one.owners.isdisjoint(named) or one.size > FULL]
    left = sum(one.size for one in held) - sum(one.size for one in gone)
    for one in sorted((one for one in idle if one not in gone), key=lambda one: (one.used, one.name)):
        if left <= most:
            break
        gone.append(one)
        left -= one.size
    return gone


class Pruner:
    """Bounds the cache below a folder to so many bytes. Processes may do so at once."""

    def __init__(self, home: Path, most: int, named: Named) -> None:
        self._home = home
        self._most = most
        self._named = named

    async def prune(self, deadline: Deadline) -> int:
        """Remove what has to go, but for what is being read, and return the bytes that it had."""
        held = await anyio.to_thread.run_sync(held_in, self._home)
        if not held:
            return 0
        with apart():  # the cache is there for all tenants
            locations = await self._named(deadline)
        keys = {location: key_of(place.url or place.path) for location in locations for place in (place_of(location),)}
        busy = {keys[location] for location, open_ in locations.items() if open_}
        gone = surplus(held, self._most, set(keys.values()), busy, time.time())
        return await anyio.to_thread.run_sync(_remove, self._home, gone)


def held_in(home: Path) -> list[Held]:
    """Return all repositories of a cache. Blocking: for a thread."""
    found: list[Held] = []
    for folder in sorted(home.glob(f"{'?' * 32}.git")):
        try:
            used = (folder / "HEAD").stat().st_mtime
            owners = os.listdir(folder / OWNERS) if (folder / OWNERS).is_dir() else []
        except FileNotFoundError:  # it is being made, or removed
            continue
        found.append(Held(folder.stem, bytes_of(folder), used, frozenset([folder.stem, *owners])))
    return found


def _remove(home: Path, gone: Sequence[Held]) -> int:
    """Remove repositories that nobody reads, and what an earlier removal left; return their bytes."""
    freed = sum(one.size for one in gone if _set_aside(home / f"{one.name}.git"))
    for rest in home.glob(f"*{_GONE}*"):
        shutil.rmtree(rest, ignore_errors=True)
    return freed


def _set_aside(folder: Path) -> bool:
    """Take a folder away from its place unless somebody has a lock on it; with it goes the file that fetches take turns by,
    since whoever holds that has a lock on the folder, too.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.with_suffix(".lock").unlink(missing_ok=True)
        folder.rename(folder.with_suffix(f"{_GONE}{uuid.uuid4().hex}"))
    except OSError:  # it is being read, or has been removed
        return False
    finally:
        os.close(descriptor)
    return True

"""Vectors in this process: what `DenseIndex` and `DenseStore` mean, in plain loops. For tests and small experiments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import InconsistentGeneration
from pipeline.ports import DensePoint
from schemas.manifest import Manifest


@dataclass(frozen=True, slots=True)
class _Version:
    """A point as it is from the number `born` on, until `died`."""

    point: DensePoint
    born: int
    died: int | None = None

    def lives(self, void: Collection[int]) -> bool:
        """Whether nothing that counts has ended it."""
        return self.died is None or self.died in void

    def seen(self, number: int, void: Collection[int]) -> bool:
        """Whether a number sees it."""
        counts = self.born <= number and self.born not in void
        return counts and (self.lives(void) or (self.died or 0) > number)


@dataclass(slots=True)
class _Collection:
    dimension: int
    versions: dict[tuple[int, int], _Version]


class MemoryDense:
    """A `DenseIndex` and `DenseStore`. Each call works after its only await, so it happens as a whole or not at all."""

    def __init__(self) -> None:
        self._collections: dict[str, _Collection] = {}

    async def search(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        k: int,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        """See `DenseIndex`. A vector of zeros is near to nothing."""
        if not manifest.stores["dense"].rows or not vector.any():
            await _begin(deadline)
            return []
        wanted = None if allowed is None else set[int](allowed.tolist())
        hits = [hit for hit in await self._similar(manifest, vector, deadline) if wanted is None or hit[0] in wanted]
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]

    async def similarities(
        self, manifest: Manifest, vector: NDArray[np.float32], chunks: Sequence[int], deadline: Deadline
    ) -> dict[int, float]:
        """See `DenseIndex`."""
        if not chunks:
            return {}
        wanted = set(chunks)
        return {chunk: value for chunk, value in await self._similar(manifest, vector, deadline) if chunk in wanted}

    async def ensure(self, collection: str, dimension: int, deadline: Deadline) -> None:
        """See `DenseStore`. Raises InconsistentGeneration if it is there with another dimension."""
        await _begin(deadline)
        if self._collections.setdefault(collection, _Collection(dimension, {})).dimension != dimension:
            raise InconsistentGeneration("the dense collection is not the one that the manifest describes")

    async def write(
        self, collection: str, number: int, points: Sequence[DensePoint], void: Collection[int], deadline: Deadline
    ) -> None:
        """See `DenseStore`."""
        versions = await self._versions(collection, deadline)
        new = {(point.chunk_id, number): _Version(point, number) for point in points}
        _end(versions, number, {point.document for point in points}, void, but=new.keys())
        for key, version in new.items():
            if key not in versions or versions[key].lives(void):
                versions[key] = version

    async def remove(
        self, collection: str, number: int, documents: Sequence[str], void: Collection[int], deadline: Deadline
    ) -> None:
        """See `DenseStore`."""
        _end(await self._versions(collection, deadline), number, set(documents), void, but=())

    async def count(self, collection: str, number: int, void: Collection[int], deadline: Deadline) -> int:
        """See `DenseStore`."""
        return sum(one.seen(number, void) for one in (await self._versions(collection, deadline)).values())

    async def undo(self, collection: str, number: int, deadline: Deadline) -> None:
        """See `DenseStore`."""
        versions = await self._versions(collection, deadline)
        for key, one in list(versions.items()):
            if one.born == number:
                del versions[key]
            elif one.died == number:
                versions[key] = replace(one, died=None)

    async def revert(
        self, collection: str, target: int, number: int, void: Collection[int], deadline: Deadline
    ) -> None:
        """See `DenseStore`."""
        versions = await self._versions(collection, deadline)
        for key, one in list(versions.items()):
            then, now = one.seen(target, void), one.seen(number, void)
            if now and not then and one.born < number:
                versions[key] = replace(one, died=number)
            elif then and not now:
                versions.setdefault((key[0], number), _Version(one.point, number))

    async def reclaim(
        self, collection: str, kept: Collection[int], last: int, void: Collection[int], deadline: Deadline
    ) -> int:
        """See `DenseStore`."""
        versions = await self._versions(collection, deadline)
        found = 0
        for key, one in list(versions.items()):
            dead = not one.lives(void) and (one.died or 0) <= last
            if one.born in void or (dead and not any(one.seen(number, void) for number in kept)):
                del versions[key]
                found += 1
            elif one.died in void:
                versions[key] = replace(one, died=None)
        return found

    async def drop(self, collection: str, deadline: Deadline) -> None:
        """See `DenseStore`."""
        await _begin(deadline)
        self._collections.pop(collection, None)

    def rows(self, collection: str) -> int:
        """Return how many versions a collection holds, seen by somebody or not."""
        return len(self._collections[collection].versions)

    async def _versions(self, collection: str, deadline: Deadline) -> dict[tuple[int, int], _Version]:
        await _begin(deadline)
        if collection not in self._collections:
            raise InconsistentGeneration("there is no such dense collection")
        return self._collections[collection].versions

    async def _similar(
        self, manifest: Manifest, vector: NDArray[np.float32], deadline: Deadline
    ) -> list[tuple[int, float]]:
        """Return (chunk, similarity) of all that a generation sees."""
        versions = await self._versions(manifest.collection, deadline)
        named = manifest.collection.endswith(sha256(manifest.embedding.encode()).hexdigest()[:12])
        if not named or self._collections[manifest.collection].dimension != manifest.dimension:
            raise InconsistentGeneration("the dense collection is not the one that the manifest describes")
        seen = [one.point for one in versions.values() if one.seen(manifest.generation, manifest.void)]
        return [(point.chunk_id, _cosine(point.vector, vector)) for point in seen]


async def _begin(deadline: Deadline) -> None:
    deadline.budget(1.0)
    await anyio.lowlevel.checkpoint()


def _end(
    versions: dict[tuple[int, int], _Version],
    number: int,
    documents: Collection[str],
    void: Collection[int],
    but: Collection[tuple[int, int]],
) -> None:
    """Delete what a number bore of these documents, and let what lives of them die at it."""
    for key, one in list(versions.items()):
        if one.point.document in documents:
            if one.born == number and key not in but:
                del versions[key]
            elif one.born < number and one.lives(void):
                versions[key] = replace(one, died=number)


def _cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the cosine, and 0 where one has no direction."""
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0

"""Histories of vectors, and what each number of them sees: the plain truth that dense indexes and stores are held to.

Vectors are made of halves and quarters, so that every backend computes their cosines without rounding: ties are ties.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.generations.manifest import outside_name
from pipeline.ports import DenseIndex, DensePoint, DenseStore
from schemas.manifest import Manifest, StoreCheck

DIMENSION = 16
EMBEDDING = "halves/1"

Vector = NDArray[np.float32]
Documents = Mapping[str, Mapping[int, Vector]]
"""Chunks of documents with their vectors. As a step of a history: these documents are replaced, one without chunks ends."""

Seen = dict[int, Vector]
"""What a number sees: chunks with their vectors."""


class ExternalDense(DenseIndex, DenseStore, Protocol):
    """A store outside of PostgreSQL, with the index over it."""


class DenseWorld(Protocol):
    """An index and a way to fill it."""

    @property
    def index(self) -> DenseIndex:
        """The index under test."""
        ...

    async def follow(self, corpus: int, steps: Sequence[Documents]) -> list[Manifest]:
        """Publish the numbers 1, 2, … of a new corpus, one for each step, and return their manifests."""
        ...


@dataclass(frozen=True, slots=True)
class ExternalWorld:
    """A world of a store that is filled through its port."""

    store: ExternalDense

    @property
    def index(self) -> DenseIndex:
        """The index under test."""
        return self.store

    async def follow(self, corpus: int, steps: Sequence[Documents]) -> list[Manifest]:
        """See `DenseWorld`."""
        name = collection(corpus)
        await self.store.ensure(name, DIMENSION, soon())
        for number, step in enumerate(steps, 1):
            await change(self.store, name, number, step, ())
        return [described(name, number, len(seen)) for number, seen in enumerate(history(steps), 1)]


async def change(store: DenseStore, name: str, number: int, step: Documents, void: Collection[int]) -> None:
    """Write a step for a number."""
    await store.write(name, number, points(step, number), void, soon())
    await store.remove(name, number, [document for document, chunks in step.items() if not chunks], void, soon())


def points(step: Documents, number: int) -> list[DensePoint]:
    """Return the points of a step."""
    return [
        DensePoint(chunk, document, f"graph-{number}:{chunk}", vector)
        for document, chunks in step.items()
        for chunk, vector in chunks.items()
    ]


def history(steps: Sequence[Documents]) -> list[Seen]:
    """Return what each number sees."""
    now: dict[str, Mapping[int, Vector]] = {}
    found: list[Seen] = []
    for step in steps:
        now = {**now, **step}
        found.append({chunk: vector for chunks in now.values() for chunk, vector in chunks.items()})
    return found


def versions(steps: Sequence[Documents]) -> list[tuple[int, int, int | None, Vector]]:
    """Return the rows (chunk, born, died, vector) of a history in a table of versions."""
    rows: list[tuple[int, int, int | None, Vector]] = []
    for born, step in enumerate(steps, 1):
        for document, chunks in step.items():
            died = next((at for at, later in enumerate(steps, 1) if at > born and document in later), None)
            rows += [(chunk, born, died, vector) for chunk, vector in chunks.items()]
    return rows


def nearest(seen: Seen, vector: Vector, k: int, allowed: Collection[int] | None = None) -> list[tuple[int, float]]:
    """Return what a search must find; no vector may be of zeros."""
    hits = [(chunk, float(one @ vector)) for chunk, one in seen.items() if allowed is None or chunk in allowed]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:k]


def collection(corpus: int) -> str:
    """Return the name of a collection outside of PostgreSQL."""
    return outside_name(f"{corpus:032x}", 1, EMBEDDING)


def described(name: str, number: int, rows: int, void: Sequence[int] = ()) -> Manifest:
    """Return the manifest of a number that sees so many vectors."""
    return Manifest(
        corpus="c",
        generation=number,
        run_id="r",
        collection=name,
        dimension=DIMENSION,
        graph_id="g",
        policy="off",
        embedding=EMBEDDING,
        extraction="",
        analyzer="",
        stores={"dense": StoreCheck(rows=rows, checksum="0")},
        outcomes={},
        communities=0,
        levels=0,
        modularity=0.0,
        void=tuple(sorted(void)),
        promoted_at="",
    )


def halves(rng: np.random.Generator, count: int) -> list[Vector]:
    """Return unit vectors with four halves in random places, some of them negative."""
    found: list[Vector] = []
    for _ in range(count):
        vector = np.zeros(DIMENSION, dtype=np.float32)
        vector[rng.choice(DIMENSION, 4, replace=False)] = rng.choice([0.5, 0.5, -0.5], 4)
        found.append(vector)
    return found


def documents(seed: int, count: int, size: int = 5) -> dict[str, dict[int, Vector]]:
    """Return documents of `size` chunks each; the ids of chunks are spread over 63 bits and follow no order."""
    rng = np.random.default_rng(seed)
    return {
        f"folder/{at} ü.md": dict(zip(chunk_ids(f"{seed}/{at}", size), halves(rng, size), strict=True))
        for at in range(count)
    }


def chunk_ids(name: str, count: int) -> list[int]:
    """Return the ids of the chunks of a document."""
    digests = [sha256(f"{name}/{ordinal}".encode()).digest() for ordinal in range(count)]
    return [int.from_bytes(digest[:8], "big") >> 1 for digest in digests]


def soon() -> Deadline:
    """Return a deadline that no call in a test needs."""
    return Deadline.after(60)


def past() -> Deadline:
    """Return a deadline that has passed."""
    return Deadline.after(-1)

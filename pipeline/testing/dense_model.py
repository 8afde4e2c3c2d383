"""Any history of a store of vectors beside a plain-Python model of it: builds, aborts, zombies, rollbacks, reclaiming."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pipeline.testing.dense_worlds import (
    DIMENSION,
    Documents,
    ExternalDense,
    Seen,
    Vector,
    change,
    chunk_ids,
    described,
    halves,
    nearest,
    soon,
)

Op = tuple[str, int, int]
"""What to do, and two numbers that say to what."""

KINDS = ("write", "remove", "publish", "abort", "abandon", "zombie", "repeat", "rollback", "reclaim")

_VECTORS = halves(np.random.default_rng(7), 40)
_QUERIES = halves(np.random.default_rng(8), 2)
_DOCUMENTS = ("a", "b", "ab", "é")


def operations(most: int) -> SearchStrategy[list[Op]]:
    """Return lists of operations, at least half as long as they may be: short histories have no zombies."""
    kinds = st.sampled_from(("write", "write", "publish", "abandon", *KINDS))
    return st.lists(st.tuples(kinds, st.integers(0, 3), st.integers(0, 35)), min_size=most // 2, max_size=most)


async def verify(store: ExternalDense, name: str, number: int, seen: Seen, void: Collection[int] = ()) -> None:
    """Make sure that a number sees these vectors and no others."""
    assert await store.count(name, number, void, soon()) == len(seen), f"count of {number}"
    manifest = described(name, number, len(seen), sorted(void))
    for query in _QUERIES:
        found = await store.search(manifest, query, len(seen) + 3, None, soon())
        assert found == nearest(seen, query, len(seen)), f"what {number} sees"
        similar = await store.similarities(manifest, query, list(seen), soon())
        assert similar == dict(nearest(seen, query, len(seen))), f"similarities as {number} sees them"


@dataclass(slots=True)
class DenseMachine:
    """One collection of a store, beside what each number of it is to see.

    Between `begin` and its publication or end a number is open, and there is one at most. `zombies` were begun and never
    published, each with the void numbers that it knew of. `late` are the last writes for published numbers.
    """

    store: ExternalDense
    name: str
    last: int = 0
    current: int = 0
    open: int = 0
    building: dict[str, Mapping[int, Vector]] = field(default_factory=dict[str, Mapping[int, Vector]])
    published: dict[int, dict[str, Mapping[int, Vector]]] = field(
        default_factory=lambda: {0: dict[str, Mapping[int, Vector]]()}
    )
    void: set[int] = field(default_factory=set[int])
    zombies: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    late: dict[tuple[int, str], tuple[Documents, set[int]]] = field(
        default_factory=dict[tuple[int, str], tuple[Documents, set[int]]]
    )

    async def run(self, ops: list[Op]) -> None:
        """Do all of it, and compare after each."""
        await self.store.ensure(self.name, DIMENSION, soon())
        for kind, which, seed in ops:
            await self.do(kind, which, seed)
            await self.check()

    async def check(self) -> None:
        """Compare what the open number and each retained one see."""
        for number, documents in self.published.items():
            await verify(self.store, self.name, number, _seen(documents), {n for n in self.void if n <= number})
        if self.open:
            await verify(self.store, self.name, self.open, _seen(self.building), self.void)

    async def do(self, kind: str, which: int, seed: int) -> None:
        """Do one thing, or nothing where it makes no sense now."""
        if kind in ("write", "remove"):
            await self._change(_step(which, seed if kind == "write" else 0))
        elif kind in ("abort", "abandon") and self.open:
            await self._abort(undo=kind == "abort")
        elif kind == "publish" and self.open:
            self._publish()
        elif kind == "zombie" and self.zombies:
            number = sorted(self.zombies)[seed % len(self.zombies)]
            await change(self.store, self.name, number, _step(which, seed % 7), self.zombies[number])
        elif kind == "repeat" and self.late:
            (number, _), (step, void) = sorted(self.late.items())[seed % len(self.late)]
            await change(self.store, self.name, number, step, void)
        elif kind == "rollback":
            await self._rollback(seed)
        elif kind == "reclaim":
            await self._reclaim(seed)

    def _begin(self) -> None:
        if not self.open:
            self.last = self.open = self.last + 1
            self.building = dict(self.published[self.current])

    async def _change(self, step: Documents) -> None:
        self._begin()
        await change(self.store, self.name, self.open, step, self.void)
        self.building |= step
        self.late |= {(self.open, document): ({document: step[document]}, set(self.void)) for document in step}

    def _publish(self) -> None:
        self.published[self.open] = self.building
        self.current, self.open = self.open, 0

    async def _abort(self, *, undo: bool) -> None:
        number, self.open = self.open, 0
        self.zombies[number] = set(self.void)
        self.void.add(number)
        self.late = {key: value for key, value in self.late.items() if key[0] != number}
        if undo:
            await self.store.undo(self.name, number, soon())

    async def _rollback(self, seed: int) -> None:
        if self.open:
            await self._abort(undo=bool(seed % 2))
        target = sorted(self.published)[seed % len(self.published)]
        self._begin()
        await self.store.revert(self.name, target, self.open, self.void, soon())
        self.building = self.published[target]
        await self.check()
        self._publish()

    async def _reclaim(self, seed: int) -> None:
        """Give up some published numbers; what they alone saw is deleted, so nothing of theirs may come late any more."""
        kept = {number for number in self.published if number == self.current or seed >> (number % 5) & 1}
        self.published = {number: self.published[number] for number in sorted(kept)}
        self.late = {}
        open_too = {self.open} if self.open else set[int]()
        assert await self.store.reclaim(self.name, kept | open_too, self.last, self.void, soon()) >= 0
        assert await self.store.reclaim(self.name, kept | open_too, self.last, self.void, soon()) == 0


def _step(which: int, seed: int) -> Documents:
    """Return a document with some of its five chunks, or with none; equal arguments give equal vectors."""
    document = _DOCUMENTS[which]
    chosen = [chunk for at, chunk in enumerate(chunk_ids(document, 5)) if seed >> at & 1]
    return {document: {chunk: _VECTORS[(seed + at) % len(_VECTORS)] for at, chunk in enumerate(chosen)}}


def _seen(documents: Mapping[str, Mapping[int, Vector]]) -> Seen:
    return {chunk: vector for chunks in documents.values() for chunk, vector in chunks.items()}

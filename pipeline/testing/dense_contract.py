"""What every `DenseIndex` must do. Inherit, and give a `world`: an index and a way to fill it."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio
import numpy as np
import pytest

from pipeline.errors import DeadlineExceeded, InconsistentGeneration
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.dense_worlds import (
    DIMENSION,
    DenseWorld,
    Documents,
    Vector,
    documents,
    halves,
    history,
    nearest,
    past,
    soon,
)
from pipeline.testing.expecting import raises
from schemas.manifest import Manifest

_corpora = count(1)

QUERIES = halves(np.random.default_rng(19), 12)
ZERO: Vector = np.zeros(DIMENSION, dtype=np.float32)
ALL = {"a": dict.fromkeys(range(1, 4), QUERIES[0]), "b": {9: QUERIES[1]}}


class DenseIndexContract:
    """The suite."""

    @staticmethod
    async def published(world: DenseWorld, *steps: Documents) -> list[Manifest]:
        """Return the manifests of a new corpus."""
        return await world.follow(next(_corpora), steps)

    @pytest.mark.parametrize("k", [0, 1, 2, 7, 50, 149, 150, 151, 5000])
    async def test_the_nearest_come_first_and_ties_by_chunk_id(self, world: DenseWorld, k: int) -> None:
        """Most of 150 vectors tie with some other. `k` may be more than there are."""
        step = documents(1, 30)
        [manifest] = await self.published(world, step)
        for query in QUERIES:
            found = await world.index.search(manifest, query, k, None, soon())
            assert found == nearest(history([step])[0], query, k)

    @pytest.mark.parametrize("k", [1, 3, 399])
    async def test_of_many_equals_those_with_the_least_ids_are_found(self, world: DenseWorld, k: int) -> None:
        """400 chunks have the same vector."""
        same = {name: dict.fromkeys(chunks, QUERIES[0]) for name, chunks in documents(2, 80).items()}
        [manifest] = await self.published(world, same)
        expected = sorted(chunk for chunks in same.values() for chunk in chunks)[:k]
        assert await world.index.search(manifest, QUERIES[0], k, None, soon()) == [(one, 1.0) for one in expected]

    async def test_similarities_are_cosines(self, world: DenseWorld) -> None:
        """From -1 to 1, whatever the length of the query."""
        step = {"d": {1: QUERIES[0], 2: -QUERIES[0], 3: QUERIES[1]}}
        [manifest] = await self.published(world, step)
        expected = {1: 1.0, 2: -1.0, 3: float(QUERIES[0] @ QUERIES[1])}
        for query in (QUERIES[0], 4 * QUERIES[0]):
            found = await world.index.search(manifest, query, 3, None, soon())
            assert dict(found) == pytest.approx(expected, abs=1e-6)
            assert await world.index.similarities(manifest, query, [1, 2, 3], soon()) == pytest.approx(expected)

    async def test_a_collection_with_nothing_in_it(self, world: DenseWorld) -> None:
        """Nothing is near, and that is no error."""
        [manifest] = await self.published(world, {})
        assert await world.index.search(manifest, QUERIES[0], 5, None, soon()) == []
        assert await world.index.search(manifest, QUERIES[0], 5, np.array([1], dtype=np.int64), soon()) == []
        assert await world.index.similarities(manifest, QUERIES[0], [1], soon()) == {}

    async def test_a_vector_of_zeros_is_similar_to_nothing(self, world: DenseWorld) -> None:
        """As a query it finds nothing; stored, its similarity is 0."""
        [manifest] = await self.published(world, {"d": {1: QUERIES[0], 2: ZERO}})
        assert await world.index.search(manifest, ZERO, 5, None, soon()) == []
        assert await world.index.similarities(manifest, ZERO, [1, 2], soon()) == {1: 0.0, 2: 0.0}
        assert await world.index.search(manifest, QUERIES[0], 5, None, soon()) == [(1, 1.0), (2, 0.0)]
        assert await world.index.similarities(manifest, QUERIES[0], [1, 2], soon()) == {1: 1.0, 2: 0.0}

    async def test_a_filter_holds_within_the_search(self, world: DenseWorld) -> None:
        """None, one, some, all of them and strangers may be allowed; fewer than `k` are found only if there are fewer."""
        step = documents(3, 30)
        [manifest] = await self.published(world, step)
        [seen] = history([step])
        some = sorted(seen)[::7]
        for allowed in ([], some[:1], some, sorted(seen), [1, 2, 3], [*some, 1]):
            for query in QUERIES[:4]:
                found = await world.index.search(manifest, query, 20, np.array(allowed, dtype=np.int64), soon())
                assert found == nearest(seen, query, 20, allowed)

    async def test_a_generation_sees_its_own_versions_only(self, world: DenseWorld) -> None:
        """Documents change, end and come back, with the same chunk ids; each generation answers as it did at first."""
        first, other = documents(4, 8), documents(5, 8)
        moved = {
            name: dict(zip(chunks, halves(np.random.default_rng(6), 5), strict=True)) for name, chunks in first.items()
        }
        names = sorted(first)
        steps: list[Documents] = [
            first,
            {name: moved[name] for name in names[:4]},
            {name: {} for name in names[2:6]},
            {**{name: first[name] for name in names[:3]}, **{name: other[name] for name in sorted(other)[5:]}},
            {name: {} for name in names},
        ]
        manifests = await self.published(world, *steps)
        everything = sorted({chunk for seen in history(steps) for chunk in seen} | {7})
        for manifest, seen in zip(manifests, history(steps), strict=True):
            for query in QUERIES[:5]:
                assert await world.index.search(manifest, query, 100, None, soon()) == nearest(seen, query, 100)
                assert await world.index.search(manifest, query, 3, None, soon()) == nearest(seen, query, 3)
                similar = await world.index.similarities(manifest, query, everything, soon())
                assert similar == dict(nearest(seen, query, 100)), "what is not seen is missing"
                among = await world.index.search(manifest, query, 9, np.array(everything, dtype=np.int64), soon())
                assert among == nearest(seen, query, 9)

    async def test_corpora_are_apart(self, world: DenseWorld) -> None:
        """Equal chunk ids in two corpora are two things."""
        ours, theirs = {"d": {1: QUERIES[0], 2: QUERIES[1]}}, {"d": {1: QUERIES[2], 3: QUERIES[0]}}
        [one], [other] = await self.published(world, ours), await self.published(world, theirs)
        for manifest, step in ((one, ours), (other, theirs)):
            expected = nearest(history([step])[0], QUERIES[0], 9)
            assert await world.index.search(manifest, QUERIES[0], 9, None, soon()) == expected
            assert await world.index.similarities(manifest, QUERIES[0], [1, 2, 3], soon()) == dict(expected)

    async def test_similarities_of_few_repeated_and_unknown_chunks(self, world: DenseWorld) -> None:
        """What the collection lacks is missing; asked for nothing, it gives nothing."""
        [manifest] = await self.published(world, ALL)
        assert await world.index.similarities(manifest, QUERIES[0], [], soon()) == {}
        assert await world.index.similarities(manifest, QUERIES[0], [2**62, 2, 2, 5], soon()) == {2: 1.0}

    @pytest.mark.parametrize(
        "changes",
        [
            {"dimension": DIMENSION + 1},
            {"embedding": "another/1"},
            {"collection": "missing"},
            {"collection": 'dense"; drop table chunk; --'},
            {"collection": "../collections"},
            {"collection": ""},
        ],
    )
    async def test_a_manifest_that_describes_another_collection(
        self, world: DenseWorld, changes: dict[str, Any]
    ) -> None:
        """It is a defect, never an answer; the true manifest goes on being served."""
        [true] = await self.published(world, ALL)
        if changes.get("collection") == "missing":  # of the right form
            changes = {"collection": f"{true.collection[:-12]}{'0' * 12}"}
        false = true.model_copy(update=changes)
        for _ in range(2):
            await raises(InconsistentGeneration, world.index.search(false, QUERIES[0], 3, None, soon()))
            await raises(InconsistentGeneration, world.index.similarities(false, QUERIES[0], [1], soon()))
            assert len(await world.index.search(true, QUERIES[0], 9, None, soon())) == 4

    async def test_a_deadline_that_has_passed(self, world: DenseWorld) -> None:
        """Nothing is asked any more."""
        [manifest] = await self.published(world, ALL)
        await raises(DeadlineExceeded, world.index.search(manifest, QUERIES[0], 3, None, past()))
        await raises(DeadlineExceeded, world.index.similarities(manifest, QUERIES[0], [1], past()))

    async def test_a_cancelled_call_leaves_nothing_behind(self, world: DenseWorld) -> None:
        """At each of its awaits; afterwards the index is as good as before."""
        [manifest] = await self.published(world, ALL)
        expected = nearest(history([ALL])[0], QUERIES[0], 4)

        async def answers() -> None:
            assert await world.index.search(manifest, QUERIES[0], 4, None, soon()) == expected

        found = await cancelled_at_each_await(
            lambda: world.index.search(manifest, QUERIES[0], 4, None, soon()), answers
        )
        assert found == expected
        similar = await cancelled_at_each_await(
            lambda: world.index.similarities(manifest, QUERIES[0], [1, 9], soon()), answers
        )
        assert similar == {chunk: value for chunk, value in expected if chunk in (1, 9)}

    async def test_many_read_at_the_same_time(self, world: DenseWorld) -> None:
        """Each gets its own answer, while some are cancelled."""
        step = documents(7, 20)
        [manifest] = await self.published(world, step)
        [seen] = history([step])
        answered: list[int] = []

        async def read(at: int) -> None:
            query = QUERIES[at % len(QUERIES)]
            with anyio.move_on_after(0.001 if at % 5 == 4 else 60):
                assert await world.index.search(manifest, query, 10, None, soon()) == nearest(seen, query, 10)
                assert await world.index.similarities(manifest, query, list(seen), soon()) == dict(
                    nearest(seen, query, 1000)
                )
                answered.append(at)

        async with anyio.create_task_group() as group:
            for at in range(60):
                group.start_soon(read, at)
        assert len(answered) >= 48

"""What every `DenseStore` with its index must do. Inherit, and give an empty `store` and `rows`, which counts versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeAlias

import anyio
import numpy as np
import pytest

from pipeline.errors import DeadlineExceeded, InconsistentGeneration
from pipeline.ports import DensePoint
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.dense_model import verify
from pipeline.testing.dense_worlds import (
    DIMENSION,
    Documents,
    ExternalDense,
    Seen,
    Vector,
    change,
    collection,
    described,
    documents,
    halves,
    history,
    past,
    points,
    soon,
)
from pipeline.testing.expecting import raises

Rows: TypeAlias = Callable[[str], Awaitable[int]]

_corpora = count(10_000)

A, B, C, D = halves(np.random.default_rng(23), 4)
BASE: Documents = {"d": {1: A, 2: B}, "e": {3: C}}
NEXT: Documents = {"d": {2: C, 4: D}, "f": {5: A}}


def after(*steps: Documents) -> Seen:
    """Return what is seen after these steps."""
    return history(steps)[-1]


async def made(store: ExternalDense, *steps: Documents) -> str:
    """Return a new collection with these numbers in it."""
    name = collection(next(_corpora))
    await store.ensure(name, DIMENSION, soon())
    for number, step in enumerate(steps, 1):
        await change(store, name, number, step, ())
    return name


class DenseStoreContract:
    """The suite."""

    # Collections

    async def test_a_collection_is_made_once_however_often_and_concurrently(self, store: ExternalDense) -> None:
        """What is in it stays; another dimension is a defect."""
        name = collection(next(_corpora))
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(store.ensure, name, DIMENSION, soon())
        await change(store, name, 1, BASE, ())
        await store.ensure(name, DIMENSION, soon())
        await verify(store, name, 1, after(BASE))
        await raises(InconsistentGeneration, store.ensure(name, DIMENSION * 2, soon()))

    async def test_a_dropped_collection_is_gone_and_no_other(self, store: ExternalDense) -> None:
        """Dropped again it is no error; made again it is empty."""
        name, other = await made(store, BASE), await made(store, BASE)
        await verify(store, name, 1, after(BASE))
        for _ in range(2):
            await store.drop(name, soon())
        await raises(InconsistentGeneration, store.search(described(name, 1, 3), A, 3, None, soon()))
        await raises(InconsistentGeneration, store.count(name, 1, (), soon()))
        await verify(store, other, 1, after(BASE))
        await store.ensure(name, DIMENSION, soon())
        await verify(store, name, 1, {})

    async def test_nothing_can_be_done_to_a_collection_that_is_not_there(self, store: ExternalDense) -> None:
        """It is never made by the way."""
        name = collection(next(_corpora))
        for attempt in (
            store.write(name, 1, points(BASE, 1), (), soon()),
            store.remove(name, 1, ["d"], (), soon()),
            store.undo(name, 1, soon()),
            store.revert(name, 1, 2, (), soon()),
            store.reclaim(name, [1], 1, (), soon()),
            store.count(name, 1, (), soon()),
        ):
            await raises(InconsistentGeneration, attempt)

    # Writing

    async def test_a_batch_written_again_gives_the_same_points(self, store: ExternalDense, rows: Rows) -> None:
        """In any order, whole or document by document."""
        name = await made(store, BASE)
        for _ in range(2):
            await store.write(name, 2, points(NEXT, 2), (), soon())
            await store.write(name, 2, points(NEXT, 2)[::-1], (), soon())
            for document, chunks in NEXT.items():
                await store.write(name, 2, points({document: chunks}, 2), (), soon())
            await verify(store, name, 2, after(BASE, NEXT))
            await verify(store, name, 1, after(BASE))
            assert await rows(name) == 6

    async def test_documents_are_replaced_whole(self, store: ExternalDense) -> None:
        """A chunk that the new text lacks ends, one that it keeps gets the new vector; others stay; the past stays."""
        name = await made(store, BASE, NEXT)
        assert after(BASE, NEXT).keys() == {2, 3, 4, 5}
        await verify(store, name, 1, after(BASE))
        await verify(store, name, 2, after(BASE, NEXT))
        await verify(store, name, 0, {})

    async def test_the_last_write_of_a_number_counts(self, store: ExternalDense, rows: Rows) -> None:
        """A document written twice, removed after it was written, and written after it was removed."""
        name = await made(store, BASE)
        await change(store, name, 2, {"d": {1: D, 7: A}, "e": {}, "f": {8: A}}, ())
        await change(store, name, 2, {"d": {7: B}, "e": {9: D}, "f": {}}, ())
        await verify(store, name, 2, {7: B, 9: D})
        await verify(store, name, 1, after(BASE))
        assert await rows(name) == 5

    async def test_removal_of_what_is_and_is_not_there(self, store: ExternalDense) -> None:
        """Repeated it changes nothing, and the past stays."""
        name = await made(store, BASE)
        for _ in range(2):
            await store.remove(name, 2, ["d", "nobody"], (), soon())
            await store.remove(name, 2, [], (), soon())
            await store.write(name, 2, [], (), soon())
            await verify(store, name, 2, {3: C})
        await verify(store, name, 1, after(BASE))

    async def test_odd_names_and_great_numbers(self, store: ExternalDense) -> None:
        """Names are compared as they are, and 63 bits stay 63 bits."""
        names = ["a", "A", "a ", "a\n", 'a"b', "a'; --", "ä", "a\u0308", "x" * 3000, "*", "", "a/b.md", "null", "1"]
        step = {name: {2**63 - 1 - at: A} for at, name in enumerate(names)} | {"least": {0: B, 1: C}}
        name = await made(store, step)
        last = 2**31 - 1
        for at, one in enumerate(names):
            await store.remove(name, last - len(names) + at, [one], (), soon())
        await verify(store, name, 1, after(step))
        await verify(store, name, last, {0: B, 1: C})

    async def test_many_write_at_the_same_time(self, store: ExternalDense) -> None:
        """Different documents for one number, each written twice, while others read."""
        step = documents(31, 12)
        name = await made(store, {one: dict.fromkeys(chunks, A) for one, chunks in step.items()})

        async def read() -> None:
            await verify(store, name, 1, dict.fromkeys(after(step), A))

        async with anyio.create_task_group() as group:
            for document, chunks in [*step.items(), *step.items()]:
                group.start_soon(store.write, name, 2, points({document: chunks}, 2), (), soon())
                group.start_soon(read)
        await verify(store, name, 2, after(step))

    # Numbers that are never published

    async def test_an_undone_number_leaves_nothing(self, store: ExternalDense, rows: Rows) -> None:
        """What it bore is gone, what it killed lives; undone again it changes nothing."""
        name = await made(store, BASE)
        await change(store, name, 2, {**NEXT, "e": {}}, ())
        for _ in range(2):
            await store.undo(name, 2, soon())
            await verify(store, name, 1, after(BASE))
            await verify(store, name, 2, after(BASE))
            assert await rows(name) == 3

    async def test_a_void_number_counts_for_nothing_though_nobody_undid_it(self, store: ExternalDense) -> None:
        """Neither for readers nor for those who write after it. Without `void` it would."""
        name = await made(store, BASE)
        await change(store, name, 2, {**NEXT, "e": {}}, ())
        await verify(store, name, 3, after(BASE), {2})
        await verify(store, name, 3, {2: C, 4: D, 5: A})  # the control: 2 counted as published
        await change(store, name, 3, {"d": {1: D}}, {2})
        await verify(store, name, 3, {1: D, 3: C}, {2})
        await verify(store, name, 1, after(BASE))

    @pytest.mark.parametrize("undone", [False, True])
    async def test_zombies_of_void_numbers_change_nothing(self, store: ExternalDense, undone: bool) -> None:
        """Late writes and late deaths before, between and after the writes of the next number, and after the one after."""
        name = await made(store, BASE)
        await change(store, name, 2, NEXT, ())
        if undone:
            await store.undo(name, 2, soon())

        async def late() -> None:
            await change(store, name, 2, {**NEXT, "e": {}, "g": {9: A}}, ())

        await late()
        await change(store, name, 3, {"d": {1: D, 9: C}}, {2})
        await late()
        await change(store, name, 3, {"e": {3: A}, "g": {8: B}}, {2})
        await late()
        third = {1: D, 9: C, 3: A, 8: B}
        await verify(store, name, 3, third, {2})
        await change(store, name, 4, {"d": {}, "e": {3: B}}, {2})
        await late()
        await verify(store, name, 4, {3: B, 8: B}, {2})
        await verify(store, name, 3, third, {2})
        await verify(store, name, 1, after(BASE))

    async def test_a_late_write_of_a_published_number_revives_nothing(self, store: ExternalDense) -> None:
        """Two workers had the number; the slower one repeats itself after later numbers were published."""
        name = await made(store, BASE, NEXT, {"d": {}}, {"f": {5: D}})
        for number, step in ((1, BASE), (2, NEXT)):
            await change(store, name, number, step, ())
        await verify(store, name, 4, {3: C, 5: D})
        await verify(store, name, 3, {3: C, 5: A})
        await verify(store, name, 2, after(BASE, NEXT))
        await verify(store, name, 1, after(BASE))

    # Going back

    async def test_an_earlier_number_comes_back_and_goes_again(self, store: ExternalDense) -> None:
        """With the same vectors, also uneven ones; repeated it changes nothing; all numbers stay as they were."""
        rng = np.random.default_rng(3)
        first: Documents = {"d": {chunk: _uneven(rng) for chunk in range(1, 30)}, "e": {99: A}}
        name = await made(store, first, {"d": {2: B, 50: C}, "e": {}}, {"g": {60: D}})
        states = history([first, {"d": {2: B, 50: C}, "e": {}}, {"g": {60: D}}])
        for number, target in ((4, 1), (5, 3), (6, 1)):
            for _ in range(2):
                await store.revert(name, target, number, (), soon())
            then, now = described(name, target, 99), described(name, number, 99)
            for query in (A, _uneven(rng)):
                expected = dict(await store.search(then, query, 99, None, soon()))
                assert dict(await store.search(now, query, 99, None, soon())) == pytest.approx(expected, abs=1e-6)
            assert await store.count(name, number, (), soon()) == len(states[target - 1])
        await change(store, name, 7, {"d": {}}, ())
        await verify(store, name, 7, {99: A})
        await verify(store, name, 5, states[2])
        await verify(store, name, 2, states[1])

    async def test_going_back_passes_over_void_numbers(self, store: ExternalDense) -> None:
        """Those before the target, between, and zombies of them."""
        name = await made(store, BASE)
        await change(store, name, 2, {"d": {}, "x": {9: A}}, ())
        await change(store, name, 3, NEXT, {2})
        await change(store, name, 4, {"e": {}, "f": {}, "x": {9: B}}, {2})
        await change(store, name, 5, {"e": {3: D}, "x": {}}, {2, 4})  # what void numbers bore dies in earnest here
        void = {2, 4}
        await store.revert(name, 3, 6, void, soon())
        await verify(store, name, 6, after(BASE, NEXT), void)
        await change(store, name, 4, {"e": {}, "f": {}, "x": {9: B}}, {2})
        await store.revert(name, 1, 7, void, soon())
        await change(store, name, 2, {"d": {}, "x": {9: A}}, ())
        await verify(store, name, 7, after(BASE), void)
        await verify(store, name, 6, after(BASE, NEXT), void)
        await verify(store, name, 5, after(BASE, NEXT, {"e": {3: D}}), void)

    # Reclaiming

    async def test_reclaiming_leaves_what_kept_numbers_see_and_nothing_else(
        self, store: ExternalDense, rows: Rows
    ) -> None:
        """It says how many versions went; those that died after `last` stay."""
        name = await made(store, BASE, NEXT, {"d": {1: D}, "e": {}}, {"f": {}})
        assert await rows(name) == 7
        assert await store.reclaim(name, [1, 2, 3, 4], 4, (), soon()) == 0
        assert await store.reclaim(name, [4], 1, (), soon()) == 0
        assert await store.reclaim(name, [1, 4], 4, (), soon()) == 3  # 2 and 4 of `d`, and `f`, which 2 and 3 saw
        await verify(store, name, 1, after(BASE))
        await verify(store, name, 4, {1: D})
        assert await store.reclaim(name, [4], 2, (), soon()) == 2
        assert await store.reclaim(name, [4], 4, (), soon()) == 1
        assert await store.reclaim(name, [4], 4, (), soon()) == 0
        assert await rows(name) == 1
        await verify(store, name, 4, {1: D})

    async def test_reclaiming_takes_all_of_void_numbers(self, store: ExternalDense, rows: Rows) -> None:
        """What they bore goes, what they killed lives, also where only a later number is kept."""
        name = await made(store, BASE)
        await change(store, name, 2, {**NEXT, "e": {}}, ())
        assert await store.reclaim(name, [1], 2, {2}, soon()) == 3
        assert await rows(name) == 3
        for void in ({2}, set[int]()):  # it need not be remembered any more
            await verify(store, name, 3, after(BASE), void)
        await change(store, name, 3, {"d": {}, "e": {}}, ())
        await change(store, name, 4, {"d": {1: D}}, {3})
        assert await store.reclaim(name, [4], 4, {3}, soon()) == 2
        await verify(store, name, 4, {1: D, 3: C}, {3})
        assert await rows(name) == 2

    # Being left

    async def test_a_call_left_at_any_await_is_repeated_safely(self, store: ExternalDense, rows: Rows) -> None:
        """Each call, at each of its awaits; what was published is untouched all the while."""
        name = await made(store, BASE, NEXT)

        async def whole() -> None:
            await verify(store, name, 1, after(BASE))
            await verify(store, name, 2, after(BASE, NEXT))

        third: Documents = {"d": {1: D, 6: B}, "g": {7: C}}
        await cancelled_at_each_await(lambda: store.ensure(name, DIMENSION, soon()), whole)
        await cancelled_at_each_await(lambda: store.write(name, 3, points(third, 3), (), soon()), whole)
        await cancelled_at_each_await(lambda: store.remove(name, 3, ["e"], (), soon()), whole)
        await verify(store, name, 3, {1: D, 5: A, 6: B, 7: C})
        await cancelled_at_each_await(lambda: store.undo(name, 3, soon()), whole)
        await verify(store, name, 4, after(BASE, NEXT), {3})
        await cancelled_at_each_await(lambda: store.revert(name, 1, 4, {3}, soon()), whole)
        await verify(store, name, 4, after(BASE), {3})
        assert await cancelled_at_each_await(lambda: store.count(name, 4, {3}, soon()), whole) == 3
        await cancelled_at_each_await(lambda: store.reclaim(name, [1, 2, 4], 4, {3}, soon()), whole)
        await cancelled_at_each_await(lambda: store.reclaim(name, [4], 4, {3}, soon()))
        await verify(store, name, 4, after(BASE), {3})
        assert await rows(name) == 3
        await cancelled_at_each_await(lambda: store.drop(name, soon()))

    async def test_after_its_deadline_a_call_does_nothing(self, store: ExternalDense) -> None:
        """Nothing is begun."""
        name = await made(store, BASE)
        point = DensePoint(1, "d", "", B)
        for attempt in (
            store.ensure(name, DIMENSION, past()),
            store.write(name, 1, [point], (), past()),
            store.remove(name, 2, ["d"], (), past()),
            store.undo(name, 1, past()),
            store.revert(name, 0, 2, (), past()),
            store.reclaim(name, [], 1, {1}, past()),
            store.count(name, 1, (), past()),
            store.drop(name, past()),
        ):
            await raises(DeadlineExceeded, attempt)
        await verify(store, name, 2, after(BASE))


def _uneven(rng: np.random.Generator) -> Vector:
    vector = rng.normal(size=DIMENSION).astype(np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32)

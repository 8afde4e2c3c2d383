"""What pins must do, and the collector that respects them. The fixtures are those of `manifest_contract`."""

from __future__ import annotations

from functools import partial

import anyio

from pipeline.deadline import Deadline
from pipeline.generations.pins import PinStore
from pipeline.testing.cancelling import cancelled_at_each_await, overtaken_at_await
from pipeline.testing.manifest_contract import LONG, ManifestStore, build, draft, states, take
from pipeline.testing.rows import document
from schemas.ids import CorpusId, RunId


class PinContract:
    """The suite."""

    async def test_the_newest_are_kept_and_the_current_one_always(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Reclaiming is idempotent and says what it closed."""
        assert await store.collect(corpora[0], 0) == ()
        for turn in range(5):
            await build(store, corpora[0], f"d{turn}")
        assert await store.collect(corpora[0], 5) == ()
        assert await store.collect(corpora[0], 3) == (1, 2)
        assert await store.collect(corpora[0], 3) == ()
        assert await store.collect(corpora[0], 0) == (3, 4)
        assert (await store.read(corpora[0], 5))[1] == [f"d{turn}" for turn in range(5)]

    async def test_an_open_build_outlives_collection(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """What it bore stays, and what it ends stays for the others."""
        await build(store, corpora[0], "a")
        await build(store, corpora[0], "b")
        number = await store.begin(corpora[0], RunId("three"))
        await store.write(corpora[0], number, [document("c", [])], ["b"])
        await store.collect(corpora[0], 0)
        assert (await store.read(corpora[0], 2))[1] == ["a", "b"]
        await store.promote(corpora[0], number, draft("three"))
        assert (await store.read(corpora[0], number))[1] == ["a", "c"]

    async def test_a_pin_keeps_its_generation_from_being_reclaimed(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """As long as any holder has it; one given back, or never taken, keeps nothing."""
        made = [await build(store, corpora[0], f"d{turn}") for turn in range(3)]
        for holder in ("me", "you", "me"):
            assert await take(pins, corpora[0], 1, holder)
        assert await store.states(corpora[0]) == [(3, "current", 0), (2, "superseded", 0), (1, "superseded", 2)]
        assert await store.collect(corpora[0], 1) == (2,)
        await pins.drop([(corpora[0], 1)], "me", Deadline.after(10))
        assert await store.collect(corpora[0], 1) == ()
        assert await store.read(corpora[0], 1) == (made[0], ["d0"])
        for _ in range(2):
            await pins.drop([(corpora[0], 1), (corpora[0], 99)], "you", Deadline.after(10))
        await pins.drop([], "you", Deadline.after(10))
        assert await store.collect(corpora[0], 1) == (1,)

    async def test_a_pin_that_expired_keeps_nothing(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A crashed holder is waited for no longer than its lease; taken anew, it is a pin like any other."""
        for turn in range(3):
            await build(store, corpora[0], f"d{turn}")
        for number in (1, 2):
            assert await take(pins, corpora[0], number, lease=0.0)
        assert [live for *_, live in await store.states(corpora[0])] == [0, 0, 0]
        assert await take(pins, corpora[0], 2)
        assert await store.collect(corpora[0], 1) == (1,)
        assert not await take(pins, corpora[0], 1)

    async def test_only_what_is_readable_can_be_pinned(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A refused pin leaves nothing behind that could protect or hinder."""
        await build(store, corpora[0], "a")
        await store.abort(corpora[0], await store.begin(corpora[0], RunId("aborted")))
        await build(store, corpora[0], "b")
        await store.collect(corpora[0], 1)
        number = await store.begin(corpora[0], RunId("open"))
        granted = {n: await take(pins, corpora[0], n) for n in (0, 1, 2, 3, number, 99)}
        assert granted == {0: False, 1: False, 2: False, 3: True, number: False, 99: False}
        assert [live for *_, live in await store.states(corpora[0])] == [0, 1, 0, 0]

    async def test_renewing_extends_what_is_still_there(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """An expired pin that nobody collected is taken up again; one that is gone, or another's, is not."""
        for turn in range(3):
            await build(store, corpora[0], f"d{turn}")
        keys = [(corpora[0], number) for number in (1, 2, 3, 99)]
        assert await pins.renew([], "me", LONG, Deadline.after(10)) == set()
        assert await pins.renew(keys, "me", LONG, Deadline.after(10)) == set()
        assert await take(pins, corpora[0], 1, lease=0.0)
        assert await take(pins, corpora[0], 2, lease=0.0)
        assert await pins.renew(keys[:1], "me", LONG, Deadline.after(10)) == {keys[0]}
        assert await pins.renew(keys, "you", LONG, Deadline.after(10)) == set()
        assert await store.collect(corpora[0], 1) == (2,)
        assert await pins.renew(keys, "me", LONG, Deadline.after(10)) == {keys[0]}

    async def test_pins_and_reclaimers_never_both_win(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Who was granted a pin can read; who reclaimed had no pin in the way. Several rounds, since it is a race."""
        for turn in range(4):
            first = await build(store, corpora[0], f"d{turn}")
            await build(store, corpora[0], f"e{turn}")
            granted: list[bool] = []

            async def hold(holder: str, number: int, into: list[bool]) -> None:
                into.append(await take(pins, corpora[0], number, holder))

            async with anyio.create_task_group() as group:
                for n in range(4):
                    group.start_soon(hold, f"holder-{n}", first.generation, granted)
                    group.start_soon(store.collect, corpora[0], 1)
            if any(granted):
                assert (await store.read(corpora[0], first.generation))[0] == first
                for n in range(4):
                    await pins.drop([(corpora[0], first.generation)], f"holder-{n}", Deadline.after(10))
            else:
                assert (await states(store, corpora[0]))[first.generation] == "reclaimed"

    async def test_a_pin_at_each_await_of_the_collector(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The same race, moment by moment: a pin that comes in between is refused, or kept to."""
        await build(store, corpora[0], "a")
        granted: dict[int, bool] = {}
        reached, at = True, 0
        while reached:
            at += 1
            target = (await build(store, corpora[0], "a", mark=at)).generation - 1

            async def hold(number: int = target) -> None:
                granted[number] = await take(pins, corpora[0], number)

            closed, reached = await overtaken_at_await(partial(store.collect, corpora[0], 1), at, hold)
            assert not (granted.get(target) and target in closed), f"await {at}"
            if granted.get(target):
                assert (await store.read(corpora[0], target))[0].generation == target
                await pins.drop([(corpora[0], target)], "me", Deadline.after(10))

    async def test_readers_always_find_a_whole_generation(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """While builders and reclaimers are at work: what is current and gets pinned reads as it was promoted."""
        promoted = {1: await build(store, corpora[0], "d", mark=1)}
        name, done = promoted[1].corpus, False

        async def builders() -> None:
            nonlocal done
            for mark in range(2, 8):
                number = await store.begin(corpora[0], RunId("run"))
                await store.write(corpora[0], number, [document("d", [(f"d{mark}", "KNOWS", "Ada")])])
                promoted[number] = await store.promote(corpora[0], number, draft(mark=mark))
                await store.collect(corpora[0], 1)
            done = True

        async def read(holder: str) -> None:
            while not done:
                number = (await pins.current("default", name, Deadline.after(10))).generation
                assert number is not None
                if await take(pins, corpora[0], number, holder):
                    found, names = await store.read(corpora[0], number)
                    assert (found.generation, found.input_tokens, names) == (number, number, ["d"])
                    await pins.drop([(corpora[0], number)], holder, Deadline.after(10))

        async with anyio.create_task_group() as group:
            group.start_soon(builders)
            for holder in ("one", "two"):
                group.start_soon(read, holder)
        assert (await store.read(corpora[0], 7))[0] == promoted[7]

    async def test_aborting_and_collecting_may_be_left_at_any_await(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """What was begun is taken up by the next call; readers notice nothing, and a pin holds throughout."""
        made = [await build(store, corpora[0], f"d{turn}") for turn in range(3)]
        assert await take(pins, corpora[0], 1)
        number = await store.begin(corpora[0], RunId("run"))
        await store.write(corpora[0], number, [document("x", [])], ["d0", "d1"])

        async def unharmed() -> None:
            assert await store.read(corpora[0], 1) == (made[0], ["d0"])
            assert await store.read(corpora[0], 3) == (made[2], ["d0", "d1", "d2"])

        await cancelled_at_each_await(partial(store.abort, corpora[0], number), unharmed)
        await cancelled_at_each_await(partial(store.collect, corpora[0], 1), unharmed)
        expected = {4: "aborted", 3: "current", 2: "reclaimed", 1: "superseded"}
        assert await states(store, corpora[0]) == expected

    async def test_pinning_may_be_left_at_any_await(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A pin is there or not; renewing and giving back are repeated safely."""
        await build(store, corpora[0], "a")
        await build(store, corpora[0], "b")
        key = (corpora[0], 1)
        assert await cancelled_at_each_await(partial(take, pins, corpora[0], 1))
        assert await store.collect(corpora[0], 1) == ()
        renewed = await cancelled_at_each_await(lambda: pins.renew([key], "me", LONG, Deadline.after(10)))
        assert renewed == {key}
        await cancelled_at_each_await(lambda: pins.drop([key], "me", Deadline.after(10)))
        assert await store.collect(corpora[0], 1) == (1,)

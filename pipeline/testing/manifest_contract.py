"""What every store of generations and their manifests must do: numbers, promotion, rollback. Pins are in `pin_contract`.

Inherit, and give `store`, its `pins` (a `PinStore`) and two distinct `corpora` without generations as fixtures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound, PromotionConflict, PromotionRefused
from pipeline.generations.gate import Extracted, Policy
from pipeline.generations.manifest import Draft
from pipeline.generations.pins import PinStore
from pipeline.generations.rows import DocumentRows
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.expecting import raises
from pipeline.testing.rows import DIMENSION, FINGERPRINT, document
from schemas.ids import CorpusId, RunId
from schemas.manifest import Manifest

LONG = 600.0
"""Seconds of a lease that outlives a test; zero seconds are over at once."""

States = list[tuple[int, str, int]]


class ManifestStore(Protocol):
    """Generations of corpora, as index runs and the collector move them on. A call is a transaction of its own."""

    async def begin(self, corpus: CorpusId, run: RunId) -> int:
        """Return the number that the run builds. Raises NotFound, or Conflict if another run's build is open."""
        ...

    async def write(
        self, corpus: CorpusId, number: int, documents: Sequence[DocumentRows], removed: Sequence[str] = ()
    ) -> None:
        """Replace and remove documents in the build of this number."""
        ...

    async def promote(self, corpus: CorpusId, number: int, draft: Draft) -> Manifest:
        """Make the build current; the store names the draft's collection. Raises PromotionRefused, PromotionConflict."""
        ...

    async def rollback(self, corpus: CorpusId, target: int, number: int, run: RunId) -> Manifest:
        """Publish what the target holds under an open number. Raises NotFound, PromotionConflict."""
        ...

    async def abort(self, corpus: CorpusId, number: int) -> None:
        """Undo an open build; any other number is left alone."""
        ...

    async def collect(self, corpus: CorpusId, keep: int) -> tuple[int, ...]:
        """Close all but the newest `keep` generations to readers, as far as nobody holds them; return their numbers."""
        ...

    async def states(self, corpus: CorpusId) -> States:
        """Return (number, state, live pins) of all generations, newest first."""
        ...

    async def read(self, corpus: CorpusId, number: int) -> tuple[Manifest, list[str]]:
        """Return the manifest of a readable generation and the ids of its documents, sorted. Raises NotFound."""
        ...


def draft(run: str = "run", mark: int = 0, policy: Policy = "off", failed: int = 0) -> Draft:
    """Return what a build says of itself; `mark` tells one from another, and a semantic one that failed is refused."""
    return Draft(
        RunId(run), "", DIMENSION, f"graph-{mark}", policy, FINGERPRINT, "words", "words",
        extracted=Extracted(failed, failed, 0, failed), input_tokens=mark,
    )  # fmt: skip


async def build(
    store: ManifestStore, corpus: CorpusId, *names: str, removed: Sequence[str] = (), run: str = "run", mark: int = 0
) -> Manifest:
    """Do all the steps of a generation; a document is its name and a mark."""
    number = await store.begin(corpus, RunId(run))
    await store.write(corpus, number, [document(name, [(f"{name}{mark}", "KNOWS", "Ada")]) for name in names], removed)
    return await store.promote(corpus, number, draft(run, mark))


async def states(store: ManifestStore, corpus: CorpusId) -> dict[int, str]:
    """Return the state of each number; at most one is current, and at most one is open."""
    found = {number: state for number, state, _ in await store.states(corpus)}
    assert list(found) == sorted(found, reverse=True)
    count = Counter(found.values())
    assert count["current"] <= 1 and count["building"] <= 1, found
    return found


async def take(pins: PinStore, corpus: CorpusId, number: int, holder: str = "me", lease: float = LONG) -> bool:
    """Pin and tell whether that was granted, with the right manifest."""
    found = await pins.take((corpus, number), holder, lease, Deadline.after(10))
    assert found is None or found.generation == number
    return found is not None


class ManifestContract:
    """The suite."""

    async def test_numbers_grow_and_are_never_used_again(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Whatever becomes of them: published, aborted, rolled back to, reclaimed."""
        assert (await build(store, corpora[0], "a")).generation == 1
        assert await store.begin(corpora[0], RunId("two")) == 2
        await store.abort(corpora[0], 2)
        assert (await build(store, corpora[0], "b")).generation == 3
        await store.collect(corpora[0], 1)
        assert await store.begin(corpora[0], RunId("four")) == 4
        await store.abort(corpora[0], 4)
        assert (await build(store, corpora[0])).generation == 5
        expected = {5: "current", 4: "aborted", 3: "superseded", 2: "aborted", 1: "reclaimed"}
        assert await states(store, corpora[0]) == expected

    async def test_a_run_begins_once_and_alone(self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Asked again, it gets its number again; another has to wait until that is closed."""
        number = await store.begin(corpora[0], RunId("one"))
        assert await store.begin(corpora[0], RunId("one")) == number
        await raises(Conflict, store.begin(corpora[0], RunId("two")))
        await store.promote(corpora[0], number, draft("one"))
        assert await store.begin(corpora[0], RunId("two")) == number + 1
        await raises(Conflict, store.begin(corpora[0], RunId("one")))
        await store.abort(corpora[0], number + 1)
        assert await store.begin(corpora[0], RunId("one")) == number + 2

    async def test_only_promotion_publishes(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Until then, no reader sees anything of a build."""
        first = await build(store, corpora[0], "a", "b", mark=1)
        number = await store.begin(corpora[0], RunId("two"))
        await store.write(corpora[0], number, [document("c", [])], ["a"])
        assert await states(store, corpora[0]) == {2: "building", 1: "current"}
        assert await store.read(corpora[0], 1) == (first, ["a", "b"])
        await raises(NotFound, store.read(corpora[0], number))
        assert not await take(pins, corpora[0], number)
        made = await store.promote(corpora[0], number, draft("two", 2))
        assert await states(store, corpora[0]) == {2: "current", 1: "superseded"}
        assert await store.read(corpora[0], number) == (made, ["b", "c"])
        assert await store.read(corpora[0], 1) == (first, ["a", "b"])

    async def test_a_manifest_says_what_was_promoted(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Its number, its run, its draft, its rows; and the corpus names it as the current one."""
        made = await build(store, corpora[0], "a", "b", run="mine", mark=7)
        assert (made.generation, made.run_id, made.graph_id, made.input_tokens) == (1, "mine", "graph-7", 7)
        assert (made.stores["documents"].rows, made.stores["chunks"].rows) == (2, 2)
        assert made.stores["chunks"] == made.stores["dense"]
        assert made.collection and made.promoted_at and made.rolled_back_from is None
        same = await build(store, corpora[0], "a", "b", mark=7)
        assert same.stores == made.stores
        other = await build(store, corpora[0], "a", mark=8)
        assert other.stores["chunks"].rows == 2 and other.stores["chunks"] != made.stores["chunks"]
        corpus = await pins.current("default", made.corpus, Deadline.after(10))
        assert (corpus.corpus_id, corpus.name, corpus.generation) == (corpora[0], made.corpus, 3)

    async def test_a_generation_without_documents(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """It is one like any other, first or later."""
        empty = await build(store, corpora[0])
        assert await store.read(corpora[0], 1) == (empty, [])
        await build(store, corpora[0], "a")
        emptied = await build(store, corpora[0], removed=["a", "never"])
        assert emptied.stores == empty.stores and await store.read(corpora[0], 3) == (emptied, [])

    async def test_who_comes_too_late_to_promote_changes_nothing(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A number that is published, aborted, superseded, or none, is not open."""
        await build(store, corpora[0], "a", mark=1)
        await store.abort(corpora[0], await store.begin(corpora[0], RunId("aborted")))
        made = await build(store, corpora[0], "b", mark=3)
        before = await store.states(corpora[0])
        for number in (1, 2, 3, 4, 0, -1):
            await raises(PromotionConflict, store.promote(corpora[0], number, draft("late", 9)))
        assert await store.states(corpora[0]) == before
        assert await store.read(corpora[0], 3) == (made, ["a", "b"])

    async def test_what_the_gate_refuses_stays_open_and_unseen(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The previous generation stays current, and the mended build may try again."""
        first = await build(store, corpora[0], "a")
        number = await store.begin(corpora[0], RunId("bad"))
        await store.write(corpora[0], number, [document("b", [])])
        for _ in range(2):
            refused = await raises(
                PromotionRefused, store.promote(corpora[0], number, draft("bad", policy="semantic", failed=1))
            )
            assert "extraction_failure" in refused.codes
            assert await states(store, corpora[0]) == {2: "building", 1: "current"}
            assert await store.read(corpora[0], 1) == (first, ["a"])
        assert (await store.promote(corpora[0], number, draft("bad"))).generation == number

    async def test_manifests_stay_as_they_are_until_they_are_reclaimed(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Whatever comes after; then they cannot be read any more."""
        made = [await build(store, corpora[0], f"d{turn}", mark=turn) for turn in range(4)]
        number = await store.begin(corpora[0], RunId("back"))
        made.append(await store.rollback(corpora[0], 1, number, RunId("back")))
        for turn in range(4):
            assert await store.read(corpora[0], turn + 1) == (made[turn], [f"d{n}" for n in range(turn + 1)])
        assert await store.collect(corpora[0], 2) == (1, 2, 3)
        for gone in (1, 2, 3):
            await raises(NotFound, store.read(corpora[0], gone))
        assert await store.read(corpora[0], 4) == (made[3], ["d0", "d1", "d2", "d3"])
        assert await store.read(corpora[0], 5) == (made[4], ["d0"])

    async def test_a_rollback_publishes_what_the_target_said_under_a_new_number(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Only who, when and whence differ; it can be built upon and rolled back to."""
        first = await build(store, corpora[0], "a", "b", mark=1)
        await build(store, corpora[0], "a", "c", removed=["b"], mark=2)
        number = await store.begin(corpora[0], RunId("back"))
        made = await store.rollback(corpora[0], 1, number, RunId("back"))
        assert (made.generation, made.run_id, made.rolled_back_from) == (3, "back", 1)
        own = {"generation", "run_id", "rolled_back_from", "promoted_at", "outcomes", "void"}
        assert made.model_dump(exclude=own) == first.model_dump(exclude=own)
        assert await store.read(corpora[0], 3) == (made, ["a", "b"])
        assert await states(store, corpora[0]) == {3: "current", 2: "superseded", 1: "superseded"}
        await build(store, corpora[0], "d")
        assert (await store.read(corpora[0], 4))[1] == ["a", "b", "d"]
        number = await store.begin(corpora[0], RunId("forth"))
        await store.rollback(corpora[0], 2, number, RunId("forth"))
        assert (await store.read(corpora[0], 5))[1] == ["a", "c"]

    async def test_a_rollback_needs_an_earlier_generation_that_is_retained(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Not the current one, nor one that is open, aborted, reclaimed or unknown."""
        await build(store, corpora[0], "a")
        await store.abort(corpora[0], await store.begin(corpora[0], RunId("aborted")))
        made = await build(store, corpora[0], "b")
        await store.collect(corpora[0], 1)
        number = await store.begin(corpora[0], RunId("back"))
        before = await store.states(corpora[0])
        for target in (1, 2, 3, number, 99, 0, -1):
            await raises(NotFound, store.rollback(corpora[0], target, number, RunId("back")))
        assert await store.states(corpora[0]) == before
        assert await store.read(corpora[0], 3) == (made, ["a", "b"])

    async def test_a_rollback_needs_an_open_number(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Else it changes nothing: neither what the current generation holds nor what the target does."""
        first = await build(store, corpora[0], "a")
        second = await build(store, corpora[0], "b")
        for number in (1, 2, 3):
            await raises(PromotionConflict, store.rollback(corpora[0], 1, number, RunId("back")))
        assert await states(store, corpora[0]) == {2: "current", 1: "superseded"}
        assert await store.read(corpora[0], 1) == (first, ["a"])
        assert await store.read(corpora[0], 2) == (second, ["a", "b"])

    async def test_an_aborted_build_leaves_nothing_but_its_number(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Aborting again, or what is published or unknown, changes nothing."""
        first = await build(store, corpora[0], "a", "b")
        number = await store.begin(corpora[0], RunId("two"))
        await store.write(corpora[0], number, [document("a", []), document("c", [])], ["b"])
        for aborted in (number, number, 1, 99):
            await store.abort(corpora[0], aborted)
            assert await states(store, corpora[0]) == {2: "aborted", 1: "current"}
            assert await store.read(corpora[0], 1) == (first, ["a", "b"])
        again = await build(store, corpora[0])
        assert again.stores == first.stores and (await store.read(corpora[0], 3))[1] == ["a", "b"]

    async def test_corpora_are_apart(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Numbers, builds, pins and collections of one are nothing to the other."""
        mine, other = corpora
        for turn in range(2):
            await build(store, mine, f"d{turn}", mark=turn)
        number = await store.begin(mine, RunId("one"))
        assert await store.begin(other, RunId("one")) == 1
        await raises(PromotionConflict, store.promote(other, number, draft()))
        await raises(NotFound, store.rollback(other, 1, 1, RunId("one")))
        await store.abort(other, number)
        await raises(NotFound, store.read(other, 2))
        foreign = await store.promote(other, 1, draft("one"))
        assert not await take(pins, other, 2)
        assert await take(pins, other, 1)
        assert await pins.renew([(mine, 1)], "me", LONG, Deadline.after(10)) == set()
        await pins.drop([(mine, 1)], "me", Deadline.after(10))
        assert await store.collect(other, 0) == ()
        assert await store.states(other) == [(1, "current", 1)]
        assert await states(store, mine) == {3: "building", 2: "current", 1: "superseded"}
        assert await store.collect(mine, 1) == (1,)
        assert await store.read(other, 1) == (foreign, [])
        assert foreign.corpus != (await store.read(mine, 2))[0].corpus

    async def test_an_unknown_corpus_has_nothing(
        self, store: ManifestStore, pins: PinStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """It can not be begun; a name is good within its tenant."""
        nowhere = CorpusId(10**6)
        await raises(NotFound, store.begin(nowhere, RunId("run")))
        await raises(NotFound, store.promote(nowhere, 1, draft()))
        await raises(NotFound, store.read(nowhere, 1))
        await store.abort(nowhere, 1)
        assert await store.states(nowhere) == [] and await store.collect(nowhere, 0) == ()
        assert not await take(pins, nowhere, 1)
        name = (await build(store, corpora[0], "a")).corpus
        await raises(NotFound, pins.current("default", name + "?", Deadline.after(10)))
        await raises(NotFound, pins.current("elsewhere", name, Deadline.after(10)))

    async def test_of_many_runs_that_begin_at_once_one_does(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """However often each of them asks."""
        begun: list[tuple[str, int]] = []

        async def begin(run: str) -> None:
            try:
                begun.append((run, await store.begin(corpora[0], RunId(run))))
            except Conflict:
                return

        async with anyio.create_task_group() as group:
            for turn in range(12):
                group.start_soon(begin, f"run-{turn % 4}")
        assert len(set(begun)) == 1 and len(begun) == 3
        assert await states(store, corpora[0]) == {1: "building"}

    async def test_of_many_that_promote_at_once_one_does(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A build and rollbacks under its number, at the same instant: the manifest is the winner's."""
        await build(store, corpora[0], "a", mark=1)
        await build(store, corpora[0], "b", mark=2)
        number = await store.begin(corpora[0], RunId("run"))
        await store.write(corpora[0], number, [document("c", [])])
        won: list[Manifest] = []

        async def promote(turn: int) -> None:
            try:
                if turn % 2:
                    won.append(await store.rollback(corpora[0], 1, number, RunId("run")))
                else:
                    won.append(await store.promote(corpora[0], number, draft(mark=turn + 10)))
            except PromotionConflict:
                return

        async with anyio.create_task_group() as group:
            for turn in range(8):
                group.start_soon(promote, turn)
        assert len(won) == 1, won
        made = won[0]
        names = ["a"] if made.rolled_back_from else ["a", "b", "c"]
        assert await store.read(corpora[0], number) == (made, names)
        assert await states(store, corpora[0]) == {3: "current", 2: "superseded", 1: "superseded"}

    async def test_beginning_may_be_left_at_any_await(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The run that asks again gets the number it had, if it had one: none is lost."""
        assert await cancelled_at_each_await(partial(store.begin, corpora[0], RunId("run"))) == 1
        assert await states(store, corpora[0]) == {1: "building"}

    async def test_promoting_may_be_left_at_any_await(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """There is one current generation at every moment, whole, and in the end it is the new one."""
        first = await build(store, corpora[0], "a")
        number = await store.begin(corpora[0], RunId("two"))
        await store.write(corpora[0], number, [document("b", [])])

        async def promote() -> None:
            if (await states(store, corpora[0]))[number] == "building":
                await store.promote(corpora[0], number, draft("two", 2))

        async def one_is_current() -> None:
            found = await states(store, corpora[0])
            assert found in ({2: "building", 1: "current"}, {2: "current", 1: "superseded"})
            assert await store.read(corpora[0], 1) == (first, ["a"])

        await cancelled_at_each_await(promote, one_is_current)
        made, names = await store.read(corpora[0], number)
        assert (made.run_id, made.input_tokens, names) == ("two", 2, ["a", "b"])

    async def test_rolling_back_may_be_left_at_any_await(
        self, store: ManifestStore, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Nothing of the target is published in part, and nothing of the current one is lost."""
        await build(store, corpora[0], "a")
        second = await build(store, corpora[0], "b", removed=["a"])
        number = await store.begin(corpora[0], RunId("back"))

        async def rollback() -> None:
            if (await states(store, corpora[0]))[number] == "building":
                await store.rollback(corpora[0], 1, number, RunId("back"))

        async def both_are_whole() -> None:
            assert (await store.read(corpora[0], 1))[1] == ["a"]
            assert await store.read(corpora[0], 2) == (second, ["b"])

        await cancelled_at_each_await(rollback, both_are_whole)
        made, names = await store.read(corpora[0], number)
        assert (made.rolled_back_from, names) == (1, ["a"])

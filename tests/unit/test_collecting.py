"""The garbage collector while a worker works: it looks seldom, and everything is as before when the work is done."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pipeline.ingest.child import YOUNG
from worker.process import collecting_seldom

BEFORE = (701, 11, 9)


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Begin with thresholds that nobody else sets, and nothing frozen."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.unfreeze()
    gc.set_threshold(*BEFORE)
    yield
    gc.set_threshold(*before)
    if frozen:
        gc.freeze()


def test_what_is_there_is_left_out_and_comes_back() -> None:
    """Also where the work ends with an error."""
    with pytest.raises(RuntimeError), collecting_seldom():
        assert gc.get_threshold() == YOUNG
        assert gc.get_freeze_count() > 1000
        raise RuntimeError
    assert gc.get_threshold() == BEFORE
    assert gc.get_freeze_count() == 0


def test_what_was_frozen_before_stays_so() -> None:
    gc.freeze()
    try:
        with collecting_seldom():
            assert gc.get_threshold() == YOUNG
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


def test_work_within_work_changes_nothing() -> None:
    """The outer one ends it."""
    with collecting_seldom():
        with collecting_seldom():
            assert gc.get_threshold() == YOUNG
        assert gc.get_threshold() == YOUNG
        assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == BEFORE


def test_a_whole_batch_is_not_looked_through() -> None:
    """Ten thousand objects that live on are made without one collection; by default it would be a dozen."""
    runs: list[str] = []

    def count(phase: str, info: dict[str, int]) -> None:
        runs.append(phase)

    with collecting_seldom():
        gc.collect()
        gc.callbacks.append(count)
        try:
            kept = [[number] for number in range(10_000)]
        finally:
            gc.callbacks.remove(count)
    assert len(kept) == 10_000
    assert not runs

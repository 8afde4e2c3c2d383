"""The decisions of the run protocol."""

from __future__ import annotations

import pytest

from pipeline.errors import FencedOut, StoreUnavailable
from pipeline.protocol import Facts, Verdict, backoff, farewell, first_error, judge, last_words, storable
from schemas.events import Cancelled, Expired, Failed, Progress, Unchanged
from schemas.runs import RunState


def facts(state: RunState, **changes: object) -> Facts:
    values: dict[str, object] = {"lost": False, "late": False, "cancel_requested": False, "doom": "", "crash_count": 0}
    return Facts(state=state, **{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [state for state in RunState if state.terminal])
def test_what_has_ended_stays_as_it_is(state: RunState) -> None:
    assert judge(facts(state, lost=True, late=True, cancel_requested=True), 5) == Verdict()


def test_a_living_owner_ends_its_own_unit() -> None:
    assert judge(facts(RunState.RUNNING, late=True, cancel_requested=True), 5) == Verdict()


def test_a_lost_unit_is_queued_anew_until_it_has_crashed_too_often() -> None:
    assert judge(facts(RunState.RUNNING, lost=True, crash_count=3), 5) == Verdict(requeue=True, crashes=1)
    last = judge(facts(RunState.RUNNING, lost=True, crash_count=4), 5)
    assert (last.state, last.requeue, last.crashes) == (RunState.FAILED, False, 1)
    assert "5 times" in last.error


def test_a_lost_unit_that_was_to_stop_is_not_queued_anew() -> None:
    assert judge(facts(RunState.RUNNING, lost=True, cancel_requested=True), 5).state is RunState.CANCELLED
    assert judge(facts(RunState.RUNNING, lost=True, doom="failed"), 5).state is RunState.CANCELLED
    assert judge(facts(RunState.RUNNING, lost=True, late=True), 5).state is RunState.EXPIRED


def test_queued_and_waiting_units_end_by_cancel_or_deadline_only() -> None:
    assert judge(facts(RunState.QUEUED), 5) == Verdict()
    assert judge(facts(RunState.QUEUED, cancel_requested=True), 5).state is RunState.CANCELLED
    assert judge(facts(RunState.QUEUED, late=True), 5).state is RunState.EXPIRED
    assert judge(facts(RunState.WAITING, late=True), 5).state is RunState.EXPIRED
    assert judge(facts(RunState.WAITING, late=True, doom="cancelled", cancel_requested=True), 5) == Verdict()


def test_every_end_has_exactly_one_final_event() -> None:
    note = Progress(stage="x", done=1, total=2)
    done = Unchanged(generation=1, outcomes={})
    assert last_words([note], None, "", "") == [note]
    assert last_words([note, done], RunState.COMPLETED, "", "") == [note, done]
    assert last_words([note], RunState.CANCELLED, "", "why") == [note, Cancelled(reason="why")]
    assert farewell(RunState.FAILED, "ModelError: it said: no", "") == Failed(code="ModelError", message="it said: no")
    assert farewell(RunState.EXPIRED, "", "") == Expired()
    for bodies, state in (([done], None), ([done, note], RunState.COMPLETED), ([note], RunState.COMPLETED)):
        with pytest.raises(ValueError, match="final event"):
            last_words(bodies, state, "", "")


def test_retries_wait_longer_and_longer_up_to_a_cap() -> None:
    assert [backoff(attempts) for attempts in (0, 1, 2, 3, 50)] == [0.5, 1.0, 2.0, 4.0, 30.0]


def test_a_group_is_explained_by_its_first_final_error() -> None:
    final = FencedOut()
    group = BaseExceptionGroup("", [StoreUnavailable(), BaseExceptionGroup("", [final, ValueError()])])
    assert first_error(group) is final


def test_what_a_run_says_of_itself_can_be_stored() -> None:
    """NUL and lone surrogates, as an error about a strange file may hold, do not keep a run from being closed."""
    assert storable("a\0b \udc80 \U0001f600 ok") == "ab ? \U0001f600 ok"

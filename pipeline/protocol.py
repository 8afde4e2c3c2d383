"""The decisions of the run protocol, apart from any store: what becomes of a unit, and how a run takes its leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from schemas.events import TERMINAL_TYPES, Cancelled, Expired, Failed
from schemas.query import Wire
from schemas.runs import RunState


@dataclass(frozen=True, slots=True)
class Facts:
    """What a sweeper sees of a unit under its lock. `doom` is that of its root run, for which a batch has to stop."""

    state: RunState
    lost: bool
    late: bool
    cancel_requested: bool
    doom: str
    crash_count: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a sweeper does: queue a lost unit anew (`requeue`), or end it in `state`; neither if all is well."""

    requeue: bool = False
    state: RunState | None = None
    error: str = ""
    crashes: int = 0


def judge(facts: Facts, max_crashes: int) -> Verdict:
    """Return what becomes of a unit that looked overdue.

    A unit whose owner lives is left to it, cancelled or late as it may be: the owner ends it, and its server-side work.
    """
    if facts.state.terminal or (facts.state is RunState.RUNNING and not facts.lost):
        return Verdict()
    crashes = int(facts.state is RunState.RUNNING)
    if facts.state is not RunState.WAITING and (facts.cancel_requested or facts.doom):
        return Verdict(state=RunState.CANCELLED, crashes=crashes)
    if facts.late and not facts.doom:
        return Verdict(state=RunState.EXPIRED, crashes=crashes)
    if facts.state is not RunState.RUNNING:
        return Verdict()
    if facts.crash_count + 1 >= max_crashes:
        error = f"RunFailed: Its worker was lost {facts.crash_count + 1} times; it is not tried again."
        return Verdict(state=RunState.FAILED, error=error, crashes=1)
    return Verdict(requeue=True, crashes=1)


def farewell(state: RunState, error: str, reason: str) -> Wire:
    """Return the final event of a run that did not complete.

    Raises:
        ValueError: a completed run says itself what it achieved.
    """
    if state is RunState.FAILED:
        code, _, message = error.partition(": ")
        return Failed(code=code, message=message)
    if state is RunState.CANCELLED:
        return Cancelled(reason=reason)
    if state is RunState.EXPIRED:
        return Expired()
    raise ValueError(f"a run that ends as {state.value} needs a final event of its own")


def last_words(bodies: Sequence[Wire], state: RunState | None, error: str, reason: str) -> list[Wire]:
    """Return the events of a root run's transaction, ended by exactly one final event if the run ends with it.

    Raises:
        ValueError: a final event that is not the last or does not go with an end, or none for a completed run.
    """
    said = [index for index, body in enumerate(bodies) if getattr(body, "type", "") in TERMINAL_TYPES]
    ends = state is not None and state.terminal
    if not ends and said:
        raise ValueError("a final event goes with the end of its run")
    if said and said != [len(bodies) - 1]:
        raise ValueError("nothing follows a final event")
    return [*bodies, farewell(state, error, reason)] if ends and not said and state is not None else list(bodies)


def storable(text: str) -> str:
    """Return a text as PostgreSQL can hold it: without NUL, and with `?` for lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def storable_json(value: Any) -> Any:
    """Return a JSON value with all its texts storable; the very same value if they are, which is cheap to find out."""
    try:
        if b"\\u0000" not in orjson.dumps(value):
            return value
    except TypeError:  # lone surrogates, among other things
        pass
    return _cleaned(value)


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {_cleaned(name): _cleaned(one) for name, one in pairs}
        case list() | tuple():
            return [_cleaned(one) for one in cast("Sequence[object]", value)]
        case _:
            return value


def digest_of(request: Mapping[str, Any]) -> bytes:
    """Return what tells a request from others: the SHA-256 of its canonical JSON.

    Leave out what has its default value, so that a field which a newer program adds changes the digest of no old request.
    """
    return hashlib.sha256(json.dumps(request, sort_keys=True, separators=(",", ":")).encode()).digest()


def backoff(attempts: int, cap: float = 30.0) -> float:
    """Return the seconds to wait before the next try after so many failures: 0.5, 1, 2, … up to the cap."""
    return min(cap, 0.5 * 2.0 ** min(attempts, 16))


def first_error(error: BaseException) -> BaseException:
    """Return the one error that explains a group: the first that is final, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return min(map(first_error, group.exceptions), key=lambda leaf: bool(getattr(leaf, "retryable", False)))

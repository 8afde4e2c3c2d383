"""Telling receivers how runs ended: what is sent, what an answer means, and when to try again.

At least once: a delivery is in the outbox from the commit that ended its run, is leased for each attempt, and leaves
only when it is answered with 2xx or given up for everybody to see. Every attempt carries the same `webhook-id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol

import structlog

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, Refused, Unreachable
from schemas.signatures import sign
from schemas.webhooks import Message, SigningSecret

ATTEMPT_SECONDS = 10.0
"""How long a receiver may take to answer."""

GONE = 410
"""The status with which a receiver says that it wants to hear no more."""

BUSY = frozenset({429, 503})
"""Statuses that speak of the receiver, not of the message: what they ask for holds for all messages."""

_log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What became of an attempt; gone: given up, and the webhook is disabled."""

    DELIVERED = "delivered"
    RETRIED = "retried"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Pace:
    """When a delivery is tried again: after `first` seconds, each time `factor` times later, at most `most`; then never.

    Ten attempts of the usual pace are spread over 20 hours; the last pauses are six hours each, give or take a quarter.
    """

    first: float = 5.0
    factor: float = 4.0
    most: float = 6 * 3600.0
    attempts: int = 10

    def pause(self, attempt: int, chance: float) -> float:
        """Return the seconds after this attempt, the first being 1; `chance` from [0, 1) spreads them by a quarter."""
        usual = self.first * self.factor ** (min(attempt, self.attempts) - 1)
        return min(usual, self.most) * (0.75 + chance / 2)


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery that this process has taken, until its lease ends. The newest of its secrets is the first."""

    delivery_id: int
    attempt: int
    webhook_id: str
    url: str
    secrets: tuple[SigningSecret, ...]
    message_id: str
    message: Message


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be noted of an attempt. `status` is that of the answer, if there was one; `pause` is for a retry, `hold` for
    all else that the webhook is to be told, since its receiver has too much. Both are seconds.
    """

    outcome: Outcome
    status: int | None
    error: str = ""
    pause: float = 0.0
    hold: float = 0.0


@dataclass(frozen=True, slots=True)
class Places:
    """Attempts at a time in one process: in all, to the webhooks of one tenant, and to one webhook. Receivers that hang hold
    no more places than these.
    """

    at_once: int = 32
    per_tenant: int = 16
    per_webhook: int = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What is read of an answer: its status, and the header `Retry-After`, or nothing."""

    status: int
    retry_after: str = ""


class Deliveries(Protocol):
    """The outbox of deliveries."""

    async def claim(self, busy: Mapping[str, int], places: Places, deadline: Deadline) -> list[Due]:
        """Take what is due, by the webhook at most as many as there are places beside those that are `busy`; first for the
        tenants that have the fewest.
        """
        ...

    async def settle(self, due: Due, verdict: Verdict, deadline: Deadline) -> bool:
        """Note how an attempt ended; False where the delivery was another's by now."""
        ...

    async def forget(self, deadline: Deadline) -> int:
        """Remove deliveries that ended days ago; return how many."""
        ...


class Sender(Protocol):
    """Sends messages to the web."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> Answer:
        """Post a body and return what is read of the answer.

        Raises:
            Refused: the URL leads where no message may go.
            Unreachable: there was no answer.
            DeadlineExceeded: there was none in time.
        """
        ...


def wanted(retry_after: str, now: float) -> float:
    """Return the seconds that a header `Retry-After` asks for, a number of them or a date; 0 if it asks for none."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0


def judge(status: int | None, problem: str, attempt: int, pace: Pace, chance: float, wish: float = 0.0) -> Verdict:
    """Return what an answer, or in its stead a problem, means for a delivery; the receiver's `wish` for a pause, in seconds,
    is granted up to the longest of the pace, but hurries nothing.
    """
    if status is not None and 200 <= status < 300:
        return Verdict(Outcome.DELIVERED, status)
    error, wish = problem or f"the receiver answered {status}", min(wish, pace.most)
    if status == GONE:
        return Verdict(Outcome.GONE, status, error)
    hold = wish if status in BUSY else 0.0
    if attempt >= pace.attempts:
        return Verdict(Outcome.FAILED, status, error, hold=hold)
    return Verdict(Outcome.RETRIED, status, error, max(pace.pause(attempt, chance), wish), hold)


async def attempt(due: Due, sender: Sender, pace: Pace, now: float, chance: float) -> Verdict:
    """Post a delivery once, signed at `now` (UNIX time), and judge the answer; it never raises but for a cancellation."""
    problem, status, wish = "", None, 0.0
    try:
        body = due.message.model_dump_json().encode()
        headers = sign([secret.reveal() for secret in due.secrets], due.message_id, int(now), body)
        answer = await sender.post(due.url, headers, body, Deadline.after(ATTEMPT_SECONDS))
        status, wish = answer.status, wanted(answer.retry_after.strip(), now)
    except DeadlineExceeded:
        problem = f"no answer within {ATTEMPT_SECONDS:g} s"
    except (Refused, Unreachable) as error:
        problem = str(error)
    except Exception as error:
        # Whatever a stranger's URL or server breaks, it is this delivery's alone: a worker must not end of it.
        _log.error("webhook.broke_down", message=due.message_id, error=type(error).__name__)
        problem = f"the attempt broke down ({type(error).__name__})"
    return judge(status, problem, due.attempt, pace, chance, wish)

"""Webhooks: where the end of runs is told, what is sent there, and how each delivery stands."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from schemas.query import Wire
from schemas.signatures import PREFIX


class Kind(StrEnum):
    """Kinds of runs that have an end to be told."""

    INDEX = "index"
    QUERY = "query"


class Ending(StrEnum):
    """The final events of runs, by type."""

    PROMOTED = "promoted"
    UNCHANGED = "unchanged"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class DeliveryState(StrEnum):
    """How a delivery stands: to be tried (again), taken by the receiver, or given up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


PING = "ping"
"""The type of a message that somebody asked for to try a webhook out."""


class Message(Wire):
    """The body of a delivery: the final event of a run as in the event log, with its type in front.

    A ping has no run, and `{"type": "ping"}` for a body.
    """

    type: str
    version: Literal[1] = 1
    run_id: str | None
    corpus: str | None
    seq: int | None
    at: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """What signs the messages of a webhook: 256 random bits. Receiver and database keep it; it is shown once."""

    key: bytes = field(repr=False)

    @classmethod
    def new(cls) -> SigningSecret:
        """Return a secret that nobody has."""
        return cls(secrets.token_bytes(32))

    def reveal(self) -> str:
        """Return the text that its receiver keeps: for the one who asked for it, and for no log."""
        return PREFIX + base64.b64encode(self.key).decode()


class Webhook(Wire):
    """A webhook as people see it: who is told of which endings of which runs.

    No `corpus` means all of the tenant. `disabled_reason` is empty while it is enabled. Until `rotating_until` messages are
    signed with the former secret too. Times are UTC ISO strings.
    """

    webhook_id: str
    tenant: str
    corpus: str | None
    url: str
    kinds: tuple[Kind, ...]
    events: tuple[Ending, ...]
    enabled: bool
    disabled_reason: str
    rotating_until: str | None
    created_at: str


class Delivery(Wire):
    """A delivery as people see it. `message_id` is what the receiver gets as `webhook-id`, in every repetition.

    `status` is the HTTP status of the last answer, `error` what was wrong with the last try. While it is pending, the next
    try is at `due_at`, or one is under way until then.
    """

    delivery_id: int
    message_id: str
    type: str
    run_id: str | None
    seq: int | None
    state: DeliveryState
    attempts: int
    status: int | None
    error: str
    due_at: str
    created_at: str
    finished_at: str | None

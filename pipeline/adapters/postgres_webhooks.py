"""Webhooks and the outbox of their deliveries, in PostgreSQL. A trigger fills it, in the transaction that ends a run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound, Refused
from pipeline.ports import Tx
from pipeline.queries import load
from pipeline.webhooks import Due, Outcome, Places, Verdict
from schemas.webhooks import PING, Delivery, DeliveryState, Ending, Kind, Message, SigningSecret, Webhook

_SQL = load("webhooks")

MOST = 32
"""Webhooks that a tenant may have."""

ROTATION_SECONDS = 24 * 3600.0
"""How long messages are signed with the former secret too."""

LEASE_SECONDS = 20.0
"""After which another worker repeats an attempt; more than an attempt takes with its notes."""

KEEP_SECONDS = 7 * 24 * 3600.0
"""How long deliveries that ended are kept, if their runs are kept as long."""

FORGET_LIMIT = 1000

_GONE = "the receiver answered 410 Gone"
_STATES = {
    Outcome.DELIVERED: DeliveryState.DELIVERED,
    Outcome.RETRIED: DeliveryState.PENDING,
    Outcome.FAILED: DeliveryState.FAILED,
    Outcome.GONE: DeliveryState.FAILED,
}


class Pool(Protocol):
    """Lends connections and transactions; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block."""
        ...


class PostgresWebhooks:
    """The webhooks of one database. `check` raises Refused for a URL to which nothing may be sent."""

    def __init__(self, pool: Pool, check: Callable[[str], object]) -> None:
        self._pool = pool
        self._check = check

    async def create(
        self,
        tenant: str,
        url: str,
        *,
        corpus: str | None = None,
        kinds: Collection[Kind] = tuple(Kind),
        events: Collection[Ending] = tuple(Ending),
        deadline: Deadline,
    ) -> tuple[Webhook, SigningSecret]:
        """Make a webhook for runs that end from now on, of one corpus or (None) of all, and return it with its secret.

        Raises:
            Refused: nothing may be sent to this URL.
            NotFound: there is no such tenant or corpus.
            Conflict: the tenant has as many as it may have.
        """
        self._insist(url)
        webhook_id, secret = f"wh_{secrets.token_hex(8)}", SigningSecret.new()
        which = ([kind.value for kind in Kind if kind in kinds], [one.value for one in Ending if one in events])
        async with self._pool.transaction(deadline) as tx:
            made = await tx.fetchval(_SQL["create"], webhook_id, tenant, corpus, url, secret.key, *which, MOST)
            if made is None:
                if len(await tx.fetch(_SQL["webhooks"], tenant, None)) >= MOST:
                    raise Conflict(f"The tenant has {MOST} webhooks already; `sapwood webhook delete` makes room.")
                raise NotFound(f"There is no tenant {tenant!r}, or no corpus {corpus!r} of it.")
            return await _get(tx, tenant, webhook_id), secret

    def _insist(self, url: str) -> None:
        try:
            self._check(url)
        except Refused as error:
            if not str(error).startswith(("port rule", "address rule")):
                raise
            cure = "networks of your own are allowed by SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS"
            raise Refused(f"{error}; {cure}") from error

    async def listing(self, tenant: str, deadline: Deadline) -> list[Webhook]:
        """Return the webhooks of a tenant, oldest first."""
        async with self._pool.connection(deadline) as tx:
            return [_webhook(row) for row in await tx.fetch(_SQL["webhooks"], tenant, None)]

    async def get(self, tenant: str, webhook_id: str, deadline: Deadline) -> Webhook:
        """Return a webhook. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            return await _get(tx, tenant, webhook_id)

    async def delete(self, tenant: str, webhook_id: str, deadline: Deadline) -> None:
        """Remove a webhook with its deliveries. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            if (await tx.execute(_SQL["delete"], tenant, webhook_id)).endswith(" 0"):
                raise _none(webhook_id)

    async def set_enabled(self, tenant: str, webhook_id: str, enabled: bool, deadline: Deadline) -> Webhook:
        """Let a webhook hear of runs that end from now on, or of none; then what is pending is given up. Raises NotFound."""
        async with self._pool.transaction(deadline) as tx:
            if enabled:
                await tx.execute(_SQL["enable"], tenant, webhook_id)
            else:
                await tx.execute(_SQL["disable"], tenant, webhook_id, "disabled by request")
            return await _get(tx, tenant, webhook_id)

    async def rotate(self, tenant: str, webhook_id: str, deadline: Deadline) -> tuple[Webhook, SigningSecret]:
        """Give a webhook another secret and return both; for a day messages are signed with the former one too.

        Of two rotations within the day, the secret before them is forgotten at once. Raises NotFound.
        """
        secret = SigningSecret.new()
        async with self._pool.transaction(deadline) as tx:
            await tx.execute(_SQL["rotate"], tenant, webhook_id, secret.key, ROTATION_SECONDS)
            return await _get(tx, tenant, webhook_id), secret

    async def ping(self, tenant: str, webhook_id: str, deadline: Deadline) -> Delivery:
        """Enqueue a message that tells nothing. Raises NotFound, or Conflict where the webhook is disabled."""
        async with self._pool.transaction(deadline) as tx:
            made = await tx.fetchval(_SQL["ping"], tenant, webhook_id)
            await _insist_enabled(tx, tenant, webhook_id)
            return _delivery((await tx.fetch(_SQL["deliveries"], tenant, webhook_id, made, 1))[0])

    async def deliveries(self, tenant: str, webhook_id: str, limit: int, deadline: Deadline) -> list[Delivery]:
        """Return the newest deliveries of a webhook."""
        async with self._pool.connection(deadline) as tx:
            return [_delivery(row) for row in await tx.fetch(_SQL["deliveries"], tenant, webhook_id, None, limit)]

    async def retry(self, tenant: str, webhook_id: str, delivery_id: int, deadline: Deadline) -> Delivery:
        """Have a delivery made now, also one that was made or given up: with its old id, and all attempts before it.

        Raises NotFound, or Conflict where the webhook is disabled.
        """
        async with self._pool.transaction(deadline) as tx:
            await tx.execute(_SQL["retry"], tenant, webhook_id, delivery_id)
            await _insist_enabled(tx, tenant, webhook_id)
            found = await tx.fetch(_SQL["deliveries"], tenant, webhook_id, delivery_id, 1)
        if not found:
            raise NotFound(f"There is no delivery {delivery_id} of {webhook_id}.")
        return _delivery(found[0])


class PostgresDeliveries:
    """The `Deliveries` of one database; leases are on its clock."""

    def __init__(self, pool: Pool, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._pool = pool
        self._lease_seconds = lease_seconds

    async def claim(self, busy: Mapping[str, int], places: Places, deadline: Deadline) -> list[Due]:
        """See `Deliveries`."""
        at_work: Sequence[list[Any]] = (list(busy), list(busy.values()))
        room = (places.per_webhook, places.per_tenant, places.at_once - sum(busy.values()))
        async with self._pool.connection(deadline) as tx:
            rows = await tx.fetch(_SQL["claim"], *at_work, *room, self._lease_seconds)
        return [_due(row) for row in rows]

    async def settle(self, due: Due, verdict: Verdict, deadline: Deadline) -> bool:
        """See `Deliveries`."""
        values = (_STATES[verdict.outcome].value, verdict.status, verdict.error, verdict.pause)
        async with self._pool.transaction(deadline) as tx:
            ours = await tx.fetchval(_SQL["settle"], due.delivery_id, due.attempt, *values)
            if ours is not None and verdict.outcome is Outcome.GONE:
                await tx.execute(_SQL["disable"], None, due.webhook_id, _GONE)
            if ours is not None and verdict.hold:
                await tx.execute(_SQL["hold"], due.webhook_id, verdict.hold)
        return ours is not None

    async def forget(self, deadline: Deadline) -> int:
        """See `Deliveries`."""
        async with self._pool.connection(deadline) as tx:
            return int((await tx.execute(_SQL["forget"], KEEP_SECONDS, FORGET_LIMIT)).rsplit(" ", 1)[1])


async def _get(tx: Tx, tenant: str, webhook_id: str) -> Webhook:
    row = await tx.fetchrow(_SQL["webhooks"], tenant, webhook_id)
    if row is None:
        raise _none(webhook_id)
    return _webhook(row)


async def _insist_enabled(tx: Tx, tenant: str, webhook_id: str) -> None:
    if not (await _get(tx, tenant, webhook_id)).enabled:
        raise Conflict(f"{webhook_id} is disabled; enable it first.")


def _none(webhook_id: str) -> NotFound:
    return NotFound(f"There is no webhook {webhook_id!r}; `sapwood webhook list` shows the ids.")


def _message_id(row: Any) -> str:
    """Return what a receiver tells repetitions by: the place of an event in the log, whichever webhook hears of it."""
    return f"ping-{row['delivery_id']}" if row["run_id"] is None else f"{row['run_id']}-{row['seq']}"


def _due(row: Any) -> Due:
    body = {"type": PING} if row["body"] is None else row["body"]
    former = row["former_secret"]
    return Due(
        delivery_id=row["delivery_id"],
        attempt=row["attempts"],
        webhook_id=row["webhook_id"],
        url=row["url"],
        secrets=tuple(SigningSecret(bytes(key)) for key in (row["secret"], former) if key is not None),
        message_id=_message_id(row),
        message=Message(
            type=body["type"],
            run_id=row["run_id"],
            corpus=row["corpus"],
            seq=row["seq"],
            at=(row["at"] or row["created_at"]).isoformat(),
            body=body,
        ),
    )


def _webhook(row: Any) -> Webhook:
    return Webhook(
        webhook_id=row["webhook_id"],
        tenant=row["tenant"],
        corpus=row["corpus"],
        url=row["url"],
        kinds=tuple(Kind(one) for one in row["kinds"]),
        events=tuple(Ending(one) for one in row["events"]),
        enabled=row["enabled"],
        disabled_reason=row["disabled_reason"],
        rotating_until=_iso(row["rotating_until"]),
        created_at=row["created_at"].isoformat(),
    )


def _delivery(row: Any) -> Delivery:
    return Delivery(
        delivery_id=row["delivery_id"],
        message_id=_message_id(row),
        type=row["type"] or PING,
        run_id=row["run_id"],
        seq=row["seq"],
        state=DeliveryState(row["state"]),
        attempts=row["attempts"],
        status=row["status"],
        error=row["error"],
        due_at=row["due_at"].isoformat(),
        created_at=row["created_at"].isoformat(),
        finished_at=_iso(row["finished_at"]),
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()

"""Routes of webhooks: where a tenant is told how its runs ended. Messages are signed: see `schemas/signatures.py`.

A webhook is made without an Idempotency-Key: its secret is shown once, and a repeated call could not show it again.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from pipeline.deadline import Deadline
from schemas.webhooks import Delivery, Ending, Kind, SigningSecret, Webhook
from worker.gateway.access import sapwood_of
from worker.gateway.orders import Administering, Order

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

CALL = 10.0
"""Seconds for a small read or write."""

WebhookName = Annotated[str, Path(pattern=r"^wh_[0-9a-f]{16}$", description="Id of the webhook.")]
DeliveryNumber = Annotated[int, Path(ge=1, lt=1 << 63, description="Id of the delivery.")]


class WebhookOrder(Order):
    """A webhook to be made. Without a corpus it hears of all of the tenant, those to come too."""

    url: str = Field(min_length=1, max_length=2048, description="http or https, without user and password.")
    corpus: str | None = Field(default=None, min_length=1, max_length=100)
    kinds: list[Kind] = Field(default=list(Kind), min_length=1, max_length=len(Kind))
    events: list[Ending] = Field(default=list(Ending), min_length=1, max_length=len(Ending))


class WebhookChange(Order):
    """Whether a webhook is told anything. What ends while it is disabled it never hears of."""

    enabled: bool


class WebhookWithDeliveries(Webhook):
    """A webhook with its newest deliveries, the newest first."""

    deliveries: list[Delivery]


class NewSecret(Webhook):
    """A webhook whose secret was just made; it is not shown again."""

    secret: str


@router.post("", status_code=201, summary="Make a webhook")
async def create(order: WebhookOrder, request: Request, response: Response, principal: Administering) -> NewSecret:
    """Have the ends of runs told to a URL from now on, and show the secret that signs the messages, this once."""
    made, secret = await sapwood_of(request, principal).services.webhooks.registry.create(
        principal.tenant,
        order.url,
        corpus=order.corpus,
        kinds=order.kinds,
        events=order.events,
        deadline=_soon(),
    )
    response.headers["Location"] = f"/v1/webhooks/{made.webhook_id}"
    return _shown(made, secret, response)


@router.get("", summary="List webhooks")
async def listing(request: Request, principal: Administering) -> list[Webhook]:
    """Return the tenant's webhooks, oldest first."""
    return await sapwood_of(request, principal).services.webhooks.registry.listing(principal.tenant, _soon())


@router.get("/{webhook_id}", summary="Show a webhook and its deliveries")
async def show(
    webhook_id: WebhookName,
    request: Request,
    principal: Administering,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many deliveries.")] = 20,
) -> WebhookWithDeliveries:
    """Return a webhook with its newest deliveries."""
    webhooks = sapwood_of(request, principal).services.webhooks.registry
    one = await webhooks.get(principal.tenant, webhook_id, _soon())
    deliveries = await webhooks.deliveries(principal.tenant, webhook_id, limit, _soon())
    return WebhookWithDeliveries(**one.model_dump(), deliveries=deliveries)


@router.patch("/{webhook_id}", summary="Enable or disable a webhook")
async def change(webhook_id: WebhookName, order: WebhookChange, request: Request, principal: Administering) -> Webhook:
    """Have it told of what ends from now on, or of nothing: then what is pending is given up."""
    webhooks = sapwood_of(request, principal).services.webhooks.registry
    return await webhooks.set_enabled(principal.tenant, webhook_id, order.enabled, _soon())


@router.delete("/{webhook_id}", status_code=204, summary="Delete a webhook")
async def delete(webhook_id: WebhookName, request: Request, principal: Administering) -> None:
    """Delete a webhook with its deliveries; one that is under way may still arrive."""
    await sapwood_of(request, principal).services.webhooks.registry.delete(principal.tenant, webhook_id, _soon())


@router.post("/{webhook_id}/rotate", summary="Replace the secret of a webhook")
async def rotate(webhook_id: WebhookName, request: Request, response: Response, principal: Administering) -> NewSecret:
    """Show a new secret, this once. For a day each message has two signatures, the second by the former secret."""
    webhooks = sapwood_of(request, principal).services.webhooks.registry
    return _shown(*await webhooks.rotate(principal.tenant, webhook_id, _soon()), response)


@router.post("/{webhook_id}/test", status_code=202, summary="Send a ping")
async def ping(webhook_id: WebhookName, request: Request, principal: Administering) -> Delivery:
    """Enqueue a message of the type `ping`, which workers deliver like any other."""
    webhooks = sapwood_of(request, principal).services.webhooks.registry
    return await webhooks.ping(principal.tenant, webhook_id, _soon())


@router.post("/{webhook_id}/deliveries/{delivery_id}/retry", status_code=202, summary="Deliver again")
async def retry(
    webhook_id: WebhookName, delivery_id: DeliveryNumber, request: Request, principal: Administering
) -> Delivery:
    """Have a delivery made now, whatever became of it, with the id that it had."""
    webhooks = sapwood_of(request, principal).services.webhooks.registry
    return await webhooks.retry(principal.tenant, webhook_id, delivery_id, _soon())


def _shown(one: Webhook, secret: SigningSecret, response: Response) -> NewSecret:
    response.headers["Cache-Control"] = "no-store"
    return NewSecret(**one.model_dump(), secret=secret.reveal())


def _soon() -> Deadline:
    return Deadline.after(CALL)

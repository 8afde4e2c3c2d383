"""The commands about who is told how runs ended: `sapwood webhook …`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pipeline.deadline import Deadline
from schemas.webhooks import Delivery, Ending, Kind, SigningSecret, Webhook
from worker import show
from worker.app import Sapwood
from worker.commands import Json, run

CALL = 30.0

Id = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id: `sapwood webhook list`.")]
Tenant = Annotated[str, typer.Option(help="Whose webhook it is.")]


webhooks = typer.Typer(no_args_is_help=True, help="Tell a URL how runs ended, in messages that are signed.")


@webhooks.command("create")
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="http or https, without user and password.")],
    corpus: Annotated[str, typer.Option(help="Only runs of this corpus; default: of all, those to come too.")] = "",
    kind: Annotated[list[Kind], typer.Option(help="Only runs of this kind; may be given twice.")] = [],  # noqa: B006
    event: Annotated[list[Ending], typer.Option(help="Only this ending; may be given more than once.")] = [],  # noqa: B006
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Have workers tell a URL how each run ends from now on, and print the secret that signs the messages, this once.

    A URL leads to the public internet, on ports 80 and 443; networks of your own are allowed by
    `SAPWOOD_WEBHOOKS_PRIVATE_NETWORKS`, here and for the workers.

    Example: `sapwood webhook create https://example.org/hooks/sapwood --corpus handbook --event promoted --event failed`

    Example: `SECRET=$(sapwood webhook create https://example.org/hooks/sapwood)`
    """

    async def action(sapwood: Sapwood) -> int:
        made, secret = await sapwood.services.webhooks.registry.create(
            tenant,
            url,
            corpus=corpus or None,
            kinds=kind or tuple(Kind),
            events=event or tuple(Ending),
            deadline=_soon(),
        )
        _show_secret(made, secret, json)
        return 0

    run(action)


@webhooks.command("list")
def listing(tenant: Tenant = "default", json: Json = False) -> None:
    """List the webhooks, oldest first; no secret is shown again.

    Example: `sapwood webhook list --json`
    """

    async def action(sapwood: Sapwood) -> int:
        _show_webhooks(await sapwood.services.webhooks.registry.listing(tenant, _soon()), json)
        return 0

    run(action)


@webhooks.command("show")
def show_one(
    webhook_id: Id,
    last: Annotated[int, typer.Option(min=1, max=1000, help="How many deliveries.")] = 20,
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Show a webhook and its newest deliveries, with what was wrong with each.

    Example: `sapwood webhook show wh_0123456789abcdef --last 5`
    """

    async def action(sapwood: Sapwood) -> int:
        webhooks = sapwood.services.webhooks.registry
        one = await webhooks.get(tenant, webhook_id, _soon())
        _show_deliveries(one, await webhooks.deliveries(tenant, webhook_id, last, _soon()), json)
        return 0

    run(action)


@webhooks.command("delete")
def delete(webhook_id: Id, tenant: Tenant = "default", json: Json = False) -> None:
    """Delete a webhook with its deliveries; one that is under way may still arrive.

    Example: `sapwood webhook delete wh_0123456789abcdef`
    """

    async def action(sapwood: Sapwood) -> int:
        await sapwood.services.webhooks.registry.delete(tenant, webhook_id, _soon())
        show.done(f"{webhook_id} is deleted", {"webhook_id": webhook_id, "deleted": True}, json)
        return 0

    run(action)


@webhooks.command("rotate")
def rotate(webhook_id: Id, tenant: Tenant = "default", json: Json = False) -> None:
    """Print a new secret, this once; for a day messages are signed with the former one too.

    Example: `SECRET=$(sapwood webhook rotate wh_0123456789abcdef)`
    """

    async def action(sapwood: Sapwood) -> int:
        _show_secret(*await sapwood.services.webhooks.registry.rotate(tenant, webhook_id, _soon()), json)
        return 0

    run(action)


@webhooks.command("test")
def test(webhook_id: Id, tenant: Tenant = "default", json: Json = False) -> None:
    """Enqueue a message of the type `ping`; a worker delivers it like any other.

    Example: `sapwood webhook test wh_0123456789abcdef` then `sapwood webhook show wh_0123456789abcdef --last 1`
    """

    async def action(sapwood: Sapwood) -> int:
        made = await sapwood.services.webhooks.registry.ping(tenant, webhook_id, _soon())
        show.done(f"queued as {made.message_id}", made.model_dump(mode="json"), json)
        return 0

    run(action)


@webhooks.command("retry")
def retry(
    webhook_id: Id,
    delivery_id: Annotated[int, typer.Argument(metavar="DELIVERY", help="Its number: `sapwood webhook show`.")],
    tenant: Tenant = "default",
    json: Json = False,
) -> None:
    """Have a delivery made again now, whatever became of it, with the id that it had.

    Example: `sapwood webhook retry wh_0123456789abcdef 17`
    """

    async def action(sapwood: Sapwood) -> int:
        made = await sapwood.services.webhooks.registry.retry(tenant, webhook_id, delivery_id, _soon())
        show.done(f"queued again: {made.message_id}", made.model_dump(mode="json"), json)
        return 0

    run(action)


@webhooks.command("enable")
def enable(webhook_id: Id, tenant: Tenant = "default", json: Json = False) -> None:
    """Tell a webhook of runs that end from now on.

    Example: `sapwood webhook enable wh_0123456789abcdef`
    """
    _switch(webhook_id, tenant, True, json)


@webhooks.command("disable")
def disable(webhook_id: Id, tenant: Tenant = "default", json: Json = False) -> None:
    """Tell a webhook nothing more; what is pending is given up.

    Example: `sapwood webhook disable wh_0123456789abcdef`
    """
    _switch(webhook_id, tenant, False, json)


def _switch(webhook_id: str, tenant: str, enabled: bool, json: bool) -> None:
    async def action(sapwood: Sapwood) -> int:
        one = await sapwood.services.webhooks.registry.set_enabled(tenant, webhook_id, enabled, _soon())
        show.done(f"{webhook_id} is {'enabled' if one.enabled else 'disabled'}", one.model_dump(mode="json"), json)
        return 0

    run(action)


def _show_secret(one: Webhook, secret: SigningSecret, json: bool) -> None:
    if json:
        show.as_json({"secret": secret.reveal(), **one.model_dump(mode="json")})
        return
    show.out.print(secret.reveal())
    show.hint(f"{one.webhook_id} for {one.tenant}; the secret is not shown again")


def _show_webhooks(found: Sequence[Webhook], json: bool) -> None:
    if json:
        show.as_json([one.model_dump(mode="json") for one in found])
        return
    rows: list[tuple[str, ...]] = []
    for one in found:
        events = "all" if len(one.events) == len(Ending) else ", ".join(one.events)
        state = "enabled" if one.enabled else one.disabled_reason
        rows.append((one.webhook_id, one.corpus or "all", one.url, ", ".join(one.kinds), events, state))
    show.grid(("webhook", "corpus", "url", "kinds", "events", "state"), rows)


def _show_deliveries(one: Webhook, deliveries: Sequence[Delivery], json: bool) -> None:
    if json:
        show.as_json(
            {**one.model_dump(mode="json"), "deliveries": [delivery.model_dump(mode="json") for delivery in deliveries]}
        )
        return
    _show_webhooks([one], False)
    rows: list[tuple[str, ...]] = []
    for each in deliveries:
        answer = each.error or (str(each.status) if each.status else "-")
        due = each.due_at if each.finished_at is None else "-"
        number, words = str(each.delivery_id), (each.message_id, each.type, each.state)
        rows.append((number, *words, str(each.attempts), answer, due))
    headings = ("delivery", "message", "type", "state", "tries", "last answer", "next try")
    show.grid(headings, rows)


def _soon() -> Deadline:
    return Deadline.after(CALL)

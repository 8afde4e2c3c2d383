"""The commands about who may come to the gateway: `sapwood tenant …` and `sapwood key …`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest
from schemas.keys import ApiKey, KeyInfo, Scope, Tenant, TenantLimits
from worker import show
from worker.app import Sapwood
from worker.commands import Json, run

CALL = 30.0


_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_MOST_DAYS = 36525


tenants = typer.Typer(no_args_is_help=True, help="Make, list and limit tenants, who see nothing of each other.")
keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys of programs that use the gateway.")


def lifetime(text: str) -> float | None:
    """Return the seconds in `90d`, `12h`, `30m` or `2w`, None for an empty text. Raises BadParameter."""
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,9})([mhdw])", text.strip())
    found = int(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < found <= _MOST_DAYS * 86400.0:
        raise typer.BadParameter(f"{text!r} is no time to live; write `90d`, `12h` or `2w`", param_hint="--expires")
    return found


def limited(limits: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return limits with changes like `streams=5`, or `streams=` for one that goes. Raises InvalidRequest."""
    wanted = dict(TenantLimits.stored(limits).own())
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or name not in TenantLimits.model_fields:
            raise InvalidRequest(
                f"{change!r} is no limit; write one of {', '.join(TenantLimits.model_fields)} as KEY=VALUE."
            )
        wanted[name] = value or None
    try:
        return TenantLimits.model_validate(wanted).own()
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidRequest(f"{first['loc'][0]}: {first['msg']}") from None


@tenants.command("create")
def create_tenant(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant.")], json: Json = False
) -> None:
    """Make a tenant; one that is there already stays as it is.

    Example: `sapwood tenant create acme`
    """

    async def action(sapwood: Sapwood) -> int:
        made = await sapwood.services.keys.create_tenant(name, Deadline.after(CALL))
        show.done(f"tenant {made.name}", asdict(made), json)
        return 0

    run(action)


@tenants.command("list")
def list_tenants(json: Json = False) -> None:
    """List the tenants, with how many corpora and usable keys each has.

    Example: `sapwood tenant list --json`
    """

    async def action(sapwood: Sapwood) -> int:
        _show_tenants(await sapwood.services.keys.tenants(Deadline.after(CALL)), json)
        return 0

    run(action)


@tenants.command("limits")
def limits(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the tenant.")],
    changes: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE", help="A limit; without a value it is the gateway's own again."),
    ] = [],  # noqa: B006 - typer copies it
    json: Json = False,
) -> None:
    """Show or set what a tenant may use of the gateway, where it differs from the gateway's own limits.

    The limits are `requests_per_second`, `direct_queries`, `streams` (of one process) and `open_runs` (of all).
    Gateways follow within a few seconds.

    Example: `sapwood tenant limits acme requests_per_second=5 open_runs=20 streams=`
    """

    async def action(sapwood: Sapwood) -> int:
        keys = sapwood.services.keys
        found = await keys.tenant(name, Deadline.after(CALL))
        if changes:
            found = await keys.set_limits(name, limited(found.limits, changes), Deadline.after(CALL))
        text = ", ".join(f"{limit}={value:g}" for limit, value in sorted(found.limits.items()))
        show.done(f"{found.name}: {text or 'no limits of its own'}", asdict(found), json)
        return 0

    run(action)


@keys.command("create")
def create_key(
    scope: Annotated[list[Scope], typer.Option(help="What it allows; may be given more than once.")],
    tenant: Annotated[str, typer.Option(help="Whose key it is.")] = "default",
    name: Annotated[str, typer.Option(help="What it is for, to know it again.")] = "",
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it is good: `90d`, `12h`, `2w`.")] = "",
    json: Json = False,
) -> None:
    """Make a key and print it, this once: only a hash of it is kept.

    Example: `sapwood key create --tenant acme --scope index --scope query --name ci --expires 90d`

    Example: `KEY=$(sapwood key create --scope query)`
    """
    seconds = lifetime(expires)

    async def action(sapwood: Sapwood) -> int:
        key = ApiKey.new()
        made = await sapwood.services.keys.add(
            key.key_id,
            key.hash(),
            tenant=tenant,
            name=name,
            scopes=[each for each in Scope if each in scope],
            seconds=seconds,
            deadline=Deadline.after(CALL),
        )
        _show_new(key, made, json)
        return 0

    run(action)


@keys.command("list")
def list_keys(
    tenant: Annotated[str, typer.Option(help="Only those of this tenant.")] = "",
    json: Json = False,
) -> None:
    """List the keys by their public ids, the ended ones too; no secret is ever shown again.

    Example: `sapwood key list --tenant acme`
    """

    async def action(sapwood: Sapwood) -> int:
        _show_keys(await sapwood.services.keys.listing(tenant or None, Deadline.after(CALL)), json)
        return 0

    run(action)


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The public id: the middle part of the key.")],
    json: Json = False,
) -> None:
    """End a key for good; within a few seconds no gateway takes it.

    Example: `sapwood key revoke 0123456789abcdef`
    """

    async def action(sapwood: Sapwood) -> int:
        ended = await sapwood.services.keys.revoke(key_id, None, Deadline.after(CALL))
        show.done(f"{ended.key_id} is revoked", asdict(ended), json)
        return 0

    run(action)


def _show_new(key: ApiKey, made: KeyInfo, json: bool) -> None:
    if json:
        show.as_json({"key": key.reveal(), **asdict(made)})
        return
    show.out.print(key.reveal())
    until = f" until {made.expires_at}" if made.expires_at else ""
    show.hint(f"for {made.tenant}: {', '.join(made.scopes)}{until}; it is not shown again")


def _show_tenants(found: Sequence[Tenant], json: bool) -> None:
    if json:
        show.as_json([asdict(one) for one in found])
        return
    show.grid(
        ("tenant", "corpora", "keys", "since"),
        ([one.name, str(one.corpora), str(one.keys), one.created_at] for one in found),
    )


def _show_keys(found: Sequence[KeyInfo], json: bool) -> None:
    if json:
        show.as_json([asdict(one) for one in found])
        return
    rows: list[tuple[str, ...]] = []
    for one in found:
        state = "revoked" if one.revoked_at else "expired" if one.ended else "good"
        times = (one.expires_at or "-", one.last_used_at or "-")
        rows.append((one.key_id, one.tenant, one.name, ", ".join(one.scopes), state, *times))
    show.grid(("key", "tenant", "name", "scopes", "state", "expires", "last used"), rows)

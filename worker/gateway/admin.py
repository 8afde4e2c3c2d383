"""Routes of those who give access: a tenant's keys, and, for operators, the tenants and their limits.

Who may do what:

* A key with the scope `admin` makes, lists and ends the keys of its own tenant. It may give a key any scope, also those that
  it lacks itself: deciding who may do what in the tenant is what `admin` is for. A key without `admin` gives nothing to
  anybody.
* An **operator** is a key with the scope `admin` of the tenant `default`, which is there from the beginning. It makes and
  lists tenants, sets their limits, and does to the keys of any tenant what an `admin` does to those of its own, so that a new
  tenant can get its first key. It sees nothing of the corpora of others. A gateway without keys has one caller, who may do
  all of it.

A key is shown once, in the answer to the call that makes it: there is no Idempotency-Key here, as a repeated call could not
show it again. Whoever lost an answer revokes that key (its name tells which) and makes another.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, Forbidden, NotFound
from pipeline.tenancy import apart
from schemas.keys import ApiKey, KeyInfo, Scope, Tenant, TenantLimits
from schemas.query import Wire
from worker.gateway.access import Principal, sapwood_of
from worker.gateway.limits import Limits
from worker.gateway.orders import Administering, Known, Order

router = APIRouter(prefix="/v1", tags=["access"])

CALL = 10.0
"""Seconds for a small read or write."""

OPERATORS = "default"
"""The tenant whose admins are operators."""

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_CENTURY = 36525 * 86400.0

Whose = Annotated[
    str | None,
    Query(
        min_length=1, max_length=100, pattern=r"^[^\x00]*$", description="Which tenant's; by default the caller's own."
    ),
]
KeyName = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="The public id: the middle part of the key.")]
TenantName = Annotated[str, Path(pattern=_NAME, description="Name of the tenant.")]


class WhoAmI(Wire):
    """Who asks. `limits` are those that hold in this process, the tenant's own or the gateway's."""

    tenant: str
    key_id: str
    scopes: list[Scope]
    limits: TenantLimits


class KeyOrder(Order):
    """A key to be made. `expires_in` is in seconds; without it the key is good until it is revoked."""

    name: str = Field(default="", max_length=200)
    scopes: list[Scope] = Field(min_length=1, max_length=len(Scope))
    expires_in: float | None = Field(default=None, gt=0, le=_CENTURY)


class KeyView(Wire):
    """A key by its public id. Times are UTC ISO strings; `ended`: it is revoked or has expired."""

    key_id: str
    tenant: str
    name: str
    scopes: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    ended: bool


class NewKey(KeyView):
    """A key that was just made; `key` is the whole of it and is not shown again."""

    key: str


class TenantOrder(Order):
    """A tenant to be made."""

    name: str = Field(pattern=_NAME)
    limits: TenantLimits = TenantLimits()


class LimitsOrder(Order, TenantLimits):
    """All limits of a tenant; what is left out or null is the gateway's own."""


class TenantView(Wire):
    """A tenant, with the limits that are its own, and the counts of its corpora and of its keys that are of use."""

    name: str
    limits: TenantLimits
    created_at: str
    corpora: int
    keys: int

    @classmethod
    def of(cls, one: Tenant) -> TenantView:
        """Return the view of a tenant."""
        limits = TenantLimits.stored(one.limits)
        return cls(name=one.name, limits=limits, created_at=one.created_at, corpora=one.corpora, keys=one.keys)


@router.get("/whoami", summary="Who am I?")
async def whoami(request: Request, principal: Known) -> WhoAmI:
    """Return the tenant, the public id and the scopes of the key that asks, and the limits it has to keep."""
    limits = cast("Limits", request.app.state.limits).of(principal.tenant)
    scopes = [scope for scope in Scope if scope in principal.scopes]
    return WhoAmI(tenant=principal.tenant, key_id=principal.key_id, scopes=scopes, limits=limits)


@router.get("/keys", summary="List keys")
async def list_keys(request: Request, principal: Administering, tenant: Whose = None) -> list[KeyView]:
    """Return the keys of a tenant by their public ids, oldest first, the ended ones too; no secret is shown again."""
    whose = _whose(principal, tenant)
    with apart(whose):
        return [_view(one) for one in await sapwood_of(request, principal).services.keys.listing(whose, _soon())]


@router.post("/keys", status_code=201, summary="Make a key")
async def create_key(
    order: KeyOrder, request: Request, response: Response, principal: Administering, tenant: Whose = None
) -> NewKey:
    """Make a key and show it, this once: only a hash of it is kept. Any `admin` may give any scope of its tenant."""
    whose, key = _whose(principal, tenant), ApiKey.new()
    with apart(whose):
        made = await sapwood_of(request, principal).services.keys.add(
            key.key_id,
            key.hash(),
            tenant=whose,
            name=order.name,
            scopes=[scope for scope in Scope if scope in order.scopes],
            seconds=order.expires_in,
            deadline=_soon(),
        )
    response.headers["Cache-Control"] = "no-store"
    return NewKey(key=key.reveal(), **_view(made).model_dump())


@router.delete("/keys/{key_id}", summary="Revoke a key")
async def revoke_key(key_id: KeyName, request: Request, principal: Administering, tenant: Whose = None) -> KeyView:
    """End a key for good; within a few seconds no gateway takes it. Once is enough, and a second call changes nothing."""
    whose = _whose(principal, tenant)
    with apart(whose):
        try:
            return _view(await sapwood_of(request, principal).services.keys.revoke(key_id, whose, _soon()))
        except NotFound:
            raise NotFound("There is no such key; `GET /v1/keys` shows the ids.") from None


@router.get("/tenants", summary="List tenants")
async def list_tenants(request: Request, principal: Administering) -> list[TenantView]:
    """Return all tenants by name. For operators: an `admin` key of the tenant `default`."""
    _operator(principal)
    with apart():
        return [TenantView.of(one) for one in await sapwood_of(request, principal).services.keys.tenants(_soon())]


@router.post("/tenants", status_code=201, summary="Make a tenant")
async def create_tenant(order: TenantOrder, request: Request, principal: Administering) -> TenantView:
    """Make a tenant. One of this name that is there already is a conflict. For operators."""
    _operator(principal)
    with apart():
        keys = sapwood_of(request, principal).services.keys
        try:
            await keys.tenant(order.name, _soon())
        except NotFound:
            made = await keys.create_tenant(order.name, _soon())
            if limits := order.limits.own():
                made = await keys.set_limits(order.name, limits, _soon())
            return TenantView.of(made)
    raise Conflict(f"There is a tenant {order.name!r} already.")


@router.put("/tenants/{tenant}/limits", summary="Replace the limits of a tenant")
async def set_limits(tenant: TenantName, order: LimitsOrder, request: Request, principal: Administering) -> TenantView:
    """Replace all limits of a tenant; every gateway follows within a few seconds. For operators."""
    _operator(principal)
    with apart():
        return TenantView.of(
            await sapwood_of(request, principal).services.keys.set_limits(tenant, order.own(), _soon())
        )


def _operator(principal: Principal) -> None:
    if principal.tenant != OPERATORS:
        raise Forbidden(f"This is for operators: a key of the tenant `{OPERATORS}` with the scope `admin`.")


def _whose(principal: Principal, tenant: str | None) -> str:
    """Return whose keys are meant. Raises Forbidden for another tenant's, unless an operator asks."""
    if tenant is not None and tenant != principal.tenant:
        _operator(principal)
    return tenant or principal.tenant


def _view(one: KeyInfo) -> KeyView:
    return KeyView.model_validate({**asdict(one), "scopes": list(one.scopes)})


def _soon() -> Deadline:
    return Deadline.after(CALL)

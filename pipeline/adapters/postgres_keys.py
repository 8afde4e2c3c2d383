"""Tenants and their keys, in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.keys import KeyInfo, StoredKey, Tenant

_SQL = load("keys")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Connections(Protocol):
    """Lends connections; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection on which each statement is a transaction of its own."""
        ...


class PostgresKeys:
    """The tenants and keys of one database. It is given the hash of a key, never the key."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def create_tenant(self, name: str, deadline: Deadline) -> Tenant:
        """Return the tenant, made if missing. Raises InvalidRequest: that is no name for one."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no name for a tenant: up to 100 letters, digits, dots, dashes, underscores."
            )
        async with self._pool.connection(deadline) as tx:
            await tx.execute(_SQL["create_tenant"], name)
            return _tenant(await tx.fetchrow(_SQL["tenants"], name))

    async def tenant(self, name: str, deadline: Deadline) -> Tenant:
        """Return a tenant. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["tenants"], name)
        if row is None:
            raise _no_tenant(name)
        return _tenant(row)

    async def tenants(self, deadline: Deadline) -> list[Tenant]:
        """Return all tenants by name."""
        async with self._pool.connection(deadline) as tx:
            return [_tenant(row) for row in await tx.fetch(_SQL["tenants"], None)]

    async def set_limits(self, name: str, limits: Mapping[str, Any], deadline: Deadline) -> Tenant:
        """Replace all limits of a tenant; gateways follow within seconds. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            await tx.execute(_SQL["set_limits"], name, dict(limits))
        return await self.tenant(name, deadline)

    async def add(
        self,
        key_id: str,
        secret_hash: bytes,
        *,
        tenant: str,
        name: str,
        scopes: Sequence[str],
        seconds: float | None,
        deadline: Deadline,
    ) -> KeyInfo:
        """Let a key in from now on, for so many seconds or (None) until it is revoked. Raises NotFound: no such tenant."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["add_key"], key_id, secret_hash, tenant, name, list(scopes), seconds)
        if row is None:
            raise _no_tenant(tenant)
        return _info(row)

    async def listing(self, tenant: str | None, deadline: Deadline) -> list[KeyInfo]:
        """Return the keys of a tenant, or (None) of all, oldest first within a tenant, the ended ones too."""
        async with self._pool.connection(deadline) as tx:
            return [_info(row) for row in await tx.fetch(_SQL["list_keys"], tenant)]

    async def revoke(self, key_id: str, tenant: str | None, deadline: Deadline) -> KeyInfo:
        """End a key of a tenant, or (None) whosoever it is; once is enough. Raises NotFound.

        A process that knows the key goes on taking it until it asks again: see `KeyAuthenticator`.
        """
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["revoke_key"], key_id, tenant)
        if row is None:
            raise NotFound("There is no such key; `sapwood key list` shows the ids.")
        return _info(row)

    async def find(self, key_id: str, deadline: Deadline) -> StoredKey | None:
        """Return what is known of a key, an ended one too, or None."""
        async with self._pool.connection(deadline) as tx:
            row = await tx.fetchrow(_SQL["find_key"], key_id)
        if row is None:
            return None
        scopes = frozenset(row["scopes"])
        secret, left = bytes(row["secret_hash"]), row["seconds_left"]
        return StoredKey(row["key_id"], row["tenant"], scopes, secret, left, row["good"], row["limits"])

    async def note_use(self, key_id: str, deadline: Deadline) -> None:
        """Note that a key was used now; the time on record is at most a minute old."""
        async with self._pool.connection(deadline) as tx:
            await tx.execute(_SQL["note_use"], key_id)


def _no_tenant(name: str) -> NotFound:
    return NotFound(f"There is no tenant {name!r}; `sapwood tenant create {name}` makes it.")


def _tenant(row: Any) -> Tenant:
    return Tenant(row["name"], row["limits"], row["created_at"].isoformat(), row["corpora"], row["keys"])


def _info(row: Any) -> KeyInfo:
    return KeyInfo(
        key_id=row["key_id"],
        tenant=row["tenant"],
        name=row["name"],
        scopes=tuple(row["scopes"]),
        created_at=row["created_at"].isoformat(),
        expires_at=_iso(row["expires_at"]),
        revoked_at=_iso(row["revoked_at"]),
        last_used_at=_iso(row["last_used_at"]),
        ended=row["ended"],
    )


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()

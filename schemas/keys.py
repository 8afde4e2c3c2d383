"""Tenants, and the keys with which their programs show who they are: `sw_<key id>_<secret>`."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field

from schemas.query import Wire

_FORM = re.compile(r"sw_([0-9a-f]{16})_([0-9a-f]{64})")


class Scope(StrEnum):
    """What a key allows. `admin` is for the tenant's keys, limits, webhooks and published graphs, and allows nothing else."""

    INDEX = "index"
    QUERY = "query"
    INSPECT = "inspect"
    ADMIN = "admin"


class TenantLimits(Wire):
    """What a tenant may use of the gateway; None is the gateway's own limit. 0 allows none.

    `open_runs` counts in all processes together; the others are those of one process.
    """

    requests_per_second: float | None = Field(default=None, gt=0, le=100_000)
    direct_queries: int | None = Field(default=None, ge=0, le=10_000)
    streams: int | None = Field(default=None, ge=0, le=100_000)
    open_runs: int | None = Field(default=None, ge=0, le=1_000_000)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> TenantLimits:
        """Return the limits that a database holds; one that only a newer program knows limits nothing here."""
        return cls.model_validate({name: value for name, value in values.items() if name in cls.model_fields})

    def own(self) -> dict[str, Any]:
        """Return those that are set."""
        return self.model_dump(exclude_none=True)

    def over(self, others: TenantLimits) -> TenantLimits:
        """Return these, and the others where nothing is set."""
        return others.model_copy(update=self.own())


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A whole key, as its holder has it. Sapwood sees one when it is made and when it is shown, and keeps neither.

    The secret is 256 random bits: nobody finds it by trying, so that a fast hash of it at rest is as good as a slow one,
    and costs a request nothing. A hash made slow, or salted, is for secrets that people think up.
    """

    key_id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> ApiKey:
        """Return a key that nobody has."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def parse(cls, text: str) -> ApiKey | None:
        """Return the key that a text is, or None."""
        match = _FORM.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    def reveal(self) -> str:
        """Return the text that its holder keeps: for the one who asked for the key, and for no log."""
        return f"sw_{self.key_id}_{self.secret}"

    def hash(self) -> bytes:
        """Return what is kept of the secret: its SHA-256."""
        return hashlib.sha256(self.secret.encode()).digest()


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is known of a key that somebody shows. `good`: neither revoked nor expired, by the database's clock.

    `seconds_left` is the time until it expires, or None where it does not. `limits` are its tenant's.
    """

    key_id: str
    tenant: str
    scopes: frozenset[str]
    secret_hash: bytes = field(repr=False)
    seconds_left: float | None
    good: bool
    limits: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key as people see it. Times are UTC ISO strings; `ended`: it is revoked or has expired."""

    key_id: str
    tenant: str
    name: str
    scopes: tuple[str, ...]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    ended: bool


@dataclass(frozen=True, slots=True)
class Tenant:
    """One of those who share an installation and see nothing of each other. `limits` are those that differ from the default.

    `keys` counts the keys that are of use now.
    """

    name: str
    limits: dict[str, Any]
    created_at: str
    corpora: int
    keys: int

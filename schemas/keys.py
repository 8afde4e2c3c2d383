"""Tenants, and the keys with which their programs show who they are: `sw_<key id>_<secret>`."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_FORM = re.compile(r"sw_([0-9a-f]{16})_([0-9a-f]{64})")


class Scope(StrEnum):
    """What a key allows. `admin` is for the tenant's keys, limits and webhooks, and allows nothing else."""

    INDEX = "index"
    QUERY = "query"
    INSPECT = "inspect"
    ADMIN = "admin"


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

    `seconds_left` is the time until it expires, or None where it does not.
    """

    key_id: str
    tenant: str
    scopes: frozenset[str]
    secret_hash: bytes = field(repr=False)
    seconds_left: float | None
    good: bool


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

"""On whose behalf a task works: for one tenant, whose rows alone the database then shows it, or for all, as workers do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

EVERYBODY = ""
"""No tenant in particular: what is done in the background, and what a single user does."""

NOBODY = "\x7f"
"""No tenant at all: whoever works for it sees no row. A control character, which is in no tenant's name."""

_tenant: ContextVar[str] = ContextVar("tenant", default=EVERYBODY)


def acting_for() -> str:
    """Return the tenant for whom this task works, or `EVERYBODY`."""
    return _tenant.get()


def act_for(tenant: str) -> None:
    """Work for this tenant from now on, up to the end of the block `apart` or of the task."""
    _tenant.set(tenant)


@contextmanager
def apart(tenant: str = EVERYBODY) -> Generator[None, None, None]:
    """Begin with this tenant, by default `EVERYBODY`, and leave no trace of whom the block worked for."""
    token = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(token)

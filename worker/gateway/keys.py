"""Who is behind a key: looked up by its public part, compared in constant time, remembered for a few seconds."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, Unauthorized
from pipeline.flights import Flights
from pipeline.tenancy import NOBODY, apart
from schemas.keys import ApiKey, StoredKey, TenantLimits
from worker.gateway.access import Principal, Scope

REMEMBER = 5.0
"""Seconds that a good key is taken without another look: so long may a revoked one go on to work in a process."""

NOTE_EVERY = 60.0
"""Seconds between two notes that a key is in use."""

MOST = 10_000
"""Keys that a process remembers; beyond, the one that was not used for longest is looked up again."""

CALL = 5.0
"""Seconds for a look into the database."""

_NOBODY = bytes(32)
"""What the secret of an unknown key is compared with; no secret has this hash."""

_log = structlog.get_logger(__name__)


class Keys(Protocol):
    """Knows the keys; the database does."""

    async def find(self, key_id: str, deadline: Deadline) -> StoredKey | None:
        """Return what is known of a key, an ended one too, or None."""
        ...

    async def note_use(self, key_id: str, deadline: Deadline) -> None:
        """Note that a key was used now."""
        ...


@dataclass(slots=True)
class _Known:
    principal: Principal
    secret_hash: bytes = field(repr=False)
    until: float
    noted: float = float("-inf")


class KeyAuthenticator:
    """An `Authenticator` for `Authorization: Bearer sw_…`.

    Unknown, wrong, expired and revoked keys get the same words after the same work. A database that cannot be asked is
    StoreUnavailable: nobody is let in on trust. A key is checked when a request begins, so that a stream outlives its key.
    """

    def __init__(self, keys: Keys, now: Callable[[], float] = anyio.current_time) -> None:
        self._keys = keys
        self._now = now
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._finding = Flights[tuple[StoredKey | None, float]]()

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        key = _shown(authorization)
        if key is None:
            raise Unauthorized()
        known = self._known.get(key.key_id)
        if known is None or known.until <= self._now():
            known = await self._look_up(key)
        elif not hmac.compare_digest(known.secret_hash, key.hash()):
            raise Unauthorized()
        await self._note(known)
        return known.principal

    def familiar(self, authorization: str | None) -> bool:
        """Whether this process has found the very same key to be good before; it may have ended since."""
        key = _shown(authorization)
        known = self._known.get(key.key_id) if key else None
        return key is not None and known is not None and hmac.compare_digest(known.secret_hash, key.hash())

    async def _look_up(self, key: ApiKey) -> _Known:
        found, asked = await self._finding.once(key.key_id, lambda: self._find(key.key_id))
        right = hmac.compare_digest(found.secret_hash if found else _NOBODY, key.hash())
        if found is None or not right or not found.good:
            if right:
                self._known.pop(key.key_id, None)
            raise Unauthorized()
        left = REMEMBER if found.seconds_left is None else min(REMEMBER, found.seconds_left)
        before = self._known.get(key.key_id)
        known = _Known(_principal(found), found.secret_hash, asked + left, before.noted if before else float("-inf"))
        self._known[key.key_id] = known
        self._known.move_to_end(key.key_id)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return known

    async def _find(self, key_id: str) -> tuple[StoredKey | None, float]:
        """Read a key once for all who come with it now: a thousand streams that come back share one look."""
        asked = self._now()  # a revocation after this moment may be missed, so the few seconds count from here
        with apart():  # whose key it is, is the question
            return await self._keys.find(key_id, Deadline.after(CALL)), asked

    async def _note(self, known: _Known) -> None:
        now = self._now()
        if now - known.noted < NOTE_EVERY:
            return
        known.noted = now  # before the wait, so that requests at the same time write once
        try:
            with apart():
                await self._keys.note_use(known.principal.key_id, Deadline.after(CALL))
        except (DependencyError, DeadlineExceeded) as error:  # the key is good all the same
            _log.warning("key.not_noted", key=known.principal.key_id, error=str(error))


def _shown(authorization: str | None) -> ApiKey | None:
    scheme, _, text = (authorization or "").partition(" ")
    return ApiKey.parse(text.strip()) if scheme.lower() == "bearer" else None


def _principal(found: StoredKey) -> Principal:
    # A scope that a newer program gave allows nothing here.
    scopes = frozenset(scope for scope in Scope if scope in found.scopes)
    return Principal(found.tenant, found.key_id, scopes, TenantLimits.stored(found.limits))


class Apart:
    """ASGI middleware: each request begins for nobody, who sees no row, and whom it came to act for goes with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        with apart(NOBODY):
            await self._app(scope, receive, send)

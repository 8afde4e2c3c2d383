"""What one request brings along: whose it is, until when it may take, what it may see, and how it is called off."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, RunCancelled


class Cancellation:
    """Calls off the requests that carry it, all of them and for good. For one event loop, and to be used in its thread."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._reason: str | None = None

    @property
    def requested(self) -> bool:
        """Whether `cancel` was called."""
        return self._reason is not None

    def cancel(self, reason: str = "") -> None:
        """Call off whatever is under way, and all that would begin later."""
        self._reason = self._reason or reason
        for scope in self._scopes:
            scope.cancel()

    def check(self) -> None:
        """Raise RunCancelled once it is called off."""
        if self._reason is not None:
            raise RunCancelled(self._reason or None)

    @contextmanager
    def ending(self, at: float = math.inf) -> Generator[anyio.CancelScope, None, None]:
        """End the block at its next await when this is called off, or at this time of the event loop's clock.

        Raises RunCancelled when, or if before, it is called off; whether the time ended the block, the scope says.
        """
        self.check()
        with anyio.CancelScope(deadline=at) as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)
        self.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalContext:
    """The surroundings of one request.

    Attributes:
        tenant: whose corpora are read; empty for the application's own.
        agent: the agent whose role it is; its FILE entries are in reach of the role's GRAPH entries.
        session: who the request is for within the tenant.
        run_id, episode: what the request is a part of; with the session, they are in the log.
        cancellation: what calls it off.
        deadline: until when it has an answer; None for a minute from when it is begun.
        filters: metadata that a document must have exactly as it is here, to be found.
        turn_message: what is searched instead of the argument that an action's search names.
        conversation_id: the conversation, whose cached results are kept apart.
        source_paths: the paths and URLs, as declared, of the sources that alone may be used; empty for all.
        accept_stale: whether results older than their TTL are taken where no others are to be had.
    """

    tenant: str = ""
    agent: type | None = None
    session: str = ""
    run_id: str = ""
    episode: str = ""
    cancellation: Cancellation = field(default_factory=Cancellation)
    deadline: Deadline | None = None
    filters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    turn_message: str | None = None
    conversation_id: str = ""
    source_paths: tuple[str, ...] = ()
    accept_stale: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", MappingProxyType(dict(self.filters)))

    @property
    def labels(self) -> dict[str, str]:
        """What log lines say of the request: what is known of its session, run and episode."""
        known = {"session": self.session, "agent_run": self.run_id, "episode": self.episode}
        return {name: value for name, value in known.items() if value}

    @contextmanager
    def limits(self, deadline: Deadline) -> Generator[None, None, None]:
        """End the block at the deadline or when the request is called off. Raises DeadlineExceeded or RunCancelled."""
        with self.cancellation.ending(deadline.at) as scope:
            yield
        if scope.cancelled_caught:
            raise DeadlineExceeded()

"""What the parts of the Neo4j backend ask of its driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from pipeline.deadline import Deadline


class Sessions(Protocol):
    """Runs single statements, each in a transaction of its own, repeated by the driver's judgement.

    A failure is one of our errors; a cancelled call ends its transaction on the server.
    """

    async def read(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        """Run a statement that writes nothing and return its records."""
        ...

    async def write(
        self, database: str, query: str, parameters: Mapping[str, Any], deadline: Deadline
    ) -> list[dict[str, Any]]:
        """Run a statement, commit it and return its records. It may run more than once, so it must be idempotent."""
        ...

    def database_of(self, corpus: str) -> str:
        """Return the database that holds the graphs of a corpus, by the corpus's name. Raises ConfigurationError."""
        ...


class Taker(Protocol):
    """Takes the records of a statement, one by one."""

    def add(self, record: Mapping[str, Any], /) -> None:
        """Take a record. What this raises ends the statement."""
        ...


TakerT = TypeVar("TakerT", bound=Taker)


class Feeds(Protocol):
    """Runs reading statements whose records nobody collects."""

    async def feed(
        self,
        database: str,
        query: str,
        parameters: Mapping[str, Any],
        begin: Callable[[], TakerT],
        fetch: int,
        deadline: Deadline,
    ) -> TakerT:
        """Run a statement as `Sessions.read` does, but give its records to what `begin` returns, and return that.

        `fetch` records travel at a time. Where the statement is begun anew, `begin` is called again.
        """
        ...

    def database_of(self, corpus: str) -> str:
        """See `Sessions`."""
        ...

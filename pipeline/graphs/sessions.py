"""What the parts of the Neo4j backend ask of its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

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

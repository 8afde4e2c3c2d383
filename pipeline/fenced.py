"""What a fenced transaction is asked to do with its unit, kept until the store applies it right before the commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pipeline.ports import Tx
from pipeline.protocol import storable
from schemas.query import Wire
from schemas.runs import Lease, RunState


class FencedTransaction:
    """A `FencedTx`: collects what is to happen to the unit, which the store applies right before the commit."""

    def __init__(self, tx: Tx, lease: Lease) -> None:
        self._tx = tx
        self._lease = lease
        self.step = lease.step
        self.generation: int | None = None
        self.state = RunState.RUNNING
        self.error = ""
        self.words: list[Wire] = []
        self.payloads: list[dict[str, Any]] = []

    async def execute(self, query: str, *args: Any) -> str:
        """See `Tx`."""
        return await self._tx.execute(query, *args)

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """See `Tx`."""
        return await self._tx.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Any:
        """See `Tx`."""
        return await self._tx.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        """See `Tx`."""
        return await self._tx.fetchval(query, *args)

    async def copy(self, table: str, columns: Sequence[str], records: Iterable[Sequence[Any]]) -> None:
        """See `Tx`."""
        await self._tx.copy(table, columns, records)

    def event(self, body: Wire) -> None:
        """See `FencedTx`."""
        self.words.append(body)

    def advance(self, step: int, generation: int | None = None) -> None:
        """See `FencedTx`."""
        self.step = step
        self.generation = generation if generation is not None else self.generation

    def spawn(self, payloads: Sequence[dict[str, Any]], next_step: int) -> None:
        """See `FencedTx`."""
        if not payloads:
            raise ValueError("a run can not wait for no batches")
        self.payloads = list(payloads)
        self.state, self.step = RunState.WAITING, next_step

    def finish(self, state: RunState, error: str = "") -> None:
        """See `FencedTx`."""
        if not state.terminal:
            raise ValueError(f"{state.value} is no final state")
        self.state, self.error = state, storable(error)

    def outlook(self) -> Lease | None:
        """See `FencedTx`."""
        if self.state is not RunState.RUNNING:
            return None
        generation = self.generation if self.generation is not None else self._lease.generation
        return replace(self._lease, step=self.step, generation=generation)

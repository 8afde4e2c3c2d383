"""A generation as canonical JSON lines: two corpora with the same content give the same bytes after the first line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import orjson

from pipeline.deadline import Deadline
from pipeline.errors import NotFound
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.ids import CorpusId, show

_SQL = load("export")

PAGE = 2_000
"""Rows fetched at a time."""

SECTIONS = ("documents", "chunks", "mentions", "facts", "entities", "relations", "memberships", "communities")
"""The kinds of lines, in the order in which they follow the header."""

CODE_SECTIONS = ("sources", "links")
"""Those that follow where there is source code."""

_IDS = frozenset({"chunk_id", "entity_no", "source_no", "target_no", "community_id", "parent"})


class Transactions(Protocol):
    """Opens transactions; the pool does."""

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block."""
        ...


async def export(
    pool: Transactions, corpus: CorpusId, generation: int, deadline: Deadline
) -> AsyncGenerator[str, None]:
    """Yield the lines of a generation, each ending in a newline, keys sorted, `kind` telling what a line is.

    First a header with the corpus's name and the manifest, then the sections. Nothing after the header depends on the
    name, times, runs, numbers, or where sources lie. Read through cursors in one snapshot of the database; pin the
    generation for as long as it takes, and close the generator if you leave it early.

    Raises:
        NotFound: the generation cannot be read (any more).
    """
    async with pool.transaction(deadline) as tx:
        await tx.execute(_SQL["one_snapshot"])
        header = await tx.fetchrow(_SQL["header"], corpus, generation)
        if header is None:
            raise NotFound(f"Generation {generation} of this corpus cannot be read (any more).")
        manifest = header["manifest"]
        yield _line("header", {"format": 1, "corpus": header["name"], "generation": generation, "manifest": manifest})
        for section in (*SECTIONS, *CODE_SECTIONS):
            args = (corpus, generation, manifest["collection"]) if section == "chunks" else (corpus, generation)
            async for row in _rows(tx, section, args):
                yield _line(section, {n: _plain(n, value) for n, value in row.items() if value or n != "properties"})


async def _rows(tx: Tx, section: str, args: tuple[object, ...]) -> AsyncIterator[Any]:
    """Yield the rows of a section; the names of cursors are those of our own queries."""
    await tx.execute(f"declare export_{section} no scroll cursor for {_SQL[section]}", *args)
    while rows := await tx.fetch(f"fetch {PAGE} from export_{section}"):
        for row in rows:
            yield row
    await tx.execute(f"close export_{section}")


def _plain(name: str, value: Any) -> Any:
    """Show numbers of 63 bits as on the wire: JSON readers lose the last digits of large ones."""
    if name == "path":
        return [show(number) for number in value]
    return show(value) if name in _IDS and value is not None else value


def _line(kind: str, row: dict[str, Any]) -> str:
    return orjson.dumps({"kind": kind, **row}, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()

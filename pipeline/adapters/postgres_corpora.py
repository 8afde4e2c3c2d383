"""Corpora, their sources, and the accounting of documents, in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound
from pipeline.plan import Known
from pipeline.ports import Tx
from pipeline.protocol import storable, storable_json
from pipeline.queries import load
from schemas.corpora import Corpus, CorpusSummary
from schemas.documents import DocumentOutcome, Item, Outcome, Source, SourceKind
from schemas.ids import CorpusId, RunId, show
from schemas.manifest import Manifest
from schemas.settings import CorpusSettings

_SQL = load("corpora")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

MANY = 500
"""Chunks of one generation from which on the planner is helped: with ten mentions each, looking them all up in each other takes
seconds.
"""


class Transactions(Protocol):
    """Opens transactions; the pool does."""

    def transaction(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Open a transaction that commits at the end of the block."""
        ...


class PostgresCorpora:
    """Corpora of one database. Names are unique within a tenant; every read names the tenant."""

    def __init__(self, pool: Transactions) -> None:
        self._pool = pool

    async def create(self, tenant: str, name: str, settings: CorpusSettings | None, deadline: Deadline) -> Corpus:
        """Return the corpus, made if missing. Settings given for one that exists replace its settings.

        Raises:
            InvalidRequest: that is no name for a corpus.
            NotFound: there is no such tenant.
        """
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no name for a corpus: up to 100 letters, digits, dots, dashes, underscores."
            )
        async with self._pool.transaction(deadline) as tx:
            if not await tx.fetchval(_SQL["has_tenant"], tenant):
                raise NotFound(f"There is no tenant {tenant!r}; `sapwood tenant create {tenant}` makes it.")
            values = (settings or CorpusSettings()).model_dump(mode="json")
            made = await tx.execute(_SQL["create_corpus"], tenant, name, values)
            if settings is not None and made.endswith(" 0"):
                await tx.execute(_SQL["set_settings"], tenant, name, values)
            return await _get(tx, tenant, name)

    async def get(self, tenant: str, name: str, deadline: Deadline) -> Corpus:
        """Return the corpus. Raises NotFound."""
        async with self._pool.transaction(deadline) as tx:
            return await _get(tx, tenant, name)

    async def listing(self, tenant: str, deadline: Deadline) -> list[CorpusSummary]:
        """Return all corpora of the tenant by name, with the counts of their current generations."""
        async with self._pool.transaction(deadline) as tx:
            return [_summary(row) for row in await tx.fetch(_SQL["list_corpora"], tenant)]

    async def delete(self, tenant: str, name: str, deadline: Deadline) -> None:
        """Remove the corpus and every row, vector, run and event of it, in one transaction. Raises NotFound.

        What other stores have of it is remembered there as buried, until it is gone too.
        """
        async with self._pool.transaction(deadline) as tx:
            corpus = await _get(tx, tenant, name)
            await tx.execute(_SQL["bury"], corpus.corpus_id)
            await tx.execute(_SQL["drop_collections"], corpus.corpus_id)
            await tx.execute(_SQL["delete_rows"], corpus.corpus_id)
            await tx.execute(_SQL["delete_corpus"], corpus.corpus_id)

    async def sources(self, corpus: CorpusId, deadline: Deadline) -> list[Source]:
        """Return the remembered sources, in the order given."""
        async with self._pool.transaction(deadline) as tx:
            rows = await tx.fetch(_SQL["get_sources"], corpus)
        return [Source(SourceKind(r["kind"]), r["location"], tuple(r["include"]), tuple(r["exclude"])) for r in rows]

    async def known(self, corpus: CorpusId, deadline: Deadline) -> dict[str, Known]:
        """Return what the current generation knows of all its documents, by id; empty before the first."""
        async with self._pool.transaction(deadline) as tx:
            return {row["document_id"]: Known(*row) for row in await tx.fetch(_SQL["known_documents"], corpus)}

    async def known_some(self, corpus: CorpusId, ids: Sequence[str], deadline: Deadline) -> dict[str, Known]:
        """Return the same for these documents."""
        async with self._pool.transaction(deadline) as tx:
            return {row["document_id"]: Known(*row) for row in await tx.fetch(_SQL["known_some"], corpus, list(ids))}

    async def communities(
        self, corpus: CorpusId, generation: int, limit: int, deadline: Deadline
    ) -> Sequence[dict[str, Any]]:
        """Return the communities of a generation as (id, level, size, name, summary), largest first."""
        async with self._pool.transaction(deadline) as tx:
            rows = await tx.fetch(_SQL["communities"], corpus, generation, limit)
        return [{**row, "community_id": show(row["community_id"])} for row in rows]

    async def repositories(self, deadline: Deadline) -> dict[str, bool]:
        """Return the locations of all repositories that are sources, each with whether a run that has not ended may read it."""
        async with self._pool.transaction(deadline) as tx:
            return {row["location"]: row["busy"] for row in await tx.fetch(_SQL["repositories"])}

    async def accounting(
        self, run: RunId, limit: int, deadline: Deadline
    ) -> tuple[dict[str, int], list[DocumentOutcome]]:
        """Return the counts of a run's outcomes, and up to `limit` documents that were not simply indexed or unchanged."""
        async with self._pool.transaction(deadline) as tx:
            counts = await PostgresAccounting().outcome_counts(tx, run)
            rows = await tx.fetch(_SQL["notable_outcomes"], run, limit)
        return counts, [DocumentOutcome(r["document_id"], r["outcome"], r["reason"]) for r in rows]

    async def outcomes(
        self, run: RunId, after: str, outcome: Outcome | None, limit: int, deadline: Deadline
    ) -> list[DocumentOutcome]:
        """Return up to `limit` documents after this id, in order of their ids, with their outcomes.

        Documents that the plan found unchanged are in the counts alone.
        """
        async with self._pool.transaction(deadline) as tx:
            rows = await tx.fetch(_SQL["outcomes"], run, after, outcome.value if outcome else None, limit)
        return [DocumentOutcome(r["document_id"], Outcome(r["outcome"]), r["reason"], r["chunks"]) for r in rows]


class PostgresAccounting:
    """What an index run writes about its sources and documents, in the transaction of the work itself."""

    async def remember_sources(self, tx: Tx, corpus: CorpusId, sources: Sequence[Source]) -> None:
        """Replace the remembered sources."""
        await tx.execute(_SQL["clear_sources"], corpus)
        for ordinal, source in enumerate(sources):
            await tx.execute(
                _SQL["add_source"],
                corpus,
                ordinal,
                source.kind.value,
                source.location,
                list(source.include),
                list(source.exclude),
            )

    async def add_outcomes(self, tx: Tx, run: RunId, outcomes: Sequence[DocumentOutcome]) -> None:
        """Account for documents; the last outcome of a document stays."""
        if outcomes:
            columns = zip(
                *((o.document_id, str(o.outcome), storable(o.reason), o.chunks) for o in outcomes), strict=True
            )
            await tx.execute(_SQL["add_outcomes"], run, *(list(column) for column in columns))

    async def outcome_counts(self, tx: Tx, run: RunId) -> dict[str, int]:
        """Return how many documents of a run ended how."""
        return {row["outcome"]: row["documents"] for row in await tx.fetch(_SQL["outcome_counts"], run)}

    async def restat(self, tx: Tx, corpus: CorpusId, items: Sequence[Item]) -> None:
        """Note size, time stamp and place of files whose content did not change."""
        if items:
            columns = zip(*((i.document_id, i.size, i.mtime_ns, i.locator) for i in items), strict=True)
            await tx.execute(_SQL["restat"], corpus, *(list(column) for column in columns))

    async def set_result(self, tx: Tx, run: RunId, result: Mapping[str, Any]) -> None:
        """Keep what a unit found out."""
        await tx.execute(_SQL["set_result"], run, storable_json(dict(result)))

    async def get_result(self, tx: Tx, run: RunId) -> dict[str, Any]:
        """Return what the run kept so far."""
        return await tx.fetchval(_SQL["run_result"], run) or {}

    async def current(self, tx: Tx, corpus: CorpusId) -> Manifest | None:
        """Return the manifest of the corpus's current generation."""
        found = await tx.fetchval(_SQL["current_manifest"], corpus)
        return Manifest.model_validate(found) if found else None

    async def touched(self, tx: Tx, corpus: CorpusId, number: int) -> bool:
        """Whether anything was born or died at this number, or nothing is published yet."""
        found: bool = await tx.fetchval(_SQL["touched"], corpus, number)
        return found

    async def withdraw(self, tx: Tx, corpus: CorpusId, number: int) -> None:
        """Give up a generation at which nothing was born or died."""
        await tx.execute(_SQL["withdraw"], corpus, number)

    async def live_chunks(self, tx: Tx, corpus: CorpusId) -> int:
        """Return how many chunks the generation in the making will have."""
        found: int = await tx.fetchval(_SQL["live_chunks"], corpus)
        return found

    async def expect_many(self, tx: Tx, corpus: CorpusId, number: int) -> bool:
        """If the number wrote many rows, which the planner knows nothing of yet, have the queries of this transaction planned
        for that; return whether it did.
        """
        return await tx.fetchval(_SQL["expect_many"], corpus, number, MANY) is not None

    async def analyze(self, tx: Tx) -> None:
        """Refresh the planner's statistics; a table that another process analyzes is left to it."""
        await tx.execute(_SQL["analyze"])

    async def batch_results(self, tx: Tx, root: RunId) -> list[dict[str, Any]]:
        """Return what the batches of an index run found out, in no order."""
        return [row["result"] for row in await tx.fetch(_SQL["batch_results"], root)]


async def _get(tx: Tx, tenant: str, name: str) -> Corpus:
    row = await tx.fetchrow(_SQL["get_corpus"], tenant, name)
    if row is None:
        raise NotFound(f"Corpus not found: {name}. `sapwood index {name} FOLDER` makes it.")
    return Corpus(
        corpus_id=CorpusId(row["corpus_id"]),
        tenant=tenant,
        name=row["name"],
        settings=CorpusSettings.model_validate(row["settings"]),
        generation=row["current_generation"],
    )


def _summary(row: Any) -> CorpusSummary:
    manifest: dict[str, dict[str, dict[str, int]]] = row["manifest"] or {"stores": {}}
    return CorpusSummary(
        name=row["name"],
        generation=row["current_generation"],
        counts={name: check["rows"] for name, check in manifest["stores"].items()},
        created_at=row["created_at"].isoformat(),
    )

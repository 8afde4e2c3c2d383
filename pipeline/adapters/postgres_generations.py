"""Generations in PostgreSQL: numbers, the checks of their stores, and the one transaction that makes one current."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound, PromotionConflict, PromotionRefused
from pipeline.generations.gate import Facts, Violations, sparse_override
from pipeline.generations.manifest import Draft, Figures, check, collection_name, manifest, outside_name, republished
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.ids import CorpusId, RunId
from schemas.manifest import Manifest, StoreCheck

_SQL = load("generations")
_VOID = load("projection")["void"]


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """A generation as people see it. Times are UTC ISO strings; `pins` are the processes that hold it now."""

    number: int
    state: str
    run_id: RunId
    created_at: str
    published_at: str | None
    manifest: Manifest | None
    pins: int


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document of a generation. `chars` and `chunks` are counts."""

    document_id: str
    title: str
    media_type: str
    chars: int
    chunks: int
    metadata: dict[str, Any]


class Connections(Protocol):
    """Lends connections; the pool does."""

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Tx]:
        """Lend a connection for reads."""
        ...


class PostgresGenerations:
    """Reads about generations."""

    def __init__(self, pool: Connections) -> None:
        self._pool = pool

    async def manifest(self, corpus: CorpusId, number: int, deadline: Deadline) -> Manifest:
        """Return the manifest of a generation that can still be read. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            return await _manifest(tx, corpus, number)

    async def documents(
        self, corpus: CorpusId, number: int, after: str, limit: int, deadline: Deadline
    ) -> list[DocumentInfo]:
        """Return up to `limit` documents by id (code points) from the first one after `after` on."""
        async with self._pool.connection(deadline) as tx:
            return [DocumentInfo(**row) for row in await tx.fetch(_SQL["list_documents"], corpus, number, after, limit)]

    async def verify(self, corpus: CorpusId, number: int, deadline: Deadline) -> dict[str, StoreCheck]:
        """Count and sum all rows that a generation sees, whatever its manifest says. Raises NotFound."""
        async with self._pool.connection(deadline) as tx:
            found = await _manifest(tx, corpus, number)
            rows = await tx.fetch(_SQL["totals"], corpus, number, found.collection)
        return {row["store"]: check(row["rows"], int(row["total"])) for row in rows}

    async def list(self, corpus: CorpusId, deadline: Deadline) -> list[GenerationInfo]:
        """Return all generations, newest first, the reclaimed and aborted ones included."""
        async with self._pool.connection(deadline) as tx:
            return [_info(row) for row in await tx.fetch(_SQL["list_generations"], corpus)]


async def begin(tx: Tx, corpus: CorpusId, run: RunId) -> int:
    """Return the number that the run builds: the next one, or the one it began before.

    Raises:
        NotFound: there is no such corpus.
        Conflict: another run's build is open. If that run has ended, it must be aborted first.
    """
    await _lock(tx, corpus)
    for row in await tx.fetch(_SQL["open_builds"], corpus):
        if row["run_id"] != run:
            raise Conflict(f"Generation {row['number']} of this corpus is still being built or undone; try again soon.")
        return int(row["number"])
    return int(await tx.fetchval(_SQL["begin_generation"], corpus, run))


async def ensure_collection(tx: Tx, corpus: CorpusId, number: int, store: str, fingerprint: str, dimension: int) -> str:
    """Return the name of the physical collection of this corpus and embedding.

    In pgvector the table is made if missing. In another store it is that of the current generation if it lies there too,
    else a new one, which is noted here so that it is found again.
    """
    if store == "pgvector":
        name = collection_name(corpus, fingerprint)
        await tx.execute(_SQL["ensure_collection"], corpus, name, fingerprint, dimension)
        return name
    row = await tx.fetchrow(_SQL["outside_collection"], corpus, store, fingerprint)
    name = row["current"] or outside_name(row["uid"], number, fingerprint)
    await tx.execute(_SQL["note_collection"], corpus, store, name, fingerprint, dimension)
    return name


async def checks(
    tx: Tx, corpus: CorpusId, number: int, collection: str, base: Manifest | None, dense_rows: int | None = None
) -> dict[str, StoreCheck]:
    """Return the check of each store as this number sees it: the base's, continued by what was born and died since.

    `base` is the manifest of the current generation. A collection that the base does not name is counted in full;
    `dense_rows` were counted by the store that has them, if that is not PostgreSQL.
    """
    stores = base.stores if base else {}
    found: dict[str, StoreCheck] = {}
    moved = base is not None and base.collection != collection
    for row in await tx.fetch(_SQL["changes"], corpus, number, collection):
        known = None if moved and row["store"] == "dense" else stores.get(row["store"])
        found[row["store"]] = check(row["rows"], int(row["total"]), known)
    if dense_rows is not None:
        found["dense"] = StoreCheck(rows=dense_rows, checksum="")
    elif moved:
        row = await tx.fetchrow(_SQL["dense_total"], number, collection)
        found["dense"] = check(row["rows"], int(row["total"]))
    return found


async def promote(tx: Tx, corpus: CorpusId, number: int, draft: Draft) -> Manifest:
    """Make the generation current and return its manifest, in the caller's fenced transaction.

    Raises:
        PromotionRefused: the gate found something; nothing is changed and the previous generation stays current.
        PromotionConflict: the generation is not open any more, or the corpus moved.
    """
    name, current, base = await _lock(tx, corpus)
    await _require_open(tx, corpus, number)
    stores = await checks(tx, corpus, number, draft.collection, base, draft.dense_rows)
    violations = Violations(*await tx.fetchrow(_SQL["violations"], corpus, number))
    facts = Facts(draft.policy, stores, draft.extracted, violations, draft.schema_hash, draft.graph_rows)
    figures = await _figures(tx, corpus, stores)
    override = sparse_override(facts, draft.override, draft.sparse, draft.paid, figures.at)
    made = manifest(name, number, draft, figures, override, base)
    await _publish(tx, corpus, current, made)
    return made


async def republish(
    tx: Tx, corpus: CorpusId, number: int, run: RunId, outcomes: dict[str, int], revisions: dict[str, str]
) -> Manifest:
    """Publish the current generation again under a number at which nothing was born or died, as read at other revisions.

    Its graph stays the one that it has, in whatever store that lies; what it took to build it was paid before.

    Raises:
        NotFound: there is no current generation.
        PromotionConflict: the number is not open any more, or the corpus moved.
    """
    _, current, base = await _lock(tx, corpus)
    if base is None:
        raise NotFound("This corpus has no generation yet.")
    await _require_open(tx, corpus, number)
    outside = base.dense_store != "pgvector"
    void: tuple[int, ...] = tuple(row["number"] for row in await tx.fetch(_VOID, corpus, number)) if outside else ()
    at = (await tx.fetchval(_SQL["database_time"])).isoformat()
    made = republished(base, number, run, outcomes, revisions, void, at)
    await _publish(tx, corpus, current, made)
    return made


async def rollback(
    tx: Tx,
    corpus: CorpusId,
    target: int,
    number: int,
    run: RunId,
    dense_rows: int | None = None,
    void: tuple[int, ...] = (),
) -> Manifest:
    """Publish a retained earlier generation again under a number that `begin` gave; it costs what the difference costs.

    `dense_rows` and `void` are those of vectors outside of PostgreSQL, whose store was reverted before. A graph outside is
    that of the target.

    Raises:
        NotFound: the target is not retained, or is the current one.
        PromotionRefused: the rows of the target are not those of its manifest.
        PromotionConflict: the number is not open any more, or the corpus moved.
    """
    _, current, base = await _lock(tx, corpus)
    row = await tx.fetchrow(_SQL["hold_generation"], corpus, target)
    if row is None:
        raise NotFound(f"Generation {target} is not an earlier, retained one of this corpus.")
    await _require_open(tx, corpus, number)
    wanted = Manifest.model_validate(row["manifest"])
    for table in await tx.fetch(_SQL["versioned_tables"], corpus):
        await tx.fetchval(_SQL["revert_rows"], table["name"], corpus, target, number)
    stores = await checks(tx, corpus, number, wanted.collection, base, dense_rows)
    if stores != wanted.stores:
        raise PromotionRefused(("chunk_count_mismatch",), f"Generation {target} is not what its manifest says.")
    figures = await _figures(tx, corpus, stores)
    changes: dict[str, Any] = {
        "generation": number,
        "run_id": run,
        "outcomes": {},
        "rolled_back_from": target,
        "void": void,
        "promoted_at": figures.at,
    }
    made = wanted.model_copy(update=changes)
    await _publish(tx, corpus, current, made)
    return made


async def _require_open(tx: Tx, corpus: CorpusId, number: int) -> None:
    """Refuse a number that is closed before its rows are counted or reverted: they would seem not to add up."""
    if all(row["number"] != number for row in await tx.fetch(_SQL["open_builds"], corpus)):
        raise PromotionConflict()


async def _publish(tx: Tx, corpus: CorpusId, expected: int | None, made: Manifest) -> None:
    moved = await tx.execute(_SQL["move_corpus"], corpus, made.generation, expected)
    await tx.execute(_SQL["supersede"], corpus)
    at = await tx.fetchval(_SQL["database_time"])
    published = await tx.execute(_SQL["publish"], corpus, made.generation, made.model_dump(mode="json"), at)
    if not (moved.endswith(" 1") and published.endswith(" 1")):
        raise PromotionConflict()


async def _figures(tx: Tx, corpus: CorpusId, stores: dict[str, StoreCheck]) -> Figures:
    row = await tx.fetchrow(_SQL["community_figures"], corpus)
    at = await tx.fetchval(_SQL["database_time"])
    return Figures(stores, row["communities"], row["levels"], at.isoformat())


async def _lock(tx: Tx, corpus: CorpusId) -> tuple[str, int | None, Manifest | None]:
    """Lock the corpus; return its name, its current generation and the manifest of that."""
    row = await tx.fetchrow(_SQL["lock_corpus"], corpus)
    if row is None:
        raise NotFound("The corpus is gone.")
    base = Manifest.model_validate(row["manifest"]) if row["manifest"] else None
    return row["name"], row["current_generation"], base


async def _manifest(tx: Tx, corpus: CorpusId, number: int) -> Manifest:
    found = await tx.fetchval(_SQL["get_manifest"], corpus, number)
    if found is None:
        raise NotFound(f"Generation {number} of this corpus cannot be read (any more).")
    return Manifest.model_validate(found)


def _info(row: Any) -> GenerationInfo:
    return GenerationInfo(
        number=row["number"],
        state=row["state"],
        run_id=row["run_id"],
        created_at=row["created_at"].isoformat(),
        published_at=row["published_at"].isoformat() if row["published_at"] else None,
        manifest=Manifest.model_validate(row["manifest"]) if row["manifest"] else None,
        pins=row["pins"],
    )

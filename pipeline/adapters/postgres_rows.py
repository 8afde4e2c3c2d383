"""Writing the rows of documents under a generation's number: a few statements and binary COPYs for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.generations import rows
from pipeline.generations.rows import DocumentRows
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.ids import CorpusId

_SQL = load("rows")

SLICE = 500
"""Documents that one statement ends: each of their rows is written anew, with its index entries, 20 to 30 µs a row."""


async def write_batch(
    tx: Tx, corpus: CorpusId, number: int, collection: str | None, documents: Sequence[DocumentRows]
) -> None:
    """Replace these documents: what is live of them dies at the number, and the new rows are born at it.

    Writing a batch again gives the same rows. Document ids must be distinct within a batch. `collection` is a name that
    `ensure_collection` returned, or None where another store holds the vectors.
    """
    await remove_documents(tx, corpus, number, [document.document_id for document in documents])
    await tx.copy("document", rows.DOCUMENT, rows.document_records(corpus, number, documents))
    await tx.copy("chunk", rows.CHUNK, rows.chunk_records(corpus, number, documents))
    await tx.copy("mention", rows.MENTION, rows.mention_records(corpus, number, documents))
    await tx.copy("fact", rows.FACT, rows.fact_records(corpus, number, documents))
    if collection is not None:
        await tx.copy(collection, rows.VECTOR, rows.vector_records(number, documents))


async def remove_documents(tx: Tx, corpus: CorpusId, number: int, ids: Sequence[str]) -> None:
    """End these documents, their chunks, vectors, mentions and facts at the number; unknown ids are no error."""
    for start in range(0, len(ids), SLICE):
        some = list(ids[start : start + SLICE])
        if not await tx.fetchval(_SQL["any_rows"], corpus, number, some):
            continue
        if chunks := await tx.fetchval(_SQL["kill_documents"], corpus, number, some):
            await tx.execute(_SQL["kill_vectors"], corpus, number, chunks)

"""Which chunks a request may see: exact matches on the metadata of documents, applied inside each leg."""

from __future__ import annotations

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest
from pipeline.retrieval.hydrate import ChunkStore
from pipeline.retrieval.rows import Ints
from schemas.ids import CorpusId
from schemas.query import QueryRequest

PSEUDO_KEYS = ("document", "source")
"""Filter keys that mean the document id and the location of its source instead of metadata of these names."""


async def allowed_chunks(
    store: ChunkStore, corpus: CorpusId, generation: int, request: QueryRequest, deadline: Deadline
) -> Ints | None:
    """Return the ids of the chunks that pass, ascending, perhaps none; or None where the request has no filters.

    Raises:
        InvalidRequest: `document` or `source` is no string.
    """
    if not request.filters:
        return None
    for key in PSEUDO_KEYS:
        if not isinstance(request.filters.get(key, ""), str):
            raise InvalidRequest(f"filters.{key} must be a string")
    return await store.allowed(corpus, generation, request.filters, deadline)

"""The built-in embedding: needs no model and no network."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
import numpy as np

from pipeline.deadline import Deadline
from pipeline.ingest.hashing import FINGERPRINT, hash_vectors
from pipeline.ports import Vectors

_SLICE = 1024


class HashEmbedder:
    """An `EmbeddingProvider`; in a thread, and cancelled or out of time between slices of 1,024 texts."""

    fingerprint = FINGERPRINT
    paid = False

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        """Return (n, 128) vectors, not normalised. Raises DeadlineExceeded."""
        slices: list[Vectors] = []
        for at in range(0, len(texts), _SLICE):
            deadline.budget(1.0)
            slices.append(await anyio.to_thread.run_sync(hash_vectors, texts[at : at + _SLICE]))
        return np.concatenate(slices)

"""Which store answers for the vectors of a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError
from pipeline.ports import DenseIndex
from schemas.manifest import Manifest


class DenseByManifest:
    """A `DenseIndex` that asks the one that a manifest names; while a corpus moves, its generations lie in two stores."""

    def __init__(self, indexes: Mapping[str, DenseIndex]) -> None:
        self._indexes = indexes

    async def search(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        k: int,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        """See `DenseIndex`. Raises ConfigurationError where this process was not told of the store."""
        return await self._of(manifest).search(manifest, vector, k, allowed, deadline)

    async def similarities(
        self, manifest: Manifest, vector: NDArray[np.float32], chunks: Sequence[int], deadline: Deadline
    ) -> dict[int, float]:
        """See `DenseIndex` and `search`."""
        return await self._of(manifest).similarities(manifest, vector, chunks, deadline)

    def _of(self, manifest: Manifest) -> DenseIndex:
        if manifest.dense_store not in self._indexes:
            raise ConfigurationError(f"The vectors of this generation lie in {manifest.dense_store}: set its URL.")
        return self._indexes[manifest.dense_store]

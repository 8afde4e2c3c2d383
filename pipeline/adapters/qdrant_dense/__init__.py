"""Vectors in Qdrant (extra `qdrant`): one physical collection for each corpus and embedding, one point for each version.

What a generation sees is decided by the filter of its queries, from `born`, `died` and the manifest's void numbers. There
is no alias, and nothing is moved at a promotion: the manifest alone says which collection is read, and as of when.
"""

from __future__ import annotations

from pipeline.errors import MissingExtra

try:
    from pipeline.adapters.qdrant_dense.client import Client, open_client
    from pipeline.adapters.qdrant_dense.store import QdrantDense, open_qdrant
except ImportError as missing:
    raise MissingExtra("dense_storage.backend: `qdrant` needs `pip install sapwood[qdrant]`.") from missing

__all__ = ["Client", "QdrantDense", "open_client", "open_qdrant"]

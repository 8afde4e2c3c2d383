"""The dense index and store over one Qdrant."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models
from qdrant_client.conversions.common_types import PointId

from pipeline.adapters.qdrant_dense import versions
from pipeline.adapters.qdrant_dense.client import Client, open_client
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, InconsistentGeneration, StoreRefused
from pipeline.ports import DensePoint
from schemas.manifest import Manifest

T = TypeVar("T")

EXACT_ROWS = 20_000
"""Vectors up to which the server compares all; beyond, its index answers."""

TIES = 16
"""How many neighbours more than asked for are fetched, so that ties at the end can be settled."""

MOST_TIES = 4096
"""The same when those are all equal; of a larger group of equals, any may be chosen."""

IDS, FLOATS = 20_000, 500_000
"""Ids in one filter (about 400 kB), and numbers in one batch of vectors (about 10 MB)."""

_NAME = re.compile(r"sapwood_[0-9a-f]{32}(?:_[0-9]{1,10})?_[0-9a-f]{12}")
_OLDEST = (1, 16)
_FOREIGN = "the dense collection is not the one that the manifest describes"


class QdrantDense:
    """A `DenseIndex` and `DenseStore` over a Qdrant of version 1.16 or later, or over the client's local mode.

    It touches no collection but those that `outside_name` names, after a corpus, a number and the embedding's fingerprint.
    """

    def __init__(self, client: Client, exact_rows: int = EXACT_ROWS) -> None:
        self._client = client
        self._qdrant = client.qdrant
        self._exact_rows = exact_rows
        self._known: set[tuple[str, str, int]] = set()

    async def search(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        k: int,
        allowed: NDArray[np.int64] | None,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        """See `DenseIndex`. A vector without a direction (all zeros) is near to nothing.

        A tie at the end is settled by chunk id if at most `MOST_TIES` more than `k` are as near.
        """
        rows = manifest.stores["dense"].rows
        candidates = rows if allowed is None else min(rows, len(allowed))
        if k < 1 or not candidates or not vector.any():
            return []
        await self._check(manifest, deadline)
        parts = [None] if allowed is None else _parts(allowed.tolist(), IDS)
        found = [await self._nearest(manifest, vector, k, part, candidates, deadline) for part in parts]
        return sorted(chain.from_iterable(found), key=lambda hit: (-hit[1], hit[0]))[:k]

    async def similarities(
        self, manifest: Manifest, vector: NDArray[np.float32], chunks: Sequence[int], deadline: Deadline
    ) -> dict[int, float]:
        """See `DenseIndex`."""
        if not chunks:
            return {}
        await self._check(manifest, deadline)
        parts = _parts(sorted(set(chunks)), IDS)
        found = [await self._query(manifest, vector, len(part), part, True, deadline) for part in parts]
        return dict(chain.from_iterable(found))

    async def ensure(self, collection: str, dimension: int, deadline: Deadline) -> None:
        """See `DenseStore`. Interrupted, it is completed by the next call.

        Raises:
            ConfigurationError: the server is too old to update on a condition.
            InconsistentGeneration: the collection is there with another dimension.
        """
        if not await self._exists(collection, deadline):
            await self._check_version(deadline)
            await self._create(collection, dimension, deadline)
        info = await self._info(collection, deadline)
        if _dimension(info) != dimension:
            raise InconsistentGeneration(_FOREIGN)
        for field, schema in versions.INDEXES.items():
            if field not in info.payload_schema and not self._client.local:  # which has no indexes
                await self._index(collection, field, schema, deadline)

    async def write(
        self, collection: str, number: int, points: Sequence[DensePoint], void: Collection[int], deadline: Deadline
    ) -> None:
        """See `DenseStore`. All points of a document are in one call; a document that has none is for `remove`."""
        if not points:
            return
        new = [versions.born_at(number, point) for point in points]
        documents = sorted({point.document for point in points})
        await self._update(collection, versions.ended(number, documents, void, but=new), deadline)
        for part in _parts(new, max(1, FLOATS // len(points[0].vector))):
            await self._update(collection, [versions.put(part, void)], deadline)

    async def remove(
        self, collection: str, number: int, documents: Sequence[str], void: Collection[int], deadline: Deadline
    ) -> None:
        """See `DenseStore`."""
        for part in _parts(list(documents), IDS):
            await self._update(collection, versions.ended(number, part, void), deadline)

    async def count(self, collection: str, number: int, void: Collection[int], deadline: Deadline) -> int:
        """See `DenseStore`."""
        return await self._count(collection, versions.seen(number, void), deadline)

    async def undo(self, collection: str, number: int, deadline: Deadline) -> None:
        """See `DenseStore`."""
        born = versions.deleted(models.Filter(must=versions.is_one_of("born", [number])))
        await self._update(collection, [born, *versions.revived([number])], deadline)

    async def revert(
        self, collection: str, target: int, number: int, void: Collection[int], deadline: Deadline
    ) -> None:
        """See `DenseStore`. The vectors are copied to the last bit."""
        await self._update(collection, [versions.ended_since(target, number, void)], deadline)
        which, after = versions.lost(target, number, void), None
        limit = max(1, FLOATS // max(1, _dimension(await self._info(collection, deadline))))
        while True:
            records, after = await self._page(collection, which, after, limit, deadline)
            if records:
                copies = [versions.copy_of(record, number) for record in records]
                await self._update(collection, [versions.put(copies, void)], deadline)
            if after is None:
                return

    async def reclaim(
        self, collection: str, kept: Collection[int], last: int, void: Collection[int], deadline: Deadline
    ) -> int:
        """See `DenseStore`. What void numbers killed is revived for good."""
        which = versions.rubbish(kept, last, void)
        found = await self._count(collection, which, deadline)
        await self._update(collection, [versions.deleted(which), *versions.revived(void)], deadline)
        return found

    async def drop(self, collection: str, deadline: Deadline) -> None:
        """See `DenseStore`."""
        self._known = {claim for claim in self._known if claim[0] != collection}
        name = _checked(collection)
        await self._client.call(lambda seconds: self._qdrant.delete_collection(name, timeout=seconds), deadline)

    async def _nearest(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        k: int,
        part: list[int] | None,
        candidates: int,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        """Return the nearest `k` and all that tie with the last of them, within `MOST_TIES`; nearest first."""
        exact, limit = candidates <= self._exact_rows, k + TIES
        while True:
            found = await self._query(manifest, vector, limit, part, exact, deadline)
            if len(found) < limit and not exact and len(found) < min(k, candidates):
                exact = True  # the index gave up
            elif len(found) < limit or found[-1][1] < found[k - 1][1] or limit >= k + MOST_TIES:
                return found
            else:
                limit = min(4 * limit, k + MOST_TIES)

    async def _query(
        self,
        manifest: Manifest,
        vector: NDArray[np.float32],
        limit: int,
        part: list[int] | None,
        exact: bool,
        deadline: Deadline,
    ) -> list[tuple[int, float]]:
        answer = await self._client.call(
            lambda seconds: self._qdrant.query_points(
                manifest.collection,
                query=versions.unit(vector),
                query_filter=versions.seen(manifest.generation, manifest.void, part),
                search_params=None if self._client.local else models.SearchParams(exact=exact),
                limit=limit,
                with_payload=["chunk"],
                timeout=seconds,
            ),
            deadline,
        )
        return [(versions.payload(hit)["chunk"], min(1.0, max(-1.0, hit.score))) for hit in answer.points]

    async def _count(self, collection: str, which: models.Filter, deadline: Deadline) -> int:
        name = _checked(collection)
        answer = await self._client.call(
            lambda seconds: self._qdrant.count(name, count_filter=which, exact=True, timeout=seconds), deadline
        )
        return answer.count

    async def _page(
        self,
        collection: str,
        which: models.Filter,
        first: PointId | None,
        limit: int,
        deadline: Deadline,
    ) -> tuple[list[models.Record], PointId | None]:
        """Return points with their vectors by id, and where the next page begins; None if there is none."""
        return await self._client.call(
            lambda seconds: self._qdrant.scroll(
                collection, scroll_filter=which, limit=limit, offset=first, with_vectors=True, timeout=seconds
            ),
            deadline,
        )

    async def _update(self, collection: str, operations: Sequence[models.UpdateOperation], deadline: Deadline) -> None:
        """Apply updates in order, each as a whole, and wait for them; strong ordering keeps replicas of one mind."""
        name = _checked(collection)
        await self._client.call(
            lambda seconds: self._qdrant.batch_update_points(
                name, operations, wait=True, ordering=models.WriteOrdering.STRONG, timeout=seconds
            ),
            deadline,
        )

    async def _exists(self, collection: str, deadline: Deadline) -> bool:
        name = _checked(collection)
        return await self._client.call(lambda _: self._qdrant.collection_exists(name), deadline)

    async def _create(self, collection: str, dimension: int, deadline: Deadline) -> None:
        params = models.VectorParams(size=dimension, distance=models.Distance.DOT)
        try:
            await self._client.call(
                lambda seconds: self._qdrant.create_collection(collection, vectors_config=params, timeout=seconds),
                deadline,
            )
        except StoreRefused:
            if not await self._exists(collection, deadline):  # else somebody was faster
                raise

    async def _index(
        self,
        collection: str,
        field: str,
        schema: models.IntegerIndexParams | models.KeywordIndexParams,
        deadline: Deadline,
    ) -> None:
        await self._client.call(
            lambda seconds: self._qdrant.create_payload_index(
                collection, field, field_schema=schema, wait=True, timeout=seconds
            ),
            deadline,
        )

    async def _check(self, manifest: Manifest, deadline: Deadline) -> None:
        """Make sure, once for each collection, that it is the one that the manifest describes."""
        claim = (manifest.collection, manifest.embedding, manifest.dimension)
        if claim in self._known:
            return
        if not manifest.collection.endswith(sha256(manifest.embedding.encode()).hexdigest()[:12]):
            raise InconsistentGeneration(_FOREIGN)
        if _dimension(await self._info(manifest.collection, deadline)) != manifest.dimension:
            raise InconsistentGeneration(_FOREIGN)
        self._known.add(claim)

    async def _info(self, collection: str, deadline: Deadline) -> models.CollectionInfo:
        name = _checked(collection)
        return await self._client.call(lambda _: self._qdrant.get_collection(name), deadline)

    async def _check_version(self, deadline: Deadline) -> None:
        version = (await self._client.call(lambda _: self._qdrant.info(), deadline)).version
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _OLDEST:
            raise ConfigurationError("SAPWOOD_QDRANT_URL: the server must be Qdrant 1.16 or later.")


@asynccontextmanager
async def open_qdrant(url: str, api_key: str | None = None) -> AsyncGenerator[QdrantDense, None]:
    """Open the store at an http(s) URL, or the local mode in a folder or in `:memory:`; see `open_client`."""
    async with open_client(url, api_key) as client:
        yield QdrantDense(client)


def _parts(items: list[T], size: int) -> list[list[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _dimension(info: models.CollectionInfo) -> int:
    """Return the dimension of a collection of ours, and 0 for one that was made otherwise."""
    params = info.config.params.vectors
    if isinstance(params, models.VectorParams) and params.distance is models.Distance.DOT:
        return params.size
    return 0


def _checked(collection: str) -> str:
    if not _NAME.fullmatch(collection):
        raise InconsistentGeneration("the manifest names no dense collection")
    return collection

"""Versions of vectors as points, and the filters and updates by which numbers see and change them; no I/O.

A point is `(chunk, born)`. Vectors are kept as unit vectors under the dot product, which is their cosine: Qdrant's own
cosine would normalise a vector anew at each copy, and change its last bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from qdrant_client import models

from pipeline.ports import DensePoint

Conditions: TypeAlias = list[models.Condition]

_INTEGER = models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=True)

INDEXES: dict[str, models.IntegerIndexParams | models.KeywordIndexParams] = {
    "chunk": models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False),
    "document": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
    "born": _INTEGER,
    "died": _INTEGER,
}
"""Every field that a filter names. They are made before the vectors, so that the graph of neighbours knows them."""


def unit(vector: NDArray[np.float32]) -> list[float]:
    """Return the unit vector of this direction; a vector of zeros has none and stays as it is."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    return cast("list[float]", (vector / (norm or 1.0)).astype(np.float32).tolist())


def payload(record: models.Record | models.ScoredPoint) -> dict[str, Any]:
    """Return the payload, which every point of ours has."""
    return record.payload or {}


def born_at(number: int, point: DensePoint) -> models.PointStruct:
    """Return the version of a chunk that is born at a number."""
    values = {"document": point.document, "graph_join_id": point.graph_join_id}
    return _point(number, point.chunk_id, values, unit(point.vector))


def copy_of(record: models.Record, number: int) -> models.PointStruct:
    """Return the same version as if it were born at a number; its vector is copied to the last bit."""
    values = {key: payload(record)[key] for key in ("document", "graph_join_id")}
    return _point(number, payload(record)["chunk"], values, cast("list[float]", record.vector))


def _point(number: int, chunk: int, values: dict[str, str], vector: list[float]) -> models.PointStruct:
    point_id = str(UUID(int=chunk << 64 | number))
    return models.PointStruct(id=point_id, vector=vector, payload={"chunk": chunk, **values, "born": number})


def seen(number: int, void: Collection[int], chunks: Sequence[int] | None = None) -> models.Filter:
    """Return the filter for what a number sees, of these chunks or of all."""
    alive = models.Filter(should=[*_living(void), _within("died", gt=number)])
    among = [] if chunks is None else is_one_of("chunk", chunks)
    return models.Filter(must=[_within("born", lte=number), alive, *among], must_not=is_one_of("born", void))


def rubbish(kept: Iterable[int], last: int, void: Collection[int]) -> models.Filter:
    """Return the filter for versions that died by `last` and that no kept number sees, and for those of void numbers."""
    wanted: Conditions = [models.Filter(must=[_within("born", lte=one), _within("died", gt=one)]) for one in kept]
    dead = models.Filter(must=[_within("died", lte=last)], must_not=[*wanted, *is_one_of("died", void)])
    return models.Filter(should=[dead, *is_one_of("born", void)])


def lost(target: int, number: int, void: Collection[int]) -> models.Filter:
    """Return the filter for versions that a target sees and that died before a later number."""
    between: Conditions = [_within("born", lte=target), _within("died", gt=target, lt=number)]
    return models.Filter(must=between, must_not=[*is_one_of("born", void), *is_one_of("died", void)])


def ended(
    number: int, documents: Sequence[str], void: Collection[int], but: Sequence[models.PointStruct] = ()
) -> list[models.UpdateOperation]:
    """Return what ends these documents at a number: what it bore itself is deleted, except some; what lives is killed."""
    theirs = is_one_of("document", documents)
    spared: Conditions = [models.HasIdCondition(has_id=[point.id for point in but])] if but else []
    own = models.Filter(must=[*theirs, *is_one_of("born", [number])], must_not=spared)
    return [deleted(own), killed(number, models.Filter(must=[*theirs, *_earlier(number, void)]))]


def ended_since(target: int, number: int, void: Collection[int]) -> models.UpdateOperation:
    """Return what kills, at a number, all living versions that were born after a target."""
    since = [_within("born", gt=target), *_earlier(number, void)]
    return killed(number, models.Filter(must=since, must_not=is_one_of("born", void)))


def killed(number: int, which: models.Filter) -> models.UpdateOperation:
    """Return what lets versions die at a number."""
    return models.SetPayloadOperation(set_payload=models.SetPayload(payload={"died": number}, filter=which))


def revived(numbers: Iterable[int]) -> list[models.UpdateOperation]:
    """Return what takes back the deaths at these numbers."""
    keys = ["died"]
    return [
        models.DeletePayloadOperation(
            delete_payload=models.DeletePayload(keys=keys, filter=models.Filter(must=[condition]))
        )
        for condition in is_one_of("died", numbers)
    ]


def deleted(which: models.Filter) -> models.UpdateOperation:
    """Return what deletes versions."""
    return models.DeleteOperation(delete=models.FilterSelector(filter=which))


def put(points: list[models.PointStruct], void: Collection[int]) -> models.UpdateOperation:
    """Return what inserts versions, or writes them again, but leaves those alone that have died in earnest.

    Such a write is late: its number was published and a later one has ended the version.
    """
    living = models.Filter(should=_living(void))
    return models.UpsertOperation(upsert=models.PointsList(points=points, update_filter=living))


def is_one_of(key: str, values: Iterable[int] | Iterable[str]) -> Conditions:
    """Return the condition, or none at all where there are no values."""
    wanted = cast("list[int]", sorted(values))
    return [models.FieldCondition(key=key, match=models.MatchAny(any=wanted))] if wanted else []


def _within(key: str, *, gt: int | None = None, lt: int | None = None, lte: int | None = None) -> models.FieldCondition:
    return models.FieldCondition(key=key, range=models.Range(gt=gt, lt=lt, lte=lte))


def _living(void: Iterable[int]) -> Conditions:
    """Return alternatives: nothing has ended it, or only what does not count."""
    return [models.IsEmptyCondition(is_empty=models.PayloadField(key="died")), *is_one_of("died", void)]


def _earlier(number: int, void: Iterable[int]) -> Conditions:
    """Return the conditions for living versions that were born before a number."""
    return [_within("born", lt=number), models.Filter(should=_living(void))]

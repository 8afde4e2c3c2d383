"""Rows of a generation as flat columns, the way they leave the database and enter a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Chunks in any order; all columns have the same length. `terms` are packed as by `analyzer.pack`."""

    chunk_id: Ints
    document: list[str]
    ordinal: NDArray[np.int32]
    length: NDArray[np.int32]
    terms: list[bytes]


@dataclass(frozen=True, slots=True)
class MentionRows:
    """Links from chunks to entities, possibly repeated. They die with their chunk, so there is no list of dead ones.

    `about` says which were carried in from the title or a heading; None: none of them.
    """

    chunk_id: Ints
    entity_no: Ints
    about: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class EntityRows:
    """Entities with their identity keys and the finest community of each (-1: none)."""

    entity_no: Ints
    key: list[str]
    community: Ints


@dataclass(frozen=True, slots=True)
class RelationRows:
    """Directed, typed edges. (source, target, type) is unique among live ones."""

    source: Ints
    target: Ints
    type: list[str]
    weight: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Delta:
    """What separates two generations: apply the dead first, then the born.

    A row that died and was born again with the same id (a rewritten document) stands in both halves.
    """

    generation: int
    dead_chunks: Ints
    dead_entities: Ints
    dead_relations: RelationRows
    chunks: ChunkRows
    mentions: MentionRows
    entities: EntityRows
    relations: RelationRows

"""The graph of one generation: who is mentioned where, and which entities are related."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.errors import InconsistentGeneration
from pipeline.retrieval.chunks import RowChange, Rows, find
from pipeline.retrieval.rows import Delta, EntityRows, Ints, MentionRows, RelationRows
from schemas.ids import number_of

Positions = NDArray[np.int32]

ABOUT = 5
"""Weight of the link between a passage and what its title or a heading names; that of any other mention is 1.

Chosen on MuSiQue and HotpotQA, where everything from 3 to 10 is about as good.
"""

_MANY = 1 << 20
"""More mentions than one chunk has."""


def key_number(key: str) -> int:
    """Return the number under which an identity key is known in a snapshot: 63 bits of its hash, accents aside."""
    folded = key if key.isascii() else unicodedata.normalize("NFD", key)
    return number_of("".join(c for c in folded if not unicodedata.combining(c)))


@dataclass(frozen=True, slots=True)
class Csr:
    """Lists by position: the list of `i` is `targets[offsets[i]:offsets[i + 1]]`; `weights` go with `targets`."""

    offsets: Positions
    targets: Positions
    weights: Positions

    @classmethod
    def group(
        cls, rows: NDArray[Any], targets: NDArray[Any], shape: tuple[int, int], weights: Positions | None = None
    ) -> Self:
        """Group pairs by row; targets ascend, and a pair given several times stands there once, with all its weight."""
        pairs = (rows.astype(np.int32), targets.astype(np.int32))
        data = np.ones(len(rows), dtype=np.int32) if weights is None else weights
        return cls._of(sparse.coo_array((data, pairs), shape=shape).tocsr())

    @classmethod
    def links(cls, rows: NDArray[Any], targets: NDArray[Any], shape: tuple[int, int], about: NDArray[np.bool_]) -> Self:
        """Group pairs by row; the weight of each is ABOUT if it is so given at least once, else 1."""
        lists = cls.group(rows, targets, shape, np.where(about, _MANY, 1).astype(np.int32))
        return replace(lists, weights=np.where(lists.weights < _MANY, 1, ABOUT).astype(np.int32))

    @classmethod
    def _of(cls, matrix: sparse.csr_array) -> Self:
        matrix.sum_duplicates()
        return cls(matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data.astype(np.int32))

    def transposed(self, columns: int) -> Self:
        """Return the lists the other way round; `columns` is the number of possible targets."""
        shape = (len(self.offsets) - 1, columns)
        return self._of(sparse.csr_array((self.weights, self.targets, self.offsets), shape=shape).T.tocsr())

    def rows(self) -> Positions:
        """Return the row of each target."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))

    def strengths(self) -> Positions:
        """Return the sum of the weights of each list."""
        return np.diff(np.concatenate([[0], np.cumsum(self.weights)])[self.offsets]).astype(np.int32)

    def degrees(self, rows: Rows) -> Rows:
        """Return the lengths of these lists."""
        return (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)

    def spans(self, rows: Rows, counts: Rows) -> tuple[Rows, Rows]:
        """Return (positions in `rows`, indices into `targets`) of the first `counts` entries of each list, in order."""
        owners = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return owners, self.offsets[rows][owners].astype(np.int64) + within

    def gather(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return (positions in `rows`, targets) of the whole lists of these rows, one after the other."""
        owners, at = self.spans(rows, self.degrees(rows))
        return owners, self.targets[at].astype(np.int64)

    def heaviest_first(self) -> Self:
        """Order each list by weight, highest first, then by target."""
        if not len(self.weights) or int(self.weights.max()) == 1:
            return self
        rank = self.rows().astype(np.int64) * (int(self.weights.max()) + 1) - self.weights
        order = np.argsort(rank, kind="stable")
        return type(self)(self.offsets, self.targets[order], self.weights[order])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.offsets.nbytes + self.targets.nbytes + self.weights.nbytes


@dataclass(frozen=True, slots=True)
class Relations:
    """Live directed edges: `ids` ascending (hash of source, target and type), the two ends as entities."""

    ids: Ints
    sources: Positions
    targets: Positions


def _relation_ids(rows: RelationRows) -> Ints:
    """Hash (source, target, type) to 64 bits by the finalizer of splitmix64, with wrap-around arithmetic."""
    types = {name: number_of(name) for name in set(rows.type)}
    mixed = np.array([types[name] for name in rows.type], dtype=np.uint64)
    for part in (rows.source, rows.target):
        mixed = (mixed ^ part.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)


@dataclass(frozen=True, slots=True)
class Graph:
    """Entities are positions in the ascending order of their numbers; keys in that of their `key_number`.

    `entity_keys` and `communities` (finest, -1: none) are by entity; `members` leads from positions in `community_ids`
    to entities. `mentioned` leads from a chunk's row to entities,
    `chunks` back. `neighbors` are the entities at the other end of relations of either direction, those with most
    relations first, then by number; weights count the relations; an edge to itself is left out. `keys` and `key_chunks`
    join chunks and identity keys, so that entities that share a key are one; a link weighs more where the chunk is
    about the key (`ABOUT`), and `chunk_strengths` and `key_strengths` add up the weights.
    """

    entities: Ints
    entity_keys: Positions
    communities: Ints
    community_ids: Ints
    members: Csr
    mentioned: Csr
    chunks: Csr
    relations: Relations
    neighbors: Csr
    key_numbers: Ints
    keys: Csr
    key_chunks: Csr
    chunk_strengths: Positions
    key_strengths: Positions

    @classmethod
    def empty(cls) -> Self:
        """Return the graph of nothing."""
        none, ints = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        lists = Csr(np.zeros(1, dtype=np.int32), none, none)
        return cls(
            ints,
            none,
            ints,
            ints,
            lists,
            lists,
            lists,
            Relations(ints, none, none),
            lists,
            ints,
            lists,
            lists,
            none,
            none,
        )

    def apply(self, change: RowChange, chunk_ids: Ints, delta: Delta) -> Self:
        """Return the next generation's graph. `change` is that of the chunks, `chunk_ids` are the next generation's.

        Raises:
            InconsistentGeneration: a mention or relation of something that this generation does not have.
        """
        entities, moved, hashes, communities = self._entities(delta)
        key_numbers, entity_keys = np.unique(hashes, return_inverse=True)
        mentioned = self._mentioned(change, chunk_ids, delta.mentions, entities, moved)
        named = entity_keys[mentioned.targets]
        keys = Csr.links(mentioned.rows(), named, (change.size, len(key_numbers)), mentioned.weights == ABOUT)
        key_chunks = keys.transposed(len(key_numbers))
        relations = self._relations(delta, entities, moved)
        community_ids, members = _members(communities)
        return type(self)(
            entities=entities,
            entity_keys=entity_keys.astype(np.int32),
            communities=communities,
            community_ids=community_ids,
            members=members,
            mentioned=mentioned,
            chunks=mentioned.transposed(len(entities)),
            relations=relations,
            neighbors=_neighbors(relations, len(entities)),
            key_numbers=key_numbers,
            keys=keys,
            key_chunks=key_chunks,
            chunk_strengths=keys.strengths(),
            key_strengths=key_chunks.strengths(),
        )

    def _entities(self, delta: Delta) -> tuple[Ints, Rows, Ints, Ints]:
        """Return the next entities, where the old ones are among them, and their key numbers and communities."""
        born: EntityRows = delta.entities
        change = RowChange.between(self.entities, delta.dead_entities, born.entity_no, "entity")
        entities = change.merge(self.entities, born.entity_no)
        hashes = np.array([key_number(key) for key in born.key], dtype=np.int64)
        keys = change.merge(self.key_numbers[self.entity_keys], hashes)
        return entities, find(entities, self.entities), keys, change.merge(self.communities, born.community)

    def _mentioned(self, change: RowChange, chunk_ids: Ints, born: MentionRows, entities: Ints, moved: Rows) -> Csr:
        old = change.moved[self.mentioned.rows()]
        stays = old >= 0
        kept = moved[self.mentioned.targets[stays]]
        chunks = np.concatenate([old[stays], _known(chunk_ids, born.chunk_id, "a mention is in chunk")])
        named = np.concatenate([kept, _known(entities, born.entity_no, "a mention names entity")])
        if (named < 0).any():
            lost = self.entities[self.mentioned.targets[stays][kept < 0]][0]
            raise InconsistentGeneration(f"entity {lost} ends while a mention of it remains")
        new = np.zeros(len(born.chunk_id), dtype=np.bool_) if born.about is None else born.about
        about = np.concatenate([self.mentioned.weights[stays] == ABOUT, new])
        return Csr.links(chunks, named, (change.size, len(entities)), about)

    def _relations(self, delta: Delta, entities: Ints, moved: Rows) -> Relations:
        old, born = self.relations, delta.relations
        new_ids = _relation_ids(born)
        change = RowChange.between(old.ids, np.unique(_relation_ids(delta.dead_relations)), new_ids, "relation")
        kept = change.kept
        sources = change.merge(moved[old.sources], _known(entities, born.source, "a relation starts at entity"))
        targets = change.merge(moved[old.targets], _known(entities, born.target, "a relation ends at entity"))
        if len(kept) and min(int(sources.min()), int(targets.min())) < 0:
            raise InconsistentGeneration("an entity ends while a relation of it remains")
        return Relations(change.merge(old.ids, new_ids), sources.astype(np.int32), targets.astype(np.int32))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        relations = (self.relations.ids, self.relations.sources, self.relations.targets)
        entities = (self.entities, self.entity_keys, self.communities, self.community_ids, self.key_numbers)
        columns = (*entities, *relations, self.chunk_strengths, self.key_strengths)
        lists = (self.members, self.mentioned, self.chunks, self.neighbors, self.keys, self.key_chunks)
        return sum(column.nbytes for column in columns) + sum(csr.nbytes for csr in lists)


def _known(sorted_values: Ints, wanted: Ints, what: str) -> Rows:
    found = find(sorted_values, wanted)
    if (found < 0).any():
        raise InconsistentGeneration(f"{what} {wanted[found < 0][0]}, which this generation does not have")
    return found


def _members(communities: Ints) -> tuple[Ints, Csr]:
    entities = np.flatnonzero(communities >= 0)
    ids, at = np.unique(communities[entities], return_inverse=True)
    return ids, Csr.group(at, entities, (len(ids), len(communities)))


def _neighbors(relations: Relations, entities: int) -> Csr:
    ends = np.flatnonzero(relations.sources != relations.targets)
    there, back = relations.sources[ends], relations.targets[ends]
    pairs = np.concatenate([there, back]), np.concatenate([back, there])
    return Csr.group(*pairs, (entities, entities)).heaviest_first()

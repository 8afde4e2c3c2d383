"""A whole graph in dicts and sets: the reference that every other backend must equal, written to be seen to be right.

It is as slow as it is plain; what it says about a walk is what `retrieval.walk` and every graph store must say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

import numpy as np

from pipeline.errors import InconsistentGeneration
from pipeline.graphs.parts import GraphChunk, GraphPart, GraphTotals
from pipeline.retrieval.walk import Limits, WalkResult
from schemas.graph import Entity, Relation

RelationKey = tuple[int, int, str]
Scores = dict[int, float]
N = TypeVar("N", int, float)
L = TypeVar("L", list[int], list[tuple[int, int]])


@dataclass(slots=True)
class PlainGraph:
    """The rows of one graph by their keys; `paths` are the communities of entities, from the coarsest to the finest."""

    chunks: dict[int, GraphChunk] = field(default_factory=dict[int, GraphChunk])
    entities: dict[int, Entity] = field(default_factory=dict[int, Entity])
    relations: dict[RelationKey, Relation] = field(default_factory=dict[RelationKey, Relation])
    mentions: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    def add(self, part: GraphPart) -> None:
        """Add rows; those that are there already stay as they are.

        Raises:
            InconsistentGeneration: a relation or mention of something that is not in the graph; nothing is added.
        """
        entities = self.entities.keys() | {entity.entity_no for entity in part.entities}
        chunks = self.chunks.keys() | {chunk.chunk_id for chunk in part.chunks}
        for relation in part.relations:
            if not {relation.source, relation.target} <= entities:
                raise InconsistentGeneration(
                    f"A relation {relation.type!r} ends at an entity that is not in the graph."
                )
        for mention in part.mentions:
            if mention.chunk_id not in chunks or mention.entity_no not in entities:
                raise InconsistentGeneration("A mention ties a chunk or an entity that is not in the graph.")
        for chunk in part.chunks:
            self.chunks.setdefault(chunk.chunk_id, chunk)
        for entity in part.entities:
            self.entities.setdefault(entity.entity_no, entity)
        for relation in part.relations:
            self.relations.setdefault((relation.source, relation.target, relation.type), relation)
        self.mentions |= {(mention.chunk_id, mention.entity_no) for mention in part.mentions}

    @property
    def totals(self) -> GraphTotals:
        """How many rows there are; none can be astray."""
        return GraphTotals(
            len(self.chunks), len(self.entities), len(self.relations), len(self.mentions), len(self.paths)
        )

    def expand(self, seeds: Sequence[tuple[int, float]], limits: Limits, allowed: Collection[int] | None) -> WalkResult:
        """Walk as `GraphReader.expand` is to."""
        return _Walk(self, seeds, limits).result(allowed)


class _Walk:
    """One walk, step by step."""

    def __init__(self, graph: PlainGraph, seeds: Sequence[tuple[int, float]], limits: Limits) -> None:
        self.graph = graph
        self.limits = limits
        self.bounds = limits.bounds
        self.near: dict[int, Counter[int]] = {}
        for source, target, _ in graph.relations:
            if source != target:
                self.near.setdefault(source, Counter())[target] += 1
                self.near.setdefault(target, Counter())[source] += 1
        self.chunks_of: dict[int, list[int]] = {}
        for chunk, entity in sorted(graph.mentions):
            self.chunks_of.setdefault(entity, []).append(chunk)
        self.seeds = highest(seeds)
        unknown = self.seeds.keys() - graph.chunks.keys()
        if unknown:
            raise InconsistentGeneration(f"The graph of this generation lacks the seed chunk {min(unknown)}.")
        self.strengths = self._strengths()

    def _strengths(self) -> Scores:
        """Return the strongest entities of the seed chunks, each with the best score of its seed chunks."""
        named = ((entity, self.seeds[chunk]) for chunk, entity in self.graph.mentions if chunk in self.seeds)
        return dict(best_first(highest(named))[: self.bounds.seeds])

    def _neighbours(self, entity: int) -> list[tuple[int, int]]:
        """Return (neighbour, relations between them) by their number, then by the neighbour, as far as a walk looks."""
        return best_first(self.near.get(entity, {}))[: self.bounds.fan]

    def _chunks(self, entity: int) -> list[int]:
        """Return the chunks of an entity, as far as a walk looks."""
        return self.chunks_of.get(entity, [])[: self.bounds.entity_chunks]

    def _reached(self, seed: int) -> tuple[dict[int, int], bool]:
        """Return the distance of each entity that a seed entity leads to, and whether a hub was not read to its end."""
        distances, paths, frontier, cut = {seed: 0}, {seed: 1}, [seed], False
        for hop in range(1, self.limits.max_hops + 1):
            free = self.limits.cap - (len(distances) - 1)
            if not free or not frontier:
                break
            lists = [(entity, self._neighbours(entity)) for entity in frontier]
            read = list(fitting(lists, self.bounds.step_edges))
            cut |= len(read) < len(lists)
            cut |= any(len(self.near.get(entity, {})) > self.bounds.fan for entity in frontier)
            ways = Counter[int]()
            for entity, neighbours in read:
                for other, weight in neighbours:
                    if other not in distances:
                        ways[other] += paths[entity] * weight
            frontier = [entity for entity, _ in best_first(ways)[:free]]
            paths.update(ways)
            distances.update(dict.fromkeys(frontier, hop))
        return distances, cut

    def _own(self, best: Scores) -> Scores:
        """Return the score of each chunk that is not a seed by the entities it mentions."""
        lists = [(entity, self._chunks(entity)) for entity, _ in best_first(best)]
        read = fitting(lists, self.bounds.chunk_links)
        return self._unseeded(highest((chunk, best[entity]) for entity, chunks in read for chunk in chunks))

    def _spread(self, own: Scores) -> Scores:
        """Return the score of each chunk near to those, in its document."""
        places = {(chunk.document, chunk.ordinal): chunk.chunk_id for chunk in self.graph.chunks.values()}
        found: list[tuple[int, float]] = []
        for chunk, score in own.items():
            document, ordinal = self.graph.chunks[chunk].document, self.graph.chunks[chunk].ordinal
            for step in range(1, self.limits.window + 1):
                near = ((document, ordinal - step), (document, ordinal + step))
                found += [(places[place], score / (1 + step)) for place in near if place in places]
        return self._unseeded(highest(found))

    def _communities(self) -> Scores:
        """Return the score of the chunks that the communities of the seed entities bring in."""
        finest = {entity: path[-1] for entity, path in self.graph.paths.items() if path}
        values = highest(
            (finest[entity], strength / (2 + self.limits.max_hops))
            for entity, strength in self.strengths.items()
            if entity in finest
        )
        found: list[tuple[int, float]] = []
        for community, value in values.items():
            members = sorted(entity for entity, own in finest.items() if own == community)[: self.bounds.members]
            read = fitting([(member, self._chunks(member)) for member in members], self.bounds.community_links)
            connections = Counter(chunk for _, chunks in read for chunk in chunks if chunk not in self.seeds)
            found += [(chunk, value) for chunk, _ in best_first(connections)[: self.bounds.community_chunks]]
        return highest(found)

    def _unseeded(self, scores: Scores) -> Scores:
        return {chunk: score for chunk, score in scores.items() if chunk not in self.seeds}

    def result(self, allowed: Collection[int] | None) -> WalkResult:
        """Return all chunks that tie for the first `top_k`."""
        reached = {seed: self._reached(seed) for seed in self.strengths}
        best = highest(
            (entity, self.strengths[seed] / (1 + distance))
            for seed, (distances, _) in reached.items()
            for entity, distance in distances.items()
        )
        own = self._own(best)
        related = highest([*own.items(), *self._spread(own).items()])
        brought = self._communities() if self.limits.communities else {}
        scores = highest([*related.items(), *brought.items()])
        ranked = [(chunk, score) for chunk, score in best_first(scores) if allowed is None or chunk in allowed]
        kept = [pair for pair in ranked if pair[1] >= ranked[: self.limits.top_k][-1][1]]
        rows = [chunk for chunk, _ in kept]
        return WalkResult(
            np.array(rows, dtype=np.int64),
            np.array([score for _, score in kept], dtype=np.float64),
            np.array([scores[row] > related.get(row, -np.inf) for row in rows], dtype=np.bool_),
            len(self.seeds),
            len(best),
            sum(cut for _, cut in reached.values()),
        )


def highest(scored: Iterable[tuple[int, float]]) -> Scores:
    """Return the highest score of each number."""
    found: Scores = {}
    for number, score in scored:
        found[number] = max(score, found.get(number, score))
    return found


def best_first(scores: Mapping[int, N]) -> list[tuple[int, N]]:
    """Return the pairs, highest score first, ties by number."""
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def fitting(lists: Sequence[tuple[int, L]], most: int) -> Iterator[tuple[int, L]]:
    """Yield lists in their order as long as their lengths add up to `most`, and none after the first that does not fit."""
    for pair, length in zip(lists, accumulate(len(found) for _, found in lists), strict=True):
        if length > most:
            return
        yield pair

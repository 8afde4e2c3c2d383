"""A snapshot reached by any sequence of deltas is the one built from scratch, and searches as plain Python says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.retrieval.keyword as keyword
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot

Terms = tuple[tuple[int, int], ...]
Edge = tuple[int, int, str]


@dataclass(frozen=True)
class Corpus:
    """The visible rows of a generation: document -> chunks (terms, entities named), and relations of named entities."""

    documents: dict[str, tuple[tuple[Terms, frozenset[int]], ...]] = field(default_factory=dict)
    edges: frozenset[Edge] = frozenset()

    def chunks(self) -> dict[int, tuple[str, int, Terms, frozenset[int]]]:
        return {
            hash_of(document, ordinal): (document, ordinal, terms, named)
            for document, chunks in self.documents.items()
            for ordinal, (terms, named) in enumerate(chunks)
        }

    def named(self) -> set[int]:
        return {entity for *_, names in self.chunks().values() for entity in names}

    def live_edges(self) -> set[Edge]:
        named = self.named()
        return {edge for edge in self.edges if edge[0] in named and edge[1] in named}


def hash_of(document: str, ordinal: int) -> int:
    return (int(document) * 1_000_003 + ordinal * 7919) % 100_003


def packed(terms: Terms) -> bytes:
    hashes = np.array([term for term, _ in terms], dtype="<i8").tobytes()
    return hashes + bytes(count for _, count in terms)


def delta(old: Corpus, new: Corpus, generation: int) -> Delta:
    rewritten = {d for d in old.documents.keys() | new.documents.keys() if old.documents.get(d) != new.documents.get(d)}
    dead = [chunk for chunk, row in old.chunks().items() if row[0] in rewritten]
    born = {chunk: row for chunk, row in new.chunks().items() if row[0] in rewritten}
    names = [(chunk, entity) for chunk, row in born.items() for entity in row[3]]
    entities = sorted(new.named() - old.named(), reverse=True)
    return Delta(
        generation=generation,
        dead_chunks=ints(dead),
        dead_entities=ints(old.named() - new.named()),
        dead_relations=relations(old.live_edges() - new.live_edges()),
        chunks=ChunkRows(
            ints(born),
            [row[0] for row in born.values()],
            np.array([row[1] for row in born.values()], dtype=np.int32),
            np.array([sum(count for _, count in row[2]) for row in born.values()], dtype=np.int32),
            [packed(row[2]) for row in born.values()],
        ),
        mentions=MentionRows(
            ints(chunk for chunk, _ in names * 2),
            ints(entity for _, entity in names * 2),
            np.array([(chunk + entity) % 3 == 0 for chunk, entity in names] + [False] * len(names), dtype=np.bool_),
        ),
        entities=EntityRows(ints(entities), [f"key {no % 5}" for no in entities], ints(no % 3 - 1 for no in entities)),
        relations=relations(new.live_edges() - old.live_edges()),
    )


def ints(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(list(values), dtype=np.int64)


def relations(edges: Iterable[Edge]) -> RelationRows:
    rows = list(edges)
    weights = np.ones(len(rows), dtype=np.float32)
    return RelationRows(ints(s for s, _, _ in rows), ints(t for _, t, _ in rows), [kind for *_, kind in rows], weights)


TERMS = st.dictionaries(st.integers(-5, 5), st.integers(1, 3), max_size=5).map(lambda d: tuple(sorted(d.items())))
CHUNK = st.tuples(TERMS, st.frozensets(st.integers(1, 8), max_size=4))
CORPUS = st.builds(
    Corpus,
    st.dictionaries(st.sampled_from("0123456"), st.lists(CHUNK, max_size=4).map(tuple), max_size=6),
    st.frozensets(st.tuples(st.integers(1, 8), st.integers(1, 8), st.sampled_from("ab")), max_size=12),
)


def built(states: list[Corpus]) -> Snapshot:
    snapshot = Snapshot.empty()
    for generation, (old, new) in enumerate(zip([Corpus(), *states], states, strict=False), start=1):
        snapshot = snapshot.apply(delta(old, new, generation))
    return snapshot


def flat(snapshot: Snapshot) -> list[list[object]]:
    graph = snapshot.graph
    lists = (graph.members, graph.mentioned, graph.chunks, graph.neighbors, graph.keys, graph.key_chunks)
    columns = [snapshot.chunks.ids, snapshot.chunks.documents, snapshot.chunks.ordinals, snapshot.chunks.chain]
    columns += [graph.entities, graph.entity_keys, graph.communities, graph.community_ids, graph.key_numbers]
    columns += [graph.relations.ids, graph.relations.sources, graph.relations.targets]
    columns += [part for csr in lists for part in (csr.offsets, csr.targets, csr.weights)]
    return [column.tolist() for column in columns]


def bm25(corpus: Corpus, query: list[int], k: int, k1: float, b: float) -> list[tuple[int, float]]:
    chunks = {chunk: dict(row[2]) for chunk, row in corpus.chunks().items()}
    lengths = {chunk: sum(terms.values()) for chunk, terms in chunks.items()}
    average = max(sum(lengths.values()), 1) / max(len(chunks), 1)
    scores = dict.fromkeys(chunks, 0.0)
    for term in query:
        df = sum(term in terms for terms in chunks.values())
        idf = math.log(1 + (len(chunks) - df + 0.5) / (df + 0.5))
        for chunk, terms in chunks.items():
            f = terms.get(term, 0)
            scores[chunk] += idf * f / (f + k1 * (1 - b + b * lengths[chunk] / average)) if f else 0.0
    hits = [(chunk, score) for chunk, score in scores.items() if score > 0]
    return sorted(hits, key=lambda hit: (-round(hit[1], 9), hit[0]))[:k]


@settings(max_examples=50)
@given(st.lists(CORPUS, min_size=1, max_size=5))
def test_any_sequence_of_deltas_gives_the_arrays_of_a_fresh_build(states: list[Corpus]) -> None:
    snapshot = built(states)
    fresh = built([states[-1]])
    assert flat(snapshot) == flat(fresh)
    assert snapshot.generation == len(states)


@settings(max_examples=50)
@given(st.lists(CORPUS, min_size=1, max_size=5), st.lists(st.integers(-5, 6), min_size=1, max_size=4, unique=True))
def test_keyword_search_does_not_depend_on_the_history(states: list[Corpus], query: list[int]) -> None:
    """Scores are bit-identical, with and without compaction, and agree with BM25 in plain Python."""
    snapshot, fresh = built(states), built([states[-1]])
    compacted = replace(snapshot, keyword=snapshot.keyword.compacted())
    for k in (1, 3, 100):
        answers = [s.keyword.search(query, k, None, 1.2, 0.4) for s in (snapshot, fresh, compacted)]
        pairs = [list(zip(rows.tolist(), scores.tolist(), strict=True)) for rows, scores in answers]
        assert pairs[0] == pairs[1] == pairs[2]
        expected = bm25(states[-1], query, k, 1.2, 0.4)
        assert [int(snapshot.chunk_ids[row]) for row, _ in pairs[0]] == [chunk for chunk, _ in expected]
        assert np.allclose([score for _, score in pairs[0]], [score for _, score in expected], atol=1e-9)


@given(CORPUS, st.lists(st.integers(-5, 5), min_size=1, max_size=3), st.sets(st.integers(0, 30)))
def test_filtered_keyword_search_is_the_search_without_the_others(
    corpus: Corpus, query: list[int], some: set[int]
) -> None:
    """A filter restricts the results and leaves the statistics alone."""
    snapshot = built([corpus])
    allowed = np.array([row in some for row in range(len(snapshot.chunk_ids))], dtype=np.bool_)
    rows, scores = snapshot.keyword.search(query, 100, None, 1.2, 0.4)
    kept, kept_scores = snapshot.keyword.search(query, 100, allowed, 1.2, 0.4)
    inside = allowed[rows]
    assert kept.tolist() == rows[inside].tolist()
    assert kept_scores.tolist() == scores[inside].tolist()


def test_small_segments_are_merged() -> None:
    """A hundred generations of one more document each leave few segments, each less than half of the one before it."""
    chunks = tuple((((term, 1),), frozenset({term + 1})) for term in range(3))
    states = [Corpus({str(document): chunks for document in range(size)}) for size in range(1, 101)]
    sizes = [segment.chunks for segment in built(states).keyword.segments]
    assert sum(sizes) == 300
    assert all(large > 2 * small for large, small in itertools.pairwise(sizes))


@settings(max_examples=50)
@given(st.lists(CORPUS, min_size=1, max_size=4))
def test_the_largest_segment_is_bounded(states: list[Corpus]) -> None:
    """With room for four chunks in a segment, the results are still those of plain Python."""
    before = keyword.SEGMENT
    keyword.SEGMENT = 4
    try:
        snapshot = built(states)
    finally:
        keyword.SEGMENT = before
    assert all(segment.chunks <= 4 for segment in snapshot.keyword.segments)
    rows, _ = snapshot.keyword.search([1, 2], 9, None, 1.2, 0.4)
    assert snapshot.chunk_ids[rows].tolist() == [chunk for chunk, _ in bm25(states[-1], [1, 2], 9, 1.2, 0.4)]

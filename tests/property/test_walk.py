"""The walk over arrays equals the one in plain Python on generated graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import given

from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, Ints, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot
from pipeline.retrieval.walk import walk
from pipeline.testing.graph_model import Case, cases
from pipeline.testing.graph_worlds import Whole, shown


def ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def snapshot_of(whole: Whole) -> Snapshot:
    """Return the snapshot of a graph, without words to search."""
    part, none = whole.part, ints(())
    weights = np.ones(len(part.relations), dtype=np.float32)
    return Snapshot.empty().apply(
        Delta(
            generation=1,
            dead_chunks=none,
            dead_entities=none,
            dead_relations=RelationRows(none, none, [], weights[:0]),
            chunks=ChunkRows(
                ints(chunk.chunk_id for chunk in part.chunks),
                [chunk.document for chunk in part.chunks],
                ints(chunk.ordinal for chunk in part.chunks).astype(np.int32),
                np.zeros(len(part.chunks), dtype=np.int32),
                [b""] * len(part.chunks),
            ),
            mentions=MentionRows(
                ints(mention.chunk_id for mention in part.mentions),
                ints(mention.entity_no for mention in part.mentions),
            ),
            entities=EntityRows(
                ints(entity.entity_no for entity in part.entities),
                [entity.key for entity in part.entities],
                ints(whole.paths[entity.entity_no][-1] for entity in part.entities),
            ),
            relations=RelationRows(
                ints(relation.source for relation in part.relations),
                ints(relation.target for relation in part.relations),
                [relation.type for relation in part.relations],
                weights,
            ),
        )
    )


@given(cases())
def test_the_walk_over_arrays_is_that_of_plain_python(case: Case) -> None:
    """Same chunks, same scores to the last bit, same order, same counters."""
    snapshot, graph = snapshot_of(case.whole), case.whole.plain
    for question in case.questions:
        rows = snapshot.rows(chunk for chunk, _ in question.seeds).tolist()
        seeds = [(row, score) for row, (_, score) in zip(rows, question.seeds, strict=True)]
        allowed = None if question.allowed is None else snapshot.mask(ints(sorted(question.allowed)))
        found = walk(snapshot, seeds, question.limits, allowed)
        expected = graph.expand(question.seeds, question.limits, question.allowed)
        assert shown(replace(found, rows=snapshot.chunk_ids[found.rows])) == shown(expected)

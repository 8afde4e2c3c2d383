"""The second step of a question: what a bridge leaves open, asked of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrieval.analyzer import pack, term_hash, tokens
from pipeline.retrieval.bridge import BACK, LINKS, WEIGHT, bridged, second_steps
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.snapshot import Snapshot
from schemas.ids import identity_key
from schemas.settings import KeywordSettings

NONE = np.empty(0, dtype=np.int64)
NO_RELATIONS = RelationRows(NONE, NONE, [], np.empty(0, dtype=np.float32))
BM25 = KeywordSettings()


def library(passages: Sequence[tuple[str, str, Sequence[str]]], dead: Sequence[int] = ()) -> Snapshot:
    """One chunk for each (title, text, names), those of `dead` gone again one generation later."""
    bags = [pack(tokens(f"{title} {text}")) for title, text, _ in passages]
    names = sorted({name for title, _, found in passages for name in (title, *found)})
    links = [
        (row, names.index(n), n == title) for row, (title, _, found) in enumerate(passages) for n in (title, *found)
    ]
    delta = Delta(
        generation=1,
        dead_chunks=NONE,
        dead_entities=NONE,
        dead_relations=NO_RELATIONS,
        chunks=ChunkRows(
            np.arange(len(passages)),
            [str(row) for row in range(len(passages))],
            np.zeros(len(passages), dtype=np.int32),
            np.array([length for _, length in bags], dtype=np.int32),
            [bag for bag, _ in bags],
        ),
        mentions=MentionRows(*(np.array(column) for column in zip(*links, strict=True))),
        entities=EntityRows(np.arange(len(names)), [identity_key(n) for n in names], np.full(len(names), -1)),
        relations=NO_RELATIONS,
    )
    first = Snapshot.empty().apply(delta)
    if not dead:
        return first
    ints, floats = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    return first.apply(
        Delta(
            2,
            np.array(dead),
            NONE,
            NO_RELATIONS,
            ChunkRows(NONE, [], ints, ints, []),
            MentionRows(NONE, NONE),
            EntityRows(NONE, [], NONE),
            RelationRows(NONE, NONE, [], floats),
        )
    )


QUESTION = "What genre is the author of Ghosts known for?"
PLAYS = library(
    [
        ("Ghosts", "A play; its author is Ibsen, of Norway.", ["Ibsen", "Norway"]),
        ("Ibsen", "Of the genre realism.", []),
        ("Norway", "A country up north.", []),
        ("Noir", "A genre of films.", []),
        ("Bergen", "A genre theatre gave Ghosts.", ["Ghosts"]),
    ]
)


def steps(library: Snapshot, question: str, bridges: int = 1) -> list[float]:
    return second_steps(library, question, bridges, BM25).tolist()


def test_the_neighbour_that_holds_the_rest_of_the_question_is_found() -> None:
    """The author's passage holds `genre`; that of the country is linked as well, and films are of a genre but not linked."""
    ghosts, ibsen, norway, noir, _ = steps(PLAYS, QUESTION)
    assert 0.0 < ibsen <= 1.0 and ghosts == norway == noir == 0.0


def test_words_that_the_bridge_holds_are_not_asked_again() -> None:
    """`Author` and `Ghosts` are answered by the bridge, so that a neighbour gains nothing by them."""
    assert steps(PLAYS, "author Ghosts") == [0.0] * 5
    again = library([("Ghosts", "By Ibsen, its author.", ["Ibsen"]), ("Ibsen", "author author author", [])])
    assert steps(again, "author of Ghosts")[1] == 0.0


def test_a_link_back_counts_less() -> None:
    """To a passage that mentions what the bridge is about, beside an equal one that the bridge mentions."""
    there = library([("Ghosts", "play", ["Left"]), ("Left", "genre", []), ("Right", "genre", ["Ghosts"])])
    _, forth, back = steps(there, "Ghosts genre")
    assert back == pytest.approx(BACK * forth)


def test_more_bridges_find_more() -> None:
    two = library(
        [("Ghosts", "Ghosts", ["Ibsen"]), ("Ibsen", "genre", []), ("Brand", "Brand", ["Ole"]), ("Ole", "genre", [])]
    )
    assert steps(two, "Ghosts Brand genre", 0) == [0.0] * 4
    assert np.count_nonzero(steps(two, "Ghosts Ghosts Brand genre", 1)) == 1
    assert np.count_nonzero(steps(two, "Ghosts Ghosts Brand genre", 4)) >= 2


def test_a_name_in_too_many_passages_is_not_followed_but_rarer_ones_are() -> None:
    crowd = [(f"Place {at}", "genre", ["Norway"]) for at in range(LINKS)]
    hub = library([("Ghosts", "a play", ["Norway", "Ibsen"]), ("Norway", "genre", []), ("Ibsen", "genre", []), *crowd])
    _, norway, ibsen, *_ = steps(hub, "Ghosts genre")
    assert norway == 0.0 < ibsen


def test_without_mass_there_is_no_score_and_without_bridges_its_logarithm() -> None:
    nothing = np.zeros(5)
    assert bridged(PLAYS, nothing, QUESTION, 5, BM25).tolist() == [0.0] * 5
    mass = np.array([1.0, 0.001, 1e-9, 0.0, 0.1])
    alone = bridged(PLAYS, mass, QUESTION, 0, BM25)
    assert alone.tolist() == pytest.approx([1.0, 0.5, 0.0, 0.0, 5 / 6])
    both = bridged(PLAYS, mass, QUESTION, 1, BM25)
    assert both.tolist() == pytest.approx((alone + WEIGHT * second_steps(PLAYS, QUESTION, 1, BM25)).tolist())


def test_without_bridges_no_words_are_looked_for() -> None:
    """That costs more than the walk, and is the default."""
    wordless = Snapshot.__new__(Snapshot)  # whatever is looked at of it raises
    mass = np.array([0.0, 0.2, 0.1, 1e-9])
    assert bridged(wordless, mass, QUESTION, 0, BM25).tolist() == pytest.approx([0.0, 1.0, 0.9498, 0.0], abs=1e-4)
    with pytest.raises(AttributeError):
        bridged(wordless, mass, QUESTION, 1, BM25)


def test_an_empty_corpus_and_a_question_without_known_words_have_no_steps() -> None:
    assert steps(Snapshot.empty(), QUESTION) == []
    assert steps(PLAYS, "zzz") == steps(PLAYS, "") == [0.0] * 5


WORDS = st.lists(st.sampled_from(["ghosts", "ibsen", "genre", "play", "norway", "the"]), max_size=8)


@given(texts=st.lists(WORDS, min_size=2, max_size=8), question=WORDS, gone=st.booleans())
def test_the_parts_of_bm25_add_up_to_its_scores(texts: list[list[str]], question: list[str], gone: bool) -> None:
    """Also where a chunk has died since; and no step is worth more than 1."""
    passages = [(f"T{at}", " ".join(words), [f"T{at - 1}"] if at else []) for at, words in enumerate(texts)]
    found = library(passages, [1] if gone else [])
    terms = [term_hash(term) for term in tokens(" ".join(question))]
    rows = np.arange(len(found.chunk_ids), dtype=np.int64)
    parts = found.keyword.parts(terms, rows, BM25.k1, BM25.b)
    expected = np.zeros(len(rows))
    best, scores = found.keyword.search(terms, len(rows), None, BM25.k1, BM25.b)
    expected[best] = scores
    assert parts.sum(axis=0).tolist() == pytest.approx(expected.tolist())
    assert all(0.0 <= step <= 1.0 + 1e-9 for step in steps(found, " ".join(question), 3))

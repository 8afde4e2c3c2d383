"""Names in a question, and personalised PageRank from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrieval.analyzer import pack, tokens
from pipeline.retrieval.graph import ABOUT, key_number
from pipeline.retrieval.ppr import PASSAGE_MASS, ppr
from pipeline.retrieval.rows import ChunkRows, Delta, EntityRows, MentionRows, RelationRows
from pipeline.retrieval.seeds import Seed, question_seeds
from pipeline.retrieval.snapshot import Snapshot
from schemas.ids import identity_key
from schemas.settings import GraphSearchSettings

NONE = np.empty(0, dtype=np.int64)
NO_RELATIONS = RelationRows(NONE, NONE, [], np.empty(0, dtype=np.float32))
SETTINGS = GraphSearchSettings()


def library(passages: Sequence[tuple[str, str, Sequence[str]]], kinds: Mapping[str, int] | None = None) -> Snapshot:
    """One chunk for each (title, text, names); a name listed in `kinds` is that many entities with one key."""
    bags = [pack(tokens(f"{title} {text}")) for title, text, _ in passages]
    names = sorted({name for title, _, found in passages for name in (title, *found)} - {""})
    copies = {name: [100 * at + copy for copy in range((kinds or {}).get(name, 1))] for at, name in enumerate(names, 1)}
    links = [
        (row, no, name == title)
        for row, (title, _, found) in enumerate(passages)
        for place, name in enumerate((title, *found))
        if name
        for no in copies[name][place % len(copies[name]) :][:1]
    ]
    entities = [(no, identity_key(name)) for name in names for no in copies[name]]
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
        mentions=MentionRows(
            np.array([row for row, _, _ in links], dtype=np.int64),
            np.array([no for _, no, _ in links], dtype=np.int64),
            np.array([about for *_, about in links], dtype=np.bool_),
        ),
        entities=EntityRows(
            np.array([no for no, _ in entities], dtype=np.int64),
            [key for _, key in entities],
            np.full(len(entities), -1),
        ),
        relations=NO_RELATIONS,
    )
    return Snapshot.empty().apply(delta)


LIBRARY = library(
    [
        ("Brand", "Brand is a play by Henrik Ibsen.", ["Henrik Ibsen"]),
        ("Henrik Ibsen", "Henrik Ibsen was born in Skien in Norway.", ["Skien", "Norway"]),
        ("Skien", "Skien is a town in Norway.", ["Norway"]),
        ("Norway", "A country. Its first town is Oslo.", ["Oslo", "first"]),
        ("Oslo", "The town of the fjord, first named in the first century.", ["fjord"]),
        ("Aschenbrödel", "A ballet.", []),
    ]
)


def keys(question: str) -> list[int]:
    return [int(LIBRARY.graph.key_numbers[seed.key]) for seed in question_seeds(question, LIBRARY)]


def test_the_longest_name_wins_and_is_taken_once() -> None:
    assert keys("Did Henrik Ibsen, or Norway, or Henrik Ibsen live in the Skien?") == [
        key_number("henrik ibsen"),
        key_number("norway"),
        key_number("skien"),
    ]


def test_accents_do_not_matter() -> None:
    assert keys("who composed aschenbrodel") == keys("Aschenbrödel!") == [key_number("aschenbrodel")]


def test_a_question_without_names_and_an_empty_corpus_have_no_seeds() -> None:
    assert question_seeds("and then what", LIBRARY) == []
    assert question_seeds("", LIBRARY) == []
    assert question_seeds("Skien", Snapshot.empty()) == []


def test_a_seed_weighs_by_the_chunks_that_hold_its_rarest_word() -> None:
    """`first` is mentioned as a name once, but stands in two chunks."""
    first, norway, skien = question_seeds("first Norway Skien", LIBRARY)
    assert (first.weight, norway.weight, skien.weight) == (1 / 2, 1 / 3, 1 / 2)


def test_a_second_hop_is_found() -> None:
    """The question names Brand; the passage on its author is reached through his name."""
    rows, masses = ppr(LIBRARY.graph, question_seeds("Where was the author of Brand born?", LIBRARY), (), SETTINGS)
    assert rows[:2].tolist() == [0, 1]
    assert sorted(masses.tolist(), reverse=True) == masses.tolist()


def test_what_a_passage_is_about_weighs_more() -> None:
    rows, _ = ppr(LIBRARY.graph, question_seeds("Norway", LIBRARY), (), SETTINGS)
    assert rows[0] == 3


def test_entities_that_share_a_key_are_one_node() -> None:
    split = library([("A", "x", ["Java"]), ("Java", "y", [])], kinds={"Java": 2})
    assert len(split.graph.entities) == 3
    assert ppr(split.graph, question_seeds("java", split), (), SETTINGS)[0].tolist() == [1, 0]


def test_no_seeds_no_result_and_passages_alone_are_seeds_too() -> None:
    assert ppr(LIBRARY.graph, (), (), SETTINGS)[0].tolist() == []
    assert ppr(Snapshot.empty().graph, (), (), SETTINGS)[0].tolist() == []
    assert ppr(LIBRARY.graph, (), [(0, 0.9)], SETTINGS)[0][:2].tolist() == [0, 1]


def test_a_filter_restricts_the_result_and_not_the_walk() -> None:
    allowed = np.array([False, True, True, True, True, True])
    seeds = question_seeds("Brand", LIBRARY)
    rows, masses = ppr(LIBRARY.graph, seeds, (), SETTINGS)
    kept, kept_masses = ppr(LIBRARY.graph, seeds, (), SETTINGS, allowed)
    assert kept.tolist() == [row for row in rows.tolist() if row != 0]
    assert kept_masses.tolist() == [mass for row, mass in zip(rows, masses, strict=True) if row != 0]


LINKS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), min_size=1, max_size=25)


@given(LINKS, st.sets(st.integers(0, 6), min_size=1, max_size=3), st.sets(st.integers(0, 6), max_size=2))
def test_the_masses_are_those_of_power_iteration(
    links: list[tuple[int, int, bool]], named: set[int], near: set[int]
) -> None:
    """Forward push comes within a hundredth of 200 dense steps, on graphs with hubs, islands and repeated links."""
    about = {(row, name) for row, name, title in links if title}
    passages = [("", "x", sorted({f"n{name}" for r, name, _ in links if r == row})) for row in range(7)]
    snapshot = library(passages)
    graph = snapshot.graph
    weight = np.zeros((7, 7))
    for row, name, _ in links:
        weight[row, name] = ABOUT if (row, name) in about else 1
    present = [name for name in range(7) if weight[:, name].any()]
    place = {int(number): at for at, number in enumerate(graph.key_numbers.tolist())}
    at = {name: place[key_number(f"n{name}")] for name in present}
    graph = replace(graph, **_weighted(graph, weight, at))
    seeds = [Seed(at[name], 1.0) for name in sorted(named) if name in at]
    chunks = [(row, 0.5) for row in sorted(near)]
    rows, masses = ppr(graph, seeds, chunks, SETTINGS.model_copy(update={"iterations": 200, "top_k": 100}))
    found = np.zeros(7)
    found[rows] = masses
    assert found == pytest.approx(_power(weight, {n for n in named if n in at}, near), abs=0.01)


def _weighted(graph: object, weight: np.ndarray, at: dict[int, int]) -> dict[str, object]:
    """The columns of the graph with these weights, as the mentions above carry no titles."""
    from pipeline.retrieval.graph import Csr

    pairs = [(row, at[name], int(weight[row, name])) for name in at for row in range(7) if weight[row, name]]
    columns = [np.array([pair[part] for pair in pairs], dtype=np.int32) for part in range(3)]
    lists = Csr.group(columns[0], columns[1], (7, len(at)), columns[2])
    back = lists.transposed(len(at))
    return {"keys": lists, "key_chunks": back, "chunk_strengths": lists.strengths(), "key_strengths": back.strengths()}


def _power(weight: np.ndarray, named: set[int], near: set[int]) -> np.ndarray:
    restart = np.zeros(14)
    mass = PASSAGE_MASS if named else 1.0
    for row in near:
        restart[row] = mass / len(near)
    for name in named:
        restart[7 + name] = (1.0 - PASSAGE_MASS if near else 1.0) / len(named)
    both = np.block([[np.zeros((7, 7)), weight], [weight.T, np.zeros((7, 7))]])
    step = both / np.maximum(both.sum(axis=0), 1e-12)
    state = restart.copy()
    for _ in range(200):
        state = 0.15 * restart + 0.85 * step @ state
    return state[:7]

"""Questions about source code over a graph in memory: directions, depth, ambiguity, shortest chains and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.codegraph import questions
from pipeline.codegraph.questions import Questions, fits, search_text
from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound
from pipeline.graphs.inspection import Edge, Found, Seen
from pipeline.graphs.parts import GraphChunk, GraphMention, GraphPart, GraphRef
from pipeline.graphs.plain import PlainGraph
from pipeline.graphtools.ready import CODE
from pipeline.testing.inspection_contract import Plain
from schemas.code import CodeAnswer, CodeQuestion
from schemas.graph import Entity, Relation
from schemas.ids import CorpusId, entity_no

GRAPH = GraphRef(CorpusId(1), 1, "code", f"{'0' * 32}-1")
KINDS = {
    "pkg/store.py": "module", "pkg/store.py::Store": "class", "pkg/store.py::Store.add": "method",
    "pkg/store.py::Store.__init__": "method", "pkg/store.py::load": "function", "pkg/base.py": "module",
    "pkg/base.py::Base": "class", "pkg/base.py::Root": "class", "main.py": "module", "main.py::main": "function",
    "main.py::load": "function", "pkg/__init__.py": "module", "external::os.getcwd": "external", "external::os": "external",
}  # fmt: skip
EDGES = [
    ("pkg/store.py", "pkg/store.py::Store", "contains", "pkg/store.py", 5),
    ("pkg/store.py::Store", "pkg/store.py::Store.add", "contains", "pkg/store.py", 9),
    ("pkg/store.py::Store", "pkg/store.py::Store.__init__", "contains", "pkg/store.py", 6),
    ("pkg/store.py", "pkg/store.py::load", "contains", "pkg/store.py", 20),
    ("pkg/store.py::Store", "pkg/base.py::Base", "inherits", "pkg/store.py", 5),
    ("pkg/base.py::Base", "pkg/base.py::Root", "inherits", "pkg/base.py", 8),
    ("pkg/store.py", "pkg/base.py", "imports", "pkg/store.py", 1),
    ("main.py", "pkg/store.py", "imports", "main.py", 1),
    ("main.py", "external::os", "imports", "main.py", 2),
    ("main.py::main", "pkg/store.py::Store", "calls", "main.py", 12),
    ("main.py::main", "pkg/store.py::Store.add", "calls", "main.py", 11),
    ("main.py", "main.py::main", "calls", "main.py", 30),
    ("pkg/store.py::Store.add", "pkg/store.py::load", "calls", "pkg/store.py", 10),
    ("pkg/store.py::Store.__init__", "external::os.getcwd", "calls", "pkg/store.py", 7),
    ("pkg/store.py::load", "external::os.getcwd", "calls", "pkg/store.py", 21),
    ("pkg/store.py::load", "pkg/store.py::Store.add", "calls", "pkg/store.py", 22),
]


def graph(kinds: dict[str, str], edges: Sequence[tuple[str, str, str, str, int]]) -> PlainGraph:
    """Return a graph of code; each symbol is mentioned by one chunk."""
    entities = [
        Entity(
            entity_no(one), one, kind, one, one if kind == "module" else one.split("::")[1].split(".")[-1], "", 1, 1,
            {"path": one.partition("::")[0], "start_line": at, "qualname": one.partition("::")[2]},
        )
        if kind != "external"
        else Entity(entity_no(one), one, kind, one, one.partition("::")[2], "", 1, 1, {})
        for at, (one, kind) in enumerate(kinds.items(), 1)
    ]  # fmt: skip
    relations = [
        Relation(entity_no(a), entity_no(b), kind, 1.0, 1, {"path": path, "line": line})
        for a, b, kind, path, line in edges
    ]
    made = PlainGraph()
    made.add(
        GraphPart((GraphChunk(1, "d", 0),), entities, relations, [GraphMention(1, one.entity_no) for one in entities])
    )
    return made


class Memory:
    """The part of an inspector that questions need, over plain dicts."""

    def __init__(self, held: PlainGraph) -> None:
        self.plain = Plain(held)

    async def named(self, graph: GraphRef, kind: str | None, text: str, limit: int, deadline: Deadline) -> list[Seen]:
        return self.plain.named(kind, text)[:limit]

    async def entity(self, graph: GraphRef, entity_id: str, deadline: Deadline) -> Seen | None:
        number = entity_no(entity_id)
        return self.plain.seen(number) if number in self.plain.graph.entities else None

    async def reached(self, graph: GraphRef, centre: int, hops: int, limit: int, deadline: Deadline) -> Found:
        found = await self.plain.reached(centre, hops)
        return Found(found[:limit], len(found))

    async def edges(
        self, graph: GraphRef, sources: Sequence[int], targets: Sequence[int] | None, deadline: Deadline
    ) -> list[Edge]:
        return self.plain.edges(sources, targets)


async def ask(question: str, symbol: str, to: str = "", held: PlainGraph | None = None, **given: int) -> CodeAnswer:
    """Ask the small graph, or another."""
    asking = Questions(Memory(held or graph(KINDS, EDGES)), GRAPH, Deadline.never())
    return await asking.ask(CodeQuestion(question), symbol, to, **given)


def said(answer: CodeAnswer) -> list[tuple[str, str, int]]:
    """Return what was found, with its evidence and depth."""
    return [(one.symbol.entity_id, f"{one.path}:{one.line}", one.depth) for one in answer.references]


async def test_callers_and_callees_with_their_lines() -> None:
    """In the order of files and lines; deeper steps come after, and each symbol is gone on from once."""
    assert said(await ask("callers", "Store.add")) == [
        ("main.py::main", "main.py:11", 1), ("pkg/store.py::load", "pkg/store.py:22", 1),
    ]  # fmt: skip
    assert said(await ask("callers", "pkg/store.py::load", depth=9)) == [
        ("pkg/store.py::Store.add", "pkg/store.py:10", 1), ("main.py::main", "main.py:11", 2),
        ("pkg/store.py::load", "pkg/store.py:22", 2), ("main.py", "main.py:30", 3),
    ]  # fmt: skip
    assert said(await ask("callers", "os.getcwd")) == [
        ("pkg/store.py::Store.__init__", "pkg/store.py:7", 1), ("pkg/store.py::load", "pkg/store.py:21", 1),
    ]  # fmt: skip
    answer = await ask("callees", "main.py::main")
    assert said(answer) == [("pkg/store.py::Store.add", "main.py:11", 1), ("pkg/store.py::Store", "main.py:12", 1)]
    assert (answer.references[0].symbol.path, answer.references[0].symbol.kind) == ("pkg/store.py", "method")
    assert said(await ask("callees", "main.py")) == [("main.py::main", "main.py:30", 1)]


async def test_bases_subclasses_and_importers() -> None:
    """Classes go by their names; modules by id, by the end of their path, or as they are imported."""
    assert said(await ask("bases", "Store", depth=2)) == [
        ("pkg/base.py::Base", "pkg/store.py:5", 1), ("pkg/base.py::Root", "pkg/base.py:8", 2),
    ]  # fmt: skip
    assert said(await ask("subclasses", "Root", depth=2))[-1] == ("pkg/store.py::Store", "pkg/store.py:5", 2)
    for module in ("pkg/store.py", "store.py", "pkg.store", "store"):
        assert said(await ask("importers", module)) == [("main.py", "main.py:1", 1)]
    assert said(await ask("importers", "os")) == [("main.py", "main.py:2", 1)]


async def test_what_may_be_several_is_refused_with_their_ids() -> None:
    """And what is none, or of a kind that the question is not about, is refused too."""
    with pytest.raises(InvalidRequest, match=r"(?s)one of 2.*main\.py::load\n.*pkg/store\.py::load"):
        await ask("callers", "load")
    assert said(await ask("callers", "store.py::load", depth=1))[0][0] == "pkg/store.py::Store.add"
    for question, symbol, error in (
        ("callers", "nobody", NotFound), ("callers", "ad", NotFound), ("bases", "main", NotFound),
        ("bases", "main.py::main", InvalidRequest), ("importers", "pkg/store.py::Store", InvalidRequest),
        ("callers", "main.py", InvalidRequest), ("path", "main", InvalidRequest), ("callers", " ", InvalidRequest),
    ):  # fmt: skip
        with pytest.raises(error):
            await ask(question, symbol)


async def test_a_chain_is_a_shortest_one_and_leads_through_constructors() -> None:
    """A class that is called leads to its constructor; where nothing leads on there is no chain."""
    assert said(await ask("path", "main.py", "os.getcwd")) == [
        ("main.py::main", "main.py:30", 1), ("pkg/store.py::Store.add", "main.py:11", 2),
        ("pkg/store.py::load", "pkg/store.py:10", 3), ("external::os.getcwd", "pkg/store.py:21", 4),
    ]  # fmt: skip
    assert [one.kind for one in (await ask("path", "main.py::main", "Store.__init__")).references] == [
        "calls",
        "contains",
    ]
    assert said(await ask("path", "pkg/store.py::load", "main.py::main")) == []
    assert said(await ask("path", "Store.add", "Store.add")) == []


async def test_symbols_are_looked_up_and_looked_into() -> None:
    """By a whole part of the name, else by a part of a word; an id of a class or module shows what is in it."""
    assert [one.entity_id for one in (await ask("symbols", "load")).symbols] == ["main.py::load", "pkg/store.py::load"]
    assert [one.entity_id for one in (await ask("symbols", "getc")).symbols] == ["external::os.getcwd"]
    inside = await ask("symbols", "pkg/store.py::Store")
    assert [one.name for one in inside.symbols] == ["__init__", "add"]
    assert (await ask("symbols", "load", limit=1)).truncated


async def test_an_answer_is_cut_at_its_limit_and_says_so() -> None:
    """Also where the limit is reached at a deeper level."""
    cut = await ask("callers", "pkg/store.py::load", depth=9, limit=2)
    assert (len(cut.references), cut.truncated) == (2, True)
    whole = await ask("callers", "pkg/store.py::load", depth=9, limit=4)
    assert (len(whole.references), whole.truncated) == (4, False)


@pytest.mark.parametrize(
    ("text", "searched", "entity", "kind", "fit"),
    [
        ("a/b.py::C.d", "d", "a/b.py::C.d", "method", True),
        ("b.py::C.d", "d", "a/b.py::C.d", "method", True),
        ("b.py::d", "d", "a/b.py::C.d", "method", False),
        ("C.d", "d", "a/b.py::C.d", "method", True),
        ("d", "d", "a/b.py::C.bad", "method", False),
        ("x/b.py::C.d", "d", "a/b.py::C.d", "method", False),
        ("b.py", "b.py", "a/b.py", "module", True),
        ("b.py", "b.py", "ab.py", "module", False),
        ("a.b", "b", "a/b.py", "module", True),
        ("a", "a", "a/__init__.py", "module", True),
        ("os.path.join", "join", "external::os.path.join", "external", True),
    ],
)
def test_what_a_text_may_stand_for(text: str, searched: str, entity: str, kind: str, fit: bool) -> None:
    """Whole parts of a path or qualified name, from its end."""
    one = Entity(entity_no(entity), entity, kind, entity, "")
    assert (search_text(text), fits(text, one)) == (searched, fit)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
async def test_chains_and_levels_are_those_of_a_plain_search(pairs: list[tuple[int, int]], at_once: int) -> None:
    """On any graph of calls, however many sources are asked for at a time."""
    names = {f"m.py::f{n}": "function" for n in range(10)}
    edges = [(f"m.py::f{a}", f"m.py::f{b}", "calls", "m.py", 10 * a + b) for a, b in dict.fromkeys(pairs) if a != b]
    held = graph(names, edges)
    distances = {"m.py::f0": 0}
    for name in (queue := ["m.py::f0"]):
        fresh = [b for a, b, *_ in edges if a == name and b not in distances]
        distances |= dict.fromkeys(fresh, distances[name] + 1)
        queue += dict.fromkeys(fresh)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "_AT_ONCE", at_once)
        for name in names:
            chain = (await ask("path", "m.py::f0", name, held)).references
            expected = distances.get(name, 0)
            assert len(chain) == expected
            assert all(one.source_id == other.target_id for other, one in pairwise(chain))
    around = await ask("callees", "m.py::f0", "", held, depth=10, limit=1000)
    assert {one.target_id for one in around.references} - {"m.py::f0"} == distances.keys() - {"m.py::f0"}
    assert sorted((one.source_id, one.target_id) for one in around.references) == sorted(
        (a, b) for a, b, *_ in edges if a in distances
    )


def test_the_ready_made_allow_list_has_all_kinds_of_symbols() -> None:
    """Every kind that questions know is a label, and the four kinds of edges are types."""
    assert {kind for node in CODE.node_types for kind in node.types} == set(questions._EVERYTHING)
    assert {kind for edge in CODE.edge_types for kind in edge.types} == {"contains", "imports", "inherits", "calls"}

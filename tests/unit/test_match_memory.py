"""Portable MATCH over graphs in this process: against a brute-force oracle, and case by case."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, InconsistentGeneration, InvalidRequest, NotFound
from pipeline.graphs.bag import Triple
from pipeline.graphs.knowledge import KnowledgeTools
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.execution import Bounds, Cell, Edge, Limit, Node, Path, Rows
from pipeline.graphtools.finish import Finisher, Match, finish
from pipeline.graphtools.live import ENTITY, RETAINED, LiveGraphs, graph_of
from pipeline.graphtools.memory import TURN, MemoryMatch, PropertyGraph
from pipeline.graphtools.plan import (
    Both,
    Column,
    Condition,
    EdgeKind,
    EdgePlan,
    NodePlan,
    Not,
    Order,
    Plan,
    Predicate,
    Property,
)
from pipeline.graphtools.query import Aggregate, Direction, Joining, Operator
from schemas.exposed import PropertyType
from schemas.graph import Entity, Relation, Scalar
from schemas.ids import CorpusId, EntityNo

REF = GraphRef(CorpusId(1), 1, "docs", f"{'0' * 32}-1")
ALL = Bounds(rows=10_000)
INT64, STRING = PropertyType.INT64, PropertyType.STRING


async def rows_of(graph: PropertyGraph, plan: Plan, bounds: Bounds = ALL) -> Rows:
    return await MemoryMatch({REF.graph_id: graph}).match(REF, plan, bounds, Deadline.after(60))


def any_of(*types: str) -> NodePlan:
    return NodePlan(frozenset(types))


def edges_of(
    *stored: str, way: Direction = Direction.OUT, hops: tuple[int, int] = (1, 1), ends: str = "AB"
) -> EdgePlan:
    return EdgePlan(tuple(EdgeKind(one, frozenset(ends), frozenset(ends)) for one in stored), way, *hops)


def graph(nodes: str, *edges: str, **properties: dict[str, Scalar]) -> PropertyGraph:
    """Return a graph of nodes like `a:A` and edges like `aRb`; the type of nodes without one is A."""
    made = []
    for name in nodes.split():
        node, _, kind = name.partition(":")
        made.append(Node(node, kind or "A", properties.get(node, {})))
    return PropertyGraph.of(made, [Edge(one[0], one[1:-1], one[-1], properties.get(one, {})) for one in edges])


# The oracle: every way to lay the pattern over the graph is tried, and rows are compared pairwise.


def brute_matches(nodes: Sequence[Node], edges: Sequence[Edge], plan: Plan) -> list[Match]:
    by_id = {node.id: node for node in nodes}
    found: dict[object, Match] = {}
    ways = [(edge, forth) for edge in edges for forth in (True, False)]
    for lengths in itertools.product(*(range(edge.least, edge.most + 1) for edge in plan.edges)):
        owners = [number for number, length in enumerate(lengths) for _ in range(length)]
        for start in nodes:
            for walk in itertools.product(ways, repeat=len(owners)):
                match = laid(by_id, start, walk, owners, plan)
                if match is not None:
                    found[repr(match)] = match
    return list(found.values())


def laid(
    by_id: dict[str, Node], start: Node, walk: Sequence[tuple[Edge, bool]], owners: list[int], plan: Plan
) -> Match | None:
    here, used, segments = start, list[Edge](), [([start], list[Edge]()) for _ in plan.edges]
    ends = [start]
    for place, ((edge, forth), owner) in enumerate(zip(walk, owners, strict=True)):
        source, target = by_id[edge.source], by_id[edge.target]
        one, other = (source, target) if forth else (target, source)
        kinds = [kind for kind in plan.edges[owner].kinds if kind.stored == edge.type]
        fits = any(source.type in kind.sources and target.type in kind.targets for kind in kinds)
        directed = plan.edges[owner].direction in (Direction.BOTH, Direction.OUT if forth else Direction.IN)
        if one is not here or edge in used or not fits or not directed:
            return None
        used.append(edge)
        if not segments[owner][1]:
            segments[owner] = ([here], [])
        segments[owner][0].append(other)
        segments[owner][1].append(edge)
        here = other
        if place + 1 == len(owners) or owners[place + 1] != owner:
            ends.append(here)
    if any(node.type not in wanted.types for node, wanted in zip(ends, plan.nodes, strict=True)):
        return None
    match: list[Node | Edge | Path] = [start]
    for end, edge_plan, (path, steps) in zip(ends[1:], plan.edges, segments, strict=True):
        match += (steps[0] if edge_plan.one else Path(tuple(path), tuple(steps)), end)
    return match if true(plan.where, match) else None


def value(match: Match, wanted: Property) -> Any:
    """Return an INT64 or STRING."""
    element = match[wanted.element]
    assert not isinstance(element, Path)
    stored = element.properties.get(wanted.stored)
    return stored if type(stored) is (int if wanted.type is INT64 else str) else None


def true(condition: Condition | None, match: Match) -> bool | None:
    """Evaluate with None as unknown; only the operators that the plans below have."""
    match condition:
        case None:
            return True
        case Not(inner):
            truth = true(inner, match)
            return None if truth is None else not truth
        case Both(joining, left, right):
            pair = {true(left, match), true(right, match)}
            strong = joining is Joining.OR
            return strong if strong in pair else None if None in pair else not strong
        case Predicate(wanted, Operator.IS_NULL):
            return value(match, wanted) is None
        case Predicate(wanted, asked, (other,)):
            mine = value(match, wanted)
            if mine is None or other is None:
                return None
            return bool(mine == other if asked is Operator.EQ else mine < other)
        case _:
            raise AssertionError(condition)


def compare(a: Any, b: Any) -> int:
    """Compare two cells, null last."""
    if a is None or b is None:
        return (a is None) - (b is None)
    one, other = ids(a), ids(b)
    return (one > other) - (one < other)


def ids(cell: Any) -> list[Any]:
    match cell:
        case Node():
            return [cell.id]
        case Edge():
            return [cell.source, cell.type, cell.target]
        case Path():
            inner = [
                part for edge, node in zip(cell.edges, cell.nodes[1:], strict=True) for part in (*ids(edge), node.id)
            ]
            return [cell.nodes[0].id, *inner]
        case _:
            return [cell]


@dataclass
class BruteRow:
    cells: tuple[Any, ...]
    keys: list[tuple[Any, bool]]


def brute_rows(matches: Sequence[Match], plan: Plan) -> list[tuple[Any, ...]]:
    rows = brute_groups(matches, plan) if plan.aggregated else [brute_row(match, plan) for match in matches]

    def order(one: BruteRow, other: BruteRow) -> int:
        for (a, down), (b, _) in zip(one.keys, other.keys, strict=True):
            if by := compare(a, b):
                return -by if down else by
        return 0

    found = [row.cells for row in sorted(rows, key=functools.cmp_to_key(order))]
    return [row for at, row in enumerate(found) if not plan.distinct or row not in found[:at]]


def brute_row(match: Match, plan: Plan) -> BruteRow:
    cells = tuple(brute_cell(column, match) for column in plan.columns)
    keys = [(cells[one.by] if isinstance(one.by, int) else value(match, one.by), one.descending) for one in plan.order]
    return BruteRow(cells, keys + [(one, False) for one in (cells if plan.distinct else match)])


def brute_cell(column: Column, match: Match) -> Any:
    if column.property:
        return value(match, column.property)
    if column.element is not None:
        return match[column.element]
    nodes, edges = list[Node](), list[Edge]()
    for element in match:
        if isinstance(element, Path):
            nodes, edges = nodes + list(element.nodes[1:-1]), edges + list(element.edges)
        else:
            (nodes if isinstance(element, Node) else edges).append(element)  # type: ignore[arg-type]
    return Path(tuple(nodes), tuple(edges))


def brute_groups(matches: Sequence[Match], plan: Plan) -> list[BruteRow]:
    groups: dict[tuple[Any, ...], list[Match]] = {} if plan.groups else {(): []}
    for match in matches:
        groups.setdefault(tuple(value(match, one) for one in plan.groups), []).append(match)
    rows = []
    for key, members in groups.items():
        cells = tuple(
            brute_aggregate(column, members) if column.aggregate else key[plan.groups.index(column.property)]  # type: ignore[arg-type]
            for column in plan.columns
        )
        keys = [
            (cells[one.by] if isinstance(one.by, int) else key[plan.groups.index(one.by)], one.descending)
            for one in plan.order
        ]
        rows.append(BruteRow(cells, keys + [(one, False) for one in key]))
    return rows


def brute_aggregate(column: Column, members: list[Match]) -> Any:
    if column.property is None:
        return len(members)
    values = [found for match in members if (found := value(match, column.property)) is not None]
    match column.aggregate:
        case Aggregate.COUNT:
            return len(values)
        case Aggregate.COUNT_DISTINCT:
            return len(set(values))
        case Aggregate.SUM:
            return sum(values)
        case Aggregate.AVG:
            return sum(values) / len(values) if values else None
        case Aggregate.MIN:
            return min(values, default=None)
        case _:
            return max(values, default=None)


laws = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
stored = st.one_of(st.none(), st.sampled_from([0, 1, 2, "a", True, 1.0]))
pairs = st.sampled_from(["AB", "AB", "A", "B"]).map(frozenset)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Node], list[Edge]]:
    """A graph of 2 to 4 nodes, some outside of the view, and 2 to 5 edges, loops and parallel ones included."""
    kinds = draw(st.lists(st.sampled_from("AABX"), min_size=2, max_size=4))
    nodes = [Node(name, kind, kept(draw(stored))) for name, kind in zip("abcd", kinds, strict=False)]
    names = st.sampled_from([node.id for node in nodes])
    ends = draw(st.lists(st.tuples(names, st.sampled_from("RRS"), names), min_size=2, max_size=5, unique=True))
    return nodes, [Edge(*end, kept(draw(stored))) for end in ends]


def kept(number: Scalar | None) -> dict[str, Scalar]:
    return {} if number is None else {"n": number}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan that the checker could make, of up to two edges and three hops."""
    count = draw(st.sampled_from([1, 2, 1, 0]))
    edges, left = [], 3
    for more in range(count - 1, -1, -1):
        most = draw(st.integers(1, left - more))
        left -= most
        kinds = [
            EdgeKind(one, draw(pairs), draw(pairs)) for one in sorted(draw(st.sets(st.sampled_from("RS"), min_size=1)))
        ]
        edges.append(EdgePlan(tuple(kinds), draw(st.sampled_from(Direction)), draw(st.integers(1, most)), most))
    nodes = tuple(NodePlan(draw(pairs)) for _ in range(count + 1))
    single = [0, *(2 * at + 1 for at, edge in enumerate(edges) if edge.one), *(2 * at + 2 for at in range(count))]
    numbers = st.builds(Property, st.sampled_from(single), st.just("n"), st.just(INT64))
    plan = Plan(nodes, tuple(edges), (), draw(st.none() | conditions(numbers)))
    return draw(grouped(plan, numbers) if draw(st.booleans()) else plain(plan, numbers))


def conditions(numbers: st.SearchStrategy[Property]) -> st.SearchStrategy[Condition]:
    asked = st.builds(
        Predicate, numbers, st.sampled_from([Operator.EQ, Operator.LT]), st.sampled_from([(0,), (1,), (2,), (None,)])
    )
    null = st.builds(Predicate, numbers, st.just(Operator.IS_NULL))
    return st.recursive(
        asked | null,
        lambda inner: st.builds(Not, inner) | st.builds(Both, st.sampled_from(Joining), inner, inner),
        max_leaves=3,
    )


@st.composite
def plain(draw: st.DrawFn, plan: Plan, numbers: st.SearchStrategy[Property]) -> Plan:
    elements = st.integers(0, 2 * len(plan.edges)).map(lambda at: Column("e", element=at))
    columns = tuple(
        draw(
            st.lists(
                numbers.map(lambda one: Column("p", property=one)) | elements | st.just(Column("path")),
                min_size=1,
                max_size=3,
            )
        )
    )
    distinct = draw(st.booleans())
    places: st.SearchStrategy[int | Property] = st.integers(0, len(columns) - 1)
    by = places if distinct else places | numbers
    order = draw(st.lists(st.builds(Order, by, st.booleans()), max_size=2))
    return replace(plan, columns=columns, distinct=distinct, order=tuple(order))


@st.composite
def grouped(draw: st.DrawFn, plan: Plan, numbers: st.SearchStrategy[Property]) -> Plan:
    groups = tuple(draw(st.lists(numbers, max_size=2, unique=True)))
    functions = st.builds(Column, st.just("f"), st.none(), numbers, st.sampled_from(Aggregate))
    counted = st.just(Column("count", aggregate=Aggregate.COUNT))
    columns = [Column("g", property=one) for one in groups] + draw(
        st.lists(functions | counted, min_size=1, max_size=3)
    )
    places: st.SearchStrategy[int | Property] = st.integers(0, len(columns) - 1)
    by = places | st.sampled_from(groups) if groups else places
    order = draw(st.lists(st.builds(Order, by, st.booleans()), max_size=2))
    columns = columns[draw(st.integers(0, 1)) :] if len(columns) > 1 and not order else columns
    return replace(plan, columns=tuple(columns), groups=groups, distinct=draw(st.booleans()), order=tuple(order))


@laws
@given(worlds(), plans())
async def test_it_finds_what_trying_everything_finds(world: tuple[list[Node], list[Edge]], plan: Plan) -> None:
    found = await rows_of(PropertyGraph.of(*world), plan)
    expected = brute_rows(brute_matches(*world, plan), plan)
    assert found == Rows(tuple(expected))


@laws
@given(worlds(), plans(), st.integers(1, 4))
async def test_pages_put_together_are_the_whole(world: tuple[list[Node], list[Edge]], plan: Plan, size: int) -> None:
    made = PropertyGraph.of(*world)
    whole = (await rows_of(made, plan)).rows
    pages = [(await rows_of(made, plan, Bounds(size, at))).rows for at in range(0, len(whole) + 1, size)]
    assert tuple(itertools.chain.from_iterable(pages)) == whole
    assert all(len(page) == size for page in pages[:-1])


@laws
@given(worlds(), plans(), st.randoms(use_true_random=False))
def test_the_order_in_which_a_store_finds_matches_does_not_matter(
    world: tuple[list[Node], list[Edge]], plan: Plan, random: Any
) -> None:
    matches = brute_matches(*world, replace(plan, where=None))
    expected = finish(plan, matches, 1, 3)
    random.shuffle(matches)
    assert finish(plan, matches, 1, 3) == expected
    assert list(expected) == brute_rows([match for match in matches if true(plan.where, match)], plan)[1:4]


def routes(rows: Rows) -> list[str]:
    """Return the paths in the first column as their nodes' ids in a row."""
    return ["".join(node.id for node in path.nodes) for (path, *_) in rows.rows if isinstance(path, Path)]


def path_plan(*hops: EdgePlan) -> Plan:
    return Plan(tuple(any_of("A", "B") for _ in range(len(hops) + 1)), hops, (Column("path"),))


async def test_no_edge_is_in_a_match_twice_but_nodes_may_be() -> None:
    triangle = graph("a b c", "aRb", "bRc", "cRa")
    both = edges_of("R", way=Direction.BOTH)
    assert routes(await rows_of(triangle, path_plan(both, both, both))) == [
        "abca",
        "acba",
        "bacb",
        "bcab",
        "cbac",  # its first edge is bRc, which comes before cRa
        "cabc",
    ]
    assert routes(await rows_of(graph("a b", "aRb"), path_plan(both, both))) == []
    assert routes(await rows_of(triangle, path_plan(edges_of("R", hops=(1, 9))))) == [
        "ab", "abc", "abca", "bc", "bca", "bcab", "ca", "cab", "cabc",
    ]  # fmt: skip


@pytest.mark.parametrize("way", Direction)
async def test_a_loop_matches_once_each_way(way: Direction) -> None:
    assert routes(await rows_of(graph("a", "aRa"), path_plan(edges_of("R", way=way)))) == ["aa"]
    assert routes(await rows_of(graph("a", "aRa"), path_plan(edges_of("R", way=way, hops=(1, 5))))) == ["aa"]


async def test_a_loop_counts_once() -> None:
    """Rows could hide that a match was found twice."""
    both = edges_of("R", way=Direction.BOTH, hops=(1, 2))
    plan = replace(path_plan(both), columns=(Column("n", aggregate=Aggregate.COUNT),))
    found = await rows_of(graph("a b", "aRa", "aRb"), plan)
    assert found.rows == ((5,),)  # aa, ab, ba, aab, baa


async def test_an_edge_is_one_of_the_view_by_both_of_its_ends() -> None:
    made = graph("a b:B c", "aRb", "bRc", "cRb")
    from_a = EdgePlan((EdgeKind("R", frozenset("A"), frozenset("AB")),), Direction.OUT, 1, 3)
    assert routes(await rows_of(made, path_plan(from_a))) == ["ab", "cb"]
    to_a = EdgePlan((EdgeKind("R", frozenset("AB"), frozenset("A")),), Direction.IN, 1, 3)
    assert routes(await rows_of(made, path_plan(to_a))) == ["cb"]
    assert routes(await rows_of(made, path_plan(replace(from_a, direction=Direction.BOTH)))) == [
        "ab", "abc", "ba", "bc", "cb", "cba",
    ]  # fmt: skip


async def test_what_is_outside_of_the_view_is_not_walked_through() -> None:
    made = graph("a b x:X", "aRx", "xRb", "aRb")
    assert routes(await rows_of(made, path_plan(edges_of("R", hops=(1, 3))))) == ["ab"]


async def test_several_hops_are_a_path_with_its_nodes_and_one_hop_is_an_edge() -> None:
    made = graph("a b c", "aRb", "bRc", bRc={"w": 0.5})
    plan = replace(path_plan(edges_of("R", hops=(2, 2))), columns=(Column("r", element=1), Column("end", element=2)))
    (path, end), *rest = (await rows_of(made, plan)).rows
    assert (path, end, rest) == (
        Path(tuple(made.nodes.values()), (Edge("a", "R", "b"), Edge("b", "R", "c", {"w": 0.5}))),
        made.nodes["c"],
        [],
    )
    plan = replace(path_plan(edges_of("R", way=Direction.IN)), columns=(Column("r", element=1),))
    assert (await rows_of(made, plan)).rows == ((Edge("a", "R", "b"),), (Edge("b", "R", "c", {"w": 0.5}),))


async def test_merged_datetimes_are_shown_in_full_others_as_they_are() -> None:
    at = Property(0, "at", PropertyType.DATETIME)
    made = graph("a b c", a={"at": "2024-01-01T10:00"}, b={"at": "2024-01-01T10:00:00"}, c={"at": "soon"})
    full = "2024-01-01T10:00:00.000000000"
    plan = Plan((any_of("A"),), (), (Column("at", property=at),))
    assert (await rows_of(made, plan)).rows == (("2024-01-01T10:00",), ("2024-01-01T10:00:00",), (None,))
    assert (await rows_of(made, replace(plan, distinct=True))).rows == ((full,), (None,))
    counted = (Column("at", property=at), Column("n", aggregate=Aggregate.COUNT))
    assert (await rows_of(made, replace(plan, columns=counted, groups=(at,)))).rows == ((full, 2), (None, 1))
    most = replace(plan, columns=(Column("m", property=at, aggregate=Aggregate.MAX),))
    assert (await rows_of(made, most)).rows == ((full,),)


async def test_equal_rows_of_several_groups_come_where_the_first_group_would() -> None:
    n, s = Property(0, "n", INT64), Property(0, "s", STRING)
    made = graph("a b c", a={"n": 5, "s": "z"}, b={"n": 3, "s": "y"}, c={"n": 1, "s": "z"})
    plan = Plan((any_of("A"),), (), (Column("s", property=s),), distinct=True, groups=(n, s))
    assert (await rows_of(made, plan)).rows == (("z",), ("y",))
    assert (await rows_of(made, replace(plan, distinct=False))).rows == (("z",), ("y",), ("z",))


async def test_distinct_elements_can_be_counted() -> None:
    made = graph("a b c", "aRb", "cRb", "aRc")
    counts = (
        Column("rows", aggregate=Aggregate.COUNT),
        Column("ends", element=2, aggregate=Aggregate.COUNT),
        Column("different", element=2, aggregate=Aggregate.COUNT_DISTINCT),
    )
    assert (await rows_of(made, replace(path_plan(edges_of("R")), columns=counts))).rows == ((3, 3, 2),)


async def test_a_sum_beyond_64_bits_is_an_error() -> None:
    made = graph("a b", a={"n": 2**63 - 1}, b={"n": 1})
    total = Column("sum", property=Property(0, "n", INT64), aggregate=Aggregate.SUM)
    with pytest.raises(InvalidRequest, match="64 bits"):
        await rows_of(made, Plan((any_of("A"),), (), (total,)))


def star(size: int) -> PropertyGraph:
    """A hub with so many neighbours; there are `size * (size - 1)` ways from one to another."""
    leaves = [Node(f"n{at:05}", "A", {"n": at}) for at in range(size)]
    return PropertyGraph.of([Node("hub", "B"), *leaves], [Edge(leaf.id, "R", "hub") for leaf in leaves])


WAYS = Plan(
    (any_of("A"), any_of("B"), any_of("A")),
    (edges_of("R"), edges_of("R", way=Direction.IN)),
    (Column("a", property=Property(0, "n", INT64)), Column("b", property=Property(4, "n", INT64))),
    order=(Order(1, True), Order(0)),
)


@pytest.mark.parametrize("steps", [1, 2, 100, 160, 161, 10_000])
async def test_the_bound_of_steps_is_named_and_what_was_found_is_in_order(steps: int) -> None:
    """Twelve leaves: 12 nodes to begin at, 12 edges to the hub, 12 edges from there each time: 168 steps."""
    whole, cut = await rows_of(star(12), WAYS), await rows_of(star(12), WAYS, Bounds(1000, steps=steps))
    assert len(whole.rows) == 12 * 11
    assert cut.limit is (Limit.STEPS if steps < 168 else Limit.NONE)
    found: list[Any] = list(cut.rows)
    assert found == sorted(found, key=lambda row: (-row[1], row[0]))
    assert set(found) <= set(whole.rows)
    assert (cut.rows == whole.rows) is (steps >= 168)


async def test_exactly_as_many_steps_as_needed_cut_nothing() -> None:
    assert (await rows_of(star(12), WAYS, Bounds(1000, steps=168))).limit is Limit.NONE
    assert (await rows_of(star(12), WAYS, Bounds(1000, steps=167))).limit is Limit.STEPS


async def test_conditions_are_asked_as_soon_as_they_can_be() -> None:
    """Of a hub's 300 neighbours only one begins a match: 300 + 1 + 300 steps, not 300 * 302."""
    first = Predicate(Property(0, "n", INT64), Operator.EQ, (7,))
    last = Predicate(Property(4, "n", INT64), Operator.LT, (2,))
    plan = replace(WAYS, where=Both(Joining.AND, last, first))
    assert (await rows_of(star(300), plan, Bounds(10, steps=601))) == Rows(((7, 1), (7, 0)))


async def test_other_tasks_have_their_turns() -> None:
    turns, done = 0, anyio.Event()

    async def other() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        steps = 10_000
        assert (await rows_of(star(400), WAYS, Bounds(5, steps=steps))).limit is Limit.STEPS
        done.set()
    assert turns >= steps // TURN


async def test_it_stops_at_the_deadline() -> None:
    executor = MemoryMatch({REF.graph_id: star(2_000)})
    with pytest.raises(DeadlineExceeded):
        await executor.match(REF, WAYS, ALL, Deadline.after(0.05))
    with pytest.raises(DeadlineExceeded):
        await executor.match(REF, WAYS, ALL, Deadline.after(0))


async def test_it_stops_when_cancelled() -> None:
    executor, ended = MemoryMatch({REF.graph_id: star(2_000)}), False
    with anyio.move_on_after(0.05) as scope:
        await executor.match(REF, WAYS, ALL, Deadline.never())
        ended = True
    assert scope.cancelled_caught
    assert not ended


async def test_a_graph_that_is_not_here_is_not_found() -> None:
    with pytest.raises(NotFound):
        await MemoryMatch({}).match(REF, WAYS, ALL, Deadline.never())


async def test_many_groups_keep_their_order_off_the_event_loop() -> None:
    number = Property(0, "n", INT64)
    plan = Plan((any_of("A"),), (), (Column("n", property=number),), groups=(number,), order=(Order(0, True),))
    found = await rows_of(star(7_000), plan, Bounds(3, offset=1))
    assert found.rows == ((6998,), (6997,), (6996,))


def test_rows_that_cannot_be_asked_for_are_forgotten() -> None:
    plan = Plan((any_of("A"),), (), (Column("n", property=Property(0, "n", INT64)),), order=(Order(0),))
    numbers = ((at * 7919) % 10_007 for at in range(10_007))  # each once, in disorder
    finisher = Finisher(plan, 2, 3)
    most = 0
    for number in numbers:
        finisher.add((Node(f"n{number}", "A", {"n": number}),))
        most = max(most, len(finisher))
    assert finisher.rows() == ((2,), (3,), (4,))
    assert most < 1_100


def test_an_edge_needs_both_ends() -> None:
    with pytest.raises(InconsistentGeneration):
        graph("a", "aRb")
    with pytest.raises(InconsistentGeneration):
        PropertyGraph.of_entities([], [Relation(EntityNo(1), EntityNo(2), "R", 1.0, 1)])


async def test_entities_and_relations_have_their_columns_and_what_was_extracted() -> None:
    entities = [
        Entity(EntityNo(1), "a:1", "A", "ada", "Ada", "wrote", 3, 2, {"born": 1815, "name": "hidden by the column"}),
        Entity(EntityNo(2), "a:2", "A", "bob", "Bob"),
    ]
    made = PropertyGraph.of_entities(entities, [Relation(EntityNo(1), EntityNo(2), "R", 0.5, 4, {"since": "2024"})])
    (one, edge, other), *rest = (
        await rows_of(
            made, replace(path_plan(edges_of("R")), columns=tuple(Column("c", element=at) for at in range(3)))
        )
    ).rows
    assert rest == []
    assert one == Node("a:1", "A", {"name": "Ada", "description": "wrote", "mentions": 3, "chunks": 2, "born": 1815})
    assert edge == Edge("a:1", "R", "a:2", {"weight": 0.5, "evidence": 4, "since": "2024"})
    assert isinstance(other, Node)
    assert other.id == "a:2"


LIVE = Plan(
    (any_of(ENTITY), any_of(ENTITY)),
    (EdgePlan((EdgeKind("works for", frozenset({ENTITY}), frozenset({ENTITY})),), Direction.OUT, 1, 1),),
    (
        Column("who", property=Property(0, "name", STRING)),
        Column("evidence", property=Property(1, "evidence", INT64)),
        Column("where", property=Property(2, "name", STRING)),
    ),
)


async def live_rows(live: LiveGraphs, ref: GraphRef | None = None) -> tuple[tuple[Cell, ...], ...]:
    async with live.pin(ref, Deadline.after(10)) as pinned:
        return (await MemoryMatch(live.graphs).match(pinned, LIVE, ALL, Deadline.after(10))).rows


async def test_spellings_of_live_triples_are_one_entity() -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("Ada Lovelace", "works for", "Acme")
    tools.kg_add_triple("ada lovelace", "works for", "ACME")
    tools.kg_add_triple("Bob", "works for", "Acme")
    tools.kg_add_triple("Bob", "knows", "Ada Lovelace")
    found = sorted(await live_rows(LiveGraphs(tools.triples)))  # type: ignore[type-var]
    assert found == [("Ada Lovelace", 2, "Acme"), ("Bob", 1, "Acme")]
    mentions = {
        node.properties["name"]: node.properties["mentions"] for node in graph_of(tools.triples()).nodes.values()
    }
    assert mentions == {"Ada Lovelace": 3, "Acme": 3, "Bob": 2}


async def test_a_change_of_live_triples_is_a_new_generation_and_the_last_ones_are_kept() -> None:
    tools = KnowledgeTools()
    live = LiveGraphs(tools.triples)
    assert await live_rows(live) == ()
    seen = list(await live.retained(Deadline.never()))
    assert len(seen) == 1
    for number in range(1, 5):
        tools.kg_add_triple(f"n{number}", "works for", "Acme")
        assert len(await live_rows(live)) == number
        assert len(await live_rows(live)) == number  # nothing changed, so no new one
        seen.insert(0, (await live.retained(Deadline.never()))[0])
    assert list(await live.retained(Deadline.never())) == seen[:RETAINED]
    assert [len(await live_rows(live, ref)) for ref in seen[:RETAINED]] == [4, 3, 2]
    assert len(live.graphs) == RETAINED
    with pytest.raises(NotFound):
        await live_rows(live, seen[RETAINED])


async def test_a_generation_of_live_triples_stays_while_it_is_read() -> None:
    triples = [Triple("a", "works for", "b")]
    live = LiveGraphs(lambda: list(triples))
    async with live.pin(None, Deadline.never()) as first:
        for number in range(RETAINED + 2):
            triples.append(Triple(f"n{number}", "works for", "b"))
            await live_rows(live)
        assert len(await live_rows(live, first)) == 1
    triples.append(Triple("last", "works for", "b"))
    await live_rows(live)
    assert first.graph_id not in live.graphs
    assert len(live.graphs) == RETAINED

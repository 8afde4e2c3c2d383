"""The contract of a `MatchExecutor`, rule by rule, in the order of `graphtools/plan.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, InvalidRequest
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.check import check
from pipeline.graphtools.execution import Bounds, Edge, Limit, Node, Path, Rows
from pipeline.graphtools.parse import parse
from pipeline.testing.match_worlds import MatchStore, exposed
from schemas.exposed import EdgeType, GraphSchema, NodeType, PropertyType
from schemas.graph import Entity, Relation, Scalar
from schemas.ids import EntityNo

PROPERTIES = (
    exposed("name", PropertyType.STRING),
    exposed("mentions", PropertyType.DOUBLE),
    exposed("s", PropertyType.STRING),
    exposed("i", PropertyType.INT64),
    exposed("d", PropertyType.DOUBLE),
    exposed("b", PropertyType.BOOLEAN),
    exposed("t", PropertyType.DATE),
    exposed("z", PropertyType.DATETIME),
)
SCHEMA = GraphSchema(
    node_types=(
        NodeType(label="Person", stored=("person", 'it\'s a "vip"'), properties=PROPERTIES),
        NodeType(label="Vip", stored=('it\'s a "vip"',), properties=PROPERTIES),
        NodeType(label="Place", stored=("place",), properties=PROPERTIES),
        NodeType(label="Any", stored=("person", 'it\'s a "vip"', "place"), properties=PROPERTIES),
    ),
    edge_types=(
        EdgeType(type="KNOWS", stored=("knows",), properties=(exposed("weight", PropertyType.DOUBLE), *PROPERTIES[2:])),
        EdgeType(type="NEAR", stored=("near", "close to; --")),
        EdgeType(type="AT", stored=("works at",), source_label="Person", target_label="Place"),
    ),
)
KINDS = {"p": "person", "v": 'it\'s a "vip"', "o": "place", "x": "hidden"}
EDGES = {"k": "knows", "n": "near", "c": "close to; --", "a": "works at", "x": "hidden"}
ALL = Bounds(10_000)

Given = Mapping[str, Mapping[str, Scalar]]


class Asked:
    """A graph in a store, to be asked."""

    def __init__(self, store: MatchStore, graph: GraphRef) -> None:
        self.graph = graph
        self._store = store

    async def rows(self, text: str, /, bounds: Bounds = ALL, **parameters: object) -> Rows:
        """Return what the store answers."""
        plan = check(parse(text, parameters), SCHEMA, 16)
        return await self._store.executor.match(self.graph, plan, bounds, Deadline.after(60))

    async def table(self, text: str, /, **parameters: object) -> list[Any]:
        """Return all rows, elements by their ids; those of one column without the tuple."""
        found = await self.rows(text, ALL, **parameters)
        assert found.limit is Limit.NONE
        shown = [tuple(map(_shown, row)) for row in found.rows]
        return [row[0] if len(row) == 1 else row for row in shown]


def _shown(cell: object) -> object:
    match cell:
        case Node():
            return cell.id
        case Edge():
            return f"{cell.source}{cell.type[0]}{cell.target}"
        case Path():
            return "".join(node.id for node in cell.nodes)
        case _:
            return cell


async def kept(store: MatchStore, nodes: str, edges: str = "", given: Given | None = None) -> Asked:
    """Keep a graph of nodes like `a:p` (of a kind; by default p) and edges like `akb`, with these properties."""
    given = given or {}
    named = [one.partition(":") for one in nodes.split()]
    numbers = {name: EntityNo(900 - at) for at, (name, _, _) in enumerate(named)}
    entities = [
        Entity(numbers[name], name, KINDS[kind or "p"], name, name, "", 1, 1, given.get(name, {}))
        for name, _, kind in named
    ]
    relations = [
        Relation(numbers[one[0]], numbers[one[2]], EDGES[one[1]], 0.5, 1, given.get(one, {})) for one in edges.split()
    ]
    return Asked(store, await store.load(entities, relations))


async def valued(store: MatchStore, name: str, *stored: Scalar | None) -> Asked:
    """Keep nodes a, b, c, … with one property; None: without."""
    names = "abcdefghijklmnop"[: len(stored)]
    given = {node: {} if value is None else {name: value} for node, value in zip(names, stored, strict=True)}
    return await kept(store, " ".join(names), given=given)


class MatchContract:
    """Inherit, and provide `store`."""

    @pytest.fixture
    def store(self) -> MatchStore:
        """Return a store."""
        raise NotImplementedError

    # Matching

    async def test_no_edge_is_in_a_match_twice_but_nodes_may_be(self, store: MatchStore) -> None:
        asked = await kept(store, "a b", "akb")
        assert await asked.table("MATCH (x:Any)-[:KNOWS]-(:Any)-[:KNOWS]-(z:Any) RETURN x, z") == []
        asked = await kept(store, "a b c", "akb bkc cka")
        three = "MATCH (x:Any)-[:KNOWS]->(:Any)-[:KNOWS]->(:Any)-[:KNOWS]->(z:Any) RETURN x, z"
        assert await asked.table(three) == [("a", "a"), ("b", "b"), ("c", "c")]
        assert await asked.table("MATCH (:Any)-[:KNOWS*4]->(z:Any) RETURN z") == []
        assert await asked.table("MATCH (:Any)-[:KNOWS*1..9]->(:Any) RETURN COUNT(*)") == [9]

    async def test_edges_of_different_types_between_the_same_nodes_are_different(self, store: MatchStore) -> None:
        asked = await kept(store, "a b", "akb anb acb bka")
        pair = "MATCH (x:Any {name: 'a'})-[r:KNOWS|NEAR]->(:Any)<-[s:KNOWS|NEAR]-(:Any) RETURN r, s"
        assert await asked.table(pair) == [
            ("acb", "akb"), ("acb", "anb"), ("akb", "acb"), ("akb", "anb"), ("anb", "acb"), ("anb", "akb"),
        ]  # fmt: skip

    async def test_edges_differ_between_paths_and_within_them(self, store: MatchStore) -> None:
        asked = await kept(store, "a b c", "akb bkc")
        first = "MATCH (:Any)-[:KNOWS]-(:Any)-[r:KNOWS*1..2]-(:Any) RETURN PATH"
        last = "MATCH (:Any)-[r:KNOWS*1..2]-(:Any)-[:KNOWS]-(:Any) RETURN PATH"
        both = "MATCH (:Any)-[:KNOWS*1..2]-(:Any)-[:KNOWS*1..2]-(:Any) RETURN PATH"
        assert await asked.table(first) == await asked.table(last) == await asked.table(both) == ["abc", "cba"]

    @pytest.mark.parametrize("way", ["-[:KNOWS]->", "<-[:KNOWS]-", "-[:KNOWS]-"])
    async def test_a_loop_matches_once(self, store: MatchStore, way: str) -> None:
        asked = await kept(store, "a b", "aka")
        assert await asked.table(f"MATCH (:Any){way}(:Any) RETURN COUNT(*)") == [1]
        paths = way.replace("KNOWS", "KNOWS*1..3")
        assert await asked.table(f"MATCH (:Any){paths}(:Any) RETURN COUNT(*)") == [1]

    async def test_an_edge_counts_once(self, store: MatchStore) -> None:
        """Rows could hide that a match was found twice."""
        asked = await kept(store, "a b", "aka akb")
        assert await asked.table("MATCH (:Any)-[:KNOWS]-(:Any) RETURN COUNT(*)") == [3]
        assert await asked.table("MATCH (:Any)-[:KNOWS*1..2]-(:Any) RETURN COUNT(*)") == [5]  # aa, ab, ba, aab, baa

    async def test_an_edge_followed_both_ways_is_shown_the_way_it_is_stored(self, store: MatchStore) -> None:
        asked = await kept(store, "a b", "akb")
        assert await asked.table("MATCH (x:Any)-[r:KNOWS]-(y:Any) RETURN x, r, y") == [
            ("a", "akb", "b"),
            ("b", "akb", "a"),
        ]
        assert await asked.table("MATCH (x:Any)<-[r:KNOWS]-(y:Any) RETURN x, r, y") == [("b", "akb", "a")]

    async def test_an_edge_is_one_of_the_view_by_both_of_its_ends(self, store: MatchStore) -> None:
        asked = await kept(store, "a b:o c d:v e:o", "aab bac dab bae aae cad")
        assert await asked.table("MATCH (x:Person)-[:AT]->(y:Place) RETURN x, y") == [
            ("a", "b"),
            ("a", "e"),
            ("d", "b"),
        ]
        around = "MATCH (x:Person {name: 'd'})-[:AT*1..4]-(y:Place) RETURN PATH"
        assert await asked.table(around) == ["db", "dbae"]  # not "dcb"

    async def test_what_is_outside_of_the_view_is_not_walked_through(self, store: MatchStore) -> None:
        asked = await kept(store, "a b x:x", "akx xkb axb akb")
        assert await asked.table("MATCH (:Any)-[:KNOWS*1..3]->(:Any) RETURN PATH") == ["ab"]

    async def test_a_path_begins_where_its_conditions_say_and_is_read_from_left_to_right(
        self, store: MatchStore
    ) -> None:
        asked = await kept(store, "a b c d e", "akb bkc ckd dke bkd")
        to_d = "MATCH (x:Any)-[:KNOWS*1..3]->(:Any {name: 'd'}) RETURN PATH"
        assert await asked.table(to_d) == ["abcd", "abd", "bcd", "bd", "cd"]
        through = "MATCH (:Any)-[r:KNOWS*1..2]->(:Any {name: 'c'})-[s:KNOWS*1..2]->(z:Any) RETURN r, s, PATH"
        assert await asked.table(through) == [
            ("abc", "cd", "abcd"), ("abc", "cde", "abcde"), ("bc", "cd", "bcd"), ("bc", "cde", "bcde"),
        ]  # fmt: skip
        against = "MATCH (x:Any)<-[:KNOWS*2]-(:Any {name: 'a'}) RETURN PATH"
        assert await asked.table(against) == ["cba", "dba"]

    async def test_several_hops_are_a_path_and_one_is_an_edge(self, store: MatchStore) -> None:
        asked = await kept(store, "a b c", "akb bkc", {"akb": {"s": "x"}})
        ((path, end),) = (await asked.rows("MATCH (:Any)-[r:KNOWS*2]->(z:Any) RETURN r, z")).rows
        assert isinstance(path, Path)
        assert isinstance(end, Node)
        assert [edge.properties.get("s") for edge in path.edges] == ["x", None]
        assert (path.nodes[-1], end.type, end.properties["name"]) == (end, "person", "c")
        assert await asked.table("MATCH (:Any)-[r:KNOWS*1]->(:Any) WHERE r.s = 'x' RETURN r") == ["akb"]

    async def test_a_node_carries_all_its_labels(self, store: MatchStore) -> None:
        asked = await kept(store, "a b:v c:o d:x")
        assert await asked.table("MATCH (x:Person) RETURN x") == ["a", "b"]
        assert await asked.table("MATCH (x:Person:Vip) RETURN x") == ["b"]
        assert await asked.table("MATCH (x:Person:Place) RETURN x") == []

    async def test_a_graph_is_not_another(self, store: MatchStore) -> None:
        first, second = await kept(store, "a b", "akb"), await kept(store, "a b", "bka")
        ends = "MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN x, y"
        assert (await first.table(ends), await second.table(ends)) == ([("a", "b")], [("b", "a")])

    # Conditions

    async def test_conditions_have_three_values(self, store: MatchStore) -> None:
        asked = await valued(store, "i", 1, 2, None)

        async def where(condition: str) -> list[Any]:
            return await asked.table(f"MATCH (x:Any) WHERE {condition} RETURN x")

        assert await where("x.i = 1") == ["a"]
        assert await where("NOT x.i = 1") == await where("x.i <> 1") == ["b"]
        assert await where("x.i = NULL") == await where("NOT x.i = NULL") == []
        assert await where("x.i = 1 OR x.i = NULL") == ["a"]
        assert await where("NOT (x.i = 1 AND x.i = NULL)") == ["b"]
        assert await where("x.i IN [1, NULL]") == ["a"]
        assert await where("x.i NOT IN [1, NULL]") == []
        assert await where("x.i NOT IN [1]") == ["b"]
        assert await where("x.i BETWEEN 2 AND NULL") == []
        assert await where("NOT x.i BETWEEN 2 AND NULL") == ["a"]
        assert await where("x.i IS NULL") == ["c"]
        assert await where("NOT x.i IS NULL") == ["a", "b"]
        assert await where("x.i > 1 OR x.i IS NULL") == ["b", "c"]

    @pytest.mark.parametrize(
        ("name", "values", "kept_"),
        [
            ("s", ("x", 1, 1.5, True, ""), "ae"),
            ("i", (1, 1.0, "1", True, 2**63 - 1, -(2**63), 1e17), "aef"),
            ("d", (1.5, 1, "1.5", True, 1e17, 0), "abef"),
            ("b", (True, False, 1, "true"), "ab"),
            ("t", ("2020-01-31", "2020-1-31", "2020-13-01", "2020-01-31T00:00", 20200131, "2020-01-31\n"), "a"),
            (
                "z",
                ("2020-01-31T23:59", "2020-01-31", "2020-01-31T24:00", "2020-01-31T10:00:00.25", "2020-01-31 10:00"),
                "ad",
            ),
        ],
    )
    async def test_a_value_of_another_type_is_null(
        self, store: MatchStore, name: str, values: tuple[Scalar, ...], kept_: str
    ) -> None:
        asked = await valued(store, name, *values)
        assert await asked.table(f"MATCH (x:Any) WHERE x.{name} IS NOT NULL RETURN x") == list(kept_)

    async def test_numbers_are_compared_exactly(self, store: MatchStore) -> None:
        asked = await valued(store, "i", 2**53, 2**53 + 1, 2**63 - 1)
        assert await asked.table(f"MATCH (x:Any) WHERE x.i = {2**53 + 1} RETURN x") == ["b"]
        assert await asked.table(f"MATCH (x:Any) WHERE x.i >= {2**63 - 1} RETURN x") == ["c"]
        asked = await valued(store, "d", 1, 1.0, 0.1, 1e300)
        assert await asked.table("MATCH (x:Any) WHERE x.d = 1 RETURN x, x.d") == [("a", 1.0), ("b", 1.0)]
        assert await asked.table("MATCH (x:Any) WHERE x.d = 0.1 RETURN x") == ["c"]
        assert await asked.table("MATCH (x:Any) WHERE x.d = :big RETURN x", big=1e300) == ["d"]

    async def test_texts_are_compared_by_code_points(self, store: MatchStore) -> None:
        asked = await valued(store, "s", "\U0001f600", "\uffff", "é", "e\u0301", "Z", "a", "")
        assert await asked.table("MATCH (x:Any) RETURN x ORDER BY x.s") == ["g", "e", "f", "d", "c", "b", "a"]
        assert await asked.table("MATCH (x:Any) WHERE x.s > 'é' RETURN x") == ["a", "b"]
        assert await asked.table("MATCH (x:Any) WHERE x.s = 'é' RETURN x") == ["c"]
        assert await asked.table("MATCH (x:Any) RETURN MAX(x.s) AS u, MIN(x.s) AS v") == [("\U0001f600", "")]

    async def test_parts_of_texts_are_exact(self, store: MatchStore) -> None:
        asked = await valued(store, "s", "a%b", "a_b", "axb", "A%B", "")

        async def where(condition: str, **parameters: object) -> list[Any]:
            return await asked.table(f"MATCH (x:Any) WHERE x.s {condition} RETURN x", **parameters)

        assert await where("CONTAINS '%'") == ["a", "d"]
        assert await where("STARTS WITH 'a_'") == ["b"]
        assert await where("ENDS WITH :part", part="b") == ["a", "b", "c"]
        assert await where("ENDS WITH 'axbaxb'") == []
        assert (
            await where("CONTAINS ''") == await where("STARTS WITH ''") == await where("ENDS WITH ''") == list("abcde")
        )
        assert await where("CONTAINS NULL") == []
        assert await where("= :text", text="' or true --") == []

    async def test_a_regular_expression_matches_all_of_a_text(self, store: MatchStore) -> None:
        asked = await valued(store, "s", "abc", "xabc", "ABC", "a\nc", "", None)

        async def where(condition: str) -> list[Any]:
            return await asked.table(f"MATCH (x:Any) WHERE {condition} RETURN x")

        assert await where("x.s REGEX 'a.c'") == ["a"]
        assert await where("x.s REGEX '(?is)a.c'") == ["a", "c", "d"]
        assert await where("NOT x.s REGEX 'a.c'") == ["b", "c", "d", "e"]
        assert await where("x.s REGEX NULL OR x.s IS NULL") == ["f"]
        assert await where("x.s REGEX '.*c' AND x.s STARTS WITH 'x'") == ["b"]
        counted = "MATCH (x:Any) WHERE x.s REGEX '(?s).*c' RETURN COUNT(*) AS n, MAX(x.s) AS s"
        assert await asked.table(counted) == [(3, "xabc")]
        ordered = "MATCH (x:Any) WHERE x.s REGEX '(?s).*c' RETURN DISTINCT x.s ORDER BY x.s DESC"
        assert await asked.table(ordered) == ["xabc", "abc", "a\nc"]

    async def test_moments_are_compared_by_their_full_form(self, store: MatchStore) -> None:
        full = "2020-01-01T10:00:00.000000000"
        asked = await valued(store, "z", "2020-01-01T10:00", full, "2020-01-01T10:00:00.0", "2020-01-01T09:59:59.9")
        same = "MATCH (x:Any) WHERE x.z = '2020-01-01T10:00:00' RETURN x, x.z"
        assert await asked.table(same) == [("a", "2020-01-01T10:00"), ("b", full), ("c", "2020-01-01T10:00:00.0")]
        assert await asked.table("MATCH (x:Any) RETURN x ORDER BY x.z") == ["d", "a", "b", "c"]
        assert await asked.table("MATCH (x:Any) RETURN x.z AS z, x ORDER BY z DESC") == [
            ("2020-01-01T10:00", "a"), (full, "b"), ("2020-01-01T10:00:00.0", "c"), ("2020-01-01T09:59:59.9", "d"),
        ]  # fmt: skip
        grouped = "MATCH (x:Any) RETURN x.z, COUNT(*) AS n GROUP BY x.z"
        assert await asked.table(grouped) == [("2020-01-01T09:59:59.900000000", 1), (full, 3)]

    async def test_columns_of_the_store_are_properties(self, store: MatchStore) -> None:
        asked = await kept(store, "a b", "akb", {"a": {"s": "1", "weight": 7}})
        assert await asked.table(
            "MATCH (x:Any)-[r:KNOWS {weight: 0.5}]->(y:Any) WHERE x.mentions = 1 RETURN y.name"
        ) == ["b"]

    # Aggregates

    async def test_what_is_counted(self, store: MatchStore) -> None:
        asked = await kept(store, "a b c", "akb akc bkc", {"b": {"i": 1}, "c": {"i": 1}})
        text = "MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN COUNT(*) AS n, COUNT(x) AS m, COUNT(x.i) AS k, COUNT(DISTINCT y.i) AS d"
        assert await asked.table(text) == [(3, 3, 1, 1)]

    async def test_aggregates_of_nothing(self, store: MatchStore) -> None:
        asked = await valued(store, "i", None, "no number")
        all_ = (
            "COUNT(*) AS n, COUNT(x.i) AS c, SUM(x.i) AS s, SUM(x.d) AS d, AVG(x.i) AS a, MIN(x.i) AS l, MAX(x.b) AS m"
        )
        assert await asked.table(f"MATCH (x:Any) RETURN {all_}") == [(2, 0, 0, 0.0, None, None, None)]
        assert await asked.table(f"MATCH (x:Place) RETURN {all_}") == [(0, 0, 0, 0.0, None, None, None)]
        assert await asked.table("MATCH (x:Place) RETURN x.i, COUNT(*) AS n GROUP BY x.i") == []

    async def test_sums_and_means(self, store: MatchStore) -> None:
        asked = await valued(store, "i", 2**63 - 1, -1, 1)
        found = await asked.table("MATCH (x:Any) RETURN SUM(x.i) AS s, AVG(x.i) AS a")
        assert found == [(2**63 - 1, float(2**63 - 1) / 3)]
        asked = await valued(store, "d", 1, 0.5)
        found = await asked.table("MATCH (x:Any) RETURN SUM(x.d) AS s, AVG(x.d) AS a, MIN(x.d) AS l")
        assert found == [(1.5, 0.75, 0.5)]
        assert [type(one) for one in found[0]] == [float, float, float]

    @pytest.mark.parametrize(("name", "values"), [("i", (2**63 - 1, 1)), ("d", (1.7e308, 1.7e308))])
    async def test_a_sum_beyond_its_type_is_refused(
        self, store: MatchStore, name: str, values: tuple[Scalar, ...]
    ) -> None:
        asked = await kept(
            store, "a b c", given={one: {name: value, "s": "x"} for one, value in zip("ab", values, strict=True)}
        )
        with pytest.raises(InvalidRequest):
            await asked.rows(f"MATCH (x:Any) RETURN SUM(x.{name}) AS s")
        with pytest.raises(InvalidRequest):
            await asked.rows(f"MATCH (x:Any) RETURN x.s, SUM(x.{name}) AS n GROUP BY x.s ORDER BY x.s DESC", Bounds(1))

    async def test_truth_values_are_ordered(self, store: MatchStore) -> None:
        asked = await valued(store, "b", True, False, None)
        assert await asked.table("MATCH (x:Any) RETURN MIN(x.b) AS l, MAX(x.b) AS m") == [(False, True)]
        assert await asked.table("MATCH (x:Any) WHERE x.b < TRUE RETURN x") == ["b"]

    # Order

    async def test_null_comes_last_and_descending_first(self, store: MatchStore) -> None:
        asked = await valued(store, "i", 2, None, 1, "x")
        assert await asked.table("MATCH (x:Any) RETURN x ORDER BY x.i") == ["c", "a", "b", "d"]
        assert await asked.table("MATCH (x:Any) RETURN x ORDER BY x.i DESC") == ["b", "d", "a", "c"]
        assert await asked.table("MATCH (x:Any) RETURN DISTINCT x.i ORDER BY x.i DESC") == [None, 2, 1]
        counted = "MATCH (x:Any) RETURN x.i, COUNT(*) AS n GROUP BY x.i"
        assert await asked.table(counted) == [(1, 1), (2, 1), (None, 2)]
        assert await asked.table(f"{counted} ORDER BY n DESC, x.i DESC") == [(None, 2), (2, 1), (1, 1)]

    async def test_rows_without_a_key_are_ordered_by_all_elements(self, store: MatchStore) -> None:
        asked = await kept(store, "b a c", "ckb cka akb anb acb")
        pairs = "MATCH (x:Any)-[r:KNOWS|NEAR]->(y:Any) RETURN r"
        assert await asked.table(pairs) == ["acb", "akb", "anb", "cka", "ckb"]
        assert await asked.table(f"{pairs} ORDER BY x.i DESC") == ["acb", "akb", "anb", "cka", "ckb"]

    async def test_paths_are_ordered_by_their_elements_the_shorter_first(self, store: MatchStore) -> None:
        asked = await kept(store, "a b c", "akb bkc cka bka")
        assert await asked.table("MATCH (:Any {name: 'a'})-[r:KNOWS*1..3]->(:Any) RETURN r ORDER BY r") == [
            "ab", "aba", "abc", "abca",
        ]  # fmt: skip

    async def test_distinct_rows_are_ordered_by_their_columns(self, store: MatchStore) -> None:
        asked = await kept(store, "a b c d", "akc akd bkc", {"a": {"i": 2}, "b": {"i": 1}})
        assert await asked.table("MATCH (x:Any)-[:KNOWS]->(:Any) RETURN DISTINCT x.i, x") == [(1, "b"), (2, "a")]
        assert await asked.table("MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN DISTINCT y ORDER BY y DESC") == ["d", "c"]
        grouped = "MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN DISTINCT COUNT(*) AS n GROUP BY y.name"
        assert await asked.table(grouped) == [2, 1]

    # Bounds

    async def test_pages_put_together_are_the_whole(self, store: MatchStore) -> None:
        asked = await kept(store, "a b c d", "akb akc akd bkc ckd", {"a": {"i": 1}, "b": {"i": 1}})
        for text in (
            "MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN x, y ORDER BY x.i DESC",
            "MATCH (x:Any)-[:KNOWS]->(y:Any) RETURN DISTINCT y",
            "MATCH (x:Any)-[:KNOWS]->(y:Any) WHERE y.name REGEX '[b-d]' RETURN y",
            "MATCH (x:Any)-[:KNOWS*1..2]->(y:Any) RETURN y.name, COUNT(*) AS n GROUP BY y.name",
        ):
            whole = (await asked.rows(text)).rows
            pages = [(await asked.rows(text, Bounds(2, offset, fetch=1))).rows for offset in range(0, 12, 2)]
            assert tuple(row for page in pages for row in page) == whole
            assert whole

    @pytest.mark.parametrize("pattern", ["(x:Any)", "(x:Any)-[:KNOWS]->(:Any)", "(:Any)-[:KNOWS*1..2]-(x:Any)"])
    @pytest.mark.parametrize("condition", ["", " WHERE x.name REGEX '.*'"])
    async def test_steps_bound_the_matches_and_are_named(self, store: MatchStore, pattern: str, condition: str) -> None:
        asked = await kept(store, "a b c d", "akb akc akd bkc ckd")
        text = f"MATCH {pattern}{condition} RETURN x.name AS x, PATH ORDER BY x"
        whole, few = await asked.rows(text), await asked.rows(text, Bounds(10_000, steps=2))
        assert (whole.limit, few.limit) == (Limit.NONE, Limit.STEPS)
        assert len(few.rows) <= 2
        left = iter(whole.rows)
        assert all(row in left for row in few.rows)  # in the same order
        counted = await asked.rows(f"MATCH {pattern}{condition} RETURN COUNT(*)", Bounds(1, steps=2))
        assert counted.limit is Limit.STEPS
        assert counted.rows[0][0] in (0, 1, 2)
        assert (await asked.rows(text, Bounds(1, offset=5, steps=2))).limit is Limit.STEPS

    async def test_a_deadline_that_has_passed(self, store: MatchStore) -> None:
        asked = await kept(store, "a")
        plan = check(parse("MATCH (x:Any) RETURN x", {}), SCHEMA, 1)
        with pytest.raises(DeadlineExceeded):
            await store.executor.match(asked.graph, plan, ALL, Deadline.after(0))

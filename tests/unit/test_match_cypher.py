"""Plans as Cypher: what stands in a statement and what never does. What statements return is asked of real servers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pipeline.errors import InvalidRequest
from pipeline.graphs.columns import ENTITY_COLUMNS, RELATION_COLUMNS
from pipeline.graphtools.check import check
from pipeline.graphtools.cypher import Statement, cypher
from pipeline.graphtools.execution import Bounds
from pipeline.graphtools.parse import parse
from pipeline.graphtools.plan import Both, Column, EdgeKind, EdgePlan, NodePlan, Not, Plan, Predicate, Property
from pipeline.graphtools.query import Direction, Joining, Operator
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType

GRAPH = f"{'a' * 32}-7"
TYPES = {"name": "STRING", "age": "INT64", "score": "DOUBLE", "seen": "DATETIME", "born": "DATE", "well": "BOOLEAN"}
PROPERTIES = tuple(ExposedProperty(name=name, type=PropertyType(kind)) for name, kind in TYPES.items())
SCHEMA = GraphSchema(
    node_types=(
        NodeType(label="Person", properties=PROPERTIES),
        NodeType(label="Company", stored=("firm", "bank"), properties=PROPERTIES[:1]),
    ),
    edge_types=(
        EdgeType(type="KNOWS", properties=PROPERTIES, source_label="Person", target_label="Person"),
        EdgeType(type="WORKS_AT", stored=("works at", "leads"), source_label="Person", target_label="Company"),
        EdgeType(type="NEAR"),
    ),
)
SCOPED = "SapwoodEntity {graph_id: $graph_id}"


def compiled(text: str, bounds: Bounds | None = None, **parameters: object) -> Statement:
    plan = check(parse(text, parameters), SCHEMA, 5)
    return cypher(plan, GRAPH, bounds or Bounds(rows=6, offset=12, steps=1000))


def lines(text: str, **parameters: object) -> list[str]:
    return compiled(text, **parameters).text.splitlines()


def line(statement: Statement, start: str) -> str:
    """Return the first line that starts like this."""
    return next(one for one in statement.text.splitlines() if one.startswith(start))


def test_q78_a_page_of_rows() -> None:
    found = compiled("MATCH (p:Person)-[:KNOWS]->(f:Person) WHERE p.age >= :age RETURN f.name AS name", age=18)
    match = [
        f"MATCH (v0:{SCOPED})-[e1:RELATES {{graph_id: $graph_id}}]->(v2:{SCOPED})",
        "WHERE v0.type = $p0 AND v2.type = $p0 AND e1.type = $p1"
        " AND (CASE WHEN v0[$p2] IS :: INTEGER NOT NULL THEN v0[$p2] END >= $p3)",
    ]
    assert found.text.splitlines() == [
        *match,
        "WITH v0, e1, v2 LIMIT $steps",
        "WITH v0, e1, v2 ORDER BY v0.entity_id, e1.type, v2.entity_id SKIP $offset LIMIT $rows",
        "WITH collect([v0, e1, v2]) AS page",
        "CALL (page) {",
        "WITH page WHERE size(page) = $rows OR $offset + size(page) >= $steps",
        *match,
        "WITH 1 AS one SKIP $steps LIMIT 1",
        "RETURN count(*) > 0 AS cut",
        "}",
        "UNWIND range(0, size(page)) AS place",
        "WITH place, size(page) AS size, cut, page[place][0] AS v0, page[place][1] AS e1, page[place][2] AS v2",
        "RETURN [v2.name] AS row, cut, place = size AS last ORDER BY place",
    ]
    asked = {"p0": "Person", "p1": "KNOWS", "p2": "age", "p3": 18}
    assert found.parameters == asked | {"graph_id": GRAPH, "steps": 1000, "offset": 12, "rows": 6}
    assert not found.matches


QUERIES = {
    "MATCH (p:Person) RETURN p": {},
    "MATCH (a:Person)-[r:KNOWS]->(b:Person)-[:WORKS_AT|NEAR*1..2]->(c:Company) RETURN PATH, r": {},
    "MATCH (a:Person)-[:KNOWS*1..3]-(b:Person) RETURN DISTINCT PATH, b.name ORDER BY b.name": {},
    "MATCH (a:Person)-[r:KNOWS]-(b:Person) RETURN a.born, SUM(b.age), AVG(r.score), MIN(b.seen) GROUP BY a.born": {},
    "MATCH (p:Person) WHERE p.name REGEX 'a.*' AND p.age > 3 RETURN p.name": {},
}


@pytest.mark.parametrize("text", QUERIES)
def test_every_node_and_every_edge_is_of_the_graph(text: str) -> None:
    """Those within a path of several hops, too."""
    found = compiled(text).text
    for part in re.findall(r"^MATCH (.*)$", found, re.MULTILINE):
        nodes, edges = re.findall(r"\((v\d+)(.*?)\)", part), re.findall(r"\[(e\d+)(.*?)\]", part)
        assert nodes and all(rest == f":{SCOPED}" for _, rest in nodes)
        assert all(rest.startswith(":RELATES") and rest.endswith("{graph_id: $graph_id}") for _, rest in edges)
        for _, hops in re.findall(r"\[(e\d+):RELATES(\*\S+)", part):
            assert hops
            assert "startNode(r).graph_id = $graph_id AND endNode(r).graph_id = $graph_id" in found


NASTY = (
    "x' OR true //",
    "`) DETACH DELETE n //",
    '"; DROP',
    "$secret",
    "\\u0027",
    "}} RETURN 1 //",
    "a\nMATCH (n)",
    "*/ {{",
)


@pytest.mark.parametrize("nasty", NASTY)
def test_q79_nothing_that_was_stored_or_asked_for_stands_in_the_statement(nasty: str) -> None:
    """The text is the same whatever the values, types and names are."""

    def asked(name: str) -> Statement:
        stored = Property(0, name, PropertyType.STRING)
        kind = EdgeKind(name, frozenset({name}), frozenset({name, "B"}))
        where = Both(
            Joining.OR,
            Predicate(stored, Operator.IN, (name, None)),
            Predicate(Property(1, name, PropertyType.STRING), Operator.CONTAINS, (name,)),
        )
        return cypher(
            Plan(
                (NodePlan(frozenset({name})), NodePlan(frozenset({name, "A"}))),
                (EdgePlan((kind,), Direction.BOTH, 1, 1),),
                (Column(name, property=stored), Column(f"{name}2", 1)),
                where,
            ),
            GRAPH,
            Bounds(2),
        )

    found = asked(nasty)
    assert found.text == asked("harmless").text
    assert nasty not in found.text
    flat = [
        part for value in found.parameters.values() for part in (value if isinstance(value, list | tuple) else [value])
    ]
    assert nasty in flat


def test_an_edge_is_of_a_kind_by_both_of_its_ends() -> None:
    """What the pattern says already is not asked again."""
    where = lines("MATCH (p:Person)-[:WORKS_AT|NEAR]->(c:Company) RETURN p")[1]
    assert where == "WHERE v0.type = $p0 AND v2.type IN $p1 AND e1.type IN $p2"
    where = lines("MATCH (p:Person)<-[:NEAR]-(c:Company) RETURN p")[1]
    assert where == "WHERE v0.type = $p0 AND v2.type IN $p1 AND e1.type = $p2"
    where = lines("MATCH (p:Person)-[:WORKS_AT|NEAR]-(c:Company) RETURN p")[1]
    each = "e1.type IN $p2 AND startNode(e1).type = $p0 AND endNode(e1).type IN $p1, e1.type = $p3"
    assert where.endswith(f"any(x IN [{each}] WHERE x)")
    where = lines("MATCH (p:Person)-[:KNOWS*1..2]->(q:Person) RETURN p")[1]
    assert "all(r IN e1 WHERE r.type = $p1 AND startNode(r).type = $p0 AND endNode(r).type = $p0 AND" in where


def test_columns_of_the_store_are_found_by_indexes_and_no_others() -> None:
    assert "(v0.name = $p1)" in lines("MATCH (p:Person {name: 'x'}) RETURN p")[1]
    assert (
        "CASE WHEN v0[$p1] IS :: BOOLEAN NOT NULL THEN v0[$p1] END = $p2"
        in lines("MATCH (p:Person {well: TRUE}) RETURN p")[1]
    )


@pytest.mark.parametrize(
    ("condition", "start", "value"),
    [
        ("p.name = :long", "v0.name_start = $p2", "n" * 99 + "\U0001f600"),
        ("p.age = 1 AND p.name = 'x'", "v0.name_start = $p4", "x"),
        ("p.name IN [:long, 'x', :longer, NULL]", "v0.name_start IN $p2", ["n" * 99 + "\U0001f600", "x"]),
        ("p.name = NULL", None, None),
        ("p.name IN [NULL]", None, None),
        ("p.name <> 'x'", None, None),
        ("p.name NOT IN ['x']", None, None),
        ("NOT p.name = 'x'", None, None),
        ("p.name = 'x' OR p.name = 'y'", None, None),
        ("p.name STARTS WITH 'x'", None, None),
        ("p.age = 1", None, None),
    ],
)
def test_a_name_is_looked_up_by_its_start_where_that_must_be_so(condition: str, start: str | None, value: Any) -> None:
    """Beside the condition itself, and only in graphs that have them."""
    long = "n" * 99 + "\U0001f600"
    values = {"long": long + "a", "longer": long + "b"}
    plan = check(parse(f"MATCH (p:Person) WHERE {condition} RETURN p", values), SCHEMA, 5)
    plain, found = (cypher(plan, GRAPH, Bounds(1), name_starts=has) for has in (False, True))
    if start is None:
        assert found == plain
    else:
        where = line(plain, "WHERE ")
        assert found.text == plain.text.replace(where, f"{where} AND {start}")
        assert found.parameters == {**plain.parameters, start.partition("$")[2]: value}


@pytest.mark.parametrize("name", sorted(ENTITY_COLUMNS - {"name", "description", "mentions", "chunks"}))
def test_what_the_store_keeps_for_itself_is_no_property_of_a_node(name: str) -> None:
    column = Column("c", property=Property(0, name, PropertyType.INT64))
    found = cypher(Plan((NodePlan(frozenset({"A"})),), (), (column,)), GRAPH, Bounds(1))
    assert line(found, "RETURN [").startswith("RETURN [null]")
    assert name not in {value for key, value in found.parameters.items() if key.startswith("p")}


@pytest.mark.parametrize("name", sorted(RELATION_COLUMNS - {"weight", "evidence"}))
def test_nor_of_an_edge(name: str) -> None:
    any_of = frozenset({"A"})
    edge = EdgePlan((EdgeKind("R", any_of, any_of),), Direction.OUT, 1, 1)
    column = Column("c", property=Property(1, name, PropertyType.STRING))
    found = cypher(Plan((NodePlan(any_of), NodePlan(any_of)), (edge,), (column,)), GRAPH, Bounds(1))
    assert line(found, "RETURN [").startswith("RETURN [null]")


def test_a_regex_is_left_to_who_has_the_matches_and_all_else_is_asked() -> None:
    text = "MATCH (p:Person)-[:KNOWS]->(q:Person) WHERE p.name REGEX 'a.*' AND p.age > 3 RETURN q.name ORDER BY p.score"
    found = compiled(text)
    assert found.matches
    assert found.text.splitlines()[1].endswith("AND (CASE WHEN v0[$p2] IS :: INTEGER NOT NULL THEN v0[$p2] END > $p3)")
    assert "a.*" not in found.parameters.values()
    assert found.text.splitlines()[2] == "WITH v0, e1, v2 LIMIT $steps"
    assert found.parameters["steps"] == 1001
    assert found.names == (("score", "name", "age"), (), ("name",))


def test_a_shown_element_of_a_match_comes_whole() -> None:
    found = compiled("MATCH (p:Person)-[k:KNOWS]->(q:Person) WHERE p.name REGEX 'a.*' RETURN k, q.name")
    assert found.names == (("name",), None, ("name",))
    found = compiled("MATCH (p:Person)-[k:KNOWS]->(q:Person) WHERE p.name REGEX 'a.*' RETURN PATH")
    assert found.names == (None, None, None)


@pytest.mark.parametrize(
    ("condition", "residual"),
    [
        ("p.name < '\ud7ff'", False),
        ("p.name < '\ue000'", True),
        ("p.name >= 'a\U0001f600'", True),
        ("p.name BETWEEN 'a' AND '\uffff'", True),
        ("p.name BETWEEN 'a' AND 'z'", False),
        ("p.name = '\U0001f600'", False),
        ("p.name IN ['\U0001f600']", False),
        ("p.name CONTAINS '\U0001f600'", False),
        ("NOT (p.age = 1 OR p.name > '\U0001f600')", True),
        ("p.age = 1 AND (p.age = 2 OR p.name REGEX 'x')", True),
        ("p.name REGEX NULL", False),
    ],
)
def test_what_the_server_compares_otherwise_is_not_left_to_it(condition: str, residual: bool) -> None:
    assert compiled(f"MATCH (p:Person) WHERE {condition} RETURN p").matches is residual


def test_a_page_goes_no_further_than_the_steps() -> None:
    found = compiled("MATCH (p:Person) RETURN p", Bounds(rows=5, offset=10**30, steps=10**40))
    assert found.parameters["offset"] == found.parameters["steps"] == 2**60
    assert compiled("MATCH (p:Person) RETURN p", Bounds(5, 10**6, 50)).parameters["offset"] == 50


@pytest.mark.parametrize("place", ["value", "list", "name", "type"])
def test_half_a_character_is_refused_before_anything_is_asked(place: str) -> None:
    half: dict[str, Any] = dict.fromkeys(["value", "list", "name", "type"], "x") | {place: "x\ud800"}
    asked = Property(0, half["name"], PropertyType.STRING)
    where = Both(
        Joining.AND,
        Predicate(asked, Operator.EQ, (half["value"],)),
        Predicate(asked, Operator.IN, ("a", half["list"])),
    )
    plan = Plan((NodePlan(frozenset({half["type"]})),), (), (Column("n", 0),), where)
    with pytest.raises(InvalidRequest, match="half a character"):
        cypher(plan, GRAPH, Bounds(1))


def test_conditions_have_no_normal_form() -> None:
    """The server's planner would write (A AND B) OR (C AND D) … out as the product of all; and chains do not nest."""
    asked = Property(0, "age", PropertyType.INT64)
    where: Any = Predicate(asked, Operator.EQ, (0,))
    for number in range(1, 100):
        joining = Joining.AND if number % 50 == 0 else Joining.OR
        where = Both(joining, where, Not(Predicate(asked, Operator.EQ, (number,))))
    found = cypher(Plan((NodePlan(frozenset({"A"})),), (), (Column("n", 0),), where), GRAPH, Bounds(1))
    condition = found.text.splitlines()[1]
    assert not re.search(r"\b(OR|NOT \()", condition)
    assert condition.count(" AND ") == 1
    depth = most = 0
    for sign in condition:
        depth += (sign == "(") - (sign == ")")
        most = max(most, depth)
    assert most == 5

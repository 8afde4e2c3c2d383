"""What a query may ask of a schema: the cases Q46–Q60 and Q80, the order of the checks, values by type, and the plan.

D3, D4 and D6 are decisions of the specification: what is not supported is so named; any SKIP or LIMIT is refused; values are
checked against the types of the schema.
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.errors import Refusal
from pipeline.graphtools.check import check
from pipeline.graphtools.parse import parse
from pipeline.graphtools.plan import Both, Column, EdgeKind, EdgePlan, NodePlan, Not, Order, Plan, Predicate, Property
from pipeline.graphtools.query import Aggregate, Direction, Joining, Operator
from pipeline.graphtools.refusal import Code, answer
from pipeline.graphtools.regex import MOST_CHARACTERS
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType

STRING, INT64, DOUBLE = PropertyType.STRING, PropertyType.INT64, PropertyType.DOUBLE
BOOLEAN, DATE, DATETIME = PropertyType.BOOLEAN, PropertyType.DATE, PropertyType.DATETIME


def property_(name: str, kind: PropertyType = STRING, *allowed: str, stored: str = "") -> ExposedProperty:
    return ExposedProperty(name=name, type=kind, enum_values=allowed, stored=stored)


PEOPLE = GraphSchema(
    node_types=(
        NodeType(label="Person", properties=(property_("name"), property_("status", STRING, "ACTIVE", "INACTIVE"))),
        NodeType(label="Company", properties=(property_("name"),)),
    ),
    edge_types=(
        EdgeType(
            type="WORKS_AT", source_label="Person", target_label="Company", properties=(property_("since", DATE),)
        ),
        EdgeType(type="KNOWS", source_label="Person", target_label="Person"),
    ),
)
"""The schema of the conformance cases."""

THINGS = GraphSchema(
    node_types=(
        NodeType(
            label="Item",
            stored=("item", "good"),
            properties=(
                property_("text"),
                property_("flag", BOOLEAN),
                property_("count", INT64),
                property_("size", DOUBLE),
                property_("day", DATE),
                property_("moment", DATETIME),
                property_("kind", STRING, "a", "b"),
                property_("level", INT64, "1", "2"),
                property_("create", stored="made"),
                property_("union"),
            ),
        ),
        NodeType(label="Set", stored=("item", "set"), properties=(property_("created"),)),
        NodeType(
            label="Sale",
            stored=("good",),
            properties=(property_("kind", STRING, "b", "c"), property_("text"), property_("created", INT64)),
        ),
    ),
    edge_types=(
        EdgeType(type="IN", source_label="Item", target_label="Set", stored=("in", "inside")),
        EdgeType(type="ANY", properties=(property_("kind", STRING, "x", "y"), property_("n", INT64))),
        EdgeType(type="HALF", source_label="Set", properties=(property_("kind", STRING, "y", "z"),)),
        EdgeType(type="ODD", properties=(property_("n", DOUBLE), property_("kind"))),
    ),
)


def plan(text: str, schema: GraphSchema = THINGS, hops: int = 3, **parameters: object) -> Plan:
    return check(parse(text, parameters), schema, hops)


def refused(text: str, schema: GraphSchema = THINGS, hops: int = 3, **parameters: object) -> Refusal:
    query = parse(text, parameters)
    with pytest.raises(Refusal) as caught:
        check(query, schema, hops)
    return caught.value


UNKNOWN, NOT_ALLOWED, ARGUMENT = Code.UNKNOWN_GRAPH_TYPE, Code.QUERY_NOT_ALLOWED, Code.INVALID_ARGUMENT
INCOMPATIBLE = "Edge type 'WORKS_AT' is incompatible with the declared node labels and direction"
PAGING = "Omit SKIP and LIMIT; use pageSize and cursor for pagination"

CASES = [
    (
        "Q46",
        "MATCH (p:Person) WHERE p.secret = 1 RETURN p",
        NOT_ALLOWED,
        "Property 'secret' is not exposed for alias 'p'",
    ),
    ("Q47", "MATCH (p) RETURN p", NOT_ALLOWED, "Every node pattern must declare an exposed label"),
    (
        "Q48",
        "MATCH (p:Person)-[r]->(c:Company) RETURN p",
        NOT_ALLOWED,
        "Every edge pattern must declare an exposed edge type",
    ),
    ("Q49", "MATCH (p:Robot) RETURN p", UNKNOWN, "Unknown node label: Robot"),
    ("Q49 edge", "MATCH (p:Person)-[:EATS]->(c:Person) RETURN p", UNKNOWN, "Unknown edge type: EATS"),
    ("Q56", "MATCH (c:Company)-[:WORKS_AT]->(p:Person) RETURN p", NOT_ALLOWED, INCOMPATIBLE),
    ("Q59", "MATCH (p:Person) RETURN p LIMIT 2", NOT_ALLOWED, PAGING),
    ("Q60-D4", "MATCH (p:Person) RETURN p LIMIT 100", NOT_ALLOWED, PAGING),
    ("Q60-D4 skip", "MATCH (p:Person) RETURN p SKIP 0", NOT_ALLOWED, PAGING),
    (
        "Q80",
        "MATCH (p:Person)-[:KNOWS|WORKS_AT {since: '2020-01-01'}]->(c:Company) RETURN p",
        NOT_ALLOWED,
        "Unknown or unavailable property 'since'",
    ),
    ("projection", "MATCH (p:Person) RETURN p.secret", NOT_ALLOWED, "Property 'secret' is not exposed for alias 'p'"),
    (
        "aggregate",
        "MATCH (p:Person) RETURN MIN(p.secret)",
        NOT_ALLOWED,
        "Property 'secret' is not exposed for alias 'p'",
    ),
    (
        "sort",
        "MATCH (p:Person) RETURN p ORDER BY p.secret",
        NOT_ALLOWED,
        "Property 'secret' is not exposed for alias 'p'",
    ),
    (
        "group",
        "MATCH (p:Person) RETURN COUNT(*) GROUP BY p.secret",
        NOT_ALLOWED,
        "Property 'secret' is not exposed for alias 'p'",
    ),
]


@pytest.mark.parametrize(("text", "code", "message"), [pytest.param(*rest, id=name) for name, *rest in CASES])
def test_what_is_not_exposed_is_refused(text: str, code: Code, message: str) -> None:
    assert answer(refused(text, PEOPLE)) == f"Error: {code}: {message}"


@pytest.mark.parametrize("pattern", ["<-[:WORKS_AT]-", "-[:WORKS_AT]-"])
def test_q56_the_other_directions_fit(pattern: str) -> None:
    assert plan(f"MATCH (c:Company){pattern}(p:Person) RETURN p", PEOPLE).edges


def test_q57_hops_are_bounded() -> None:
    text = "MATCH (p:Person)-[:KNOWS*1..2]->(f:Person) RETURN f"
    message = "Query traverses up to 2 hops; this source allows at most 1"
    assert answer(refused(text, PEOPLE, hops=1)) == f"Error: QUERY_NOT_ALLOWED: {message}"
    assert plan(text, PEOPLE, hops=2).edges[0].most == 2


def test_hops_add_up_over_the_pattern() -> None:
    text = "MATCH (p:Person)-[:KNOWS*1..2]-(:Person)-[:KNOWS*2]-(:Person) RETURN p"
    assert "up to 4 hops; this source allows at most 3" in str(refused(text, PEOPLE))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MATCH (p:A {x: 1})-[r]->(c) RETURN p LIMIT 1", "Omit SKIP"),
        ("MATCH (p:A {x: 1})-[r*4]->(c) RETURN p", "Unknown node label: A"),
        ("MATCH (p:Person {x: 1})-[r*4]->(c) RETURN p", "property 'x'"),
        ("MATCH (p:Person)-[r*4]->(c) RETURN p", "up to 4 hops"),
        ("MATCH (p:Person)-[:A {x: 1}]->(c) RETURN p", "Unknown edge type: A"),
        ("MATCH (p:Person)-[:KNOWS {x: 1}]->(c:A {y: 1}) RETURN p", "Unknown node label: A"),
        ("MATCH (p:Person)-[:KNOWS {x: 1}]->(c:Company {y: 1}) RETURN p", "property 'x'"),
        ("MATCH (p:Person)-[:KNOWS]->(c:Company {y: 1}) WHERE p.z = 1 RETURN p", "property 'y'"),
        ("MATCH (p:Person)-[:KNOWS]->(c:Company) WHERE p.z = 1 RETURN p", "incompatible"),
        ("MATCH (p:Person) WHERE p.a = 1 RETURN p.b ORDER BY p.c", "'a'"),
        ("MATCH (p:Person) RETURN p.b ORDER BY p.c", "'b'"),
        ("MATCH (p:Person) RETURN COUNT(*) GROUP BY p.d, p.c ORDER BY p.c", "'c'"),
    ],
)
def test_the_first_fault_in_a_fixed_order_is_told(text: str, message: str) -> None:
    assert message in str(refused(text, PEOPLE))


def test_only_the_outer_ends_of_a_path_are_checked_and_types_without_ends_fit_everywhere() -> None:
    assert "incompatible" in str(refused("MATCH (a:Item)-[:IN*1..2]->(b:Item) RETURN a"))
    assert plan("MATCH (a:Item)-[:IN|ANY*1..2]->(b:Set) RETURN a").edges
    assert "incompatible" in str(refused("MATCH (a:Item)-[:IN|ANY]->(b:Item) RETURN a"))
    assert plan("MATCH (a:Sale)-[:HALF]->(b:Sale) RETURN a").edges


WRONG = [
    ("text = 1", "Property 'text' takes values of the type STRING"),
    ("text IN ['a', 1]", "Property 'text' takes values of the type STRING"),
    ("flag = 'true'", "Property 'flag' takes values of the type BOOLEAN"),
    ("flag = 1", "Property 'flag' takes values of the type BOOLEAN"),
    ("count = '1'", "Property 'count' takes values of the type INT64"),
    ("count = 1.0", "Property 'count' takes values of the type INT64"),
    ("count > true", "Property 'count' takes values of the type INT64"),
    ("count BETWEEN 1 AND 'z'", "Property 'count' takes values of the type INT64"),
    ("size = '1'", "Property 'size' takes values of the type DOUBLE"),
    ("day = '2024-1-1'", "Property 'day' takes values of the type DATE (a text of the form YYYY-MM-DD)"),
    ("day = '2024-02-30'", "Property 'day' takes values of the type DATE"),
    ("day = '2024-01-01T00:00'", "Property 'day' takes values of the type DATE"),
    ("day = 20240101", "Property 'day' takes values of the type DATE"),
    ("moment = '2024-01-01'", "Property 'moment' takes values of the type DATETIME"),
    ("moment = '2024-01-01T00:00:00Z'", "Property 'moment' takes values of the type DATETIME"),
    ("moment = '2024-01-01 00:00:00'", "Property 'moment' takes values of the type DATETIME"),
    ("moment = '2023-02-29T00:00'", "Property 'moment' takes values of the type DATETIME"),
    ("moment = '2024-01-01T24:00'", "Property 'moment' takes values of the type DATETIME"),
    ("kind = 'c'", "Property 'kind' of the type STRING takes only these values: a, b"),
    ("kind NOT IN ['a', 'c']", "Property 'kind' of the type STRING takes only these values: a, b"),
    ("level = 3", "Property 'level' of the type INT64 takes only these values: 1, 2"),
    ("count CONTAINS '1'", "CONTAINS takes STRING properties; 'count' is INT64"),
    ("day STARTS WITH '2024'", "STARTS WITH takes STRING properties; 'day' is DATE"),
    ("flag ENDS WITH 'e'", "ENDS WITH takes STRING properties; 'flag' is BOOLEAN"),
    ("moment REGEX '.*'", "REGEX takes STRING properties; 'moment' is DATETIME"),
    ("text CONTAINS 1", "Property 'text' takes values of the type STRING"),
    ("text REGEX '('", "REGEX is not in RE2 syntax, or too large: missing ): ("),
    (r"text REGEX '(a)\\1'", r"REGEX is not in RE2 syntax, or too large: invalid escape sequence: \1"),
    ("text REGEX '(?=a)'", "REGEX is not in RE2 syntax, or too large: invalid perl operator: (?="),
    ("text REGEX '(a{500}){500}'", "REGEX is not in RE2 syntax, or too large: "),
    (f"text REGEX '{'a' * 201}'", "The REGEX patterns of a query have at most 200 characters"),
]


@pytest.mark.parametrize(("condition", "message"), WRONG)
def test_d6_a_value_of_another_type_is_refused_by_the_names_of_property_and_type(condition: str, message: str) -> None:
    found = refused(f"MATCH (i:Item) WHERE NOT (i.{condition}) RETURN i")
    assert found.code == ARGUMENT
    assert str(found).startswith(message)
    assert len(str(found)) < 200


def test_d6_holds_within_braces_and_for_parameters() -> None:
    assert refused("MATCH (i:Item {count: 'x'}) RETURN i").code == ARGUMENT
    assert refused("MATCH (i:Item) WHERE i.count = :x RETURN i", x="x").code == ARGUMENT
    assert refused("MATCH (i:Item) WHERE i.kind IN :x RETURN i", x=["a", "z"]).code == ARGUMENT
    assert refused("MATCH (a:Item)-[r:ANY {n: 1.5}]-(b:Item) RETURN a").code == ARGUMENT


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("text = null", (None,)),
        ("count IN [1, null]", (1, None)),
        ("size > 1", (1.0,)),
        ("size = -0.0", (0.0,)),
        ("day <= '2024-02-29'", ("2024-02-29",)),
        ("moment > '2024-01-01T10:00'", ("2024-01-01T10:00",)),
        ("moment BETWEEN '2024-01-01T10:00:30' AND '2024-01-01T10:00:30.123456789'",
            ("2024-01-01T10:00:30", "2024-01-01T10:00:30.123456789")),
        ("kind CONTAINS 'anything'", ("anything",)),
        ("kind REGEX '[ab]'", ("[ab]",)),
        ("text REGEX null", (None,)),
        ("flag < true", (True,)),
        ("text IS NULL", ()),
        ("union = 'x'", ("x",)),
    ],
)  # fmt: skip
def test_d6_values_of_the_type_are_taken(condition: str, values: tuple[object, ...]) -> None:
    found = plan(f"MATCH (i:Item) WHERE i.{condition} RETURN i").where
    assert isinstance(found, Predicate)
    assert (found.values, [*map(type, found.values)]) == (values, [*map(type, values)])


def test_a_pattern_may_be_as_long_as_all_of_them_together() -> None:
    half = "a" * (MOST_CHARACTERS // 2)
    text = "MATCH (i:Item) WHERE i.text REGEX :x OR i.text REGEX :x{} RETURN i"
    assert plan(text.format(""), x=half).where
    assert "at most 200 characters" in str(refused(text.format(" OR i.text REGEX 'a'"), x=half))


@pytest.mark.parametrize("function", ["SUM", "AVG"])
def test_sums_are_of_numbers(function: str) -> None:
    for name, kind in (("text", STRING), ("flag", BOOLEAN), ("day", DATE)):
        found = refused(f"MATCH (i:Item) RETURN {function}(i.{name})")
        assert answer(found) == (
            f"Error: INVALID_ARGUMENT: {function} takes INT64 and DOUBLE properties; '{name}' is {kind}"
        )
    assert plan(f"MATCH (i:Item) RETURN {function}(i.count), {function}(i.size)").columns[0].aggregate == function


def test_a_node_of_several_labels_has_the_properties_of_all_and_the_types_that_carry_all() -> None:
    found = plan("MATCH (i:Item:Set) WHERE i.created = 'x' AND i.text = 'y' RETURN i")
    assert found.nodes == (NodePlan(frozenset({"item"})),)
    assert plan("MATCH (i:Set:Sale) RETURN i").nodes == (NodePlan(frozenset()),)


def test_what_labels_declare_differently_is_ambiguous() -> None:
    found = refused("MATCH (i:Set:Sale) WHERE i.created = 1 RETURN i")
    assert answer(found) == (
        "Error: QUERY_NOT_ALLOWED: Property 'created' means different things in the types of alias 'i'"
    )
    assert "means different things" in str(refused("MATCH (a:Item)-[r:ANY|ODD]-(b:Item) RETURN r.n"))


@pytest.mark.parametrize(
    "other", [property_("size", INT64), property_("size", STRING, stored="length")], ids=["type", "name"]
)
def test_labels_of_one_stored_type_cannot_declare_a_property_differently(other: ExposedProperty) -> None:
    """An entity of it carries both, and is shown with the property once. What else is declared of it may differ."""
    first = NodeType(label="A", stored=("x", "y"), properties=(property_("size"),))
    message = "property size is declared differently in nodes A and B, which share the stored type y"
    with pytest.raises(ValidationError, match=message):
        GraphSchema(node_types=(first, NodeType(label="B", stored=("y", "z"), properties=(other,))))
    assert GraphSchema(node_types=(first, NodeType(label="B", stored=("z",), properties=(other,))))
    alike = property_("size", STRING, "a", stored="size")
    assert GraphSchema(node_types=(first, NodeType(label="B", stored=("y", "z"), properties=(alike,))))


def test_the_values_of_a_node_keep_to_all_its_labels_and_those_of_an_edge_to_any_of_its_types() -> None:
    assert "only these values: b" in str(refused("MATCH (i:Item:Sale) WHERE i.kind = 'a' RETURN i"))
    assert plan("MATCH (i:Item:Sale) WHERE i.kind = 'b' RETURN i").where
    either = "MATCH (a:Set)-[r:ANY|HALF]->(b:Item) WHERE r.kind = '{}' RETURN r"
    assert "only these values: x, y, z" in str(refused(either.format("a")))
    assert plan(either.format("z")).where
    assert plan("MATCH (a:Set)-[r:HALF|ODD]->(b:Item) WHERE r.kind = 'anything' RETURN r").where


def test_an_edge_of_several_types_has_what_all_of_them_have() -> None:
    assert "not exposed for alias 'r'" in str(refused("MATCH (a:Set)-[r:ANY|HALF]->(b:Item) RETURN r.n"))


def test_names_that_are_words_of_other_languages_can_be_exposed() -> None:
    assert plan("MATCH (n:Item {text:'please DELETE this'}) RETURN n.text").columns[0].name == "text"
    assert plan("MATCH (n:Set) RETURN n.created").columns[0].name == "created"
    (column,) = plan("MATCH (n:Item) RETURN n.create").columns
    assert column == Column("create", property=Property(0, "made", STRING))


def test_the_plan_of_a_query_with_everything() -> None:
    found = plan(
        "MATCH (a:Item {text: 'x'})-[r:ANY {n: 1}]-(b:Set {created: 'y'})<-[:IN*1..2]-(:Item) "
        "WHERE a.count > 3 OR NOT r.n IN [1, 2] "
        "RETURN a.create AS made, COUNT(*) AS n, COUNT(r) AS m, MIN(b.created) AS first "
        "GROUP BY a.create, a.count ORDER BY n DESC, a.count"
    )
    items, sets, sales = frozenset({"item", "good"}), frozenset({"item", "set"}), frozenset({"good"})
    everything = items | sets | sales
    text, n, created = Property(0, "text", STRING), Property(1, "n", INT64), Property(2, "created", STRING)
    count, made = Property(0, "count", INT64), Property(0, "made", STRING)
    inline = Both(
        Joining.AND,
        Predicate(text, Operator.EQ, ("x",)),
        Both(Joining.AND, Predicate(n, Operator.EQ, (1,)), Predicate(created, Operator.EQ, ("y",))),
    )
    where = Both(Joining.OR, Predicate(count, Operator.GT, (3,)), Not(Predicate(n, Operator.IN, (1, 2))))
    assert found == Plan(
        nodes=(NodePlan(items), NodePlan(sets), NodePlan(items)),
        edges=(
            EdgePlan((EdgeKind("ANY", everything, everything),), Direction.BOTH, 1, 1),
            EdgePlan((EdgeKind("in", items, sets), EdgeKind("inside", items, sets)), Direction.IN, 1, 2),
        ),
        columns=(
            Column("made", property=made),
            Column("n", aggregate=Aggregate.COUNT),
            Column("m", element=1, aggregate=Aggregate.COUNT),
            Column("first", property=created, aggregate=Aggregate.MIN),
        ),
        where=Both(Joining.AND, inline, where),
        groups=(made, count),
        order=(Order(1, descending=True), Order(count)),
    )


def test_the_plan_of_whole_elements_and_paths() -> None:
    found = plan("MATCH (a:Item)-[r:IN]->(b:Set) RETURN DISTINCT b, r AS e, PATH, a.text ORDER BY a.text DESC, b")
    assert found.columns == (
        Column("b", element=2),
        Column("e", element=1),
        Column("path"),
        Column("text", property=Property(0, "text", STRING)),
    )
    assert found.distinct
    assert found.order == (Order(3, descending=True), Order(0))


def test_many_conditions_in_braces_nest_no_deeper_than_they_must() -> None:
    names = [f"p{number}" for number in range(100)]
    schema = GraphSchema(node_types=(NodeType(label="N", properties=tuple(property_(name) for name in names)),))
    found = plan(f"MATCH (n:N {{{', '.join(f'{name}: null' for name in names)}}}) RETURN n", schema)

    def depth(condition: object) -> int:
        return 1 + max(depth(condition.left), depth(condition.right)) if isinstance(condition, Both) else 0

    assert depth(found.where) == 7

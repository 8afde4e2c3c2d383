"""Reading the graph query language: the conformance cases Q1–Q45 and Q50–Q55 by number, and what they leave open.

Where a case says otherwise than its specification once did, the decision that changed it is named (D3: what is not supported
is so named; D7: output columns in ORDER BY, `AS count`, `<-5`, `union` as a name; D8: kinds are real, and a fault has the place
of the token that is at fault).
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from lark import Lark

from pipeline.errors import InvalidRequest, Refusal
from pipeline.graphtools.build import RESERVED
from pipeline.graphtools.grammar import MOST_CHARACTERS, MOST_JOINTS, MOST_TOKENS, UNSUPPORTED, grammar
from pipeline.graphtools.parameters import MOST_PARAMETERS, MOST_VALUES
from pipeline.graphtools.parse import parse
from pipeline.graphtools.query import (
    Aggregate,
    Condition,
    Direction,
    GroupKey,
    Joining,
    Junction,
    Negation,
    Operator,
    Predicate,
    Projection,
    Query,
    SortKey,
)
from pipeline.graphtools.refusal import Code, Kind, answer

PERSON = "MATCH (p:Person)"
ITEM = "MATCH (n:Item)"


def where(condition: str, **parameters: object) -> Condition:
    """Return what a condition of `p` is read as."""
    found = parse(f"{PERSON} WHERE {condition} RETURN p", parameters).where
    assert found is not None
    return found


def values(condition: str, **parameters: object) -> tuple[object, ...]:
    found = where(condition, **parameters)
    assert isinstance(found, Predicate)
    return found.values


def refused(text: str, **parameters: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(text, parameters)
    return caught.value


def predicate(name: str, operator: Operator, *given: object, alias: str = "p") -> Predicate:
    return Predicate(alias, name, operator, given)  # type: ignore[arg-type]


def test_q1_a_query_with_everything() -> None:
    text = (
        "MATCH (p:Person)-[r:KNOWS]->(f:Person) WHERE p.age >= :minAge AND f.status IN :statuses "
        "RETURN p.name AS personName, f.name AS friendName ORDER BY f.name DESC SKIP 5 LIMIT 20"
    )
    query = parse(text, {"minAge": 18, "statuses": ["ACTIVE", "TRIAL"]})
    assert (query.start.alias, query.start.labels) == ("p", ("Person",))
    (step,) = query.steps
    assert (step.edge.alias, step.edge.types, step.edge.direction) == ("r", ("KNOWS",), Direction.OUT)
    assert step.node.alias == "f"
    statuses = predicate("status", Operator.IN, "ACTIVE", "TRIAL", alias="f")
    assert query.where == Junction(Joining.AND, predicate("age", Operator.GE, 18), statuses)
    assert query.projections == (Projection("personName", "p", "name"), Projection("friendName", "f", "name"))
    assert query.order == (SortKey("f", "name", descending=True),)
    assert (query.skip, query.limit) == (5, 20)


def test_q2_an_incoming_path_of_several_hops_without_an_alias() -> None:
    query = parse("MATCH (person:Person)<-[:KNOWS*1..3]-(friend:Person) RETURN friend", {})
    (edge,) = query.edges
    assert (edge.direction, edge.least, edge.most, edge.alias) == (Direction.IN, 1, 3, "_e0")


def test_q3_an_edge_both_ways_without_a_type() -> None:
    query = parse("MATCH (a)-[link]-(b) RETURN DISTINCT b", {})
    assert (query.edges[0].direction, query.edges[0].types, query.distinct) == (Direction.BOTH, (), True)


def test_q4_not_around_or() -> None:
    either = Junction(Joining.OR, predicate("deleted", Operator.EQ, False), predicate("email", Operator.IS_NULL))
    assert where("NOT (p.deleted = false OR p.email IS NULL)") == Negation(either)


def test_q5_two_spellings_of_equal_and_different() -> None:
    either = Junction(Joining.OR, predicate("age", Operator.EQ, 18), predicate("name", Operator.NE, "unknown"))
    assert where("p.age == 18 OR p.name <> 'unknown'") == either
    assert where("p.age = 18 OR p.name != 'unknown'") == either


def test_q6_names_in_back_ticks() -> None:
    query = parse("MATCH (p:`Person`) WHERE p.`order` = 1 RETURN p.`order` AS `value`", {})
    assert query.start.labels == ("Person",)
    assert query.where == predicate("order", Operator.EQ, 1)
    assert query.projections == (Projection("value", "p", "order"),)


def test_q7_between_in_and_count_distinct() -> None:
    query = parse(
        f"{PERSON} WHERE p.age BETWEEN 18 AND 65 AND p.status IN ['A','B'] RETURN COUNT(DISTINCT p.name) AS names", {}
    )
    between = predicate("age", Operator.BETWEEN, 18, 65)
    assert query.where == Junction(Joining.AND, between, predicate("status", Operator.IN, "A", "B"))
    assert query.projections == (Projection("names", "p", "name", Aggregate.COUNT_DISTINCT),)


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        pytest.param("COUNT(*) AS total", "total", id="Q8"),
        pytest.param("COUNT(*)", "count", id="Q9"),
        pytest.param("COUNT(*) AS count", "count", id="Q10-D7"),
    ],
)
def test_counting_rows(returned: str, output: str) -> None:
    (shown,) = parse(f"{PERSON} RETURN {returned}", {}).projections
    assert shown == Projection(output, aggregate=Aggregate.COUNT, rows=True)


def test_q11_the_other_aggregates() -> None:
    text = "RETURN SUM(p.score) AS total, AVG(p.score) AS average, MIN(p.score) AS minimum, MAX(p.score) AS maximum"
    found = [(one.aggregate, one.output) for one in parse(f"{PERSON} {text}", {}).projections]
    functions = (Aggregate.SUM, Aggregate.AVG, Aggregate.MIN, Aggregate.MAX)
    assert found == list(zip(functions, ("total", "average", "minimum", "maximum"), strict=True))


def test_q14_operators_that_look_into_texts() -> None:
    found = where("p.name CONTAINS 'an' AND p.code STARTS WITH 'A' AND p.email ENDS WITH '.com' AND p.alias REGEX '^a'")
    first = Junction(
        Joining.AND, predicate("name", Operator.CONTAINS, "an"), predicate("code", Operator.STARTS_WITH, "A")
    )
    second = Junction(Joining.AND, first, predicate("email", Operator.ENDS_WITH, ".com"))
    assert found == Junction(Joining.AND, second, predicate("alias", Operator.REGEX, "^a"))


def test_q15_keywords_in_lower_case() -> None:
    query = parse("match (p:Person) return p.name as name limit 3", {})
    assert (query.start.labels, query.limit) == (("Person",), 3)


def test_q16_several_labels_and_types() -> None:
    query = parse("MATCH (p:Person:Employee)-[r:KNOWS|WORKS_WITH]->(f:Person) RETURN p", {})
    assert (query.start.labels, query.edges[0].types) == (("Person", "Employee"), ("KNOWS", "WORKS_WITH"))


@pytest.mark.parametrize(("returned", "output"), [("PATH AS route", "route"), ("PATH", "path")], ids=["Q17a", "Q17b"])
def test_q17_the_whole_path(returned: str, output: str) -> None:
    (shown,) = parse(f"{PERSON} RETURN {returned}", {}).projections
    assert shown.path
    assert shown.output == output


def test_q18_group_by() -> None:
    query = parse(f"{PERSON} RETURN p.city AS city, COUNT(p) AS total GROUP BY p.city", {})
    assert query.group == (GroupKey("p", "city"),)
    assert query.projections[1] == Projection("total", "p", None, Aggregate.COUNT)


REFUSED = [
    ("Q12a", f"{PERSON} RETURN SUM(*)", Kind.SEMANTIC, "SUM requires an aggregate property", 29),
    ("Q12b", f"{PERSON} RETURN SUM(p)", Kind.SEMANTIC, "SUM requires an aggregate property", 29),
    ("Q12c", f"{PERSON} RETURN SUM(DISTINCT p.score)", Kind.SEMANTIC, "SUM DISTINCT is not portable", 29),
    ("Q13", f"{PERSON} RETURN collect(p.name)", Kind.SYNTAX, "unexpected token after query", 32),
    (
        "Q19-D8",
        f"{PERSON} RETURN p.name AS name, COUNT(p) AS total GROUP BY p.city",
        Kind.SEMANTIC,
        "non-aggregate projection must be included in GROUP BY: p.name",
        25,
    ),
    (
        "Q20a-D8",
        f"{PERSON} RETURN p, COUNT(p) AS n",
        Kind.SEMANTIC,
        "aggregate and non-aggregate projections require explicit grouping",
        25,
    ),
    (
        "Q20b-D8",
        f"{PERSON} RETURN p, COUNT(p) AS n GROUP BY p.name",
        Kind.SEMANTIC,
        "entity projection cannot be mixed with aggregate projection",
        25,
    ),
    ("Q21", f"{PERSON} WHERE p.age >= :age RETURN p", Kind.PARAMETER, "missing parameter 'age'", 33),
    ("Q22-D8", f"{PERSON} RETURN", Kind.SYNTAX, "expected projection alias", 24),
    ("Q23", f"{PERSON} WHERE p.age >= 18", Kind.SYNTAX, "expected RETURN clause", 35),
    ("Q24", f"{PERSON} RETURN p RETURN p", Kind.SYNTAX, "unexpected token after query", 27),
    ("Q25a", "", Kind.SYNTAX, "graph query must not be blank", 1),
    ("Q25b", " \n\t", Kind.SYNTAX, "graph query must not be blank", 1),
    ("Q26-D8", "MATCH (n:Item$) RETURN n", Kind.LEXICAL, "unexpected character '$'", 14),
    ("Q27a-D8", f"{PERSON}-[*0..2]-(q) RETURN p", Kind.SEMANTIC, "hop range must satisfy 1 <= min <= max <= 16", 20),
    ("Q27b-D8", f"{PERSON}-[*3..2]-(q) RETURN p", Kind.SEMANTIC, "hop range must satisfy 1 <= min <= max <= 16", 20),
    ("Q27c-D8", f"{PERSON}-[*1..17]-(q) RETURN p", Kind.SEMANTIC, "hop range must satisfy 1 <= min <= max <= 16", 20),
    (
        "Q28",
        f"{PERSON}-[r:KNOWS {{since: 2020}}*1..2]-(q) RETURN p",
        Kind.SEMANTIC,
        "edge property patterns cannot use variable-length hops",
        28,
    ),
    ("Q29-D8", "MATCH (n:Item {id: 1, id: 2}) RETURN n", Kind.SEMANTIC, "duplicate node property key: id", 23),
    ("Q30-D8", f"{ITEM} WHERE n.id IN [] RETURN n", Kind.SEMANTIC, "IN values must not be empty", 30),
    ("Q31a", f"{PERSON} WHERE p.id IN 5 RETURN p", Kind.SEMANTIC, "IN values must be a collection parameter", 32),
    ("Q37", f"{PERSON}-->(c:Company) RETURN c", Kind.SYNTAX, "expected '[' after '-'", 18),
    ("Q38", f"{PERSON}<-[r:KNOWS]->(q) RETURN p", Kind.SYNTAX, "edge direction cannot point both ways", 29),
    ("Q39", f"{PERSON}, (c:Company) RETURN p", Kind.SYNTAX, "expected RETURN clause", 17),
    ("Q40", f"{PERSON}-[p:KNOWS]->(f:Person) RETURN f", Kind.SEMANTIC, "duplicate query alias: p", 17),
    (
        "Q41",
        f"{PERSON}-[:X]-(c) RETURN p.name, c.name",
        Kind.SEMANTIC,
        "duplicate projection output name: name",
        42,
    ),
    ("Q42a", f"{PERSON} RETURN q", Kind.SEMANTIC, "unknown projection alias: q", 25),
    ("Q42b", f"{PERSON} RETURN p ORDER BY q.name", Kind.SEMANTIC, "unknown sort alias: q", 36),
    ("Q42c", f"{PERSON} WHERE q.x = 1 RETURN p", Kind.SEMANTIC, "unknown filter alias: q", 24),
    ("Q42d", f"{PERSON} RETURN COUNT(*) GROUP BY q.x", Kind.SEMANTIC, "unknown group alias: q", 43),
    ("Q44a", f"{PERSON} RETURN p LIMIT 0", Kind.SEMANTIC, "limit must be between 1 and 10000", 33),
    ("Q44b", f"{PERSON} RETURN p LIMIT 10001", Kind.SEMANTIC, "limit must be between 1 and 10000", 33),
    ("back-ticks", "MATCH (`a b`) RETURN p", Kind.LEXICAL, "quoted identifier must match [A-Za-z_][A-Za-z0-9_]*", 8),
    ("half a back-tick", "MATCH (p:`A) RETURN p", Kind.LEXICAL, "unterminated quoted identifier", 10),
    ("half a string", f"{PERSON} WHERE p.x = 'a RETURN p", Kind.LEXICAL, "unterminated string literal", 30),
    ("half an operator", f"{PERSON} WHERE p.x ! 5 RETURN p", Kind.LEXICAL, "unexpected '!'", 28),
    ("a letter", "MATCH (p:Müller) RETURN p", Kind.LEXICAL, "unexpected character 'ü'", 11),
    ("NUL", f"{PERSON} WHERE p.x = 'a\0b' RETURN p", Kind.LEXICAL, "unexpected character '\\x00'", 32),
    ("half a character", f"{PERSON} RETURN p\ud800", Kind.LEXICAL, "unexpected character '\\ud800'", 26),
    ("two clauses", f"{PERSON} MATCH (q) RETURN p", Kind.SYNTAX, "expected RETURN clause", 18),
    ("no value", f"{PERSON} WHERE p.x = p.y RETURN p", Kind.SYNTAX, "expected a value", 30),
    ("no operator", f"{PERSON} WHERE p.x RETURN p", Kind.SYNTAX, "expected comparison operator", 28),
    ("no property", f"{PERSON} WHERE p = 1 RETURN p", Kind.SYNTAX, "expected '.'", 26),
    ("hops 1", f"{PERSON}-[*]-(q) RETURN p", Kind.SYNTAX, "expected integer minimum hop", 20),
    ("hops 2", f"{PERSON}-[*..3]-(q) RETURN p", Kind.SYNTAX, "expected integer minimum hop", 20),
    ("hops 3", f"{PERSON}-[*1..]-(q) RETURN p", Kind.SYNTAX, "expected integer maximum hop", 23),
    ("hops 4", f"{PERSON}-[*1 {{a: 1}}]-(q) RETURN p", Kind.SYNTAX, "expected ']' or '..'", 22),
    ("no name", f"{PERSON} WHERE p.x = :1 RETURN p", Kind.SYNTAX, "expected parameter name", 31),
    ("an open end", f"{PERSON} WHERE (p.x = 1", Kind.SYNTAX, "expected AND, ')' or OR", 32),
    ("label twice", "MATCH (p:A:B:A) RETURN p", Kind.SEMANTIC, "duplicate node label: A", 14),
    ("type twice", "MATCH (p)-[:A|A]-(q) RETURN p", Kind.SEMANTIC, "duplicate edge type: A", 15),
    (
        "COUNT DISTINCT",
        f"{PERSON} RETURN COUNT(DISTINCT p)",
        Kind.SEMANTIC,
        "COUNT_DISTINCT requires an aggregate property",
        40,
    ),
    ("a list", f"{PERSON} WHERE p.x = :l RETURN p", Kind.PARAMETER, "a list can only follow IN", 30),
    ("a large number", f"{PERSON} WHERE p.x = {2**63} RETURN p", Kind.SEMANTIC, "number is not a 64-bit integer", 30),
    (
        "an endless number",
        f"{PERSON} WHERE p.x = {'9' * 5000} RETURN p",
        Kind.SEMANTIC,
        "number is not a 64-bit integer",
        30,
    ),
    (
        "a huge number",
        f"{PERSON} WHERE p.x = {'9' * 400}. RETURN p",
        Kind.SEMANTIC,
        "number is too large for a DOUBLE",
        30,
    ),
    (
        "a keyword",
        "MATCH (path) RETURN path",
        Kind.SYNTAX,
        "PATH is a keyword; an alias of this name needs back-ticks",
        8,
    ),
    ("no such column", f"{PERSON} RETURN p ORDER BY q", Kind.SEMANTIC, "unknown sort column: q", 36),
    (
        "a path's property",
        "MATCH (p)-[r:X*1..2]-(q) WHERE r.x = 1 RETURN p",
        Kind.SEMANTIC,
        "a path of several hops has no properties: r",
        32,
    ),
    (
        "a path in groups",
        f"{PERSON} RETURN PATH, COUNT(*) GROUP BY p.x",
        Kind.SEMANTIC,
        "path projection cannot be mixed with aggregate projection",
        25,
    ),
    (
        "a column that is no key",
        f"{PERSON} RETURN p.x GROUP BY p.y",
        Kind.SEMANTIC,
        "non-aggregate projection must be included in GROUP BY: p.x",
        25,
    ),
    (
        "sorted groups",
        f"{PERSON} RETURN COUNT(*) ORDER BY p.x",
        Kind.SEMANTIC,
        "a sort key of grouped rows must be in GROUP BY or an output column: p.x",
        43,
    ),
    (
        "sorted DISTINCT",
        f"{PERSON} RETURN DISTINCT p ORDER BY p.x",
        Kind.SEMANTIC,
        "a sort key of DISTINCT rows must be one of their columns: p.x",
        45,
    ),
]


@pytest.mark.parametrize(
    ("text", "kind", "message", "column"), [pytest.param(*rest, id=name) for name, *rest in REFUSED]
)
def test_what_is_wrong_is_said_with_its_kind_and_place(text: str, kind: Kind, message: str, column: int) -> None:
    found = refused(text, l=[1])
    assert (found.code, found.kind, found.line, found.column) == (Code.INVALID_QUERY, kind, 1, column)
    assert answer(found) == f"Error: INVALID_QUERY: {kind}: {message} at column {column}"
    assert isinstance(found, InvalidRequest)


def test_a_place_on_a_later_line_is_said_with_its_line() -> None:
    found = refused(f"{PERSON}\nWHERE p.x = 1\n  RETURN q")
    assert str(found) == "SEMANTIC: unknown projection alias: q at line 3, column 10"
    assert (found.line, found.column) == (3, 10)


def test_q31_a_list_parameter_must_be_one() -> None:
    assert str(refused(f"{PERSON} WHERE p.id IN :x RETURN p", x=1)) == (
        "SEMANTIC: IN values must be a collection parameter at column 32"
    )
    assert "NOT IN values must not be empty" in str(refused(f"{PERSON} WHERE p.id NOT IN :x RETURN p", x=[]))


def test_q32_values_in_braces_and_after_operators() -> None:
    text = r"MATCH (n:Item {title: 'it\'s', active: true, score: -1.5, missing: null}) WHERE n.total >= -2 RETURN n"
    query = parse(text, {})
    found = {one.name: one.value for one in query.start.properties}
    assert found == {"title": "it's", "active": True, "score": -1.5, "missing": None}
    assert isinstance(found["score"], float)
    assert query.where == predicate("total", Operator.GE, -2, alias="n")


def test_q33_what_the_caller_does_to_a_list_afterwards_has_no_effect() -> None:
    given = ["a", "b"]
    query = parse(f"{ITEM} WHERE n.x IN :x RETURN n", {"x": given})
    given.clear()
    assert query.where == predicate("x", Operator.IN, "a", "b", alias="n")


@pytest.mark.parametrize("text", ["p.x <-5", "p.x < -5", "p.x<-5"])
def test_q36_less_than_minus_five(text: str) -> None:
    assert where(text) == predicate("x", Operator.LT, -5)  # D7


def test_q43_order_by_an_output_column() -> None:
    query = parse(f"{PERSON} RETURN p.name ORDER BY name", {})  # D7
    assert query.order == (SortKey("name"),)
    counted = parse(f"{PERSON} RETURN p.x, COUNT(*) GROUP BY p.x ORDER BY count DESC, p.x", {})
    assert counted.order == (SortKey("count", descending=True), SortKey("p", "x"))


def test_q45_names_of_parameters() -> None:
    found = refused(f"{PERSON} RETURN p", **{"bad-name": 1})
    assert answer(found) == "Error: INVALID_ARGUMENT: query parameter must match [A-Za-z_][A-Za-z0-9_]*"


BEYOND = [
    ("Q18-D3", f"{PERSON} RETURN p.city AS city, COUNT(p) AS total GROUP BY p.city HAVING p.total > 1", "HAVING", 75),
    ("Q34-D3", f"{ITEM} WHERE n.name = 'UNION' RETURN n AS value UNION MATCH (m:Other) RETURN m AS value", "UNION", 57),
    ("Q35-D3", f"{PERSON} RETURN p UNION ALL {PERSON} RETURN p UNION {PERSON} RETURN p", "UNION", 27),
    ("Q50", f"OPTIONAL {PERSON} RETURN p", "OPTIONAL", 1),
    ("Q50 spaced", f"optional\n  {PERSON} RETURN p", "OPTIONAL", 1),
    ("Q51-D3", f"{PERSON} RETURN p AS item UNION MATCH (c:Company) RETURN c AS item", "UNION", 35),
    ("Q52-D3", f"{PERSON} RETURN p UNION MATCH (c:Company) RETURN c", "UNION", 27),
    ("Q53-D3", f"{PERSON} RETURN p DELETE p", "DELETE", 27),
    ("Q54-D3", f"{PERSON} DELETE p", "DELETE", 18),
    ("Q55-D3", "CALL db.labels()", "CALL", 1),
    ("Q77-D3", f"{PERSON} RETURN COUNT(p) AS total HAVING p.total > 1", "HAVING", 43),
    ("WITH", f"{PERSON} WITH p RETURN p", "WITH", 18),
    ("UNWIND", "UNWIND [1] AS x RETURN x", "UNWIND", 1),
    ("EXISTS", f"{PERSON} WHERE EXISTS {{ MATCH (p) }} RETURN p", "subquery EXISTS", 24),
    ("COUNT", f"{PERSON} RETURN COUNT {{ MATCH (p) }}", "subquery COUNT", 25),
    ("attack 1", "CALL/*c*/apoc.load.json('file:///etc/passwd') YIELD value RETURN value", "CALL", 1),
    ("attack 2", "LOAD CSV FROM 'http://169.254.169.254/' AS l RETURN l", "LOAD", 1),
    ("attack 3", "MATCH (n) CALL { WITH n CREATE (:X) } RETURN 1", "CALL", 11),
    ("attack 4", "MATCH (n) FOREACH (_ IN [1] | SET n.p=1) RETURN n", "FOREACH", 11),
    ("attack 5", "MATCH (`Foo`) DETACH DELETE n // `) RETURN n", "DETACH", 15),
    ("attack 6", f"{PERSON} SET p.x = 1 RETURN p", "SET", 18),
    ("attack 7", "MERGE (p:Person) RETURN p", "MERGE", 1),
]


@pytest.mark.parametrize(("text", "what", "column"), [pytest.param(*rest, id=name) for name, *rest in BEYOND])
def test_what_only_cypher_can_say_is_named_as_unsupported(text: str, what: str, column: int) -> None:
    found = refused(text)
    assert (found.code, found.line, found.column) == (Code.UNSUPPORTED_QUERY, 1, column)
    message = "Only a single linear MATCH query is supported by this tool"
    assert answer(found) == f"Error: UNSUPPORTED_QUERY: {message} ({what} at column {column})"


@pytest.mark.parametrize(
    ("text", "kind", "column"),
    [
        ("//x\nMATCH (n) DETACH DELETE n", Kind.LEXICAL, 1),
        ("MATCH (n) RETURN n; DROP INDEX i", Kind.LEXICAL, 19),
        ("MATCH (n:Foo`) DETACH DELETE n // ) RETURN n", Kind.LEXICAL, 13),
        (r"\u0043REATE (:X)", Kind.LEXICAL, 1),
        ("\uff23\uff32\uff25\uff21\uff34\uff25 (:X)", Kind.LEXICAL, 1),
        ("MATCH (n) /* c */ RETURN n", Kind.LEXICAL, 11),
        ("\u212aEEP (:X)", Kind.LEXICAL, 1),
        ("MATCH (n) \u017fKIP 1 RETURN n", Kind.LEXICAL, 11),
    ],
)
def test_other_attacks_are_no_query_at_all(text: str, kind: Kind, column: int) -> None:
    found = refused(text)
    assert (found.code, found.kind, found.column) == (Code.INVALID_QUERY, kind, column)


@pytest.mark.parametrize("word", sorted((UNSUPPORTED - RESERVED) | {"EXISTS", "COLLECT", "FINISH"}))
def test_words_of_other_languages_are_names_where_a_name_can_stand(word: str) -> None:
    for spelt in (word.lower(), f"`{word}`"):
        text = f"MATCH ({spelt}:{spelt} {{{spelt}: 1}})-[:{spelt}]-() WHERE {spelt}.{spelt} = :{spelt} "
        query = parse(f"{text} RETURN {spelt}.{spelt} AS {spelt} ORDER BY {spelt}", {spelt.strip("`"): "DELETE"})
        assert query.where == predicate(spelt.strip("`"), Operator.EQ, "DELETE", alias=spelt.strip("`"))


def test_a_value_may_say_anything() -> None:
    query = parse("MATCH (n:Item {name:'please DELETE this'}) RETURN n.name", {})
    assert query.start.properties[0].value == "please DELETE this"
    assert values(r"""p.x = 'a\\b\"c\n'""") == ('a\\b"cn',)
    assert values('p.x = "two\nlines // and no comment"') == ("two\nlines // and no comment",)


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_keyword_is_a_name_where_only_a_name_can_stand(word: str) -> None:
    query = parse(f"MATCH (p:{word}) WHERE p.{word} = :{word} RETURN p.{word} AS {word} ORDER BY {word}", {word: 1})
    assert (query.start.labels, query.where) == ((word,), predicate(word, Operator.EQ, 1))
    assert (query.projections[0].output, query.order[0].alias) == (word, word)
    assert refused(f"MATCH ({word}) RETURN p").kind == Kind.SYNTAX
    assert parse(f"MATCH (`{word}`) RETURN `{word}`", {}).start.alias == word


def test_the_reserved_words_are_those_of_the_grammar() -> None:
    made = grammar()
    assert isinstance(made, Lark)
    words = {word for one in made.terminals for word in re.findall(r"\b[A-Z]{2,}\b", str(one.pattern.value))}
    assert words == RESERVED


@pytest.mark.parametrize(
    ("spelt", "value"),
    [
        ("1.", 1.0),
        ("-0", 0),
        ("007", 7),
        ("1.50", 1.5),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("TRUE", True),
        ("False", False),
        ("null", None),
    ],
)
def test_literals(spelt: str, value: object) -> None:
    (found,) = values(f"p.x = {spelt}")
    assert (found, type(found)) == (value, type(value))


def test_elements_without_an_alias_get_one_that_is_free() -> None:
    query = parse("MATCH ()-[]-(_n0)-[_e1]-()-[]-() RETURN _n0", {})
    assert [node.alias for node in query.nodes] == ["_n1", "_n0", "_n2", "_n3"]
    assert [edge.alias for edge in query.edges] == ["_e0", "_e1", "_e2"]


def test_an_incoming_edge_needs_no_closing_dash() -> None:
    assert parse("MATCH (a)<-[:X](b) RETURN a", {}) == parse("MATCH (a)<-[:X]-(b) RETURN a", {})


@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [[1]], {1, 2}, object(), b"x", 2**63, -(2**63) - 1, float("nan"), float("inf"), "\0", "\ud800", ["\0"]],
)
def test_what_json_has_no_word_for_is_no_parameter(value: object) -> None:
    found = refused(f"{PERSON} RETURN p", x=value)
    assert found.code == Code.INVALID_ARGUMENT
    assert str(found).startswith("query parameter 'x' must")


def test_a_parameter_may_go_unused_and_be_used_twice() -> None:
    found = where("p.x = :a OR p.y = :a", a=1, b=None)
    assert found == Junction(Joining.OR, predicate("x", Operator.EQ, 1), predicate("y", Operator.EQ, 1))
    assert values("p.x IN [:a, 2, :b]", a=1, b=None) == (1, 2, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PERSON + " " * MOST_CHARACTERS + "RETURN p", "at most 16384 characters"),
        (f"{PERSON} RETURN p AS {'a' * 101}", "a name has at most 100 characters"),
        (f"MATCH (`{'a' * 101}`) RETURN p", "a name has at most 100 characters"),
        (f"{PERSON} WHERE {'(' * 10_000}", "at most 500 words and symbols"),
        (f"{PERSON} WHERE {'NOT ' * 4_000} p.x = 1 RETURN p", "at most 100 of AND, OR and NOT"),
        (f"{PERSON} WHERE {'p.x=1 AND ' * 101} p.x = 1 RETURN p", "at most 500 words and symbols"),
        (f"{PERSON} WHERE p.x IN [{'1,' * MOST_TOKENS}1] RETURN p", "at most 500 words and symbols"),
    ],
)
def test_a_text_has_bounds(text: str, message: str) -> None:
    found = refused(text)
    assert (found.code, found.kind) == (Code.INVALID_QUERY, Kind.SYNTAX)
    assert message in str(found)


def test_a_condition_may_nest_as_deep_as_the_bound() -> None:
    found = where("NOT " * MOST_JOINTS + "p.x = 1")
    for _ in range(MOST_JOINTS):
        assert isinstance(found, Negation)
        found = found.condition
    assert found == predicate("x", Operator.EQ, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({f"p{number}": 1 for number in range(MOST_PARAMETERS + 1)}, "at most 100 parameters"),
        ({"x" * 101: 1}, "at most 100 characters"),
        ({"x": [1] * (MOST_VALUES + 1)}, "at most 1000 values"),
        ({"x": "a" * 70_000}, "at most 65536 characters"),
    ],
)
def test_parameters_have_bounds(parameters: dict[str, object], message: str) -> None:
    found = refused(f"{PERSON} RETURN p", **parameters)
    assert found.code == Code.INVALID_ARGUMENT
    assert message in str(found)


def test_a_name_may_be_as_long_as_in_a_schema() -> None:
    assert parse(f"MATCH (`{'a' * 100}`) RETURN {'a' * 100}", {}).start.alias == "a" * 100


def test_a_process_that_never_reads_a_query_does_not_pay_for_it() -> None:
    program = (
        "import sys; from pipeline.graphtools import check, cursor, nebula, parse, tools\n"
        "print([name for name in ('lark', 're2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_positions_are_kept_and_are_no_part_of_a_query() -> None:
    spaced, plain = (parse(text, {}) for text in ("MATCH  (p) RETURN  p", "MATCH (p) RETURN p"))
    assert spaced == plain
    assert (plain.start.at, plain.projections[0].at) == (6, 17)
    assert isinstance(plain, Query)


async def test_the_first_query_of_a_process_may_be_read_in_the_event_loop() -> None:
    grammar.cache_clear()
    assert parse(f"{PERSON} RETURN p", {}).start.alias == "p"

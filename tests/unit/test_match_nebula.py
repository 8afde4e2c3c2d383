"""Plans as nGQL: their text, since there is no NebulaGraph server to run them."""

from __future__ import annotations

import re

import pytest

from pipeline.errors import Refusal
from pipeline.graphtools.check import check
from pipeline.graphtools.execution import Bounds
from pipeline.graphtools.nebula import Statement, ngql
from pipeline.graphtools.parse import parse
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType

TYPES = {"name": "STRING", "age": "INT64", "score": "DOUBLE", "seen": "DATETIME", "born": "DATE"}
PROPERTIES = tuple(ExposedProperty(name=name, type=PropertyType(kind)) for name, kind in TYPES.items())


def schema(person: tuple[str, ...] = ("person",), knows: str = "knows") -> GraphSchema:
    return GraphSchema(
        node_types=(
            NodeType(label="Person", stored=person, properties=PROPERTIES),
            NodeType(label="Company", stored=("firm", "bank"), properties=PROPERTIES[:1]),
        ),
        edge_types=(
            EdgeType(type="KNOWS", stored=(knows,), properties=PROPERTIES),
            EdgeType(type="WORKS_AT", source_label="Person", target_label="Company"),
        ),
    )


def compiled(text: str, exposed: GraphSchema | None = None, **parameters: object) -> Statement:
    plan = check(parse(text, parameters), exposed or schema(), 3)
    return ngql(plan, Bounds(rows=6, offset=12))


def lines(statement: Statement) -> dict[str, str]:
    """Return the clauses of a statement by their first word."""
    return {line.partition(" ")[0]: line for line in statement.text.splitlines()}


def test_a_query_of_nodes() -> None:
    found = compiled("MATCH (p:Person) WHERE p.age >= :age AND p.name STARTS WITH 'A' RETURN p.name AS n", age=18)
    assert found.text.splitlines() == [
        "MATCH m = (v0:`person`)",
        "WHERE ((v0.`person`.`age` >= $p0 AND v0.`person`.`name` STARTS WITH $p1))",
        "RETURN v0.`person`.`name` AS `n`, id(v0) AS `sort-0`",
        "ORDER BY `sort-0` ASC",
        "SKIP 12 LIMIT 6",
    ]
    assert found.parameters == {"p0": 18, "p1": "A"}
    assert found.columns == 1


def test_edges_are_followed_only_between_the_types_that_are_declared() -> None:
    found = lines(compiled("MATCH (p:Person)-[w:WORKS_AT]->(c:Company)<-[:KNOWS*1..2]-(q:Person) RETURN w, c"))
    assert found["MATCH"] == "MATCH m = (v0:`person`)-[e1:`WORKS_AT`]->(v2)<-[e3:`knows`*1..2]-(v4:`person`)"
    assert "any(t IN tags(v2) WHERE t IN $p0)" in found["WHERE"]
    assert "all(i IN range(0, length(m) - 1) WHERE (type(relationships(m)[i]) == $p1 AND" in found["WHERE"]
    assert " OR (type(relationships(m)[i]) == $p4 AND" in found["WHERE"]
    assert found["ORDER"].count("ASC") == len(re.findall("`sort-", found["RETURN"])) == 7


def test_values_are_parameters_and_never_text() -> None:
    hostile = "Alice' OR true `//"
    found = compiled(
        "MATCH (p:Person {name: :x}) WHERE p.name IN [:x] OR p.name NOT IN :l OR p.age BETWEEN 1 AND 2 RETURN p",
        x=hostile,
        l=[hostile, None],
    )
    assert "Alice" not in found.text
    assert list(found.parameters.values()) == [hostile, [hostile], [hostile, None], 1, 2]
    assert "NOT (v0.`person`.`name` IN $p2)" in found.text
    assert set(re.findall(r"\$(\w+)", found.text)) == set(found.parameters)


def test_a_label_of_several_types() -> None:
    found = compiled("MATCH (c:Company) RETURN c.name")
    assert "coalesce(v0.`bank`.`name`, v0.`firm`.`name`) AS `name`" in found.text
    assert found.parameters == {"p0": ["bank", "firm"]}


def test_groups_are_what_is_returned_or_sorts_and_nulls_come_last() -> None:
    found = lines(compiled("MATCH (p:Person) RETURN COUNT(*) AS n, SUM(p.score) AS s GROUP BY p.age ORDER BY n DESC"))
    assert found["RETURN"] == (
        "RETURN count(*) AS `n`, coalesce(sum(v0.`person`.`score`), 0) AS `s`, (count(*)) IS NULL AS `sort-0`, "
        "count(*) AS `sort-1`, (v0.`person`.`age`) IS NULL AS `sort-2`, v0.`person`.`age` AS `sort-3`"
    )
    assert found["ORDER"] == "ORDER BY `sort-0` DESC, `sort-1` DESC, `sort-2` ASC, `sort-3` ASC"


def test_distinct_rows_are_sorted_by_what_follows_from_them() -> None:
    found = lines(compiled("MATCH (p:Person)-[k:KNOWS*2]-(q:Person) RETURN DISTINCT k, p.name"))
    assert found["RETURN"] == (
        "RETURN DISTINCT e1 AS `k`, v0.`person`.`name` AS `name`, id(v0) AS `sort-0`, "
        "[r IN e1 | [src(r), type(r), dst(r)]] AS `sort-1`, (v0.`person`.`name`) IS NULL AS `sort-2`, "
        "v0.`person`.`name` AS `sort-3`"
    )


def test_moments_are_compared_in_full() -> None:
    found = compiled("MATCH (p:Person) WHERE p.seen > '2024-01-01T10:00' RETURN p")
    assert "0000-00-00T00:00:00.000000000" in found.text
    assert found.parameters["p1"] == "2024-01-01T10:00:00.000000000"


def test_statements_only_read() -> None:
    found = compiled("MATCH (p:Person)-[k:KNOWS]-(q:Person) RETURN PATH, k ORDER BY k, path DESC")
    assert [line.partition(" ")[0] for line in found.text.splitlines()] == ["MATCH", "WHERE", "RETURN", "ORDER", "SKIP"]


@pytest.mark.parametrize(
    ("text", "exposed"),
    [
        ("MATCH (p:Person) WHERE p.name REGEX 'a' RETURN p", schema()),
        ("MATCH (p:Person) RETURN DISTINCT COUNT(*) AS n GROUP BY p.name", schema()),
        ("MATCH (p:Person) RETURN p.name", schema(person=("a`b",))),
        ("MATCH (p:Person)-[:KNOWS]-(q:Person) RETURN p", schema(knows="a\nb")),
    ],
)
def test_what_it_cannot_say_is_refused(text: str, exposed: GraphSchema) -> None:
    with pytest.raises(Refusal) as caught:
        compiled(text, exposed)
    assert caught.value.code == "UNSUPPORTED_FEATURE"
    assert "NebulaGraph" in str(caught.value)

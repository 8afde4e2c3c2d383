"""Graphs for agents on the command line: propose, publish, ask, and be told where a query is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli_driver import HANDBOOK, Cli
from tests.published import TEAMS
from worker.graph_commands import shown, valued

CORPUS = "teams"


@pytest.fixture(scope="module")
def published(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A corpus whose graph is published as `workshop`, in the way that a person does it; the file of its schema."""
    cli.index(CORPUS, HANDBOOK)
    file = tmp_path_factory.mktemp("graph") / "schema.json"
    file.write_text(cli.ok("graph", "propose", CORPUS).out)
    done = cli.ok(
        "graph", "publish", "workshop", str(file), "--corpus", CORPUS, "--description", "Teams", "--json"
    ).json
    assert (done["name"], done["corpus"], done["description"]) == ("workshop", CORPUS, "Teams")
    yield file
    cli.ok("graph", "remove", "workshop")
    assert cli.ok("graph", "list", "--json").out.strip() == "[]"


def test_the_commands_as_processes(user: Cli, published: Path) -> None:
    listed = json.loads(user.ok("graph", "list", "--json").out)
    assert [one["name"] for one in listed] == ["workshop"]
    found = user.ok("match", "workshop", TEAMS, "--json").json
    assert {"team": "Electronics Team", "department": "Workshop Department"} in found["records"]
    assert (len(found["records"]), found["metadata"]["truncated"]) == (5, False)


def test_a_schema_is_trimmed_and_published_again(cli: Cli, published: Path, tmp_path: Path) -> None:
    kept = json.loads(cli.ok("graph", "show", "workshop").out)
    schema = kept["graph_schema"]
    assert schema == json.loads(published.read_text())
    schema["edgeTypes"] = [one for one in schema["edgeTypes"] if one["type"] == "PART_OF"]
    trimmed = tmp_path / "trimmed.json"
    trimmed.write_text(json.dumps(schema))
    cli.ok("graph", "publish", "trimmed", str(trimmed), "--corpus", CORPUS, "--max-hops", "1", "--page-size", "2")
    assert len(cli.ok("match", "trimmed", TEAMS, "--json").json["records"]) == 2
    hidden = cli.ok("match", "trimmed", "MATCH (a:Organization)-[:LED]-(b:Topic) RETURN a", code=2)
    assert "UNKNOWN_GRAPH_TYPE" in hidden.err
    far = cli.ok("match", "trimmed", "MATCH (a:Organization)-[:PART_OF*1..2]->(b:Organization) RETURN a", code=2)
    assert "QUERY_NOT_ALLOWED" in far.err
    cli.ok("graph", "remove", "trimmed")
    cli.ok("graph", "remove", "trimmed", code=2)


def test_pages_by_cursor_and_all_at_once(cli: Cli, published: Path) -> None:
    whole = cli.ok("match", "workshop", TEAMS, "--json").json["records"]
    page = cli.ok("match", "workshop", TEAMS, "--page-size", "3", "--json").json
    rest = cli.ok("match", "workshop", TEAMS, "--page-size", "3", "--cursor", page["metadata"]["nextCursor"], "--json")
    assert page["records"] + rest.json["records"] == whole
    every = cli.ok("match", "workshop", TEAMS, "--page-size", "2", "--all", "--json").json
    assert every["records"] == whole
    assert (every["metadata"]["recordCount"], every["metadata"]["hasNext"]) == (5, False)


def test_a_table_for_people(cli: Cli, published: Path) -> None:
    query = TEAMS.replace("RETURN", "WHERE a.name = :team RETURN a, PATH AS way,")
    done = (
        replace(cli, inside=False)
        .given(COLUMNS="200")
        .ok("match", "workshop", query, "--param", "team=Electronics Team")
    )
    assert "Organization:Electronics Team" in done.out
    assert "Organization:Electronics Team -PART_OF-> Organization:Workshop Department" in done.out
    assert "1 records in" in done.err
    more = cli.ok("match", "workshop", TEAMS, "--page-size", "1")
    assert "cut short by pageSize" in more.err and "--cursor offset:1:" in more.err
    assert "no records" in cli.ok("match", "workshop", query, "--param", "team=[red]x[/red]").out


def test_what_is_wrong_is_pointed_at(cli: Cli, published: Path) -> None:
    wrong = cli.ok("match", "workshop", "MATCH (a:Organization)\n\tWHERE a.name == = 1\nRETURN a", code=2).err
    lines = wrong.splitlines()
    assert "INVALID_QUERY: SYNTAX" in lines[0] and "line 2, column 18" in lines[0]
    assert lines[1] == "      WHERE a.name == = 1"
    assert lines[2] == "      " + " " * 16 + "^"
    assert "UNKNOWN_KNOWLEDGE_SOURCE" in cli.ok("match", "nothing", TEAMS, code=2).err
    assert "KEY=VALUE" in cli.ok("match", "workshop", TEAMS, "--param", "x", code=2).err
    bad = "--page-size", "0"
    assert "INVALID_ARGUMENT: pageSize" in cli.ok("match", "workshop", TEAMS, *bad, code=2).err


def test_a_wrong_schema_is_refused_with_its_places(cli: Cli, published: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text('{"nodeTypes": [{"label": "A B", "properties": [{"name": "x", "type": "FLOAT"}]}], "bogus": 1}')
    told = cli.ok("graph", "publish", "wrong", str(file), "--corpus", CORPUS, code=2).err
    for place in ("nodeTypes.0.label: ", "nodeTypes.0.properties.0.type: ", "bogus: "):
        assert place in told
    assert "cannot be read" in cli.ok("graph", "publish", "w", str(tmp_path / "none"), "--corpus", CORPUS, code=2).err
    missing = cli.ok("graph", "publish", "w", str(published), "--corpus", "missing", code=2).err
    assert "Corpus not found: missing" in missing
    limits = cli.ok("graph", "publish", "w", str(published), "--corpus", CORPUS, "--page-size", "500", code=2).err
    assert "page_size must be at most max_page_size" in limits


def test_values_are_json_or_text() -> None:
    given = ["a=3", "b=true", 'c=["x", 1]', "d=Ada Lovelace", 'e="7"', "f=", "g=x=y"]
    assert valued(given) == {
        "a": 3,
        "b": True,
        "c": ["x", 1],
        "d": "Ada Lovelace",
        "e": "7",
        "f": "",
        "g": "x=y",
    }


def test_cells_are_shown_for_people() -> None:
    node = {"kind": "node", "id": "n1", "labels": ["A", "B"], "properties": {}}
    edge = {"kind": "edge", "sourceId": "n1", "type": "T", "targetId": "n2", "rank": 0, "properties": {}}
    assert shown(node) == "A/B:n1" and shown({**node, "properties": {"name": "x"}}) == "A/B:x"
    assert shown(edge) == "n1 -T-> n2"
    assert shown({"kind": "subgraph", "nodes": [node], "edges": []}) == "A/B:n1"
    assert [shown(one) for one in (None, 1, True, 0.5, "text")] == ["-", "1", "true", "0.5", "text"]
    assert len(shown("x" * 1000)) == 400

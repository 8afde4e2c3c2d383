"""From what a user types to listed documents with unique ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.errors import InvalidRequest, NotFound, Refused
from pipeline.ingest.parse import parse
from pipeline.ingest.sources import document_ids, list_sources, make_source, read
from pipeline.ingest.stages import Request, prepare
from schemas.documents import Outcome, SourceKind
from schemas.graph import Fact
from schemas.settings import ChunkSettings


def lines(*records: object) -> str:
    return "".join((json.dumps(record) if not isinstance(record, str) else record) + "\n" for record in records)


def record(document: str, passage: str, *triples: list[str], **more: object) -> dict[str, object]:
    return {"document": document, "passage": passage, "triples": list(triples), **more}


def test_what_a_user_types_becomes_the_source_that_is_meant(tmp_path: Path) -> None:
    """Folders, files, URLs; a triples file is known by its first line, or by being called one."""
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "plain.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "facts.jsonl").write_text(lines(record("d", "p")))
    kinds = {text: make_source(text.replace("~", str(tmp_path))).kind for text in (
        "~", "~/a.md", "~/plain.jsonl", "~/facts.jsonl", "triples:~/plain.jsonl", "https://Example.org/a#b",
    )}  # fmt: skip
    assert list(kinds.values()) == [
        SourceKind.FOLDER, SourceKind.FILE, SourceKind.FILE, SourceKind.TRIPLES, SourceKind.TRIPLES, SourceKind.URL,
    ]  # fmt: skip
    assert make_source("HTTPS://Example.ORG:443/a?b#c").location == "https://example.org/a?b"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("/no/such/folder", NotFound),
        ("ftp://example.org/x", Refused),
        ("file:///etc/passwd", Refused),
        ("https://user:secret@example.org/", Refused),
        ("http://example.org:22/", Refused),
        ("/dev/null", Refused),
        ("bad\nname", InvalidRequest),
    ],
)
def test_what_is_no_source_is_refused(text: str, error: type[Exception]) -> None:
    """With a typed error, and without repeating a secret."""
    with pytest.raises(error) as caught:
        make_source(text)
    assert "secret" not in str(caught.value)


def test_ids_are_unique_whatever_the_sources() -> None:
    """The first keeps its name; later ones get their source's name before it, then numbers."""
    assert document_ids([("a", ["x", "b/x"]), ("b", ["x", "y"]), ("b", ["x", "x"])]) == [
        ["x", "b/x"],
        ["b-2/x", "y"],
        ["b-3/x", "b-4/x"],
    ]


def test_two_folders_and_a_file_are_listed_together(tmp_path: Path) -> None:
    """In the order of ids; the same source twice is one; a file's id is its name."""
    for name in ("one/a.md", "one/z.md", "two/a.md", "three.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "two/pic.png").write_bytes(b"x")
    sources = [make_source(str(tmp_path / name)) for name in ("one", "two", "three.md", "one")]
    listing = list_sources(sources)
    assert [item.document_id for item in listing.items] == ["a.md", "three.md", "two/a.md", "z.md"]
    assert [read(item).decode() for item in listing.items] == ["one/a.md", "three.md", "two/a.md", "one/z.md"]
    assert [(one.document_id, one.outcome) for one in listing.skipped] == [("pic.png", Outcome.SKIPPED)]


def test_a_single_file_may_be_a_link_that_its_user_named(tmp_path: Path) -> None:
    """It is read where it leads."""
    (tmp_path / "true.md").write_text("here")
    (tmp_path / "link.md").symlink_to("true.md")
    (item,) = list_sources([make_source(str(tmp_path / "link.md"))]).items
    assert (item.document_id, read(item)) == ("link.md", b"here")


def test_triples_are_one_document_for_all_its_lines(tmp_path: Path) -> None:
    """Lines of a document need not be adjacent; facts, types, title and metadata come through to the chunks."""
    path = tmp_path / "facts.jsonl"
    path.write_text(
        lines(
            record("d1", "Acme acquired BETA.", ["Acme", "acquired", "Beta"], types={"Acme": "Company"}, title="Deals"),
            record("d2", "Nothing.", ["X", "is", "Y"]),
            record("d1", "Beta praised Acme.", ["Beta", "praised", "Acme"], metadata={"year": 1999}),
        )
    )
    items = list_sources([make_source(str(path))]).items
    assert [(item.document_id, len(item.part)) for item in items] == [("d1", 2), ("d2", 1)]
    (first, second) = prepare([Request(item, read(item), "", ChunkSettings()) for item in items])
    assert not isinstance(first, Exception)
    assert not isinstance(second, Exception)
    assert (first.title, first.metadata, second.title) == ("Deals", {"year": 1999}, "d2")
    assert [one.text for one in first.chunks] == ["Acme acquired BETA.", "Beta praised Acme."]
    assert first.ready[0].facts == (Fact("Acme", "Company", "acquired", "Beta", "Entity"),)
    assert [(m.name, m.type, m.start) for m in first.ready[0].mentions] == [
        ("Acme", "Company", 0),
        ("BETA", "Entity", 14),
    ]
    assert [m.start for m in second.ready[0].mentions] == [-1, -1]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"document": "d", "triples": []}', "`passage`"),
        ('{"document": " ", "passage": "p", "triples": []}', "`document`"),
        ('{"document": "d", "passage": "p", "triples": {}}', "`triples`"),
        ('{"document": "d", "passage": "p", "triples": [["a", "b"]]}', "`triples[0]`"),
        ('{"document": "d", "passage": "p", "triples": [["a", "b", ""]]}', "`triples[0]`"),
        ('{"document": "d", "passage": "p", "triples": [["a", "b", 3]]}', "`triples[0]`"),
        ('{"document": "d", "passage": "p", "triples": [], "title": 3}', "`title`"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_a_malformed_line_is_one_failure_with_its_number(tmp_path: Path, bad: str, said: str) -> None:
    """The other lines go on, those of the same document too."""
    path = tmp_path / "facts.jsonl"
    path.write_text(lines(record("d", "one"), bad, record("d", "two")) + "\n")
    listing = list_sources([make_source(str(path))])
    (fault,) = listing.skipped
    assert (fault.document_id, fault.outcome) == ("facts.jsonl#2", Outcome.FAILED)
    assert fault.reason.startswith("line 2:")
    assert said in fault.reason
    (item,) = listing.items
    assert parse("d", read(item), "application/vnd.sapwood.triples+jsonl").text == "one\n\ntwo"

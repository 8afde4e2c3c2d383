"""Chunks: exact spans, within the limit, with their headings; ready-made passages as they are."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.ingest.chunk import chunk, chunk_passages
from pipeline.ingest.parse import parse
from pipeline.retrieval.analyzer import term_hash, tokens, unpack
from schemas.documents import Chunk, ParsedDocument, Passage
from schemas.graph import Fact, Mention
from schemas.settings import ChunkSettings

SIZES = ChunkSettings()
SENTENCES = "This is one sentence of many. " * 10_000
GIANT = {
    "long word": "x" * 10 + " " + "a" * 5000,
    "word between words": "Header " + "a" * 200 + " Footer\n",
    "white space": "word" + " " * 10_000 + "word",
    "one line": SENTENCES,
    "minified": '{"k":[1,2,3],"v":"abc"},' * 85_000,
    "no breaks at all": "a" * 500_000,
    "combining marks": "e" + "\u0301" * 50_000,
    "chinese": "手机测试，" * 40_000,
    "only headings": "# a\n" * 20_000,
    "nested quotes": "> " * 20_000 + "x",
    "open brackets": "[" * 50_000,
    "new lines": "\n" * 100_000 + "x",
}


def covers(text: str, chunks: list[Chunk], limit: int) -> None:
    """Spans are exact, in order, within the limit, and leave out white space only."""
    at = 0
    for number, one in enumerate(chunks):
        assert one.ordinal == number
        assert one.text == text[one.start : one.end]
        assert 0 < len(one.text) <= limit
        assert one.start >= at
        assert not text[at : one.start].strip()
        assert one.first_line == text.count("\n", 0, one.start) + 1
        assert one.last_line == text.count("\n", 0, one.end) + 1
        at = one.end
    assert not text[at:].strip()


@pytest.mark.parametrize("suffix", ["txt", "md", "rst"])
@pytest.mark.parametrize("kind", GIANT)
def test_giant_words_and_lines_are_cut_and_nothing_is_lost(kind: str, suffix: str) -> None:
    """No progress, no end, or one chunk over the limit: none of these on any input."""
    parsed = parse(f"x.{suffix}", GIANT[kind].encode())
    limit = 100 if kind == "word between words" else SIZES.max_chars
    chunks = chunk(parsed, ChunkSettings(max_chars=limit))
    if len(parsed.text) <= 20_000:
        covers(parsed.text, chunks, limit)
    else:
        assert all(0 < len(one.text) <= limit for one in chunks)
        assert sum(len("".join(one.text.split())) for one in chunks) == len("".join(parsed.text.split()))


def test_line_ends_change_neither_chunks_nor_hashes() -> None:
    """A file with CRLF and the same with LF become the same chunks."""
    text = "\n\n".join(f"Paragraph {n}. {SENTENCES[:400]}" for n in range(50))
    unix = chunk(parse("x.txt", text.encode()), SIZES)
    dos = chunk(parse("x.txt", text.replace("\n", "\r\n").encode()), SIZES)
    assert len(unix) > 10
    assert unix == dos


def test_an_overlap_as_large_as_the_chunk_is_refused_by_name() -> None:
    """A configuration that cannot make progress never starts."""
    with pytest.raises(ValidationError, match=r"chunk\.overlap"):
        ChunkSettings(max_chars=100, overlap=100)


@pytest.mark.parametrize("overlap", [1, 50, 99])
def test_chunks_with_overlap_are_exact_and_cover_the_text(overlap: int) -> None:
    """Neighbours may share text; nothing is left out and nothing is too long."""
    parsed = parse("x.txt", SENTENCES[:20_000].encode())
    chunks = chunk(parsed, ChunkSettings(max_chars=100, overlap=overlap))
    end = 0
    for one in chunks:
        assert one.text == parsed.text[one.start : one.end]
        assert len(one.text) <= 100
        assert not parsed.text[end : one.start].strip()
        end = max(end, one.end)
    assert not parsed.text[end:].strip()


def test_a_small_document_is_one_chunk() -> None:
    """What fits is not cut, whatever headings are in it."""
    (only,) = chunk(parse("x.md", b"# A\n\none\n\n# B\n\ntwo\n"), SIZES)
    assert only.text == "# A\n\none\n\n# B\n\ntwo"
    assert (only.first_line, only.last_line) == (1, 7)


def test_sections_that_fit_stay_whole_and_know_their_headings() -> None:
    """The path is coarsest first; a heading stays with its text, and one without text goes with what follows."""
    filler = SENTENCES[:900].strip()
    text = f"# Book\n\n## One\n\n{filler}\n\n### Inner\n\nshort\n\n## Two\n\n{filler}\n\n{filler}\n"
    chunks = chunk(parse("x.md", text.encode()), SIZES)
    covers(text, chunks, SIZES.max_chars)
    assert [one.headings for one in chunks] == [("Book", "One"), ("Book", "Two"), ("Book", "Two")]
    assert chunks[0].text.startswith("# Book\n\n## One")
    assert chunks[0].text.endswith("short")
    assert chunks[1].text.startswith("## Two\n\nThis")


def test_equal_chunks_have_ids_of_their_own() -> None:
    """The same text twice in a document, or in two documents, is two chunks."""
    text = ("x" * 1199 + "\n") * 3
    first, second = (chunk(parse(name, text.encode()), SIZES) for name in ("a.txt", "b.txt"))
    ids = [one.chunk_id for one in first + second]
    assert len(first) == 3
    assert len(set(ids)) == 6


def test_passages_are_chunks_as_they_are() -> None:
    """Ready-made facts and mentions stay with their passage; offsets are those of the passage."""
    passages = (
        Passage(
            "  Acme acquired Beta.", (Mention("Acme", "Entity", 2, 6),), (Fact("Acme", "E", "acquired", "Beta", "E"),)
        ),
        Passage("Second."),
    )
    parsed = ParsedDocument("d", "d", "\n\n".join(p.text for p in passages), "x", passages=passages)
    (first, found), (second, nothing) = chunk_passages(parsed, SIZES)
    assert (first.text, second.text) == ("  Acme acquired Beta.", "Second.")
    assert (found.mentions, found.facts) == (passages[0].mentions, passages[0].facts)
    assert not nothing.mentions
    assert parsed.text[second.start : second.end] == second.text


def test_a_passage_over_the_limit_is_split_with_its_facts() -> None:
    """Every mention is exact in its part, and both ends of a fact are mentions of its part."""
    text = f"Acme is here. {SENTENCES[:1500]} Beta praised Gamma. {SENTENCES[:1500]}"
    at = text.index("Beta")
    fact = Fact("Beta", "E", "praised", "Gamma", "E")
    passage = Passage(
        text,
        (Mention("Acme", "E", 0, 4), Mention("Beta", "E", at, at + 4), Mention("Gamma", "E"), Mention("Delta", "E")),
        (fact,),
    )
    pairs = chunk_passages(ParsedDocument("d", "d", text, "x", passages=(passage,)), SIZES)
    assert len(pairs) > 2
    named = [(m.name, made.ordinal) for made, found in pairs for m in found.mentions]
    assert sorted(name for name, _ in named) == ["Acme", "Beta", "Delta", "Gamma"]
    for made, found in pairs:
        assert len(made.text) <= SIZES.max_chars
        assert all(m.start < 0 or made.text[m.start : m.end] == m.name for m in found.mentions)
        assert all({f.subject, f.object} <= {m.name for m in found.mentions} for f in found.facts)
    assert sum(len(found.facts) for _, found in pairs) == 1


def test_a_chunk_is_found_by_its_title_and_headings_too() -> None:
    """The analysed terms are those of title, headings and text, while id, text and span are the text's alone."""
    body = "# Guide\n\n" + "It may be used by all. " * 60 + "\n\n## Laser cutter\n\n" + "Ask for the key first. " * 60
    chunks = chunk(parse("guide.md", body.encode()), SIZES)
    last = chunks[-1]
    assert "cutter" not in last.text and last.headings == ("Guide", "Laser cutter")
    found = set(unpack(last.terms)[0].tolist())
    assert {term_hash(term) for term in tokens("Guide Laser cutter key")} <= found
    renamed = chunk(ParsedDocument("a.txt", "Another title", "Some text.", "text/plain"), SIZES)
    plain = chunk(ParsedDocument("a.txt", "", "Some text.", "text/plain"), SIZES)
    assert [one.chunk_id for one in renamed] == [one.chunk_id for one in plain]
    assert (renamed[0].length, plain[0].length) == (4, 2)

"""Chunks survive edits elsewhere, cover their text, and cost linear work, whatever the text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ingest.blocks import blocks
from pipeline.ingest.chunk import chunk
from pipeline.ingest.parse import parse
from schemas.settings import ChunkSettings

SIZES = ChunkSettings(max_chars=400)
WORDS = ["ring", "bark", "root", "sap", "leaf", "branch", "heart", "grain", "knot", "twig", "crown", "trunk", "pith"]


def paragraph(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(5, 60))) + "."


def join(paragraphs: list[str], kind: str) -> str:
    if kind == "headings":
        return "\n\n".join(f"## Part {n}\n\n{text}" if n % 7 == 0 else text for n, text in enumerate(paragraphs))
    return {"paragraphs": "\n\n", "lines": "\n", "one line": " "}[kind].join(paragraphs)


@pytest.mark.parametrize("kind", ["paragraphs", "lines", "one line", "headings"])
@given(seed=st.integers(0, 2**32), at=st.integers(0, 599), edit=st.sampled_from(["change", "delete", "insert"]))
@settings(max_examples=15, deadline=None)
def test_an_edit_changes_a_bounded_number_of_chunks(kind: str, seed: int, at: int, edit: str) -> None:
    """One paragraph of 600 is edited: the chunks beyond a few blocks around it keep their ids, in either direction."""
    rng = random.Random(seed)
    paragraphs = [paragraph(rng) for _ in range(600)]
    edited = list(paragraphs)
    if edit == "change":
        edited[at] = paragraph(rng)
    elif edit == "delete" and kind != "headings":
        del edited[at]
    elif kind != "headings":
        edited.insert(at, paragraph(rng))
    before, after = (
        {one.chunk_id for one in chunk(parse("x.md", join(version, kind).encode()), SIZES)}
        for version in (paragraphs, edited)
    )
    assert len(before) > 200
    assert len(before - after) <= 50
    assert len(after - before) <= 50


@given(
    st.text(alphabet="ab \n#-=.>`手\u0301", max_size=3000),
    st.integers(50, 200),
    st.sampled_from(["md", "rst", "txt", "html"]),
)
@settings(max_examples=150, deadline=None)
def test_spans_cover_any_text(text: str, limit: int, suffix: str) -> None:
    """Every chunk is an exact span within the limit; between two there is white space only."""
    parsed = parse(f"x.{suffix}", text.encode())
    at = 0
    for one in chunk(parsed, ChunkSettings(max_chars=limit)):
        assert one.text == parsed.text[one.start : one.end]
        assert 0 < len(one.text) <= limit
        assert not parsed.text[at : one.start].strip()
        assert one.start >= at
        at = one.end
    assert not parsed.text[at:].strip()


@given(st.text(alphabet="ab,. \n", max_size=5000), st.integers(10, 300))
@settings(deadline=None)
def test_blocks_are_bounded_and_without_gaps(text: str, window: int) -> None:
    """Blocks lie end to end over the whole text, none longer than eight windows."""
    spans = list(blocks(text, 0, len(text), window))
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert spans[-1][1] == len(text)
    assert all(end - start <= 8 * window for start, end in spans)

"""Chunks of source files: a symbol is one where it fits, nothing is lost, and an edit changes the chunk of its symbol."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from pipeline.codegraph.cut import spans
from pipeline.codegraph.reading import read
from pipeline.codegraph.summary import Summary, Symbol
from pipeline.ingest.chunk import made
from pipeline.ingest.parse import parse
from pipeline.retrieval.analyzer import term_hash, tokens, unpack
from schemas.documents import Chunk
from schemas.settings import ChunkSettings

PYTHON = '''"""A store."""

import os

LIMIT = 3


# Kept small, so that
# it can be read.
@cached
def load(path):  # noqa
    """Read it."""

    def inner():
        return 1

    return inner() + LIMIT


class Store(Base):
    """Holds events."""

    size = 0

    # Adds one.
    def add_event(self, event):
        self.size += 1
        {filler}

    async def clear(self):
        self.size = 0


if os.environ:
    def late():
        pass
'''

RUST = """use std::fmt;

/// Holds things.
#[derive(Debug)]
pub struct Store {
    size: usize,
}

impl fmt::Display for Store {
    /* Shown so. */
    fn fmt(&self) -> usize {
        self.size
    }

    pub fn add(&mut self) {
        self.size += 1;
    }
}
"""


def cut(text: str, path: str, limit: int = 200, overlap: int = 0) -> list[Chunk]:
    """Return the chunks that a file becomes."""
    summary = read(path, text)
    assert summary is not None
    sizes = ChunkSettings(max_chars=limit, overlap=overlap)
    return list(made(parse(path, text.encode()), spans(text, summary, sizes)))


def test_a_symbol_is_a_chunk_and_a_class_that_is_too_long_is_cut_at_its_methods() -> None:
    """With decorators and the comment above; the class's head and the module's own code stand apart."""
    found = {
        one.headings: one.text for one in cut(PYTHON.replace("{filler}", "self.size += 0\n        " * 3), "store.py")
    }
    assert list(found) == [
        (), ("load",), ("Store",), ("Store", "add_event"), ("Store", "clear"), ("late",),
    ]  # fmt: skip
    assert found[()] == '"""A store."""\n\nimport os\n\nLIMIT = 3'
    assert found["load",].startswith("# Kept small") and found["load",].endswith("inner() + LIMIT")
    assert found["Store",] == 'class Store(Base):\n    """Holds events."""\n\n    size = 0'
    assert found["Store", "add_event"].startswith("# Adds one.\n    def add_event")
    assert found["late",].startswith("if os.environ:\n    def late")


def test_a_class_that_fits_is_one_chunk() -> None:
    """Its methods are in it; so they are in files that would fit as a whole."""
    chunks = cut("class A:\n    def f(self): ...\n\n    def g(self): ...\n\n\ndef h(): ...\n", "a.py")
    assert [one.headings for one in chunks] == [("A",), ("h",)]


def test_blocks_that_are_no_symbols_go_with_what_they_hold() -> None:
    """The line that opens an `impl` leads its first function, and the brace that closes it follows the last."""
    chunks = cut(RUST, "store.rs")
    assert [one.headings for one in chunks] == [(), ("Store",), ("Store", "fmt"), ("Store", "add")]
    assert chunks[1].text.startswith("/// Holds things.\n#[derive")
    assert chunks[2].text.startswith("impl fmt::Display for Store {\n    /* Shown so. */")
    assert chunks[3].text.endswith("}\n}")


def test_a_function_that_is_too_long_is_split_under_its_name() -> None:
    """The functions within are chunks of their own; the path names each part."""
    body = "\n".join(f"    value_{n} = {n}" for n in range(60))
    chunks = cut(f"def long():\n    def inner():\n        return 1\n\n{body}\n", "a.py")
    assert [one.headings for one in chunks[:2]] == [("long",), ("long", "inner")]
    assert len(chunks) > 6 and {one.headings for one in chunks[2:]} == {("long",)}


@pytest.mark.parametrize("query", ["add_event", "addEvent", "add event", "Store", "store.add_event"])
def test_a_symbol_is_found_by_the_parts_of_its_name(query: str) -> None:
    """Whole or in parts, also in a chunk whose text does not name its class."""
    chunks = cut(PYTHON.replace("{filler}", "self.size += 0\n        " * 3), "store.py")
    (chunk,) = (one for one in chunks if one.headings == ("Store", "add_event"))
    assert {term_hash(term) for term in tokens(query)} <= set(unpack(chunk.terms)[0].tolist())


LINES = st.sampled_from(["x = 1", "return x", "# why", "", "for y in x: pass", "call(x, y)", "'''text'''"])


@given(st.lists(st.lists(LINES, min_size=1, max_size=30), min_size=2, max_size=8), st.data())
@examples(max_examples=100, deadline=None)
def test_an_edit_of_a_function_changes_its_chunks_alone(bodies: list[list[str]], data: st.DataObject) -> None:
    """All others stay as they are, whether they stand before or after it, in a module or in a class."""

    def text(which: list[list[str]]) -> str:
        methods = [
            "\n".join([f"    def f{n}(self):", "        pass", *(f"        {line}" for line in one)])
            for n, one in enumerate(which)
        ]
        functions = [
            "\n".join([f"def g{n}():", "    pass", *(f"    {line}" for line in one)]) for n, one in enumerate(which)
        ]
        return "class C:\n" + "\n\n".join(methods) + "\n\n\n" + "\n\n\n".join(functions) + "\n"

    at = data.draw(st.integers(0, len(bodies) - 1))
    edited = [*bodies[:at], [*bodies[at], "edited = 1"], *bodies[at + 1 :]]
    before, after = (
        Counter((one.headings, one.text) for one in cut(text(which), "m.py", 120)) for which in (bodies, edited)
    )
    changed = [*(before - after), *(after - before)]
    assert changed
    if len(text(bodies)) > 400:  # else the class as a whole is one chunk
        assert {headings for headings, _ in changed} <= {("C", f"f{at}"), (f"g{at}",)}


@given(
    st.text(alphabet="ab{}();#/*: \n\u0301手", max_size=600),
    st.lists(st.tuples(st.integers(0, 620), st.integers(0, 620)), max_size=12),
    st.integers(50, 200),
    st.sampled_from(["python", "javascript"]),
)
@examples(max_examples=300, deadline=None)
def test_any_symbols_leave_every_chunk_within_the_limit_and_nothing_out(
    text: str, places: list[tuple[int, int]], limit: int, language: str
) -> None:
    """Even where symbols lie across each other, upside down or beyond the text."""
    symbols = tuple(Symbol(f"s{n}", f"s{n}", "function", "", start, end, 1, 1) for n, (start, end) in enumerate(places))
    at = 0
    for span in spans(text, Summary(language, symbols), ChunkSettings(max_chars=limit)):
        assert at <= span.start < span.end <= span.start + limit
        assert not text[at : span.start].strip()
        at = span.end
    assert not text[at:].strip()


def test_the_files_of_this_project_are_covered() -> None:
    """Every chunk is an exact span within the limit; each symbol that fits is whole within one."""
    sizes = ChunkSettings()
    for path in sorted(Path(__file__).parents[2].glob("pipeline/**/*.py")):
        text = path.read_text()
        summary = read(path.name, text)
        assert summary is not None
        found, at = spans(text, summary, sizes), 0
        for span in found:
            assert at <= span.start < span.end <= span.start + sizes.max_chars
            assert not text[at : span.start].strip()
            at = span.end
        assert not text[at:].strip()
        for symbol in summary.symbols:
            if symbol.end - symbol.start <= sizes.max_chars // 2:
                assert any(span.start <= symbol.start and symbol.end <= span.end for span in found), symbol

"""What holds of every summary, whatever the text; and ways to damage a source file."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import strategies as st

from pipeline.codegraph.reading import read
from pipeline.codegraph.summary import MAX_NESTING, Form, Summary, decode, encode


def summary_of(path: str, text: str) -> Summary:
    """Return what a file says, after looking at what must hold of every summary."""
    summary = read(path, text)
    assert summary is not None
    assert "unreadable" not in summary.counts
    assert decode(encode(summary)) == summary
    assert depth(summary) <= 3 * MAX_NESTING  # a level of syntax is at most three forms, as Define, Function, Assign
    lines = [place for place, character in enumerate(text) if character == "\n"]
    names = [symbol.qualname for symbol in summary.symbols]
    assert len(set(names)) == len(names)
    for symbol in summary.symbols:
        assert 0 <= symbol.start < symbol.end <= len(text)
        assert symbol.first_line == bisect_left(lines, symbol.start) + 1 <= symbol.last_line
        assert symbol.parent == "" or symbol.parent in names
        assert symbol.qualname.endswith(symbol.name)
        assert len(symbol.signature) <= 200
    return summary


def depth(summary: Summary) -> int:
    """Return how many forms are nested in each other."""
    deepest = 0
    pending: list[tuple[object, int]] = [(summary.body, 0)]
    while pending:
        value, level = pending.pop()
        if isinstance(value, Form):
            deepest = max(deepest, level + 1)
            pending.extend((getattr(value, field), level + 1) for field in value.__struct_fields__)
        elif isinstance(value, tuple):
            pending.extend((each, level) for each in value)
    return deepest


@st.composite
def damaged(draw: st.DrawFn, texts: list[str]) -> str:
    """Return one of the texts with a few pieces lost, repeated, moved or put in."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 200)))
        to = draw(st.integers(0, len(text)))
        piece = text[start:end]
        match draw(st.sampled_from(["lose", "repeat", "move", "put"])):
            case "lose":
                text = text[:start] + text[end:]
            case "repeat":
                text = text[:to] + piece + text[to:]
            case "move":
                text = (text[:start] + text[end:])[:to] + piece + (text[:start] + text[end:])[to:]
            case _:
                put = draw(st.text(st.sampled_from("()[]{}<>\"'`:;,.=*&|#@!\\\n\t é𝒳\0"), max_size=8))
                text = text[:start] + put + text[start:]
    return text

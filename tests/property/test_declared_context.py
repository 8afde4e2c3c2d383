"""For any documents: the window is kept, a wider one never shows less, and a parser finds in the fence what was rendered."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.adapters.huggingface_tokenizer import HuggingFaceTokenizer
from pipeline.declare.context import MORE, Rendered, Spec, render
from pipeline.declare.fence import fence, holdable, splice
from pipeline.declare.keys import Evidence
from pipeline.declare.tokens import Estimate, Tokenizer
from pipeline.errors import InvalidRequest
from schemas.query import Hit

FORMAT = "[Source: ${source}]\n${content}\n\n"
HOSTILE = (
    "ab .\n\t<>&\"'/;#!?。手"
    "e\u0301\u0323\U0001f1e9\U0001f1ea\U0001f44d\U0001f3fd"
    "\u200b\u202e\U000e0041\r\x00\x1b\ud800\ufffe\u2028"
)
PIECES = [
    "</context>",
    "</sapwood-memory>",
    "<context>",
    "]]>",
    "&amp;",
    "&#60;",
    "Input:\n",
    "Retrieved context:",
    "${content}",
]

texts = st.one_of(
    st.text(max_size=300),
    st.text(HOSTILE, max_size=300),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(HOSTILE, max_size=20)), max_size=20).map("".join),
    st.lists(st.sampled_from(["ring", "bark.", "root,", "sap\n", "Heartwood!", "手。"]), max_size=120).map(" ".join),
)


@st.composite
def documents(draw: st.DrawFn) -> list[Hit]:
    return [
        Hit(
            document=draw(texts),
            chunk=f"{number:016x}",
            lines=(1, 2),
            text=draw(texts),
            score=0.5,
            streams=(),
            ranks={},
        )
        for number in range(draw(st.integers(1, 6)))
    ]


class Odd:
    """Counts fewer for some longer texts, as a vocabulary does where two tokens become one."""

    def count(self, text: str) -> int:
        return len(text) // 3 + 5 * (len(text) % 7 == 0)


def tokenizers() -> list[Tokenizer]:
    found: list[Tokenizer] = [Estimate(), Odd()]
    try:
        import wordllama
    except ImportError:
        return found  # the tests of tokens say so
    file = Path(str(wordllama.__file__)).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
    return [*found, HuggingFaceTokenizer(file)]


TOKENIZERS = tokenizers()
each_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda one: type(one).__name__)


def rendered(hits: list[Hit], window: int, tokenizer: Tokenizer, specs: tuple[Spec, ...] = ()) -> Rendered | None:
    """Return what is rendered, or None where nothing fits."""
    try:
        return render(hits, FORMAT, window, tokenizer, specs)
    except InvalidRequest:
        return None


@given(texts, st.sampled_from(["sapwood-memory", "m", "a.b_c-d"]))
@settings(max_examples=500, deadline=None)
def test_a_parser_finds_exactly_what_was_rendered(text: str, boundary: str) -> None:
    """Whatever the text is: one element within one element, and the text in it."""
    block = fence(text, boundary)
    root = ElementTree.fromstring(block.encode())
    assert (root.tag, [child.tag for child in root], list(root[0])) == (boundary, ["context"], [])
    assert (root[0].text or "") == holdable(text)
    assert holdable(holdable(text)) == holdable(text)


@given(documents(), st.dictionaries(st.sampled_from(["question", "b", "Input"]), texts, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_prompt_has_one_fence_and_its_own_lines(hits: list[Hit], inputs: dict[str, str]) -> None:
    """The block of any prompt can be cut out at its tags and parsed, and gives back the rendered text unchanged."""
    context = render(hits, FORMAT, 10**6, Estimate())
    prompt = splice("Act", Evidence(context.text, len(hits)), inputs)
    start, end = prompt.index("<sapwood-memory>"), prompt.index("</sapwood-memory>") + len("</sapwood-memory>")
    assert (ElementTree.fromstring(prompt[start:end])[0].text or "") == context.text
    assert prompt[:start] == "Act\n\nRetrieved context:\n"
    rest = prompt[end:]
    assert "<" not in rest
    lines = [line.partition(":")[0] for line in rest.splitlines() if line and not line.startswith(" ")]
    assert lines == (["Input", *inputs] if inputs else [])


@each_tokenizer
@given(documents(), st.integers(1, 400), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_window_is_never_overrun(tokenizer: Tokenizer, hits: list[Hit], window: int, with_spec: bool) -> None:
    """By the tokenizer that is used; and every document is shown or named as dropped."""
    specs = (Spec("role", "Knows about trees."),) if with_spec else ()
    found = rendered(hits, window, tokenizer, specs)
    assume(found is not None)
    assert found is not None
    assert found.tokens == tokenizer.count(found.text) <= window
    assert found.shown >= 1
    assert [f"{number:016x}" for number in range(found.shown, len(hits))] == list(found.dropped)
    assert found.truncated == (found.cut or found.shown < len(hits))


@each_tokenizer
@given(documents(), st.integers(1, 300), st.integers(0, 100))
@settings(max_examples=150, deadline=None)
def test_a_wider_window_never_shows_less(tokenizer: Tokenizer, hits: list[Hit], window: int, more: int) -> None:
    """What a window shows is the beginning of what a wider one shows; and the same window shows the same again."""
    narrow, wide = rendered(hits, window, tokenizer), rendered(hits, window + more, tokenizer)
    assert narrow == rendered(hits, window, tokenizer)
    if narrow is None:
        return
    assert wide is not None
    assert wide.shown >= narrow.shown
    assert wide.text.startswith(narrow.text.removesuffix(MORE).rstrip())


@given(documents())
@settings(max_examples=100, deadline=None)
def test_a_window_for_all_shows_all(hits: list[Hit]) -> None:
    """The whole text of every document, and in a window one token smaller no longer all of it."""
    whole = render(hits, FORMAT, 10**6, Estimate())
    assert not whole.truncated
    assert whole == render(hits, FORMAT, max(whole.tokens, 1), Estimate())
    narrow = rendered(hits, max(whole.tokens - 1, 1), Estimate())
    assert narrow is None or whole.tokens <= 1 or narrow.truncated


@given(texts, texts)
@settings(max_examples=300, deadline=None)
def test_the_estimate_grows_with_the_text(one: str, two: str) -> None:
    """The beginning of a text never counts more than the text."""
    assert Estimate().count(one) <= Estimate().count(one + two)

"""Terms of texts and queries, and the packed bags."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrieval.analyzer import MAX_TOKEN, pack, term_hash, tokens, unpack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Running runners ran", ["run", "runner", "ran"]),
        ("add_event", ["addevent", "add", "event"]),
        ("addEvent", ["addevent", "add", "event"]),
        ("HTTPServer2", ["httpserver2", "http", "server"]),
        (
            "snake_CASE getURLs XMLHttpRequest",
            [
                "snakecase",
                "snake",
                "case",
                "geturls",
                "get",
                "url",
                "xmlhttprequest",
                "xml",
                "http",
                "request",
            ],
        ),
        ("$jquery _private Store::add", ["jqueri", "privat", "store", "add"]),
        ("__init__", ["init"]),
        ("IDs", ["id"]),
        ("NASA's", ["nasa"]),
        ("Erdoğan ﬁne MÜLLER", ["erdogan", "fine", "muller"]),
        ("手机测", ["手机", "机测"]),
        ("字", ["字"]),
        ("2018 covid-19", ["2018", "covid", "19"]),
        ("हिन्दी", ["हिन्दी"]),
        ("<|endoftext|>", ["endoftext"]),
        ('a/b x|y "q" @user', ["a", "b", "x", "y", "q", "user"]),
        ("_ ' ___", []),
    ],
)
def test_terms_of_words_identifiers_and_scripts_without_spaces(text: str, expected: list[str]) -> None:
    """Stems, parts of identifiers after the whole, pairs of characters; no case, accents or compatibility forms."""
    assert tokens(text) == expected


def test_a_word_beyond_the_limit_counts_by_its_beginning() -> None:
    """A giant word is one bounded token, alike in document and query."""
    assert tokens("x" * 100_000) == ["x" * MAX_TOKEN]


def test_a_bag_holds_hashes_in_order_with_counts_and_the_length_counts_tokens() -> None:
    """Hashes ascend, are positive int64, and a count beyond 255 is capped while the length is not."""
    bag, length = pack(["b"] * 300 + ["a"])
    hashes, counts = unpack(bag)
    assert length == 301
    assert hashes.dtype == np.int64
    assert hashes.tolist() == sorted([term_hash("a"), term_hash("b")])
    assert counts[hashes.tolist().index(term_hash("b"))] == 255
    assert counts[hashes.tolist().index(term_hash("a"))] == 1


def test_the_hash_of_a_term_never_changes() -> None:
    """Stored bags would not be found by another number."""
    assert term_hash("sapwood") == 8091541328758717553


def test_a_damaged_bag_is_refused() -> None:
    """Nine bytes a term."""
    with pytest.raises(ValueError, match="9 bytes"):
        unpack(b"12345678")


@given(st.text())
def test_any_text_packs_and_unpacks(text: str) -> None:
    """Every text has terms that are bounded, and its bag is consistent with them."""
    found = tokens(text)
    hashes, counts = unpack(pack(found)[0])
    assert len(hashes) == len(counts) == len(set(found))
    assert all(0 < len(token) <= 2 * MAX_TOKEN for token in found)
    assert bool(np.all(np.diff(hashes) > 0))

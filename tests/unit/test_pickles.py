"""What children answer with: each field of our values survives a pickle, and one that is added must be in it."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import cast

import pytest

from schemas.documents import Chunk
from schemas.graph import Extraction, Fact, Mention, MentionOrigin
from schemas.ids import ChunkId

CHUNK = Chunk(ChunkId(1), "a.md", 2, "text", 3, 7, 4, 5, ("One", "Two"), b"t", b"p", b"bag", 6)
MENTION = Mention("Ada", "Person", 1, 4, MentionOrigin.TITLE, "A mathematician.", {"born": 1815}, "ada.Ada")
FACT = Fact("Ada", "Person", "KNEW", "Babbage", "Person", 0.5, 1, 9, {"year": 1833, "sure": True}, "a.Ada", "b.Babbage")
EXTRACTION = Extraction((MENTION,), (FACT,), 11, 12, ("cut",))


@pytest.mark.parametrize("value", [CHUNK, MENTION, FACT, EXTRACTION], ids=lambda value: type(value).__name__)
def test_every_field_is_in_a_pickle(value: Chunk | Mention | Fact | Extraction) -> None:
    """None has its default here, so that one which is left out is missed."""
    held = cast("tuple[object, ...]", value.__reduce__()[1])
    assert len(held) == len(fields(value))
    assert pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) == value


@pytest.mark.parametrize("origin", MentionOrigin)
def test_an_origin_is_a_member_again(origin: MentionOrigin) -> None:
    """It travels as text."""
    again = pickle.loads(pickle.dumps(Mention("Ada", "Person", origin=origin)))
    assert again.origin is origin

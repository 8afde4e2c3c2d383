"""The static embeddings of the extra `local`, where they are installed."""

from __future__ import annotations

from importlib.util import find_spec

import anyio.to_thread
import pytest

from pipeline.adapters.wordllama_embedder import WordLlamaEmbedder
from pipeline.deadline import Deadline
from pipeline.errors import MissingExtra
from pipeline.ingest.embed import Embedding

INSTALLED = find_spec("wordllama") is not None


@pytest.mark.skipif(not INSTALLED, reason="wordllama is not installed: pip install sapwood[local]")
async def test_similar_texts_are_near_without_any_download() -> None:
    """256 numbers, the same for a text whatever its neighbours are."""
    embedding = Embedding(await anyio.to_thread.run_sync(WordLlamaEmbedder))
    texts = ["A cat sat on the mat.", "A kitten rests on a rug.", "Interest rates rose again.", ""]
    found = await embedding.embed(texts, Deadline.after(60))
    assert found.shape == (4, 256) and found[0] @ found[1] > found[0] @ found[2] + 0.2
    again = await embedding.embed(texts[::-1] * 100, Deadline.after(60))
    assert abs(again[3] - found[0]).max() < 1e-5 and "l2_supercat-256" in embedding.fingerprint


@pytest.mark.skipif(INSTALLED, reason="wordllama is installed, so its absence cannot be tested")
def test_without_it_the_error_names_the_extra() -> None:
    """Before anything is read."""
    with pytest.raises(MissingExtra, match=r"sapwood\[local\]"):
        WordLlamaEmbedder()

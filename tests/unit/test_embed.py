"""The embedding contract, the choice of a provider, and the cache in front of paid ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

import anyio
import numpy as np
import pytest

from pipeline.adapters.hash_embedder import HashEmbedder
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, EmbeddingError, ModelError
from pipeline.ingest import paid
from pipeline.ingest.embed import Embedding, checked, choose, embed_texts
from pipeline.ingest.hashing import hash_vectors
from pipeline.testing.doubles import CountingEmbedder, MemoryCache
from schemas.ids import CorpusId, text_hash

CORPUS = CorpusId(1)
SOON = 30.0


class Fixed:
    """A provider that returns whatever it is told, and refuses a second request at a time."""

    fingerprint = "fixed"
    paid = False

    def __init__(self, rows: Any = None) -> None:
        self.rows = rows
        self.busy = False

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Any:
        if self.busy:
            raise RuntimeError("one request at a time")
        self.busy = True
        await anyio.sleep(0.01)
        self.busy = False
        return self.rows if self.rows is not None else [[1.0, 1.0]] * len(texts)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once."""
    monkeypatch.setattr(paid, "PAUSE", 0.0)


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0, math.nan]],
        [[1.0, math.inf]],
        [[]],
        [],
        [[1.0], [2.0]],
        [[[1.0]]],
        [1.0],
        [["x"]],
        [[None]],
        None,
        [[1.0] * 16_385],
        "text",
    ],
)
def test_a_broken_vector_is_an_embedding_error(rows: Any) -> None:
    """Not finite, empty, too wide, too many, of the wrong shape, or no vector at all."""
    with pytest.raises(EmbeddingError):
        checked(rows, 1, None)


def test_vectors_are_copies_of_length_one() -> None:
    """Whatever their size was; a zero vector stays zero."""
    rows = np.array([[3, 4], [0, 0], [1e-38, 0], [3e38, 3e38]], np.float32)
    found = checked(rows, 4, 2)
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 0, 1, 1]) and not np.shares_memory(found, rows)
    assert rows[0, 0] == 3


async def test_the_width_may_not_change() -> None:
    """Neither between two calls nor within one."""
    provider = Fixed([[1.0, 0.0]])
    embedding = Embedding(provider)
    await embedding.embed(["a"], Deadline.after(SOON))
    provider.rows = [[1.0, 0.0, 0.0]]
    with pytest.raises(EmbeddingError, match="from 2 to 3"):
        await embedding.embed(["a"], Deadline.after(SOON))
    provider.rows = [[1.0], [1.0, 2.0]]
    with pytest.raises(EmbeddingError):
        await embedding.embed(["a", "b"], Deadline.after(SOON))


async def test_requests_to_a_plugin_wait_for_their_turn() -> None:
    """The provider, which refuses a second request, never sees one."""
    embedding = Embedding(Fixed(), serial=True)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(embedding.embed, ["a"], Deadline.after(SOON))
    with pytest.raises(ModelError, match="RuntimeError"):
        bare = Embedding(Fixed())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bare.embed, ["a"], Deadline.after(SOON))
                tasks.start_soon(bare.embed, ["b"], Deadline.after(SOON))
        except* ModelError as group:
            raise group.exceptions[0] from None


async def test_a_provider_that_ignores_the_deadline_is_left() -> None:
    """Our own deadline is an error of its own."""
    with pytest.raises(DeadlineExceeded):
        await Embedding(CountingEmbedder(seconds=30)).embed(["a"], Deadline.after(0.05))


def point(name: str, target: str = "tests_no_such_module:Provider") -> EntryPoint:
    return EntryPoint(name, target, "sapwood.embedding")


def test_none_installed_gives_the_hash_and_a_name_picks() -> None:
    """`auto` without a plug-in is the built-in hash; so is its name."""
    assert choose("auto", {"hash": HashEmbedder}, []).fingerprint.startswith("hash-128")
    assert choose("hash", {"hash": HashEmbedder}, [point("other")]).fingerprint.startswith("hash-128")


def test_one_installed_is_used() -> None:
    """Loaded by its entry point."""
    ours = point("ours", "pipeline.testing.doubles:CountingEmbedder")
    assert choose("auto", {"hash": HashEmbedder}, [ours]).fingerprint == "counting-16"
    assert choose("ours", {}, [ours, point("other")]).fingerprint == "counting-16"


def test_no_choice_is_a_configuration_error() -> None:
    """Several and none named, an unknown name, and one that cannot be loaded; each names the field."""
    for name, installed in (("auto", [point("a"), point("b")]), ("c", [point("a")]), ("a", [point("a")])):
        with pytest.raises(ConfigurationError, match=r"embedding\.provider"):
            choose(name, {"hash": HashEmbedder}, installed)


async def test_hash_vectors_follow_from_the_words_alone() -> None:
    """The order and neighbours of texts do not matter; known words make texts similar; nothing gives a zero vector."""
    embedding = Embedding(HashEmbedder())
    texts = [
        "Berlin is a city in Germany",
        "A German city: Berlin!",
        "Photosynthesis in plants",
        "",
        "the of",
        "東京タワー",
    ]
    found = await embedding.embed(texts, Deadline.after(SOON))
    assert found.shape == (6, 128) and found.dtype == np.float32
    assert found[0] @ found[1] > 0.5 > found[0] @ found[2]
    assert np.linalg.norm(found[3]) == 0 and np.isclose(np.linalg.norm(found[4]), 1)
    assert (found[::-1] == await embedding.embed(texts[::-1], Deadline.after(SOON))).all()


def test_hash_vectors_are_the_same_on_every_machine() -> None:
    """A golden value: bucket and sign of one word."""
    [vector] = hash_vectors(["Sapwood"])
    [bucket] = np.flatnonzero(vector)
    assert (int(bucket), round(float(vector[bucket]), 4)) == (56, 1.6931)


def hashes(texts: Sequence[str]) -> list[bytes]:
    return [text_hash(text) for text in texts]


async def test_paid_texts_are_asked_for_once() -> None:
    """Equal texts in one batch, and texts of an earlier batch, cost nothing; the order is that of the texts."""
    provider, cache, limiter = CountingEmbedder(), MemoryCache(), anyio.CapacityLimiter(4)
    embedding = Embedding(provider)
    texts = ["a", "b", "a", "c"] + [f"t{n}" for n in range(300)]
    first, _ = await embed_texts(cache, CORPUS, embedding, texts, hashes(texts), limiter, Deadline.after(SOON))
    again, spent = await embed_texts(
        cache, CORPUS, embedding, texts[::-1], hashes(texts[::-1]), limiter, Deadline.after(SOON)
    )
    assert set(provider.texts.values()) == {1} and provider.calls == 3 and spent == 0
    assert (first == again[::-1]).all() and (first[0] == first[2]).all()


async def test_what_is_not_paid_is_not_cached() -> None:
    """The built-in hash never touches the cache."""

    class Untouched(MemoryCache):
        async def vectors(self, *_: Any) -> Any:
            raise AssertionError

        put_vectors = vectors

    found, _ = await embed_texts(
        Untouched(),
        CORPUS,
        Embedding(HashEmbedder()),
        ["a"],
        hashes(["a"]),
        anyio.CapacityLimiter(1),
        Deadline.after(SOON),
    )
    assert found.shape == (1, 128)


async def test_retryable_errors_are_tried_again_and_others_are_not() -> None:
    """Within bounds, and only where the error says so."""
    flaky = CountingEmbedder(failures=[ModelError("busy")] * 3)
    assert (await Embedding(flaky).embed(["a"], Deadline.after(SOON))).shape == (1, 16) and flaky.calls == 4
    dead = CountingEmbedder(failures=[ModelError("busy")] * 9)
    with pytest.raises(ModelError):
        await Embedding(dead).embed(["a"], Deadline.after(SOON))
    broken = CountingEmbedder(failures=[EmbeddingError("bad")] * 9)
    with pytest.raises(EmbeddingError):
        await Embedding(broken).embed(["a"], Deadline.after(SOON))
    assert (dead.calls, broken.calls) == (paid.ATTEMPTS, 1)


async def test_a_failing_call_leaves_the_finished_ones_cached() -> None:
    """The batch fails with the call's own error, not a group, and a second try pays for the rest only."""
    texts = [f"t{n}" for n in range(300)]
    provider, cache = CountingEmbedder(), MemoryCache()
    embedding = Embedding(provider)
    half = texts[:128]
    await embed_texts(cache, CORPUS, embedding, half, hashes(half), anyio.CapacityLimiter(1), Deadline.after(SOON))
    provider.failures = [EmbeddingError("bad")]
    with pytest.raises(EmbeddingError):
        await embed_texts(
            cache, CORPUS, embedding, texts, hashes(texts), anyio.CapacityLimiter(1), Deadline.after(SOON)
        )
    await embed_texts(cache, CORPUS, embedding, texts, hashes(texts), anyio.CapacityLimiter(1), Deadline.after(SOON))
    assert all(provider.texts[text] == 1 for text in half)

"""What every `Cache` and `ContextCache` must do. Inherit, and give `cache` and two distinct corpora as fixtures."""

from __future__ import annotations

import numpy as np

from pipeline.ingest.contexts import ContextCache
from pipeline.ports import Cache
from schemas.graph import Extraction, Fact, Mention, MentionOrigin
from schemas.ids import CorpusId, text_hash

ONE, TWO, OTHER = (text_hash(text) for text in ("one", "two", "other"))

FULL = Extraction(
    mentions=(
        Mention("Ada Lovelace", "Person", 0, 12, description="A mathematician."),
        Mention("Ödön", "X", origin=MentionOrigin.TITLE),
        Mention("Ödön", "Y", properties={"born": 1815, "height": 1e16, "known": True, "of": "x"}),
    ),
    facts=(
        Fact("Ada Lovelace", "Person", "KNOWS", "Ödön", "X", 0.75, 3, 9),
        Fact("Ödön", "Y", "KNOWS", "Ödön", "X", properties={"since": 1.0}),
    ),
    input_tokens=7,
    output_tokens=3,
    warnings=("a 'warning' with \"quotes\"",),
)


def kinds(one: Extraction) -> list[dict[str, type]]:
    """Return the types of all properties: 1, 1.0 and true are equal."""
    given = [mention.properties for mention in one.mentions] + [fact.properties for fact in one.facts]
    return [{name: type(value) for name, value in properties.items()} for properties in given]


class CacheContract:
    """The suite."""

    async def test_vectors_come_back_bit_for_bit(self, cache: Cache, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Float32 goes in and the same float32 comes out; unknown hashes are simply missing."""
        corpus, _ = corpora
        vectors = {ONE: np.array([0.1, -2.5, 1e-30], np.float32), TWO: np.array([1, 2, 3], np.float32)}
        await cache.put_vectors(corpus, "model", vectors)
        found = await cache.vectors(corpus, "model", [TWO, OTHER, ONE])
        assert set(found) == {ONE, TWO}
        assert all(found[key].dtype == np.float32 and found[key].tobytes() == vectors[key].tobytes() for key in found)

    async def test_extractions_come_back_whole(self, cache: Cache, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Every field survives, an empty extraction too."""
        corpus, _ = corpora
        await cache.put_extractions(corpus, "reader", {ONE: FULL, TWO: Extraction()})
        found = await cache.extractions(corpus, "reader", [ONE, TWO, OTHER])
        assert found == {ONE: FULL, TWO: Extraction()}
        assert kinds(found[ONE]) == kinds(FULL)

    async def test_the_first_value_stays(self, cache: Cache, corpora: tuple[CorpusId, CorpusId]) -> None:
        """A second put of a hash changes nothing and is no error."""
        corpus, _ = corpora
        await cache.put_vectors(corpus, "first", {ONE: np.array([1.0], np.float32)})
        await cache.put_vectors(corpus, "first", {ONE: np.array([2.0], np.float32), TWO: np.array([3.0], np.float32)})
        found = await cache.vectors(corpus, "first", [ONE, TWO])
        assert [found[ONE][0], found[TWO][0]] == [1.0, 3.0]
        await cache.put_extractions(corpus, "first", {ONE: FULL})
        await cache.put_extractions(corpus, "first", {ONE: Extraction()})
        assert await cache.extractions(corpus, "first", [ONE]) == {ONE: FULL}

    async def test_corpora_and_models_are_apart(self, cache: Cache, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Nothing is found under another corpus or fingerprint."""
        corpus, foreign = corpora
        await cache.put_vectors(corpus, "apart", {ONE: np.array([1.0], np.float32)})
        await cache.put_extractions(corpus, "apart", {ONE: FULL})
        assert not await cache.vectors(foreign, "apart", [ONE]) and not await cache.vectors(corpus, "elsewhere", [ONE])
        assert not await cache.extractions(foreign, "apart", [ONE]) and not await cache.extractions(
            corpus, "elsewhere", [ONE]
        )

    async def test_nothing_asked_nothing_found(self, cache: Cache, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Empty requests are allowed."""
        corpus, _ = corpora
        await cache.put_vectors(corpus, "none", {})
        await cache.put_extractions(corpus, "none", {})
        assert await cache.vectors(corpus, "none", []) == {} and await cache.extractions(corpus, "none", []) == {}


class ContextCacheContract:
    """The suite for contexts."""

    async def test_the_first_context_of_a_place_stays(
        self, cache: ContextCache, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """A second one changes nothing and is no error; of unknown places there is nothing."""
        corpus, _ = corpora
        await cache.put_context(corpus, "writer", ONE, TWO, "It stands in »Ödön«.")
        await cache.put_context(corpus, "writer", ONE, OTHER, "another")
        assert await cache.contexts(corpus, "writer", [OTHER, ONE]) == {ONE: "It stands in »Ödön«."}

    async def test_contexts_of_corpora_and_models_are_apart(
        self, cache: ContextCache, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Nothing is found under another corpus or fingerprint, nor where nothing is asked."""
        corpus, foreign = corpora
        await cache.put_context(corpus, "mine", ONE, TWO, "here")
        assert not await cache.contexts(foreign, "mine", [ONE]) and not await cache.contexts(corpus, "theirs", [ONE])
        assert await cache.contexts(corpus, "mine", []) == {}

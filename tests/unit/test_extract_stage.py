"""Extraction as a stage: what is paid for once, in how many slots, and what survives a failure or a cancellation."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, ModelError, ModelRefused
from pipeline.ingest import paid
from pipeline.ingest.extract import Extracted, extract_texts
from pipeline.ingest.offline import OfflineExtractor, extract
from pipeline.ports import Extractor
from pipeline.testing.cache_contract import CacheContract, ContextCacheContract
from pipeline.testing.doubles import CountingExtractor, MemoryCache
from schemas.graph import Extraction
from schemas.ids import CorpusId, text_hash

CORPUS = CorpusId(1)


class TestMemoryCache(CacheContract, ContextCacheContract):
    """The cache double keeps the contracts."""

    @pytest.fixture
    def cache(self) -> MemoryCache:
        return MemoryCache()

    @pytest.fixture
    def corpora(self) -> tuple[CorpusId, CorpusId]:
        return CorpusId(1), CorpusId(2)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once."""
    monkeypatch.setattr(paid, "PAUSE", 0.0)


async def run(
    extractor: Extractor, texts: Sequence[str], cache: MemoryCache, slots: int = 4, seconds: float = 30.0
) -> list[Extracted]:
    hashes = [text_hash(text) for text in texts]
    limiter = anyio.CapacityLimiter(slots)
    return await extract_texts(cache, CORPUS, extractor, texts, hashes, limiter, Deadline.after(seconds))


def texts_of(count: int) -> list[str]:
    return [f"Acme{n} acquired Beta{n}." for n in range(count)]


async def test_each_distinct_text_is_paid_for_once() -> None:
    """Within a batch and over batches; tokens are counted where they were spent."""
    extractor, cache = CountingExtractor(), MemoryCache()
    texts = [*texts_of(20), *texts_of(20)]
    first = await run(extractor, texts, cache)
    again = await run(extractor, texts, cache)
    assert set(extractor.texts.values()) == {1}
    tokens = [one.input_tokens for one in first if isinstance(one, Extraction)]
    assert tokens == [1] * 20 + [0] * 20
    assert all(isinstance(one, Extraction) and one.input_tokens == 0 for one in again)
    assert [one.facts for one in again if isinstance(one, Extraction)] == [extract(text).facts for text in texts]


async def test_slots_are_used_and_never_exceeded_even_by_two_batches() -> None:
    """The limiter is shared: together the batches fill it, and no more."""
    extractor, cache, limiter = CountingExtractor(seconds=0.01), MemoryCache(), anyio.CapacityLimiter(4)

    async def batch(name: str) -> None:
        texts = [f"{name} {text}" for text in texts_of(20)]
        await extract_texts(cache, CORPUS, extractor, texts, [text_hash(t) for t in texts], limiter, Deadline.after(30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(batch, "One")
        tasks.start_soon(batch, "Two")
    assert extractor.busiest == 4 and len(extractor.texts) == 40


async def test_one_bad_answer_fails_one_text_visibly() -> None:
    """The error is that text's result; it is not cached, so a later run asks again."""
    texts = texts_of(5)
    extractor, cache = CountingExtractor(answers={texts[2]: ModelRefused("no")}), MemoryCache()
    found = await run(extractor, texts, cache)
    assert [isinstance(one, ModelError) for one in found] == [False, False, True, False, False]
    await run(extractor, texts, cache)
    assert [extractor.texts[text] for text in texts] == [1, 1, 2, 1, 1]


async def test_a_retryable_error_is_tried_again_within_bounds() -> None:
    """As often as allowed, then it is the text's result."""
    [text] = texts_of(1)
    extractor = CountingExtractor(answers={text: ModelError("busy")})
    assert isinstance((await run(extractor, [text], MemoryCache()))[0], ModelError)
    assert extractor.texts[text] == paid.ATTEMPTS


async def test_a_model_that_cannot_be_used_fails_the_batch() -> None:
    """A wrong key is no document's fault: it is raised as it is, not in a group."""
    texts = texts_of(5)
    with pytest.raises(ConfigurationError):
        await run(CountingExtractor(answers={texts[1]: ConfigurationError("key")}), texts, MemoryCache())


async def test_cancellation_keeps_every_finished_call() -> None:
    """After a cancelled run only texts that were in flight are paid for again."""
    extractor, cache, texts = CountingExtractor(seconds=0.01), MemoryCache(), texts_of(40)

    async def watch(scope: anyio.CancelScope) -> None:
        for _ in range(10_000):
            if len(extractor.texts) >= 20:
                break
            await anyio.sleep(0.002)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        await run(extractor, texts, cache)
    started = len(extractor.texts)
    assert 20 <= started < 40
    await run(extractor, texts, cache)
    assert len(extractor.texts) == 40
    assert sum(count > 1 for count in extractor.texts.values()) <= 4


async def test_the_deadline_ends_the_stage() -> None:
    """An extractor that has no time left says so."""
    with pytest.raises(DeadlineExceeded):
        await OfflineExtractor().extract(texts_of(1), Deadline.after(0))


async def test_offline_results_are_cached_unless_told_otherwise() -> None:
    """In one statement; a later run reads them back equal."""
    cache, texts = MemoryCache(), texts_of(3)
    hashes = [text_hash(text) for text in texts]
    found = await run(OfflineExtractor(), texts, cache)
    assert await cache.extractions(CORPUS, OfflineExtractor.fingerprint, hashes) == dict(
        zip(hashes, found, strict=True)
    )
    assert await run(OfflineExtractor(), texts, cache) == found
    other, limiter = MemoryCache(), anyio.CapacityLimiter(1)
    again = await extract_texts(
        other, CORPUS, OfflineExtractor(), texts, hashes, limiter, Deadline.after(30), keep_unpaid=False
    )
    assert again == found and await other.extractions(CORPUS, OfflineExtractor.fingerprint, hashes) == {}

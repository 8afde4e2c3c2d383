"""Extraction as a stage: the cache in front of a paid extractor, and one visible failure for each text that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, ModelError, SapwoodError
from pipeline.ingest.paid import firsts, kept, retried, spread
from pipeline.ports import Cache, Extractor
from schemas.graph import Extraction
from schemas.ids import CorpusId

Extracted = Extraction | SapwoodError


async def extract_texts(
    cache: Cache,
    corpus: CorpusId,
    extractor: Extractor,
    texts: Sequence[str],
    hashes: Sequence[bytes],
    limiter: anyio.CapacityLimiter,
    deadline: Deadline,
    *,
    keep_unpaid: bool = True,
    turn: anyio.Lock | None = None,
) -> list[Extracted]:
    """Return what was found in each text, or why it failed, in order.

    The extractor is asked once for each distinct text that the cache lacks. A paid one is asked text by text, each
    call in a slot of the limiter, tried again within bounds, and kept as soon as it is done: a cancelled or failed
    run never pays twice. Token counts are of calls made now, on the first of equal texts. One that is not paid is
    asked for all at once, and kept in one statement; `keep_unpaid` false leaves the cache out, which saves what
    writing costs a first run (0.05 ms a chunk, a fifth of the offline extraction) and gives up what reading saves a
    later one (0.2 ms a chunk).

    Batches that share a `turn` begin their calls one after the other.

    Raises:
        ConfigurationError: the model cannot be used at all.
        DeadlineExceeded: the deadline passed; finished calls are kept.
    """
    if not (extractor.paid or keep_unpaid):
        return await extractor.extract(texts, deadline)
    first = firsts(hashes)
    cached = await cache.extractions(corpus, extractor.fingerprint, list(first))
    found: dict[bytes, Extracted] = {key: _free(one) for key, one in cached.items()}
    missing = [key for key in first if key not in found]

    async def call(keys: Sequence[bytes]) -> None:
        async with limiter:
            asked = [texts[first[key]] for key in keys]
            answers = (
                [await _one(extractor, asked[0], deadline)]
                if extractor.paid
                else await extractor.extract(asked, deadline)
            )
        fresh = dict(zip(keys, answers, strict=True))
        found.update(fresh)
        done = {key: answer for key, answer in fresh.items() if isinstance(answer, Extraction)}
        await kept(cache.put_extractions(corpus, extractor.fingerprint, done))

    calls = [[key] for key in missing] if extractor.paid else [missing] if missing else []
    await spread(call, calls, limiter, turn)
    return [found[key] if first[key] == at else _again(found[key]) for at, key in enumerate(hashes)]


async def _one(extractor: Extractor, text: str, deadline: Deadline) -> Extracted:
    """Extract from one text; a failure of this text is a result, one of the whole extractor or of time is raised."""

    async def ask() -> Extraction:
        [result] = await extractor.extract([text], deadline)
        if isinstance(result, SapwoodError):
            raise result
        return result

    try:
        return await retried(ask, deadline)
    except (ConfigurationError, DeadlineExceeded):
        raise
    except SapwoodError as error:
        return error
    except Exception as error:
        failure = ModelError(f"The extractor failed with {type(error).__name__}.")
        failure.__cause__ = error
        return failure


def _free(extraction: Extraction) -> Extraction:
    return replace(extraction, input_tokens=0, output_tokens=0)


def _again(result: Extracted) -> Extracted:
    return _free(result) if isinstance(result, Extraction) else result

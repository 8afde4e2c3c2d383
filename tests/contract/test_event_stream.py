"""The contract of event streams for the plain reference and for real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from redis.asyncio import Redis

from pipeline.adapters import memory_events, redis_streams
from pipeline.adapters.memory_events import MemoryStream
from pipeline.adapters.redis_streams import RedisStreams, open_streams
from pipeline.errors import StoreUnavailable
from pipeline.testing.event_stream_contract import EventStreamContract, Flush, new_run
from schemas.events import Event
from schemas.ids import RunId

MINUTES = 120


class TestReference(EventStreamContract):
    @pytest.fixture
    def stream(self, monkeypatch: pytest.MonkeyPatch) -> MemoryStream:
        monkeypatch.setattr(memory_events, "BLOCK_SECONDS", MINUTES)
        return MemoryStream()

    @pytest.fixture
    def flush(self, stream: MemoryStream) -> Flush:
        return stream.flush


class TestValkey(EventStreamContract):
    @pytest.fixture
    async def stream(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStreams]:
        monkeypatch.setattr(redis_streams, "BLOCK_MS", MINUTES * 1000)
        async with open_streams(redis_url) as opened:
            yield opened

    @pytest.fixture
    async def flush(self, redis_url: str) -> AsyncIterator[Flush]:
        async with Redis.from_url(redis_url) as redis:
            yield redis.flushdb

    async def test_an_entry_of_another_version_is_read_from_the_log_instead(
        self, stream: RedisStreams, redis_url: str
    ) -> None:
        """Whoever reads the stream takes it for one that is away."""
        run = new_run()
        async with Redis.from_url(redis_url) as redis:
            await redis.xadd(f"sapwood:events:{run}", {"e": '{"version": 2}'}, id="1-0")
        for call in (stream.read(run, 0, 10), stream.listen({run: 0})):
            with pytest.raises(StoreUnavailable):
                await call


class Repeating(MemoryStream):
    """Takes what was published again for something new."""

    async def publish(self, events: Sequence[Event]) -> None:
        await super().publish(events)
        for event in events:
            self._runs[RunId(event.run_id)].append(event)


class Unforgetting(MemoryStream):
    """Keeps what was flushed."""

    async def flush(self) -> None: ...


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (Repeating, EventStreamContract.test_publishing_again_adds_nothing),
        (Unforgetting, EventStreamContract.test_a_flush_is_forgetting),
    ],
)
async def test_the_contract_finds_a_broken_stream(
    broken: type[MemoryStream], case: Callable[..., Awaitable[object]]
) -> None:
    stream = broken()
    given = (stream, stream.flush) if broken is Unforgetting else (stream,)
    with pytest.raises(AssertionError):
        await case(EventStreamContract(), *given)

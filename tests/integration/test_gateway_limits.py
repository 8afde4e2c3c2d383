"""The limits of the gateway, and its streams: what is refused, what is cancelled, and by whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from pipeline.errors import EventsExpired, RunCancelled, StoreUnavailable, TooMany
from worker.gateway.access import Principal, Scope
from worker.gateway.limits import Limits, RateLimited
from worker.gateway.presence import while_there
from worker.gateway.sse import EventStream, Pace, Say
from worker.settings import load


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def limits(clock: Clock | None = None, **values: str) -> Limits:
    return Limits(load({f"SAPWOOD_GATEWAY_{name.upper()}": value for name, value in values.items()}), clock or Clock())


@settings(deadline=None)
@given(st.lists(st.floats(0, 3), max_size=60), st.sampled_from([0.5, 1.0, 7.0]))
def test_a_rate_is_never_passed_and_never_denied_below_it(pauses: list[float], rate: float) -> None:
    """In any window, at most a burst and what the time gives; and whoever is told to wait may come after that long."""
    clock = Clock()
    one = limits(clock, requests_per_second=str(rate))
    burst, admitted = max(1.0, rate), 0
    for pause in pauses:
        clock.now += pause
        try:
            one.admit("t")
            admitted += 1
        except TooMany as error:
            clock.now += error.retry_after
            one.admit("t")
            admitted += 1
        assert admitted <= burst + (clock.now - 100.0) * rate + 1e-3


def test_a_tenant_spends_only_its_own() -> None:
    one = limits(requests_per_second="1", direct_queries="2", streams="1")
    one.admit("a")
    with pytest.raises(TooMany):
        one.admit("a")
    one.admit("b")
    with one.query("a"), one.query("a"), one.stream("a"):
        with pytest.raises(TooMany, match="direct queries"), one.query("a"):
            pass
        with one.query("b"):
            pass
    with one.query("a"), one.query("a"):
        pass


async def test_whoever_is_known_is_counted_once_a_request() -> None:
    class Known:
        async def principal(self, authorization: str | None) -> Principal:
            return Principal("t", "k", frozenset(Scope))

    door = RateLimited(Known(), limits(requests_per_second="1"))
    assert (await door.principal(None)).tenant == "t"
    with pytest.raises(TooMany):
        await door.principal(None)


class Client:
    """One end of a response: reads until it leaves, or stops reading."""

    def __init__(self, *, reads: int | None = None, stays: bool = True) -> None:
        self.messages: list[Message] = []
        self.gone = anyio.Event()
        self._reads = reads
        if not stays:
            self.gone.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._reads is not None and len(self.messages) >= self._reads:
            await anyio.sleep_forever()
        self.messages.append(message)

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()

    @property
    def complete(self) -> bool:
        return self.messages[-1].get("more_body") is False


async def respond(
    client: Client, produce: Callable[[Say], Awaitable[None]], pace: Pace | None = None, held: Any = None
) -> None:
    pace = pace or Pace(heartbeat=60, send=60, closing=anyio.Event())
    with anyio.fail_after(20):
        await EventStream(produce, pace, held or nullcontext())({"type": "http"}, client.receive, client.send)


async def test_a_stream_says_what_there_is_and_ends() -> None:
    async def produce(say: Say) -> None:
        await say("queued", "{}", "1")
        await say("done", "{}", None)

    await respond(client := Client(), produce)
    assert client.text == "retry: 1000\n\nid: 1\nevent: queued\ndata: {}\n\nevent: done\ndata: {}\n\n"
    assert client.complete
    headers = dict(client.messages[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in headers


async def test_a_client_that_leaves_cancels_the_stream_and_frees_its_place() -> None:
    one = limits(streams="1")
    ended = anyio.Event()

    async def produce(say: Say) -> None:
        try:
            client.gone.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    client = Client()
    await respond(client, produce, held=one.stream("t"))
    assert ended.is_set()
    assert not client.complete
    with one.stream("t"):
        pass


async def test_a_slow_client_loses_its_connection() -> None:
    """It took the head and two parts; what it did not take has an id, so that it can come back for it."""

    async def produce(say: Say) -> None:
        for number in range(1, 100):
            await say("e", "{}", str(number))

    client = Client(reads=3)
    await respond(client, produce, Pace(60, 0.05, anyio.Event()))
    assert "id: 1\n" in client.text
    assert "id: 2\n" not in client.text
    assert not client.complete


async def test_a_quiet_stream_shows_that_it_lives_and_a_busy_one_does_not_need_to() -> None:
    async def quiet(say: Say) -> None:
        while client.text.count(":\n\n") < 3:  # noqa: ASYNC110 - the heart beats beside us
            await anyio.sleep(0.01)

    client = Client()
    await respond(client, quiet, Pace(0.02, 60, anyio.Event()))
    assert client.complete


async def test_a_server_that_stops_ends_its_streams_in_order() -> None:
    pace = Pace(60, 60, anyio.Event())

    async def produce(say: Say) -> None:
        await say("e", "{}", "1")
        pace.closing.set()
        await anyio.sleep_forever()

    client = Client()
    await respond(client, produce, pace)
    assert client.text.endswith("id: 1\nevent: e\ndata: {}\n\n")
    assert client.complete


@pytest.mark.parametrize(("error", "end"), [(EventsExpired(), "event: reset\n"), (StoreUnavailable(), "id: 7\n")])
async def test_beyond_retention_is_a_reset_and_a_fault_is_an_end(error: Exception, end: str) -> None:
    """The reset empties the client's `Last-Event-ID`; after a fault it comes back with the id that it has."""

    async def produce(say: Say) -> None:
        await say("e", "{}", "7")
        raise error

    client = Client()
    await respond(client, produce)
    assert client.complete
    assert client.text.split("\n\n")[-2].startswith("id: \nevent: reset\n" if "reset" in end else "id: 7\n")


async def test_work_for_one_client_ends_when_it_leaves_and_not_before() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> int:
        raise StoreUnavailable()

    client = Client()
    assert await while_there(client.receive, answer) == 7
    with pytest.raises(StoreUnavailable):
        await while_there(client.receive, fail)
    client.gone.set()
    with anyio.fail_after(20), pytest.raises(RunCancelled):
        await while_there(client.receive, anyio.sleep_forever)

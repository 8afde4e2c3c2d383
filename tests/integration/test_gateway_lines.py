"""Long answers line by line: whole or visibly cut, and ended with whoever asked for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import anyio
import pytest

from pipeline.errors import NotFound, StoreUnavailable, TooMany
from tests.integration.test_gateway_limits import Client, limits
from worker.gateway.lines import PART_BYTES, JsonLines


async def respond(client: Client, read: Callable[[], AsyncGenerator[str, None]], seconds: float = 60.0) -> None:
    """Answer with the one stream that there is a place for; afterwards the place is free."""
    one = limits(streams="1")
    with anyio.fail_after(20):
        await JsonLines(read, seconds, one.stream("t"))({"type": "http"}, client.receive, client.send)
    with one.stream("t"):
        pass


@pytest.mark.parametrize("count", [0, 1, 3, 5000])
async def test_all_lines_come_in_parts_of_a_fair_size(count: int) -> None:
    async def read() -> AsyncGenerator[str, None]:
        for number in range(count):
            yield f'{{"number": {number}, "text": "\u00e9{"x" * 50}"}}'

    await respond(client := Client(), read)
    assert client.complete
    assert client.text.count("\n") == count == len(client.text.splitlines())
    assert len(client.messages) <= 3 + len(client.text.encode()) / PART_BYTES
    assert client.messages[0]["type"] == "http.response.start"


async def test_what_fails_before_the_first_line_is_a_problem_and_later_a_cut() -> None:
    """A client can not take a part for the whole: an answer that was cut has no proper end."""

    async def nothing() -> AsyncGenerator[str, None]:
        raise NotFound("There is no such generation.")
        yield ""

    async def part() -> AsyncGenerator[str, None]:
        yield "x" * PART_BYTES
        raise StoreUnavailable()

    await respond(client := Client(), nothing)
    assert client.messages[0]["status"] == 404
    assert "There is no such generation." in client.text
    await respond(client := Client(), part)
    assert (client.messages[0]["status"], client.complete) == (200, False)
    one = limits(streams="1")
    with one.stream("t"), pytest.raises(TooMany):
        await JsonLines(nothing, 1.0, one.stream("t"))({"type": "http"}, client.receive, client.send)


async def test_a_client_that_leaves_or_takes_nothing_ends_the_reading() -> None:
    """The reader is closed, with what it holds: a pin, and a transaction."""
    closed: list[str] = []

    async def endless(who: str) -> AsyncGenerator[str, None]:
        try:
            while True:
                yield "x" * PART_BYTES
                if who == "left":
                    left.gone.set()
                    await anyio.sleep_forever()
        finally:
            closed.append(who)

    left, slow = Client(), Client(reads=3)
    await respond(left, lambda: endless("left"))
    await respond(slow, lambda: endless("slow"), 0.05)
    assert closed == ["left", "slow"]
    assert not left.complete and not slow.complete

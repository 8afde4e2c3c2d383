"""Many clients of one gateway in a process of their own, so that what they cost is not taken for the server's.

They speak just enough HTTP: one GET, and lines of server-sent events as they come.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import orjson
from anyio.abc import ByteStream

from schemas.events import TERMINAL_TYPES

PATIENCE = 600.0
"""Seconds after which they give up, if nobody ended them before; nothing is asserted about times."""


@dataclass
class Orders:
    """What the clients are to do: one client for each path, `every` seconds apart.

    Each begins after the event `after` and leaves after event `last`, or at the final one. It loses its connection after
    this part of the events, and comes back with the id of the last.
    """

    port: int
    paths: list[str]
    after: int = 0
    last: int = sys.maxsize
    dropped: float = 0.0
    every: float = 0.0


@dataclass
class Report:
    """What they saw. `resumes` are the seconds from the wish to connect to the first event that was missed."""

    seen: list[list[int]] = field(default_factory=list[list[int]])
    resumes: list[float] = field(default_factory=list[float])
    refused: int = 0


async def order(orders: Orders) -> Report:
    """Have the clients do this, in another process."""
    command = [sys.executable, "-m", "tests.gateway_clients"]
    done = await anyio.run_process(command, input=orjson.dumps(orders), stderr=None)
    return Report(**orjson.loads(done.stdout))


async def work(orders: Orders) -> Report:
    """Be the clients."""
    report = Report()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            for number, path in enumerate(orders.paths):
                group.start_soon(_client, orders, path, random.Random(number), report)
                await anyio.sleep(orders.every)
    return report


async def _client(orders: Orders, path: str, chance: random.Random, report: Report) -> None:
    got: list[int] = []
    place, ended = orders.after, False
    while not ended:
        began, back = time.perf_counter(), place > 0
        async with _connected(orders.port, path, place) as (status, events):
            if status != 200:  # too much at once: a client comes again
                report.refused += 1
                await anyio.sleep(0.5)
                continue
            async for place, kind in events:
                if back:
                    report.resumes.append(time.perf_counter() - began)
                    back = False
                got.append(place)
                ended = kind in TERMINAL_TYPES or place >= orders.last
                if ended or chance.random() < orders.dropped:
                    break
    report.seen.append(got)


@asynccontextmanager
async def _connected(
    port: int, path: str, after: int
) -> AsyncGenerator[tuple[int, AsyncGenerator[tuple[int, str], None]], None]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nlast-event-id: {after}\r\n\r\n".encode())
        head, _, rest = (await stream.receive()).partition(b"\r\n\r\n")
        yield int(head.split(b" ", 2)[1]), _events(stream, rest)


async def _events(stream: ByteStream, rest: bytes) -> AsyncGenerator[tuple[int, str], None]:
    """Yield the ids and names of events; the sizes of chunks are lines of their own, and no event is parted by one."""
    place = 0
    while True:
        *lines, rest = rest.split(b"\n")
        for line in lines:
            name, _, value = line.partition(b": ")
            if name == b"id":
                place = int(value)
            elif name == b"event":
                yield place, value.decode()
        try:
            rest += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


def percentiles(seconds: Sequence[float]) -> str:
    """Return the median and the 95th percentile as words."""
    ordered = sorted(seconds)
    p50, p95 = (ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.95))
    return f"p50 {p50:.3f} s, p95 {p95:.3f} s"


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(anyio.run(work, Orders(**orjson.loads(sys.stdin.buffer.read())))))

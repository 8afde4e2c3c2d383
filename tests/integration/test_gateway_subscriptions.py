"""Many subscriptions of one gateway, reads that are dropped, and a queue that forgets everything in the middle."""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path

import anyio
import httpx
import pytest
from redis.asyncio import Redis

from tests.cli_driver import say
from tests.gateway_driver import Gateway, running, said, settings
from tests.integration.test_gateway_events import Author

SUBSCRIBERS = int(os.environ.get("SAPWOOD_SUBSCRIBERS") or 60)
"""How many clients follow one run at once."""

DROPPED = 0.1
"""The part of the reads after which a client loses its connection."""


async def test_every_subscriber_sees_every_event_once_whatever_is_dropped_and_flushed(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    given = settings(tmp_path, database, redis_url, gateway_streams=10 * SUBSCRIBERS, gateway_send_seconds=120.0)
    seen: list[list[int]] = []
    resumes: list[float] = []
    async with running(given) as gateway, Redis.from_url(redis_url) as redis:
        author = await Author.begin(gateway, "c")
        async with anyio.create_task_group() as group:
            for number in range(SUBSCRIBERS):
                group.start_soon(follow, gateway, author, random.Random(number), seen, resumes)
            for round_ in range(10):
                await author.say(4)
                if round_ == 5:
                    await redis.flushdb()
                await anyio.sleep(0.1)
            await author.say(1, last=True)
    assert len(seen) == SUBSCRIBERS
    assert all(got == list(range(1, author.said + 1)) for got in seen)
    assert len(resumes) > SUBSCRIBERS / 2
    p95 = statistics.quantiles(resumes, n=20)[-1]
    figures = (
        f"{SUBSCRIBERS} subscriptions saw 1..{author.said} once each; {len(resumes)} came back for what they missed"
    )
    say(request, f"{figures}: p50 {statistics.median(resumes):.3f} s, p95 {p95:.3f} s to the first of it")


async def follow(
    gateway: Gateway, author: Author, chance: random.Random, seen: list[list[int]], resumes: list[float]
) -> None:
    """Follow a run to its end, losing the connection now and then; note how long a missed event was waited for."""
    got: list[int] = []
    ended = False
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=gateway.http.base_url, timeout=120, verify=False, limits=limits) as http:
        while not ended:
            begin, missed = time.perf_counter(), bool(got) and got[-1] < author.said
            headers = {"last-event-id": str(got[-1])} if got else {}
            async with http.stream("GET", author.path, headers=headers) as response:
                if response.status_code in (503, 504):  # too much at once: a client comes again
                    await anyio.sleep(0.5)
                    continue
                assert response.status_code == 200, await response.aread()
                async for event in said(response):
                    if missed:
                        resumes.append(time.perf_counter() - begin)
                        missed = False
                    got.append(int(event.id))
                    ended = event.event == "unchanged"
                    if ended or chance.random() < DROPPED:
                        break
    seen.append(got)

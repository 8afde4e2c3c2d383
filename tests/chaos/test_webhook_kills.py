"""Workers killed between the post of a message and the note of it: repeated with the same id, never lost."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import anyio
import pytest
from anyio.abc import Process

from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_webhooks import PostgresWebhooks
from pipeline.addresses import networks
from pipeline.deadline import Deadline
from pipeline.egress import Egress
from schemas.webhooks import DeliveryState, Webhook
from tests.webhook_receiver import PATIENCE, Received, Receiver, receiving

ROOT = Path(__file__).resolve().parents[2]
LEASE = 1.0
MESSAGES = 12
KILLS = 2


@asynccontextmanager
async def courier(database: str, mode: str) -> AsyncGenerator[Process, None]:
    """Run a process that delivers, and leave none behind."""
    command = [sys.executable, str(ROOT / "tests/chaos/webhook_courier.py"), database, str(LEASE), mode]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = await anyio.open_process(command, env=environment, stdout=None, stderr=None)
    try:
        yield process
    finally:
        with anyio.move_on_after(20, shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def prepared(pool: Pool, receiver: Receiver) -> Webhook:
    """Make a webhook that has messages waiting."""
    registry = PostgresWebhooks(pool, Egress(allowed=networks("127.0.0.0/8")).check)
    made, _ = await registry.create("default", f"http://127.0.0.1:{receiver.port}/in", deadline=Deadline.after(10))
    for _ in range(MESSAGES):
        await registry.ping("default", made.webhook_id, Deadline.after(10))
    return made


async def states(pool: Pool) -> Counter[str]:
    async with pool.connection(Deadline.after(10)) as tx:
        rows = await tx.fetch("select state, count(*) as n from delivery group by state")
    return Counter({row["state"]: row["n"] for row in rows})


async def killed_in_the_middle(database: str, mode: str, *, frozen: bool = False) -> tuple[Receiver, set[str]]:
    """Kill the process whenever a message has arrived, some times over; then let one work in peace until nothing is pending.

    Return the receiver and the messages that it answered: none of those that arrived before a kill. If `frozen`, those are
    answered with 200 as well, but the sender stands still from their arrival to its end, and cannot note it.
    """
    peace, arrived, answered, senders = False, anyio.Event(), set[str](), list[Process]()

    async def answer(message: Received) -> int:
        if not peace and frozen:
            senders[-1].send_signal(SIGSTOP)
        arrived.set()
        if not peace and not frozen:
            await anyio.sleep_forever()
        answered.add(message.message_id)
        return 200

    async with open_pool(database, 2) as pool, receiving(answer) as receiver:
        await prepared(pool, receiver)
        with anyio.fail_after(PATIENCE):
            for _ in range(KILLS):
                arrived = anyio.Event()
                async with courier(database, mode) as process:
                    senders.append(process)
                    await arrived.wait()
                    process.send_signal(SIGKILL)
                    assert await process.wait() == -SIGKILL
            peace = True
            async with courier(database, mode):
                while (await states(pool))[DeliveryState.PENDING]:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
        assert await states(pool) == {DeliveryState.DELIVERED: MESSAGES}
        return receiver, answered


@pytest.mark.parametrize("frozen", [False, True], ids=["before the answer", "after the answer"])
async def test_what_a_killed_worker_had_posted_is_repeated_and_nothing_is_lost(database: str, frozen: bool) -> None:
    """Every message is answered in the end, those that were cut off too, under the ids and with the bodies of before."""
    receiver, answered = await killed_in_the_middle(database, "careful", frozen=frozen)
    times = Counter(receiver.ids)
    assert answered == set(times) and len(times) == MESSAGES
    assert max(times.values()) > 1, "some were cut off"
    assert len({(one.message_id, one.body) for one in receiver.got}) == MESSAGES


async def test_who_notes_before_posting_loses_messages(database: str) -> None:
    """The negative control: the same kills, and messages that count as delivered though no receiver ever took them."""
    receiver, answered = await killed_in_the_middle(database, "forgetful")
    assert len(answered) < MESSAGES
    assert set(receiver.ids) - answered, "some of them had arrived, and were cut off"

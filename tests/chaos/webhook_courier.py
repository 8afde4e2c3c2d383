"""A process that delivers webhooks as a worker does. `forgetful` is the negative control: it notes before it posts."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import anyio

from pipeline.adapters.http_webhooks import HttpSender
from pipeline.adapters.postgres_pool import open_pool
from pipeline.adapters.postgres_webhooks import PostgresDeliveries
from pipeline.addresses import networks
from pipeline.deadline import Deadline
from pipeline.egress import Egress
from pipeline.webhooks import Due, Outcome, Places, Verdict
from worker.metrics import Metrics
from worker.webhooks import deliver_webhooks


class Forgetful(PostgresDeliveries):
    """Counts a message as delivered as soon as it is taken: at most once, instead of at least once."""

    async def claim(self, busy: Mapping[str, int], places: Places, deadline: Deadline) -> list[Due]:
        found = await super().claim(busy, places, deadline)
        for due in found:
            await self.settle(due, Verdict(Outcome.DELIVERED, 200), deadline)
        return found


async def main(database: str, lease: float, kind: type[PostgresDeliveries]) -> None:
    """Deliver until killed."""
    async with open_pool(database, 4) as pool:
        sender = HttpSender(Egress(allowed=networks("127.0.0.0/8")))
        await deliver_webhooks(kind(pool, lease_seconds=lease), sender, Metrics())


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], float(sys.argv[2]), Forgetful if sys.argv[3] == "forgetful" else PostgresDeliveries)

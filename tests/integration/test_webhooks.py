"""Webhooks over a real database and a real receiver: enqueued with the end of a run, delivered at least once, by tenant."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from pipeline.adapters.http_webhooks import HttpSender
from pipeline.adapters.postgres_events import PostgresEvents
from pipeline.adapters.postgres_metrics import PostgresStanding
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_runs import PostgresRuns
from pipeline.adapters.postgres_webhooks import KEEP_SECONDS, MOST, PostgresDeliveries, PostgresWebhooks
from pipeline.deadline import Deadline
from pipeline.errors import Conflict, FencedOut, NotFound, Refused, StoreRefused
from pipeline.tenancy import act_for, apart
from pipeline.webhooks import Outcome, Pace, Places, Verdict
from schemas.events import Completed, Event, Unchanged
from schemas.ids import CorpusId, RunId
from schemas.query import QueryResult
from schemas.runs import Lease, RunKind, RunState
from schemas.webhooks import Delivery, DeliveryState, Ending, Kind, SigningSecret, Webhook
from tests.webhook_receiver import PATIENCE, Received, Receiver, receiving
from worker.webhooks import Courier

ALL = tuple(RunKind)
DONE = Unchanged(generation=1, outcomes={})
AT_ONCE = Pace(first=0.0, attempts=4)
"""For tests that want the next attempt now."""


def soon() -> Deadline:
    return Deadline.after(10)


class Silent:
    """A herald that tells nobody."""

    def ring(self, run_id: RunId, fence: int) -> None:
        """See `Herald`."""

    def publish(self, run_id: RunId) -> None:
        """See `Herald`."""


@dataclass
class Place:
    """A database with a corpus for each of two tenants, and a receiver."""

    pool: Pool
    receiver: Receiver
    corpora: dict[str, CorpusId]
    webhooks: PostgresWebhooks
    deliveries: PostgresDeliveries
    outcomes: list[Outcome] = field(default_factory=list)

    def runs(self, owner: str = "a", crashes: int = 5) -> PostgresRuns:
        return PostgresRuns(self.pool, Silent(), owner=owner, lease_seconds=30.0, max_crashes=crashes)

    async def create(self, tenant: str = "red", url: str = "", **more: Any) -> tuple[Webhook, SigningSecret]:
        return await self.webhooks.create(tenant, url or self.receiver.url, **more, deadline=soon())

    async def all(self, webhook: Webhook) -> list[Delivery]:
        return await self.webhooks.deliveries(webhook.tenant, webhook.webhook_id, 1000, soon())

    async def sql(self, statement: str, *values: object) -> Any:
        async with self.pool.connection(soon()) as tx:
            return await tx.fetchval(statement, *values)

    async def claimed(self, tenant: str = "red", kind: RunKind = RunKind.INDEX) -> Lease:
        runs = self.runs()
        run = await runs.submit(self.corpora[tenant], kind, {})
        lease = await runs.claim(run.run_id, 1, ALL)
        assert lease is not None
        return lease

    async def ended(self, tenant: str = "red", kind: RunKind = RunKind.INDEX) -> RunId:
        """End a run as a worker does, and return it."""
        lease = await self.claimed(tenant, kind)
        async with self.runs().fenced(lease) as tx:
            result = QueryResult(generation=1, complete=True, missing=(), hits=(), seconds=0.1)
            tx.event(DONE if kind is RunKind.INDEX else Completed(result=result))
            tx.finish(RunState.COMPLETED)
        return lease.run_id

    def courier(self, pace: Pace = AT_ONCE, deliveries: PostgresDeliveries | None = None) -> Courier:
        sender = HttpSender(self.receiver.egress())
        return Courier(deliveries or self.deliveries, sender, self.outcomes.append, pace=pace)

    async def settled(self, webhook: Webhook, *states: DeliveryState, pace: Pace = AT_ONCE) -> list[Delivery]:
        """Deliver until the deliveries of a webhook, the newest first, are in these states."""
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as group:
                group.start_soon(self.courier(pace).work)
                found = await self.all(webhook)
                while [one.state for one in found] != list(states):
                    await anyio.sleep(0.02)
                    found = await self.all(webhook)
                group.cancel_scope.cancel()
        return found


@asynccontextmanager
async def placed(
    database: str, answer: Callable[[Received], Awaitable[int]] | None = None
) -> AsyncGenerator[Place, None]:
    async with open_pool(database, 10) as pool, receiving(*([answer] if answer else [])) as receiver:
        async with pool.connection(soon()) as tx:
            await tx.execute("insert into tenant (name) values ('red'), ('green')")
            rows = await tx.fetch(
                "insert into corpus (tenant, name) values ('red', 'shared'), ('green', 'shared') returning tenant, corpus_id"
            )
        corpora = {row["tenant"]: CorpusId(row["corpus_id"]) for row in rows}
        webhooks = PostgresWebhooks(pool, receiver.egress().check)
        yield Place(pool, receiver, corpora, webhooks, PostgresDeliveries(pool))


def stuck() -> Callable[[Received], Awaitable[int]]:
    async def answer(_: Received) -> int:
        await anyio.sleep_forever()
        raise AssertionError

    return answer


DELIVERED, FAILED, PENDING = DeliveryState.DELIVERED, DeliveryState.FAILED, DeliveryState.PENDING


async def completed(place: Place) -> RunId:
    return await place.ended()


async def answered(place: Place) -> RunId:
    return await place.ended(kind=RunKind.QUERY)


async def failed(place: Place) -> RunId:
    lease = await place.claimed()
    async with place.runs().fenced(lease) as tx:
        tx.finish(RunState.FAILED, "it could not be")
    return lease.run_id


async def cancelled_in_the_queue(place: Place) -> RunId:
    run = await place.runs().submit(place.corpora["red"], RunKind.QUERY, {})
    await place.runs().cancel(run.run_id, "not needed")
    return run.run_id


async def cancelled_with_its_batches(place: Place) -> RunId:
    lease, runs = await place.claimed(), place.runs()
    async with runs.fenced(lease) as tx:
        tx.spawn([{}, {}], 1)
    await runs.cancel(lease.run_id, "not needed")
    return lease.run_id


async def crashed_too_often(place: Place) -> RunId:
    lease = await place.claimed()
    await place.sql("update run set lease_until = clock_timestamp() - interval '1 s'")
    assert await place.runs(crashes=1).sweep() == 1
    return lease.run_id


async def expired_in_the_queue(place: Place) -> RunId:
    run = await place.runs().submit(place.corpora["red"], RunKind.QUERY, {}, seconds=3600.0)
    await place.sql("update run set deadline_at = clock_timestamp() - interval '1 s'")
    assert await place.runs().sweep() == 1
    return run.run_id


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        (completed, "unchanged"),
        (answered, "completed"),
        (failed, "failed"),
        (cancelled_in_the_queue, "cancelled"),
        (cancelled_with_its_batches, "cancelled"),
        (crashed_too_often, "failed"),
        (expired_in_the_queue, "expired"),
    ],
)
async def test_however_a_run_ends_its_receiver_gets_the_final_event(
    database: str, end: Callable[[Place], Awaitable[RunId]], wanted: str
) -> None:
    """Once, signed, with the id of its place in the log; the body is the event of the log."""
    async with placed(database) as place:
        webhook, secret = await place.create(corpus="shared")
        run_id = await end(place)
        [delivery] = await place.settled(webhook, DELIVERED)
        [message] = place.receiver.got
        *_, last = await PostgresEvents(place.pool).read(run_id, 0, 1000)
        assert last.terminal and last.body.type == wanted == message.json["type"]
        assert {"type": wanted, **last.model_dump(mode="json")} == message.json
        assert Event.model_validate({key: value for key, value in message.json.items() if key != "type"}) == last
        assert message.message_id == f"{run_id}-{last.seq}" == delivery.message_id
        assert message.verified(secret.reveal()) and not message.verified(SigningSecret.new().reveal())
        assert message.headers["content-type"] == "application/json" and message.path == "/in"
        assert (delivery.attempts, delivery.status, delivery.error) == (1, 204, "")
        assert place.outcomes == [Outcome.DELIVERED]


async def test_a_delivery_commits_with_the_end_of_its_run_or_not_at_all(database: str) -> None:
    """A worker that was fenced out at the last moment ends nothing, and tells nobody."""
    async with placed(database) as place:
        webhook, _ = await place.create()
        lease = await place.claimed()
        await place.sql("update run set fence = fence + 1 where run_id = $1", lease.run_id)
        with pytest.raises(FencedOut):
            async with place.runs().fenced(lease) as tx:
                tx.event(DONE)
                tx.finish(RunState.COMPLETED)
        with pytest.raises(ZeroDivisionError):
            async with place.pool.transaction(soon()) as tx:
                await tx.execute(
                    "insert into event (run_id, seq, corpus_id, corpus_seq, body) values ($1, 9, $2, 1, $3)",
                    lease.run_id,
                    lease.corpus_id,
                    DONE.model_dump(mode="json"),
                )
                assert await tx.fetchval("select count(*) from delivery") == 1, "it is in the very transaction"
                raise ZeroDivisionError
        assert await place.all(webhook) == []


async def test_a_webhook_hears_of_what_it_asked_for(database: str) -> None:
    """By corpus, kind and ending; of nothing that ended before it was made, or while it was disabled."""
    async with placed(database) as place:
        await place.sql("insert into corpus (tenant, name) values ('red', 'other')")
        await place.ended()
        wanted = {
            "all": await place.create(),
            "corpus": await place.create(corpus="shared"),
            "other": await place.create(corpus="other"),
            "index": await place.create(kinds=[Kind.INDEX]),
            "query": await place.create(kinds=[Kind.QUERY]),
            "failures": await place.create(events=[Ending.FAILED, Ending.EXPIRED]),
            "green": await place.create("green"),
        }
        off, _ = await place.create()
        await place.webhooks.set_enabled("red", off.webhook_id, False, soon())
        await place.ended()
        await place.ended(kind=RunKind.QUERY)
        await failed(place)
        heard = {name: [one.type for one in await place.all(webhook)] for name, (webhook, _) in wanted.items()}
        assert heard == {
            "all": ["failed", "completed", "unchanged"],
            "corpus": ["failed", "completed", "unchanged"],
            "other": [],
            "index": ["failed", "unchanged"],
            "query": ["completed"],
            "failures": ["failed"],
            "green": [],
        }
        assert await place.all(off) == []
        assert (await place.webhooks.set_enabled("red", off.webhook_id, True, soon())).disabled_reason == ""
        await place.ended()
        assert [one.type for one in await place.all(off)] == ["unchanged"]


async def test_a_receiver_that_was_down_gets_the_same_message_when_it_is_up(database: str) -> None:
    """With the same id and body each time, and a signature of the time of each attempt."""
    answers = [500, 503, 302]

    async def answer(_: Received) -> int:
        return answers.pop(0) if answers else 200

    async with placed(database, answer) as place:
        webhook, secret = await place.create()
        await place.ended()
        [delivery] = await place.settled(webhook, DELIVERED)
        assert delivery.attempts == 4
        assert place.outcomes == [Outcome.RETRIED] * 3 + [Outcome.DELIVERED]
        assert len(place.receiver.got) == 4
        assert len({(one.message_id, one.body) for one in place.receiver.got}) == 1
        assert all(one.verified(secret.reveal()) for one in place.receiver.got)


async def test_a_failed_attempt_is_due_again_later_and_says_why(database: str) -> None:
    async def answer(_: Received) -> int:
        return 500

    async with placed(database, answer) as place:
        webhook, _ = await place.create()
        await place.ended()
        async with anyio.create_task_group() as group:
            group.start_soon(place.courier(Pace(first=3600.0, factor=1.0)).work)
            await place.receiver.until(lambda: bool(place.outcomes))
            while not (found := await place.all(webhook))[0].error:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert (found[0].state, found[0].status, found[0].error) == (PENDING, 500, "the receiver answered 500")
        wait = await place.sql("select extract(epoch from due_at - clock_timestamp())::float8 from delivery")
        assert 0.7 * 3600 < wait < 1.3 * 3600
        assert await place.deliveries.claim({}, Places(), soon()) == []


async def test_what_is_given_up_is_seen_and_can_be_delivered_again(database: str) -> None:
    """After the last attempt; by hand it begins anew, with its id."""
    status = 500

    async def answer(_: Received) -> int:
        return status

    async with placed(database, answer) as place:
        webhook, _ = await place.create()
        await place.ended()
        [delivery] = await place.settled(webhook, FAILED)
        assert (delivery.attempts, delivery.status, delivery.finished_at is not None) == (4, 500, True)
        assert place.outcomes[-1] is Outcome.FAILED
        status = 200
        again = await place.webhooks.retry("red", webhook.webhook_id, delivery.delivery_id, soon())
        assert (again.state, again.attempts, again.finished_at) == (PENDING, 0, None)
        [delivery] = await place.settled(webhook, DELIVERED)
        assert delivery.attempts == 1 and len(set(place.receiver.ids)) == 1


async def test_a_receiver_that_is_gone_is_left_alone(database: str) -> None:
    """410 disables the webhook; what was pending is given up, what ends later is not enqueued."""

    async def answer(_: Received) -> int:
        return 410

    async with placed(database, answer) as place:
        webhook, _ = await place.create()
        await place.ended()
        later = await place.ended()
        await place.sql("update delivery set due_at = clock_timestamp() + interval '1 h' where run_id = $1", later)
        second, first = await place.settled(webhook, FAILED, FAILED)
        assert (first.status, second.attempts, second.error) == (410, 0, "the webhook was disabled")
        shown = await place.webhooks.get("red", webhook.webhook_id, soon())
        assert (shown.enabled, shown.disabled_reason) == (False, "the receiver answered 410 Gone")
        await place.ended()
        assert len(await place.all(webhook)) == 2
        for call in (
            place.webhooks.ping("red", webhook.webhook_id, soon()),
            place.webhooks.retry("red", webhook.webhook_id, first.delivery_id, soon()),
        ):
            with pytest.raises(Conflict, match="disabled"):
                await call
        assert await place.webhooks.set_enabled("red", webhook.webhook_id, False, soon()) == shown, "the first reason"
        assert [one.state for one in await place.all(webhook)] == [FAILED, FAILED]
        assert len(place.receiver.got) == 1


async def test_a_receiver_that_hangs_holds_up_no_other_and_holds_few_places(database: str) -> None:
    """It has thirty messages waiting before the other has one."""
    async with placed(database, stuck()) as hanging, receiving() as quick:
        slow, _ = await hanging.create()
        for _ in range(30):
            await hanging.ended()
        egress = quick.egress(hanging.receiver.port)
        webhooks = PostgresWebhooks(hanging.pool, egress.check)
        brisk, _ = await webhooks.create("red", quick.url, deadline=soon())
        last = [await hanging.ended() for _ in range(12)]
        courier = Courier(hanging.deliveries, HttpSender(egress), hanging.outcomes.append, pace=AT_ONCE)
        async with anyio.create_task_group() as group:
            group.start_soon(courier.work)
            await quick.until(lambda: len(quick.got) == 12)
            assert len(hanging.receiver.got) == Places().per_webhook
            group.cancel_scope.cancel()
        assert {one.rsplit("-", 1)[0] for one in quick.ids} == set(last)
        assert {one.state for one in await hanging.all(slow)} == {PENDING}
        assert len(await hanging.all(brisk)) == 12


async def test_the_slow_receivers_of_one_tenant_hold_up_no_other_tenant(database: str) -> None:
    """Red has more slow webhooks than there are places, and messages waiting for each, before green has one."""
    async with placed(database, stuck()) as hanging, receiving() as quick:
        for _ in range(10):
            await hanging.create()
        for _ in range(5):
            await hanging.ended()
        egress = quick.egress(hanging.receiver.port)
        webhooks, places = PostgresWebhooks(hanging.pool, egress.check), Places()
        assert 10 * places.per_webhook > places.at_once > places.per_tenant
        courier = Courier(hanging.deliveries, HttpSender(egress), hanging.outcomes.append, pace=AT_ONCE)
        async with anyio.create_task_group() as group:
            group.start_soon(courier.work)
            await hanging.receiver.until(lambda: len(hanging.receiver.got) == places.per_tenant)
            await webhooks.create("green", quick.url, deadline=soon())
            last = [await hanging.ended("green") for _ in range(12)]
            await quick.until(lambda: len(quick.got) == 12)
            assert len(hanging.receiver.got) == places.per_tenant
            group.cancel_scope.cancel()
        assert {one.rsplit("-", 1)[0] for one in quick.ids} == set(last)


async def test_places_go_first_to_the_tenants_that_have_the_fewest(database: str) -> None:
    """Also where there are fewer than messages, and others have more at work already."""
    async with placed(database) as place:
        red = [(await place.create())[0].webhook_id for _ in range(3)]
        green = (await place.create("green"))[0].webhook_id
        for _ in range(4):
            await place.ended()
        await place.ended("green")
        few = Places(at_once=8, per_tenant=5, per_webhook=2)
        taken = [one.webhook_id for one in await place.deliveries.claim({red[0]: 1, red[1]: 2}, few, soon())]
        assert sorted(taken) == sorted([green, *(name for name in taken if name in red)]) and len(taken) == 3
        assert taken.count(red[1]) == 0 and taken.count(red[0]) <= 1
        await place.sql("update delivery set due_at = now()")
        [one] = await place.deliveries.claim({red[0]: 1}, Places(2, 5, 2), soon())
        assert one.webhook_id == green, "it has none at work"
        assert await place.deliveries.claim({green: 2}, Places(2, 5, 2), soon()) == []


@pytest.mark.parametrize(("status", "held"), [(503, True), (429, True), (500, False)])
async def test_a_receiver_that_asks_for_a_pause_gets_it(database: str, status: int, held: bool) -> None:
    """For the message, and where the answer speaks of the receiver, for all that it is to be told; others are not held."""

    async def busy(message: Received) -> int:
        return status if message.path == "/in" else 204

    async with placed(database, busy) as place:
        place.receiver.retry_after = "600"
        webhook, _ = await place.create()
        other, _ = await place.create(url=place.receiver.url.replace("/in", "/out"))
        for _ in range(6):
            await place.ended()
        one_by_one = Courier(
            place.deliveries, HttpSender(place.receiver.egress()), place.outcomes.append, places=Places(4, 4, 1)
        )
        async with anyio.create_task_group() as group:
            group.start_soon(one_by_one.work)
            await place.receiver.until(lambda: len(place.outcomes) >= (7 if held else 12))
            await anyio.sleep(0.6)  # a round more
            group.cancel_scope.cancel()
        assert place.outcomes.count(Outcome.RETRIED) == (1 if held else 6)
        waits = "select min(due_at) > now() + interval '9 minutes' from delivery where webhook_id = $1"
        assert await place.sql(waits, webhook.webhook_id)
        assert {one.state for one in await place.all(other)} == {DELIVERED}


async def test_a_message_that_was_under_way_is_repeated_after_its_lease(database: str) -> None:
    """A courier that is cancelled in the middle leaves it to another; a late note of the first changes nothing."""
    async with placed(database, stuck()) as place:
        webhook, _ = await place.create()
        await place.ended()
        brief = PostgresDeliveries(place.pool, lease_seconds=0.5)
        [taken] = await brief.claim({}, Places(), soon())
        assert await brief.claim({}, Places(), soon()) == [], "leased"
        async with anyio.create_task_group() as group:
            group.start_soon(place.courier(deliveries=brief).work)
            await place.receiver.until(lambda: bool(place.receiver.got))
            group.cancel_scope.cancel()
        assert place.receiver.ids == [taken.message_id]
        assert not await brief.settle(taken, Verdict(Outcome.FAILED, 500), soon())

        async def well(_: Received) -> int:
            return 200

        place.receiver.answer = well
        [delivery] = await place.settled(webhook, DELIVERED)
        assert delivery.attempts == 3 and set(place.receiver.ids) == {taken.message_id}


async def test_two_couriers_share_the_work(database: str) -> None:
    async with placed(database) as place:
        webhook, _ = await place.create()
        for _ in range(20):
            await place.ended()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(place.courier().work)
            await place.receiver.until(lambda: len(place.outcomes) == 20)
            await anyio.sleep(0.6)  # a round more
            group.cancel_scope.cancel()
        assert len(place.receiver.ids) == len(set(place.receiver.ids)) == 20
        assert {one.state for one in await place.all(webhook)} == {DELIVERED}


async def test_a_rotated_secret_and_the_former_one_both_fit_for_a_day(database: str) -> None:
    async with placed(database) as place:
        webhook, first = await place.create()
        rotated, second = await place.webhooks.rotate("red", webhook.webhook_id, soon())
        assert rotated.rotating_until is not None and webhook.rotating_until is None
        await place.webhooks.ping("red", webhook.webhook_id, soon())
        await place.settled(webhook, DELIVERED)
        await place.sql("update webhook set former_until = clock_timestamp() - interval '1 s'")
        await place.webhooks.ping("red", webhook.webhook_id, soon())
        await place.settled(webhook, DELIVERED, DELIVERED)
        during, after = place.receiver.got
        assert [during.verified(one.reveal()) for one in (first, second)] == [True, True]
        assert [after.verified(one.reveal()) for one in (first, second)] == [False, True]
        assert (await place.webhooks.get("red", webhook.webhook_id, soon())).rotating_until is None
        assert during.json["type"] == "ping" == during.json["body"]["type"] and during.json["run_id"] is None
        assert during.message_id != after.message_id


async def test_a_url_that_leads_to_a_private_place_is_refused_when_it_is_used_too(database: str) -> None:
    """A name is known only when it is resolved; what is wrong is seen, and tried again."""
    async with placed(database) as place:
        for url in ("http://127.0.0.2/", "http://user@hooks.test/", "ftp://hooks.test/", "http://10.0.0.1/"):
            with pytest.raises(Refused):
                await place.create(url=url)
        assert await place.webhooks.listing("red", soon()) == []
        webhook, _ = await place.create(url="http://metadata.evil/latest")
        await place.ended()
        [delivery] = await place.settled(webhook, FAILED)
        assert delivery.error == "address rule: the host resolves to a link-local address"
        assert (delivery.attempts, delivery.status, place.receiver.got) == (4, None, [])


async def test_no_tenant_reaches_the_webhooks_of_another(database: str) -> None:
    """Neither by our statements, nor by any other: the database shows and takes nothing."""
    async with placed(database) as place:
        webhook, _ = await place.create("green")
        await place.ended("green")
        [delivery] = await place.all(webhook)
        for tenant in ("red", "default", "nobody"):
            assert await place.webhooks.listing(tenant, soon()) == []
            assert await place.webhooks.deliveries(tenant, webhook.webhook_id, 10, soon()) == []
            for call in (
                place.webhooks.get(tenant, webhook.webhook_id, soon()),
                place.webhooks.delete(tenant, webhook.webhook_id, soon()),
                place.webhooks.set_enabled(tenant, webhook.webhook_id, False, soon()),
                place.webhooks.rotate(tenant, webhook.webhook_id, soon()),
                place.webhooks.ping(tenant, webhook.webhook_id, soon()),
                place.webhooks.retry(tenant, webhook.webhook_id, delivery.delivery_id, soon()),
            ):
                with pytest.raises(NotFound):
                    await call
        with apart():
            act_for("red")
            async with place.pool.connection(soon()) as tx:
                for table in ("webhook", "delivery"):
                    assert await tx.fetchval(f"select count(*) from {table}") == 0
                assert await tx.execute("update webhook set enabled = false") == "UPDATE 0"
                assert await tx.execute("delete from delivery") == "DELETE 0"
            for statement, values in (
                ("insert into delivery (webhook_id) values ($1)", [webhook.webhook_id]),
                (
                    "insert into webhook (webhook_id, tenant, corpus_id, url, secret, kinds, events)"
                    " values ('w', 'red', $1, 'u', decode(repeat('00', 24), 'hex'), '{index}', '{failed}')",
                    [place.corpora["green"]],
                ),
            ):
                with pytest.raises(StoreRefused, match="42501"):
                    async with place.pool.connection(soon()) as tx:
                        await tx.execute(statement, *values)
        assert await place.webhooks.get("green", webhook.webhook_id, soon()) == webhook


async def test_a_run_that_a_tenant_ends_itself_is_told_within_the_wall(database: str) -> None:
    """As through the gateway: the statements, and so the trigger, work as the role of tenants."""
    async with placed(database) as place:
        foreign, _ = await place.create("green")
        with apart():
            act_for("red")
            webhook, _ = await place.create("red", corpus="shared")
            run = await place.runs().submit(place.corpora["red"], RunKind.INDEX, {})
            await place.runs().cancel(run.run_id, "")
            assert [one.type for one in await place.all(webhook)] == ["cancelled"]
            await place.webhooks.rotate("red", webhook.webhook_id, soon())
            await place.webhooks.ping("red", webhook.webhook_id, soon())
        assert await place.all(foreign) == []
        assert [one.type for one in await place.settled(webhook, DELIVERED, DELIVERED)] == ["ping", "cancelled"]


async def test_a_corpus_or_tenant_that_is_deleted_leaves_nothing(database: str) -> None:
    """A webhook of all corpora stays when one of them goes, without the deliveries of its runs."""
    async with placed(database) as place:
        for corpus in ("shared", None):
            await place.create(corpus=corpus)
        await place.ended()
        assert await place.sql("select count(*) from delivery") == 2
        await place.sql("delete from corpus where tenant = 'red'")
        assert await place.sql("select count(*) from delivery") == 0
        [left] = await place.webhooks.listing("red", soon())
        assert left.corpus is None
        await place.webhooks.ping("red", left.webhook_id, soon())
        await place.sql("delete from tenant where name = 'red'")
        for table in ("webhook", "delivery"):
            assert await place.sql(f"select count(*) from {table}") == 0


@pytest.mark.parametrize("careful", [True, False])
async def test_a_webhook_that_is_deleted_at_that_moment_keeps_no_run_from_ending(database: str, careful: bool) -> None:
    """The end waits for the deletion and then knows of no webhook. Without the lock, a foreign key would undo the end."""
    async with placed(database) as place:
        if not careful:
            source = await place.sql("select pg_get_functiondef('sapwood.enqueue_deliveries'::regproc)")
            await place.sql(source.replace("for key share of w", ""))
        await place.create()
        lease = await place.claimed()

        async def end() -> None:
            async with place.runs().fenced(lease) as tx:
                tx.event(DONE)
                tx.finish(RunState.COMPLETED)

        async def waiting() -> bool:
            found = await place.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
            return bool(found)

        outcome = None
        try:
            async with anyio.create_task_group() as group, place.pool.transaction(soon()) as tx:
                await tx.execute("delete from webhook")
                group.start_soon(end)
                with anyio.fail_after(PATIENCE):
                    while not await waiting():  # noqa: ASYNC110
                        await anyio.sleep(0.01)
        except ExceptionGroup as group_of_one:
            outcome = group_of_one.exceptions[0]
        state = (await place.runs().info(lease.run_id)).state
        if careful:
            assert (outcome, state) == (None, RunState.COMPLETED)
        else:
            assert isinstance(outcome, StoreRefused) and "23503" in str(outcome) and state is RunState.RUNNING
        assert await place.sql("select count(*) from delivery") == 0


async def test_a_tenant_has_a_bounded_number_of_webhooks_of_what_there_is(database: str) -> None:
    async with placed(database) as place:
        for tenant, corpus in (("nobody", None), ("red", "missing")):
            with pytest.raises(NotFound):
                await place.create(tenant, corpus=corpus)
        for _ in range(MOST):
            await place.create()
        with pytest.raises(Conflict, match=str(MOST)):
            await place.create()
        await place.create("green")
        await place.webhooks.delete("red", (await place.webhooks.listing("red", soon()))[0].webhook_id, soon())
        await place.create()


async def test_what_waits_is_measured_and_what_is_over_is_forgotten(database: str) -> None:
    async with placed(database) as place:
        webhook, _ = await place.create()

        async def standing() -> dict[str, float]:
            readings = await PostgresStanding(place.pool).read(soon())
            return {gauge: value for gauge, _, _, value in readings if gauge.startswith("webhooks")}

        assert await standing() == {"webhooks_due": 0, "webhooks_oldest_due_seconds": 0}
        for _ in range(3):
            await place.ended()
        await place.sql("update delivery set due_at = due_at - interval '1 h'")
        found = await standing()
        assert found["webhooks_due"] == 3 and 3600 <= found["webhooks_oldest_due_seconds"] < 3700
        await place.settled(webhook, DELIVERED, DELIVERED, DELIVERED)
        assert await standing() == {"webhooks_due": 0, "webhooks_oldest_due_seconds": 0}
        await place.ended()
        assert await place.deliveries.forget(soon()) == 0
        await place.sql(
            "update delivery set created_at = created_at - make_interval(secs => $1),"
            " finished_at = finished_at - make_interval(secs => $1)",
            KEEP_SECONDS + 60,
        )
        assert await place.deliveries.forget(soon()) == 3
        assert [one.state for one in await place.all(webhook)] == [PENDING], "what is pending is never forgotten"
        await place.sql("update run set finished_at = finished_at - interval '30 days'")
        log = PostgresEvents(place.pool)
        assert await log.expire(place.corpora["red"], 7.0, 100) == 3, "nor is the run of which it tells"
        await place.settled(webhook, DELIVERED)
        assert await log.expire(place.corpora["red"], 7.0, 100) == 1
        assert await place.all(webhook) == [], "a run takes its deliveries with it"

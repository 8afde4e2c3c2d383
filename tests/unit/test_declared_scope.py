"""What a request brings along, and what is softened for it: scopes, cancellations, failures."""

from __future__ import annotations

import anyio
import pytest

from pipeline import errors
from pipeline.deadline import Deadline
from pipeline.declare import Cancellation, Knowledge, OnFailure, RetrievalContext, SearchSettings, Strategy
from pipeline.declare.asking import request_of, scope_key
from pipeline.declare.failures import PROVIDER, failure_of
from pipeline.declare.plan import documents_of, in_scope, source_of
from pipeline.errors import DeadlineExceeded, InvalidRequest, RunCancelled, SapwoodError


def made(kind: type[SapwoodError]) -> SapwoodError:
    if kind is errors.PromotionRefused:
        return errors.PromotionRefused(())
    return errors.Refusal("CODE", "message") if kind is errors.Refusal else kind()


SOFT = {
    "RetrievalError", "DependencyError", "StoreUnavailable", "Unreachable", "EmbeddedServerError", "ModelError",
    "ModelRefused", "EmbeddingError", "StoreRefused", "Conflict", "Duplicate", "FencedOut", "PromotionConflict",
    "GenerationChanged", "InconsistentGeneration", "DocumentError", "ParserKilled", "LeftOut",
}  # fmt: skip


def test_every_error_is_softened_or_not_on_purpose() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, SapwoodError)]
    assert {kind.__name__ for kind in kinds if failure_of(made(kind)) is not None} == SOFT
    found = failure_of(errors.StoreUnavailable("gone"))
    assert found and (found.reason, str(found)) == (PROVIDER, "gone")


async def test_a_cancellation_ends_what_is_under_way_and_what_comes_later() -> None:
    cancellation, ended = Cancellation(), list[str]()

    async def wait() -> None:
        with pytest.raises(RunCancelled, match="enough"), cancellation.ending():
            await anyio.sleep_forever()
        ended.append("one")

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        cancellation.cancel("enough")
        cancellation.cancel("again")
    assert ended == ["one"] * 3
    with pytest.raises(RunCancelled, match="enough"), cancellation.ending():
        raise AssertionError("it began")


async def test_the_deadline_and_somebody_elses_cancellation_are_told_apart() -> None:
    scope = RetrievalContext()
    with pytest.raises(DeadlineExceeded), scope.limits(Deadline.after(0.01)):
        await anyio.sleep_forever()
    with anyio.CancelScope() as outer:
        with scope.limits(Deadline.after(60)):
            outer.cancel()
            await anyio.sleep_forever()
        raise AssertionError("it went on")
    assert outer.cancelled_caught


def test_a_scope_is_frozen_with_its_filters() -> None:
    filters = {"tier": "approved"}
    scope = RetrievalContext(filters=filters, session="s", run_id="r")
    filters["tier"] = "draft"
    assert scope.filters == {"tier": "approved"} and scope.labels == {"session": "s", "agent_run": "r"}
    assert scope_key(RetrievalContext(filters={"a": 1, "b": 2})) == scope_key(
        RetrievalContext(filters={"b": 2, "a": 1})
    )
    with pytest.raises(InvalidRequest, match="JSON"):
        scope_key(RetrievalContext(filters={"a": object()}))


def test_only_what_changes_documents_is_in_a_key() -> None:
    plain = SearchSettings()
    shown = SearchSettings(
        context_window=9, context_format="${content}", include_spec=True, on_failure=OnFailure.CONTINUE, query_param="q"
    )
    assert documents_of(shown) == plain and documents_of(SearchSettings(cache=False, cache_ttl=1.0)) == plain
    for other in (SearchSettings(top_k=6), SearchSettings(min_score=0.1), SearchSettings(deduplicate=False)):
        assert documents_of(other) == other != plain


async def test_a_request_has_all_that_scopes_it() -> None:
    docs, web = Knowledge("docs", path="docs"), Knowledge("web", path="other", max_tokens=5)
    assert in_scope((docs, web), ()) == (docs, web) and in_scope((docs, web), ("docs", "x")) == (docs,)
    assert source_of(web) == Knowledge("web", path="other")
    settings = SearchSettings(strategy=Strategy.TEMPORAL, time_field="date", window_days=2.0, top_k=7)
    request = request_of(settings, "q", (), RetrievalContext(filters={"a": 1}), Deadline.after(9))
    assert (request.top_k, request.filters, request.partial, request.cache, request.top_n) == (
        7,
        {"a": 1},
        False,
        False,
        None,
    )
    assert request.temporal and request.temporal.field == "date" and request.temporal.since is not None
    assert 0 < request.deadline <= 9
    with pytest.raises(InvalidRequest, match="text"):
        request_of(settings, "q" * 20_001, (), RetrievalContext(), Deadline.after(9))
    with pytest.raises(DeadlineExceeded):
        request_of(settings, "q", (), RetrievalContext(), Deadline.after(0))

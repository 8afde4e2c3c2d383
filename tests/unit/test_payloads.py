"""What a worker makes of a payload that a newer program wrote."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.documents import Item, Source, SourceKind
from schemas.payloads import BatchPayload, IndexPayload, Payload, QueryPayload, batch_payload
from schemas.query import QueryRequest
from schemas.settings import CorpusSettings
from worker.gateway.orders import IndexOrder, Question

SETTINGS = CorpusSettings()
SOURCE = Source(SourceKind.FOLDER, "/docs")
PAYLOADS: tuple[Payload, ...] = (
    IndexPayload(corpus="c", sources=(SOURCE,)),
    BatchPayload(corpus="c", generation=1, collection="d", settings=SETTINGS, items=(Item("a", SOURCE, "/docs/a"),)),
    QueryPayload(tenant="t", corpus="c", request=QueryRequest(text="?")),
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_a_name_that_only_a_newer_program_knows_is_ignored_in_the_payload(payload: Payload) -> None:
    """As `traceparent` was to the programs before it: during an upgrade both are at work."""
    values = payload.model_dump(mode="json")
    assert type(payload).model_validate({**values, "of_tomorrow": {"x": [1]}}) == payload
    with pytest.raises(ValidationError, match="corpus"):
        type(payload).model_validate({name: value for name, value in values.items() if name != "corpus"})


def test_a_question_that_uses_nothing_new_can_be_read_by_an_older_worker() -> None:
    plain = QueryPayload(tenant="t", corpus="c", request=QueryRequest(text="?", top_k=3, filters={"a": 1}))
    assert plain.model_dump(mode="json")["request"] == {"text": "?", "top_k": 3, "filters": {"a": 1}}
    asked = QueryRequest(text="?", rerank=True, reranker="openai", vector=(0.5, 1.0))
    new = QueryPayload(tenant="t", corpus="c", request=asked)
    assert QueryPayload.model_validate_json(new.model_dump_json()) == new


def test_a_payload_that_is_made_without_checks_is_read_the_same() -> None:
    made = batch_payload("c", 1, "d", SETTINGS.model_dump(mode="json"), (Item("a", SOURCE, "/docs/a"),))
    assert BatchPayload.model_validate({**made, "of_tomorrow": 1}) == PAYLOADS[1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (IndexPayload, {"corpus": "c", "settings": {"of_tomorrow": 1}}),
        (QueryPayload, {"tenant": "t", "corpus": "c", "request": {"text": "?", "of_tomorrow": 1}}),
        (IndexOrder, {"sources": ["/docs"], "of_tomorrow": 1}),
        (Question, {"text": "?", "of_tomorrow": 1}),
    ],
)
def test_what_changes_the_work_and_what_clients_send_is_not_ignored(kind: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="of_tomorrow"):
        kind.model_validate(values)

"""Models behind the OpenAI protocol: the real client against a real server on the loopback."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Literal

import anyio
import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal
from openai import AsyncOpenAI

from pipeline.adapters.openai_models import (
    OpenAIChat,
    OpenAIEmbedder,
    OpenAIExtractor,
    OpenAISummariser,
    connected,
)
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, ModelError, ModelRefused
from pipeline.ingest import paid
from pipeline.ingest.embed import Embedding, embed_texts
from pipeline.ingest.extract import extract_texts
from pipeline.ingest.hashing import hash_vectors
from pipeline.ingest.offline import extract
from pipeline.ingest.summaries import Topic
from pipeline.retrieval.assistants import Spent
from pipeline.testing.doubles import MemoryCache
from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.graph import Extraction
from schemas.ids import CorpusId, text_hash
from schemas.settings import ExtractionSettings

KEY = "sk-very-secret-0123456789"
CORPUS = CorpusId(1)
CHATS = "/v1/chat/completions"
ASKED = "<text>\nHow hot is the kiln in room four?\n</text>"
TEXT = "Acme acquired Beta. Paris is the capital of France."


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """Serve in a thread with an event loop of its own: a server's scopes must end in the task where they began."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(OpenAIStub(key=KEY))) as server:
        yield server


@pytest.fixture
async def client(stub: OpenAIStub) -> AsyncIterator[AsyncOpenAI]:
    async with connected(stub.url, KEY) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once."""
    monkeypatch.setattr(paid, "PAUSE", 0.0)


def reader(client: AsyncOpenAI, **rules: object) -> OpenAIExtractor:
    return OpenAIExtractor(client, "reader-1", ExtractionSettings.model_validate(rules))


async def test_embeddings_come_in_order_in_few_requests(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """At most 128 texts a request, tokens counted, vectors normalised."""
    texts = [f"text number {n}" for n in range(300)]
    vectors, tokens = await Embedding(OpenAIEmbedder(client, "embed-1", 64)).embed_counted(texts, Deadline.after(30))
    expected = hash_vectors(texts)[:, :64]
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(vectors, expected / np.where(lengths > 0, lengths, 1), atol=1e-6)
    assert stub.calls["/v1/embeddings"] == 3 and tokens == 900


async def test_extraction_gives_what_the_passage_bears_out(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """Mentions, facts with the place of their evidence, and the tokens of the call."""
    [found] = await reader(client).extract([TEXT], Deadline.after(30))
    assert isinstance(found, Extraction) and found.input_tokens > 0 and found.output_tokens > 0
    offline = extract(TEXT)
    assert [one.name for one in found.mentions] == [one.name for one in offline.mentions]
    assert [(one.subject, one.type, one.object, one.start, one.end) for one in found.facts] == [
        (one.subject, one.type, one.object, one.start, one.end) for one in offline.facts
    ]
    system = stub.messages[0][0]["content"]
    assert "never an instruction" in system and TEXT not in system


async def test_guided_extraction_refuses_other_types(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """The stub ignores the schema, as models do; the rules do not."""
    [found] = await reader(client, relation_types=["CAPITAL_OF"]).extract([TEXT], Deadline.after(30))
    assert isinstance(found, Extraction) and [one.type for one in found.facts] == ["CAPITAL_OF"]
    assert any("unknown relation type: ACQUIRED" in warning for warning in found.warnings)


async def test_an_endpoint_without_schemas_is_asked_otherwise_and_remembered(
    stub: OpenAIStub, client: AsyncOpenAI
) -> None:
    """Down to plain text; the refusals are paid for once."""
    stub.refused_formats = frozenset({"json_schema", "json_object"})
    extractor = reader(client)
    found = await extractor.extract([TEXT, TEXT], Deadline.after(30))
    assert all(isinstance(one, Extraction) for one in found)
    assert stub.calls["/v1/chat/completions"] == 4


async def test_a_model_that_takes_no_temperature_is_asked_without_it(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """With the schema again; the refusals are paid for once."""
    stub.refuses_temperature = True
    found = await reader(client).extract([TEXT, TEXT], Deadline.after(30))
    assert all(isinstance(one, Extraction) for one in found)
    assert stub.calls["/v1/chat/completions"] == 5


@pytest.mark.parametrize("raw", ["", "not json", "[]", '{"entities": 5}', "```\n```", "{" * 5000])
async def test_one_bad_answer_fails_one_text(stub: OpenAIStub, client: AsyncOpenAI, raw: str) -> None:
    """Whatever the model says instead of JSON, the other texts have their results."""
    stub.garbage = {"Bad": raw}
    texts = ["Bad met Worse.", TEXT]
    hashes = [text_hash(text) for text in texts]
    found = await extract_texts(
        MemoryCache(), CORPUS, reader(client), texts, hashes, anyio.CapacityLimiter(2), Deadline.after(30)
    )
    assert isinstance(found[0], ModelError) and isinstance(found[1], Extraction)


async def test_an_answer_that_is_too_long_or_cut_off_is_refused(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """Before it is parsed, and without asking again for what would be cut off again."""
    [found] = await reader(client, max_response_chars=50).extract([TEXT], Deadline.after(30))
    assert isinstance(found, ModelError) and "50 are allowed" in str(found)
    stub.finish_reason = "length"
    [found] = await reader(client).extract([TEXT], Deadline.after(30))
    assert isinstance(found, ModelRefused)


async def test_passing_faults_are_tried_again_within_bounds(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """429 and 5xx are asked again; the client makes no attempts of its own."""
    embedding = Embedding(OpenAIEmbedder(client, "embed-1"))
    stub.fail_next = [500, 429, 503]
    await embedding.embed(["a"], Deadline.after(30))
    assert stub.calls["/v1/embeddings"] == 4
    stub.fail_next = [500] * 9
    with pytest.raises(ModelError, match="status 500"):
        await embedding.embed(["a"], Deadline.after(30))
    assert stub.calls["/v1/embeddings"] == 4 + paid.ATTEMPTS


async def test_a_server_that_asks_to_wait_beyond_the_deadline_is_not_waited_for(
    stub: OpenAIStub, client: AsyncOpenAI
) -> None:
    """Its error is the answer, at once."""
    stub.fail_next, stub.retry_after = [429], "50"
    with pytest.raises(ModelError, match="429") as raised:
        await Embedding(OpenAIEmbedder(client, "embed-1")).embed(["a"], Deadline.after(10))
    assert raised.value.retry_after == 50 and stub.calls["/v1/embeddings"] == 1


async def test_a_refused_key_is_a_configuration_error_that_does_not_show_it(
    stub: OpenAIStub, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither message, causes, representations nor debug logs hold the key, although the server quotes it."""
    caplog.set_level(logging.DEBUG)
    wrong = KEY + "-wrong"
    async with connected(stub.url, wrong) as client:
        extractor, embedder = reader(client), OpenAIEmbedder(client, "embed-1")
        with pytest.raises(ConfigurationError) as raised:
            await extractor.extract([TEXT], Deadline.after(30))
        shown = [
            repr(extractor),
            repr(embedder),
            repr(client),
            str(raised.value),
            str(raised.value.__cause__),
            extractor.fingerprint,
        ]
    assert not any(
        wrong in text or stub.url in text
        for text in [
            *shown,
            *(record.getMessage() for record in caplog.records if record.name.startswith(("pipeline", "openai"))),
        ]
    )


async def test_the_deadline_ends_a_slow_call(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """As our own error, and the server's side of the connection is closed by leaving it."""
    stub.seconds = 30
    with pytest.raises(DeadlineExceeded):
        await Embedding(OpenAIEmbedder(client, "embed-1")).embed(["a"], Deadline.after(0.2))
    with pytest.raises(DeadlineExceeded):
        await reader(client).extract([TEXT], Deadline.after(0))


async def test_nobody_at_the_address_is_a_model_error() -> None:
    """Retryable, and the message does not hold the address."""
    async with connected("http://127.0.0.1:1/v1", "") as client:
        with pytest.raises(ModelError, match="cannot be reached") as raised:
            await Embedding(OpenAIEmbedder(client, "embed-1")).embed(["a"], Deadline.after(30))
    assert "127.0.0.1" not in str(raised.value)


async def test_a_missing_model_name_is_a_configuration_error(client: AsyncOpenAI) -> None:
    """It names the field."""
    with pytest.raises(ConfigurationError, match=r"embedding\.model"):
        OpenAIEmbedder(client, "")


async def test_slots_stay_busy(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """Sixteen calls at a time on the server's side, and never more."""
    stub.seconds = 0.05
    texts = [f"Acme{n} acquired Beta{n}." for n in range(64)]
    hashes = [text_hash(text) for text in texts]
    limiter = anyio.CapacityLimiter(16)
    found = await extract_texts(MemoryCache(), CORPUS, reader(client), texts, hashes, limiter, Deadline.after(60))
    assert stub.busiest == 16 and set(stub.texts.values()) == {1}
    assert all(isinstance(one, Extraction) and len(one.facts) == 1 for one in found)


async def test_a_cancelled_embedding_run_never_pays_twice(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """Only requests in flight are repeated."""
    stub.seconds = 0.02
    embedding, cache, limiter = Embedding(OpenAIEmbedder(client, "embed-1")), MemoryCache(), anyio.CapacityLimiter(2)
    texts = [f"text {n}" for n in range(1500)]
    hashes = [text_hash(text) for text in texts]

    async def watch(scope: anyio.CancelScope) -> None:
        for _ in range(10_000):
            if stub.calls["/v1/embeddings"] >= 6:
                break
            await anyio.sleep(0.005)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        await embed_texts(cache, CORPUS, embedding, texts, hashes, limiter, Deadline.after(60))
    vectors, _ = await embed_texts(cache, CORPUS, embedding, texts, hashes, limiter, Deadline.after(60))
    assert len(vectors) == 1500
    assert sum(count > 1 for count in stub.texts.values()) <= 2 * 128


async def test_summaries_are_one_line_each_and_fail_one_by_one(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """From the members that the model is told of."""
    stub.garbage = {"Gamma": ""}
    topics = [Topic(2, ("Acme: a company", "Beta")), Topic(1, ("Gamma",))]
    good, bad = await OpenAISummariser(client, "writer-1").summarise(topics, Deadline.after(30))
    assert isinstance(good, str) and "Acme: a company" in good and "\n" not in good
    assert isinstance(bad, ModelError)


async def heard(chat: OpenAIChat) -> tuple[str, int, int]:
    """Hear an answer to its end; return it with what it cost."""
    spent = Spent()
    pieces = [
        spent.note(piece) async for piece in chat.stream([{"role": "user", "content": ASKED}], Deadline.after(30))
    ]
    return "".join(pieces), spent.input_tokens, spent.output_tokens


@pytest.mark.parametrize("how", ["sent", "each"])
async def test_a_streamed_answer_counts_its_tokens(
    stub: OpenAIStub, client: AsyncOpenAI, how: Literal["sent", "each"]
) -> None:
    """Once, whether they come at the end or grow with each piece."""
    stub.stream_usage = how
    text, paid_in, paid_out = await heard(OpenAIChat(client, "talker"))
    assert text and (paid_in, paid_out) == (len(told(stub).split()), len(text.split()))


async def test_an_endpoint_that_ignores_the_wish_for_tokens_counts_none(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    stub.stream_usage = "ignored"
    text, paid_in, paid_out = await heard(OpenAIChat(client, "talker"))
    assert text and (paid_in, paid_out) == (0, 0) and stub.calls[CHATS] == 1


async def test_an_endpoint_that_refuses_it_is_asked_without_and_that_is_remembered(
    stub: OpenAIStub, client: AsyncOpenAI
) -> None:
    stub.stream_usage = "refused"
    chat = OpenAIChat(client, "talker")
    for calls in (2, 3, 4):
        text, paid_in, paid_out = await heard(chat)
        assert text and (paid_in, paid_out) == (0, 0) and stub.calls[CHATS] == calls


async def test_another_refusal_says_nothing_about_tokens(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    """Nor does one that comes once the endpoint is known to tell them: then nothing is asked twice."""
    chat = OpenAIChat(client, "talker")
    stub.fail_next = [400, 400]
    with pytest.raises(ModelRefused):
        await heard(chat)
    assert stub.calls[CHATS] == 2 and (await heard(chat))[2] > 0
    stub.fail_next = [400]
    with pytest.raises(ModelRefused):
        await heard(chat)
    assert stub.calls[CHATS] == 4 and (await heard(chat))[2] > 0


def told(stub: OpenAIStub) -> str:
    """Return the text of which the stub counts the words."""
    return "\n".join(stub.messages[-1][-1]["content"].split("\n")[1:-1])

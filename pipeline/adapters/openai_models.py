"""Models behind any endpoint that speaks the OpenAI protocol: for the index, and for questions.

The client makes no attempt of its own twice: `pipeline.ingest.paid` does, within the deadline. Neither key nor
address is in any message.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
import numpy as np
import openai
import orjson
from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk, ChatCompletionStreamOptionsParam

from pipeline.deadline import Deadline
from pipeline.declare.chat import Prompt
from pipeline.errors import ConfigurationError, ModelError, ModelRefused, SapwoodError
from pipeline.ingest.contexts import CONTEXTS, context_messages
from pipeline.ingest.embed import CALL_TEXTS, Embedded
from pipeline.ingest.paid import retried, spread
from pipeline.ingest.prompt import (
    VERSION,
    Messages,
    answer_schema,
    extraction_messages,
    json_object,
    read_answer,
    summary_messages,
)
from pipeline.ingest.summaries import Topic
from pipeline.ingest.validate import validated
from pipeline.retrieval.assistants import Counted, Option
from pipeline.retrieval.prompts import (
    EXPANSION_SCHEMA,
    NAVIGATION_SCHEMA,
    QUESTIONS,
    expansion_messages,
    navigation_messages,
    read_cost,
    read_scores,
)
from schemas.graph import Extraction
from schemas.settings import ExtractionSettings

CALL_CAP = 120.0
"""Seconds that one call may take when the deadline leaves more."""

CLOSE_GRACE = 2.0
"""Seconds that closing the connections may take."""

_SHAPES = (("json_schema", True), ("json_object", True), ("text", True), ("json_schema", False))
"""How an answer is asked for: its format, and whether with temperature 0, which some models do not take."""


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    cut_off: bool
    input_tokens: int
    output_tokens: int


@asynccontextmanager
async def connected(base_url: str, api_key: str) -> AsyncGenerator[AsyncOpenAI, None]:
    """Lend a client of this endpoint, e.g. `http://127.0.0.1:8000/v1`; its connections are closed at the end.

    Raises:
        ConfigurationError: the address or the key is not usable.
    """
    try:
        # In a thread, since it reads certificates from disk. The client insists on a key, endpoints may not.
        client = await anyio.to_thread.run_sync(_client, base_url, api_key or "none")
    except (openai.OpenAIError, ValueError, OSError) as error:
        raise ConfigurationError("The model endpoint's address or key is not usable.") from error
    try:
        yield client
    finally:
        with anyio.move_on_after(CLOSE_GRACE, shield=True):
            await client.close()


def _client(base_url: str, api_key: str) -> AsyncOpenAI:
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=CALL_CAP)
    _ = client.chat.completions, client.embeddings  # loaded at first use, so here in the thread rather than on the loop
    return client


class OpenAIEmbedder:
    """An `EmbeddingProvider` over `/embeddings`, at most 128 texts a request."""

    paid = True

    def __init__(self, client: AsyncOpenAI, model: str, dimension: int | None = None) -> None:
        """Ask `model` for vectors of `dimension` numbers, or of its own width where that is None."""
        self._client = client
        self._model = _named(model, "embedding.model")
        self._dimension = dimension
        self.fingerprint = f"openai/{model}" + (f"/{dimension}" if dimension else "")

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Embedded:
        """Return one vector for each text, and the tokens they cost."""
        parts = [await self._part(texts[at : at + CALL_TEXTS], deadline) for at in range(0, len(texts), CALL_TEXTS)]
        return Embedded([row for rows, _ in parts for row in rows], sum(tokens for _, tokens in parts))

    async def _part(self, texts: Sequence[str], deadline: Deadline) -> tuple[list[Any], int]:
        dimensions = openai.omit if self._dimension is None else self._dimension
        timeout = deadline.budget(CALL_CAP)
        with translated("embedding.model"):
            answer = await self._client.embeddings.create(
                model=self._model, input=list(texts), dimensions=dimensions, timeout=timeout
            )
            rows = sorted(answer.data, key=lambda one: one.index)
        if [one.index for one in rows] != list(range(len(texts))):
            raise ModelError(
                f"The model endpoint returned {len(rows)} vectors for {len(texts)} texts, or mixed them up."
            )
        return [np.asarray(one.embedding, np.float32) for one in rows], _tokens(answer, "prompt_tokens")


class _JsonChat:
    """Asks one model of `/chat/completions` for JSON, by its schema where the endpoint knows schemas.

    An endpoint that refuses the schema is asked for any JSON object, then for plain text, then without a temperature;
    what it took is remembered. `setting` is the field that names the model.
    """

    def __init__(self, client: AsyncOpenAI, model: str, setting: str) -> None:
        self._client, self._model, self._setting = client, model, setting
        self._shape = 0

    async def ask(self, messages: Messages, schema: Mapping[str, Any], deadline: Deadline) -> _Answer:
        """Return the answer. Raises ModelError, ConfigurationError or DeadlineExceeded."""
        for number in range(self._shape, len(_SHAPES)):
            try:
                options = _options(number, schema)
                answer = await _chat(self._client, self._model, messages, options, deadline, self._setting)
            except ModelRefused:
                if number + 1 == len(_SHAPES):
                    raise
            else:
                self._shape = number
                return answer
        raise ModelRefused()


def _options(number: int, schema: Mapping[str, Any]) -> dict[str, Any]:
    kind, cold = _SHAPES[number]
    response_format = {"type": kind} | ({"json_schema": dict(schema)} if kind == "json_schema" else {})
    return {"response_format": response_format} | ({"temperature": 0} if cold else {})


class OpenAIExtractor:
    """An `Extractor` over `/chat/completions`."""

    paid = True

    def __init__(self, client: AsyncOpenAI, model: str, rules: ExtractionSettings) -> None:
        """Ask `model`, and hold its answers against `rules` (which are part of the fingerprint)."""
        self._chat = _JsonChat(client, _named(model, "extraction.model"), "extraction.model")
        self._schema = {"name": "graph", "schema": answer_schema(rules), "strict": True}
        self._rules = rules
        settings = orjson.dumps(rules.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
        self.fingerprint = f"openai/{model}/{VERSION}/{hashlib.sha256(settings).hexdigest()[:12]}"

    async def extract(self, texts: Sequence[str], deadline: Deadline) -> list[Extraction | SapwoodError]:
        """Ask for one text after the other; an answer that cannot be used is that text's ModelError.

        Raises:
            ConfigurationError: the endpoint refuses the key or does not know the model.
            DeadlineExceeded: there is no time left for a call.
        """
        return [await self._one(text, deadline) for text in texts]

    async def _one(self, text: str, deadline: Deadline) -> Extraction | SapwoodError:
        try:
            answer = await self._chat.ask(extraction_messages(text, self._rules), self._schema, deadline)
            if answer.cut_off:
                return ModelRefused("The model's answer was cut off at its own limit of length.")
            found = validated(read_answer(answer.text, self._rules), text, self._rules)
        except ModelError as error:
            return error
        return replace(found, input_tokens=answer.input_tokens, output_tokens=answer.output_tokens)


_CHAT = "SAPWOOD_OPENAI_MODEL"
"""The setting that names the model of actions and chats."""

MAX_CHATS = 64
"""Models of which it is remembered how they take a question."""

MAX_ANSWER = 100_000
"""Characters of an answer about a question at most."""

SUMMARY_CALLS = 8
"""Summaries that are asked for at once."""


class OpenAISummariser:
    """Writes the summaries of communities."""

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self._client = client
        self._model = _named(model, "extraction.model")
        self._slots = anyio.CapacityLimiter(SUMMARY_CALLS)
        self.fingerprint = f"openai/{model}/{VERSION}"

    async def summarise(self, topics: Sequence[Topic], deadline: Deadline) -> list[str | SapwoodError]:
        """Return for each topic, in order, a summary of at most about 80 words or why there is none."""
        answers: list[str | SapwoodError] = [ModelError()] * len(topics)

        async def one(at: int) -> None:
            async with self._slots:
                answers[at] = await self._summary(topics[at], deadline)

        await spread(one, range(len(topics)), self._slots)
        return answers

    async def _summary(self, topic: Topic, deadline: Deadline) -> str | SapwoodError:
        messages = summary_messages(topic)
        try:
            answer = await retried(
                lambda: _chat(self._client, self._model, messages, {"type": "text"}, deadline), deadline
            )
        except ModelError as error:
            return error
        return " ".join(answer.text.split())[:2000]


class _QueryModels:
    """What the models for questions have in common: `openai/MODEL`, or `openai` for the default, each with its own chat."""

    def __init__(self, client: AsyncOpenAI, default: str, setting: str) -> None:
        """Use the models of this endpoint; `setting` is the field of a request that names one."""
        self._client, self._default, self._setting = client, default, setting
        self._chats: dict[str, _JsonChat] = {}
        self.fingerprint = f"openai/{default}/{QUESTIONS}"

    def serves(self, model: str) -> bool:
        """Whether this is a model of the endpoint, by its prefix: the endpoint itself says whether it has it."""
        return bool(self._name(model))

    def _name(self, model: str) -> str:
        return self._default if model == "openai" else model.removeprefix("openai/") * model.startswith("openai/")

    async def _asked(
        self, model: str, messages: Messages, schema: Mapping[str, Any], member: str, deadline: Deadline
    ) -> Counted[Any]:
        """Return what this member of the JSON object is that the model answers with: what that is, the caller's caller finds
        out, who also asks again where the endpoint is busy.
        """
        if len(self._chats) > MAX_CHATS:
            self._chats.clear()  # what was learnt of the endpoint is learnt again
        chat = self._chats.setdefault(model, _JsonChat(self._client, self._name(model), self._setting))
        answer = await chat.ask(messages, schema, deadline)
        if answer.cut_off or len(answer.text) > MAX_ANSWER:
            raise ModelRefused("The model's answer was cut off, or is too long.")
        try:
            return Counted(json_object(answer.text).get(member), answer.input_tokens, answer.output_tokens)
        except ModelError as error:
            raise ModelRefused(str(error)) from error  # it would say the same again


class OpenAIExpander(_QueryModels):
    """A `QueryExpander` over `/chat/completions`."""

    async def expand(self, model: str, question: str, most: int, deadline: Deadline) -> Counted[Sequence[str]]:
        """See `QueryExpander`."""
        return await self._asked(model, expansion_messages(question, most), EXPANSION_SCHEMA, "queries", deadline)


class OpenAINavigator(_QueryModels):
    """A `Navigator` over `/chat/completions`."""

    async def choose(
        self, model: str, question: str, options: Sequence[Option], most: int, deadline: Deadline
    ) -> Counted[Sequence[int]]:
        """See `Navigator`."""
        messages = navigation_messages(question, options, most)
        return await self._asked(model, messages, NAVIGATION_SCHEMA, "open", deadline)


class OpenAIContexts(_QueryModels):
    """A `ContextWriter` over `/chat/completions`."""

    def version(self, model: str) -> str:
        """See `ContextWriter`."""
        return f"openai/{self._name(model)}/{CONTEXTS}"

    async def context(self, model: str, document: str, passage: str, deadline: Deadline) -> Counted[str]:
        """See `ContextWriter`."""
        messages = context_messages(document, passage)
        answer = await _chat(self._client, self._name(model), messages, {}, deadline, self._setting)
        if answer.cut_off:
            raise ModelRefused("The model's answer was cut off at its own limit of length.")
        return Counted(answer.text, answer.input_tokens, answer.output_tokens)


class EndpointReranker(_QueryModels):
    """A `Reranker` over `/rerank` in the shape that Cohere, Jina, vLLM, LiteLLM and others share."""

    async def scores(
        self, model: str, question: str, passages: Sequence[str], deadline: Deadline
    ) -> Counted[Sequence[float]]:
        """See `Reranker`."""
        body = {"model": self._name(model), "query": question, "documents": list(passages), "top_n": len(passages)}
        timeout = deadline.budget(CALL_CAP)
        with translated(self._setting):
            answer = await self._client.post("/rerank", cast_to=object, body=body, options={"timeout": timeout})
        return Counted(read_scores(answer, len(passages)), read_cost(answer))


class OpenAIChat:
    """A `ChatModel` over `/chat/completions`, with server-sent events. What broke off is not asked for again.

    The endpoint is asked for the tokens of each answer; one that refuses that is asked once more without, and then no more.
    """

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self._client, self._model = client, model
        self._counts: bool | None = None  # not known yet

    async def stream(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[str | Counted[str], None]:
        """See `ChatModel`."""
        async with await self._begun(prompt, deadline) as pieces:
            said, cost = False, Counted("")
            while (chunk := await _next(pieces)) is not None:
                piece, cost = _piece(chunk), _cost(chunk) or cost
                said = said or bool(piece)
                yield piece
        if not said:
            raise ModelError("The model gave no answer.")
        yield cost

    async def _begun(self, prompt: Prompt, deadline: Deadline) -> AsyncStream[ChatCompletionChunk]:
        if self._counts is not False:
            try:
                pieces = await self._asked(prompt, deadline, {"include_usage": True})
            except ModelRefused:
                if self._counts:
                    raise
            else:
                self._counts = True
                return pieces
        pieces = await self._asked(prompt, deadline, openai.omit)
        self._counts = False
        return pieces

    async def _asked(
        self, prompt: Prompt, deadline: Deadline, options: ChatCompletionStreamOptionsParam | openai.Omit
    ) -> AsyncStream[ChatCompletionChunk]:
        model, timeout = _named(self._model, _CHAT), deadline.budget(CALL_CAP)
        with translated(_CHAT):
            return await self._client.chat.completions.create(
                model=model, messages=cast("Any", prompt), stream=True, stream_options=options, timeout=timeout
            )


async def _next(pieces: AsyncStream[ChatCompletionChunk]) -> ChatCompletionChunk | None:
    with translated(_CHAT):
        return await anext(pieces, None)


def _piece(chunk: ChatCompletionChunk) -> str:
    """Return what a chunk says, perhaps nothing."""
    with translated(_CHAT):
        return (chunk.choices[0].delta.content or "") if chunk.choices else ""


def _cost(chunk: ChatCompletionChunk) -> Counted[str] | None:
    """Return what the answer has cost up to here: the last chunk says it, with some endpoints each."""
    if getattr(chunk, "usage", None) is None:
        return None
    return Counted("", _tokens(chunk, "prompt_tokens"), _tokens(chunk, "completion_tokens"))


async def _chat(
    client: AsyncOpenAI,
    model: str,
    messages: Messages,
    options: dict[str, Any],
    deadline: Deadline,
    setting: str = "extraction.model",
) -> _Answer:
    timeout = deadline.budget(CALL_CAP)
    with translated(setting):
        # As extra body the schema is sent as it is; else the client walks through it, a third of its time for a call.
        completion = await client.chat.completions.create(
            model=model, messages=cast("Any", messages), extra_body=options, timeout=timeout
        )
        choice = completion.choices[0]
        text, reason = choice.message.content, choice.finish_reason
    if not text:
        raise ModelError("The model gave no answer.")
    return _Answer(
        text, reason == "length", _tokens(completion, "prompt_tokens"), _tokens(completion, "completion_tokens")
    )


@contextmanager
def translated(setting: str) -> Generator[None, None, None]:
    """Turn the client's errors into ours; `setting` is the field that names the model.

    A server's words are not repeated: they may quote the key or the request.
    """
    try:
        yield
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        raise ConfigurationError("The model endpoint refuses the API key.") from _bare(error)
    except openai.NotFoundError as error:
        raise ConfigurationError(f"{setting}: the model endpoint does not know this model or path.") from _bare(error)
    except openai.APIStatusError as error:
        raise _refusal(error) from _bare(error)
    except openai.APITimeoutError as error:
        raise ModelError("The model endpoint did not answer in time.") from error
    except openai.APIConnectionError as error:
        raise ModelError("The model endpoint cannot be reached.") from error
    except (openai.OpenAIError, ValueError, AttributeError, TypeError, IndexError) as error:
        raise ModelError("The model endpoint's answer does not follow the protocol.") from error


def _refusal(error: openai.APIStatusError) -> ModelError:
    status = error.status_code
    if status in (408, 409, 429) or status >= 500:
        return ModelError(f"The model endpoint answered with status {status}.", _retry_after(error))
    return ModelRefused(f"The model endpoint refused the request with status {status}.")


def _bare(error: openai.APIStatusError) -> Exception:
    """The cause without the server's words."""
    return type(error)(f"status {error.status_code}", response=error.response, body=None)


def _retry_after(error: openai.APIStatusError) -> float:
    try:
        return min(60.0, max(0.0, float(error.response.headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0


def _tokens(answer: Any, field: str) -> int:
    count = getattr(getattr(answer, "usage", None), field, 0)
    return count if isinstance(count, int) else 0


def _named(model: str, setting: str) -> str:
    if not model:
        raise ConfigurationError(f"{setting}: name the model of the endpoint.")
    return model

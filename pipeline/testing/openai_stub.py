"""A small HTTP server on the loopback that speaks the OpenAI protocol: answers follow from the text, faults as told.

For tests, demonstrations and benchmarks of model-bound work; it uses the real sockets and the real client.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import orjson
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from pipeline.ingest.hashing import hash_vectors
from pipeline.ingest.offline import extract

MAX_HEAD, MAX_BODY = 65_536, 64 * 1024 * 1024


@dataclass
class OpenAIStub:
    """What the server does and has seen; change the first group while it runs.

    `seconds` is how long each request takes. `fail_next` are statuses that the next requests get instead of an
    answer; `retry_after` goes with them. `refused_formats` are response formats it does not know;
    `refuses_temperature` is what reasoning models do. `stream_usage` is what becomes of a stream's wish for its tokens:
    they come at the end, with each piece, or not at all, or the request is refused. `garbage` maps a piece of a chat
    request's last message to the raw text it is answered with. `key` is the only API key it takes, or empty for any.

    `calls` counts requests by path, `texts` how often each text was embedded or read, `busiest` the most at one time.
    """

    seconds: float = 0.0
    fail_next: list[int] = field(default_factory=list[int])
    retry_after: str = ""
    refused_formats: frozenset[str] = frozenset()
    refuses_temperature: bool = False
    stream_usage: Literal["sent", "each", "ignored", "refused"] = "sent"
    garbage: dict[str, str] = field(default_factory=dict[str, str])
    finish_reason: str = "stop"
    key: str = ""
    url: str = ""
    calls: Counter[str] = field(default_factory=Counter[str])
    texts: Counter[str] = field(default_factory=Counter[str])
    messages: list[list[dict[str, str]]] = field(default_factory=list[list[dict[str, str]]])
    busy: int = 0
    busiest: int = 0

    async def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """Return status and body for one request: what becomes JSON, or the bytes of an event stream."""
        self.calls[path] += 1
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await anyio.sleep(self.seconds)
        finally:
            self.busy -= 1
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return 401, _error(f"Incorrect API key provided: {headers.get('authorization', '')}.")
        if self.fail_next:
            return self.fail_next.pop(0), _error("told to fail")
        request = orjson.loads(body)
        if path.endswith("/embeddings"):
            return 200, self._embeddings(request)
        if path.endswith("/chat/completions"):
            return self._chat(request)
        if path.endswith("/rerank"):
            return 200, self._rerank(request)
        return 404, _error("no such path")

    def _embeddings(self, request: dict[str, Any]) -> Any:
        texts: list[str] = [request["input"]] if isinstance(request["input"], str) else request["input"]
        self.texts.update(texts)
        vectors = hash_vectors(texts)[:, : request.get("dimensions") or None]
        if request.get("encoding_format") == "base64":
            rows: list[Any] = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        else:
            rows = [row.tolist() for row in vectors]
        data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
        spent = sum(len(text.split()) for text in texts)
        return {
            "object": "list",
            "data": data,
            "model": request["model"],
            "usage": {"prompt_tokens": spent, "total_tokens": spent},
        }

    def _chat(self, request: dict[str, Any]) -> tuple[int, Any]:
        if request.get("response_format", {}).get("type", "text") in self.refused_formats:
            return 400, _error("response_format is not supported")
        if self.refuses_temperature and "temperature" in request:
            return 400, _error("temperature is not supported")
        if self.stream_usage == "refused" and "stream_options" in request:
            return 400, _error("Unrecognized request argument supplied: stream_options")
        self.messages.append(request["messages"])
        text = "\n".join(request["messages"][-1]["content"].split("\n")[1:-1])  # without the two lines of the fence
        self.texts[text] += 1
        answer = next((raw for piece, raw in self.garbage.items() if piece in text), None)
        if answer is None:
            answer = answered(request["messages"][0]["content"], text)
        usage = {"prompt_tokens": len(text.split()), "completion_tokens": len(answer.split())}
        if request.get("stream"):
            wanted = request.get("stream_options", {}).get("include_usage") and self.stream_usage != "ignored"
            return 200, _pieces(request["model"], answer, usage if wanted else None, self.stream_usage == "each")
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": {"role": "assistant", "content": answer}}
        return 200, {
            "id": "stub", "object": "chat.completion", "created": 0, "model": request["model"],
            "choices": [choice], "usage": usage | {"total_tokens": sum(usage.values())},
        }  # fmt: skip

    def _rerank(self, request: dict[str, Any]) -> Any:
        if raw := next((raw for piece, raw in self.garbage.items() if piece in request["query"]), None):
            return orjson.loads(raw)
        scores = [shared(request["query"], document) for document in request["documents"]]
        rows = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
        return {"results": sorted(rows, key=lambda row: -row["relevance_score"])}


def answered(instruction: str, text: str) -> str:
    """Return what a model is asked for, by the member of the JSON object that the instruction names; else a summary."""
    if '"entities"' in instruction:
        return orjson.dumps(candidates(text)).decode()
    if '"queries"' in instruction:
        return orjson.dumps({"queries": [f"{text} {word}" for word in sorted(set(text.split()), key=len)]}).decode()
    if '"open"' in instruction:
        question, *options = text.split("\n")
        return orjson.dumps({"open": [n for n, one in enumerate(options, 1) if shared(question, one)]}).decode()
    return summary(text)


def shared(question: str, text: str) -> float:
    """Return the part of the question's words that a text has."""
    words = set(re.findall(r"\w+", question.lower()))
    return len(words & set(re.findall(r"\w+", text.lower()))) / max(len(words), 1)


def candidates(text: str) -> dict[str, Any]:
    """Return what the offline extractor finds, as a model would say it."""
    found = extract(text)
    entities = [
        {
            "name": one.name,
            "type": one.type,
            "description": "",
            "evidence": one.name if one.start >= 0 else "",
            "confidence": 0.9,
        }
        for one in found.mentions
    ]
    relations = [
        {
            "source": one.subject,
            "source_type": one.subject_type,
            "target": one.object,
            "target_type": one.object_type,
            "type": one.type,
            "evidence": text[one.start : one.end],
            "confidence": 0.9,
            "inferred": False,
            "opinion": False,
        }
        for one in found.facts
    ]
    return {"entities": entities, "relations": relations}


def summary(text: str) -> str:
    """Return a summary that names what it was given."""
    return f"In short: {' '.join(text.split())[:200]}"


def _pieces(model: str, answer: str, usage: dict[str, int] | None, each: bool) -> bytes:
    """Return an answer as server-sent events, a word each; with `usage` at the end, or growing with each."""
    words = re.findall(r"\s*\S+|\s+", answer)
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in words
    ]
    if usage:
        chunks = [
            one | {"usage": usage | {"completion_tokens": n} if each else None} for n, one in enumerate(chunks, 1)
        ]
        chunks += [] if each else [{"choices": [], "usage": usage | {"total_tokens": sum(usage.values())}}]
    said = ({"id": "stub", "object": "chat.completion.chunk", "created": 0, "model": model, **one} for one in chunks)
    return b"".join(b"data: " + orjson.dumps(one) + b"\n\n" for one in said) + b"data: [DONE]\n\n"


def _error(message: str) -> Any:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None}}


@asynccontextmanager
async def serving(stub: OpenAIStub) -> AsyncGenerator[OpenAIStub, None]:
    """Serve on a free port of the loopback for the duration of the block; `stub.url` is the base URL to give to
    clients.
    """

    async def connection(stream: SocketStream) -> None:
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            try:
                while await _exchange(stub, reader, stream):
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
                return  # the client left: how a keep-alive connection ends

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        stub.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
        tasks.start_soon(listener.serve, connection, tasks)
        yield stub
        tasks.cancel_scope.cancel()


async def _exchange(stub: OpenAIStub, reader: BufferedByteReceiveStream, stream: SocketStream) -> bool:
    """Read one request, answer it, and return whether the connection stays open."""
    head = (await reader.receive_until(b"\r\n\r\n", MAX_HEAD)).decode("latin-1").split("\r\n")
    path = head[0].split(" ")[1]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    length = int(headers.get("content-length", "0"))
    if length > MAX_BODY:
        return False
    body = await reader.receive_exactly(length) if length else b""
    status, answer = await stub.respond(path, headers, body)
    events = isinstance(answer, bytes)
    data, kind = (answer, "text/event-stream") if events else (orjson.dumps(answer), "application/json")
    extra = f"retry-after: {stub.retry_after}\r\n" if stub.retry_after and status != 200 else ""
    lines = f"HTTP/1.1 {status} Stub\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n{extra}\r\n"
    await stream.send(lines.encode() + data)
    return headers.get("connection", "").lower() != "close"

"""A receiver of webhooks on loopback that keeps what it gets, and answers as the test wants."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream

from pipeline.addresses import forbidden
from pipeline.egress import Egress
from schemas.signatures import verify

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    def verified(self, secret: str) -> bool:
        """Whether the message is signed with this secret, as a receiver finds out."""
        try:
            return verify(secret, self.headers, self.body) == self.message_id
        except ValueError:
            return False


async def taken(_: Received) -> int:
    return 204


@dataclass
class Receiver:
    """A running receiver. `answer` returns the status, or never; `location` and `retry_after` are sent with it, if given."""

    port: int
    answer: Callable[[Received], Awaitable[int]] = taken
    location: str = ""
    retry_after: str = ""
    got: list[Received] = field(default_factory=list)
    news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        return f"http://hooks.test:{self.port}/in"

    @property
    def ids(self) -> list[str]:
        return [one.message_id for one in self.got]

    def egress(self, *others: int) -> Egress:
        """Return what may go to this and other ports of loopback, under any name but those that end with `.evil`."""

        async def here(host: str, port: int) -> list[str]:
            return ["169.254.169.254"] if host.endswith(".evil") else ["127.0.0.1"]

        def rule(address: str) -> str:
            return "" if address == "127.0.0.1" else forbidden(address)

        return Egress(resolver=here, rule=rule, ports={str(port): port for port in (self.port, *others)})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was received meets a condition."""
        with anyio.fail_after(PATIENCE):
            while not condition():
                self.news = anyio.Event()
                with anyio.move_on_after(0.05):
                    await self.news.wait()

    async def handle(self, stream: SocketStream) -> None:
        async with stream:
            try:
                received = await _read(stream)
                self.got.append(received)
                self.news.set()
                status = await self.answer(received)
                lines = [f"HTTP/1.1 {status} Said", "Content-Length: 0", "Connection: close"]
                lines += [f"Location: {self.location}"] if self.location else []
                lines += [f"Retry-After: {self.retry_after}"] if self.retry_after else []
                await stream.send(("\r\n".join(lines) + "\r\n\r\n").encode())
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the sender has gone


async def _read(stream: SocketStream) -> Received:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    return Received(first.split(" ")[1], headers, body)


@asynccontextmanager
async def receiving(answer: Callable[[Received], Awaitable[int]] = taken) -> AsyncGenerator[Receiver, None]:
    """Listen on a free port of this machine until the end of the block."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        receiver = Receiver(listener.extra(SocketAttribute.local_port), answer)
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, receiver.handle)
            yield receiver
            group.cancel_scope.cancel()

"""Calls to Qdrant that end at their deadline and fail with errors of ours.

A folder or `:memory:` instead of a server is the client's local mode, for one process. It computes in the calling thread,
so each call is made in a worker thread, one at a time; a deadline or a cancellation waits for the one that runs.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from json import JSONDecodeError
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    InconsistentGeneration,
    SapwoodError,
    StoreRefused,
    StoreUnavailable,
)

T = TypeVar("T")

CALL_CAP = 60.0
"""Seconds that one call may take when the deadline leaves more."""

_CLOSE_GRACE = 1.0
_FAILURES = (ApiException, QdrantException, ValueError, OSError, sqlite3.Error, AssertionError)
"""What the client raises. A timeout is an OSError; it asserts that an answer has a result."""


class Client:
    """An open client, to which every call goes through `call`; `local` tells whether it is in local mode."""

    def __init__(self, qdrant: AsyncQdrantClient, *, local: bool) -> None:
        self.qdrant = qdrant
        self.local = local
        self._turn = anyio.Lock()

    async def call(self, make: Callable[[int], Awaitable[T]], deadline: Deadline) -> T:
        """Make a call and return its answer. `make` is given the whole seconds that the server may take.

        A call that was left may still be carried out. Raises what the module says, and DeadlineExceeded.
        """
        budget = deadline.budget(CALL_CAP)
        with _translated(deadline), anyio.fail_after(budget):
            if not self.local:
                return await make(math.ceil(budget))
            async with self._turn:
                return await anyio.to_thread.run_sync(_completed, make)


def _completed(make: Callable[[int], Awaitable[T]]) -> T:
    """Run a call of the local mode, which never suspends, in this thread and without an event loop."""
    try:
        cast("Coroutine[Any, Any, T]", make(math.ceil(CALL_CAP))).send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise StoreRefused("The vector store's local mode waited for something.")


def _closed(qdrant: AsyncQdrantClient) -> None:
    _completed(lambda _seconds: qdrant.close())


@asynccontextmanager
async def open_client(url: str, api_key: str | None) -> AsyncGenerator[Client, None]:
    """Open the server at an http(s) URL, or the local mode in a folder or in `:memory:`.

    A server is not asked for anything yet. Without a port the URL means 6333, Qdrant's own.

    Raises:
        ConfigurationError: this is no URL of a server and no folder of ours, or another process uses the folder.
    """
    server = url.startswith(("http://", "https://"))
    if not url or ("://" in url and not server):
        raise ConfigurationError("SAPWOOD_QDRANT_URL: give the http(s) URL of a server, or a folder.")
    try:
        if server:
            qdrant = await anyio.to_thread.run_sync(_connected, url, api_key)  # it reads certificates
        else:
            qdrant = await anyio.to_thread.run_sync(_opened, url)
    except (httpx.InvalidURL, ValueError, OSError) as error:
        raise ConfigurationError("SAPWOOD_QDRANT_URL: this is no URL of a server, nor a folder of ours.") from error
    except RuntimeError as error:
        raise ConfigurationError(
            "SAPWOOD_QDRANT_URL: this folder is in use; several processes need a server."
        ) from error
    try:
        yield Client(qdrant, local=not server)
    finally:
        with anyio.move_on_after(_CLOSE_GRACE, shield=True):
            if server:
                await qdrant.close()
            else:
                await anyio.to_thread.run_sync(_closed, qdrant)


def _connected(url: str, api_key: str | None) -> AsyncQdrantClient:
    """Make the client of a server. The key goes as a header, since the client warns of it where there is no TLS."""
    httpx.URL(url)
    headers = {"api-key": api_key} if api_key else None
    return AsyncQdrantClient(url=url, headers=headers, timeout=math.ceil(CALL_CAP), check_compatibility=False)


def _opened(place: str) -> AsyncQdrantClient:
    """Make a client in local mode. Its worker threads take turns, so SQLite need not insist on one thread."""
    if place == ":memory:":
        return AsyncQdrantClient(location=place)
    return AsyncQdrantClient(path=place, force_disable_check_same_thread=True)


@contextmanager
def _translated(deadline: Deadline) -> Generator[None, None, None]:
    try:
        yield
    except _FAILURES as error:
        raise _ours(error, deadline) from error


def _ours(error: Exception, deadline: Deadline) -> SapwoodError:
    """Return our error for one of the client's; a timeout is the deadline's if nothing of it is left."""
    source = error.source if isinstance(error, ResponseHandlingException) else error
    if isinstance(source, TimeoutError | httpx.TimeoutException):
        late = deadline.remaining() <= 0.001
        return DeadlineExceeded() if late else StoreUnavailable("The vector store did not answer in time.")
    if isinstance(error, UnexpectedResponse):
        return _refusal(error.status_code or 500, error.content)
    if isinstance(error, QdrantException):
        return StoreUnavailable("The vector store has too much to do; it may be asked again later.")
    if isinstance(source, httpx.TransportError):
        return StoreUnavailable("The vector store cannot be reached.")
    if isinstance(error, OSError | sqlite3.Error):
        return StoreUnavailable("The vector store's folder cannot be read or written; is its disk full?")
    if isinstance(error, ResponseHandlingException | JSONDecodeError | AssertionError):
        return StoreUnavailable("The vector store gave an answer that is not Qdrant's; is SAPWOOD_QDRANT_URL right?")
    if "not found" in str(error):  # in local mode
        return InconsistentGeneration("the dense collection is not in the vector store")
    return StoreRefused("The vector store's client refused a request or a value.")


def _refusal(status: int, content: bytes) -> SapwoodError:
    """Return our error for an answer's status; its text may name addresses and values, so it is not repeated."""
    if status in (401, 403):
        return ConfigurationError("SAPWOOD_QDRANT_API_KEY: the vector store does not accept it.")
    if status == 404:
        return InconsistentGeneration("the dense collection is not in the vector store")
    if status == 507 or (status >= 500 and b"space" in content.lower()):
        return StoreUnavailable(f"The vector store has no space left ({status}): give its disk more.")
    if status >= 500 or status in (408, 429):
        return StoreUnavailable(f"The vector store failed at a request ({status}); it may be tried again.")
    return StoreRefused(f"The vector store refused a request ({status}).")

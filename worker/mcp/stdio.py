"""MCP over the standard streams of a process: one client, one tenant, one message a line.

The pipes are waited for rather than read in threads: a thread that reads cannot be stopped, and would keep the process
from ending at a signal.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from pipeline.errors import InvalidRequest
from pipeline.graphs.knowledge import KnowledgeTools
from worker.app import Sapwood
from worker.mcp.server import make_server
from worker.mcp.toolbox import Toolbox

MOST_LINE = 4 * 1024 * 1024
"""Bytes of a message at most."""

_READ = 65_536


@contextmanager
def wire() -> Generator[tuple[int, int], None, None]:
    """Yield descriptors of the standard streams, which are nobody else's until the end of the block.

    Whatever prints meanwhile, here or in a child process, goes to standard error; whatever reads finds nothing.
    """
    sys.stdout.flush()
    mine = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield mine
    finally:
        sys.stdout.flush()
        for number, one in enumerate(mine):
            os.dup2(one, number)
            os.close(one)


async def serve(sapwood: Sapwood, streams: tuple[int, int]) -> None:
    """Serve until the client closes its end, or SIGTERM or SIGINT; what is under way then is cancelled, in the stores too."""
    server = make_server(Toolbox(sapwood, KnowledgeTools()))
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_until_signal, group.cancel_scope)
        group.start_soon(_read, streams[0], received)
        group.start_soon(_write, streams[1], to_send, group.cancel_scope)
        await server.run(incoming, outgoing, server.create_initialization_options())
        group.cancel_scope.cancel()


async def _until_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _read(descriptor: int, received: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with received:
        async for line in _lines(descriptor):
            try:
                await received.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
            except ValidationError as error:
                await received.send(error)


async def _write(descriptor: int, to_send: MemoryObjectReceiveStream[SessionMessage], scope: anyio.CancelScope) -> None:
    """Send messages, until the client has closed its end: then cancel what is done for it."""
    async with to_send:
        async for one in to_send:
            data = memoryview(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            try:
                while data:
                    await _waited(anyio.wait_writable, descriptor)
                    data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]  # so much fits a pipe that is ready
            except BrokenPipeError:
                scope.cancel()


async def _lines(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Yield lines up to the end of the stream. Raises InvalidRequest: one is too long."""
    kept = bytearray()
    while True:
        await _waited(anyio.wait_readable, descriptor)
        data = os.read(descriptor, _READ)
        if not data:
            return
        *whole, rest = data.split(b"\n")
        for part in whole:
            yield bytes(kept + part)
            kept.clear()
        kept += rest
        if len(kept) > MOST_LINE:
            raise InvalidRequest(f"A message has more than {MOST_LINE} bytes.")


async def _waited(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    """Wait until a descriptor is ready; a file or the null device always is, and cannot be waited for."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor)):
        await anyio.lowlevel.checkpoint()
    else:
        await wait(descriptor)

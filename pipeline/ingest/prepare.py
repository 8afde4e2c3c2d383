"""Documents are parsed, cut and analysed in child processes with limits, so that a hostile one costs one outcome."""

from __future__ import annotations

import io
import math
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, cast

import anyio
from anyio.abc import Process, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from pipeline.errors import DocumentError, ParserKilled
from pipeline.ingest import chunk, parse
from pipeline.ingest.child import HEADER
from pipeline.ingest.stages import Prepared, Request, prepare

__all__ = ["FINGERPRINT", "Limits", "Prepared", "Preparer", "Request", "open_preparer", "prepare"]

FINGERPRINT = "/".join(
    (parse.VERSION, chunk.VERSION, *(f"{name}-{version(name)}" for name in ("kreuzberg", "semantic-text-splitter")))
)
"""What decides which chunks a document becomes."""

GROUP_DOCUMENTS = 16, 64
"""Documents of a group: of the larger kind where every child has two of them. A child waits for its next one as long as the
loop is busy, which may take as long as 16 short documents do.
"""
GROUP_BYTES = 1024 * 1024
_GRACE = 2.0
"""Seconds in which a killed process must be gone."""
_MAX_ANSWER = 1 << 30
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Limits:
    """What children may use: `memory` in bytes for each, `seconds` of wall and of processor time for one group."""

    processes: int = os.cpu_count() or 2
    memory: int = 1 << 30
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class _PlainSizes:
    """Sizes that a child can unpickle without pydantic, which takes it longer to load than to start."""

    max_chars: int
    overlap: int


class _Answer(pickle.Unpickler):
    """Reads a child's answer and makes nothing but our own values: a hostile document may have taken the child over."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that an answer may hold. Raises UnpicklingError for anything else."""
        if (module, name) not in _ANSWERS:
            raise pickle.UnpicklingError(f"a child answered with {module}.{name}")
        return super().find_class(module, name)


_ANSWERS = frozenset(
    {
        ("pipeline.errors", "DocumentError"),
        ("pipeline.errors", "ParserKilled"),
        ("pipeline.ingest.stages", "Prepared"),
        ("schemas.documents", "Chunk"),
        ("schemas.documents", "Heading"),
        ("schemas.documents", "ParsedDocument"),
        ("schemas.graph", "Extraction"),
        ("schemas.graph", "Fact"),
        ("schemas.graph", "restored"),
    }
)


@dataclass(frozen=True, slots=True)
class _Child:
    process: Process
    answers: BufferedByteReceiveStream

    async def ask(self, request: bytes) -> bytes:
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send(len(request).to_bytes(HEADER, "big") + request)
            size = int.from_bytes(await self.answers.receive_exactly(HEADER), "big")
            if size > _MAX_ANSWER:
                raise ParserKilled()
            return await self.answers.receive_exactly(size)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
            raise ParserKilled() from error

    async def end(self) -> None:
        """Kill and bury."""
        with anyio.move_on_after(_GRACE, shield=True):
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.aclose()


class Preparer:
    """A bounded pool of child processes, started when they are needed; get one from `open_preparer`."""

    def __init__(self, limits: Limits, task: str, background: TaskGroup) -> None:
        self._limits = limits
        self._background = background
        self._task = task
        self._slots = anyio.CapacityLimiter(limits.processes)
        self._idle: list[_Child] = []
        self._all: dict[int, _Child] = {}  # by process id
        self._coming = 0

    def expect(self, documents: int) -> None:
        """Start, beside the caller, the children that so many documents will need: they load while nobody waits for them."""
        wanted = 1 if documents <= GROUP_DOCUMENTS[0] else self._limits.processes
        for _ in range(wanted - len(self._all) - self._coming):
            self._coming += 1
            self._background.start_soon(self._try_one)

    async def _try_one(self) -> None:
        try:
            async with self._slots:
                if len(self._all) < self._limits.processes:
                    self._idle.append(await self._start())
        except OSError:  # then it is started when it is needed, and the error is somebody's to see
            pass
        finally:
            self._coming -= 1

    async def warm(self) -> None:
        """Start all children and wait until they are ready."""
        async with anyio.create_task_group() as group:
            for _ in range(self._limits.processes):
                group.start_soon(self._ask, b"")

    @property
    def most(self) -> int:
        """How many children work side by side."""
        return self._limits.processes

    def processes(self) -> list[int]:
        """Return the process ids of the children that run now."""
        return list(self._all)

    async def prepare(self, requests: Sequence[Request]) -> list[Prepared | DocumentError]:
        """Return for each document, in order, what it became or why it cannot be read.

        Groups run side by side. Where a group's child dies, its documents are tried one by one; what kills its child again,
        or runs out of memory, gets a fresh one, since others may have filled that, and is a ParserKilled at last.
        """
        results: list[Prepared | DocumentError] = [ParserKilled()] * len(requests)

        async def run(first: int, last: int) -> None:
            results[first:last] = await self._group(requests[first:last])

        async with anyio.create_task_group() as tasks:
            for first, last in groups(requests, 2 * self._limits.processes):
                tasks.start_soon(run, first, last)
        return results

    async def _group(self, requests: Sequence[Request]) -> list[Prepared | DocumentError]:
        try:
            results = await self._prepared(requests)
        except (ParserKilled, TimeoutError) as error:
            if len(requests) > 1:
                return [result for request in requests for result in await self._group([request])]
            if isinstance(error, TimeoutError):
                return [ParserKilled()]
            results = [error]
        return [
            await self._alone(request) if isinstance(result, ParserKilled) else result
            for request, result in zip(requests, results, strict=True)
        ]

    async def _alone(self, request: Request) -> Prepared | DocumentError:
        """Prepare a document in a child that has prepared no other: what kept it from memory may have been those."""
        try:
            [result] = await self._prepared([request], fresh=True)
            return result
        except (ParserKilled, TimeoutError):
            return ParserKilled()

    async def _prepared(self, requests: Sequence[Request], fresh: bool = False) -> list[Prepared | DocumentError]:
        light = [
            replace(r, chunk=_PlainSizes(r.chunk.max_chars, r.chunk.overlap) if r.chunk else None) for r in requests
        ]
        return unpickled(await self._ask(pickle.dumps(light, pickle.HIGHEST_PROTOCOL), fresh))

    async def _ask(self, request: bytes, fresh: bool = False) -> bytes:
        """Have one child answer. Raises ParserKilled, and TimeoutError where it takes longer than it may."""
        async with self._borrowed(fresh) as ask:
            return await ask(request)

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Callable[[bytes], Awaitable[bytes]], None]:
        """Lend one child, whose task takes and returns bytes, to talk to; it is another's only afterwards."""
        async with self._borrowed() as ask:

            async def talk(request: bytes) -> bytes:
                try:
                    answer: object = unpickled(await ask(pickle.dumps(request, pickle.HIGHEST_PROTOCOL)))
                except TimeoutError as late:
                    raise ParserKilled() from late
                if not isinstance(answer, bytes):
                    raise ParserKilled("The parser's answer is not what it should be.")
                return answer

            yield talk

    @asynccontextmanager
    async def _borrowed(self, fresh: bool = False) -> AsyncGenerator[Callable[[bytes], Awaitable[bytes]], None]:
        """Lend one child for frames; a fresh one takes the place of another. It is killed if it does not answer, or if this is
        left by any exception.
        """
        async with self._slots:
            if fresh and self._idle:
                await self._end(self._idle.pop())
            child = self._idle.pop() if self._idle and not fresh else await self._start()

            async def ask(request: bytes) -> bytes:
                with anyio.fail_after(self._limits.seconds):
                    return await child.ask(request)

            well = False
            try:
                yield ask
                well = True
            finally:
                if well:
                    self._idle.append(child)
                else:
                    await self._end(child)

    async def _start(self) -> _Child:
        # Nothing of this process's environment that may be secret; a session of its own, so that ^C is ours to handle.
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "RAYON_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "2",
        }
        limits = str(self._limits.memory), str(math.ceil(self._limits.seconds))
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", "pipeline.ingest.child", self._task, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        assert process.stdout is not None
        child = _Child(process, BufferedByteReceiveStream(process.stdout))
        self._all[process.pid] = child
        return child

    async def _end(self, child: _Child) -> None:
        self._all.pop(child.process.pid, None)
        await child.end()

    async def close(self) -> None:
        """End every child."""
        self._idle.clear()
        for child in list(self._all.values()):
            await self._end(child)


@asynccontextmanager
async def open_preparer(
    limits: Limits | None = None, task: str = "pipeline.ingest.stages:prepare"
) -> AsyncGenerator[Preparer, None]:
    """Open a pool of children that run `task` (`module:function`), and end them all at the end."""
    async with anyio.create_task_group() as background:
        preparer = Preparer(limits or Limits(), task, background)
        try:
            yield preparer
        finally:
            background.cancel_scope.cancel()
            await preparer.close()


def unpickled(answer: bytes) -> list[Prepared | DocumentError]:
    """Return what a child answered. Raises ParserKilled if that is anything but what it should be."""
    try:
        return cast("list[Prepared | DocumentError]", _Answer(io.BytesIO(answer)).load())
    except Exception as error:
        raise ParserKilled("The parser's answer is not what it should be.") from error


def groups(requests: Sequence[Request], shares: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents, in about so many shares: each within GROUP_DOCUMENTS, and about GROUP_BYTES at most."""
    least, most = GROUP_DOCUMENTS
    limit = min(most, max(least, -(-len(requests) // shares)))
    first = size = 0
    for at, request in enumerate(requests):
        if at > first and (at - first >= limit or size + len(request.data) > GROUP_BYTES):
            yield first, at
            first, size = at, 0
        size += len(request.data)
    if requests:
        yield first, len(requests)

"""The links between the files of a corpus, brought up to a generation: what a change touches is linked again, nothing else.

A file is affected if it changed, or if it looked at one that did. What it hands to parameters of functions in other files
is found without what it received itself, so that affected files are linked at most twice and nothing goes round in
circles: first by themselves, then with what they receive. All of it follows from the summaries of the files, so that the
result is that of linking every file anew.

Files are linked in child processes, since they are a stranger's and keep a processor busy (see `conversation`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import anyio
import anyio.to_thread

from pipeline.codegraph.conversation import ANSWER, ENCODER, Order, Settled
from pipeline.codegraph.files import Touched, all_of, file_of, folder_of, name_of, read_no, touched
from pipeline.codegraph.linked_rows import ChunkLines, Difference, FileRows, compare, rows_of
from pipeline.codegraph.linker.answers import differing
from pipeline.codegraph.links import Handed
from pipeline.codegraph.summary import decode
from pipeline.errors import ParserKilled, RunFailed
from pipeline.ports import Tx
from schemas.ids import CorpusId

Job = tuple[str, tuple[Handed, ...]]
"""A file, and what it receives."""

Talk = Callable[[bytes], Awaitable[bytes]]
"""Asks a child and returns its answer. Raises ParserKilled if there is none."""


class Linkers(Protocol):
    """Child processes that link."""

    @property
    def most(self) -> int:
        """How many work side by side."""
        ...

    def lend(self) -> AbstractAsyncContextManager[Talk]:
        """Lend one to talk to."""
        ...


AT_ONCE = 16
"""Files of one order."""

PARTS = 20
"""How often a reader of events hears of it."""

PAGE = 500
"""Files that one statement reads the rows of."""

LINK_TASK = "pipeline.codegraph.child:answer"
"""What such a child runs."""

UNLINKED = "unlinked"
"""Why nothing of a file is resolved: linking it went over the limits of a child."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A source file that the number bore, ended or both. `old` and `new` are its summaries where it did both; `filled`: text
    came into it, or all went.
    """

    path: str
    was: bool
    now: bool
    old: bytes = b""
    new: bytes = b""
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """What changed, and all source files there are now, each with whether it has text."""

    changed: Sequence[Changed]
    files: Mapping[str, bool]


class LinkStore(Protocol):
    """What linking asks of the store, in the generation that is built as number."""

    async def survey(self, tx: Tx, corpus: CorpusId, number: int) -> Survey:
        """Return what changed and what there is."""
        ...

    async def readers(self, tx: Tx, corpus: CorpusId, reads: Touched) -> set[str]:
        """Return the files that looked at one of these."""
        ...

    async def summaries(self, tx: Tx, corpus: CorpusId, paths: Sequence[str]) -> dict[str, bytes]:
        """Return what files say; one that is not there is left out."""
        ...

    async def reads(self, tx: Tx, corpus: CorpusId, paths: Sequence[str]) -> set[int]:
        """Return what these files looked at."""
        ...

    async def handed_before(
        self, tx: Tx, corpus: CorpusId, number: int, paths: Sequence[str]
    ) -> dict[str, set[Handed]]:
        """Return what these files handed to others before the number was begun."""
        ...

    async def handed_to(self, tx: Tx, corpus: CorpusId, paths: Sequence[str]) -> dict[str, set[Handed]]:
        """Return what is handed to functions of these files, by who hands it."""
        ...

    async def stored(
        self, tx: Tx, corpus: CorpusId, paths: Sequence[str]
    ) -> tuple[dict[str, ChunkLines], dict[str, FileRows]]:
        """Return the chunks of files, and the rows that linking gave them."""
        ...

    async def write(
        self, tx: Tx, corpus: CorpusId, number: int, weights: Mapping[str, float], what: Difference
    ) -> None:
        """Write and end rows at the number."""
        ...


@dataclass(slots=True)
class _Result:
    """A file by itself, and with what it receives."""

    alone: Settled
    final: Settled


@dataclass
class Linking:
    """One run of it. `reading` opens a transaction for reads, `report` is told how far it is."""

    store: LinkStore
    corpus: CorpusId
    number: int
    reading: Callable[[], AbstractAsyncContextManager[Tx]]
    report: Callable[[int, int], Awaitable[None]]
    linkers: Linkers
    files: Mapping[str, bool] = field(default_factory=dict[str, bool])
    expected: dict[str, bytes] = field(default_factory=dict[str, bytes])
    results: dict[str, _Result] = field(default_factory=dict[str, _Result])
    suspects: set[str] = field(default_factory=set[str])
    told: int = 0
    telling: anyio.Lock = field(default_factory=anyio.Lock)

    async def difference(self) -> Difference:
        """Return what has to be written, so that all links are those of the generation in the making."""
        async with self.reading() as tx:
            survey = await self.store.survey(tx, self.corpus, self.number)
        reads = await anyio.to_thread.run_sync(_touched, survey.changed)
        async with self.reading() as tx:
            readers = await self.store.readers(tx, self.corpus, reads)
        self.files = survey.files
        fresh = {one.path for one in survey.changed if one.now}
        gone = {one.path for one in survey.changed if not one.now}
        affected = sorted(fresh | (readers & self.files.keys()))
        self.expected = await self._summaries(affected)
        for one in await self._linked([(path, ()) for path in affected]):
            self.results[one.path] = _Result(one, one)
        await self._link_again(await self._received(affected, gone))
        return await self._compared(fresh)

    @cached_property
    def _numbers(self) -> dict[int, str]:
        """The files by the numbers under which reads of them are stored."""
        return {read_no(path): path for path in self.files}

    async def _summaries(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return the summaries of these files and of what they looked at last time, which is most of what they ask for."""
        async with self.reading() as tx:
            wanted = set(paths)
            if len(wanted) < len(self.files) and (seen := await self.store.reads(tx, self.corpus, paths)):
                wanted |= {self._numbers[number] for number in seen & self._numbers.keys()}
            found: dict[str, bytes] = {}
            for page in _pages(sorted(wanted)):
                found |= await self.store.summaries(tx, self.corpus, page)
            return found

    async def _linked(self, jobs: Sequence[Job]) -> list[Settled]:
        """Link files in children; each takes the next ones when it is done with some."""
        left, done = deque(jobs), list[Settled]()
        self.told = 0
        async with anyio.create_task_group() as group:
            for _ in range(min(self.linkers.most, -(-len(jobs) // AT_ONCE))):
                group.start_soon(self._converse, left, done, len(jobs))
        return done

    async def _converse(self, left: deque[Job], done: list[Settled], total: int) -> None:
        """Have a child link what is left; where it dies over several files, each of them is given to another one alone.

        One that worked before may have no memory left to begin with: then there are others, the new ones at last.
        """
        failed = 0
        while left:
            jobs: list[Job] = []
            try:
                async with self.linkers.lend() as talk:
                    await talk(ENCODER.encode(Order(give=self.expected, corpus=dict(self.files))))
                    failed = 0
                    order = Order()
                    while jobs := self._taken(jobs, left):
                        order.jobs = jobs
                        answer = ANSWER.decode(await talk(ENCODER.encode(order)))
                        done += answer.done
                        jobs = jobs[len(answer.done) :]
                        order = Order(give=await self._summaries([answer.wanted]) if answer.wanted else {})
                        await self._tell(len(done), total)
                    await talk(ENCODER.encode(Order(corpus={})))  # it need not remember
            except ParserKilled as killed:
                if left and not jobs:  # no file's fault
                    failed += 1
                    if failed > self.linkers.most:
                        raise RunFailed("Source files cannot be linked: the processes for it do not start.") from killed
                if len(jobs) == 1:
                    done.append(Settled(jobs.pop()[0], unresolved={UNLINKED: 1}))
                self.suspects.update(path for path, _ in jobs)
                left.extendleft(reversed(jobs))

    def _taken(self, jobs: list[Job], left: deque[Job]) -> list[Job]:
        """Return the jobs with the next ones, AT_ONCE in all; those over which a child died are alone."""
        taken = list(jobs)
        while left and len(taken) < AT_ONCE and not (taken and self.suspects & {taken[-1][0], left[0][0]}):
            taken.append(left.popleft())
        return taken

    async def _tell(self, done: int, total: int) -> None:
        """Report each twentieth part, one after another."""
        part = done * PARTS // total
        if part > self.told:
            self.told = part
            async with self.telling:
                await self.report(done, total)

    async def _received(self, affected: Sequence[str], gone: set[str]) -> dict[str, tuple[Handed, ...]]:
        """Return what functions receive, by their file: of every affected file, and of those for which that may differ."""
        changing = {*affected, *gone}
        now = {path: {handed for _, handed in self.results[path].alone.handed} for path in affected}
        before: dict[str, set[Handed]] = {}
        others: dict[str, set[Handed]] = {}
        async with self.reading() as tx:
            for page in _pages(sorted(changing)):
                before |= await self.store.handed_before(tx, self.corpus, self.number, page)
            differing = set[Handed]().union(*(now.get(p, set()) ^ before.get(p, set()) for p in changing))
            receivers = sorted({*affected, *(path for one in differing if (path := self._file(one)) in self.files)})
            for page in _pages(receivers):
                for path, handed in (await self.store.handed_to(tx, self.corpus, page)).items():
                    others.setdefault(path, set()).update(handed)
        found: dict[str, set[Handed]] = {path: set() for path in receivers}
        for handed in (*now.values(), *(ones for path, ones in others.items() if path not in changing)):
            for one in handed:
                if (receiver := self._file(one)) in found:
                    found[receiver].add(one)
        return {path: tuple(sorted(handed)) for path, handed in found.items()}

    def _file(self, handed: Handed) -> str:
        return file_of(handed.function, self.files)

    async def _link_again(self, received: Mapping[str, tuple[Handed, ...]]) -> None:
        """Link what receives something; and what did so before by itself, as its results so far are not known."""
        new = [path for path in received if path not in self.results]
        self.expected |= await self._summaries(new)
        for one in await self._linked([(path, ()) for path in new]):
            self.results[one.path] = _Result(one, one)
        for one in await self._linked([(path, handed) for path, handed in received.items() if handed]):
            self.results[one.path].final = one

    async def _compared(self, fresh: set[str]) -> Difference:
        """Return how the rows of all that was linked differ from the stored ones; those of fresh files are all new."""
        difference = Difference()
        for page in _pages(sorted(self.results)):
            async with self.reading() as tx:
                lines, stored = await self.store.stored(tx, self.corpus, page)
            await anyio.to_thread.run_sync(self._compare, page, lines, stored, fresh, difference)
        return difference

    def _compare(
        self,
        paths: Sequence[str],
        lines: Mapping[str, ChunkLines],
        stored: Mapping[str, FileRows],
        fresh: set[str],
        difference: Difference,
    ) -> None:
        for path in paths:
            result = self.results[path]
            new = rows_of(result.alone, result.final, lines.get(path, ChunkLines()))
            compare(path, new, stored.get(path, FileRows()), difference, fresh=path in fresh)


def _touched(changed: Iterable[Changed]) -> Touched:
    return touched(read for one in changed for read in touched_reads(one))


def touched_reads(one: Changed) -> Iterator[str]:
    """Yield the reads whose answers a change may have changed: none where lines moved and nothing else did."""
    if not (one.was and one.now):
        yield from (one.path, all_of(one.path), folder_of(one.path), f"*/{name_of(one.path)}")
    elif one.filled:
        yield from (one.path, all_of(one.path))
    elif one.old != one.new:
        yield from differing(one.path, decode(one.old), decode(one.new))


def _pages(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), PAGE):
        yield paths[start : start + PAGE]

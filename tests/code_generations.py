"""A corpus of source files whose generations are built by hand, and a linker small enough to see through."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from anyio import to_thread

from pipeline.adapters import postgres_code
from pipeline.adapters.postgres_generations import promote
from pipeline.adapters.postgres_pool import Pool
from pipeline.codegraph.conversation import Conversation, Linker
from pipeline.codegraph.files import all_of, folder_of
from pipeline.codegraph.linked_rows import Difference
from pipeline.codegraph.linking import Linkers, Linking, Talk
from pipeline.codegraph.links import Edge, Files, Handed, Kind, Linked, Scope
from pipeline.codegraph.summary import Call, Define, Evaluate, From, Name, Statement
from pipeline.deadline import Deadline
from pipeline.generations.manifest import Draft
from pipeline.generations.rows import DocumentRows
from pipeline.ingest.stages import Prepared, Request, prepare
from pipeline.ports import Tx
from pipeline.testing.rows import DIMENSION, FINGERPRINT, vectors
from schemas.documents import Item, Source, SourceKind
from schemas.ids import RunId
from schemas.manifest import Manifest
from schemas.settings import ChunkSettings
from tests.generation_builder import Builder

WEIGHTS = {"imports": 1.0, "inherits": 0.5, "calls": 0.25}
SIZES = ChunkSettings(max_chars=200)


def rows_of(path: str, text: str) -> DocumentRows | None:
    """Return a source file as the ingest stages lay it out; None where nothing of it is kept."""
    data = text.encode()
    item = Item(path, Source(SourceKind.FOLDER, "/somewhere"), f"/somewhere/{path}")
    [made] = prepare([Request(item, data, "", SIZES, contains=1.0)])
    assert isinstance(made, Prepared), made
    if not (made.chunks or made.summary):
        return None
    return DocumentRows(
        document_id=path,
        source_location="/somewhere",
        locator=item.locator,
        content_hash=hashlib.sha256(data).digest()[:16],
        recipe=bytes(16),
        size=len(data),
        mtime_ns=None,
        media_type=made.media_type,
        title=made.title,
        metadata=made.metadata,
        chars=made.chars,
        chunks=made.chunks,
        vectors=vectors([chunk.text for chunk in made.chunks]),
        mentions=[found.mentions for found in made.ready] or [() for _ in made.chunks],
        facts=[found.facts for found in made.ready] or [() for _ in made.chunks],
        language=made.language,
        summary=made.summary,
    )


@dataclass(frozen=True)
class Threads:
    """`Linkers` that are threads of this process."""

    make: Callable[[Files], Linker]
    most: int = 2

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Talk, None]:
        """See `Linkers`."""
        child = Conversation(self.make)

        async def talk(request: bytes) -> bytes:
            return await to_thread.run_sync(child.answer, request)

        yield talk


class CodeCorpus(Builder):
    """One corpus that mirrors source files; `linked` are those that its last build linked, `difference` what it wrote."""

    linkers: Linkers
    files: dict[str, str]
    linked: list[str]
    difference: Difference

    @classmethod
    async def fresh(cls, pool: Pool, name: str, make: Callable[[Files], Linker]) -> CodeCorpus:
        """Make an empty corpus, to be linked by what this makes."""
        made = await Builder.new(pool, name)
        corpus = cls(pool, made.corpus, made.cap)
        corpus.files, corpus.linked, corpus.difference = {}, [], Difference()
        corpus.linkers = Threads(lambda files: Noted(make(files), corpus.linked))
        return corpus

    async def open(self, files: Mapping[str, str], run: str = "run") -> tuple[int, str]:
        """Write, link and derive a generation of these files; it is not published."""
        number, collection = await self.begin(run)
        changed = {path: rows_of(path, text) for path, text in files.items() if self.files.get(path) != text}
        written = [rows for rows in changed.values() if rows]
        gone = (self.files.keys() - files.keys()) | {path for path, rows in changed.items() if not rows}
        await self.write(number, collection, written, gone)
        await self.link(number)
        await self.assemble(number)
        return number, collection

    async def link(self, number: int) -> None:
        """The step LINK of an index run."""
        self.linked.clear()

        def reading() -> AbstractAsyncContextManager[Tx]:
            return self.pool.transaction(Deadline.after(10))

        async def report(done: int, total: int) -> None:
            assert 0 <= done <= total

        links = postgres_code.PostgresLinks()
        self.difference = await Linking(links, self.corpus, number, reading, report, self.linkers).difference()
        async with self.pool.transaction(Deadline.after(10)) as tx:
            await links.write(tx, self.corpus, number, WEIGHTS, self.difference)

    async def sync(self, files: Mapping[str, str]) -> Manifest:
        """Publish a generation of these files."""
        number, collection = await self.open(files)
        self.files = dict(files)
        async with self.pool.transaction(Deadline.after(10)) as tx:
            draft = Draft(
                RunId("run"), collection, DIMENSION, f"graph-{number}", "code", FINGERPRINT, "code", "words",
                code=await postgres_code.figures(tx, self.corpus),
            )  # fmt: skip
            return await promote(tx, self.corpus, number, draft)

    async def edges(self, *kinds: str) -> set[tuple[str, str, str]]:
        """Return the relations of these kinds (else all) that the newest rows hold, by public ids."""
        async with self.pool.connection(Deadline.after(10)) as tx:
            rows = await tx.fetch(RELATIONS, self.corpus)
        return {(s, t, o) for s, t, o in rows if not kinds or t in kinds}

    async def entities(self) -> dict[str, str]:
        """Return the types of all entities by public id."""
        async with self.pool.connection(Deadline.after(10)) as tx:
            return {row["entity_id"]: row["type"] for row in await tx.fetch(ENTITIES, self.corpus)}


RELATIONS = """
select s.entity_id, r.type, t.entity_id from relation r
join entity s on s.corpus_id = $1 and s.entity_no = r.source_no and s.died is null
join entity t on t.corpus_id = $1 and t.entity_no = r.target_no and t.died is null
where r.corpus_id = $1 and r.died is null
"""
ENTITIES = "select entity_id, type from entity where corpus_id = $1 and died is null"


class Noted:
    """A linker that notes what it linked."""

    def __init__(self, inner: Linker, linked: list[str]) -> None:
        self._inner = inner
        self._linked = linked

    def link(self, path: str, received: Iterable[Handed] = ()) -> Linked:
        """See `Linker`."""
        found = self._inner.link(path, received)
        self._linked.append(path)
        return found


class SmallLinker:
    """Follows `from a import b` through re-exports, calls of plain names, and functions that are handed over by name.

    Its answers follow from the summaries alone, as those of the real one, and it looks at as many kinds of things.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._reads: set[str] = set()

    def link(self, path: str, received: Iterable[Handed] = ()) -> Linked:
        """See `Linker`."""
        self._reads = {path, all_of(path), folder_of(path)}
        summary = self._files.summary(path)
        assert summary is not None
        given = {(one.function, one.parameter, one.value) for one in received}
        edges: dict[tuple[str, str, Kind, Scope], int] = {}
        handed: set[Handed] = set()
        missing = 0
        for source, statement in _statements(path, summary.body):
            if isinstance(statement, From):
                target = self._module(statement.module)
                edges.setdefault(
                    (path, target or statement.module, "imports", "corpus" if target else "external"), statement.line
                )
            for call, name in _calls(statement):
                found = self._find(path, name)
                values = [value for function, parameter, value in given if (function, parameter) == (source, name)]
                for one in filter(None, (found, *values)):
                    edges.setdefault((source, one, "calls", "corpus"), call.line)
                missing += found is None
                handed |= self._handed(path, found, call) if found else set()
        counts = {"unknown_name": missing, "ambiguous": len(self._files.folder(folder_of(path)))}
        return Linked(
            path,
            tuple(
                sorted(Edge(source, target, kind, line, scope) for (source, target, kind, scope), line in edges.items())
            ),
            {reason: count for reason, count in counts.items() if count},
            frozenset(self._reads),
            tuple(sorted(handed)),
        )

    def _handed(self, path: str, function: str, call: Call) -> set[Handed]:
        names = [argument.name for argument in call.arguments if isinstance(argument, Name)]
        values = [value for name in names if (value := self._find(path, name))]
        if function.startswith(f"{path}::"):
            return set()
        return {Handed(function, parameter, value) for value in values for parameter in self._parameters(function)}

    def _module(self, name: str) -> str | None:
        for path in (f"{name.replace('.', '/')}/__init__.py", f"{name.replace('.', '/')}.py"):
            self._reads.add(path)
            if self._files.exists(path):
                return path
        self._reads.add(f"*/{name}.py")
        return next(iter(self._files.named(f"{name}.py")), None)

    def _find(self, path: str, name: str, depth: int = 4) -> str | None:
        self._reads |= {path, all_of(path)}
        summary = self._files.summary(path)
        if summary is None or depth == 0:
            return None
        found = f"{path}::{name}" if any(symbol.qualname == name for symbol in summary.symbols) else None
        for statement in summary.body:
            if isinstance(statement, From):
                target = self._module(statement.module)
                for original, bound in statement.names:
                    if bound == name and target:
                        found = self._find(target, original, depth - 1) or found
        return found

    def _parameters(self, function: str) -> list[str]:
        path, _, qualname = function.rpartition("::")
        summary = self._files.summary(path)
        self._reads |= {path, all_of(path)}
        return [
            parameter.name
            for statement in (summary.body if summary else ())
            if isinstance(statement, Define) and statement.function.qualname == qualname
            for parameter in statement.function.parameters
        ]


def _statements(path: str, body: Iterable[Statement]) -> Iterator[tuple[str, Statement]]:
    """Yield the statements of a file and of its functions, each with the id of where it stands."""
    for statement in body:
        yield path, statement
        if isinstance(statement, Define):
            for one in statement.function.body:
                yield f"{path}::{statement.name}", one


def _calls(statement: Statement) -> Iterator[tuple[Call, str]]:
    if isinstance(statement, Evaluate) and isinstance(statement.value, Call) and isinstance(statement.value.of, Name):
        yield statement.value, statement.value.of.name

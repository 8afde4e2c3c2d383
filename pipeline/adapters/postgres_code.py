"""The links between source files, in PostgreSQL: what they are made from, and only what differs is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.codegraph.entities import evidence
from pipeline.codegraph.files import Touched, meets, read_no
from pipeline.codegraph.linked_rows import ChunkLines, Difference, EdgeKey, FileRows, Sent
from pipeline.codegraph.linking import Changed, Survey
from pipeline.codegraph.links import Handed
from pipeline.generations.rows import FACT, MENTION, stored
from pipeline.ports import Tx
from pipeline.queries import load
from schemas.graph import Mention
from schemas.ids import CorpusId
from schemas.manifest import CodeGraph

_SQL = load("code")
_LINK = ("corpus_id", "document_id", "born", "edges", "unresolved")
_READ = ("corpus_id", "document_id", "read_no", "asked", "born")
_HANDED = ("corpus_id", "document_id", "receiver", "read_no", "function", "parameter", "value", "born")


class PostgresLinks:
    """A `LinkStore`."""

    async def survey(self, tx: Tx, corpus: CorpusId, number: int) -> Survey:
        """See `LinkStore`."""
        changed = [
            Changed(row["path"], row["was"], row["is"], row["old"] or b"", row["new"] or b"", row["filled"])
            for row in await tx.fetch(_SQL["changed_files"], corpus, number)
        ]
        files = {row["document_id"]: row["filled"] for row in await tx.fetch(_SQL["source_files"], corpus)}
        return Survey(changed, files)

    async def readers(self, tx: Tx, corpus: CorpusId, reads: Touched) -> set[str]:
        """See `LinkStore`."""
        rows = await tx.fetch(_SQL["readers"], corpus, list(reads))
        return {path for path, number, asked in rows if meets(asked, reads[number])}

    async def summaries(self, tx: Tx, corpus: CorpusId, paths: Sequence[str]) -> dict[str, bytes]:
        """See `LinkStore`."""
        return {row["document_id"]: row["summary"] for row in await tx.fetch(_SQL["summaries"], corpus, list(paths))}

    async def reads(self, tx: Tx, corpus: CorpusId, paths: Sequence[str]) -> set[int]:
        """See `LinkStore`."""
        return {row["read_no"] for row in await tx.fetch(_SQL["looked_at"], corpus, list(paths))}

    async def handed_before(
        self, tx: Tx, corpus: CorpusId, number: int, paths: Sequence[str]
    ) -> dict[str, set[Handed]]:
        """See `LinkStore`."""
        return _handed(await tx.fetch(_SQL["handed_before"], corpus, number, list(paths)))

    async def handed_to(self, tx: Tx, corpus: CorpusId, paths: Sequence[str]) -> dict[str, set[Handed]]:
        """See `LinkStore`."""
        return _handed(await tx.fetch(_SQL["handed_to"], corpus, [read_no(path) for path in paths]))

    async def stored(
        self, tx: Tx, corpus: CorpusId, paths: Sequence[str]
    ) -> tuple[dict[str, ChunkLines], dict[str, FileRows]]:
        """See `LinkStore`."""
        scope = (corpus, list(paths))
        lines: dict[str, tuple[list[int], list[int]]] = {}
        for path, chunk, end in await tx.fetch(_SQL["chunk_lines"], *scope):
            chunks, ends = lines.setdefault(path, ([], []))
            chunks.append(chunk)
            ends.append(end)
        found = {path: _Stored() for path in paths}
        path_of = {chunk: path for path, (chunks, _) in lines.items() for chunk in chunks}
        for chunk, source, target, kind, line in await tx.fetch(_SQL["edges"], corpus, list(path_of)):
            found[path_of[chunk]].edges[chunk, source, target, kind] = line
        for chunk, number, key in await tx.fetch(_SQL["references"], corpus, list(path_of)):
            path = path_of[chunk]
            if key != path and not key.startswith(f"{path}::"):  # what it defines is no reference
                found[path].references[chunk, number] = None
        for path, edges, unresolved in await tx.fetch(_SQL["links"], *scope):
            found[path].counts, found[path].unresolved = edges, unresolved
        for path, number, asked in await tx.fetch(_SQL["reads"], *scope):
            found[path].reads[number] = asked
        for path, to, *handed in await tx.fetch(_SQL["handed_by"], *scope):
            found[path].handed.add((to, Handed(*handed)))
        return {path: ChunkLines(*both) for path, both in lines.items()}, {p: s.rows() for p, s in found.items()}

    async def write(
        self, tx: Tx, corpus: CorpusId, number: int, weights: Mapping[str, float], what: Difference
    ) -> None:
        """See `LinkStore`."""
        scope = (corpus, number)
        for statement, ended in (
            (_SQL["end_edges"], what.ended_edges),
            (_SQL["end_references"], what.ended_references),
            (_SQL["end_reads"], what.ended_reads),
            (_SQL["end_handed"], [(path, h.function, h.parameter, h.value) for path, (_, h) in what.ended_handed]),
        ):
            if ended:
                await tx.execute(statement, *scope, *map(list, zip(*ended, strict=True)))
        if what.renewed:
            await tx.execute(_SQL["renew_mentions"], *scope, sorted(what.renewed))
            await tx.execute(_SQL["renew_chunks"], *scope, sorted(what.renewed))
        if what.ended_links:
            await tx.execute(_SQL["end_links"], *scope, what.ended_links)
        await tx.copy("fact", FACT, _facts(corpus, number, weights, what))
        await tx.copy("mention", MENTION, _mentions(corpus, number, what))
        await tx.copy("code_link", _LINK, ((corpus, path, number, *counts) for path, *counts in what.links))
        await tx.copy("code_read", _READ, ((corpus, path, *read, number) for path, *read in what.reads))
        handed = (
            (corpus, path, to, read_no(to), h.function, h.parameter, h.value, number) for path, (to, h) in what.handed
        )
        await tx.copy("code_handed", _HANDED, handed)


async def figures(tx: Tx, corpus: CorpusId) -> CodeGraph:
    """Return the account of the code graph that the generation in the making has."""
    parts: dict[str, dict[str, int]] = {}
    for row in await tx.fetch(_SQL["figures"], corpus):
        parts.setdefault(row["part"], {})[row["name"]] = row["rows"]
    return CodeGraph.model_validate(parts)


@dataclass(slots=True)
class _Stored:
    """The rows of a file, as they are read."""

    edges: dict[EdgeKey, int] = field(default_factory=dict[EdgeKey, int])
    references: dict[tuple[int, int], Mention | None] = field(default_factory=dict[tuple[int, int], Mention | None])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    unresolved: dict[str, int] = field(default_factory=dict[str, int])
    reads: dict[int, bytes] = field(default_factory=dict[int, bytes])
    handed: set[Sent] = field(default_factory=set[Sent])

    def rows(self) -> FileRows:
        return FileRows(self.edges, self.references, self.counts, self.unresolved, self.reads, frozenset(self.handed))


def _handed(rows: Sequence[Any]) -> dict[str, set[Handed]]:
    found: dict[str, set[Handed]] = {}
    for row in rows:
        found.setdefault(row["document_id"], set()).add(Handed(row["function"], row["parameter"], row["value"]))
    return found


def _facts(corpus: int, number: int, weights: Mapping[str, float], what: Difference) -> Iterator[tuple[Any, ...]]:
    for path, (chunk, source, target, kind), line in what.edges:
        yield corpus, chunk, source, target, kind, number, weights[kind], -1, -1, stored(evidence(path, line))


def _mentions(corpus: int, number: int, what: Difference) -> Iterator[tuple[Any, ...]]:
    for chunk, entity, m in what.references:
        yield (
            corpus, chunk, entity, number, m.type, m.identity, m.name, m.start, m.end, m.origin, m.description,
            stored(m.properties),
        )  # fmt: skip

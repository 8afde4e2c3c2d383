"""What declared sources stand for in this process: a corpus that was indexed from them, or their documents as they are."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import orjson

from pipeline.deadline import Deadline
from pipeline.declare.entries import Knowledge, KnowledgeType
from pipeline.declare.failures import SOURCE_LOADING
from pipeline.errors import DocumentError, NotFound, Refused, RetrievalError, SapwoodError
from pipeline.flights import Flights
from pipeline.ingest.parse import parse
from pipeline.ingest.sources import list_sources, make_source, read
from pipeline.ingest.urls import Fetcher
from schemas.documents import Outcome, ParsedDocument, Source, SourceKind
from schemas.runs import RunState
from schemas.settings import CorpusSettings
from worker.app import Sapwood

MAX_TEXT = 64 << 20
"""Bytes of the documents of one entry that is used without a search."""

Documents = tuple[ParsedDocument, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A corpus that was indexed from declared sources. `number` is another one each time that this was done."""

    corpus: str
    number: int


class Bindings:
    """The bindings of a process: made on first use, kept until they are invalidated.

    `folder` holds the documents of MEMORY entries, a folder for each by its number in `memories`.
    """

    def __init__(self, settings: CorpusSettings, memories: Sequence[str], folder: Path, fetcher: Fetcher) -> None:
        self._settings, self._memories, self._folder, self._fetcher = settings, list(memories), folder, fetcher
        self._numbers = itertools.count(1)
        self._epochs: Counter[type] = Counter()
        self._bound: dict[Hashable, Binding] = {}
        self._loaded: dict[Hashable, Documents] = {}
        self._indexing: Flights[Binding] = Flights()
        self._loading: Flights[Documents] = Flights()

    def place(self, entry: Knowledge) -> str:
        """Return the path or the URL of an entry."""
        if entry.type is KnowledgeType.MEMORY:
            return str(self._folder / str(self._memories.index(entry.name)))
        return entry.url if entry.type is KnowledgeType.HTTP else entry.path or ""

    def invalidate(self, owner: type) -> None:
        """Forget what a class's sources held; they are read anew when they are used next."""
        self._epochs[owner] += 1
        self._bound = {key: found for key, found in self._bound.items() if not _is_of(owner, key)}
        self._loaded = {key: found for key, found in self._loaded.items() if not _is_of(owner, key)}

    async def bind(self, app: Sapwood, owner: type, entries: Sequence[Knowledge]) -> Binding:
        """Return the corpus of these sources of a class, for the application's tenant.

        Raises:
            RetrievalError: SOURCE_LOADING: one of them is not there, or it could not be read or indexed.
        """
        key = (owner, self._epochs[owner], app.tenant, tuple(entries))
        if (found := self._bound.get(key)) is None:
            found = await self._indexing.once(key, lambda: self._index(app, owner, entries))
            self._bound[key] = found
        return found

    async def load(self, app: Sapwood, owner: type, entry: Knowledge, deadline: Deadline) -> Documents:
        """Return the documents of an entry that is not searched. Raises RetrievalError: SOURCE_LOADING."""
        key = (owner, self._epochs[owner], app.tenant, entry)
        if (found := self._loaded.get(key)) is None:
            found = await self._loading.once(key, lambda: self._read(entry, deadline))
            self._loaded[key] = found
        return found

    async def _index(self, app: Sapwood, owner: type, entries: Sequence[Knowledge]) -> Binding:
        sources = [await self._source(entry) for entry in entries]
        corpus = corpus_name(owner, sources)
        run = await app.index(corpus, sources, settings=self._settings)
        info = await app.work(run.run_id)
        if info.state is not RunState.COMPLETED:
            raise RetrievalError(f"The declared sources could not be indexed: {info.error}", SOURCE_LOADING)
        await _check_outcomes(app, info.run_id, entries, sources)
        return Binding(corpus, next(self._numbers))

    async def _source(self, entry: Knowledge) -> Source:
        try:
            return await anyio.to_thread.run_sync(
                make_source, self.place(entry), entry.include or (), entry.exclude or ()
            )
        except (NotFound, Refused, OSError) as error:
            raise RetrievalError(f"Knowledge entry {entry.name!r}: {_words(error)}", SOURCE_LOADING) from error

    async def _read(self, entry: Knowledge, deadline: Deadline) -> Documents:
        try:
            if entry.type is KnowledgeType.HTTP:
                data, kind = await self._fetcher.fetch(entry.url, deadline)
                name = entry.url.split("://", 1)[1].split("?", 1)[0]
                return (await anyio.to_thread.run_sync(parse, name, data, entry.media_type or kind),)
            source = await self._source(entry)
            return await anyio.to_thread.run_sync(_documents, source, entry.media_type, abandon_on_cancel=True)
        except (NotFound, Refused, DocumentError) as error:
            raise RetrievalError(f"Knowledge entry {entry.name!r}: {_words(error)}", SOURCE_LOADING) from error


def corpus_name(owner: type, sources: Sequence[Source]) -> str:
    """Return the name of the corpus of a class and these sources, the same in every process."""
    parts = [owner.__module__, owner.__qualname__, *sources]
    digest = hashlib.sha256(orjson.dumps(parts, default=str)).hexdigest()
    return f"declared-{digest[:32]}"


def _is_of(owner: type, key: Hashable) -> bool:
    return isinstance(key, tuple) and key[0] is owner


def _words(error: Exception) -> str:
    """Return what a message may say: an error of ours says nothing secret, one of the system may."""
    return str(error) if isinstance(error, SapwoodError) else type(error).__name__


async def _check_outcomes(app: Sapwood, run_id: str, entries: Sequence[Knowledge], sources: Sequence[Source]) -> None:
    """Hold sources that are one document each to that document; of a folder, one bad file does not cost the others.

    A message names the entry: the address of a page may hold a secret.
    """
    single = [(entry, name) for entry, source in zip(entries, sources, strict=True) if (name := _one_name(source))]
    if not single:
        return
    left_out = [one for kind in (Outcome.FAILED, Outcome.SKIPPED) for one in await app.outcomes(run_id, outcome=kind)]
    for entry, name in single:
        for one in left_out:
            if one.document_id == name or one.document_id.endswith(f"/{name}"):
                raise RetrievalError(f"Knowledge entry {entry.name!r}: {one.reason}", SOURCE_LOADING)


def _one_name(source: Source) -> str:
    """Return what the one document of a page or a file is called; of anything else, nothing."""
    if source.kind is SourceKind.URL:
        return source.location.split("://", 1)[1]
    return Path(source.location).name if source.kind is SourceKind.FILE else ""


def _documents(source: Source, media_type: str) -> Documents:
    """Read and parse all documents of a source. Blocking: for a thread."""
    listing = list_sources([source])
    if listing.skipped:
        raise DocumentError(f"{listing.skipped[0].document_id}: {listing.skipped[0].reason}")
    if sum(item.size or 0 for item in listing.items) > MAX_TEXT:
        raise Refused(f"size rule: more than {MAX_TEXT >> 20} MiB to be used without a search")
    found: list[ParsedDocument] = []
    for item in listing.items:
        try:
            found.append(parse(item.document_id, read(item), media_type))
        except DocumentError as error:
            raise DocumentError(f"{item.document_id}: {error}") from error
    return tuple(found)

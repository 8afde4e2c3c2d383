"""What declared sources stand for in this process: a corpus that was indexed from them, or their documents as they are."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread
import orjson

from pipeline.deadline import Deadline
from pipeline.declare.entries import Knowledge, KnowledgeType
from pipeline.declare.failures import SOURCE_LOADING
from pipeline.errors import DocumentError, NotFound, Refused, RetrievalError, SapwoodError
from pipeline.flights import Flights
from pipeline.ingest.prepare import Prepared, Preparer, Request
from pipeline.ingest.sources import list_sources, make_source, read
from pipeline.ingest.urls import Fetcher
from schemas.documents import Item, Outcome, Source, SourceKind
from schemas.runs import RunState
from schemas.settings import CorpusSettings
from worker.app import Sapwood

MAX_TEXT = 64 << 20
"""Bytes of the documents of one entry that is used without a search."""

NOTHING = "nothing"
"""The folder that has no documents, beside those of MEMORY entries, which are numbered."""

Documents = tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A corpus that was indexed from declared sources, perhaps without any document. `number` is another one each time
    that this was done.
    """

    corpus: str
    number: int
    empty: bool = False


class Bindings:
    """The bindings of a process: made on first use, kept until they are invalidated.

    `folder` holds the documents of MEMORY entries, a folder for each by its number in `memories`, which has a digest of them
    by the entry's name.
    """

    def __init__(
        self,
        settings: CorpusSettings,
        memories: Mapping[str, str],
        folder: Path,
        fetcher: Fetcher,
        preparer: Preparer,
    ) -> None:
        self._settings, self._memories, self._folder = settings, memories, folder
        self._fetcher, self._preparer = fetcher, preparer
        self._numbers = itertools.count(1)
        self._epochs: Counter[type] = Counter()
        self._bound: dict[Hashable, Binding] = {}
        self._loaded: dict[Hashable, Documents] = {}
        self._indexing: Flights[Binding] = Flights()
        self._loading: Flights[Documents] = Flights()

    def place(self, entry: Knowledge) -> str:
        """Return the path or the URL of an entry."""
        if entry.type is KnowledgeType.MEMORY:
            return str(self._folder / str(list(self._memories).index(entry.name)))
        return entry.url if entry.type is KnowledgeType.HTTP else entry.path or ""

    def invalidate(self, owner: type) -> None:
        """Forget what a class's sources held; they are read anew when they are used next."""
        self._epochs[owner] += 1
        self._bound = {key: found for key, found in self._bound.items() if not _is_of(owner, key)}
        self._loaded = {key: found for key, found in self._loaded.items() if not _is_of(owner, key)}

    async def bind(self, app: Sapwood, owner: type, entries: Sequence[Knowledge]) -> Binding:
        """Return the corpus of these sources of a class, for the application's tenant; without any, an empty one.

        Raises:
            RetrievalError: SOURCE_LOADING: one of them is not there, or it could not be read or indexed.
        """
        key = (owner, self._epochs[owner], app.tenant, tuple(entries))
        if (found := self._bound.get(key)) is None:
            found = await self._indexing.once(key, lambda: self._index(app, owner, entries))
            self._bound[key] = found
        return found

    async def load(self, app: Sapwood, owner: type, entry: Knowledge, cut: bool, deadline: Deadline) -> Documents:
        """Return the documents of an entry that is not searched, as a whole and, with `cut`, in chunks as well.

        Raises:
            RetrievalError: SOURCE_LOADING: it is not there, or a document of it cannot be read.
        """
        key = (owner, self._epochs[owner], app.tenant, entry, cut)
        if (found := self._loaded.get(key)) is None:
            found = await self._loading.once(key, lambda: self._read(entry, cut, deadline))
            self._loaded[key] = found
        return found

    async def _index(self, app: Sapwood, owner: type, entries: Sequence[Knowledge]) -> Binding:
        sources = [await self._source(entry) for entry in entries]
        read_as = tuple(
            (one.location, entry.media_type) for one, entry in zip(sources, entries, strict=True) if entry.media_type
        )
        corpus = corpus_name(owner, [self._named(*both) for both in zip(entries, sources, strict=True)])
        contexts = tuple(
            (one.location, model)
            for one, entry in zip(sources, entries, strict=True)
            for model in _context_models(entry)
        )
        settings = self._settings.model_copy(update={"read_as": read_as, "context_models": contexts})
        run = await app.index(corpus, sources or [self._nothing], settings=settings)
        info = await app.work(run.run_id)
        if info.state is not RunState.COMPLETED:
            raise RetrievalError(f"The declared sources could not be indexed: {info.error}", SOURCE_LOADING)
        await _check_outcomes(app, info.run_id, entries, sources)
        counts, _ = await app.accounting(info.run_id, 0)
        there = counts.get(Outcome.INDEXED, 0) + counts.get(Outcome.UNCHANGED, 0)
        return Binding(corpus, next(self._numbers), empty=not there)

    def _named(self, entry: Knowledge, source: Source) -> list[object]:
        """Return what a corpus is named by: a source as it is found again, documents from memory by what they are."""
        if entry.type is KnowledgeType.MEMORY:
            source = replace(source, location=self._memories[entry.name])
        return [source, entry.media_type, *_context_models(entry)]

    @property
    def _nothing(self) -> Source:
        return Source(SourceKind.FOLDER, str(self._folder / NOTHING))

    async def _source(self, entry: Knowledge) -> Source:
        try:
            return await anyio.to_thread.run_sync(
                make_source, self.place(entry), entry.include or (), entry.exclude or ()
            )
        except (NotFound, Refused, OSError) as error:
            raise RetrievalError(f"Knowledge entry {entry.name!r}: {_words(error)}", SOURCE_LOADING) from error

    async def _read(self, entry: Knowledge, cut: bool, deadline: Deadline) -> Documents:
        """Read an entry's documents and have them parsed where documents are, in processes that a hostile one may take
        with it.
        """
        sizes = self._settings.chunk if cut else None
        try:
            read = await self._read_bytes(entry, deadline)
            requests = [Request(item, data, kind, sizes, whole=True) for item, data, kind in read]
            prepared = await self._preparer.prepare(requests)
            return tuple(_readable(item, one) for (item, _, _), one in zip(read, prepared, strict=True))
        except (NotFound, Refused, DocumentError) as error:
            raise RetrievalError(f"Knowledge entry {entry.name!r}: {_words(error)}", SOURCE_LOADING) from error

    async def _read_bytes(self, entry: Knowledge, deadline: Deadline) -> list[tuple[Item, bytes, str]]:
        """Return the documents with their bytes and the media type that is known."""
        if entry.type is not KnowledgeType.HTTP:
            source = await self._source(entry)
            found = await anyio.to_thread.run_sync(_files, source, abandon_on_cancel=True)
            return [(item, data, entry.media_type) for item, data in found]
        data, kind = await self._fetcher.fetch(entry.url, deadline)
        name = entry.url.split("://", 1)[1].split("?", 1)[0]
        item = Item(name, Source(SourceKind.URL, entry.url), entry.url)
        return [(item, data, entry.media_type or kind)]


def corpus_name(owner: type, sources: Sequence[object]) -> str:
    """Return the name of the corpus of a class and what its sources are known by, the same in every process."""
    parts = [owner.__module__, owner.__qualname__, *sources]
    digest = hashlib.sha256(orjson.dumps(parts, default=str)).hexdigest()
    return f"declared-{digest[:32]}"


def _context_models(entry: Knowledge) -> list[str]:
    """Return the model that says where the entry's chunks stand, an empty one where none is to; nothing if it is not said."""
    return [] if entry.chunk_context is None else [entry.chunk_context_model or ""]


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


def _readable(item: Item, one: Prepared | DocumentError) -> Prepared:
    if not isinstance(one, DocumentError):
        return one
    raise one if item.source.kind is SourceKind.URL else DocumentError(f"{item.document_id}: {one}")


def _files(source: Source) -> list[tuple[Item, bytes]]:
    """Read all documents of a source. Blocking: for a thread."""
    listing = list_sources([source])
    if listing.skipped:
        raise DocumentError(f"{listing.skipped[0].document_id}: {listing.skipped[0].reason}")
    if sum(item.size or 0 for item in listing.items) > MAX_TEXT:
        raise Refused(f"size rule: more than {MAX_TEXT >> 20} MiB to be used without a search")
    found: list[tuple[Item, bytes]] = []
    for item in listing.items:
        try:
            found.append((item, read(item)))
        except DocumentError as error:
            raise DocumentError(f"{item.document_id}: {error}") from error
    return found

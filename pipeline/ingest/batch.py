"""Some documents on their way to rows: read, prepare (parse, chunk, analyse), embed, extract. Every document has one outcome."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio
import anyio.to_thread

from pipeline.codegraph.fingerprint import FINGERPRINT as CODE
from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, LeftOut, SapwoodError
from pipeline.generations.gate import policy_of
from pipeline.generations.rows import DocumentRows
from pipeline.ingest.contexts import ContextCache, Contextual, Contextualiser, passage_of, version_of
from pipeline.ingest.embed import Embedding, embed_texts
from pipeline.ingest.extract import extract_texts
from pipeline.ingest.offline import FINGERPRINT as OFFLINE
from pipeline.ingest.offline import carried
from pipeline.ingest.prepare import FINGERPRINT as READING
from pipeline.ingest.prepare import Prepared, Preparer, Request
from pipeline.ingest.repositories import Repositories
from pipeline.ingest.sources import Listing, list_all, read
from pipeline.ingest.summaries import Summariser
from pipeline.ingest.urls import Fetcher
from pipeline.plan import RACY_NS, Known
from pipeline.ports import Cache, Extractor, Vectors
from pipeline.retrieval.analyzer import FINGERPRINT as ANALYZER
from pipeline.retrieval.assistants import Assigned, ContextWriter, Spent
from schemas.documents import Chunk, DocumentOutcome, Item, Outcome, Source, SourceKind
from schemas.graph import Extraction, Mention
from schemas.ids import CorpusId
from schemas.payloads import BatchPayload
from schemas.settings import CorpusSettings, EmbeddingSettings
from schemas.settings import recipe as recipe_of

FETCHES = 8
"""Pages that are fetched at once."""

COUNTERS = (
    "selected", "attempted", "succeeded", "failed", "truncated", "contexts", "contexts_failed", "input_tokens", "output_tokens",
)  # fmt: skip

UNFINISHED = b""
"""The recipe of a document that is not yet what its recipe makes of it, so that the next run takes it up again."""


class Models(Protocol):
    """Gives the models that a corpus's settings name. Raises ConfigurationError where one cannot be had."""

    def embedding(self, wanted: EmbeddingSettings) -> Embedding:
        """Return the embedding; the same one for the same settings."""
        ...

    async def extractor(self, settings: CorpusSettings) -> Extractor | None:
        """Return the extractor, or None where nothing is to be extracted."""
        ...

    def summariser(self, settings: CorpusSettings) -> Summariser | None:
        """Return what writes the summaries of communities, or None where they are made offline."""
        ...

    async def writer(self, model: str) -> Assigned[ContextWriter]:
        """Return who says where chunks stand, for a model that is named for it."""
        ...


class PaidWork(Cache, ContextCache, Protocol):
    """Keeps all that batches pay for."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What documents are made with. `fingerprint` changes whenever their rows would; `paid` is the extractor's.

    `contains` is the weight of containment where source code is read, else None.
    """

    fingerprint: bytes
    embedding: str
    dimension: int
    extraction: str
    paid: bool
    contains: float | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What is to be written. `gone` had rows before and has none now; `telemetry` counts by COUNTERS."""

    documents: Sequence[DocumentRows]
    outcomes: Sequence[DocumentOutcome]
    gone: Sequence[str]
    restat: Sequence[Item]
    telemetry: dict[str, int]


@dataclass(slots=True)
class _Sorting:
    """A batch while its documents are sorted by how they end."""

    outcomes: dict[str, DocumentOutcome] = field(default_factory=dict[str, DocumentOutcome])
    restat: list[Item] = field(default_factory=list[Item])
    kept: set[str] = field(default_factory=set[str])
    lacking: dict[str, Contextual] = field(default_factory=dict[str, Contextual])

    def end(self, item: Item, outcome: Outcome, reason: str = "", chunks: int = 0) -> None:
        self.outcomes[item.document_id] = DocumentOutcome(item.document_id, outcome, reason, chunks)


@dataclass(frozen=True, slots=True)
class _Read:
    item: Item
    data: bytes
    media_type: str

    @property
    def content_hash(self) -> bytes:
        return hashlib.sha256(self.data).digest()[:16]


class BatchPipeline:
    """The stages of a batch, shared by all batches of a process. `calls` are the slots for paid model calls."""

    def __init__(
        self,
        models: Models,
        preparer: Preparer,
        fetcher: Fetcher,
        repositories: Repositories,
        cache: PaidWork,
        calls: anyio.CapacityLimiter,
    ) -> None:
        self._models = models
        self._preparer = preparer
        self._fetcher = fetcher
        self._repositories = repositories
        self._cache = cache
        self._calls = calls
        self._turn = anyio.Lock()
        self._contexts = Contextualiser(cache, calls, self._turn)
        self._fetches = anyio.CapacityLimiter(FETCHES)

    async def recipe(self, settings: CorpusSettings, deadline: Deadline) -> Recipe:
        """Return what documents of a corpus with these settings are made with; may ask the embedding for its width."""
        embedding, extractor = self._models.embedding(settings.embedding), await self._extractor(settings)
        if embedding.dimension is None:
            await embedding.embed(["width"], deadline)
        code = policy_of(settings) == "code"
        extraction = extractor.fingerprint if extractor else CODE if code else "none"
        writers = [await self._models.writer(model) for model in settings.all_context_models]
        return Recipe(
            recipe_of(settings, READING, ANALYZER, embedding.fingerprint, extraction, *map(version_of, writers)),
            embedding.fingerprint,
            embedding.dimension or 0,
            extraction,
            bool(extractor and extractor.paid),
            settings.graph_indexing.ast_contains_weight if code else None,
        )

    async def _extractor(self, settings: CorpusSettings) -> Extractor | None:
        """Return what reads the texts; source code is not read by it, so that none need be configured."""
        return None if settings.graph_indexing.build_code_graph else await self._models.extractor(settings)

    async def listing(self, sources: Sequence[Source], deadline: Deadline) -> Listing:
        """Return what the sources hold now, in canonical order. Meanwhile the first parser loads."""
        deadline.budget(1.0)
        self._preparer.expect(1)
        return await list_all(sources, self._repositories, deadline)

    def expect(self, documents: int) -> None:
        """Get ready, beside the caller, for so many documents that are to be read soon."""
        self._preparer.expect(documents)

    def summariser(self, settings: CorpusSettings) -> Summariser | None:
        """Return the model that summarises communities, if one is set."""
        return self._models.summariser(settings)

    async def run(
        self, corpus: CorpusId, payload: BatchPayload, known: Mapping[str, Known], deadline: Deadline
    ) -> BatchResult:
        """Take the documents through all stages. Paid results are cached as they come; nothing else is written.

        Raises:
            DependencyError: a model could not be used at all, or a source's server is away: the batch is to be retried.
        """
        recipe = await self.recipe(payload.settings, deadline)
        sorting = _Sorting()
        fresh = await self._fresh(payload.items, known, recipe, sorting, deadline)
        prepared = await self._prepared(fresh, payload.settings, recipe, sorting)
        prepared, spent = await self._contextual(corpus, prepared, payload.settings, sorting, deadline)
        rows, telemetry = await self._rows(corpus, prepared, payload.settings, recipe, deadline)
        for counter, count in spent.items():
            telemetry[counter] += count
        for row in rows:
            if row.chunks:
                sorting.outcomes[row.document_id] = _indexed(row, sorting.lacking.get(row.document_id))
        outcomes = [sorting.outcomes[item.document_id] for item in payload.items]
        stays = (Outcome.INDEXED, Outcome.UNCHANGED)
        ended = [o.document_id for o in outcomes if o.outcome not in stays and o.document_id in known]
        gone = [name for name in ended if name not in sorting.kept]
        again = {name for name, one in sorting.lacking.items() if one.again}
        rows = [replace(row, recipe=UNFINISHED) if row.document_id in again else row for row in rows]
        return BatchResult(rows, outcomes, gone, sorting.restat, telemetry)

    async def _fresh(
        self, items: Sequence[Item], known: Mapping[str, Known], recipe: Recipe, sorting: _Sorting, deadline: Deadline
    ) -> list[_Read]:
        """Read the documents; return those whose content or recipe is not the known one."""
        fresh: list[_Read] = []
        for item, one in zip(items, await self._read(items, deadline), strict=True):
            before = known.get(item.document_id)
            if isinstance(one, SapwoodError):
                # A page or repository that cannot be had just now is not gone; a file that cannot be read is not there.
                away = item.source.kind in (SourceKind.URL, SourceKind.GIT) and not isinstance(one, LeftOut)
                if before and away:
                    sorting.kept.add(item.document_id)
                    sorting.end(item, Outcome.FAILED, f"{one} (its last version stays)")
                else:
                    sorting.end(item, Outcome.SKIPPED if isinstance(one, LeftOut) else Outcome.FAILED, str(one))
                continue
            if before and (before.content_hash, before.recipe) == (one.content_hash, recipe.fingerprint):
                sorting.end(item, Outcome.UNCHANGED, chunks=before.chunks)
                sorting.restat.append(settled(item))
            else:
                fresh.append(one)
        return fresh

    async def _read(self, items: Sequence[Item], deadline: Deadline) -> list[_Read | SapwoodError]:
        """Return each document or why it cannot be read; all files in one thread, pages a few at a time."""
        pages = [item for item in items if item.source.kind is SourceKind.URL]
        blobs = [item for item in items if item.source.kind is SourceKind.GIT]
        files = [item for item in items if item.source.kind not in (SourceKind.URL, SourceKind.GIT)]
        found = dict(zip(files, await anyio.to_thread.run_sync(_read_files, files), strict=True))
        if blobs:
            for item, one in zip(blobs, await self._repositories.read(blobs, deadline), strict=True):
                found[item] = one if isinstance(one, SapwoodError) else _Read(item, one, "")

        async def fetch(item: Item) -> None:
            async with self._fetches:
                found[item] = await self._fetched(item, deadline)

        async with anyio.create_task_group() as group:
            for item in pages:
                group.start_soon(fetch, item)
        return [found[item] for item in items]

    async def _fetched(self, item: Item, deadline: Deadline) -> _Read | SapwoodError:
        try:
            return _Read(item, *await self._fetcher.fetch(item.locator, deadline))
        except (DependencyError, DeadlineExceeded):
            raise
        except SapwoodError as error:
            return error

    async def _prepared(
        self, fresh: Sequence[_Read], settings: CorpusSettings, recipe: Recipe, sorting: _Sorting
    ) -> list[tuple[_Read, Prepared]]:
        """Parse, chunk and analyse in child processes, which extract as well where no model is asked; failed and empty
        documents end here, but for empty source files, which others may import.
        """
        extract, contains, read_as = recipe.extraction == OFFLINE, recipe.contains, dict(settings.read_as)
        kinds = [read_as.get(one.item.source.location, one.media_type) for one in fresh]
        requests = [
            Request(one.item, one.data, kind, settings.chunk, extract, _told(one, settings), contains)
            for one, kind in zip(fresh, kinds, strict=True)
        ]
        done: list[tuple[_Read, Prepared]] = []
        for one, result in zip(fresh, await self._preparer.prepare(requests), strict=True):
            if isinstance(result, SapwoodError):
                sorting.end(one.item, Outcome.FAILED, str(result))
                continue
            if not result.chunks:
                sorting.end(one.item, Outcome.EMPTY, "There is no text in it.")
            if result.chunks or result.summary:
                sorting.kept.add(one.item.document_id)
                done.append((one, result))
        return done

    async def _contextual(
        self,
        corpus: CorpusId,
        prepared: Sequence[tuple[_Read, Prepared]],
        settings: CorpusSettings,
        sorting: _Sorting,
        deadline: Deadline,
    ) -> tuple[list[tuple[_Read, Prepared]], dict[str, int]]:
        """Have models say where the chunks stand, for the sources where one is named; count what that came to."""
        done, spent = list(prepared), Spent()
        counts = dict.fromkeys(("contexts", "contexts_failed"), 0)
        for model in settings.all_context_models:
            mine = [at for at, (one, _) in enumerate(done) if settings.context_model(one.item.source.location) == model]
            documents, writer = [done[at][1] for at in mine], await self._models.writer(model)
            for at, found in zip(
                mine, await self._contexts.run(corpus, documents, writer, deadline, spent), strict=True
            ):
                done[at] = done[at][0], found.prepared
                counts["contexts"] += len(found.prepared.chunks) - found.lacking
                counts["contexts_failed"] += found.lacking
                if found.lacking:
                    sorting.lacking[found.prepared.document_id] = found
        return done, counts | {"input_tokens": spent.input_tokens, "output_tokens": spent.output_tokens}

    async def _rows(
        self,
        corpus: CorpusId,
        prepared: Sequence[tuple[_Read, Prepared]],
        settings: CorpusSettings,
        recipe: Recipe,
        deadline: Deadline,
    ) -> tuple[list[DocumentRows], dict[str, int]]:
        """Embed and extract all chunks of the batch, and lay out the rows document by document."""
        passages = [(document, chunk) for _, document in prepared for chunk in document.chunks]
        texts = [passage_of(document, chunk) for document, chunk in passages]
        vectors, tokens = await embed_texts(
            self._cache,
            corpus,
            self._models.embedding(settings.embedding),
            texts,
            [chunk.passage_hash for _, chunk in passages],
            self._calls,
            deadline,
        )
        found, telemetry = await self._extracted(corpus, passages, settings, deadline)
        telemetry["input_tokens"] += tokens
        rows: list[DocumentRows] = []
        at = 0
        for one, document in prepared:
            end = at + len(document.chunks)
            rows.append(_document_rows(one, document, recipe, vectors[at:end], found[at:end], settings))
            at = end
        return rows, telemetry

    async def _extracted(
        self,
        corpus: CorpusId,
        passages: Sequence[tuple[Prepared, Chunk]],
        settings: CorpusSettings,
        deadline: Deadline,
    ) -> tuple[list[Extraction], dict[str, int]]:
        """Return what each chunk states: what is known as it is, the rest from the extractor; failures are counted."""
        telemetry: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        extractor = await self._extractor(settings)
        found = [_known(document, chunk.ordinal) for document, chunk in passages]
        read = sum(bool(document.offline) for document, _ in passages)
        for counter in ("selected", "attempted", "succeeded"):
            telemetry[counter] = read
        todo = [at for at, (document, _) in enumerate(passages) if not document.ready and not document.offline]
        if extractor is None or not todo:
            return found, telemetry
        chunks = [passages[at][1] for at in todo]
        texts, hashes = [chunk.text for chunk in chunks], [chunk.text_hash for chunk in chunks]
        results = await extract_texts(
            self._cache, corpus, extractor, texts, hashes, self._calls, deadline, turn=self._turn
        )
        telemetry["selected"] = telemetry["attempted"] = read + len(todo)
        for at, result in zip(todo, results, strict=True):
            if isinstance(result, SapwoodError):
                telemetry["failed"] += 1
                continue
            found[at] = result
            telemetry["succeeded"] += 1
            telemetry["input_tokens"] += result.input_tokens
            telemetry["output_tokens"] += result.output_tokens
        return found, telemetry


def _read_files(items: Sequence[Item]) -> list[_Read | SapwoodError]:
    """Return each file or why it cannot be read. Blocking: for a thread."""
    found: list[_Read | SapwoodError] = []
    for item in items:
        try:
            found.append(_Read(item, read(item), ""))
        except SapwoodError as error:
            found.append(error)
    return found


def _known(document: Prepared, ordinal: int) -> Extraction:
    """Return what is known of a chunk without asking an extractor."""
    known = document.ready or document.offline
    return known[ordinal] if known else Extraction()


def settled(item: Item) -> Item:
    """Return the item as it is remembered: a file written a moment ago may change again within the same time stamp."""
    fresh = item.mtime_ns is not None and time.time_ns() - item.mtime_ns < RACY_NS
    return replace(item, mtime_ns=None) if fresh else item


def _document_rows(
    one: _Read,
    document: Prepared,
    recipe: Recipe,
    vectors: Vectors,
    found: Sequence[Extraction],
    settings: CorpusSettings,
) -> DocumentRows:
    item = settled(one.item)
    return DocumentRows(
        document_id=item.document_id,
        source_location=item.source.location,
        locator=item.locator,
        content_hash=one.content_hash,
        recipe=recipe.fingerprint,
        size=item.size,
        mtime_ns=item.mtime_ns,
        media_type=document.media_type,
        title=document.title,
        metadata=document.metadata,
        chars=document.chars,
        chunks=document.chunks,
        vectors=vectors,
        mentions=[
            mentions_of(document, chunk, extraction, settings)
            for chunk, extraction in zip(document.chunks, found, strict=True)
        ],
        facts=[extraction.facts for extraction in found],
        language=document.language,
        summary=document.summary,
    )


def _told(one: _Read, settings: CorpusSettings) -> bool:
    """Whether a model is told of a document's text, to say where its chunks stand."""
    return bool(settings.context_model(one.item.source.location))


def _indexed(row: DocumentRows, lacking: Contextual | None) -> DocumentOutcome:
    """Return how a document with text ended; of source code that could not be read throughout, and of chunks without the
    context that they should have, it says what it lacks.
    """
    unread: dict[str, int] = row.metadata.get("unread", {}) if row.language else {}
    reasons = [f"{count} {name}" for name, count in sorted(unread.items())] + ([lacking.problem] if lacking else [])
    return DocumentOutcome(row.document_id, Outcome.INDEXED, ", ".join(reasons), len(row.chunks))


def mentions_of(document: Prepared, chunk: Chunk, extraction: Extraction, settings: CorpusSettings) -> list[Mention]:
    """Return the mentions of a chunk: those in its text, and the title and headings above it where they are wanted."""
    if not settings.graph_indexing.title_entities or settings.graph_indexing.build_code_graph:
        return list(extraction.mentions)
    return [*extraction.mentions, *carried(document.title, chunk.headings)]

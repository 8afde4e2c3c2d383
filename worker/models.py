"""The models that a corpus's settings name, each opened once for a process and shared by all its batches and queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points

from pipeline.errors import ConfigurationError
from pipeline.ingest.embed import ENTRY_POINTS, Embedding, EmbeddingProvider, choose
from pipeline.ingest.summaries import Summariser
from pipeline.ports import Extractor
from pipeline.retrieval.assistants import Assigned, ContextWriter
from schemas.settings import CorpusSettings, EmbeddingSettings, ExtractionSettings

EmbeddingBuilders = Callable[[EmbeddingSettings], dict[str, Callable[[], EmbeddingProvider]]]
ExtractorBuilders = Callable[[ExtractionSettings], dict[str, Callable[[], Awaitable[Extractor | None]]]]
SummariserBuilder = Callable[[ExtractionSettings], Summariser]
WriterFinder = Callable[[str], Awaitable[Assigned[ContextWriter]]]

_INSTALLED = tuple(entry_points(group=ENTRY_POINTS))
"""Read at import, since it reads from disk and models are chosen on the event loop."""


class Models:
    """Chooses by name among the builders that the composition root gives."""

    def __init__(
        self,
        embeddings: EmbeddingBuilders,
        extractors: ExtractorBuilders,
        summariser: SummariserBuilder,
        writer: WriterFinder,
    ) -> None:
        self._embedding_builders = embeddings
        self._extractor_builders = extractors
        self._summariser_builder = summariser
        self._find_writer = writer
        self._embeddings: dict[EmbeddingSettings, Embedding] = {}
        self._extractors: dict[ExtractionSettings, Extractor | None] = {}

    def embedding(self, wanted: EmbeddingSettings) -> Embedding:
        """Return the embedding. Raises ConfigurationError naming the field."""
        if wanted not in self._embeddings:
            self._embeddings[wanted] = choose(wanted.provider, self._embedding_builders(wanted), _INSTALLED)
        return self._embeddings[wanted]

    async def extractor(self, settings: CorpusSettings) -> Extractor | None:
        """Return the extractor, or None where the corpus has none. Raises ConfigurationError naming the field."""
        wanted = settings.extraction
        if wanted not in self._extractors:
            builders = self._extractor_builders(wanted)
            if wanted.provider not in builders:
                known = ", ".join(sorted(builders))
                raise ConfigurationError(f"extraction.provider: there is no {wanted.provider!r}; there are {known}.")
            self._extractors[wanted] = await builders[wanted.provider]()
        return self._extractors[wanted]

    def summariser(self, settings: CorpusSettings) -> Summariser | None:
        """Return the model that writes summaries of communities, or None where they are made offline."""
        if settings.graph_indexing.summaries == "offline":
            return None
        return self._summariser_builder(settings.extraction)

    async def writer(self, model: str) -> Assigned[ContextWriter]:
        """Return who says where chunks stand. Raises ConfigurationError or ProviderUnavailable naming the field."""
        return await self._find_writer(model)

"""The settings of a corpus: stored with it, validated at the edge, every bound in the field."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

Unit = Annotated[float, Field(ge=0.0, le=1.0)]


class Settings(BaseModel):
    """Immutable; an unknown key is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ChunkSettings(Settings):
    """How documents are cut. Sizes are in characters; a document of at most `max_chars` stays whole.

    `context_model` says in a sentence or two where in its document each chunk stands: `openai`, `openai/MODEL` or what an
    installed provider serves; empty: nobody does. What it says is embedded and analysed in front of the chunk, and never
    shown. It is asked once for each chunk, and again where the text around it or the beginning of its document changes.
    """

    max_chars: int = Field(default=1200, ge=50, le=20_000)
    overlap: int = Field(default=0, ge=0)
    context_model: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap >= self.max_chars:
            raise ValueError(f"chunk.overlap ({self.overlap}) must be smaller than chunk.max_chars ({self.max_chars})")
        return self


class EmbeddingSettings(Settings):
    """Which provider turns texts into vectors: `hash`, `wordllama`, `onnx`, `openai`, or the name of an installed entry
    point. `model` is the name of a model or, for `onnx`, the absolute path of a folder with `model.onnx` and
    `tokenizer.json`.
    """

    provider: str = "hash"
    model: str = ""
    dimension: int | None = Field(default=None, ge=1, le=16_384)


class ExtractionSettings(Settings):
    """Which extractor reads the chunks (`offline`, `openai`, `spacy`, `none`), and the rules its candidates must pass."""

    provider: str = "offline"
    model: str = ""
    entity_types: tuple[str, ...] = ()
    relation_types: tuple[str, ...] = ()
    min_confidence: Unit = 0.6
    require_evidence: bool = True
    max_entities: int = Field(default=200, gt=0)
    max_relations: int = Field(default=200, gt=0)
    max_response_chars: int = Field(default=1_000_000, gt=0)
    include_inferred: bool = False
    include_opinions: bool = False


class GraphSearchSettings(Settings):
    """The graph leg; names, defaults and bounds as specified.

    `ranking` is a walk (`walk`) or a personalised PageRank (`ppr`); `auto` takes what the store of the graph does best:
    PageRank in PostgreSQL, the walk in Neo4j. `bridges` is for PageRank: from so many passages that the question's words
    lead to, their neighbours are asked for the rest of the question. That finds more where an answer takes several passages,
    and costs ranks where one is enough.
    """

    enabled: bool = True
    ranking: Literal["auto", "walk", "ppr"] = "auto"
    bridges: int = Field(default=0, ge=0, le=50)
    max_hops: int = Field(default=2, ge=1, le=5)
    top_k: int = Field(default=30, ge=5, le=100)
    chunk_neighbor_window: int = Field(default=1, ge=0, le=10)
    include_communities: bool = True
    max_related_entities_per_seed: int = Field(default=50, ge=1, le=1000)
    damping: float = Field(default=0.85, gt=0.0, lt=1.0)
    iterations: int = Field(default=20, ge=1, le=200)


class GraphIndexingSettings(Settings):
    """What graph is built.

    `sparse` says whether a graph without entities or relations may be promoted although every chunk was read: `auto`
    allows it to the offline extractors and refuses it to a paid model. `build_code_graph` makes the graph of source code
    instead: modules, definitions and what they refer to, with these weights of edges; then no text is extracted from.
    """

    enabled: bool = True
    build_code_graph: bool = False
    ast_contains_weight: Unit = 1.0
    ast_inherits_weight: Unit = 1.0
    ast_imports_weight: Unit = 1.0
    ast_calls_weight: Unit = 1.0
    semantic_kg_max_chunks: int = Field(default=100_000, ge=1)
    title_entities: bool = True
    max_cluster_size: int = Field(default=50, ge=2)
    summaries: Literal["offline", "openai"] = "offline"
    sparse: Literal["auto", "allow", "refuse"] = "auto"


CODE_KEYS = frozenset(name for name in GraphIndexingSettings.model_fields if name.startswith(("build_code_", "ast_")))
"""The settings of `graph_indexing` that matter to code graphs alone."""


class GraphStorageSettings(Settings):
    """Which store serves the graph. PostgreSQL has its rows in any case; Neo4j gets a graph of each generation besides."""

    backend: Literal["postgres", "neo4j"] = "postgres"


class DenseStorageSettings(Settings):
    """Which store holds the vectors; changing it embeds the corpus anew."""

    backend: Literal["pgvector", "qdrant"] = "pgvector"


class KeywordSettings(Settings):
    """Exact BM25 (Robertson and Zaragoza 2009; the idf of Lucene)."""

    k1: float = Field(default=1.2, ge=0.0, le=10.0)
    b: float = Field(default=0.4, ge=0.0, le=1.0)


class FusionSettings(Settings):
    """How the legs become one ranking; the weights are all 1 unless a corpus says otherwise.

    `rrf` adds up reciprocal ranks, with the rank constant `rrf_k`. `scores` takes the mean of the scores, each as a part of
    its leg's best: weights of 0.5 (dense), 0.25 (keyword) and 2 (graph) find more where an answer takes several passages.
    It sees differences that ranks do not, and depends on how far apart the scores of an embedding lie.
    """

    method: Literal["rrf", "scores"] = "rrf"
    rrf_k: int = Field(default=60, ge=1, le=200)
    dense_weight: float = Field(default=1.0, ge=0.0)
    keyword_weight: float = Field(default=1.0, ge=0.0)
    graph_weight: float = Field(default=1.0, ge=0.0)


class TemporalSettings(Settings):
    """What TEMPORAL takes where a request does not say: the key of the metadata that holds a time (none: empty), the days
    after which recency counts half, and how much of a score is subject to it.
    """

    field: str = Field(default="", max_length=200)
    half_life_days: float = Field(default=30.0, gt=0.0, le=36_500.0)
    weight: Unit = 0.5


class QueryModelSettings(Settings):
    """The models that assist a query, where a request names none: `openai`, `openai/MODEL` or what an installed provider
    serves.
    """

    expander: str = Field(default="", max_length=200)
    navigator: str = Field(default="", max_length=200)
    reranker: str = Field(default="", max_length=200)


class RetentionSettings(Settings):
    """How many generations stay readable (the current one included), and how many days runs and their events stay."""

    generations: int = Field(default=2, ge=1, le=1000)
    event_days: float = Field(default=7.0, gt=0.0)


class CorpusSettings(Settings):
    """All that decides what a generation of a corpus contains and how it is searched.

    `read_as` are pairs of a source's location and the media type that all its documents are read as, whatever their names
    say; `context_models` are pairs of a location and the model that takes the place of `chunk.context_model` there.
    """

    read_as: tuple[tuple[str, str], ...] = ()
    context_models: tuple[tuple[str, str], ...] = ()
    chunk: ChunkSettings = ChunkSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    graph_search: GraphSearchSettings = GraphSearchSettings()
    graph_indexing: GraphIndexingSettings = GraphIndexingSettings()
    graph_storage: GraphStorageSettings = GraphStorageSettings()
    dense_storage: DenseStorageSettings = DenseStorageSettings()
    keyword: KeywordSettings = KeywordSettings()
    fusion: FusionSettings = FusionSettings()
    temporal: TemporalSettings = TemporalSettings()
    query_models: QueryModelSettings = QueryModelSettings()
    retention: RetentionSettings = RetentionSettings()

    def context_model(self, location: str) -> str:
        """Return the model that says where chunks of this source stand; empty where none does."""
        return dict(self.context_models).get(location, self.chunk.context_model)

    @property
    def all_context_models(self) -> list[str]:
        """The models that are asked for contexts, in canonical order."""
        return sorted({self.chunk.context_model, *dict(self.context_models).values()} - {""})


def recipe(settings: CorpusSettings, *fingerprints: str) -> bytes:
    """Return the 16-byte hash of all that decides what rows a document becomes; a document is reindexed when it changes.

    `fingerprints` name the code and models that read it (parser, analyzer, embedding, extractor).
    """
    parts: list[object] = [
        settings.chunk.model_dump(exclude=None if settings.chunk.context_model else {"context_model"}),
        settings.extraction.model_dump(),
        settings.graph_indexing.title_entities,
        settings.dense_storage.backend,
    ]
    if settings.graph_indexing.build_code_graph:
        parts.append(settings.graph_indexing.model_dump(include={"enabled", *CODE_KEYS}))
    if settings.read_as:
        parts.append(settings.read_as)
    if settings.context_models:
        parts.append(["context_models", *settings.context_models])
    return hashlib.sha256(orjson.dumps([parts, fingerprints], option=orjson.OPT_SORT_KEYS)).digest()[:16]

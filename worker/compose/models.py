"""Which models stand behind the names that corpora and questions use; an endpoint is used where one is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import anyio.to_thread

from pipeline.adapters.hash_embedder import HashEmbedder
from pipeline.adapters.huggingface_tokenizer import HuggingFaceTokenizer
from pipeline.adapters.onnx_embedder import OnnxEmbedder
from pipeline.adapters.spacy_extractor import SpacyExtractor
from pipeline.adapters.wordllama_embedder import WordLlamaEmbedder
from pipeline.declare.chat import ChatModel
from pipeline.declare.tokens import Tokenizer, choose
from pipeline.errors import ConfigurationError
from pipeline.ingest.embed import EmbeddingProvider
from pipeline.ingest.model_folders import model_folder
from pipeline.ingest.offline import OfflineExtractor
from pipeline.ingest.summaries import Summariser
from pipeline.ports import Extractor
from pipeline.retrieval.assistants import Assistants
from schemas.settings import EmbeddingSettings, ExtractionSettings
from worker.models import Models
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI


async def openai_client(stack: AsyncExitStack, settings: WorkerSettings) -> Callable[[], AsyncOpenAI]:
    """Open a client where an endpoint is configured; the function returns it or says what to set."""
    url, key = settings.openai_base_url, settings.openai_api_key
    if url is None and key is None:
        return no_endpoint
    # Loaded in a thread, and only where there is an endpoint: it takes longer to load than all the rest.
    await anyio.to_thread.run_sync(import_module, "pipeline.adapters.openai_models")
    from pipeline.adapters.openai_models import connected

    base = url or "https://api.openai.com/v1"
    client = await stack.enter_async_context(connected(base, key.get_secret_value() if key else "none"))
    return lambda: client


def all_models(
    settings: WorkerSettings, client: Callable[[], AsyncOpenAI]
) -> tuple[Models, Assistants, ChatModel | None]:
    """Return the models of the index, those that assist questions, and the one that carries out actions."""
    assistants = assistants_of(settings, client)
    return models_of(settings, client, assistants), assistants, chat_of(settings, client)


def chat_of(settings: WorkerSettings, client: Callable[[], AsyncOpenAI]) -> ChatModel | None:
    """Return the model of an endpoint that is configured."""
    if client is no_endpoint:
        return None
    from pipeline.adapters.openai_models import OpenAIChat

    return OpenAIChat(client(), settings.openai_model)


def models_of(settings: WorkerSettings, client: Callable[[], AsyncOpenAI], assistants: Assistants) -> Models:
    """Return the models by the names under which corpora ask for them."""

    def embedder(wanted: EmbeddingSettings) -> EmbeddingProvider:
        endpoint = client()
        from pipeline.adapters.openai_models import OpenAIEmbedder

        return OpenAIEmbedder(endpoint, wanted.model or settings.openai_embedding_model, wanted.dimension)

    def extractor(wanted: ExtractionSettings) -> Extractor:
        endpoint = client()
        from pipeline.adapters.openai_models import OpenAIExtractor

        return OpenAIExtractor(endpoint, wanted.model or settings.openai_model, wanted)

    def summariser(wanted: ExtractionSettings) -> Summariser:
        endpoint = client()
        from pipeline.adapters.openai_models import OpenAISummariser

        return OpenAISummariser(endpoint, wanted.model or settings.openai_model)

    return Models(
        lambda wanted: {
            "hash": HashEmbedder,
            "wordllama": WordLlamaEmbedder,
            "onnx": lambda: onnx_of(wanted, settings),
            "openai": lambda: embedder(wanted),
        },
        lambda wanted: {
            "none": ready(lambda: None),
            "offline": ready(OfflineExtractor),
            "openai": ready(lambda: extractor(wanted)),
            "spacy": lambda: SpacyExtractor.load(wanted.model),
        },
        summariser,
        assistants.writer,
    )


def onnx_of(wanted: EmbeddingSettings, settings: WorkerSettings) -> EmbeddingProvider:
    """Return the model of a folder, which may be any where the database is the embedded one; reads from disk.

    Raises as `model_folder` and `OnnxEmbedder`.
    """
    return OnnxEmbedder(model_folder(wanted.model, settings.models_root, anywhere=settings.database_url is None))


def assistants_of(settings: WorkerSettings, client: Callable[[], AsyncOpenAI]) -> Assistants:
    """Return the models that may assist a question or an index: where an endpoint is configured, those that it has."""
    if client is no_endpoint:
        return Assistants()
    from pipeline.adapters.openai_models import EndpointReranker, OpenAIContexts, OpenAIExpander, OpenAINavigator

    endpoint, default = client(), settings.openai_model
    return Assistants(
        [OpenAIExpander(endpoint, default, "expander")],
        [OpenAINavigator(endpoint, default, "navigator_model")],
        [EndpointReranker(endpoint, default, "reranker")],
        [OpenAIContexts(endpoint, default, "chunk.context_model")],
    )


def tokenizer_of(settings: WorkerSettings) -> Callable[[], Tokenizer]:
    """Return what loads the tokenizer: that of the file that is set, else the one that is installed, else the estimate.

    It reads from disk and may import: for a thread. It raises ConfigurationError, or MissingExtra.
    """
    file = settings.tokenizer_file
    return choose if file is None else lambda: HuggingFaceTokenizer(file)


def no_endpoint() -> NoReturn:
    """Say that the provider `openai` has no endpoint. Raises ConfigurationError, always."""
    raise ConfigurationError(
        "The provider `openai` needs an endpoint: set SAPWOOD_OPENAI_API_KEY, "
        "and SAPWOOD_OPENAI_BASE_URL unless it is OpenAI's own."
    )


def ready(make: Callable[[], Extractor | None]) -> Callable[[], Awaitable[Extractor | None]]:
    """Return a builder that has nothing to wait for as one that may."""

    async def build() -> Extractor | None:
        return make()

    return build

"""Static word embeddings that come inside a wheel (extra `local`): 256 numbers, no download, about 10,000 sentences a
second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, MissingExtra
from pipeline.ingest.embed import Rows

DIMENSION = 256

_SLICE = 256


class _Model(Protocol):
    def embed(self, texts: list[str]) -> Any: ...


class WordLlamaEmbedder:
    """An `EmbeddingProvider`. The model is read at the first call; calls run in a thread, in slices of 256 texts."""

    paid = False

    def __init__(self) -> None:
        """Check that the package is there; reads from disk, so not in the event loop. Raises MissingExtra."""
        if find_spec("wordllama") is None:
            raise MissingExtra("embedding.provider: `wordllama` needs `pip install sapwood[local]`.")
        self.fingerprint = f"wordllama-{version('wordllama')}/l2_supercat-{DIMENSION}"
        self._model: _Model | None = None
        self._loading = anyio.Lock()

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Rows:
        """Return (n, 256) vectors, not normalised. Raises DeadlineExceeded, or ConfigurationError if the model is
        unreadable.
        """
        async with self._loading:
            if self._model is None:
                self._model = await anyio.to_thread.run_sync(_load)
        rows: list[Any] = []
        for at in range(0, len(texts), _SLICE):
            deadline.budget(1.0)
            rows.extend(await anyio.to_thread.run_sync(self._model.embed, list(texts[at : at + _SLICE])))
        return cast("Rows", rows)


def _load() -> _Model:
    """Read the weights that lie in the package's own folder; its loader would look in the user's cache, or download."""
    package = import_module("wordllama")
    load = cast("Callable[..., _Model]", package.WordLlama.load)
    try:
        return load(dim=DIMENSION, cache_dir=Path(str(package.__file__)).parent, disable_download=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError("embedding.provider: the weights inside `wordllama` cannot be read.") from error

"""Texts to vectors: the contract that providers keep, how one is found, and the cache in front of the paid ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, TypeAlias

import anyio
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, EmbeddingError, ModelError, SapwoodError
from pipeline.ingest.paid import firsts, kept, retried, spread
from pipeline.ports import Cache, Vectors
from schemas.ids import CorpusId

ENTRY_POINTS = "sapwood.embedding"
"""The entry-point group of installed providers: each names a callable without arguments that returns a provider."""

MAX_WIDTH = 16_384
"""Numbers in a vector at most."""

CALL_TEXTS = 128
"""Texts of one paid call at most."""

Rows: TypeAlias = Sequence[Sequence[float]] | NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors in the order of their texts, and the tokens that were paid for them now (0: none, or the server did not
    say).
    """

    vectors: Rows
    input_tokens: int = 0


class EmbeddingProvider(Protocol):
    """A model as its adapter or plug-in gives it. One that is installed by entry point is asked one request at a
    time.
    """

    @property
    def fingerprint(self) -> str:
        """Name and version of the model: vectors of two fingerprints are never compared."""
        ...

    @property
    def paid(self) -> bool:
        """Whether a call costs money or much time, so that its result is worth keeping."""
        ...

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Rows | Embedded:
        """Return one vector for each text; they need not be normalised, and stay the provider's own."""
        ...


class Embedding:
    """A provider held to its contract; an `Embedder`.

    Vectors leave it finite, not empty, at most 16,384 wide, all of one width for its whole life, as copies, and with
    length 1 (a zero vector stays zero: it is similar to nothing). A provider that breaks this is refused with an
    EmbeddingError. With `serial`, requests wait here for their turn, so a provider that refuses a second one at a
    time never sees it.
    """

    def __init__(self, provider: EmbeddingProvider, *, serial: bool = False) -> None:
        self._provider = provider
        self._turn = anyio.CapacityLimiter(1) if serial else None
        self.fingerprint = provider.fingerprint
        self.paid = provider.paid
        self.dimension: int | None = None

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Vectors:
        """Return one vector for each text. Raises EmbeddingError, ModelError or DeadlineExceeded."""
        return (await self.embed_counted(texts, deadline))[0]

    async def embed_counted(self, texts: Sequence[str], deadline: Deadline) -> tuple[Vectors, int]:
        """Return the vectors, and the tokens paid for."""
        if not texts:
            return np.empty((0, self.dimension or 0), np.float32), 0
        answer = await retried(lambda: self._ask(texts, deadline), deadline)
        rows, tokens = (answer.vectors, answer.input_tokens) if isinstance(answer, Embedded) else (answer, 0)
        vectors = checked(rows, len(texts), self.dimension)
        self.dimension = vectors.shape[1]
        return vectors, tokens

    async def _ask(self, texts: Sequence[str], deadline: Deadline) -> Rows | Embedded:
        async with _until(deadline):
            try:
                if self._turn is None:
                    return await self._provider.embed(texts, deadline)
                async with self._turn:
                    return await self._provider.embed(texts, deadline)
            except SapwoodError:
                raise
            except Exception as error:
                raise ModelError(f"The embedding provider failed with {type(error).__name__}.") from error


@asynccontextmanager
async def _until(deadline: Deadline) -> AsyncGenerator[None, None]:
    with anyio.CancelScope(deadline=deadline.at) as scope:
        yield
    if scope.cancelled_caught:
        raise DeadlineExceeded()


def checked(rows: Rows, count: int, dimension: int | None) -> Vectors:
    """Return the vectors as a normalised copy.

    Raises:
        EmbeddingError: they are not `count` finite vectors of one width (`dimension`, where it is known) within bounds.
    """
    try:
        vectors = np.array(rows, dtype=np.float32, copy=True)
    except (TypeError, ValueError) as error:
        raise EmbeddingError("The embedding provider returned something other than vectors of one width.") from error
    if vectors.ndim != 2 or len(vectors) != count:
        raise EmbeddingError(f"The embedding provider returned vectors of shape {vectors.shape} for {count} texts.")
    width = vectors.shape[1]
    if not 1 <= width <= MAX_WIDTH:
        raise EmbeddingError(
            f"The embedding provider returned vectors of {width} numbers; 1 to {MAX_WIDTH} are allowed."
        )
    if dimension is not None and width != dimension:
        raise EmbeddingError(f"The embedding provider changed the width of its vectors from {dimension} to {width}.")
    if not np.isfinite(vectors).all():
        raise EmbeddingError("The embedding provider returned a vector that is not finite.")
    # Scaled by the largest number first, so that the squares of very large or small ones stay in range.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    vectors /= np.where(largest > 0, largest, 1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 0, lengths, 1)
    return vectors


def choose(
    name: str,
    built_in: Mapping[str, Callable[[], EmbeddingProvider]],
    installed: Iterable[EntryPoint] | None = None,
) -> Embedding:
    """Return the embedding of this name, built in or installed.

    `auto` takes the one that is installed, or the built-in `hash` where none is. `installed` are the entry points to
    choose from, by default those of this environment. This reads from disk and imports: not for the event loop.

    Raises:
        ConfigurationError: there is none of this name, or `auto` has several to choose from, or it cannot be loaded.
    """
    found = {point.name: point for point in (entry_points(group=ENTRY_POINTS) if installed is None else installed)}
    if name == "auto":
        if len(found) > 1:
            raise ConfigurationError(
                f"embedding.provider: several are installed, name one: {', '.join(sorted(found))}."
            )
        name = next(iter(found), "hash")
    if name in built_in:
        return Embedding(built_in[name]())
    if name not in found:
        known = ", ".join(sorted({*built_in, *found}))
        raise ConfigurationError(f"embedding.provider: there is no {name!r}; there are {known}.")
    return _loaded(found[name])


def _loaded(point: EntryPoint) -> Embedding:
    try:
        return Embedding(point.load()(), serial=True)
    except Exception as error:
        message = f"embedding.provider: {point.name!r} cannot be loaded ({type(error).__name__})."
        raise ConfigurationError(message) from error


async def embed_texts(
    cache: Cache,
    corpus: CorpusId,
    embedding: Embedding,
    texts: Sequence[str],
    hashes: Sequence[bytes],
    limiter: anyio.CapacityLimiter,
    deadline: Deadline,
) -> tuple[Vectors, int]:
    """Return the vectors of texts with these hashes, and the tokens paid for now.

    Only distinct texts that the cache lacks are asked for, at most 128 a call, each call in a slot of the limiter,
    and each finished call is kept before it is used: a cancelled or failed run never pays twice. What is not paid is
    not cached.
    """
    if not embedding.paid:
        return await embedding.embed_counted(texts, deadline)
    first = firsts(hashes)
    known = await cache.vectors(corpus, embedding.fingerprint, list(first))
    missing = [key for key in first if key not in known]
    spent = 0

    async def call(keys: Sequence[bytes]) -> None:
        nonlocal spent
        async with limiter:
            vectors, tokens = await embedding.embed_counted([texts[first[key]] for key in keys], deadline)
        fresh = dict(zip(keys, vectors, strict=True))
        spent += tokens
        known.update(fresh)
        await kept(cache.put_vectors(corpus, embedding.fingerprint, fresh))

    calls = [missing[at : at + CALL_TEXTS] for at in range(0, len(missing), CALL_TEXTS)]
    await spread(call, calls, limiter)
    if not known:
        return np.empty((0, embedding.dimension or 0), np.float32), spent
    if len({len(vector) for vector in known.values()}) > 1:
        raise EmbeddingError("The embedding provider returns vectors of another width than those it gave before.")
    return np.stack([known[key] for key in hashes]), spent

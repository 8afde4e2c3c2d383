"""Where a chunk stands in its document, in the words of a model: for the index, in front of what is embedded and analysed.

A model is told the beginning of the document, what lies around the chunk, and the chunk. What it says is paid for, so it is
kept by all that it was told: an edit costs the chunks whose surroundings it changes, and all of the document only where it
changes the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio
import anyio.to_thread
import orjson

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, ModelRefused, SapwoodError
from pipeline.ingest.chunk import passage_text
from pipeline.ingest.clean import clean
from pipeline.ingest.paid import kept, spread
from pipeline.ingest.prompt import Messages, fenced
from pipeline.ingest.stages import Prepared
from pipeline.retrieval.analyzer import pack, tokens
from pipeline.retrieval.assistants import Assigned, ContextWriter, Counted, Spent, heard
from schemas.documents import Chunk
from schemas.ids import CorpusId, text_hash

CONTEXTS = "contexts-1"
"""To be raised whenever the prompt or what is told changes."""

OPENING = 2000
"""Characters of the beginning of a document that are told for each of its chunks."""

AROUND = 600
"""Characters before and after a chunk that are told."""

MAX_CONTEXT = 600
"""Characters of a context at most: it is to stand in front of a chunk, not in its place."""

MAX_ANSWER = 10_000
"""Characters of an answer that is used; a longer one is none."""

_GAP = "\n[…]\n"

_ASK = """You prepare a document for a search index. You get a JSON object: `document` is the part of a document that
surrounds a passage, its title and headings first; `passage` is the passage. Say in one or two sentences of plain text, at
most 60 words, where the passage stands in the document and what it is about: name the subject, place, time and things that
it refers to without naming them. Write in the language of the passage. Add nothing that the document does not say, and give
nothing but these sentences."""


class ContextCache(Protocol):
    """Contexts of a corpus by (version of the model, hash of what it was told). The first value stays."""

    async def contexts(self, corpus: CorpusId, fingerprint: str, places: Sequence[bytes]) -> dict[bytes, str]:
        """Return those that are known."""
        ...

    async def put_context(
        self, corpus: CorpusId, fingerprint: str, place: bytes, passage_hash: bytes, context: str
    ) -> None:
        """Keep one, as long as a chunk has this passage hash: the one that the context leads to."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """A chunk of a document with what a model is told of that, and the key under which the answer is kept."""

    prepared: Prepared
    chunk: Chunk
    document: str
    key: bytes


def place_of(prepared: Prepared, text: str, chunk: Chunk) -> Place:
    """Return a chunk of a document with this text, of which at most OPENING + 2 · AROUND characters are told beside it."""
    start, end = max(0, chunk.start - AROUND), chunk.end + AROUND
    shown = text[: max(OPENING, end)] if start <= OPENING else text[:OPENING] + _GAP + text[start:end]
    document = passage_text(prepared.title, chunk.headings, shown)
    return Place(prepared, chunk, document, text_hash(_told(document, chunk.text)))


def context_messages(document: str, passage: str) -> Messages:
    """Return the request for the context of a passage; as JSON, so that neither part can pass for the other."""
    return fenced(_ASK, _told(document, passage), "object")


def _told(document: str, passage: str) -> str:
    return orjson.dumps({"document": document, "passage": passage}).decode()


def read_context(answer: object) -> str:
    """Return the context that an answer is: one line of visible characters, cut at a word.

    Raises:
        ModelRefused: it is no text, none that can be seen, or much too long.
    """
    if not isinstance(answer, str) or len(answer) > MAX_ANSWER:
        raise ModelRefused("The model's answer is no text, or much too long.")
    line = " ".join(clean(answer)[0].split())
    if not line:
        raise ModelRefused("The model's answer is blank.")
    return line if len(line) <= MAX_CONTEXT else line[: MAX_CONTEXT + 1].rpartition(" ")[0] or line[:MAX_CONTEXT]


def passage_of(prepared: Prepared, chunk: Chunk) -> str:
    """Return what is embedded and analysed for a chunk of a document: as in `passage_text`, with its context if it has one."""
    return _passage(prepared, chunk, prepared.contexts[chunk.ordinal] if prepared.contexts else "")


def _passage(prepared: Prepared, chunk: Chunk, context: str) -> str:
    return passage_text(prepared.title, chunk.headings, f"{context}\n{chunk.text}" if context else chunk.text)


def with_contexts(prepared: Prepared, contexts: Sequence[str]) -> Prepared:
    """Return a document whose chunks are found by their contexts too; those without one stay as they are."""
    found = replace(prepared, contexts=tuple(contexts), whole=None)
    chunks = [_analysed(found, one) if contexts[one.ordinal] else one for one in prepared.chunks]
    return replace(found, chunks=tuple(chunks))


def _analysed(prepared: Prepared, chunk: Chunk) -> Chunk:
    passage = passage_of(prepared, chunk)
    terms, length = pack(tokens(passage))
    return replace(chunk, passage_hash=text_hash(passage), terms=terms, length=length)


@dataclass(slots=True)
class _Telling:
    """What came of asking one model: its answers by the keys of places, and why there is none for others."""

    answers: dict[bytes, str]
    failures: dict[bytes, SapwoodError] = field(default_factory=dict[bytes, SapwoodError])


@dataclass(frozen=True, slots=True)
class Contextual:
    """A document with the contexts of its chunks, and how many have none although a model was asked; `problem` says why, and
    `again` whether another try may end better.
    """

    prepared: Prepared
    lacking: int = 0
    problem: str = ""
    again: bool = False


class Contextualiser:
    """The stage. `calls` are the slots for paid model calls; batches begin their calls in `turn`."""

    def __init__(self, cache: ContextCache, calls: anyio.CapacityLimiter, turn: anyio.Lock) -> None:
        self._cache, self._calls, self._turn = cache, calls, turn

    async def run(
        self,
        corpus: CorpusId,
        documents: Sequence[Prepared],
        writer: Assigned[ContextWriter],
        deadline: Deadline,
        spent: Spent,
    ) -> list[Contextual]:
        """Have a model say where the chunks of documents stand, which have their `whole` text; the tokens are added to
        `spent`. It is asked once for each place that the cache lacks, and each answer is kept before it is used.

        Raises:
            ConfigurationError: the model cannot be used at all.
            DeadlineExceeded: the deadline passed; finished calls are kept.
        """
        places = await anyio.to_thread.run_sync(_places, documents)
        telling = await self._told(corpus, places, writer, deadline, spent)
        return await anyio.to_thread.run_sync(_contextual, documents, telling)

    async def _told(
        self,
        corpus: CorpusId,
        places: Mapping[bytes, Place],
        writer: Assigned[ContextWriter],
        deadline: Deadline,
        spent: Spent,
    ) -> _Telling:
        fingerprint = version_of(writer)
        telling = _Telling(await self._cache.contexts(corpus, fingerprint, list(places)))
        missing = [key for key in places if key not in telling.answers]

        async def call(key: bytes) -> None:
            place = places[key]
            async with self._calls:
                answer = await _one(writer, place, deadline, spent)
            if isinstance(answer, SapwoodError):
                telling.failures[key] = answer
                return
            telling.answers[key] = answer
            passage_hash = text_hash(_passage(place.prepared, place.chunk, answer))
            await kept(self._cache.put_context(corpus, fingerprint, key, passage_hash, answer))

        await spread(call, missing, self._calls, self._turn)
        return telling


def version_of(writer: Assigned[ContextWriter]) -> str:
    """Return what a model's contexts are told apart by. Raises ConfigurationError where its provider cannot say."""
    try:
        return str(writer.provider.version(writer.model))
    except Exception as error:
        name = type(writer.provider).__name__
        raise ConfigurationError(
            f"chunk.context_model: {name} cannot say its version ({type(error).__name__})."
        ) from error


async def _one(writer: Assigned[ContextWriter], place: Place, deadline: Deadline, spent: Spent) -> str | SapwoodError:
    """Ask for one context; a failure of this one is a result, one of the whole model or of time is raised."""

    async def ask() -> str | Counted[str]:
        return await writer.provider.context(writer.model, place.document, place.chunk.text, deadline)

    try:
        return read_context(await heard("writer of contexts", ask, deadline, spent))
    except (ConfigurationError, DeadlineExceeded):
        raise
    except SapwoodError as error:
        return error


def _of(prepared: Prepared) -> list[Place]:
    text = prepared.whole.text if prepared.whole else ""
    return [place_of(prepared, text, chunk) for chunk in prepared.chunks]


def _places(documents: Sequence[Prepared]) -> dict[bytes, Place]:
    return {place.key: place for prepared in documents for place in _of(prepared)}


def _contextual(documents: Sequence[Prepared], telling: _Telling) -> list[Contextual]:
    return [_done(prepared, telling) for prepared in documents]


def _done(prepared: Prepared, telling: _Telling) -> Contextual:
    keys = [place.key for place in _of(prepared)]
    found = with_contexts(prepared, [telling.answers.get(key, "") for key in keys])
    failed = [telling.failures[key] for key in keys if key not in telling.answers]
    if not failed:
        return Contextual(found)
    problem = f"{len(failed)} of {len(keys)} chunks have no context: {failed[0]}"
    return Contextual(found, len(failed), problem, any(error.retryable for error in failed))

"""The reserved keys of an action's context: what was retrieved for it. Always written and cleared together."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import cast

CONTEXT = "_rag_context"
DOCUMENT_COUNT = "_rag_document_count"
TRUNCATED = "_rag_truncated"
STALE = "_rag_stale"
SOURCES = "_rag_sources"

RESERVED = (CONTEXT, DOCUMENT_COUNT, TRUNCATED, STALE, SOURCES)
"""In the order of `Evidence`."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a retrieval found. The text is untrusted: whoever puts it in front of a model fences it.

    Attributes:
        text: the documents as rendered, not escaped.
        count: documents that were found; those that the context window kept out are counted too.
        truncated: whether some of them are cut or left out of the text.
        stale: whether they come from a cache that is older than what it caches.
        sources: where the documents of the text are from, in order of rank, each once.
    """

    text: str = ""
    count: int = 0
    truncated: bool = False
    stale: bool = False
    sources: tuple[str, ...] = ()


def clear(context: MutableMapping[str, object]) -> None:
    """Remove what an earlier retrieval, or the caller, left there. To be called at the start of every dispatch."""
    for key in RESERVED:
        context.pop(key, None)


def write(context: MutableMapping[str, object], evidence: Evidence) -> None:
    """Set all five keys; `Evidence()` says that nothing was found."""
    values = (evidence.text, evidence.count, evidence.truncated, evidence.stale, evidence.sources)
    context.update(zip(RESERVED, values, strict=True))


def read(context: Mapping[str, object]) -> Evidence | None:
    """Return what was written, or None where the five are not all there as `write` writes them."""
    match [context.get(key) for key in RESERVED]:
        case [str(text), int(count), bool(truncated), bool(stale), tuple()]:
            sources = cast("tuple[object, ...]", context[SOURCES])
            return Evidence(text, count, truncated, stale, tuple(map(str, sources)))
        case _:
            return None

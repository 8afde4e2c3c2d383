"""What runs carry in their rows: all that a worker needs which did not make the run.

A worker ignores what it does not know in the payload itself, so that during an upgrade a newer program may add what says
something about the work, as a trace does. What changes the work goes into `settings` or `request`: an unknown name there is
an error, as another answer than the one asked for would be worse than none.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import ConfigDict, Field, field_serializer

from schemas.documents import Item, Source
from schemas.query import QueryRequest, Wire
from schemas.settings import CorpusSettings


class Payload(Wire):
    """What the row of a run holds. Unknown names are ignored; see above."""

    model_config = ConfigDict(extra="ignore")


class IndexPayload(Payload):
    """An index run: the sources to mirror (None: the remembered ones) and the settings of the corpus when it was asked for.

    `actor` and `reason` let a sparse generation pass the gate; both or neither. `traceparent` is the W3C trace context of who
    asked, here and below; empty if nothing was traced.
    """

    corpus: str
    sources: tuple[Source, ...] | None = None
    settings: CorpusSettings = CorpusSettings()
    actor: str = ""
    reason: str = ""
    traceparent: str = ""


class BatchPayload(Payload):
    """Some documents of an index run, to be written under `generation` into `collection`."""

    corpus: str
    generation: int
    collection: str
    settings: CorpusSettings
    items: tuple[Item, ...] = Field(max_length=1000)
    traceparent: str = ""


class QueryPayload(Payload):
    """A queued question."""

    tenant: str
    corpus: str
    request: QueryRequest
    traceparent: str = ""

    @field_serializer("request")
    def _as_asked(self, request: QueryRequest) -> dict[str, Any]:
        """Leave out what is not asked for: a worker from before a field then answers all questions that do not use it."""
        return request.model_dump(mode="json", exclude_defaults=True)


def batch_payload(
    corpus: str,
    generation: int,
    collection: str,
    settings: dict[str, Any],
    items: tuple[Item, ...],
    traceparent: str = "",
) -> dict[str, Any]:
    """Return the JSON of a BatchPayload; validating what was just made would only cost time."""
    sources = {source: asdict(source) for source in {item.source for item in items}}
    return {
        "corpus": corpus,
        "generation": generation,
        "collection": collection,
        "settings": settings,
        "traceparent": traceparent,
        "items": [
            {
                "document_id": item.document_id,
                "source": sources[item.source],
                "locator": item.locator,
                "size": item.size,
                "mtime_ns": item.mtime_ns,
                "part": item.part,
            }
            for item in items
        ],
    }

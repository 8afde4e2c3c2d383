"""The offline extractor: deterministic, no model, thousands of chunks a second on one core."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.ingest.entity_types import type_of
from pipeline.ingest.names import find_spans, unwrapped
from pipeline.ingest.patterns import find_statements
from schemas.graph import Extraction, Fact, Mention, MentionOrigin

if TYPE_CHECKING:
    from pipeline.deadline import Deadline
    from pipeline.errors import SapwoodError

FINGERPRINT = "offline-2"
"""To be raised whenever a rule or word list of this extractor changes."""

_SLICE = 64


def extract(text: str) -> Extraction:
    """Return the entities of a text, each spelling once at its first place, and the relations it states outright.

    Pure and picklable. A name that a hard line break cuts in two is written with a space, and has no place.
    """
    flat = unwrapped(text)
    spans = list(find_spans(flat))
    first: dict[str, int] = {}
    for start, end in spans:
        first.setdefault(flat[start:end], start)
    facts = dict.fromkeys(
        _fact(flat, one.subject, one.type, one.object, one.evidence) for one in find_statements(flat, spans)
    )
    return Extraction(tuple(_mention(text, name, start) for name, start in first.items()), tuple(facts))


def carried(title: str, headings: Sequence[str]) -> list[Mention]:
    """Return a document's title and the headings above a chunk as entities of that chunk, typed as in any text."""
    origins = {heading.strip(): MentionOrigin.HEADING for heading in headings}
    origins |= dict.fromkeys((*_aliases(title), title.strip()), MentionOrigin.TITLE)
    return [Mention(name, type_of(name), origin=origin) for name, origin in origins.items() if name]


def _aliases(title: str) -> list[str]:
    """Return the short forms of a title: `Lilu` of `Lilu (mythology)`, `Bath` of `Bath, Somerset`."""
    plain = re.sub(r"\s*\([^()]*\)\s*$", "", title).strip()
    return [plain, plain.partition(", ")[0].strip()]


class OfflineExtractor:
    """The Extractor port over `extract`; in a thread, and cancelled or out of time between slices of 64 texts."""

    fingerprint = FINGERPRINT
    paid = False

    async def extract(self, texts: Sequence[str], deadline: Deadline) -> list[Extraction | SapwoodError]:
        """Return what each text holds; offline extraction cannot fail. Raises DeadlineExceeded."""
        import anyio.to_thread  # here, since the children that parse load this module and should start fast

        found: list[Extraction | SapwoodError] = []
        for at in range(0, len(texts), _SLICE):
            deadline.budget(1.0)
            found.extend(await anyio.to_thread.run_sync(_extract_all, texts[at : at + _SLICE]))
        return found


def _extract_all(texts: Sequence[str]) -> list[Extraction]:
    return [extract(text) for text in texts]


def _mention(text: str, name: str, start: int) -> Mention:
    if not text.startswith(name, start):
        return Mention(name, type_of(name))
    return Mention(name, type_of(name), start, start + len(name))


def _fact(
    text: str, subject: tuple[int, int], relation: str, target: tuple[int, int], evidence: tuple[int, int]
) -> Fact:
    left, right = text[slice(*subject)], text[slice(*target)]
    return Fact(left, type_of(left), relation, right, type_of(right), 1.0, *evidence)

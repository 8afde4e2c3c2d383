"""Sources that are used without a search: all of their text, or as many whole units of it as there is room for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from pipeline.declare.context import Rendered, Spec, render
from pipeline.declare.entries import Knowledge, Unit, Use
from pipeline.declare.tokens import Tokenizer
from pipeline.errors import InvalidRequest
from pipeline.ingest.stages import Prepared
from schemas.documents import ParsedDocument
from schemas.query import Hit

Span = tuple[int, int]


def unit_of(entry: Knowledge) -> Unit:
    """Return what an entry that is used without a search gives at a time."""
    return Unit.DOCUMENT if entry.use is Use.DIRECT else entry.unit or Unit.SECTION


def units_of(entry: Knowledge, documents: Iterable[Prepared]) -> tuple[Hit, ...]:
    """Return what an entry gives, in the order of its documents: for DIRECT what is selected of each, for SEQUENTIAL its
    units. Nothing blank is among it. The documents are whole and, where the unit is a chunk, cut as well.
    """
    found: list[Hit] = []
    for prepared in documents:
        document = prepared.whole
        if document is None:
            raise AssertionError("what is used without a search is prepared as a whole")
        chunks = [(one.start, one.end) for one in prepared.chunks]
        for span in _selected(document, entry.select):
            for start, end in _cut(unit_of(entry), document, chunks, span):
                if text := document.text[start:end].strip():
                    found.append(_hit(document, start, end, text))
    return tuple(found)


def render_units(
    entry: Knowledge,
    units: Sequence[Hit],
    context_format: str,
    window: int,
    tokenizer: Tokenizer,
    specs: Iterable[Spec] = (),
) -> Rendered:
    """Return what of the units fits into the window. SEQUENTIAL ones are whole, of DIRECT the last may be cut.

    Raises:
        InvalidRequest: there are some, and the window has room for none.
    """
    specs = tuple(specs)
    rendered = render(units, context_format, window, tokenizer, specs)
    if entry.use is not Use.SEQUENTIAL or not rendered.cut:
        return rendered
    if rendered.shown == 1:
        raise InvalidRequest(
            f"max_tokens: {window} tokens have no room for the first unit of {entry.name!r}; raise it."
        )
    whole = render(units[: rendered.shown - 1], context_format, window, tokenizer, specs)
    dropped = tuple(unit.chunk for unit in units[rendered.shown - 1 :])
    return Rendered(whole.text, whole.tokens, whole.shown, False, dropped, whole.sources)


def _selected(document: ParsedDocument, heading: str | None) -> Iterator[Span]:
    """Yield the sections under a heading, with all below them; the whole text where none is asked for."""
    if heading is None:
        yield 0, len(document.text)
        return
    for at, one in enumerate(document.headings):
        if one.text.casefold() == heading.casefold():
            behind = (other.offset for other in document.headings[at + 1 :] if other.level <= one.level)
            yield one.offset, next(behind, len(document.text))


def _cut(unit: Unit, document: ParsedDocument, chunks: Sequence[Span], span: Span) -> Iterator[Span]:
    start, end = span
    if unit is Unit.DOCUMENT:
        yield span
    elif unit is Unit.SECTION:
        inside = [one.offset for one in document.headings if start < one.offset < end]
        yield from pairwise((start, *inside, end))
    else:
        yield from ((max(first, start), min(last, end)) for first, last in chunks if first < end and last > start)


def _hit(document: ParsedDocument, start: int, end: int, text: str) -> Hit:
    first = document.text.count("\n", 0, start) + 1
    last = first + document.text[start:end].rstrip().count("\n")
    return Hit(
        document=document.document_id,
        chunk=f"{document.document_id}#{start}",
        lines=(first, last),
        text=text,
        score=1.0,
        streams=(),
        ranks={},
        title=document.title,
        metadata=document.metadata,
    )

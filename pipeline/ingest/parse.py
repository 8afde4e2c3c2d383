"""One document's bytes to clean text with headings and a title. Pure: reads nothing, writes nothing, calls nobody.

Text formats, source code and data files keep their text as it is, so that offsets and lines are those of the file;
HTML, DOCX and PDF become Markdown-like text, and offsets and lines refer to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from pipeline.errors import DocumentError
from pipeline.ingest import formats
from pipeline.ingest.clean import clean, decode
from pipeline.ingest.markup import read_page
from pipeline.ingest.outline import front_matter, markdown_headings, rst_headings
from pipeline.ingest.triples import parse_triples
from pipeline.ingest.word import read_word
from schemas.documents import Heading, ParsedDocument

VERSION = "parse-3"
MAX_NESTING = 512
"""Levels of lists and objects in a JSON document."""

_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_ESCAPES = re.compile(r"\\([!-/:-@\[-`{-~])")


def parse(document_id: str, data: bytes, media_type_hint: str = "") -> ParsedDocument:
    """Return the plain text of a document; blank text means that there is nothing in it.

    `media_type_hint` is a Content-Type or what `formats.by_name` said, and may be empty.

    Raises:
        DocumentError: a format that is not read, damaged, nested too deeply, or an archive bomb.
    """
    kind = formats.resolve(document_id, media_type_hint, data)
    if not kind:
        raise DocumentError("a binary format that is not read")
    if kind == formats.TRIPLES:
        parsed = parse_triples(document_id, data)
    else:
        reader = _READERS.get(kind, _read_text)
        parsed = reader(document_id, data, formats.charset(media_type_hint))
    return replace(parsed, media_type=kind, title=_cleaned_title(parsed.title) or _stem(document_id))


def _read_text(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    decoded = decode(data, declared)
    text, cleaned = clean(decoded.text)
    metadata: dict[str, Any] = {}
    if decoded.replaced:
        metadata["undecodable_bytes"] = decoded.replaced
    if decoded.encoding not in ("utf-8", "ascii"):
        metadata["encoding"] = decoded.encoding
    return ParsedDocument(document_id, "", text, formats.TEXT, metadata=metadata, cleaned=cleaned)


def _read_markdown(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    parsed = _read_text(document_id, data, declared)
    headings = markdown_headings(parsed.text)
    fields = front_matter(parsed.text)
    title = fields.get("title") or _first(headings)
    return replace(parsed, title=title, headings=headings, metadata={**fields, **parsed.metadata})


def _read_rst(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    parsed = _read_text(document_id, data, declared)
    headings = rst_headings(parsed.text)
    return replace(parsed, title=_first(headings), headings=headings)


def _read_json(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    parsed = _read_text(document_id, data, declared)
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub("", parsed.text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_NESTING:
            raise DocumentError(f"nesting rule: JSON more than {MAX_NESTING} levels deep")
    return parsed


def _read_html(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    source = _read_text(document_id, data, declared)
    page = read_page(source.text)
    # An entity such as &#8203; may bring in what is to be cleaned; then the headings are read from the cleaned text.
    text, cleaned = clean(page.text)
    headings = markdown_headings(text) if cleaned else tuple(page.headings)
    title = _first(headings) or page.title
    return replace(source, title=title, text=text, headings=headings, cleaned=source.cleaned + cleaned)


def _read_docx(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    composed, headings, title = read_word(data)
    text, cleaned = clean(composed)
    headings = markdown_headings(text) if cleaned else headings
    return ParsedDocument(
        document_id, _first(headings) or title, text, formats.DOCX, headings=headings, cleaned=cleaned
    )


def _read_pdf(document_id: str, data: bytes, declared: str) -> ParsedDocument:
    # here, since most documents need none of it and it takes longer to load than all the rest
    from kreuzberg import ExtractionConfig, KreuzbergError, extract_bytes_sync

    config = ExtractionConfig(use_cache=False, enable_quality_processing=False, output_format="markdown", ocr=None)
    try:
        result = extract_bytes_sync(data, formats.PDF, config)
    except KreuzbergError as error:
        raise DocumentError("not a readable PDF: damaged, or locked by a password") from error
    text, cleaned = clean(_ESCAPES.sub(r"\1", result.content))
    headings = markdown_headings(text)
    title = _first(headings) or str(result.metadata.get("title") or "")
    return ParsedDocument(document_id, title, text, formats.PDF, headings=headings, cleaned=cleaned)


def _first(headings: tuple[Heading, ...]) -> str:
    return headings[0].text if headings else ""


def _cleaned_title(title: str) -> str:
    return " ".join(clean(title)[0].split())[:300]


def _stem(document_id: str) -> str:
    """Return the last part of an id without its suffix, or the id itself where nothing is left (a URL of a folder)."""
    return PurePosixPath(document_id.split("?", 1)[0]).stem or document_id


_READERS: dict[str, Callable[[str, bytes, str], ParsedDocument]] = {
    formats.MARKDOWN: _read_markdown,
    formats.RST: _read_rst,
    formats.HTML: _read_html,
    formats.JSON: _read_json,
    formats.JSONL: _read_json,
    formats.DOCX: _read_docx,
    formats.PDF: _read_pdf,
}

"""Which format a file has: by its name where that says it, by its beginning where it does not."""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath

from pipeline.ingest.clean import is_binary

MARKDOWN = "text/markdown"
RST = "text/x-rst"
HTML = "text/html"
JSON = "application/json"
JSONL = "application/jsonl"
YAML = "application/yaml"
CSV = "text/csv"
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
TEXT = "text/plain"
TRIPLES = "application/vnd.sapwood.triples+jsonl"

_BY_SUFFIX = {
    ".md": MARKDOWN, ".markdown": MARKDOWN, ".mdx": MARKDOWN, ".mkd": MARKDOWN, ".rmd": MARKDOWN, ".qmd": MARKDOWN,
    ".rst": RST, ".rest": RST,
    ".html": HTML, ".htm": HTML, ".xhtml": HTML,
    ".json": JSON, ".geojson": JSON, ".ipynb": JSON, ".jsonl": JSONL, ".ndjson": JSONL,
    ".yaml": YAML, ".yml": YAML, ".csv": CSV, ".tsv": CSV,
    ".pdf": PDF, ".docx": DOCX, ".txt": TEXT, ".text": TEXT, ".log": TEXT,
}  # fmt: skip
_CODE = """
py pyi js mjs cjs jsx ts mts cts tsx java kt kts scala go rs c h cc cpp cxx hh hpp hxx cs fs swift m mm rb php pl pm lua
r jl sh bash zsh fish ps1 bat cmd sql cypher graphql proto thrift toml ini cfg conf properties xml xsd xsl svg css scss
less vue svelte dart ex exs erl hrl hs lhs ml mli clj cljs groovy gradle tf hcl cmake mk dockerfile tex bib sty adoc org
vim el lisp scm zig nim pas f90 f95 vb asm s
"""
_TYPES = {**_BY_SUFFIX, **{f".{suffix}": f"text/x-{suffix}" for suffix in _CODE.split()}}
_ALIASES = {
    "text/x-markdown": MARKDOWN, "application/xhtml+xml": HTML, "application/x-ndjson": JSONL,
    "application/x-yaml": YAML, "text/yaml": YAML, "text/x-yaml": YAML, "text/json": JSON,
    "text/tab-separated-values": CSV, "text/prs.fallenstein.rst": RST,
}  # fmt: skip
_HEAVY = ("image/", "audio/", "video/", "font/")


def by_name(name: str) -> str:
    """Return the media type that a file's name stands for, or nothing where the name does not say."""
    return _TYPES.get(PurePosixPath(name).suffix.lower(), "")


def is_source(media_type: str) -> bool:
    """Whether this is the type of source code, in a language known here or not."""
    return media_type.startswith("text/x-") and media_type != RST


def is_media(name: str) -> bool:
    """Whether the name alone says that this is a picture, a sound, a film or a font (SVG is text)."""
    kind = mimetypes.guess_type(name, strict=False)[0] or ""
    return kind.startswith(_HEAVY) and not by_name(name)


def by_content(head: bytes) -> str:
    """Return PDF or plain text by a file's beginning, or nothing for a binary format that is not read."""
    if head.startswith(b"%PDF-"):
        return PDF
    return "" if is_binary(head) else TEXT


FIXED = f"{TEXT}; format=fixed"
"""The hint that says plain text on purpose: no name overrules it, as one does where a server knows no better."""


def resolve(name: str, hint: str, head: bytes) -> str:
    """Return the media type of a document: the hint (a Content-Type) if we read that format, else name, else beginning.

    The beginning overrules a name or a server that calls binary data text; nothing means that this is not read.
    """
    kind = hint.split(";", 1)[0].strip().lower()
    kind = _ALIASES.get(kind, kind)
    if kind not in _READ or (kind == TEXT and hint != FIXED):
        kind = by_name(name) or kind
    if kind in (PDF, DOCX, TRIPLES):
        return kind
    found = by_content(head)
    return kind if found == TEXT and kind in _READ else found


def charset(hint: str) -> str:
    """Return the charset parameter of a Content-Type, or nothing."""
    for parameter in hint.split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset":
            return value.strip().strip("\"'")
    return ""


_READ = frozenset(_TYPES.values()) | {TRIPLES}

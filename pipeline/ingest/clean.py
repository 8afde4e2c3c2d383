"""Bytes to clean text: which encoding, which characters go, and how many were lost on the way."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_COOKIE = re.compile(rb"\A(?:[ \t\f]*(?:#[^\n]{0,500})?\r?\n)?[ \t\f]*#[^\n]{0,500}?coding[:=][ \t]*([-\w.]{1,40})")
_META = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([-\w.:]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"\A<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([-\w.]{1,40})")
_PROBE = 8192

_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point: zero-width, bidirectional and tag characters, joiners, fillers and variation
selectors. Nobody sees them, and a model reads what they spell.
"""

_UNWANTED = re.compile(f"[\0\ud800-\udfff{_IGNORABLE}\ufff9-\ufffb]")
_LINE_END = re.compile("\r\n?")
_ODD_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text with the name of the encoding it was in, and the number of U+FFFD that stand for undecodable bytes."""

    text: str
    encoding: str
    replaced: int = 0


def decode(data: bytes, declared: str = "") -> Decoded:
    """Decode by byte order mark, else as declared (here, or in a PEP 263 cookie, a `<meta charset>` or an XML
    declaration), else as UTF-16 where every other byte is zero, else as UTF-8, else as Latin-1 where the bytes leave no
    doubt, else as UTF-8 with replacements.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _lossy(data[len(mark) :], encoding)
    declared = _known(declared or _declaration(data))
    for encoding in filter(None, (declared, _utf16(data), "utf-8")):
        try:
            return Decoded(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    if not declared and _is_latin1(data):
        return Decoded(data.decode("latin-1"), "latin-1")
    return _lossy(data, declared or "utf-8")


def is_binary(data: bytes) -> bool:
    """Whether the beginning of a file cannot be text in any encoding that `decode` knows."""
    head = data[:_PROBE]
    if any(head.startswith(mark) for mark, _ in _BOMS) or _utf16(head):
        return False
    return len(head) - len(head.translate(None, _ODD_CONTROLS)) > len(head) // 20


def clean(text: str) -> tuple[str, int]:
    """Return the text with `\\n` as its only line end and without NUL, lone surrogates, interlinear marks and characters
    that are never seen (zero-width, bidirectional, tag and the like), and how many of these went.

    Line ends come first, so a file hashes and cuts the same with either; they are not counted.
    """
    if "\r" in text:
        text = _LINE_END.sub("\n", text)
    if text.isascii() and "\0" not in text:
        return text, 0
    return _UNWANTED.subn("", text)


def _declaration(data: bytes) -> str:
    head = data[:1024]
    found = _COOKIE.search(head) or _XML.search(head) or _META.search(head)
    return found[1].decode("ascii", "replace") if found else ""


def _known(name: str) -> str:
    """Return the codec's own name, or nothing for what is no text encoding (zip, rot13 and such)."""
    try:
        b"    ".decode(name or "?")  # not empty: that is never looked at
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""


def _utf16(data: bytes) -> str:
    """Recognise UTF-16 without a mark: mostly ASCII characters, so every other byte is zero."""
    head = data[:_PROBE]
    if len(head) < 4:
        return ""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if odd > 0.6 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.6 * half and odd < 0.05 * half:
        return "utf-16-be"
    return ""


def _is_latin1(data: bytes) -> bool:
    """Whether every byte above ASCII is a Latin-1 letter within a word: then nothing else is likely."""
    return not re.search(rb"[\x80-\xbf\xd7\xf7\xff]|(?<![A-Za-z\xc0-\xfe])[\xc0-\xfe](?![A-Za-z])", data)


def _lossy(data: bytes, encoding: str) -> Decoded:
    text = data.decode(encoding, "replace")
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return Decoded(text, encoding, text.count("\ufffd"))
    return Decoded(text, encoding)

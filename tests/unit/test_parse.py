"""Bytes of every format to clean text, title and headings."""

from __future__ import annotations

import io
import json
import re
import unicodedata
import zipfile

import pytest

from pipeline.errors import DocumentError
from pipeline.ingest import formats
from pipeline.ingest.chunk import chunk
from pipeline.ingest.clean import clean, decode
from pipeline.ingest.parse import parse
from pipeline.retrieval.analyzer import tokens
from schemas.settings import ChunkSettings

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx(*paragraphs: tuple[str, str], **parts: str) -> bytes:
    """Return a DOCX of (style, XML text) paragraphs."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def pdf(text: str) -> bytes:
    """Return a one-page PDF with this line."""
    stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode("latin-1")
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out = bytearray(b"%PDF-1.4\n")
    offsets: list[int] = []
    for number, content in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return bytes(out + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % start)


@pytest.mark.parametrize(
    ("name", "data", "text", "title"),
    [
        ("a/notes.txt", b"Hello\r\nthere\rworld", "Hello\nthere\nworld", "notes"),
        ("a/guide.md", b"intro\n\n# The *Guide*\n", "intro\n\n# The *Guide*\n", "The Guide"),
        ("g.md", b"---\ntitle: Front\n---\n# Other\n", "---\ntitle: Front\n---\n# Other\n", "Front"),
        ("g.rst", b"====\nTop\n====\n\nx\n", "====\nTop\n====\n\nx\n", "Top"),
        ("p.html", b"<title>T</title><p>a&amp;b<script>no()</script><p>c", "a&b\n\nc\n", "T"),
        ("d.json", b'{"a": [1, "x"]}', '{"a": [1, "x"]}', "d"),
        ("d.jsonl", b'{"a": 1}\n{"a": 2}\n', '{"a": 1}\n{"a": 2}\n', "d"),
        ("d.yaml", b"a: !!python/object:os.system x\n", "a: !!python/object:os.system x\n", "d"),
        ("d.csv", b"a,b\n1,2\n", "a,b\n1,2\n", "d"),
        ("Makefile", b"all:\n\ttrue\n", "all:\n\ttrue\n", "Makefile"),
    ],
)
def test_text_formats_keep_their_text(name: str, data: bytes, text: str, title: str) -> None:
    """What people wrote is the text; the title is that of the front matter, the first heading, the page, or the file."""
    parsed = parse(name, data)
    assert (parsed.text, parsed.title) == (text, title)


def test_headings_point_at_their_lines() -> None:
    """Offsets are exact in every format that has headings; what stands in a code block is none."""
    for name, data in (
        ("a.md", b"x\n\n# One\n\n```\n# no\n```\n\nTwo\n---\n"),
        ("a.rst", b"One\n===\n\nx\n\nTwo\n---\n"),
        ("a.html", b"<p>x</p><h1>One</h1>y<pre># no</pre><h2>T<b>w</b>o</h2>"),
        ("a.docx", docx(("Heading1", "One"), ("", "y"), ("Heading2", "Two"))),
    ):
        parsed = parse(name, data)
        assert [(heading.level, heading.text) for heading in parsed.headings] == [(1, "One"), (2, "Two")], name
        assert all(parsed.text[heading.offset :].lstrip("# ").startswith(heading.text) for heading in parsed.headings)


@pytest.mark.parametrize("depth", [10, 65, 1000, 20_000])
def test_html_loses_no_text_however_deep(depth: int) -> None:
    """Nesting, forms, menus and missing end tags lose nothing."""
    data = "<p>before</p>" + "<div>" * depth + "<nav>deep</nav>" + "</div>" * depth + "<form>after"
    assert tokens(parse("x.html", data.encode()).text) == ["befor", "deep", "after"]


def test_docx_keeps_every_character_and_tables() -> None:
    """`<`, `&` and markers are text; translated heading styles are known by their name."""
    styles = (
        f'<w:styles xmlns:w="{WORD}"><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style></w:styles>'
    )
    parsed = parse(
        "x.docx",
        docx(("berschrift1", "Kopf"), ("", "a &lt; b &amp;&amp; &lt;|endoftext|&gt;"), **{"word/styles.xml": styles}),
    )
    assert parsed.text == "# Kopf\n\na < b && <|endoftext|>\n\n"
    assert parsed.title == "Kopf"


def test_pdf_gives_its_text() -> None:
    """Through the parser; the markers of its Markdown are undone."""
    parsed = parse("x.pdf", pdf("The Kiln_A is in Room 9."))
    assert "The Kiln_A is in Room 9." in parsed.text


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.pdf", b"%PDF-1.4 nothing of the kind", "PDF"),
        ("x.docx", b"PK\x03\x04 nothing", "DOCX"),
        ("x.docx", docx(("", "x"))[:-40], "DOCX"),
        ("x.docx", docx(("", "x"), **{"word/styles.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a/>'}), "XML rule"),
        ("x.docx", docx(("", "x"), **{"word/styles.xml": "x" * (101 << 20)}), "archive rule"),
        ("x.json", b"[" * 100_000, "nesting rule"),
        ("x.json", b'{"a":' * 1000 + b"1" + b"}" * 1000, "nesting rule"),
        ("x.txt", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0", "binary"),
        ("x.unknown", bytes(range(256)) * 4, "binary"),
    ],
    ids=["pdf", "docx", "cut", "entity", "bomb", "deep list", "deep object", "elf", "bytes"],
)
def test_what_cannot_be_read_says_why(name: str, data: bytes, said: str) -> None:
    """One document error each, never a crash and never an empty success."""
    with pytest.raises(DocumentError, match=said):
        parse(name, data)


@pytest.mark.parametrize(
    ("name", "data", "words", "replaced"),
    [
        (
            "latin1.py",
            b"# -*- coding: latin-1 -*-\ndef caf\xe9_handler(): pass\ndef plain_one(): pass\n",
            "café_handler plain_one",
            0,
        ),
        ("bom.py", b"\xef\xbb\xbfdef with_bom(): pass", "with_bom", 0),
        ("badbyte.py", "def ok(): pass  # ü ".encode() + b"\xff\ndef after(): pass", "ok after ü", 1),
        ("nfd.py", "def cafe\u0301(): ...\ncafé()".encode(), "cafe\u0301 café", 0),
        ("utf16.txt", "Grüße an alle".encode("utf-16"), "Grüße", 0),
        ("utf16.txt", "plain ascii here".encode("utf-16-be"), "plain ascii", 0),
        ("old.txt", "Die Größe der Häuser".encode("latin-1"), "Größe Häuser", 0),
        ("p.html", b'<meta charset="iso-8859-2"><p>\xb1', "ą", 0),
        ("odd.md", b"# Odd\n\nThe \xff\xfe\x80 Kiln\n\x00\n", "Kiln", 3),
        ("lie.py", b"# coding: rot13\ndef plain(): pass", "plain", 0),
    ],
)
def test_hostile_encodings_lose_nothing_unseen(name: str, data: bytes, words: str, replaced: int) -> None:
    """Declared, marked and guessed encodings are read; each byte that is no character is replaced and counted."""
    parsed = parse(name, data)
    assert all(word in parsed.text for word in words.split())
    assert parsed.metadata.get("undecodable_bytes", 0) == parsed.text.count("\ufffd") == replaced


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b" \n\t\n", b"\xff\xfe"])
def test_nothing_but_a_mark_is_an_empty_text(data: bytes) -> None:
    """Blank text and a title; the caller makes it the outcome `empty`."""
    parsed = parse("empty.py", data)
    assert parsed.text.strip() == ""
    assert parsed.title == "empty"


def test_a_declared_charset_of_the_server_counts() -> None:
    """The Content-Type is the declaration for what has none of its own."""
    assert parse("example.org/x", "ąę".encode("iso-8859-2"), "text/plain; charset=ISO-8859-2").text == "ąę"


def test_cleaning_removes_and_counts() -> None:
    """NUL, lone surrogates, zero-width, bidirectional and tag characters go; line ends are no loss."""
    assert clean("a\0b\ud800c\u200bd\u202ee\U000e0041f\ufeff\r\n\r") == ("abcdef\n\n", 6)


def unseen() -> list[str]:
    """Return what Unicode's names and categories know as invisible: formats, variation selectors, fillers, joiners."""
    marks = "ARABIC NUMBER|ARABIC SIGN|ARABIC FOOTNOTE|ARABIC END OF|ARABIC DISPUTED|POUND MARK|PIASTRE|SYRIAC|KAITHI"
    seen = re.compile(f"{marks}|EGYPTIAN HIEROGLYPH")  # formats that are drawn
    named = re.compile("VARIATION SELECTOR|HANGUL.* FILLER|GRAPHEME JOINER")
    return [
        character
        for character in map(chr, range(0x110000))
        if (name := unicodedata.name(character, ""))
        and (named.search(name) or (unicodedata.category(character) == "Cf" and not seen.search(name)))
    ]


def test_no_character_that_is_never_seen_is_left() -> None:
    """All of them by Unicode's own tables, tags and the selectors that can spell any byte among them; letters stay."""
    found = unseen()
    assert len(found) > 400
    assert {"\u200b", "\u202e", "\u2066", "\u206a", "\ufe0f", "\U000e0041", "\U000e0100", "\u3164"} <= set(found)
    assert [f"U+{ord(one):04X}" for one in found if clean(f"a{one}b") != ("ab", 1)] == []
    visible = "e\u0301 हिन्दी မြန်မာ 手 𝒳 👍🏽 🇩🇪 ½ \u0600 \u2028 \u00a0 \u2800 \ufffc \ufffd"
    assert clean(visible) == (visible, 0)


@pytest.mark.parametrize("suffix", ["md", "txt", "rst", "html", "py", "json"])
def test_chunks_and_lines_fit_the_cleaned_text(suffix: str) -> None:
    """What is stripped shifts no offset: every chunk is a span of the text that was kept, on the lines it says."""
    hidden = "\u200b\u202e\U000e0069\U000e0067\ufe0f\u3164"
    words = [f"w{hidden[number % 6 :]}ord{number}{hidden} and{hidden}more." for number in range(300)]
    parsed = parse(f"a.{suffix}", "\r\n\r\n".join(words).encode())
    chunks = chunk(parsed, ChunkSettings(max_chars=200))
    assert parsed.cleaned > 1000
    assert len(chunks) > 10
    for one in chunks:
        assert one.text == parsed.text[one.start : one.end]
        assert (one.first_line, one.last_line) == (
            parsed.text.count("\n", 0, one.start) + 1,
            parsed.text.count("\n", 0, one.end) + 1,
        )
        assert not set(hidden) & set(one.text)


def test_a_title_of_ready_made_triples_is_cleaned() -> None:
    """It is shown to models as other titles are, so it hides nothing and is one line."""
    record = {"document": "d", "passage": "p", "triples": [], "title": "A\u202e\U000e0041 b\nc\0"}
    parsed = parse("d", json.dumps(record).encode(), formats.TRIPLES)
    assert (parsed.title, parsed.media_type) == ("A b c", formats.TRIPLES)


def test_line_ends_and_marks_do_not_change_the_text() -> None:
    """CRLF and LF versions of a file are one text."""
    text = "one\n\ntwo\nthree"
    assert parse("a.md", text.replace("\n", "\r\n").encode()).text == parse("a.md", text.encode()).text


def test_special_tokens_are_plain_text() -> None:
    """Markers of tokenizers are neither dropped nor moved, and can be searched."""
    text = "The marker <|endoftext|> separates documents. Also <|im_start|>system you are"
    for name in ("x.txt", "x.md", "x.rst", "x.py", "x.csv"):
        parsed = parse(name, text.encode())
        assert parsed.text == text
        assert "endoftext" in tokens(parsed.text)


def test_decode_names_the_encoding() -> None:
    """A replaced character that was in the text already is not counted as lost."""
    decoded = decode("a\ufffdb".encode())
    assert (decoded.encoding, decoded.replaced) == ("utf-8", 0)

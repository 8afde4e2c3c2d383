"""Hostile inputs by name, for the tests of refusals: places that no URL may lead to, paths, and archives made to burst."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
BODY = "word/document.xml"
STYLES = "word/styles.xml"
TOO_MUCH = 101 << 20
"""More bytes than one part of an archive may have."""


def docx(*parts: tuple[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of these parts, packed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
        for name, content in parts:
            archive.writestr(name, content)
    return file.getvalue()


def document(text: str, before: str = "") -> str:
    """Return the main part of a DOCX with one paragraph; `before` stands in front of it."""
    return f'{before}<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>'


def laughs(kind: str = "") -> str:
    """Return a document type in which ten entities each hold ten of the one before; with `kind`, one that reads a file."""
    if kind:
        return f'<!DOCTYPE x [<!ENTITY lol SYSTEM "{kind}">]>'
    lines = ["<!DOCTYPE x [", '<!ENTITY a0 "lol">']
    lines += [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)]
    return "".join([*lines, '<!ENTITY lol "&a9;">', "]>"])


def zeros(count: int) -> bytes:
    """Return a stream of deflate that unpacks to so many MiB of zeros, in no time: one block over and over."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    check = ((count << 20) % 65521) << 16 | 1
    return b"\x78\xda" + block * count + b"\x03\x00" + struct.pack(">I", check)


def pdf(stream: bytes, filters: bytes) -> bytes:
    """Return a PDF with one page whose content is a packed stream."""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d/Filter%s>>stream\n%s\nendstream" % (len(stream), filters, stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(out + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % start)


def overlapping() -> bytes:
    """Return an archive whose directory gives the same packed bytes to many names, the parts of a DOCX among them."""
    whole = docx((BODY, document("x" * 1000)))
    start, end = whole.index(b"PK\x01\x02"), whole.index(b"PK\x05\x06")
    entry = bytearray(whole[start : start + 46])
    many = bytearray(whole[start:end])
    names = [STYLES, *(f"e{number}" for number in range(50))]
    for name in names:
        struct.pack_into("<H", entry, 28, len(name))
        many += entry + name.encode()
    count = len(names) + 1
    return whole[:start] + many + whole[end : end + 8] + struct.pack("<HHIIH", count, count, len(many), start, 0)


def with_sizes(packed: int, unpacked: int, text: str = "x", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive whose directory states these sizes for a part that has others."""
    whole = bytearray(docx((BODY, document(text)), method=method))
    struct.pack_into("<II", whole, whole.index(b"PK\x01\x02") + 20, packed, unpacked)
    return bytes(whole)


def nested(levels: int) -> bytes:
    """Return an archive within an archive, and so on, where the document should be."""
    inner = docx((BODY, document("x")))
    for _ in range(levels):
        inner = docx((BODY, inner), ("next.zip", inner))
    return inner


def quine() -> bytes:
    """Return an archive whose only file holds the archive itself, as far as its bytes go."""
    inner = docx(("r.docx", b""))
    for _ in range(8):
        inner = docx(("r.docx", inner))
    return inner


UNREADABLE = "not a readable PDF|over its limit"
"""Its reader, which is not ours, has limits of its own; whichever is met first."""

BOMBS: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "ratio.docx": (lambda: docx((BODY, bytes(TOO_MUCH))), "archive rule"),
    "ratio-in-styles.docx": (lambda: docx((BODY, document("x")), (STYLES, bytes(TOO_MUCH))), "archive rule"),
    "ratio-in-notes.docx": (
        lambda: docx((BODY, document("x")), ("word/footnotes.xml", bytes(TOO_MUCH))),
        "archive rule",
    ),
    "entries.docx": (
        lambda: docx((BODY, document("x")), *((f"e{n}", b"") for n in range(10_001))),
        "archive rule",
    ),
    "elements.docx": (lambda: docx((BODY, b"<a>" + b"<b/>" * 20_000_000 + b"</a>")), "went over its limit"),
    "nested.docx": (lambda: nested(20), "not a readable DOCX"),
    "quine.docx": (quine, "without word/document.xml"),
    "overlapping.docx": (overlapping, "not a readable DOCX"),
    "declared-huge.docx": (
        lambda: with_sizes(0xFFFFFFF0, 0xFFFFFFF0, method=zipfile.ZIP_STORED),
        "not a readable DOCX",
    ),
    "declared-small.docx": (lambda: with_sizes(10, 10), "not a readable DOCX"),
    "laughs.docx": (lambda: docx((BODY, document("&lol;", laughs()))), "XML rule"),
    "laughs-in-utf16.docx": (
        lambda: docx((BODY, document("&lol;", f'<?xml version="1.0" encoding="utf-16"?>{laughs()}').encode("utf-16"))),
        "XML rule",
    ),
    "reads-a-file.docx": (lambda: docx((BODY, document("&lol;", laughs("file:///etc/passwd")))), "XML rule"),
    "quadratic.docx": (
        lambda: docx((BODY, document("&q;" * 10_000, f'<!DOCTYPE x [<!ENTITY q "{"q" * 50_000}">]>'))),
        "XML rule",
    ),
    "stream.pdf": (lambda: pdf(zeros(4096), b"/FlateDecode"), UNREADABLE),
    "packed-twice.pdf": (lambda: pdf(zlib.compress(zeros(4096)), b"[/FlateDecode/FlateDecode]"), UNREADABLE),
    "deep-lists.json": (lambda: b"[" * 1_000_000, "nesting rule"),
    "deep-objects.json": (lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nesting rule"),
}
"""Archives and nestings made to burst, each with its maker and what it is refused with."""

TAME: Mapping[str, Callable[[], bytes]] = {
    "tame.docx": lambda: docx((BODY, document("TAME"))),
    "declared-huge-and-is-not.docx": lambda: with_sizes(0xFFFFFFF0, 0xFFFFFFF0, "TAME"),
    "tame.pdf": lambda: pdf(zlib.compress(b"BT /F1 12 Tf 72 700 Td (TAME) Tj ET"), b"/FlateDecode"),
    "tame.json": lambda: b'["TAME"]',
    "deep.html": lambda: b"<div>" * 200_000 + b"TAME",
}
"""What the same makers make when they mean no harm."""

PUBLIC, PRIVATE = "93.184.216.34", "127.0.0.1"

REFUSED_URLS: Mapping[str, tuple[str, str]] = {
    "file": ("file:///etc/passwd", "scheme rule"),
    "gopher": ("gopher://127.0.0.1:6379/_FLUSHALL", "scheme rule"),
    "ftp": ("ftp://127.0.0.1/x", "scheme rule"),
    "dict": ("dict://127.0.0.1:11211/stat", "scheme rule"),
    "ldap": ("ldap://127.0.0.1/x", "scheme rule"),
    "jar": ("jar:http://127.0.0.1!/x://", "rule"),
    "unix socket": ("http+unix://%2Fvar%2Frun%2Fdocker.sock/info", "scheme rule"),
    "port of ssh": ("http://public.test:22/", "port rule"),
    "port of redis": ("http://public.test:6379/", "port rule"),
    "port of postgres": ("http://public.test:5432/", "port rule"),
    "port of docker": ("http://public.test:2375/", "port rule"),
    "port 0": ("http://public.test:0/", "port rule"),
    "port too large": ("http://public.test:65616/", "URL rule"),
    "user": ("http://user@public.test/", "credential rule"),
    "user and password": ("http://user:secret@public.test/", "credential rule"),
    "host as user": ("http://public.test@127.0.0.1/", "credential rule"),
    "host as password": ("http://public.test:80@127.0.0.1/", "credential rule"),
    "two at signs": ("http://a@public.test@127.0.0.1/", "credential rule"),
    "fragment at": ("http://127.0.0.1\\#@public.test/", "URL rule"),
    "backslash": ("http://127.0.0.1\\@public.test/", "URL rule"),
    "tab": ("http://127.0.\t0.1/", "URL rule"),
    "line end": ("http://public.test\r\nHost: 127.0.0.1/", "URL rule"),
    "space": ("http://public.test /", "URL rule"),
    "no host": ("http:///etc/passwd", "URL rule"),
    "unclosed bracket": ("http://[::1/", "URL rule"),
    "zone": ("http://[fe80::1%25lo]/", "URL rule"),
    "escaped digits": ("http://%31%32%37.0.0.1/", "URL rule"),
    "escaped name": ("http://%6cocalhost/", "URL rule"),
}
"""URLs that are refused when a run is asked for, each with its rule."""

FAILED_URLS: Mapping[str, str] = {
    "loopback": "http://127.0.0.1/1",
    "all of loopback": "http://127.255.255.254/",
    "short": "http://127.1/",
    "zero": "http://0/",
    "unspecified": "http://0.0.0.0/",
    "decimal": "http://2130706433/",
    "octal": "http://0177.0.0.1/",
    "long octal": "http://00000177.0.0.1/",
    "hex": "http://0x7f000001/",
    "hex parts": "http://0x7f.0x0.0x0.0x1/",
    "mixed": "http://0x7f.1/",
    "localhost": "http://localhost/",
    "localhost in capitals": "http://LOCALHOST:80/capitals",
    "localhost with a dot": "http://localhost./",
    "circled digits": "http://①②⑦.⓪.⓪.①/",
    "full-width digits": "http://１２７.０.０.１/",
    "ideographic dots": "http://127。0。0。1/",
    "10/8": "http://10.0.0.1/",
    "172.16/12": "http://172.31.255.255/",
    "192.168/16": "http://192.168.0.1/",
    "carrier": "http://100.64.0.1/",
    "benchmark": "http://198.18.0.1/",
    "documentation": "http://203.0.113.1/",
    "multicast": "http://224.0.0.1/",
    "reserved": "http://240.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "cloud metadata": "http://169.254.169.254/latest/meta-data/iam/",
    "cloud metadata as a number": "http://2852039166/latest/",
    "metadata of Alibaba": "http://100.100.100.200/latest/meta-data/",
    "metadata over v6": "http://[fd00:ec2::254]/latest/",
    "metadata by name": "http://metadata.google.internal/computeMetadata/v1/",
    "v6 loopback": "http://[::1]/",
    "v6 loopback in full": "http://[0:0:0:0:0:0:0:1]/full",
    "v6 unspecified": "http://[::]/",
    "mapped": "http://[::ffff:127.0.0.1]/",
    "mapped in hex": "http://[::ffff:a9fe:a9fe]/",
    "compatible": "http://[::127.0.0.1]/compatible",
    "NAT64": "http://[64:ff9b::7f00:1]/",
    "NAT64 of metadata": "http://[64:ff9b::a9fe:a9fe]/",
    "6to4": "http://[2002:7f00:1::]/",
    "Teredo": "http://[2001:0:7f00:1::]/",
    "unique local": "http://[fc00::1]/",
    "link local": "http://[fe80::1]/",
    "site local": "http://[fec0::1]/",
    "v6 multicast": "http://[ff02::1]/",
    "a public name of a private address": "http://private.test/",
    "a name of two addresses": "http://both.test/",
    "a name that turns private": "http://rebinding.test/",
    "redirect to loopback": "http://to-loopback.test/",
    "redirect to metadata": "http://to-metadata.test/",
    "redirect to a number": "http://to-number.test/",
    "redirect without a scheme": "http://to-relative.test/",
    "redirect to a file": "http://to-file.test/",
    "redirect to another port": "http://to-port.test/",
    "redirect with a password": "http://to-password.test/",
    "redirects without end": "http://to-itself.test/",
}
"""URLs whose documents fail by a rule, in a run that goes on."""

TARGETS: Mapping[str, str] = {
    "to-loopback.test": "http://127.0.0.1/",
    "to-metadata.test": "http://169.254.169.254/latest/",
    "to-number.test": "http://2130706433/",
    "to-relative.test": "//private.test/",
    "to-file.test": "file:///etc/passwd",
    "to-port.test": "http://public.test:6379/",
    "to-password.test": "http://user:secret@public.test/",
    "to-itself.test": "http://to-itself.test/",
    "rebinding.test": "http://rebinding.test/again",
}
"""Where a server of this name sends one to."""

PAGES: Mapping[str, tuple[bytes, str]] = {
    "public.test": (b"<p>PUBLIC page", "identity"),
    "packed.test": (gzip.compress(b"<p>PACKED page"), "gzip"),
    "bomb.test": (gzip.compress(bytes(30 << 20)), "gzip"),
    "twice.test": (gzip.compress(gzip.compress(b"x")), "gzip, gzip"),
    "unasked.test": (b"x", "br"),
}
"""What servers answer with, and how that is packed."""

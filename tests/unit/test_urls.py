"""No URL leads into a private network, and no answer is larger or longer than allowed."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from pipeline.addresses import forbidden
from pipeline.deadline import Deadline
from pipeline.errors import DocumentError, Refused
from pipeline.ingest.urls import Fetcher, normalised

ADDRESSES = {
    "loopback": ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"],
    "unspecified": ["0.0.0.0", "::", "::ffff:0.0.0.0"],
    "link-local": ["169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "private or reserved": [
        "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1",
        "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255", "0.1.2.3", "192.88.99.1", "fc00::1", "fd00:ec2::254",
        "fec0::1", "2001:db8::1", "2002:7f00:1::", "2001:0:7f00:1::", "100::1", "::127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b:1::1", "3fff::1", "4000::1", "64:ff9b::a00:1",
    ],
    "not an address": ["", "localhost", "1.2.3", "0x7f000001"],
}  # fmt: skip

NAMES = [
    ("http://localhost/", "address rule"),
    ("http://127.0.0.1/", "address rule"),
    ("http://2130706433/", "address rule"),
    ("http://0x7f.1/", "address rule"),
    ("http://0177.0.0.1/", "address rule"),
    ("http://127.1/", "address rule"),
    ("http://0/", "address rule"),
    ("http://[::1]/", "address rule"),
    ("http://[::ffff:127.0.0.1]/", "address rule"),
    ("http://[::ffff:a9fe:a9fe]/", "address rule"),
    ("http://169.254.169.254/latest/meta-data/", "address rule"),
    ("http://①②⑦.⓪.⓪.①/", "address rule"),
    ("https://10.0.0.1/", "address rule"),
    ("http://[fe80::1%25eth0]/", "URL rule"),
    ("http://%31%32%37.0.0.1/", "URL rule"),
    ("http://127.0.0.1\\@example.org/", "URL rule"),
    ("http://exam ple.org/", "URL rule"),
    ("http://example.org\r\nHost: x/", "URL rule"),
    ("http:///x", "URL rule"),
    ("http://[::1", "URL rule"),
    ("http://example.org:99999/", "URL rule"),
    ("file:///etc/passwd", "scheme rule"),
    ("gopher://127.0.0.1:6379/_x", "scheme rule"),
    ("ftp://example.org/", "scheme rule"),
    ("data:text/plain,x", "scheme rule"),
    ("//example.org/", "scheme rule"),
    ("http://example.org:22/", "port rule"),
    ("http://example.org:6379/", "port rule"),
    ("http://example.org:0/", "port rule"),
    ("http://user@example.org/", "credential rule"),
    ("http://example.org@127.0.0.1/", "credential rule"),
]


@pytest.mark.parametrize(("kind", "address"), [(kind, one) for kind, many in ADDRESSES.items() for one in many])
def test_an_address_that_is_not_public_is_forbidden_by_name(kind: str, address: str) -> None:
    """Every special range of both versions, and those that carry an IPv4 address within."""
    assert kind in forbidden(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_is_allowed(address: str) -> None:
    """The internet, and IPv4 behind a translator."""
    assert not forbidden(address)


@pytest.mark.parametrize(("url", "rule"), NAMES)
async def test_a_url_into_a_private_place_is_refused_by_rule(url: str, rule: str) -> None:
    """With the system's own resolver: whatever it makes of a host is checked."""
    with pytest.raises(Refused, match=rule):
        await Fetcher().fetch(url, Deadline.after(5))


async def test_one_forbidden_address_forbids_the_host() -> None:
    """A name with a public and a private address is not tried at the public one."""

    async def both(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "10.0.0.1"]

    with pytest.raises(Refused, match="address rule"):
        await Fetcher(resolver=both).fetch("http://example.org/", Deadline.after(5))


Handler = Callable[[str, SocketStream], Awaitable[None]]


@asynccontextmanager
async def serve(handler: Handler, **more: int) -> AsyncIterator[tuple[Fetcher, str, list[str]]]:
    """Serve on loopback; yield a fetcher that may go there under any name, a URL, and the heads of the requests."""
    heads: list[str] = []

    async def handle(stream: SocketStream) -> None:
        async with stream:
            head = ""
            while "\r\n\r\n" not in head:
                head += (await stream.receive()).decode()
            heads.append(head)
            try:
                await handler(head.split(" ")[1], stream)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host != "evil.test" else ["169.254.169.254"]

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)

    def rule(address: str) -> str:
        return "" if address == "127.0.0.1" else forbidden(address)

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        yield Fetcher(resolver=here, rule=rule, ports={"http": port}, **more), f"http://site.test:{port}", heads
        group.cancel_scope.cancel()


def reply(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_a_page_is_fetched_by_its_checked_address_under_its_own_name() -> None:
    """The Host header is the name; the media type is the server's; gzip is unpacked."""

    async def handler(path: str, stream: SocketStream) -> None:
        await stream.send(
            reply(gzip.compress(b"<p>hello"), "Content-Type: text/html; charset=utf-8", "Content-Encoding: gzip")
        )

    async with serve(handler) as (fetcher, url, heads):
        assert await fetcher.fetch(f"{url}/a?b=c#d", Deadline.after(5)) == (b"<p>hello", "text/html; charset=utf-8")
    assert heads[0].startswith("GET /a?b=c HTTP/1.1\r\n")
    assert f"\r\nhost: {url.removeprefix('http://')}\r\n" in heads[0].lower()


@pytest.mark.parametrize(
    ("target", "rule"),
    [
        ("http://evil.test/", "address rule"),
        ("file:///etc/passwd", "scheme rule"),
        ("//evil.test/", "address rule"),
        ("http://site.test:22/", "port rule"),
        ("/", "redirect rule"),
    ],
)
async def test_every_redirect_is_checked_and_they_end(target: str, rule: str) -> None:
    """A public page cannot send the fetcher to a private one, nor round in circles."""

    async def handler(path: str, stream: SocketStream) -> None:
        await stream.send(reply(b"", f"Location: {target}", status="302 Found"))

    async with serve(handler) as (fetcher, url, heads):
        with pytest.raises(Refused, match=rule):
            await fetcher.fetch(url, Deadline.after(5))
    assert len(heads) == (6 if rule == "redirect rule" else 1)


async def test_a_relative_redirect_is_followed() -> None:
    """To its end."""

    async def handler(path: str, stream: SocketStream) -> None:
        await stream.send(reply(b"there") if path == "/b" else reply(b"", "Location: b", status="301 Moved"))

    async with serve(handler) as (fetcher, url, _):
        assert (await fetcher.fetch(f"{url}/a", Deadline.after(5)))[0] == b"there"


async def test_size_is_bounded_packed_and_unpacked() -> None:
    """An endless body and a bomb are stopped at the limit; an encoding that was not asked for is refused."""
    bodies = {
        "/plain": reply(b"x" * 2000),
        "/bomb": reply(gzip.compress(b"\0" * 50_000_000), "Content-Encoding: gzip"),
        "/br": reply(b"x", "Content-Encoding: br"),
    }

    async def handler(path: str, stream: SocketStream) -> None:
        if path == "/endless":
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                await stream.send(b"x" * 1000)
        await stream.send(bodies[path])

    async with serve(handler, max_bytes=1000) as (fetcher, url, _):
        for path, rule in (("/plain", "size"), ("/bomb", "size"), ("/endless", "size"), ("/br", "encoding")):
            with pytest.raises(Refused, match=f"{rule} rule"):
                await fetcher.fetch(url + path, Deadline.after(5))


async def test_a_server_that_fails_or_stalls_is_a_document_error() -> None:
    """Error statuses, damaged answers, silence until the deadline."""

    async def handler(path: str, stream: SocketStream) -> None:
        if path == "/stall":
            await anyio.sleep(60)
        await stream.send({"/404": reply(status="404 Not Found")}.get(path, b"nonsense\r\n\r\n"))

    async with serve(handler) as (fetcher, url, _):
        for path, said in (("/404", "404"), ("/x", "failed"), ("/stall", "too long")):
            with pytest.raises(DocumentError, match=said):
                await fetcher.fetch(url + path, Deadline.after(0.3 if path == "/stall" else 5))


def test_one_page_has_one_url() -> None:
    """Case, default port and fragment make no difference."""
    assert normalised("HTTP://Example.ORG:80#x") == "http://example.org/"
    assert normalised("https://[2606:4700::1]:443/a?b") == "https://[2606:4700::1]/a?b"

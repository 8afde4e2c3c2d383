"""Pages from the web, and only from the web: no name, number or redirect leads the fetcher into a private network.

The host is resolved once, every address is checked, and the connection goes to a checked address, with the name kept
for TLS and the Host header; so a name that resolves differently a moment later changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import anyio
import anyio.to_thread
import httpx

from pipeline.deadline import Deadline
from pipeline.errors import DocumentError, Refused
from pipeline.ingest.folders import MAX_BYTES

MAX_REDIRECTS = 5
MAX_SECONDS = 60.0
"""For one page with all its redirects."""
PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]
"""From host and port to all its addresses, as text."""

_V6_SPECIAL = tuple(ipaddress.IPv6Network(n) for n in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
_V6_GLOBAL = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_V4_SPECIAL = tuple(ipaddress.IPv4Network(n) for n in ("192.0.0.0/24", "192.88.99.0/24"))
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def normalised(url: str) -> str:
    """Return a URL with a lower-case scheme and host, without fragment and default port.

    Raises:
        Refused: scheme, port, credential or host rule.
    """
    parts = _checked(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, PORTS[parts.scheme]) else f":{parts.port}"
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path or "/", parts.query, ""))


def forbidden(address: str) -> str:
    """Return the rule that forbids connecting to this address, or nothing for one on the public internet."""
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return "not an address"
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or (ipaddress.IPv4Address(parsed.packed[-4:]) if parsed in _NAT64 else None)
        if inner:
            return _kind(inner)
    return _kind(parsed)


async def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a host, in the system's order of preference."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    location: str
    media_type: str
    body: bytes


class Fetcher:
    """Fetches pages, each over connections of its own: a pool knows them by address, and two hosts may share one.

    `resolver`, `rule` and `ports` are there for tests, which serve from loopback; the defaults are the strict ones.
    """

    def __init__(
        self,
        *,
        resolver: Resolver = resolve,
        rule: Callable[[str], str] = forbidden,
        ports: dict[str, int] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._resolver, self._rule, self._max_bytes = resolver, rule, max_bytes
        self._ports = ports
        self._tls: ssl.SSLContext | None = None

    async def fetch(self, url: str, deadline: Deadline) -> tuple[bytes, str]:
        """Return a page's bytes and its Content-Type.

        Raises:
            Refused: a rule of scheme, port, address, redirect, size or encoding.
            DocumentError: it cannot be had.
            DeadlineExceeded: too little time was left to begin.
        """
        with anyio.move_on_after(deadline.budget(MAX_SECONDS)):
            for _ in range(MAX_REDIRECTS + 1):
                answer = await self._get(url)
                if answer.status not in _REDIRECTS or not answer.location:
                    return self._page(answer)
                url = urljoin(url, answer.location)
            raise Refused(f"redirect rule: more than {MAX_REDIRECTS} in a row")
        raise DocumentError("the server took too long")

    def _page(self, answer: _Answer) -> tuple[bytes, str]:
        if answer.status != 200:
            raise DocumentError(f"the server answered {answer.status}")
        return answer.body, answer.media_type

    async def _get(self, url: str) -> _Answer:
        parts = _checked(url, self._ports)
        host = parts.hostname or ""
        port = parts.port or PORTS[parts.scheme]
        addresses = await self._addresses(host, port)
        for last, address in zip([False] * (len(addresses) - 1) + [True], addresses, strict=True):
            try:
                return await self._get_from(address, parts, host, port)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if last:
                    raise DocumentError("no connection to the server") from error
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                raise DocumentError(f"the transfer failed ({type(error).__name__})") from error
        raise DocumentError("the host has no address")

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Resolve once and check every address; one that is forbidden forbids the host."""
        try:
            addresses = await self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise DocumentError("the host cannot be resolved") from error
        for address in addresses:
            if rule := self._rule(address):
                raise Refused(f"address rule: the host resolves to {rule}")
        if not addresses:
            raise DocumentError("the host has no address")
        return addresses

    async def _get_from(self, address: str, parts: SplitResult, host: str, port: int) -> _Answer:
        if self._tls is None:  # it reads files
            self._tls = await anyio.to_thread.run_sync(partial(httpx.create_ssl_context, trust_env=False))
        literal = f"[{address}]" if ":" in address else address
        shown = f"[{host}]" if ":" in host else host
        url = urlunsplit((parts.scheme, f"{literal}:{port}", parts.path or "/", parts.query, ""))
        headers = {
            "Host": shown if port == PORTS[parts.scheme] else f"{shown}:{port}",
            "Accept": "text/html, text/*;q=0.9, application/*;q=0.8",
            "Accept-Encoding": "gzip",
            "User-Agent": "sapwood",
        }
        # No time limit here: the scope in `fetch` bounds all of it.
        client = httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=None)
        async with client, client.stream("GET", url, headers=headers, extensions={"sni_hostname": host}) as response:
            location = response.headers.get("location", "")
            body = b"" if response.status_code in _REDIRECTS else await self._body(response)
            return _Answer(response.status_code, location, response.headers.get("content-type", ""), body)

    async def _body(self, response: httpx.Response) -> bytes:
        """Read and unpack a body, never holding more than the limit: a bomb is stopped while it unpacks."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
            raise Refused("encoding rule: a content encoding that was not asked for")
        unpack = None if encoding == "identity" else zlib.decompressobj(47)
        body = bytearray()
        async for data in response.aiter_raw():
            try:
                body += unpack.decompress(data, self._max_bytes + 1 - len(body)) if unpack else data
            except zlib.error as error:
                raise DocumentError("the body is damaged") from error
            if len(body) > self._max_bytes:
                raise Refused(f"size rule: more than {self._max_bytes / (1 << 20):g} MiB")
        return bytes(body)


def _checked(url: str, ports: dict[str, int] | None = None) -> SplitResult:
    """Return the parts of a URL that may be fetched, as far as it says so itself."""
    if any(c <= " " or c in "\\\x7f" for c in url):
        raise Refused("URL rule: white space, a control character or a backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("URL rule: not a URL") from error
    if parts.scheme not in PORTS:
        raise Refused("scheme rule: only http and https")
    if not parts.hostname:
        raise Refused("URL rule: no host")
    if parts.username is not None or parts.password is not None:
        raise Refused("credential rule: no user or password in a URL")
    if (port if port is not None else PORTS[parts.scheme]) not in {*PORTS.values(), *(ports or {}).values()}:
        raise Refused("port rule: only 80 and 443")
    if "%" in parts.hostname:
        raise Refused("URL rule: an escape or a zone in the host")
    return parts


def _kind(address: Address) -> str:
    """Return what kind of non-public address this is, or nothing."""
    rules = (
        (address.is_unspecified, "an unspecified address"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
    )
    for applies, name in rules:
        if applies:
            return name
    if isinstance(address, ipaddress.IPv6Address):
        usable = address.is_global and address in _V6_GLOBAL and not any(address in network for network in _V6_SPECIAL)
    else:
        usable = address.is_global and not any(address in network for network in _V4_SPECIAL)
    return "" if usable else "a private or reserved address"

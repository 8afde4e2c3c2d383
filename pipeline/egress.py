"""Requests to the web, and only to the web: no name, number or redirect leads one into a private network.

The host is resolved once, every address is checked, and the connection goes to a checked address, with the name kept
for TLS and the Host header; so a name that resolves differently a moment later changes nothing.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from urllib.parse import SplitResult, urlsplit, urlunsplit

import anyio
import anyio.to_thread
import httpx

from pipeline.addresses import NEVER, Network, forbidden, literal, within
from pipeline.errors import Refused, Unreachable

PORTS = {"http": 80, "https": 443}

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""From host and port to all its addresses, as text."""


async def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a host, in the system's order of preference."""
    look = partial(socket.getaddrinfo, _ascii(host), port, type=socket.SOCK_STREAM)
    # In a thread of its own, that is left when the time is over: a server of names that hangs holds up nobody else.
    found = await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class Egress:
    """Makes requests, each over a connection of its own: a pool knows them by address, and two hosts may share one.

    `allowed` are networks that may be reached beside the public internet, on any port; elsewhere it is 80 and 443 alone.
    `resolver`, `rule` and `ports` are there for tests, which serve from loopback; the defaults are the strict ones.
    """

    def __init__(
        self,
        *,
        resolver: Resolver = resolve,
        rule: Callable[[str], str] = forbidden,
        ports: Mapping[str, int] | None = None,
        allowed: Sequence[Network] = (),
    ) -> None:
        self._resolver, self._rule, self._allowed = resolver, rule, tuple(allowed)
        self._ports = frozenset({*PORTS.values(), *(ports or {}).values()})
        self._tls: ssl.SSLContext | None = None

    def check(self, url: str) -> SplitResult:
        """Return the parts of a URL that may be asked, as far as it says so itself: nothing is resolved.

        Raises:
            Refused: scheme, port, credential, host or address rule.
        """
        parts = checked(url, None if self._allowed else self._ports)
        host = parts.hostname or ""
        for address in literal(host):
            self._permit(address, port_of(parts), "the host is")
        return parts

    @asynccontextmanager
    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncGenerator[httpx.Response, None]:
        """Make a request and lend its response, whose body is not read yet. No redirect is followed.

        There is no time limit: the caller's scope bounds all of it.

        Raises:
            Refused: a rule of scheme, port, credential, host or address.
            Unreachable: the host cannot be resolved or connected, or the transfer broke off, also while the body is read.
        """
        parts = self.check(url)
        addresses = await self.addresses(parts)
        if self._tls is None:  # it reads files
            self._tls = await anyio.to_thread.run_sync(partial(httpx.create_ssl_context, trust_env=False))
        client = httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=None)
        async with client:
            with _translated():
                response = await _first_to_answer(client, method, parts, addresses, headers, body)
                try:
                    yield response
                finally:
                    await response.aclose()

    async def addresses(self, parts: SplitResult) -> list[str]:
        """Resolve the host of a checked URL once and check every address; one that is forbidden forbids the host.

        Raises:
            Refused: an address rule.
            Unreachable: it cannot be resolved.
        """
        host, port = parts.hostname or "", port_of(parts)
        try:
            addresses = await self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise Unreachable("the host cannot be resolved") from error
        for address in addresses:
            self._permit(address, port, "the host resolves to")
        if not addresses:
            raise Unreachable("the host has no address")
        return addresses

    def _permit(self, address: str, port: int, what: str) -> None:
        """Check one address. Raises Refused."""
        if within(address, self._allowed) and not within(address, NEVER):
            return
        if rule := self._rule(address):
            raise Refused(f"address rule: {what} {rule}")
        if port not in self._ports:
            raise Refused("port rule: only 80 and 443")


def checked(url: str, ports: Collection[int] | None = frozenset(PORTS.values())) -> SplitResult:
    """Return the parts of a URL that may be asked for by its form; None for ports: any.

    Raises:
        Refused: scheme, port, credential or host rule.
    """
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
    if port == 0 or (ports is not None and port_of(parts) not in ports):
        raise Refused("port rule: only 80 and 443")
    if "%" in parts.hostname:
        raise Refused("URL rule: an escape or a zone in the host")
    return parts


def port_of(parts: SplitResult) -> int:
    """Return the port of a URL, its scheme's own where it names none."""
    return parts.port if parts.port is not None else PORTS[parts.scheme]


async def _first_to_answer(
    client: httpx.AsyncClient,
    method: str,
    parts: SplitResult,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    body: bytes | None,
) -> httpx.Response:
    """Send the request to the addresses in turn, until one takes the connection."""
    *others, last = addresses
    for address in others:
        try:
            return await client.send(_to(client, method, parts, address, headers, body), stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            continue
    return await client.send(_to(client, method, parts, last, headers, body), stream=True)


def _to(
    client: httpx.AsyncClient,
    method: str,
    parts: SplitResult,
    address: str,
    headers: Mapping[str, str],
    body: bytes | None,
) -> httpx.Request:
    """Return a request to an address under the host's own name."""
    host, port = _ascii(parts.hostname or ""), port_of(parts)
    url = urlunsplit((parts.scheme, f"{_bracketed(address)}:{port}", parts.path or "/", parts.query, ""))
    shown = _bracketed(host) if port == PORTS[parts.scheme] else f"{_bracketed(host)}:{port}"
    named = {"Host": shown, "User-Agent": "sapwood", **headers}
    return client.build_request(method, url, headers=named, content=body, extensions={"sni_hostname": host})


def _ascii(host: str) -> str:
    """Return a name as it goes over the wire. Raises UnicodeError."""
    return host if host.isascii() and ":" in host else host.encode("idna").decode()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _translated() -> Generator[None, None, None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable("no connection to the server") from error
    except UnicodeError as error:
        raise Unreachable("the host is no name") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise Unreachable(f"the transfer failed ({type(error).__name__})") from error

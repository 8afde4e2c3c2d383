"""Pages from the web, and only from the web: by the rules of `pipeline/egress.py`, for each redirect anew."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urljoin, urlunsplit

import anyio
import httpx

from pipeline.addresses import forbidden
from pipeline.deadline import Deadline
from pipeline.egress import PORTS, Egress, Resolver, checked, resolve
from pipeline.errors import DocumentError, Refused, Unreachable
from pipeline.ingest.folders import MAX_BYTES

MAX_REDIRECTS = 5
MAX_SECONDS = 60.0
"""For one page with all its redirects."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"Accept": "text/html, text/*;q=0.9, application/*;q=0.8", "Accept-Encoding": "gzip"}


def normalised(url: str) -> str:
    """Return a URL with a lower-case scheme and host, without fragment and default port.

    Raises:
        Refused: scheme, port, credential or host rule.
    """
    parts = checked(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, PORTS[parts.scheme]) else f":{parts.port}"
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path or "/", parts.query, ""))


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    location: str
    media_type: str
    body: bytes


class Fetcher:
    """Fetches pages.

    `resolver`, `rule` and `ports` are there for tests, which serve from loopback; the defaults are the strict ones.
    """

    def __init__(
        self,
        *,
        resolver: Resolver = resolve,
        rule: Callable[[str], str] = forbidden,
        ports: Mapping[str, int] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._egress = Egress(resolver=resolver, rule=rule, ports=ports)
        self._max_bytes = max_bytes

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
        try:
            async with self._egress.request("GET", url, _HEADERS) as response:
                location = response.headers.get("location", "")
                body = b"" if response.status_code in _REDIRECTS else await self._body(response)
                return _Answer(response.status_code, location, response.headers.get("content-type", ""), body)
        except Unreachable as error:
            raise DocumentError(str(error)) from error

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

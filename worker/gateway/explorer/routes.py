"""The files of the explorer. They are the same for everybody and hold no data: what the page shows, it asks the API for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Header
from starlette.responses import RedirectResponse, Response

from pipeline.errors import NotFound

PAGE = "index.html"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Scripts and styles from here alone, none inline; and no text ever becomes markup, whatever a document is called."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept, and asked about each time: an upgrade shows at once
}

TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""What may be served; other files of the folder are not."""

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is sent. `etag` follows from the content."""

    content: bytes
    media_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return all files by their paths, e.g. `app.css`: what is not in here does not exist. Blocking, the first time."""
    return dict(_below(files("worker.gateway.explorer") / "static", ""))


@router.api_route("/", methods=["GET", "HEAD"])
async def root() -> Response:
    """Show the way to the page."""
    return RedirectResponse("explorer/", headers=HEADERS)


@router.api_route("/explorer", methods=["GET", "HEAD"])
async def slashless() -> Response:
    """Show the way to the page, whose links begin below it."""
    return RedirectResponse("explorer/", headers=HEADERS)


@router.api_route("/explorer/{path:path}", methods=["GET", "HEAD"])
async def asset(path: str, if_none_match: Annotated[str, Header()] = "") -> Response:
    """Return a file of the page, or 304 to a browser that has it. Raises NotFound."""
    found = (await anyio.to_thread.run_sync(assets)).get(path or PAGE)
    if found is None:
        raise NotFound("The explorer has no such file.")
    headers = {**HEADERS, "ETag": found.etag}
    if if_none_match == "*" or found.etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)


def _below(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = prefix + entry.name
        suffix = entry.name.rpartition(".")[2]
        if entry.is_dir():
            found += _below(entry, f"{path}/")
        elif suffix in TYPES:
            found.append((path, _asset(entry.read_bytes(), TYPES[suffix])))
    return found


def _asset(content: bytes, media_type: str) -> Asset:
    return Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')

"""Routes of uploaded files: kept in a folder of the corpus below SAPWOOD_HOME, which an index run may mirror.

Workers read sources themselves, so a file must lie where each of them can: that is certain only where the database is the
embedded one, and with it everything on one machine. Elsewhere uploads are refused; give the workers URLs or a shared
folder instead.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi import Path as InPath

from pipeline.errors import InvalidRequest, NotFound, Refused, StoreUnavailable
from schemas.query import Wire
from worker.gateway.access import sapwood_of
from worker.gateway.orders import CorpusName, Indexing, Reading
from worker.settings import WorkerSettings

router = APIRouter(prefix="/v1/corpora/{corpus}/files", tags=["files"])

FOLDER_BYTES = 2 << 30
"""Bytes that the files of one corpus may have together."""

DEPTH, NAME_BYTES = 20, 200

FileName = Annotated[str, InPath(description="Path of the file within the corpus, e.g. `guides/laser.md`.")]
_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class FileView(Wire):
    """An uploaded file; `size` is in bytes."""

    path: str
    size: int


@router.get("", summary="List uploaded files")
async def list_files(corpus: CorpusName, request: Request, principal: Reading) -> list[FileView]:
    """Return the uploaded files of a corpus by path."""
    root = folder(request.app.state.settings, (await sapwood_of(request, principal).corpus(corpus)).corpus_id)
    return await anyio.to_thread.run_sync(_listing, root)


@router.put(
    "/{path:path}",
    status_code=201,
    summary="Upload a file",
    openapi_extra={"requestBody": {"required": True, "content": _FILE}},
)
async def upload(corpus: CorpusName, path: FileName, request: Request, principal: Indexing) -> FileView:
    """Keep the body as a file, in place of one of that path. An index run with `uploads` takes it in.

    The file appears whole or not at all, also when the client leaves in the middle.
    """
    sapwood = sapwood_of(request, principal)
    corpus_id = (await sapwood.corpus(corpus)).corpus_id
    root = folder(request.app.state.settings, corpus_id)
    target = root / checked(path)
    draft = root.parent / f".{secrets.token_hex(8)}"
    with _writing():
        await anyio.to_thread.run_sync(_make_room, root, _announced(request))
        try:
            await _write(draft, request.stream())
            await anyio.to_thread.run_sync(_put, draft, target)
        finally:
            with anyio.move_on_after(5.0, shield=True), suppress(OSError):
                await anyio.to_thread.run_sync(lambda: draft.unlink(missing_ok=True))
        size = (await anyio.Path(target).stat()).st_size
    try:
        await sapwood.corpus(corpus)
    except NotFound:  # deleted while the file came in
        await sapwood.forget_uploads(corpus_id)
        raise
    return FileView(path=path, size=size)


@router.delete("/{path:path}", status_code=204, summary="Delete an uploaded file")
async def delete_file(corpus: CorpusName, path: FileName, request: Request, principal: Indexing) -> None:
    """Delete an uploaded file; the next index run removes its document."""
    root = folder(request.app.state.settings, (await sapwood_of(request, principal).corpus(corpus)).corpus_id)
    target = root / checked(path)
    try:
        await anyio.Path(target).unlink()
    except OSError as error:
        raise NotFound(f"There is no uploaded file {path!r}.") from error


def folder(settings: WorkerSettings, corpus_id: int) -> Path:
    """Return where the uploads of a corpus lie. Raises Refused where not every worker could read them."""
    if settings.database_url is not None:
        raise Refused("Uploads need the embedded database: give URLs, or a folder that every worker can read.")
    return settings.home / "uploads" / str(corpus_id)


async def source_of(settings: WorkerSettings, corpus_id: int) -> str:
    """Return the uploads of a corpus as a source. Raises InvalidRequest where there are none, and Refused."""
    root = folder(settings, corpus_id)
    if not await anyio.Path(root).is_dir():
        raise InvalidRequest("Nothing was uploaded to this corpus yet.")
    return str(root)


def checked(path: str) -> str:
    """Return the path of an upload. Raises Refused for one that is absolute, hidden, unprintable, long or deep."""
    parts = path.split("/")
    fine = all(part.isprintable() and 0 < len(os.fsencode(part)) <= NAME_BYTES and part[0] != "." for part in parts)
    if not fine or len(parts) > DEPTH or "\ufffd" in path:  # which the server makes of bytes that are no UTF-8
        raise Refused("path rule: visible names without a leading dot, separated by single slashes")
    return path


def _announced(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


@contextmanager
def _writing() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY):
            raise InvalidRequest("A file cannot be where a folder is, nor a folder where a file is.") from error
        raise StoreUnavailable("The folder of uploads cannot be written.") from error


async def _write(draft: Path, body: AsyncIterator[bytes]) -> None:
    async with await anyio.open_file(draft, "xb") as file:
        async for part in body:
            await file.write(part)


def _make_room(root: Path, more: int) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sum(one.size for one in _listing(root)) + more > FOLDER_BYTES:
        raise Refused(f"size rule: the files of a corpus have {FOLDER_BYTES >> 30} GiB together at most")


def _put(draft: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft.replace(target)


def _listing(root: Path) -> list[FileView]:
    files = [Path(place) / name for place, _, names in os.walk(root) for name in names]
    found = [FileView(path=str(file.relative_to(root)), size=file.lstat().st_size) for file in files]
    return sorted(found, key=lambda one: one.path)

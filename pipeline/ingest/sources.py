"""Sources: from what a user typed to the listed documents with their ids, and from a listed document to its bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound, Refused
from pipeline.ingest.folders import MAX_BYTES, Found, escape, globs, list_file, list_folder, read_file, show
from pipeline.ingest.repositories import Repositories, Tree
from pipeline.ingest.revisions import PREFIX, checked_revision, place_of
from pipeline.ingest.triples import looks_like_triples, scan
from pipeline.ingest.urls import normalised
from schemas.documents import DocumentOutcome, Item, Outcome, Source, SourceKind

_FORCED = "triples:"


@dataclass(frozen=True, slots=True)
class Listing:
    """Every document of some sources, and every entry left out with its reason; by document id, which are unique.

    `revisions` are the commits of the repositories among them, by the sources' locations.
    """

    items: tuple[Item, ...]
    skipped: tuple[DocumentOutcome, ...]
    revisions: tuple[tuple[str, str], ...] = ()


def make_source(text: str, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Source:
    """Return the source that a user means: a folder, a file, an `http(s)` URL, a repository at a revision (`git+…`, see
    `revisions`), or a triples file (`triples:PATH` or a `.jsonl` whose first line has the keys document, passage, triples).

    Raises:
        InvalidRequest: neither; NotFound: no such path; Refused: a URL that a rule forbids.
    """
    patterns = tuple(include), tuple(exclude)
    globs([*include, *exclude], strict=True)
    if text.startswith(PREFIX):
        return Source(SourceKind.GIT, _repository(text), *patterns)
    if "://" in text:
        return Source(SourceKind.URL, normalised(text), *patterns)
    path = os.path.abspath(os.path.expanduser(text.removeprefix(_FORCED)))
    if not _storable(path):
        raise InvalidRequest("a source's path must be UTF-8 without control characters")
    if not os.path.exists(path):
        raise NotFound(f"no such file or folder: {path}")
    if os.path.isdir(path):
        if text.startswith(_FORCED):
            raise InvalidRequest(f"a folder is no triples file: {path}")
        return Source(SourceKind.FOLDER, path, *patterns)
    if not os.path.isfile(path):
        raise Refused(f"file rule: not a regular file: {path}")
    is_lines = path.endswith((".jsonl", ".ndjson"))
    triples = text.startswith(_FORCED) or (is_lines and looks_like_triples(_first_line(path)))
    return Source(SourceKind.TRIPLES if triples else SourceKind.FILE, path, *patterns)


def at_revision(text: str, revision: str = "", *, generated: bool = False, submodules: bool = False) -> str:
    """Return the text of a source as a repository at a revision; one that is none is taken for the path of a checkout.

    Without a revision or switch the text stays as it is. Raises InvalidRequest, Refused.
    """
    if not (revision or generated or submodules):
        return text
    if "://" in text and not text.startswith(PREFIX):
        raise InvalidRequest(f"--rev, --generated and --submodules are for repositories; write {PREFIX}{text}")
    place = place_of(text if text.startswith(PREFIX) else f"{PREFIX}file://{quote(os.path.abspath(text))}")
    named = checked_revision(revision) if revision else place.revision
    return replace(
        place, revision=named, generated=generated or place.generated, submodules=submodules or place.submodules
    ).location


async def list_all(sources: Sequence[Source], repositories: Repositories, deadline: Deadline) -> Listing:
    """Return all documents of these sources, repositories among them. Raises as `list_sources` and `Repositories.listing`."""
    trees = {
        source: await repositories.listing(source, deadline)
        for source in dict.fromkeys(sources)
        if source.kind is SourceKind.GIT
    }
    listing = await anyio.to_thread.run_sync(list_sources, sources, MAX_BYTES, trees)
    return replace(listing, revisions=tuple((source.location, tree.revision) for source, tree in trees.items()))


def list_sources(
    sources: Sequence[Source], max_bytes: int = MAX_BYTES, trees: Mapping[Source, Tree] | None = None
) -> Listing:
    """Return all documents of these sources; `trees` is what their repositories hold. Blocking: for a thread.

    Raises:
        NotFound: a source is not there; it must not look like an empty one, or its documents would be removed.
        InvalidRequest: a repository among them is not in `trees`.
    """
    distinct = list(dict.fromkeys(sources))
    listed = [_list(source, max_bytes, trees or {}) for source in distinct]
    names = document_ids(
        (source_name(source), [entry.name for entry in entries])
        for source, (entries, _) in zip(distinct, listed, strict=True)
    )
    items: list[Item] = []
    skipped: list[DocumentOutcome] = []
    for source, (entries, parts), ids in zip(distinct, listed, names, strict=True):
        for entry, document_id in zip(entries, ids, strict=True):
            if entry.fault:
                outcome = Outcome.FAILED if source.kind is SourceKind.TRIPLES else Outcome.SKIPPED
                skipped.append(DocumentOutcome(document_id, outcome, entry.fault))
            else:
                size = None if source.kind is SourceKind.URL else entry.size
                mtime = None if source.kind is SourceKind.URL else entry.mtime_ns
                place = entry.source or source
                items.append(Item(document_id, place, entry.locator, size, mtime, parts.get(entry.name, ())))
    return Listing(
        tuple(sorted(items, key=lambda item: item.document_id)),
        tuple(sorted(skipped, key=lambda outcome: outcome.document_id)),
    )


def read(item: Item, max_bytes: int = MAX_BYTES) -> bytes:
    """Return a document's bytes. Blocking: for a thread. Not for URLs, which are fetched, nor for repositories.

    Raises:
        DocumentError: it vanished, cannot be read, or is too large.
        Refused: a path, symlink or file rule.
    """
    if item.source.kind is SourceKind.URL:
        raise Refused("path rule: a URL is fetched, not read")
    if item.source.kind is SourceKind.GIT:
        raise Refused("path rule: a blob is read from its repository")
    return read_file(item.source, item.locator, item.part, max_bytes)


def document_ids(listings: Iterable[tuple[str, Sequence[str]]]) -> list[list[str]]:
    """Return a unique id for each name, source by source: the name itself, but `<source>/<name>` where an earlier
    one has it, then `<source>-2/<name>` and so on.
    """
    taken: set[str] = set()
    ids: list[list[str]] = []
    for source, names in listings:
        ids.append([])
        for name in names:
            chosen, n = name, 1
            while chosen in taken:
                chosen = f"{source}/{name}" if n == 1 else f"{source}-{n}/{name}"
                n += 1
            taken.add(chosen)
            ids[-1].append(chosen)
    return ids


def source_name(source: Source) -> str:
    """Return the short name of a source: of its folder or repository, of the folder that its file is in, or of its host."""
    if source.kind is SourceKind.URL:
        return source.location.split("/")[2]
    if source.kind is SourceKind.GIT:
        place = place_of(source.location)
        return show(PurePosixPath(place.path or place.url).name.removesuffix(".git")) or "root"
    path = PurePosixPath(source.location)
    return show((path if source.kind is SourceKind.FOLDER else path.parent).name) or "root"


_Parts = dict[str, tuple[tuple[int, int], ...]]


def _list(source: Source, max_bytes: int, trees: Mapping[Source, Tree]) -> tuple[list[Found], _Parts]:
    """Return what a source holds in canonical order, and for a triples file the byte ranges of each document."""
    match source.kind:
        case SourceKind.FOLDER:
            return list_folder(source, max_bytes), {}
        case SourceKind.FILE:
            return list_file(source, max_bytes), {}
        case SourceKind.URL:
            return [Found(source.location.split("://", 1)[1], source.location)], {}
        case SourceKind.GIT:
            if source not in trees:
                raise InvalidRequest("a repository can be indexed, but not be read as it is")
            return trees[source].found, {}
        case SourceKind.TRIPLES:
            return _list_triples(source, max_bytes)


def _list_triples(source: Source, max_bytes: int) -> tuple[list[Found], _Parts]:
    path = Path(source.location)
    faults: list[Found] = []
    ranges: dict[str, list[tuple[int, int]]] = {}
    try:
        with path.open("rb") as file:
            mtime_ns = os.fstat(file.fileno()).st_mtime_ns
            for line in scan(file):
                if line.fault:
                    faults.append(Found(f"{show(path.name)}#{line.number}", fault=line.fault))
                else:
                    ranges.setdefault(show(line.document), []).append((line.start, line.end))
    except OSError as error:
        raise NotFound(f"no such file: {source.location}") from error
    found = [_document(name, path, parts, mtime_ns, max_bytes) for name, parts in ranges.items()]
    order = sorted(found + faults, key=lambda entry: entry.name)
    return order, {name: tuple(parts) for name, parts in ranges.items()}


def _document(name: str, path: Path, parts: list[tuple[int, int]], mtime_ns: int, max_bytes: int) -> Found:
    size = sum(end - start for start, end in parts)
    fault = f"size rule: more than {max_bytes / (1 << 20):g} MiB" if size > max_bytes else ""
    return Found(name, escape(path.name), size, mtime_ns, fault)


def _repository(text: str) -> str:
    """Return the location of a repository. Raises InvalidRequest, NotFound, Refused."""
    place = place_of(text)
    if place.url:
        return replace(place, url=normalised(place.url)).location
    if not _storable(place.path):
        raise InvalidRequest("a source's path must be UTF-8 without control characters")
    if not os.path.isdir(place.path):
        raise NotFound(f"no such folder: {place.path}")
    return place.location


def _first_line(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.readline(MAX_BYTES).removeprefix(b"\xef\xbb\xbf")


def _storable(path: str) -> bool:
    return path.isprintable() and escape(path).replace("%25", "%") == path

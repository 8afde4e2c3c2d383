"""What names a repository at a revision: `git+https://host/path@revision#options`, `git+file:///path@revision`, `git+PATH`.

As pip writes it. Options are `generated=yes` (also generated and vendored files) and `submodules=yes`, joined by `&`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from pipeline.errors import InvalidRequest, Refused

PREFIX = "git+"
_FILE = "file://"
_REVISION = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_./+~^-]{0,199}")
_OPTIONS = frozenset({"generated", "submodules"})


@dataclass(frozen=True, slots=True)
class Place:
    """A repository: `url` is that of a server, or empty; then `path` is the absolute path of a checkout or bare repository.

    `generated` and `submodules`: those are taken in, too.
    """

    url: str = ""
    path: str = ""
    revision: str = "HEAD"
    generated: bool = False
    submodules: bool = False

    @property
    def location(self) -> str:
        """The one text that stands for it."""
        where = self.url or _FILE + quote(self.path)
        options = [f"{name}=yes" for name in sorted(_OPTIONS) if getattr(self, name)]
        return f"{PREFIX}{where}@{self.revision}" + ("#" + "&".join(options) if options else "")


def place_of(location: str) -> Place:
    """Return what a location names; a path becomes absolute. Nothing is looked at.

    Raises:
        InvalidRequest: a revision or option that is none.
        Refused: another scheme than `https`, `http` and `file`.
    """
    where, _, options = location.removeprefix(PREFIX).partition("#")
    scheme, separator, rest = where.partition("://")
    if not separator:
        path, revision = _parted(where)
        return Place("", os.path.abspath(os.path.expanduser(path)), revision, **_switches(options))
    scheme = scheme.lower()
    if scheme == "file":
        path, revision = _parted(rest)
        path = unquote(path)
        if not path.startswith("/"):
            raise InvalidRequest("git+file:// is followed by an absolute path, e.g. git+file:///srv/project@main")
        return Place("", os.path.normpath(path), revision, **_switches(options))
    if scheme not in ("http", "https"):
        raise Refused("scheme rule: a repository is reached by https, or it is a path on this machine")
    try:
        parts = urlsplit(f"{scheme}://{rest}")
    except ValueError as error:
        raise Refused("URL rule: not a URL") from error
    if parts.query:
        raise Refused("URL rule: the address of a repository has no query")
    path, revision = _parted(parts.path)
    return Place(urlunsplit((scheme, parts.netloc, path, "", "")), "", revision, **_switches(options))


def checked_revision(text: str) -> str:
    """Return the name of a branch, tag or commit. Raises InvalidRequest for what git could take for something else."""
    if not _REVISION.fullmatch(text) or ".." in text:
        raise InvalidRequest(f"not a revision: {text!r}; name a branch, a tag or a commit")
    return text


def _parted(path: str) -> tuple[str, str]:
    before, at, revision = path.rpartition("@")
    return (before, checked_revision(revision)) if at else (path, "HEAD")


def _switches(options: str) -> dict[str, bool]:
    given = parse_qsl(options, keep_blank_values=True) if options else []
    for name, value in given:
        if name not in _OPTIONS or value not in ("yes", "no"):
            raise InvalidRequest(
                f"not an option of a repository: {name}={value}; there are generated=yes, submodules=yes"
            )
    return {name: value == "yes" for name, value in given}

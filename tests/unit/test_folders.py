"""What is listed below a folder, and that neither listing nor reading leaves it."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipeline.errors import DocumentError, InvalidRequest, NotFound, Refused
from pipeline.ingest.folders import escape, list_folder, read_file, show
from schemas.documents import Source, SourceKind


def write(root: Path, *names: str, data: bytes = b"text") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def source(root: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Source:
    return Source(SourceKind.FOLDER, str(root), include, exclude)


def listed(root: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> list[str]:
    return [found.name for found in list_folder(source(root, include, exclude)) if not found.fault]


def faults(root: Path) -> dict[str, str]:
    return {found.name: found.fault for found in list_folder(source(root)) if found.fault}


def test_listing_is_recursive_sorted_and_leaves_out_hidden_files_and_version_control(tmp_path: Path) -> None:
    """Names are relative with slashes; what is hidden or not written by people is no document."""
    write(
        tmp_path,
        "b.md",
        "a/c.txt",
        "a/b/d.py",
        ".env",
        ".git/config",
        ".hidden/x.md",
        "node_modules/x/y.js",
        "CVS/Entries",
    )
    assert listed(tmp_path) == ["a/b/d.py", "a/c.txt", "b.md"]
    assert not faults(tmp_path)


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("*.md",), (), ["a.md", "docs/b.md"]),
        (("docs/**",), (), ["docs/b.md", "docs/c.txt"]),
        ((), ("docs/",), ["a.md"]),
        ((), ("*.md", "!a.md"), ["a.md", "docs/c.txt"]),
        (("*.md",), ("/a.md",), ["docs/b.md"]),
        ((".github/**",), (), [".github/w.yml"]),
    ],
)
def test_globs(tmp_path: Path, include: tuple[str, ...], exclude: tuple[str, ...], expected: list[str]) -> None:
    """In gitignore's syntax, relative to the root; a glob that names a dot reaches hidden files."""
    write(tmp_path, "a.md", "docs/b.md", "docs/c.txt", ".github/w.yml")
    assert listed(tmp_path, include, exclude) == expected


def test_gitignore_files_are_honoured_at_every_level(tmp_path: Path) -> None:
    """The innermost file decides; a folder that is ignored is not entered, so nothing in it comes back."""
    write(tmp_path, "keep.md", "x.log", "sub/x.log", "sub/keep.log", "out/a.md", "sub/deep/only.md", "sub/deep/no.md")
    write(tmp_path, ".gitignore", data=b"*.log\nout/\n")
    write(tmp_path, "sub/.gitignore", data=b"!keep.log\n/deep/no.md\n")
    write(tmp_path, "out/.gitignore", data=b"!*\n")
    assert listed(tmp_path) == ["keep.md", "sub/deep/only.md", "sub/keep.log"]


def test_a_line_of_a_gitignore_that_is_no_pattern_is_left_out(tmp_path: Path) -> None:
    """As git does it; the others count."""
    write(tmp_path, "a.md", "b.log")
    write(tmp_path, ".gitignore", data=b"!\n\\\n[z-a]\n" + b"*a" * 50 + b"\n\xff\xfe\n*.log\n")
    assert listed(tmp_path) == ["a.md"]
    with pytest.raises(InvalidRequest, match="not a glob"):
        listed(tmp_path, include=("[z-a]",))


def test_symlinks_never_leave_the_root_and_loops_end(tmp_path: Path) -> None:
    """A link is followed once, to what is below the root and not listed itself; the others are left out with the rule."""
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    write(outside, "secret.md")
    write(root, "a/x.md", ".store/y.md", ".store/deep/z.md", ".git/config")
    for name, target in {
        "out.md": "../outside/secret.md",
        "outdir": "../outside",
        "abs.md": str(outside / "secret.md"),
        "etc": "/etc",
        "loop": ".",
        "a/up": "..",
        "self": "self",
        "gone.md": "nowhere",
        "same.md": "a/x.md",
        "y.md": ".store/y.md",
        "store": ".store/deep",
        "again": ".store/deep",
        "config.md": ".git/config",
    }.items():
        (root / name).symlink_to(target)
    assert listed(root) == ["a/x.md", "again/z.md", "y.md"]
    said = faults(root)
    assert set(said) == {
        "out.md", "outdir", "abs.md", "etc", "loop", "a/up", "self", "gone.md", "same.md", "store", "config.md",
    }  # fmt: skip
    assert all(fault.startswith("symlink rule") for fault in said.values())
    assert all("leaves the root" in said[name] for name in ("out.md", "outdir", "abs.md", "etc"))


def test_what_is_no_readable_document_is_left_out_with_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipes, sockets, pictures, binaries and giants; an unknown suffix is read if it is text."""
    write(tmp_path, "photo.png", "song.mp3", data=b"x")
    write(tmp_path, "tool", "data.bin", data=b"\x7fELF\0\0\0\1\2\3\0\0")
    write(tmp_path, "LICENSE", "notes.xyz", "ok.svg")
    write(tmp_path, "empty")
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.md")
    with socket.socket(socket.AF_UNIX) as server, open(tmp_path / "big.md", "wb") as big:
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        server.bind("s.md")
        big.truncate((20 << 20) + 1)
    assert listed(tmp_path) == ["LICENSE", "empty", "notes.xyz", "ok.svg"]
    said = faults(tmp_path)
    assert {name for name, fault in said.items() if "file rule" in fault} == {"pipe.md", "s.md"}
    assert "size rule: more than 20 MiB" in said["big.md"]
    assert {name for name, fault in said.items() if "format" in fault} == {"photo.png", "song.mp3", "tool", "data.bin"}


@pytest.mark.parametrize(
    "name", ["new\nline.md", "caf\u00e9.md", "cafe\u0301.md", "a%41.md", "tab\t.md", "..md", "a\udcff.md", "x y.md"]
)
def test_any_name_can_be_listed_stored_and_read(tmp_path: Path, name: str) -> None:
    """Ids and places can be stored as UTF-8 without control characters, and lead back to the file."""
    write(tmp_path, f"sub/{name}" if not name.startswith(".") else f"sub/x{name}")
    (found,) = list_folder(source(tmp_path))
    for text in (found.name, found.locator):
        text.encode()
        assert text.isprintable()
    assert read_file(source(tmp_path), found.locator) == b"text"


def test_ids_are_nfc_and_show_odd_bytes() -> None:
    """Composed and decomposed names are one id; a per cent sign stays what it is in an id."""
    assert show("cafe\u0301/100%\n\udcff") == "caf\u00e9/100%%0A%FF"
    assert escape("100%\n\udcff") == "100%25%0A%FF"


@pytest.mark.parametrize(
    "locator", ["../x.md", "/etc/passwd", "a/../../x.md", "", "a//x.md", "%2e%2e/x.md", "a%2fx.md", "./x.md"]
)
def test_reading_never_leaves_the_root(tmp_path: Path, locator: str) -> None:
    """Whatever a stored place says."""
    write(tmp_path, "x.md", "root/a/x.md")
    with pytest.raises(Refused, match="path rule"):
        read_file(source(tmp_path / "root"), locator)


def test_what_was_exchanged_after_the_listing_is_not_followed(tmp_path: Path) -> None:
    """A file or a folder on the way that became a link, a pipe, a giant, or nothing."""
    write(tmp_path, "secret/x.md", "root/d/x.md", "root/file.md")
    root = tmp_path / "root"
    (root / "link.md").symlink_to("../secret/x.md")
    (root / "e").symlink_to("../secret")
    os.mkfifo(root / "pipe.md")
    for locator, rule in (("link.md", "symlink rule"), ("e/x.md", "symlink rule"), ("file.md/x.md", "symlink rule")):
        with pytest.raises(Refused, match=rule):
            read_file(source(root), locator)
    with pytest.raises(Refused, match="file rule"):
        read_file(source(root), "pipe.md")
    with pytest.raises(DocumentError, match="vanished"):
        read_file(source(root), "gone.md")
    with pytest.raises(DocumentError, match="size rule"):
        read_file(source(root), "d/x.md", max_bytes=3)


def test_a_folder_that_is_gone_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    """Else a corpus would lose its documents with an unmounted disk."""
    with pytest.raises(NotFound):
        list_folder(source(tmp_path / "gone"))


def test_a_folder_that_cannot_be_listed_is_an_error_not_an_empty_one() -> None:
    """Else a corpus would lose its documents with a permission."""
    with TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        closed = Path(place) / "closed"
        closed.mkdir(mode=0o000)
        with as_nobody(), pytest.raises(NotFound, match="cannot be listed"):
            list_folder(source(closed))


@contextmanager
def as_nobody() -> Generator[None, None, None]:
    """Take the super-user's rights away for a while; others have none that matter here."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)

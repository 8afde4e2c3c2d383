"""How Rust finds modules: `m` of `a.rs` is `a/m.rs` or `a/m/mod.rs`; a crate begins at `lib.rs`, `main.rs` or a test."""

from __future__ import annotations

from pipeline.codegraph.links import External, Files, Found, Missing, Place

_BUILTINS = """
    AsMut AsRef Box Clone Copy Default DoubleEndedIterator Drop Eq Err Extend Fn FnMut FnOnce From FromIterator Into
    IntoIterator Iterator None Ok Option Ord PartialEq PartialOrd Result Self Send Sized Some String Sync ToOwned ToString
    TryFrom TryInto Unpin Vec bool char drop f32 f64 i128 i16 i32 i64 i8 isize map str u128 u16 u32 u64 u8 usize
"""
_MANIFEST = "Cargo.toml"
_ROOTS = ("lib.rs", "main.rs")
_OWN_ROOTS = frozenset({"bin", "tests", "examples", "benches"})
"""Folders in which every file is a crate of its own."""


class RustRules:
    """See `Rules`."""

    languages = frozenset({"rust"})
    builtins: frozenset[str] = frozenset(_BUILTINS.split())
    receiver_by_name = False
    built_apart = False

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """See `Rules`. The text is a path: of the crate, of this module (`self`), of the one around it, of another crate."""
        first, *rest = module.removeprefix("::").split("::")
        at: str | None = importer
        if first == "crate":
            at = _root(importer, files)
        elif first == "super":
            at = _parent(importer, files)
            while rest and rest[0] == "super" and at is not None:
                at, rest = _parent(at, files), rest[1:]
        elif first != "self":
            at = _crate(first, importer, files)
            if at is None:
                return External(module.removeprefix("::").replace("::", "."))
        for name in rest:
            at = None if at is None else _child(at, name, files)
        return Missing(module) if at is None else Place(at, (at,))

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """See `Rules`."""
        found = _child(place.name, name, files) if place.files else None
        return None if found is None else Place(found, (found,))

    def around(self, importer: str, files: Files) -> Place | None:
        """See `Rules`."""
        return None


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return (f"{folder}/" if folder else ""), name


def _is_root(path: str, files: Files) -> bool:
    """Whether a crate begins with this file."""
    folder, name = _split(path)
    if name in _ROOTS or name == "build.rs":
        return True
    return folder.rstrip("/").rpartition("/")[2] in _OWN_ROOTS and not any(
        files.exists(folder + root) for root in _ROOTS
    )


def _inside(path: str, files: Files) -> str:
    """Return the folder in which the modules of a module lie."""
    folder, name = _split(path)
    if name == "mod.rs" or _is_root(path, files):
        return folder
    return f"{folder}{name.removesuffix('.rs')}/"


def _child(path: str, name: str, files: Files) -> str | None:
    folder = _inside(path, files)
    return next((each for each in (f"{folder}{name}.rs", f"{folder}{name}/mod.rs") if files.exists(each)), None)


def _parent(path: str, files: Files) -> str | None:
    """Return the file of the module around a module, or None for a crate's first."""
    folder, name = _split(path)
    if _is_root(path, files):
        return None
    if name == "mod.rs":
        folder = _split(folder.rstrip("/"))[0] if folder else ""
    for root in (*_ROOTS, "mod.rs"):
        if files.exists(folder + root) and folder + root != path:
            return folder + root
    beside = f"{folder.rstrip('/')}.rs"
    return beside if files.exists(beside) else None


def _root(path: str, files: Files) -> str | None:
    at: str | None = path
    while at is not None and not _is_root(at, files):
        at = _parent(at, files)
    return at


def _crate(name: str, importer: str, files: Files) -> str | None:
    """Return the first file of a library of the corpus. Where several have the name, the nearest around the importer is
    meant, else none.
    """
    manifests = [manifest for manifest in files.named(_MANIFEST) if files.package(manifest) == name]
    found = [manifest.removesuffix(_MANIFEST) for manifest in manifests]
    around = sorted((folder for folder in found if importer.startswith(folder)), key=len)
    folder = around[-1] if around else found[0] if len(found) == 1 else None
    root = f"{folder}src/lib.rs"
    return root if folder is not None and files.exists(root) else None

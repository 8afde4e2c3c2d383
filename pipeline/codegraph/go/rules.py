"""How Go finds packages: by the module paths that the corpus's `go.mod` files state; a package is the files of a folder."""

from __future__ import annotations

from pipeline.codegraph.links import External, Files, Found, Missing, Place

_BUILTINS = """
    any append bool byte cap clear close comparable complex complex128 complex64 copy delete error false float32 float64
    imag int int16 int32 int64 int8 iota len make max min new nil panic print println real recover rune string true uint
    uint16 uint32 uint64 uint8 uintptr
"""
_MANIFEST = "go.mod"
_TEST = "_test.go"


class GoRules:
    """See `Rules`."""

    languages = frozenset({"go"})
    builtins: frozenset[str] = frozenset(_BUILTINS.split())
    receiver_by_name = False

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """See `Rules`. The importer's own module comes first, then what it vendors, then other modules of the corpus."""
        for folder in _folders(importer):
            if (path := _module_path(f"{folder}{_MANIFEST}", files)) is not None:
                own = _within(module, path)
                if own is not None:
                    return _package(folder + own, files) or Missing(module)
                if vendored := _package(f"{folder}vendor/{module}/", files):
                    return vendored
        others = [
            (path, manifest)
            for manifest in files.named(_MANIFEST)
            if (path := _module_path(manifest, files)) and _within(module, path) is not None
        ]
        for path, manifest in sorted(others, key=lambda each: (-len(each[0]), each[1])):
            folder = manifest.removesuffix(_MANIFEST)
            if found := _package(folder + (_within(module, path) or ""), files):
                return found
        return External(module)

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """See `Rules`. A package has no packages below it."""
        return None

    def around(self, importer: str, files: Files) -> Place | None:
        """See `Rules`. The package: the other files of the folder; only a test sees what tests define."""
        folder = importer.rpartition("/")[0]
        folder = f"{folder}/" if folder else ""
        return Place(folder, _sources(folder, files, tests=importer.endswith(_TEST)))


def _folders(importer: str) -> list[str]:
    """Return the folders around a file, the nearest first, the corpus last."""
    parts = importer.split("/")[:-1]
    return ["".join(f"{part}/" for part in parts[:end]) for end in range(len(parts), -1, -1)]


def _module_path(manifest: str, files: Files) -> str | None:
    summary = files.summary(manifest) if files.exists(manifest) else None
    return (summary.package or None) if summary is not None else None


def _within(module: str, path: str) -> str | None:
    """Return the folder below a module's own that an import path means, or None where it means none of it."""
    if module == path:
        return ""
    return f"{module[len(path) + 1 :]}/" if module.startswith(f"{path}/") else None


def _package(folder: str, files: Files) -> Place | None:
    found = _sources(folder, files, tests=False)
    return Place(folder, found) if found else None


def _sources(folder: str, files: Files, *, tests: bool) -> tuple[str, ...]:
    return tuple(path for path in files.folder(folder) if path.endswith(".go") and (tests or not path.endswith(_TEST)))

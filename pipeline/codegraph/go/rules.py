"""How Go finds packages: by the module paths that the corpus's `go.mod` files state; a package is the files of a folder.

Which systems are built for is not known, so no build constraint is decided. A file's name excludes files for other systems
(`x_linux.go`, `x_windows.go`); of what several of the others define, a file means its own, else it is ambiguous. A package is
imported as all files that may be built with the importer.
"""

from __future__ import annotations

from pipeline.codegraph.links import External, Files, Found, Missing, Place

_BUILTINS = """
    any append bool byte cap clear close comparable complex complex128 complex64 copy delete error false float32 float64
    imag int int16 int32 int64 int8 iota len make max min new nil panic print println real recover rune string true uint
    uint16 uint32 uint64 uint8 uintptr
"""
_MANIFEST = "go.mod"
_TEST = "_test.go"
_SYSTEMS = """
    aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd openbsd plan9 solaris wasip1 windows zos
"""
_MACHINES = """
    386 amd64 amd64p32 arm arm64 arm64be armbe loong64 mips mips64 mips64le mips64p32 mips64p32le mipsle ppc ppc64 ppc64le
    riscv riscv64 s390 s390x sparc sparc64 wasm
"""
_OPERATING, _PROCESSORS = frozenset(_SYSTEMS.split()), frozenset(_MACHINES.split())
_ALSO = {"android": "linux", "illumos": "solaris", "ios": "darwin"}  # a system that takes the files of another one too


class GoRules:
    """See `Rules`."""

    languages = frozenset({"go"})
    builtins: frozenset[str] = frozenset(_BUILTINS.split())
    receiver_by_name = False
    built_apart = True

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """See `Rules`. The importer's own module comes first, then what it vendors, then other modules of the corpus."""
        for folder in _folders(importer):
            if (path := _module_path(f"{folder}{_MANIFEST}", files)) is not None:
                own = _within(module, path)
                if own is not None:
                    return _package(folder + own, files, importer) or Missing(module)
                if vendored := _package(f"{folder}vendor/{module}/", files, importer):
                    return vendored
        others = [
            (path, manifest)
            for manifest in files.named(_MANIFEST)
            if (path := _module_path(manifest, files)) and _within(module, path) is not None
        ]
        for path, manifest in sorted(others, key=lambda each: (-len(each[0]), each[1])):
            folder = manifest.removesuffix(_MANIFEST)
            if found := _package(folder + (_within(module, path) or ""), files, importer):
                return found
        return External(module)

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """See `Rules`. A package has no packages below it."""
        return None

    def around(self, importer: str, files: Files) -> Place | None:
        """See `Rules`. The package: the other files of the folder; only a test sees what tests define."""
        folder = importer.rpartition("/")[0]
        folder = f"{folder}/" if folder else ""
        package = files.package(importer)
        paths = _sources(folder, files, importer, tests=importer.endswith(_TEST))
        return Place(folder, tuple(path for path in paths if files.package(path) == package))


def _folders(importer: str) -> list[str]:
    """Return the folders around a file, the nearest first, the corpus last."""
    parts = importer.split("/")[:-1]
    return ["".join(f"{part}/" for part in parts[:end]) for end in range(len(parts), -1, -1)]


def _module_path(manifest: str, files: Files) -> str | None:
    return (files.package(manifest) or None) if files.exists(manifest) else None


def _within(module: str, path: str) -> str | None:
    """Return the folder below a module's own that an import path means, or None where it means none of it."""
    if module == path:
        return ""
    return f"{module[len(path) + 1 :]}/" if module.startswith(f"{path}/") else None


def _package(folder: str, files: Files, importer: str) -> Place | None:
    """Return the package that a folder holds for others: programs beside it (`main`, built by hand) are none of it."""
    found = _sources(folder, files, importer, tests=False)
    packages = {path: files.package(path) for path in found}
    if len(set(packages.values())) > 1:
        found = tuple(path for path in found if packages[path] != "main")
    return Place(folder, found) if found else None


def _sources(folder: str, files: Files, importer: str, *, tests: bool) -> tuple[str, ...]:
    """Return the files of a folder that may be built together with the importer, as far as their names tell."""
    mine = _systems(importer)
    return tuple(
        path
        for path in files.folder(folder)
        if path.endswith(".go") and (tests or not path.endswith(_TEST)) and _together(mine, _systems(path))
    )


def _systems(path: str) -> tuple[str, str]:
    """Return the operating system and the processor that a file's name asks for (`x_linux_amd64.go`); empty where it does not."""
    parts = path.rpartition("/")[2].removesuffix(".go").removesuffix("_test").split("_")[1:]
    last, before = parts[-1] if parts else "", parts[-2] if len(parts) > 1 else ""
    if last in _PROCESSORS:
        return before if before in _OPERATING else "", last
    return last if last in _OPERATING else "", ""


def _together(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return all(
        not mine or not its or mine == its or _ALSO.get(mine) == its or _ALSO.get(its) == mine
        for mine, its in zip(one, other, strict=True)
    )

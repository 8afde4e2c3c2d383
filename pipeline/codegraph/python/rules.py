"""How Python finds modules: as the interpreter would, with the folders of the corpus for its path."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.codegraph.links import External, Files, Found, Missing, Place

_BUILTINS = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup",
    "BlockingIOError", "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
    "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "DeprecationWarning", "EOFError", "Ellipsis", "EncodingWarning", "EnvironmentError", "Exception",
    "ExceptionGroup", "False", "FileExistsError", "FileNotFoundError", "FloatingPointError", "FutureWarning",
    "GeneratorExit", "IOError", "ImportError", "ImportWarning", "IndentationError", "IndexError",
    "InterruptedError", "IsADirectoryError", "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError",
    "ModuleNotFoundError", "NameError", "None", "NotADirectoryError", "NotImplemented", "NotImplementedError",
    "OSError", "OverflowError", "PendingDeprecationWarning", "PermissionError", "ProcessLookupError",
    "PythonFinalizationError", "RecursionError", "ReferenceError", "ResourceWarning", "RuntimeError",
    "RuntimeWarning", "StopAsyncIteration", "StopIteration", "SyntaxError", "SyntaxWarning", "SystemError",
    "SystemExit", "TabError", "TimeoutError", "True", "TypeError", "UnboundLocalError", "UnicodeDecodeError",
    "UnicodeEncodeError", "UnicodeError", "UnicodeTranslateError", "UnicodeWarning", "UserWarning",
    "ValueError", "Warning", "WindowsError", "ZeroDivisionError", "__build_class__", "__debug__", "__import__",
    "abs", "aiter", "all", "anext", "any", "ascii", "bin", "bool", "breakpoint", "bytearray", "bytes",
    "callable", "chr", "classmethod", "compile", "complex", "delattr", "dict", "dir", "divmod", "enumerate",
    "eval", "exec", "exit", "filter", "float", "format", "frozenset", "getattr", "globals", "hasattr", "hash",
    "help", "hex", "id", "input", "int", "isinstance", "issubclass", "iter", "len", "list", "locals", "map",
    "max", "memoryview", "min", "next", "object", "oct", "open", "ord", "pow", "print", "property", "quit",
    "range", "repr", "reversed", "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum",
    "super", "tuple", "type", "vars", "zip",
})  # fmt: skip
_SOURCES = ("src/", "lib/", "python/")


class PythonRules:
    """See `Rules`."""

    languages = frozenset({"python"})
    receiver_by_name = True
    built_apart = False
    builtins = _BUILTINS

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """See `Rules`. A package wins over a module of its name; a folder without `__init__.py` comes last."""
        parts = module.split(".") if module else []
        if level:
            folder = importer.rpartition("/")[0]
            for _ in range(level - 1):
                if not folder:
                    return Missing("." * level + module)
                folder = folder.rpartition("/")[0]
            found = _below(f"{folder}/" if folder else "", parts, files)
            return found or Missing("." * level + module)
        if not parts:
            return External(module)
        return _absolute(parts, importer, files)

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """See `Rules`."""
        folder = _folder(place)
        return _below(folder, [name], files) if folder is not None else None

    def around(self, importer: str, files: Files) -> Place | None:
        """See `Rules`."""
        return None


def _absolute(parts: list[str], importer: str, files: Files) -> Found:
    name = ".".join(parts)
    namespaces: list[Place] = []
    for root in _roots(importer, files):
        first = _one(root, parts[0], files)
        if first is not None:
            return _below(root, parts, files) or Missing(name)
        found = _below(root, parts, files)
        if found is not None:
            namespaces.append(found)
    if namespaces:
        return namespaces[0]
    kept = list(_in_sources(parts, importer, files))
    return kept[0] if len(kept) == 1 else External(name)


def _in_sources(parts: list[str], importer: str, files: Files) -> Iterator[Place]:
    """Yield what a project that keeps its sources in a folder of their own would find."""
    for root in _folders(importer):
        for source in _SOURCES:
            if _one(root + source, parts[0], files) is not None:
                found = _below(root + source, parts, files)
                if found is not None:
                    yield found


def _folders(importer: str) -> Iterator[str]:
    """Yield the folders around a file, the nearest first, the corpus last."""
    folder = importer
    while folder:
        folder = folder.rpartition("/")[0]
        yield f"{folder}/" if folder else ""


def _roots(importer: str, files: Files) -> Iterator[str]:
    """Yield the folders in which absolute imports are looked for: that around the file's package, then those around it."""
    inside = True
    for folder in _folders(importer):
        inside = inside and bool(folder) and files.exists(f"{folder}__init__.py")
        if not inside:
            yield folder


def _one(folder: str, name: str, files: Files) -> Place | None:
    for path in (f"{folder}{name}/__init__.py", f"{folder}{name}.py"):
        if files.exists(path):
            return Place(path, (path,))
    return None


def _below(folder: str, parts: list[str], files: Files) -> Place | None:
    """Return the module that these parts lead to from a folder."""
    if not parts:
        path = f"{folder}__init__.py"
        return Place(path, (path,)) if files.exists(path) else Place(folder, ())
    for name in parts[:-1]:
        found = _one(folder, name, files)
        if found is not None and not found.name.endswith("/__init__.py"):
            return None
        folder = f"{folder}{name}/"
    found = _one(folder, parts[-1], files)
    if found is None and files.folder(f"{folder}{parts[-1]}/"):
        found = Place(f"{folder}{parts[-1]}/", ())
    return found


def _folder(place: Place) -> str | None:
    """Return the folder in which a package's modules lie."""
    if not place.files:
        return place.name
    return place.name.removesuffix("__init__.py") if place.name.endswith("__init__.py") else None

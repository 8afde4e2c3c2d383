"""How Java finds classes: the class `a.b.C` lies in a file `…/a/b/C.java` whose package is `a.b`."""

from __future__ import annotations

from pipeline.codegraph.links import External, Files, Found, Missing, Place

_NAMES = """
    AbstractMethodError Appendable ArithmeticException ArrayIndexOutOfBoundsException ArrayStoreException AssertionError
    AutoCloseable Boolean BootstrapMethodError Byte CharSequence Character Class ClassCastException
    ClassCircularityError ClassFormatError ClassLoader ClassNotFoundException ClassValue CloneNotSupportedException
    Cloneable Comparable Compiler Deprecated Double Enum EnumConstantNotPresentException Error Exception
    ExceptionInInitializerError Float FunctionalInterface IO IllegalAccessError IllegalAccessException
    IllegalArgumentException IllegalCallerException IllegalMonitorStateException IllegalStateException
    IllegalThreadStateException IncompatibleClassChangeError IndexOutOfBoundsException InheritableThreadLocal
    InstantiationError InstantiationException Integer InternalError InterruptedException Iterable
    LayerInstantiationException LinkageError Long MatchException Math Module ModuleLayer NegativeArraySizeException
    NoClassDefFoundError NoSuchFieldError NoSuchFieldException NoSuchMethodError NoSuchMethodException
    NullPointerException Number NumberFormatException Object OutOfMemoryError Override Package Process
    ProcessBuilder ProcessHandle Readable Record ReflectiveOperationException Runnable Runtime RuntimeException
    RuntimePermission SafeVarargs ScopedValue SecurityException SecurityManager Short StackOverflowError
    StackTraceElement StackWalker StrictMath String StringBuffer StringBuilder StringIndexOutOfBoundsException
    StringTemplate SuppressWarnings System Thread ThreadDeath ThreadGroup ThreadLocal Throwable
    TypeNotPresentException UnknownError UnsatisfiedLinkError UnsupportedClassVersionError
    UnsupportedOperationException VerifyError VirtualMachineError Void WrongThreadException
"""
OF_LANGUAGE = frozenset(_NAMES.split())
"""The classes of `java.lang`."""

_TESTS = ("src/test/", "src/main/")


class JavaRules:
    """See `Rules`."""

    languages = frozenset({"java"})
    builtins: frozenset[str] = OF_LANGUAGE
    receiver_by_name = False
    built_apart = False

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """See `Rules`. `a.b.C` is the file of a class, `a.b.*` a package; what is in neither belongs to others.

        Where several files hold the class, the one beside the importer's own sources is meant, else none.
        """
        package, _, name = module.rpartition(".")
        if name == "*":
            return self._package(package, importer, files)
        suffix = f"/{package.replace('.', '/')}/{name}.java" if package else f"/{name}.java"
        found = [path for path in files.named(f"{name}.java") if f"/{path}".endswith(suffix)]
        if len(found) > 1:
            root = _root(importer, files)
            found = [path for path in found if path == root + suffix[1:]] or found
        own = [path for path in found if files.package(path) == package]
        if len(own) == 1:
            return Place(own[0], (own[0],))
        return Missing(module) if own else External(package or name)

    def _package(self, package: str, importer: str, files: Files) -> Found:
        root, folder = _root(importer, files), f"{package.replace('.', '/')}/"
        for place in dict.fromkeys((root + folder, root.replace(*_TESTS) + folder)):
            if found := _sources(place, files):
                return Place(place, found)
        return External(package)

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """See `Rules`. A file has no modules below it."""
        return None

    def around(self, importer: str, files: Files) -> Place | None:
        """See `Rules`. The package: the file's folder, and for a test the same folder of what it tests."""
        folder = f"{importer.rpartition('/')[0]}/".removeprefix("/")
        places = dict.fromkeys((folder, folder.replace(*_TESTS)))
        return Place(folder, tuple(path for place in places for path in _sources(place, files)))


def _root(importer: str, files: Files) -> str:
    """Return the folder under which the importer's package begins; the importer's own where its path says otherwise."""
    folder = f"{importer.rpartition('/')[0]}/".removeprefix("/")
    said = files.package(importer)
    package = f"{said.replace('.', '/')}/" if said else ""
    return folder.removesuffix(package) if f"/{folder}".endswith(f"/{package}") else folder


def _sources(folder: str, files: Files) -> tuple[str, ...]:
    return tuple(path for path in files.folder(folder) if path.endswith(".java"))

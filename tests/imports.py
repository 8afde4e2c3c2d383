"""Import every module from wherever they are installed; the wheel job runs it without extras.

Adapters may need an extra, the shipped test suites need pytest; all else must import without either.
"""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from importlib.resources import files
from pkgutil import walk_packages

OPTIONAL = ("pipeline.adapters.", "pipeline.testing.", "worker.mcp.")
PACKAGES = ("pipeline", "schemas", "worker")


def main() -> None:
    """Import all and fail at the first that needs an extra, or when the wheel lacks its data files."""
    roots = [import_module(name) for name in PACKAGES]
    found = [module.name for root in roots for module in walk_packages(root.__path__, f"{root.__name__}.", _later)]
    for name in found:
        if not name.startswith(OPTIONAL) and not name.endswith("__main__"):
            import_module(name)
    assert (files("pipeline") / "sql" / "migrations" / "0001_core.sql").is_file(), "the wheel has no SQL"
    assert (files("worker") / "gateway/explorer/static/index.html").is_file(), "the wheel has no explorer"
    assert all((files(name) / "py.typed").is_file() for name in PACKAGES), "the wheel has no py.typed"
    sys.stdout.write(f"sapwood {metadata.version('sapwood')}: {len(found)} modules found, all that must import do\n")


def _later(_name: str) -> None:
    """Leave a package that will not import to `main`: it may be an optional one."""


if __name__ == "__main__":
    main()

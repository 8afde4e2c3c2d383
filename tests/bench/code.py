"""Code graphs of real code: the standard library of this interpreter and a package beside it; then edits of one file."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
from anyio import to_thread

from schemas.query import QueryRequest, Strategy
from schemas.settings import CorpusSettings, GraphIndexingSettings
from tests.bench.bench import Bench, Figure, asked, finished, load, opened, percentile
from tests.bench.indexing import stages
from worker.app import Sapwood

SETTINGS = CorpusSettings(graph_indexing=GraphIndexingSettings(build_code_graph=True))
PACKAGES = ("sympy", "scipy", "torch", "django", "numpy", "pandas", "mypy", "openai", "hypothesis")
"""The first one that is installed is the large package."""

EDITED = {"a leaf": "this.py", "a much-imported one": "os.py"}
"""What is edited of the standard library: nobody imports the first."""

LINKED = "select count(distinct document_id) from code_link where corpus_id = $1 and born = $2"


async def run(bench: Bench) -> None:
    """Measure."""
    async with opened(bench, lease_seconds=30) as app:  # other work on the machine is not what is measured
        library = await to_thread.run_sync(standard_library, bench)
        await throughput(bench, app, "stdlib", "the standard library", library)
        for what, file in EDITED.items():
            if await to_thread.run_sync((library / file).is_file):
                await edits(bench, app, library, what, file, 2 if bench.quick else 5)
        if package := await to_thread.run_sync(large_package, bench):
            await throughput(bench, app, "package", package.name, package)


def standard_library(bench: Bench) -> Path:
    """Copy the interpreter's own modules (with `quick` without their tests), so that they can be edited."""
    ignored = ["site-packages", "dist-packages", "__pycache__", *(("test", "tests", "idlelib") if bench.quick else ())]
    target = bench.scratch / "stdlib"
    return shutil.copytree(sysconfig.get_path("stdlib"), target, ignore=_python_alone(ignored))


def large_package(bench: Bench) -> Path | None:
    """Copy the first of the packages that is there."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            [source, *_] = spec.submodule_search_locations
            return shutil.copytree(source, bench.scratch / "site" / name, ignore=_python_alone(["__pycache__"]))
    return None


def _python_alone(ignored: list[str]) -> Callable[[str, list[str]], list[str]]:
    def left_out(folder: str, names: list[str]) -> list[str]:
        return [n for n in names if n in ignored or not ((Path(folder) / n).is_dir() or n.endswith((".py", ".pyi")))]

    return left_out


async def throughput(bench: Bench, app: Sapwood, corpus: str, what: str, folder: Path) -> None:
    """Index a folder from nothing."""
    async with memory() as most:
        started = time.perf_counter()
        run = finished(await app.work((await app.index(corpus, [str(folder)], settings=SETTINGS)).run_id))
        seconds = time.perf_counter() - started
    report = await app.index_summary(run)
    outcomes, _ = await app.accounting(run.run_id)
    files = sum(report["code"]["files"].values())
    parts = stages(await app.events(run.run_id))
    shown = f"{files / seconds:.1f} files/s ({files:,} in {seconds:.1f} s: {parts})"
    bench.add(Figure(f"index {what}", shown, note=f"{counted(outcomes)}; load {load()}"))
    counts = report["counts"]
    nodes = f"{counts['entities']:,} nodes, {counts['relations']:,} edges, {counts['chunks']:,} chunks"
    bench.add(Figure(f"graph of {what}", nodes, note=counted(report["code"]["edges"])))
    bench.add(
        Figure(f"unresolved in {what}", counted(report["code"]["unresolved"]), note=counted(report["code"]["unread"]))
    )
    bench.add(
        Figure(f"memory for {what}", f"{most['parent']:.0f} MiB, its children {most['children']:.0f} MiB at most")
    )


async def edits(bench: Bench, app: Sapwood, library: Path, what: str, file: str, tries: int) -> None:
    """Append to a file what does not matter to others, then what may: seconds until a question finds it."""
    corpus = (await app.corpus("stdlib")).corpus_id
    for kind, text in (("a comment", "# {word}\n"), ("a function", "def {word}():\n    return getattr\n")):
        seconds, linked, parts = list[float](), 0, ""
        for number in range(tries):
            word = f"zz{kind[2:]}{file[:2]}{number}"
            path = library / file
            await to_thread.run_sync(append, path, text.format(word=word))
            started = time.perf_counter()
            run = finished(await app.work((await app.index("stdlib", [str(library)])).run_id))
            found = await app.query(
                "stdlib", QueryRequest(text=word, strategy=Strategy.KEYWORD, cache=False, deadline=60)
            )
            seconds.append(time.perf_counter() - started)
            if not any(word in hit.text for hit in found.hits):
                raise RuntimeError(f"{word} is not found in generation {found.generation}")
            linked = await asked(app, LINKED, corpus, found.generation)
            parts = stages(await app.events(run.run_id))
            await anyio.sleep(0.1)
        shown = f"p50 {percentile(seconds, 50):.2f} s, worst {max(seconds):.2f} s"
        note = f"n {tries}; rows of {linked} files written; the last: {parts}; load {load()}"
        bench.add(Figure(f"{kind} in {what} ({file}) visible", shown, note=note))


def append(path: Path, text: str) -> None:
    """Add to the end of a file."""
    path.write_text(path.read_text("utf-8") + text, "utf-8")


def counted(counts: dict[str, Any]) -> str:
    """Return counts in words, the largest first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1])) or "none"


@asynccontextmanager
async def memory() -> AsyncGenerator[dict[str, float], None]:
    """Measure the most MiB that this process and its children (not the servers) hold meanwhile."""
    most = {"parent": 0.0, "children": 0.0}

    async def watch() -> None:
        while True:
            parent, children = await to_thread.run_sync(held)
            most["parent"] = max(most["parent"], parent)
            most["children"] = max(most["children"], children)
            await anyio.sleep(0.25)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        yield most
        group.cancel_scope.cancel()


def held() -> tuple[float, float]:
    """Return the MiB of this process, and those of all its Python children together."""
    process = psutil.Process()
    children = 0
    for child in process.children(recursive=True):
        try:
            if "pipeline.ingest.child" in child.cmdline():
                children += child.memory_info().rss
        except psutil.Error:
            continue
    return process.memory_info().rss / 2**20, children / 2**20

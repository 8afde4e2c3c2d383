"""The budgets of the design, measured on real servers: `python tests/bench/run.py [--only NAME …] [--quick] [--json]`.

Each family runs in a process of its own, over servers with an empty home that are stopped at the end. A figure over its
budget is no failure of the benchmark, unless `--strict` says so; one that cannot be measured is.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import anyio
from rich.console import Console
from rich.table import Table

from tests.bench.bench import Bench, Figure, load, scratch

FAMILIES = {
    "events": "first event of a run; a killed worker is replaced",
    "large": "100,000 chunks: queries, memory, an edit",
    "stopping": "deadlines, also with PostgreSQL frozen; cancellation",
    "indexing": "throughput, and a change of one file",
    "code": "code graphs of the standard library and a large package; edits of one file",
    "models": "model-bound work: busy slots, a kill, two workers",
    "generations": "readers under promotions",
    "stores": "one corpus in PostgreSQL and in Neo4j",
    "match": "queryKnowledgeGraph, p50 / p95",
    "quality": "recall of every ranking on question sets",
    "codegraph": "call graphs against the truth; the standard library",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="smaller corpora and samples")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a figure is over its budget")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.only[0], args.quick)
        return 0
    figures: list[Figure] = []
    broken = False
    for name in args.only:
        before = load()
        found = measured(name, args.quick)
        broken |= not found
        found = found or [Figure(name, "could not be measured; see above")]
        titled = Figure(f"{name}: {FAMILIES[name]}", "", note=f"load {before} before, {load()} after")
        figures += [titled, *found]
    if args.json:
        print("\n".join(json.dumps({**asdict(one), "over": one.over}) for one in figures))
    else:
        show(figures)
    return int(broken or (args.strict and any(one.over for one in figures)))


def measured(name: str, quick: bool) -> list[Figure]:
    """Run one family in a process of its own; nothing if it broke down."""
    print(name, file=sys.stderr, flush=True)
    command = [sys.executable, __file__, "--inside", "--only", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return (
        [Figure(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode == 0
        else []
    )


def inside(name: str, quick: bool) -> None:
    """Measure one family and print its figures as JSON."""
    module = importlib.import_module(f"tests.bench.{name}")
    with scratch() as folder:
        bench = Bench(folder, quick)
        anyio.run(module.run, bench)
    print("\n".join(json.dumps(asdict(one)) for one in bench.figures))


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    table = Table(box=None, pad_edge=False)
    for column in ("what", "figure", "budget", "", "note"):
        table.add_column(column, overflow="fold")
    for one in figures:
        if not one.shown:
            table.add_section()
        verdict = "" if one.limit is None else "over" if one.over else "ok"
        table.add_row(one.what, one.shown, one.budget, verdict, one.note, style=None if one.shown else "bold")
    Console(width=None if sys.stdout.isatty() else 170).print(table)


if __name__ == "__main__":
    sys.exit(main())

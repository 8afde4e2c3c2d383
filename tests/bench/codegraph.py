"""Call graphs against the true ones of small Python programs: `python tests/bench/codegraph.py [FOLDER]`.

The programs are PyCG's micro-benchmark. Its convention differs from ours in names only: modules are dotted, a lambda is a
node, and a class that is called is no node, but its `__init__` is.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rich.console import Console
from rich.table import Table

from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.rules import RULES
from tests.bench.bench import SHARED, Bench, Figure, peak_mib
from tests.code_corpus import call_edges, corpus

PROGRAMS = SHARED / "pycg"
PRECISION, RECALL = 0.99, 0.85

Calls = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Edges that the truth has, that we have, and that both have."""

    true: Calls
    ours: Calls

    @property
    def wrong(self) -> Calls:
        return self.ours - self.true

    @property
    def missed(self) -> Calls:
        return self.true - self.ours


@dataclass(slots=True)
class Score:
    """Counts over programs."""

    programs: int = 0
    true: int = 0
    ours: int = 0
    right: int = 0
    exact: int = field(default=0)

    def add(self, outcome: Outcome) -> None:
        """Count one more program."""
        self.programs += 1
        self.true += len(outcome.true)
        self.ours += len(outcome.ours)
        self.right += len(outcome.true & outcome.ours)
        self.exact += outcome.true == outcome.ours

    @property
    def precision(self) -> float:
        return self.right / self.ours if self.ours else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.true if self.true else 1.0


def texts_in(folder: Path) -> dict[str, str]:
    """Return the Python files below a folder by their paths in it."""
    return {str(path.relative_to(folder)): path.read_text("utf-8", "replace") for path in sorted(folder.rglob("*.py"))}


def outcome(program: Path) -> Outcome:
    """Compare one program's call graph with the true one."""
    truth = json.loads((program / "callgraph.json").read_text("utf-8"))
    true = frozenset([(source, target) for source, targets in truth.items() for target in targets])
    return Outcome(true, call_edges(texts_in(program)))


def programs(folder: Path) -> list[Path]:
    """Return the folders of all programs."""
    return sorted(path.parent for path in folder.rglob("callgraph.json"))


def scores(folder: Path) -> dict[str, Score]:
    """Return the scores by category, and of all together under an empty name."""
    found: dict[str, Score] = {}
    for program in programs(folder):
        compared = outcome(program)
        for name in (str(program.parent.relative_to(folder)), ""):
            found.setdefault(name, Score()).add(compared)
    return dict(sorted(found.items(), key=lambda each: (not each[0], each[0])))


def table(found: dict[str, Score]) -> Table:
    """Return the scores as a table."""
    shown = Table(box=None, pad_edge=False)
    for column in ("category", "programs", "exact", "true", "found", "right", "precision", "recall"):
        shown.add_column(column, justify="left" if column == "category" else "right")
    for name, score in found.items():
        if not name:
            shown.add_section()
        counts = (score.programs, score.exact, score.true, score.ours, score.right)
        rates = (f"{score.precision:.1%}", f"{score.recall:.1%}")
        shown.add_row(name or "all", *map(str, counts), *rates)
    return shown


async def run(bench: Bench) -> None:
    """Measure the family `codegraph`."""
    if not PROGRAMS.is_dir():
        raise FileNotFoundError(PROGRAMS)
    for name, score in scores(PROGRAMS).items():
        label = name or "all categories"
        for what, rate, least in (("precision", score.precision, PRECISION), ("recall", score.recall, RECALL)):
            bench.add(Figure(f"{label}: {what}", f"{rate:.1%}", 100 * rate, 100 * least, "%", at_least=True))
    for figure in linked_library(150 if bench.quick else None):
        bench.add(figure)


def linked_library(most: int | None = None) -> list[Figure]:
    """Read and link the standard library of this interpreter, or its first files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts][:most]
    texts = {str(path.relative_to(library)): path.read_text("utf-8", "replace") for path in paths}
    begun = time.process_time()
    files = corpus(texts)
    reading = time.process_time() - begun
    linker = Linker(files, RULES)
    kinds: Counter[str] = Counter()
    unresolved: Counter[str] = Counter()
    slowest = 0.0
    begun = time.process_time()
    for path in sorted(texts):
        before = time.process_time()
        linked = linker.link(path)
        slowest = max(slowest, time.process_time() - before)
        kinds.update([edge.kind for edge in linked.edges if edge.scope != "builtin"])
        unresolved.update(linked.unresolved)
    linking = time.process_time() - begun
    return [
        Figure("standard library: files", f"{len(texts):,}"),
        Figure("read, on one core", f"{len(texts) / reading:.0f} files/s"),
        Figure("link, on one core", f"{len(texts) / linking:.0f} files/s", note=f"slowest file {slowest:.1f} s"),
        Figure("edges", ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())),
        Figure("unresolved", ", ".join(f"{count:,} {reason}" for reason, count in unresolved.most_common())),
        Figure("peak memory", f"{peak_mib():.0f} MiB", note="of this process, texts and summaries in it"),
    ]


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PROGRAMS
    found = scores(folder)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table(found))
    for program in programs(folder):
        compared = outcome(program)
        name = program.relative_to(folder)
        for sign, pairs in (("+", compared.wrong), ("-", compared.missed)):
            for source, target in sorted(pairs):
                console.print(f"{sign} {name}: {source} -> {target}", markup=False, highlight=False)
    total = found[""]
    return int(total.precision < PRECISION or total.recall < RECALL)


if __name__ == "__main__":
    sys.exit(main())

"""A query expander without a model, for benchmarks only: it leaves words of the question out, and adds none.

It measures what the fusion of several searches does by itself. What other words are worth, only a model's can show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.deadline import Deadline

MODEL = "bench/leaves-words-out"

_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been by did do does for from had has have how if in into is it its of on or that the their "
        "them they this to was were what when where which who whom whose why will with would",
    )
)
_NAME = re.compile(r"\b[A-Z][\w'’-]*(?:\s+(?:of|the|and|de|van|von)?\s*[A-Z][\w'’-]*)*")


class LeavesWordsOut:
    """Offers the question without its everyday words, its names alone, and the rest without the names."""

    fingerprint = "bench/leaves-words-out/1"

    def serves(self, model: str) -> bool:
        """See `QueryExpander`."""
        return model == MODEL

    async def expand(self, model: str, question: str, most: int, deadline: Deadline) -> Sequence[str]:
        """See `QueryExpander`."""
        words = re.findall(r"[\w'’-]+", question)
        content = [word for word in words if word.lower() not in _COMMON]
        first, _, rest = question.partition(" ")
        named = f"{first.lower()} {rest}"  # the capital of the first word says nothing
        names = _NAME.findall(named)
        left = [word for word in content if not any(word in name for name in names)]
        return [text for text in (" ".join(content), " ".join(names), " ".join(left)) if text][:most]


def install(folder: Path) -> None:
    """Write what makes it an installed provider for whoever has this folder on the path."""
    info = folder / "sapwood_bench_expander-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sapwood-bench-expander\nVersion: 1\n")
    point = "leaves-words-out = tests.bench.offline_expander:LeavesWordsOut"
    (info / "entry_points.txt").write_text(f"[sapwood.query_expansion]\n{point}\n")

"""What the benchmarks share: one figure beside its budget, a server of one's own, texts, percentiles and memory."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import DEVNULL
from typing import Any

import anyio
import httpx
import numpy as np
import orjson
import psutil
from anyio import to_thread
from anyio.abc import Process

from pipeline.deadline import Deadline
from schemas.runs import RunInfo, RunState
from schemas.settings import CorpusSettings, ExtractionSettings
from worker import embedded
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SAPWOOD_SHARED") or ROOT.parent / "shared") / "data"
LISTENING = """
select count(*) from pg_stat_activity where application_name = 'sapwood' and query ilike 'listen %sapwood_stop%'
"""
PAID = CorpusSettings(extraction=ExtractionSettings(provider="openai", model="stub"))
WORDS = 90
"""Words of a synthetic passage, about as many as a real one of MuSiQue has."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. `value` is what `limit` bounds: from above, or from below where `at_least`; both may be None."""

    what: str
    shown: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    at_least: bool = False
    note: str = ""

    @property
    def over(self) -> bool:
        """Whether the budget is not kept."""
        if self.value is None or self.limit is None:
            return False
        return self.value < self.limit if self.at_least else self.value > self.limit

    @property
    def budget(self) -> str:
        """The budget in words."""
        return "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}".rstrip()


@dataclass(slots=True)
class Bench:
    """What a benchmark is given, and where it puts its figures. `scratch` is a folder of its own."""

    scratch: Path
    quick: bool = False
    figures: list[Figure] = field(default_factory=list[Figure])

    def add(self, figure: Figure) -> None:
        """Keep a figure, and say it at once: the whole takes minutes."""
        self.figures.append(figure)
        print(f"  {figure.what}: {figure.shown}", file=sys.stderr, flush=True)

    def times(self, what: str, seconds: Sequence[float], limits: dict[int, float | None], note: str = "") -> None:
        """Keep percentiles of a sample, in milliseconds, each with its limit in milliseconds."""
        for percent, limit in limits.items():
            value = percentile(seconds, percent) * 1000
            self.add(
                Figure(f"{what}, p{percent}", f"{value:.1f} ms", value, limit, "ms", note=f"n {len(seconds)}; {note}")
            )


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(np.asarray(values), percent))


@contextmanager
def scratch() -> Generator[Path]:
    """A folder that goes away, with the servers of every home in it."""
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as name:
        folder = Path(name)
        try:
            yield folder
        finally:
            for home in folder.glob("home*"):
                embedded.down(home)


def home_of(bench: Bench) -> Path:
    """The home that all benchmarks but the most brutal share; its servers run as they do at a user's."""
    return bench.scratch / "home"


@asynccontextmanager
async def opened(bench: Bench, **settings: object) -> AsyncGenerator[Sapwood]:
    """The application over the servers of this benchmark."""
    async with open_sapwood(WorkerSettings.model_validate({"home": home_of(bench), **settings})) as app:
        yield app


async def indexed(app: Sapwood, corpus: str, source: Path | None, settings: CorpusSettings | None = None) -> RunInfo:
    """Index in this process and insist on success."""
    run = await app.index(corpus, [str(source)] if source else [], settings=settings)
    return finished(await app.work(run.run_id))


@asynccontextmanager
async def worker(bench: Bench, **settings: object) -> AsyncGenerator[Process]:
    """A worker process over the same servers; killed at the end if it still runs."""
    given = {f"SAPWOOD_{name.upper()}": str(value) for name, value in {"home": home_of(bench), **settings}.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAPWOOD_")}
    command = [sys.executable, "-m", "worker", "worker"]
    process = await anyio.open_process(command, cwd=ROOT, env={**kept, **given}, stdout=DEVNULL, stderr=DEVNULL)
    try:
        yield process
    finally:
        with anyio.move_on_after(5, shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()


async def ready(app: Sapwood, workers: int) -> None:
    """Wait until so many worker processes are at work: each listens for requests to stop."""
    with anyio.fail_after(60):
        while await asked(app, LISTENING) < workers:  # noqa: ASYNC110 - a server tells nobody
            await anyio.sleep(0.05)


async def asked(app: Sapwood, query: str, *values: object) -> Any:
    """One value from the database."""
    async with app.services.pool.connection(Deadline.after(60)) as tx:
        return await tx.fetchval(query, *values)


@asynccontextmanager
async def stub(seconds: float) -> AsyncGenerator[Stub]:
    """A model in a process of its own that takes so long for a call, however many there are."""
    command = [sys.executable, str(Path(__file__).with_name("stub.py")), str(seconds)]
    process = await anyio.open_process(command, cwd=ROOT, stderr=None)
    try:
        assert process.stdout is not None
        yield Stub((await process.stdout.receive()).decode().strip())
    finally:
        with anyio.move_on_after(5, shield=True):
            process.kill()
            await process.wait()


@dataclass(frozen=True, slots=True)
class Stub:
    """Where the model is, and what it has seen."""

    url: str

    @property
    def settings(self) -> dict[str, object]:
        """What a process must know to use it."""
        return {"openai_base_url": self.url, "openai_api_key": "stub", "openai_model": "stub"}

    async def seen(self) -> dict[str, int]:
        """Counts of `calls` so far, and of calls under way (`busy`)."""
        async with httpx.AsyncClient() as client:
            counts: dict[str, int] = (await client.post(f"{self.url}/seen")).json()
            return counts


def finished(info: RunInfo) -> RunInfo:
    """The run, if it was completed."""
    if info.state is not RunState.COMPLETED:
        raise RuntimeError(f"the run ended as {info.state}: {info.error}")
    return info


def texts(count: int) -> list[tuple[str, str]]:
    """(title, text) of different passages: those of MuSiQue where they are there, then seeded synthetic ones."""
    path = SHARED / "musique" / "passages.json"
    found = [(row["title"], row["text"]) for row in orjson.loads(path.read_bytes())] if path.is_file() else []
    base, made = len(found), found[:count]
    for number in range(len(made), count):
        made.append(_variant(found[number % base], number) if base else _synthetic(number))
    return made


def _variant(passage: tuple[str, str], number: int) -> tuple[str, str]:
    """The same sentences in another order under another name: as much work as a new passage."""
    title, text = passage
    sentences = text.split(". ")
    Random(number).shuffle(sentences)
    return f"{title} {number}", f"{'. '.join(sentences)}. It is number {number}."


def _synthetic(number: int) -> tuple[str, str]:
    """Sentences about made-up people and places, a few of them shared with other passages."""
    random = Random(number)
    people = [f"{a} {b}" for a in ("Ada", "Bo", "Cleo", "Dan") for b in ("Reyes", "Novak", "Lund", "Okafor", "Sato")]
    places = [f"{a}{b}" for a in ("Nor", "Wes", "Sut", "Elm", "Har") for b in ("ton", "ford", "burg", "mouth")]
    sentences: list[str] = []
    while sum(len(one.split()) for one in sentences) < WORDS:
        one, two = random.sample(people, 2)
        sentences.append(
            f"{one} was born in {random.choice(places)} in {random.randrange(1850, 2000)} and worked with {two} "
            f"on harbour number {random.randrange(10_000)}."
        )
    return f"Harbour {number}", " ".join(sentences)


def write_folder(folder: Path, passages: Sequence[tuple[str, str]]) -> Path:
    """Write each passage as a Markdown file under its title."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (title, text) in enumerate(passages):
        (folder / f"{number:05}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    return folder


async def folder_of(bench: Bench, name: str, count: int) -> Path:
    """A folder with so many passages."""
    return await to_thread.run_sync(lambda: write_folder(bench.scratch / name, texts(count)))


def rss_mib() -> float:
    """MiB that this process holds now."""
    return psutil.Process().memory_info().rss / 2**20


def peak_mib() -> float:
    """The most MiB that this process ever held; Linux counts in KiB, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def load() -> str:
    """The load average of the last minute, and over how many cores."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"

"""`make demo`: the whole way from a folder to a resumed stream of retrieval events, with real servers and a real worker.

The demo works on copies, so no file of the user's is touched; with DIR, that folder is read where it is.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from rich.markup import escape

from schemas.events import Completed, Event
from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.runs import RunInfo, RunState
from worker import embedded, show
from worker.app import Sapwood, open_sapwood
from worker.settings import load

CORPUS = "demo"
PROJECT = Path(__file__).resolve().parent.parent
QUESTIONS = (
    "Which room is the laser cutter in, and who may use it?",
    "Which team looks after the workshop, and whom does it report to?",
    "What happens to a run when its worker is killed?",
)
NOTE = "notes/opening.md"
BEFORE = "# Opening\n\nThe demo desk opens at nine.\n"
AFTER = "# Opening\n\nThe demo desk opens at half past ten, and the Night Desk is part of the Workshop Team.\n"


async def demo(folder: str | None) -> None:
    """Run the demo; raises if any part of it is not as it should be."""
    settings = load()
    work = await anyio.to_thread.run_sync(prepare, settings.home / "demo", folder)
    sources = [str(work / "notes"), *([folder] if folder else [str(work / "handbook"), str(work / "project")])]
    async with open_sapwood(settings) as sapwood, worker_process(), anyio.create_task_group() as group:
        heading("1. Enqueue an index job; a worker process does the work")
        first = await index(sapwood, sources)
        await show_state(sapwood, first)
        heading("2. Ask; each answer is a stream of events")
        for question in QUESTIONS if folder is None else await questions(sapwood):
            await ask(sapwood, question)
        heading("3. Leave a stream and resume it")
        await leave_and_resume(sapwood)
        heading("4. Edit one file; only that file is processed")
        await anyio.Path(work / NOTE).write_text(AFTER)
        second = await index(sapwood, [])
        outcomes, _ = await sapwood.accounting(second.run_id)
        if outcomes.get("indexed") != 1:
            raise SystemExit(f"expected one indexed document, not {outcomes}")
        await ask(sapwood, "When does the demo desk open?", "half past ten")
        heading(f"Done: generation {second.generation} is current. `sapwood down` stops the servers.")
        group.cancel_scope.cancel()


def prepare(work: Path, folder: str | None) -> Path:
    """Lay out fresh copies of what is indexed and edited."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "notes").mkdir(parents=True)
    (work / NOTE).write_text(BEFORE)
    if folder is None:
        shutil.copytree(PROJECT / "examples" / "handbook", work / "handbook")
        (work / "project").mkdir()
        for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            shutil.copy(PROJECT / page, work / "project" / page)
    return work


@asynccontextmanager
async def worker_process() -> AsyncGenerator[Process, None]:
    """Run `sapwood worker` beside us, and end it with SIGTERM."""
    async with await anyio.open_process(
        [sys.executable, "-m", "worker", "worker"], stdout=None, stderr=None
    ) as process:
        try:
            yield process
        finally:
            with anyio.move_on_after(20, shield=True):
                process.terminate()
                await process.wait()


async def index(sapwood: Sapwood, sources: list[str]) -> RunInfo:
    """Enqueue an index job and show its events until it is done."""
    run = await sapwood.index(CORPUS, sources)
    with anyio.fail_after(600):
        async for event in sapwood.subscribe(run.run_id):
            show.event(event, json=False)
    run = await sapwood.info(run.run_id)
    if run.state is not RunState.COMPLETED:
        raise SystemExit(f"the index run {run.state}: {run.error}")
    return run


async def show_state(sapwood: Sapwood, run: RunInfo) -> None:
    """Print the accounting of every document, the generation and its largest communities."""
    outcomes, notable = await sapwood.accounting(run.run_id)
    show.index_report(run, outcomes, notable, await sapwood.index_summary(run), json=False)
    for community in await sapwood.communities(CORPUS, limit=5):
        show.out.print(f"  community {community['size']:>4}  {escape(community['summary'])}")


async def questions(sapwood: Sapwood) -> list[str]:
    """Make three questions out of the largest communities of an unknown folder."""
    found = await sapwood.communities(CORPUS, limit=3)
    return [f"What is {community['name']}?" for community in found] or ["What is this about?"]


async def ask(sapwood: Sapwood, question: str, expected: str = "") -> QueryResult:
    """Enqueue a question, follow its events, print the answer."""
    show.out.print(f"\n[bold]? {escape(question)}[/bold]")
    run = await sapwood.enqueue_query(CORPUS, request(question))
    result: QueryResult | None = None
    async for event in sapwood.subscribe(run.run_id):
        result = event.body.result if isinstance(event.body, Completed) else result
    if result is None or not any(expected in hit.text for hit in result.hits):
        raise SystemExit(f"no answer to {question!r}")
    show.answer(result, json=False)
    return result


async def leave_and_resume(sapwood: Sapwood) -> None:
    """Read two events, leave, come back for the rest: none is lost and none comes twice."""
    run = await sapwood.enqueue_query(CORPUS, request(QUESTIONS[0]).model_copy(update={"cache": False}))
    seen: list[Event] = []
    stream = sapwood.subscribe(run.run_id)
    async for event in stream:
        seen.append(event)
        if len(seen) == 2:
            break
    await stream.aclose()
    show.out.print(f"left after event {seen[-1].seq}; resuming there")
    async for event in sapwood.subscribe(run.run_id, after=seen[-1].seq):
        seen.append(event)
        show.event(event, json=False)
    if [event.seq for event in seen] != list(range(1, len(seen) + 1)) or not seen[-1].terminal:
        raise SystemExit("the resumed stream is not whole")


def request(question: str) -> QueryRequest:
    """Return the request behind a demo question."""
    return QueryRequest(text=question, strategy=Strategy.HYBRID, top_k=3, deadline=10.0)


def heading(text: str) -> None:
    """Print a heading."""
    show.out.rule(escape(text), align="left")


def main() -> None:
    """Run the demo, then stop the embedded servers if the demo started them."""
    settings = load()
    running = not settings.embedded or all(server.running for server in embedded.status(settings.home))
    try:
        anyio.run(demo, sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else None)
    finally:
        if not running:
            embedded.down(settings.home)


if __name__ == "__main__":
    main()

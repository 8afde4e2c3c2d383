"""Incremental equals rebuild, from a folder to its export: after any edits it is that of a fresh index, byte for byte."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from schemas.runs import RunState
from schemas.settings import ChunkSettings, CorpusSettings, GraphIndexingSettings
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

SENTENCES = (
    "The Workshop Team is part of the Workshop Department.",
    "The Safety Team is part of the Workshop Department.",
    "The Safety Team is not part of the Members Department.",
    "The Harbour Tool Library is located in Bristol.",
    "The Harbour Tool Library was founded by the Redcliffe Association.",
    "The Redcliffe Association is based in Bristol.",
    "The Laser Cutter was made by Trotec. Trotec is based in Marchtrenk.",
    "The Table Saw was made by SawStop.",
    "The Workshop Team runs the Wood Shop.",
    "The Workshop Coordinator leads the Workshop Department.",
    "# Machines",
    "## Care of the Laser Cutter",
    "- a list\n- of two things",
    "| a | table |\n| --- | --- |\n| Bristol | Marchtrenk |",
    "Größe, naïveté, 東京 and a ﬁne ligature; a zero\u200bwidth space.",
    "Nothing that anybody could extract stands here, but the words still count. " * 6,
)
NAMES = ("a.md", "b.txt", "teams/a.md", "teams/c.rst", "d.md", "rooms/e.txt")
SMALL = CorpusSettings(chunk=ChunkSettings(max_chars=220), graph_indexing=GraphIndexingSettings(max_cluster_size=4))
Folder = dict[str, str]
Edit = tuple[str, str, str]

texts = st.lists(st.sampled_from(SENTENCES), max_size=7).map("\n\n".join)
names = st.sampled_from(NAMES)
edits = st.one_of(
    st.tuples(st.just("write"), names, texts),
    st.tuples(st.just("append"), names, st.sampled_from(SENTENCES)),
    st.tuples(st.just("delete"), names, st.just("")),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("copy"), names, names),
    st.tuples(st.just("restore"), names, st.just("")),
)
histories = st.lists(st.lists(edits, min_size=1, max_size=3), min_size=1, max_size=4)
FIRST: Folder = {"a.md": "\n\n".join(SENTENCES[:6]), "b.txt": "\n\n".join(SENTENCES[4:11]), "teams/a.md": SENTENCES[6]}

_numbers = itertools.count(1)


def edited(folder: Folder, first: Folder, edit: Edit) -> Folder:
    """Return the folder after one edit; an edit of a file that is not there changes nothing."""
    kind, name, value = edit
    if kind == "write":
        return {**folder, name: value}
    if kind == "restore":
        return {**folder, name: first[name]} if name in first else folder
    if name not in folder:
        return folder
    if kind == "append":
        return {**folder, name: f"{folder[name]}\n\n{value}"}
    if kind == "copy":
        return {**folder, value: folder[name]}
    rest = {other: text for other, text in folder.items() if other != name}
    return {**rest, value: folder[name]} if kind == "rename" else rest


def lay_out(root: Path, folder: Folder) -> None:
    """Make the disk hold exactly this; a file whose text stays is not touched."""
    root.mkdir(parents=True, exist_ok=True)
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if path.relative_to(root).as_posix() not in folder:
            path.unlink()
    for name, text in folder.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


async def body(app: Sapwood, corpus: str) -> list[str]:
    """The export without its header."""
    return [line async for line in app.export(corpus)][1:]


async def index(app: Sapwood, corpus: str, root: Path) -> None:
    """Sync the corpus with the folder."""
    run = await app.index(corpus, [str(root)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error


async def check(app: Sapwood, root: Path, first: Folder, rounds: Sequence[Sequence[Edit]]) -> None:
    """Index after every round in one corpus; compare with a corpus that saw only the last state, somewhere else."""
    grown, fresh = f"grown-{next(_numbers)}", f"fresh-{next(_numbers)}"
    for corpus in (grown, fresh):
        await app.create_corpus(corpus, SMALL)
    folder = first
    await to_thread.run_sync(lay_out, root / "grown", folder)
    await index(app, grown, root / "grown")
    for some in rounds:
        for edit in some:
            folder = edited(folder, first, edit)
        await to_thread.run_sync(lay_out, root / "grown", folder)
        await index(app, grown, root / "grown")
    await to_thread.run_sync(lay_out, root / "fresh" / "elsewhere", folder)
    await index(app, fresh, root / "fresh" / "elsewhere")
    assert await body(app, grown) == await body(app, fresh)
    for corpus in (grown, fresh):
        await app.delete_corpus(corpus)


@settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(first=st.dictionaries(names, texts, min_size=1), rounds=histories)
@example(first=FIRST, rounds=[[("delete", "a.md", "")], [("restore", "a.md", "")]])
@example(first=FIRST, rounds=[[("rename", "a.md", "d.md")], [("rename", "d.md", "a.md"), ("copy", "a.md", "b.txt")]])
@example(first=FIRST, rounds=[[("delete", name, "") for name in FIRST], [("write", "a.md", SENTENCES[0])]])
@example(first={"a.md": ""}, rounds=[[("append", "a.md", SENTENCES[3])], [("write", "a.md", "")]])
async def test_the_history_of_a_folder_leaves_no_trace_in_its_export(
    tmp_path: Path, database: str, redis_url: str, first: Folder, rounds: list[list[Edit]]
) -> None:
    """Random edits, deletions, renames, copies and re-additions, indexed as they come, equal one index of their result."""
    root = tmp_path / str(next(_numbers))
    configuration = WorkerSettings(home=root, database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(configuration) as app:
        await check(app, root, first, rounds)
    await to_thread.run_sync(shutil.rmtree, root)

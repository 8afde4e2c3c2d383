"""Documents are prepared in children: limits hold, a killer costs one document, nothing is left behind."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from pipeline.errors import DocumentError, ParserKilled
from pipeline.ingest.prepare import (
    GROUP_BYTES,
    GROUP_DOCUMENTS,
    Limits,
    Prepared,
    Preparer,
    Request,
    groups,
    open_preparer,
    prepare,
    unpickled,
)
from schemas.documents import Item, Source, SourceKind
from schemas.settings import ChunkSettings

HOSTILE = """
import os
from pipeline.ingest.stages import prepare as real

hoarded = []

def prepare(requests):
    for request in requests:
        if b"HOG" in request.data:
            held = []
            while True:
                held.append(bytearray(1 << 24))
        if b"HOARD" in request.data:
            hoarded.append(bytearray(180 << 20))
        if b"NEEDY" in request.data:
            bytearray(150 << 20)
        if b"LOOP" in request.data:
            while True:
                pass
        if b"ABORT" in request.data:
            os.abort()
        if b"PRINT" in request.data:
            print("this is no answer" * 1000)
        if b"WRITE" in request.data:
            with open(request.data.decode().split()[1], "w") as file:
                file.write("x")
        if b"SECRET" in request.data:
            assert "CANARY" not in os.environ
    return real(requests)
"""


def request(name: str, data: bytes, extract: bool = False) -> Request:
    source = Source(SourceKind.FOLDER, "/somewhere")
    return Request(Item(name, source, name), data, "", ChunkSettings(), extract)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a task that does to its process what a parser might."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield "hostile:prepare"


def alive(pids: list[int]) -> list[int]:
    """Return those of these processes that are there, zombies included."""

    def is_alive(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    return [pid for pid in pids if is_alive(pid)]


async def test_children_do_what_a_call_would() -> None:
    """Whatever the grouping, the results are those of the pure function, in order."""
    requests = [request(f"{n}.md", f"# Title {n}\n\nText number {n}.".encode()) for n in range(50)]
    requests[7] = request("7.bin", bytes(range(256)))
    async with open_preparer(Limits(processes=2)) as preparer:
        await preparer.warm()
        results = await preparer.prepare(requests)
        assert await preparer.prepare([]) == []
        pids = preparer.processes()
    assert len(pids) == 2
    assert not alive(pids)
    expected = prepare(requests)
    assert [r for r in results if isinstance(r, Prepared)] == [r for r in expected if isinstance(r, Prepared)]
    assert [str(r) for r in results if isinstance(r, DocumentError)] == ["a binary format that is not read"]


@pytest.mark.parametrize(
    ("documents", "shares", "sizes"),
    [
        (0, 4, []),
        (5, 4, [5]),
        (64, 4, [16] * 4),
        (125, 4, [32, 32, 32, 29]),
        (256, 4, [64] * 4),
        (256, 32, [16] * 16),
        (600, 4, [64] * 9 + [24]),
    ],
)
def test_groups_are_large_where_every_child_has_two(documents: int, shares: int, sizes: list[int]) -> None:
    """They are the documents in order, none left out; few documents, or many children, make small ones."""
    requests = [request(f"{n}.md", b"text") for n in range(documents)]
    found = list(groups(requests, shares))
    assert [last - first for first, last in found] == sizes
    assert [n for first, last in found for n in range(first, last)] == list(range(documents))
    assert all(size <= GROUP_DOCUMENTS[1] for size in sizes)


def test_a_group_of_large_documents_is_bounded_by_its_bytes() -> None:
    """One that is larger by itself is alone."""
    half = b"x" * (GROUP_BYTES // 2)
    requests = [request(f"{n}.md", data) for n, data in enumerate([half, half, half, half * 3, b"x"])]
    assert list(groups(requests, 4)) == [(0, 2), (2, 3), (3, 4), (4, 5)]


async def test_as_many_children_as_are_expected_to_be_needed_load_beforehand() -> None:
    """One for a few documents, all for many, never more than all; the requests that follow are theirs."""

    async def running(preparer: Preparer, children: int) -> list[int]:
        with anyio.fail_after(20):
            while len(preparer.processes()) < children:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.01)
        return preparer.processes()

    async with open_preparer(Limits(processes=3)) as preparer:
        preparer.expect(1)
        preparer.expect(GROUP_DOCUMENTS[0])
        first = await running(preparer, 1)
        assert len(first) == 1
        preparer.expect(GROUP_DOCUMENTS[0] + 1)
        every = await running(preparer, 3)
        preparer.expect(1000)
        await anyio.sleep(0.05)
        assert preparer.processes() == every
        requests = [request(f"{n}.md", b"text") for n in range(200)]
        assert len(await preparer.prepare(requests)) == 200
        assert preparer.processes() == every
        assert set(first) < set(every)


@pytest.mark.parametrize("pause", [0, 0.001, 0.003, 0.01, 0.03])
async def test_nothing_is_left_of_children_that_nobody_came_to_need(pause: float) -> None:
    """Wherever in their start the end comes."""

    def children() -> set[int]:
        return {child.pid for child in psutil.Process().children()}

    before = await anyio.to_thread.run_sync(children)
    async with open_preparer(Limits(processes=2)) as preparer:
        preparer.expect(1000)
        await anyio.sleep(pause)
    with anyio.fail_after(5):
        while await anyio.to_thread.run_sync(children) - before:  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.01)


async def test_a_killer_costs_one_document(hostile: str) -> None:
    """Memory without end, a loop without end and a crash: one failure each, and all others of the group are prepared."""
    data = {"a": b"fine", "hog": b"HOG", "loop": b"LOOP", "abort": b"ABORT", "print": b"PRINT", "z": b"fine"}
    async with open_preparer(Limits(processes=2, memory=300 << 20, seconds=1.5), hostile) as preparer:
        results = await preparer.prepare([request(f"{name}.txt", text) for name, text in data.items()])
        pids = preparer.processes()
    killed = [name for name, result in zip(data, results, strict=True) if isinstance(result, ParserKilled)]
    assert killed == ["hog", "loop", "abort"]
    assert [r.title for r in results if isinstance(r, Prepared)] == ["a", "print", "z"]
    assert not alive(pids)


async def test_a_document_is_not_failed_for_what_others_left_in_its_child(hostile: str) -> None:
    """What one keeps is missing to the next ones in that process: they are tried in one of their own."""
    async with open_preparer(Limits(processes=1, memory=300 << 20, seconds=20), hostile) as preparer:
        await preparer.prepare([request("h.txt", b"HOARD")])
        [full] = preparer.processes()
        (result,) = await preparer.prepare([request("n.txt", b"NEEDY")])
        assert isinstance(result, Prepared)
        assert not alive([full])
        assert len(preparer.processes()) == 1


async def test_a_child_has_no_secrets_and_writes_nothing(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is not handed on, and no file can be filled."""
    monkeypatch.setenv("CANARY", "secret")
    target = tmp_path / "written"
    async with open_preparer(Limits(processes=1, seconds=10), hostile) as preparer:
        secret, write = await preparer.prepare(
            [request("s.txt", b"SECRET"), request("w.txt", f"WRITE {target}".encode())]
        )
    assert isinstance(secret, Prepared)
    assert isinstance(write, ParserKilled)
    assert not await anyio.Path(target).exists() or await anyio.Path(target).read_bytes() == b""


async def test_cancelling_the_caller_kills_the_child(hostile: str) -> None:
    """Nothing goes on working for nobody; the pool is usable afterwards."""
    async with open_preparer(Limits(processes=1, seconds=60), hostile) as preparer:
        await preparer.warm()
        pids = preparer.processes()
        with anyio.move_on_after(0.2) as scope:
            await preparer.prepare([request("l.txt", b"LOOP")])
        assert scope.cancelled_caught
        assert not alive(pids)
        (result,) = await preparer.prepare([request("a.txt", b"fine")])
        assert isinstance(result, Prepared)


async def test_a_deeply_nested_page_cannot_hurt() -> None:
    """A real document that breaks recursive parsers is read, or is one failure."""
    bomb = b"<div>" * 200_000 + b"x"
    async with open_preparer(Limits(processes=1, seconds=20)) as preparer:
        page, after = await preparer.prepare([request("x.html", bomb), request("a.txt", b"fine")])
    assert isinstance(page, Prepared)
    assert isinstance(after, Prepared)


async def test_the_passages_of_the_evaluation_are_one_chunk_each_or_cut(shared_data: Path) -> None:
    """Real texts: every one is prepared, and its chunks hold all of its words."""
    passages = json.loads(await anyio.Path(shared_data / "musique" / "passages.json").read_text("utf-8"))[:300]
    requests = [request(f"{n}.txt", passage["text"].encode()) for n, passage in enumerate(passages)]
    async with open_preparer() as preparer:
        results = await preparer.prepare(requests)
    for passage, result in zip(passages, results, strict=True):
        assert isinstance(result, Prepared)
        assert " ".join(one.text for one in result.chunks).split() == passage["text"].split()


def test_an_answer_calls_nothing_but_what_is_expected_of_it() -> None:
    """On every version of Python, whichever way that pickles an enum."""
    made = prepare([request("a.md", b"# Bath\n\nBath is located in Somerset.", extract=True)])
    names = [text for _, text, _ in pickletools.genops(pickle.dumps(made)) if isinstance(text, str)]
    assert not {"builtins", "getattr", "copyreg"} & set(names)
    assert unpickled(pickle.dumps(made)) == made


def test_a_child_that_was_taken_over_cannot_run_code_here() -> None:
    """A pickle can name any function; only our own values are made of an answer."""
    for hostile in (os.system, eval, subprocess.Popen):
        with pytest.raises(ParserKilled):
            unpickled(pickle.dumps([hostile]))
    with pytest.raises(ParserKilled):
        unpickled(b"no pickle at all")

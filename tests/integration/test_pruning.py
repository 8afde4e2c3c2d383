"""The cache of fetched repositories stays small, and nothing goes that somebody reads or may yet read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.ingest.fetched import key_of
from pipeline.ingest.pruning import FULL, GRACE, Held, Pruner, _remove, held_in, surplus
from pipeline.ingest.repositories import Repositories
from pipeline.ingest.sources import list_all
from pipeline.tenancy import acting_for, apart
from schemas.documents import Source, SourceKind
from tests.git_world import commit, git, repository, served
from worker.app import open_sapwood
from worker.settings import WorkerSettings

NOW = 1e9


def held(name: str, size: int, age: float, *owners: str) -> Held:
    return Held(name, size, NOW - age, frozenset([name, *owners]))


def gone(*among: Held, most: int = 0, named: str = "abcs", busy: str = "") -> list[str]:
    return [one.name for one in surplus(among, most, set(named), set(busy), NOW)]


def test_what_nobody_names_goes_first_then_the_least_used() -> None:
    """As few as it takes; a submodule stays as long as a source has it."""
    a, b, c = held("a", 5, 3000), held("b", 5, 2000), held("c", 5, 4000)
    assert gone(a, b, c, most=15) == []
    assert gone(a, b, c, most=14) == ["c"]
    assert gone(a, b, c, most=5) == ["c", "a"]
    assert gone(a, b, c, most=0) == ["c", "a", "b"]
    assert gone(a, b, c, held("x", 5, 700), most=15) == ["x"]
    assert gone(a, b, c, held("x", 5, 700), most=14) == ["x", "c"]
    assert gone(held("x", 5, 9000, "a"), held("y", 5, 9000, "z"), most=99) == ["y"]


def test_one_that_is_full_begins_anew() -> None:
    """Before it takes no further commit; not while a run may read it."""
    full = held("a", FULL + 1, 3000)
    assert gone(held("b", FULL, 3000), full, most=10 * FULL) == ["a"]
    assert gone(full, most=10 * FULL, busy="a") == []


def test_what_a_run_may_read_or_was_just_used_stays() -> None:
    """Even where that is too much."""
    a, b, sub = held("a", 5, 3000), held("b", 5, GRACE - 1), held("s", 5, 9000, "a")
    assert gone(a, b, sub) == ["s", "a"]
    assert gone(a, b, sub, busy="a") == []
    assert gone(held("x", 5, GRACE - 1), held("y", 5, GRACE + 1)) == ["y"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """Serve the repositories `r` and `q`."""
    for name in ("r", "q"):
        repository(tmp_path / "srv" / name, {"a.py": f"{name} = 1\n"})
    with served(tmp_path / "srv") as (port, _):
        yield port


def source(port: int, name: str, options: str = "") -> Source:
    return Source(SourceKind.GIT, f"git+http://127.0.0.1:{port}/{name}/.git@main{options}")


def url(port: int, name: str) -> str:
    return f"http://127.0.0.1:{port}/{name}/.git"


def reaching(home: Path, port: int) -> Repositories:
    return Repositories(home, rule=lambda _: "", ports={"http": port})


def age(home: Path, seconds: float = GRACE + 60) -> None:
    """Have everything last used that long ago."""
    for one in held_in(home):
        os.utime(home / f"{one.name}.git" / "HEAD", (time.time() - seconds,) * 2)


async def there(home: Path) -> list[str]:
    return sorted(await to_thread.run_sync(os.listdir, home))


async def prune(home: Path, named: dict[str, bool], most: int = 1 << 30) -> int:
    async def ask(deadline: Deadline) -> dict[str, bool]:
        assert not acting_for(), "the cache is not one tenant's"
        return named

    await to_thread.run_sync(age, home)
    with apart("acme"):
        return await Pruner(home, most, ask).prune(Deadline.after(30))


async def test_what_is_removed_is_fetched_again(tmp_path: Path, server: int) -> None:
    """Nothing is left of it, locks included; the other one is not touched."""
    home = tmp_path / "home"
    repositories = reaching(home, server)
    listing = await list_all([source(server, "r"), source(server, "q")], repositories, Deadline.after(60))
    (size,) = [one.size for one in await to_thread.run_sync(held_in, home) if one.name == key_of(url(server, "q"))]
    named = {source(server, "r").location: False}
    assert await prune(home, named) == size > 0
    key = key_of(url(server, "r"))
    assert await there(home) == sorted([f"{key}.git", f"{key}.lock", "reader.git"])
    assert await prune(home, named) == 0
    read = await repositories.read(listing.items, Deadline.after(60))
    assert sorted(one for one in read if isinstance(one, bytes)) == [b"q = 1\n", b"r = 1\n"]
    assert await prune(home, dict.fromkeys((source(server, name).location for name in "rq"), False), most=0) > 0
    assert await there(home) == ["reader.git"]


async def test_what_is_being_read_stays(tmp_path: Path, server: int) -> None:
    """However long ago that began; once it ends, it may go. A removal that was cut short is finished by the next."""
    home = tmp_path / "home"
    fetched = reaching(home, server)._fetched
    async with fetched.commit(url(server, "r"), "main", Deadline.after(60)) as (objects, revision):
        assert await prune(home, {}) == 0
        async with fetched.commit(url(server, "r"), revision, Deadline.after(60)):
            assert await prune(home, {}) == 0
        assert await objects.tree(revision, Deadline.after(60))
    await to_thread.run_sync((home / "abc.gone-1" / "objects").mkdir, 0o777, True)
    assert await prune(home, {}) > 0
    assert await there(home) == ["reader.git"]


async def test_readers_and_removals_at_once(tmp_path: Path, server: int) -> None:
    """Every reader finds the document, whatever is removed between and beside."""
    home = tmp_path / "home"
    removal = anyio.Event()

    async def read() -> None:
        for _ in range(3):
            repositories = reaching(home, server)
            listing = await list_all([source(server, "r")], repositories, Deadline.after(60))
            await removal.wait()  # all wait, so that nobody reads: then it can be removed
            assert await repositories.read(listing.items, Deadline.after(60)) == [b"r = 1\n"]

    async def remove() -> None:
        nonlocal removal
        while True:
            if await to_thread.run_sync(lambda: _remove(home, held_in(home))):
                removal.set()
                removal = anyio.Event()

    async with anyio.create_task_group() as group:
        group.start_soon(remove)
        async with anyio.create_task_group() as readers:
            for _ in range(3):
                readers.start_soon(read)
        group.cancel_scope.cancel()


async def test_a_submodule_stays_with_its_source(tmp_path: Path, server: int) -> None:
    """By the repository that it is a part of, also where that is a folder of this machine."""
    home, top = tmp_path / "home", tmp_path / "srv/r"

    def nest() -> None:
        inner = git(tmp_path / "srv/q", "rev-parse", "HEAD")
        (top / ".gitmodules").write_text(f'[submodule "q"]\n\tpath = q\n\turl = {url(server, "q")}\n')
        git(top, "update-index", "--add", "--cacheinfo", f"160000,{inner},q")
        git(top, "add", ".gitmodules")
        git(top, "commit", "--quiet", "--message", "m")

    await to_thread.run_sync(nest)
    for outer in (
        source(server, "r", "#submodules=yes"),
        Source(SourceKind.GIT, f"git+file://{top}@main#submodules=yes"),
    ):
        listing = await list_all([outer], reaching(home, server), Deadline.after(60))
        assert [item.document_id for item in listing.items] == ["a.py", "q/a.py"]
        assert await prune(home, {outer.location: False}) == 0
        assert await prune(home, {}) > 0


async def test_a_corpus_names_its_repositories_and_its_open_runs_hold_them(
    database: str, redis_url: str, tmp_path: Path
) -> None:
    """The remembered ones, and those of a run that waits; once it has ended and the corpus is gone, nobody names them."""
    tops = [tmp_path / name for name in ("one", "two")]
    for top in tops:
        await to_thread.run_sync(repository, top, {"a.md": "# A\n\nText.\n"})
    one, two = (f"git+file://{top}@main" for top in tops)
    settings = WorkerSettings(home=tmp_path / "home", database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(settings) as app:

        async def named() -> dict[str, bool]:
            return await app.services.corpora.repositories(Deadline.after(10))

        first = await app.index("c", [one])
        assert await named() == {one: True}
        await app.work(first.run_id)
        assert await named() == {one: False}
        second = await app.index("c", [two])
        assert await named() == {one: True, two: True}
        await app.work(second.run_id)
        await to_thread.run_sync(commit, tops[1], {})
        again = await app.index("c")
        assert await named() == {two: True}
        await app.work(again.run_id)
        await app.delete_corpus("c")
        assert await named() == {}

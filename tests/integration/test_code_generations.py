"""The rows of code graphs through the life of generations: what an edit costs, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from pipeline.adapters.postgres_corpora import PostgresCorpora
from pipeline.adapters.postgres_inspection import PostgresEvidence, PostgresInspector
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.adapters.postgres_snapshot import PostgresSnapshots
from pipeline.codegraph.conversation import ORDER
from pipeline.codegraph.files import all_of, read_of
from pipeline.codegraph.linker import answers
from pipeline.codegraph.linker.asked import BODY, FOUND, MEMBER, NAME
from pipeline.codegraph.linking import Changed, Linkers, Talk, touched_reads
from pipeline.codegraph.reading import read
from pipeline.codegraph.rules import linker
from pipeline.codegraph.summary import encode
from pipeline.deadline import Deadline
from pipeline.errors import ParserKilled, RunFailed
from pipeline.graphs.parts import GraphRef
from pipeline.ingest.prepare import Limits, open_preparer
from pipeline.retrieval.snapshot import Snapshot
from tests.code_generations import CodeCorpus
from tests.property.test_snapshot import flat

BASE = "def shared():\n    return 1\n"
FILES = {
    "base.py": BASE,
    **{f"user{n}.py": "from base import shared\n\n\ndef use():\n    shared()\n" for n in range(6)},
    "leaf.py": "def alone():\n    return 1\n",
}
TABLES = ("code_link", "code_read", "code_handed")
ROWS = " union all ".join(f"select '{table}' as name, count(*) from {table} where corpus_id = $1" for table in TABLES)


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


async def held(corpus: CodeCorpus) -> dict[str, int]:
    """Count the rows of links, the dead ones too."""
    async with corpus.pool.connection(Deadline.after(10)) as tx:
        return {row["name"]: row["count"] for row in await tx.fetch(ROWS, corpus.corpus)}


async def changed(corpus: CodeCorpus, files: Mapping[str, str]) -> list[str]:
    """Publish a change and return which files were linked, in order."""
    await corpus.sync(files)
    return sorted(set(corpus.linked))


async def test_an_edit_links_what_it_touches(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    assert await changed(corpus, FILES) == sorted(FILES)
    leaf = {**FILES, "leaf.py": "def alone():\n    return 2\n\n\ndef another():\n    alone()\n"}
    assert await changed(corpus, leaf) == ["leaf.py"]
    written = {path for path, *_ in corpus.difference.edges}
    assert written == {"leaf.py"}
    moved = {**leaf, "base.py": f"# a comment\n\n\n{BASE}"}
    assert await changed(corpus, moved) == ["base.py"]
    renamed = {**moved, "base.py": BASE.replace("shared", "common")}
    assert await changed(corpus, renamed) == ["base.py", *(f"user{n}.py" for n in range(6))]
    assert not await corpus.edges("calls") - {("leaf.py::another", "calls", "leaf.py::alone")}
    assert await changed(corpus, renamed | {"new.py": "x = 1\n"}) == ["new.py"]


async def test_an_edit_of_a_hub_links_those_who_asked_for_what_it_changed(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    hub = "class Base:\n    def go(self):\n        return 1\n\n\ndef shared():\n    return Base()\n\n\ndef other():\n    pass\n"
    users = {
        f"user{n}.py": "from base import Base, shared\n\n\nclass Own(Base):\n    pass\n\n\nshared()\n" for n in range(6)
    }
    files = {
        "base.py": hub,
        **users,
        "calls.py": "import base\n\nbase.shared().go()\n",
        "new.py": "import base\n\nbase.new()\n",
    }
    await corpus.sync(files)
    files["base.py"] = hub = f"{hub}\n\ndef new():\n    return shared()\n"
    assert await changed(corpus, files) == ["base.py", "new.py"]
    files["base.py"] = hub = hub.replace("    def go", "    def more(self):\n        return self.go()\n\n    def go")
    assert await changed(corpus, files) == ["base.py"]
    files["base.py"] = hub = hub.replace("    return Base()", "    return other()")
    assert await changed(corpus, files) == ["base.py", "calls.py"]
    files["base.py"] = hub.replace("class Base:", "class Base(Exception):")
    assert await changed(corpus, files) == ["base.py", *sorted(users)]


async def test_what_looked_for_a_file_sees_it_come_and_go(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    without = {"a.py": "import b\n\n\ndef f():\n    b.g()\n", "c.py": "x = 1\n"}
    await corpus.sync(without)
    assert await corpus.entities() == {
        "a.py": "module", "a.py::f": "function", "c.py": "module",
        "external::b": "external", "external::b.g": "external",
    }  # fmt: skip
    assert await changed(corpus, {**without, "b.py": "def g():\n    pass\n"}) == ["a.py", "b.py"]
    assert await corpus.edges("calls", "imports") == {("a.py", "imports", "b.py"), ("a.py::f", "calls", "b.py::g")}
    assert "external" not in (await corpus.entities()).values()
    assert await changed(corpus, without) == ["a.py"]
    assert ("a.py::f", "calls", "external::b.g") in await corpus.edges()


async def test_those_who_follow_generations_learn_of_new_mentions(pool: Pool) -> None:
    """A chunk that did not change, but refers to something else, is another version of itself."""
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    states = [{"a.py": "import b\n"}, {"a.py": "import b\n", "b.py": "x = 1\n"}, {"a.py": "import b\n"}]
    source, followed = PostgresSnapshots(pool), Snapshot.empty()
    for number, state in enumerate(states, 1):
        made = await corpus.sync(state)
        assert await corpus.verify(number) == made.stores
        followed = followed.apply(await source.delta(corpus.corpus, number - 1, number, Deadline.after(10)))
        whole = Snapshot.empty().apply(await source.delta(corpus.corpus, 0, number, Deadline.after(10)))
        assert flat(followed) == flat(whole)
    assert sum(corpus.difference.renewed) > 0


async def test_an_aborted_build_leaves_nothing(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    await corpus.sync(FILES)
    before, body = await held(corpus), await corpus.body(1)
    number, _ = await corpus.open({"base.py": "def other():\n    pass\n", "user1.py": FILES["user1.py"]})
    assert await held(corpus) != before
    await corpus.collector.abort(corpus.corpus, number, Deadline.after(10))
    assert await held(corpus) == before
    assert await corpus.body(1) == body
    await corpus.sync(FILES | {"leaf.py": ""})
    fresh = await CodeCorpus.fresh(pool, "fresh", linker)
    await fresh.sync(FILES | {"leaf.py": ""})
    assert await corpus.body(3) == await fresh.body(1)


async def test_a_rollback_restores_and_an_edit_after_it_finds_its_readers(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    await corpus.sync(FILES)
    body = await corpus.body(1)
    await corpus.sync(FILES | {"base.py": "x = 1\n"})
    back = await corpus.rollback(1)
    assert await corpus.body(back.generation) == body
    assert back.code is not None
    assert back.code.edges["calls"] == 6
    corpus.files = dict(FILES)
    assert len(await changed(corpus, FILES | {"base.py": "x = 2\n"})) == 7


async def test_what_no_generation_sees_is_collected_and_a_deleted_corpus_leaves_nothing(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    await corpus.sync(FILES)
    live = await held(corpus)
    await corpus.sync({"leaf.py": FILES["leaf.py"]})
    assert await held(corpus) == live
    await corpus.collector.collect(corpus.corpus, 1, Deadline.after(10))
    assert (await held(corpus))["code_link"] == 1
    await PostgresCorpora(pool).delete("default", "code", Deadline.after(10))
    assert set((await held(corpus)).values()) == {0}


@dataclass
class Mortal:
    """`Linkers` of which one dies whenever it is given a certain file."""

    inner: Linkers
    deadly: str
    deaths: int = 0
    most: int = 1

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Talk, None]:
        async with self.inner.lend() as ask:

            async def talk(request: bytes) -> bytes:
                if any(path == self.deadly for path, _ in ORDER.decode(request).jobs):
                    self.deaths += 1
                    raise ParserKilled()
                return await ask(request)

            yield talk


async def test_a_file_that_kills_its_linker_costs_its_own_links(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    corpus.linkers = mortal = Mortal(corpus.linkers, "user3.py")
    made = await corpus.sync(FILES)
    assert mortal.deaths == 2
    callers = {source for source, _, _ in await corpus.edges("calls")}
    assert callers == {f"user{n}.py::use" for n in range(6) if n != 3}
    assert made.code is not None
    assert made.code.unresolved == {"unlinked": 1}


async def test_linkers_that_do_not_start_are_no_files_fault(pool: Pool) -> None:
    async with open_preparer(Limits(processes=1), "pipeline.codegraph.no_such_module:answer") as broken:
        corpus = await CodeCorpus.fresh(pool, "code", linker)
        corpus.linkers = broken
        with pytest.raises(ExceptionGroup) as failed:
            await corpus.sync(FILES)
    assert failed.group_contains(RunFailed, match="do not start")


async def test_a_build_without_changes_links_nothing(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    await corpus.sync(FILES)
    before = await held(corpus)
    number, _ = await corpus.begin()
    await corpus.link(number)
    assert (corpus.linked, corpus.difference.rows) == ([], 0)
    assert await held(corpus) == before


ODD = {
    "a b/ü.py": "from x import y\n\n\nclass Ä:\n    def go(self):\n        return y()\n",
    "100%/50%25.py": "def percent():\n    pass\n",
    'it\'s "quoted"; --.py': "def quoted():\n    pass\n",
    "a::b.py": "def colons():\n    pass\n",
    "deadbeefdeadbeefdeadbeef.py": "def deadbeefdeadbeefdeadbeef():\n    pass\n",
    "b.py": "def deadbeefdeadbeefdeadbeef():\n    deadbeefdeadbeefdeadbeef()\n",
}


async def test_odd_paths_are_ids_like_others(pool: Pool) -> None:
    corpus = await CodeCorpus.fresh(pool, "code", linker)
    await corpus.sync(ODD)
    found = await corpus.entities()
    ids = {
        "a b/ü.py::Ä.go", "100%/50%25.py::percent", "it's \"quoted\"; --.py::quoted", "a::b.py", "a::b.py::colons",
        "b.py::deadbeefdeadbeefdeadbeef", "deadbeefdeadbeefdeadbeef.py::deadbeefdeadbeefdeadbeef", "external::x.y",
    }  # fmt: skip
    assert ids < found.keys()
    graph = GraphRef(corpus.corpus, 1, "code", f"{0:032x}-1")
    inspector, evidence = PostgresInspector(pool), PostgresEvidence(pool)
    for name in found:
        seen = await inspector.entity(graph, name, Deadline.after(10))
        assert seen is not None, name
        assert seen.entity.entity_id == name
        near = await inspector.reached(graph, seen.entity.entity_no, 2, 10, Deadline.after(10))
        assert near.total >= 1
        assert await evidence.sources(corpus.corpus, 1, seen.entity.entity_no, 0, 10, Deadline.after(10))
    assert await inspector.entity(graph, "no.py::such", Deadline.after(10)) is None


async def test_two_tenants_have_the_same_paths_and_nothing_in_common(pool: Pool) -> None:
    one = await CodeCorpus.fresh(pool, "one", linker)
    two = await CodeCorpus.fresh(pool, "two", linker)
    await one.sync({"a.py": "def f():\n    pass\n", "b.py": "from a import f\nf()\n"})
    await two.sync({"b.py": "from a import f\nf()\n"})
    assert ("b.py", "calls", "a.py::f") in await one.edges()
    assert ("b.py", "calls", "external::a.f") in await two.edges()
    await two.sync({"b.py": "from a import f\nf()\n", "a.py": "x = 1\n"})
    assert one.linked
    assert ("b.py", "calls", "a.py::f") in await one.edges()


def test_moved_lines_touch_nobody_and_a_changed_constant_does() -> None:
    def change(old: str, new: str) -> set[str]:
        summaries = [read("p/a.py", text) for text in (old, new)]
        assert None not in summaries
        encoded = [encode(one) for one in summaries if one]
        found = touched_reads(Changed("p/a.py", was=True, now=True, old=encoded[0], new=encoded[1]))
        return {one.removeprefix("p/a.py") for one in found}

    text = "@f\nclass A(B):\n    x = 1\n\n    def g(self):\n        return h(self.x)\n"
    everything, body = read_of("", ""), read_of("", BODY, "A.g")
    outside = {read_of("", NAME, "A"), read_of("", FOUND, "A"), read_of("", FOUND, "A.g")}
    assert change(text, f"# moved\n\n{text}") == set()
    assert change(text, text.replace("class A(B):\n", 'class A(B):\n    """Said."""\n\n')) == set()
    for old, new, touched in (
        ("B", "C", outside),
        ("@f", "@g", outside),
        ("x = 1", "x = True", {read_of("", MEMBER, "A", "x")}),
        ("h(", "i(", {body}),
        ("def g", "async def g", {read_of("", MEMBER, "A", "g"), read_of("", FOUND, "A.g")}),
    ):
        assert change(text, text.replace(old, new, 1)) == {everything, *touched}, new
    come = {"p/a.py", all_of("p/a.py"), "p/", "*/a.py"}
    assert set(touched_reads(Changed("p/a.py", was=False, now=True))) == come
    assert set(touched_reads(Changed("p/a.py", was=True, now=True, filled=True))) == {"p/a.py", all_of("p/a.py")}


def test_what_is_too_large_to_be_told_apart_touches_all_who_looked_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    summaries = [read("a.py", f"def f(): pass\ndef g(): {text}\n") for text in ("f()", "pass")]
    old, new = [encode(one) for one in summaries if one]
    change = Changed("a.py", was=True, now=True, old=old, new=new)
    assert "a.py" not in list(touched_reads(change))
    monkeypatch.setattr(answers, "MOST", 3)
    assert "a.py" in list(touched_reads(change))

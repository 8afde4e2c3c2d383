"""After any history of edits a code graph exports the bytes of one made anew from the same files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.codegraph.conversation import Linker
from pipeline.codegraph.links import Files
from pipeline.codegraph.rules import linker
from pipeline.deadline import Deadline
from tests.code_edits import GRAMMARS, histories
from tests.code_generations import CodeCorpus, SmallLinker

State = dict[str, str]

# Few paths and names, so that files import each other in circles, shadow each other, and vanish where others looked.
PATHS = st.sampled_from(["a.py", "b.py", "p/__init__.py", "p/a.py", "p/q/c.py", "a/__init__.py", "n.md"])
MODULES = st.sampled_from(["a", "b", "p", "p.a", "p.q.c", "os"])
NAMES = st.sampled_from("fgh")
LINE = st.one_of(
    st.builds("from {} import {} as {}".format, MODULES, NAMES, NAMES),
    st.builds("import {}".format, MODULES),
    st.builds("def {0}(x):\n    {1}()\n    x()".format, NAMES, NAMES),
    st.builds("class {0}({1}):\n    def {2}(self):\n        {3}(self.{2})".format, NAMES, NAMES, NAMES, NAMES),
    st.builds("{}({})".format, NAMES, NAMES),
    st.sampled_from(["# a comment", "", "def broken(:", "x = 1\n" * 30]),
)
TEXT = st.lists(LINE, max_size=6).map("\n".join)
STATE = st.dictionaries(PATHS, TEXT, max_size=6)
STOPS = st.sampled_from(["", "", "abort", "rollback", "collect"])

_names = count()


def small(files: Files) -> Linker:
    return SmallLinker(files)


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


async def step(corpus: CodeCorpus, new: State, stop: str) -> None:
    """Bring the corpus to a state; `stop` first undoes a build of it, or rolls back afterwards."""
    if stop == "abort":
        number, _ = await corpus.open(new, "lost")
        await corpus.collector.abort(corpus.corpus, number, Deadline.after(10))
    before = [g.number for g in await corpus.generations.list(corpus.corpus, Deadline.after(5)) if g.state == "current"]
    made = await corpus.sync(new)
    if stop == "rollback" and before:
        await corpus.rollback(before[0], "back")
        made = await corpus.rollback(made.generation, "forth")
    if stop == "collect":
        await corpus.collector.collect(corpus.corpus, 1, Deadline.after(10))
    assert await corpus.verify(made.generation) == made.stores


async def the_same_as_anew(pool: Pool, states: list[tuple[State, str]], make: Callable[[Files], Linker]) -> None:
    corpus = await CodeCorpus.fresh(pool, f"edited-{next(_names)}", make)
    for state, stop in states:
        await step(corpus, state, stop)
    fresh = await CodeCorpus.fresh(pool, f"fresh-{next(_names)}", make)
    last = await fresh.sync(dict(sorted(states[-1][0].items(), reverse=True)))
    current, *_ = await corpus.generations.list(corpus.corpus, Deadline.after(5))
    assert await corpus.body(current.number) == await fresh.body(1)
    assert current.manifest is not None
    assert current.manifest.code == last.code


HANDED = "from b import g as h\ndef f(x):\n    x()\nh(f)"
TAKES = "def g(x):\n    x()"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(STATE, STOPS), min_size=1, max_size=4))
@example([({"a.py": HANDED, "b.py": TAKES}, ""), ({"a.py": HANDED.replace("h(f)", ""), "b.py": TAKES}, "rollback")])
@example([({"a.py": HANDED}, ""), ({"a.py": HANDED, "b.py": TAKES}, ""), ({"a.py": HANDED}, "abort")])
@example(
    [({"a.py": "import b", "b.py": ""}, ""), ({"a.py": "import b", "b.py": "x = 1"}, ""), ({"a.py": "import b"}, "")]
)
@example([({"a.py": "import p", "p/a.py": "x = 1"}, ""), ({"a.py": "import p", "p/__init__.py": "x = 1"}, "collect")])
async def test_the_export_depends_on_the_files_alone(pool: Pool, states: list[tuple[State, str]]) -> None:
    await the_same_as_anew(pool, states, small)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(STATE, STOPS), min_size=1, max_size=4))
@example([({"a.py": HANDED, "b.py": TAKES}, ""), ({"a.py": HANDED.replace("h(f)", ""), "b.py": TAKES}, "")])
async def test_so_it_does_with_all_of_the_language(pool: Pool, states: list[tuple[State, str]]) -> None:
    await the_same_as_anew(pool, states, linker)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(GRAMMARS)).flatmap(histories))
async def test_so_it_does_where_hubs_are_edited(pool: Pool, states: list[State]) -> None:
    await the_same_as_anew(pool, [(state, "") for state in states], linker)

"""Linking Python: the cases of the specification and of faults of other systems, and names between files."""

from __future__ import annotations

import pytest

from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.rules import RULES
from tests.bench.codegraph import PRECISION, PROGRAMS, RECALL, scores
from tests.code_corpus import corpus, edges, link_all


def unresolved(texts: dict[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for linked in link_all(corpus(texts)).values():
        for reason, count in linked.unresolved.items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


W39 = {
    "a.py": "class Base:\n    pass\n\ndef helper():\n    pass\n",
    "b.py": """\
import os
from typing import Any
from a import Base, helper as h

class Child(Base):
    def run(self) -> Any:
        h()
        self.go()
        return Base()

    def go(self):
        other()

def other():
    return os.getcwd()
""",
}


def test_w39_local_and_cross_file_edges() -> None:
    assert edges(W39) == [
        ("b.py::Child.go", "b.py::other"),
        ("b.py::Child.run", "a.py::Base"),
        ("b.py::Child.run", "a.py::helper"),
        ("b.py::Child.run", "b.py::Child.go"),
    ]
    assert edges(W39, "inherits") == [("b.py::Child", "a.py::Base")]
    assert edges(W39, "imports") == [("b.py", "a.py")]
    assert edges(W39, "imports", "external") == [("b.py", "os"), ("b.py", "typing")]
    assert edges(W39, "calls", "external") == [("b.py::other", "os.getcwd")]
    assert unresolved(W39) == {}


def test_w39_evidence_is_the_line_of_the_call() -> None:
    linked = Linker(corpus(W39), RULES).link("b.py")
    lines = {(edge.source, edge.target): edge.line for edge in linked.edges if edge.kind != "imports"}
    assert lines == {
        ("b.py::Child", "a.py::Base"): 5,
        ("b.py::Child.run", "a.py::helper"): 7,
        ("b.py::Child.run", "b.py::Child.go"): 8,
        ("b.py::Child.run", "a.py::Base"): 9,
        ("b.py::Child.go", "b.py::other"): 12,
        ("b.py::other", "os.getcwd"): 15,
    }


def test_calling_a_class_is_a_call_of_it_and_of_what_makes_its_instances() -> None:
    texts = {"a.py": "class A:\n    def __init__(self): pass\nclass B(A): pass\ndef make(): return B()\n"}
    assert edges(texts) == [("a.py::make", "a.py::A.__init__"), ("a.py::make", "a.py::B")]


CASE_6 = {
    "pkg/__init__.py": "",
    "pkg/gate.py": "def validate(rows): return bool(rows)\n",
    "other/gate.py": "def validate(x): return x\n",
    "pkg/a.py": "from pkg import gate as m_gate\ndef run(): return m_gate.validate([1])\n",
    "pkg/b.py": "try:\n    from pkg import gate as m_gate\n    def run(): return m_gate.validate([1])\n"
    "except ImportError:\n    pass\n",
    "pkg/c.py": "from pkg import gate\nfrom other import gate as other_gate\n"
    "def run():\n    gate.validate([1])\n    other_gate.validate(1)\n",
    "frontend/x.ts": 'import colors from "tailwindcss/colors"\nexport const c = colors.red()\n',
    "backend/colors.py": "def red(): pass\n",
    "src/time.ts": "export function sleep() {}\n",
    "clock.py": "import time\ndef wait(): time.sleep(1)\n",
}


def test_case_6_aliased_imports_and_modules_of_the_same_name() -> None:
    assert edges(CASE_6) == [
        ("pkg/a.py::run", "pkg/gate.py::validate"),
        ("pkg/b.py::run", "pkg/gate.py::validate"),
        ("pkg/c.py::run", "other/gate.py::validate"),
        ("pkg/c.py::run", "pkg/gate.py::validate"),
    ]
    assert edges(CASE_6, "imports") == [
        ("pkg/a.py", "pkg/gate.py"),
        ("pkg/b.py", "pkg/gate.py"),
        ("pkg/c.py", "other/gate.py"),
        ("pkg/c.py", "pkg/gate.py"),
    ]
    assert ("clock.py", "time") in edges(CASE_6, "imports", "external")
    assert ("clock.py::wait", "time.sleep") in edges(CASE_6, "calls", "external")
    assert ("frontend/x.ts", "tailwindcss/colors") in edges(CASE_6, "imports", "external")


CASE_7 = {
    "nettacker.py": "from nettacker.main import run\nrun()\n",
    "nettacker/__init__.py": "",
    "nettacker/main.py": "from nettacker.core.app import App\ndef run(): return App()\n",
    "nettacker/core/__init__.py": "",
    "nettacker/core/app.py": "from nettacker import logger\nclass App:\n    def go(self): logger.log()\n",
    "nettacker/logger.py": "def log(): pass\n",
    "a.py": "import b\ndef f(): return b.g()\n",
    "b.py": "import a\ndef g(): return a.f()\n",
}


def test_case_7_the_package_wins_over_the_module_beside_it() -> None:
    assert edges(CASE_7, "imports") == [
        ("a.py", "b.py"),
        ("b.py", "a.py"),
        ("nettacker.py", "nettacker/main.py"),
        ("nettacker/core/app.py", "nettacker/logger.py"),
        ("nettacker/main.py", "nettacker/core/app.py"),
    ]
    assert ("nettacker.py", "nettacker/main.py::run") in edges(CASE_7)


def test_case_7_a_true_cycle_is_followed_once() -> None:
    found = edges(CASE_7)
    assert [edge for edge in found if edge[0] in ("a.py::f", "b.py::g")] == [
        ("a.py::f", "b.py::g"),
        ("b.py::g", "a.py::f"),
    ]


def test_case_7_async_and_decorated_methods_through_an_alias() -> None:
    texts = {
        "k.py": """\
def decorator(f):
    async def inner(*args):
        return await f(*args)
    return inner

class Klass:
    async def plain(self):
        return await self.shown()
    @staticmethod
    @decorator
    async def shown():
        return helper()
    @classmethod
    def make(cls):
        return cls()

def helper(): pass

Alias = Klass

async def main():
    made = Alias.make()
    await made.plain()
    await Klass.shown()
"""
    }
    assert edges(texts) == [
        ("k.py::Klass", "k.py::decorator"),
        ("k.py::Klass.make", "k.py::Klass"),
        ("k.py::Klass.plain", "k.py::decorator.inner"),
        ("k.py::Klass.shown", "k.py::helper"),
        ("k.py::decorator.inner", "k.py::Klass.shown"),
        ("k.py::main", "k.py::Klass.make"),
        ("k.py::main", "k.py::Klass.plain"),
        ("k.py::main", "k.py::decorator.inner"),
    ]


CLASS_B, CLASS_K = ["class B:\n def f(self): pass", "class K:\n def f(self): pass"]
CHECKING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"


# --- names between files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "called"),
    [
        ({"main.py": "from p import f\nf()", "p/__init__.py": "from .m import f", "p/m.py": "def f(): pass"}, "p/m.py::f"),
        ({"main.py": "from p import *\nf()", "p.py": "from m import *", "m.py": "def f(): pass"}, "m.py::f"),
        ({"main.py": "import p.m\np.m.f()", "p/m.py": "def f(): pass"}, "p/m.py::f"),
        ({"main.py": "import p.m as x\nx.f()", "p/__init__.py": "", "p/m.py": "def f(): pass"}, "p/m.py::f"),
        ({"main.py": "import a.b.c\na.b.c.f()", "a/b/c.py": "def f(): pass"}, "a/b/c.py::f"),
        ({"main.py": "from a.b import c\nc.f()", "a/b/c.py": "def f(): pass"}, "a/b/c.py::f"),
        ({"src/main.py": "import p\np.f()", "src/p/__init__.py": "def f(): pass"}, "src/p/__init__.py::f"),
        ({"main.py": "import p\np.f()", "src/p/__init__.py": "def f(): pass"}, "src/p/__init__.py::f"),
        ({"tests/main.py": "import p\np.f()", "src/p/__init__.py": "def f(): pass"}, "src/p/__init__.py::f"),
        ({"main.py": "from m import K\nK().f()", "m.py": "from n import B\nclass K(B): pass", "n.py": CLASS_B}, "n.py::B.f"),
        ({"main.py": "from m import make\nmake().f()", "m.py": f"def make() -> 'K': ...\n{CLASS_K}"}, "m.py::K.f"),
        ({"main.py": "import m\ndef g(k: m.K): k.f()", "m.py": "class K:\n def f(self): pass"}, "m.py::K.f"),
        ({"main.py": "from m import K\nclass X:\n k: K\n def g(self): self.k.f()", "m.py": CLASS_K}, "m.py::K.f"),
        ({"main.py": f"{CHECKING} from m import K\ndef g(k: 'K | None'): k.f()", "m.py": CLASS_K}, "m.py::K.f"),
        ({"main.py": "from m import table\ntable['f']()", "m.py": "def f(): pass\ntable = {'f': f}"}, "m.py::f"),
        ({"main.py": "from m import *\nf()", "m.py": "__all__ = ['f']\ndef f(): pass\ndef g(): pass"}, "m.py::f"),
        ({"p/main.py": "from . import m\nm.f()", "p/__init__.py": "", "p/m.py": "def f(): pass"}, "p/m.py::f"),
        ({"p/q/main.py": "from ..m import f\nf()", "p/m.py": "def f(): pass"}, "p/m.py::f"),
        (
            {
                "main.py": "from p import name\nname.f()", "p/__init__.py": "from p.x import name",
                "p/name.py": "def f(): pass", "p/x.py": f"{CLASS_K}\nname = K()",
            },
            "p/x.py::K.f",
        ),
    ],
)  # fmt: skip
def test_a_name_is_followed_to_where_it_was_defined(files: dict[str, str], called: str) -> None:
    assert called in [target for _, target in edges(files)]


def test_conditional_imports_lead_to_both() -> None:
    texts = {
        "main.py": "try:\n    from fast import f\nexcept ImportError:\n    from slow import f\nf()\n",
        "fast.py": "def f(): pass\n",
        "slow.py": "def f(): pass\n",
    }
    assert edges(texts) == [("main.py", "fast.py::f"), ("main.py", "slow.py::f")]


def test_a_star_takes_only_what_is_offered() -> None:
    texts = {
        "main.py": "from m import *\ng()\n_h()\n",
        "m.py": "__all__ = ['f']\ndef f(): pass\ndef g(): pass\ndef _h(): pass\n",
    }
    assert edges(texts) == []
    assert unresolved(texts) == {"unknown_name": 2}


def test_a_package_does_not_find_its_own_modules_by_their_last_names() -> None:
    texts = {
        "p/__init__.py": "",
        "p/a.py": "import logging\nlogging.info('x')\n",
        "p/logging.py": "def info(x): pass\n",
    }
    assert edges(texts) == []
    assert edges(texts, "calls", "external") == [("p/a.py", "logging.info")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("missing()", "unknown_name"),
        ("def f(x):\n    x()", "unknown_value"),
        ("class K: pass\nK().gone()", "unknown_attribute"),
        ("from .gone import f\nf()", "missing_module"),
        ("getattr(K, k)()\nclass K: pass\nk = input()", "dynamic"),
    ],
)
def test_what_leads_nowhere_is_counted_by_reason(text: str, reason: str) -> None:
    assert reason in unresolved({"p/main.py": text})


def test_functions_and_objects_get_into_other_files_parameters() -> None:
    texts = {
        "lib.py": "def run(job, tool):\n    job()\n    tool.cut()\n",
        "main.py": "from lib import run\ndef mine(): pass\nclass Tool:\n    def cut(self): pass\nrun(mine, tool=Tool())\n",
    }
    assert edges(texts) == [
        ("lib.py::run", "main.py::Tool.cut"),
        ("lib.py::run", "main.py::mine"),
        ("main.py", "lib.py::run"),
        ("main.py", "main.py::Tool"),
    ]


def test_an_override_in_a_subclass_and_the_base_it_replaces() -> None:
    texts = {
        "m.py": "class A:\n    def go(self): self.step()\n    def step(self): pass\n"
        "class B(A):\n    def step(self): super().step()\nB().go()\n"
    }
    assert edges(texts) == [
        ("m.py", "m.py::A.go"),
        ("m.py", "m.py::B"),
        ("m.py::A.go", "m.py::A.step"),
        ("m.py::A.go", "m.py::B.step"),
        ("m.py::B.step", "m.py::A.step"),
    ]


def test_a_base_outside_gives_its_methods() -> None:
    texts = {"t.py": "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertTrue(1)\n"}
    assert edges(texts, "inherits", "external") == [("t.py::T", "unittest.TestCase")]
    assert edges(texts, "calls", "external") == [("t.py::T.test", "unittest.TestCase.assertTrue")]


def test_hostile_depth_ends_and_is_counted() -> None:
    chain = "\n".join(f"def f{i}(x): return f{i + 1}([x, x]) or f{i + 2}(x)" for i in range(300))
    assert unresolved({"m.py": f"{chain}\nf0(1)()\n"})["too_deep"] >= 1
    star = {f"m{i}.py": f"from m{i + 1} import *\n" for i in range(400)}
    assert unresolved({**star, "main.py": "from m0 import *\nf()\n"}) == {"unknown_name": 1}


# --- the benchmark ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not PROGRAMS.is_dir(), reason=f"no programs with true call graphs at {PROGRAMS}")
def test_call_graphs_are_as_right_as_they_are_to_be() -> None:
    found = scores(PROGRAMS)
    assert found[""].programs == 68
    assert found[""].precision >= PRECISION
    assert found[""].recall >= RECALL
    assert all(score.recall >= RECALL for score in found.values())

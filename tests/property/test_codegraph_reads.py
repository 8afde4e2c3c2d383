"""A file is linked again when what it asked of others may have another answer, and only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings

from pipeline.codegraph.files import meets, numbered, touched
from pipeline.codegraph.linker.asked import ATTACHED, BODY, FOUND, MEMBER, NAME, SHAPE, STAR
from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.linking import Changed, touched_reads
from pipeline.codegraph.links import Handed, Linked
from pipeline.codegraph.reading import read
from pipeline.codegraph.rules import RULES
from pipeline.codegraph.summary import encode
from tests.code_corpus import corpus, received
from tests.code_edits import GRAMMARS, histories

Texts = Mapping[str, str]


@dataclass
class World:
    """All links of a corpus: of every file by itself, and with what it receives."""

    texts: Texts
    alone: dict[str, Linked] = field(init=False)
    given: dict[str, list[Handed]] = field(init=False)
    final: dict[str, Linked] = field(init=False)

    def __post_init__(self) -> None:
        linker = Linker(corpus(self.texts), RULES)
        self.alone = {path: linker.link(path) for path in sorted(self.texts)}
        self.given = {path: received(path, self.alone) for path in self.alone}
        self.final = {path: linker.link(path, self.given[path]) for path in self.alone}

    def reads(self, path: str, without: str = "") -> frozenset[str]:
        """Return what a file read; without questions of one kind."""
        reads = self.alone[path].reads | self.final[path].reads
        return frozenset([each for each in reads if not (without and f"\0{without}" in each)])


def changes(old: Texts, new: Texts) -> list[Changed]:
    def said(texts: Texts, path: str) -> bytes:
        summary = read(path, texts[path])
        return encode(summary) if summary is not None else b""

    return [
        Changed(path, path in old, path in new, said(old, path), said(new, path))
        if path in old and path in new
        else Changed(path, path in old, path in new)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


def linked_again(old: World, new: Texts, without: str = "") -> set[str]:
    """Return the files that a change has linked again: as `Linking.difference` finds them."""
    changed = changes(old.texts, new)
    reads = touched(read for one in changed for read in touched_reads(one))
    found = {one.path for one in changed}
    for path in old.texts.keys() & new.keys():
        asked = numbered(old.reads(path, without))
        if any(meets(asked[number], reads[number]) for number in asked.keys() & reads.keys()):
            found.add(path)
    return found


def stale(old: World, new: World, without: str = "") -> list[str]:
    """Return the files that should have been linked again and were not."""
    again = linked_again(old, new.texts, without)
    return [
        path
        for path in sorted(old.texts.keys() & new.texts.keys() - again)
        if old.alone[path] != new.alone[path]
        or (old.given[path] == new.given[path] and old.final[path] != new.final[path])
    ]


def check(states: list[dict[str, str]]) -> None:
    worlds = [World(state) for state in states]
    for old, new in pairwise(worlds):
        assert stale(old, new) == []


def the_same(language: str, examples: int) -> Callable[[], None]:
    @settings(max_examples=examples, deadline=None)
    @given(histories(language))
    def run(states: list[dict[str, str]]) -> None:
        check(states)

    return run


@pytest.mark.parametrize(("language", "examples"), [(name, 200 if name == "python" else 80) for name in GRAMMARS])
def test_what_is_not_linked_again_would_link_to_the_same(language: str, examples: int) -> None:
    the_same(language, examples)()


HUB = """\
class L:
    def __init__(self, y):
        self.x = y

    def run(self):
        return self.x


class K(L):
    def go(self):
        pass


def make(y):
    return K(y)


def plain():
    pass
"""
USERS = {
    "calls.py": "from hub import make\n\nmake(1).go()\n",
    "derives.py": "from hub import L\n\n\nclass M(L):\n    def go(self):\n        self.run()\n",
    "plain.py": "import hub\n\nhub.plain()\n",
    "stars.py": "from hub import *\n\nmissing()\n",
    "apart.py": "def alone():\n    pass\n",
}
EDITS = {
    "nothing that others see": (HUB.replace("def make", "# said\ndef make"), set[str]()),
    "a new function": (f"{HUB}\ndef new():\n    return make(plain)\n", set[str]()),
    "a new function that a star takes": (f"{HUB}\ndef missing():\n    pass\n", {"stars.py"}),
    "a new method": (
        HUB.replace("    def go", "    def new(self):\n        return self.run()\n\n    def go"),
        set[str](),
    ),
    "a method that another inherits": (HUB.replace("def run", "def ran"), {"derives.py"}),
    "what a method sets": (HUB.replace("self.x = y", "self.run = y"), {"derives.py"}),
    "the body of a function that is called": (HUB.replace("return K(y)", "return L(y)"), {"calls.py"}),
    "the body of a function whose value nobody uses": (HUB.replace("():\n    pass", "():\n    make(1)"), set[str]()),
    "a function that is gone": (HUB.replace("def plain", "def plane"), {"plain.py"}),
    "a parameter": (HUB.replace("plain()", "plain(y)"), {"plain.py"}),
    "another base": (HUB.replace("class K(L)", "class K"), {"calls.py"}),
    "what a star takes": (f"{HUB}\n__all__ = ['make']\n", {"stars.py"}),
}


@pytest.mark.parametrize("what", EDITS)
def test_those_are_linked_again_who_asked_for_what_changed(what: str) -> None:
    text, expected = EDITS[what]
    old = World({**USERS, "hub.py": HUB})
    new = World({**USERS, "hub.py": text})
    assert linked_again(old, new.texts) == {"hub.py", *expected}
    assert stale(old, new) == []
    assert {path for path in USERS if old.final[path].edges != new.final[path].edges} <= expected


GO = {
    "go.mod": "module m\n",
    "a.go": "package m\ntype T struct {}\n",
    "u.go": "package m\nfunc u(t T) { t.Do(); t.Other() }\n",
}
HANDING = "from a import f\nclass B:\n    def __init__(self): pass\n"
QUESTIONS = {
    NAME: ({"a.py": "import b\nb.f()\n", "b.py": ""}, {"b.py": "def f(): pass\n"}),
    MEMBER: ({"a.py": "from b import K\nK().f()\n", "b.py": "class K: pass\n"}, {"b.py": "class K:\n    def f(self): pass\n"}),
    BODY: (
        {"a.py": "from b import f\nf()()\n", "b.py": "def f(): return g\ndef g(): pass\ndef h(): pass\n"},
        {"b.py": "def f(): return h\ndef g(): pass\ndef h(): pass\n"},
    ),
    FOUND: (
        {"a.py": "def f(x):\n    x()\n", "b.py": f"{HANDING}class K: pass\nf(K)\n"},
        {"b.py": f"{HANDING}class K(B): pass\nf(K)\n"},
    ),
    SHAPE: (
        {"a.py": "import b\nb.f()\n", "b.py": "", "c.py": "def f(): pass\n"},
        {"b.py": "from c import *\n"},
    ),
    STAR: (
        {"a.py": "from b import *\nf()\n", "b.py": "def f(): pass\ndef g(): pass\n__all__ = ['f']\n"},
        {"b.py": "def f(): pass\ndef g(): pass\n__all__ = ['g']\n"},
    ),
    ATTACHED: ({**GO, "b.go": "package m\n"}, {"b.go": "package m\nfunc (t T) Do() {}\n"}),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_without_one_kind_of_question_a_change_goes_unnoticed(question: str) -> None:
    texts, edits = QUESTIONS[question]
    old, new = World(texts), World({**texts, **edits})
    assert stale(old, new) == []
    assert stale(old, new, question) != []

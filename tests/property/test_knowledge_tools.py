"""Any number of live instances against a plain model: lists of triples in the order in which they were added."""

from __future__ import annotations

import gc

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from pipeline.errors import InvalidRequest
from pipeline.graphs.bag import Triple, ascii_tokens
from pipeline.graphs.knowledge import KnowledgeTools, search_live

LIMIT = 6
"""Triples that an instance here holds."""

names = st.sampled_from(["Ada", "the Ada", "Babbage", "Auth-Service v2", "İstanbul", "東京", "a b", "b"])
triples = st.builds(Triple, names, st.sampled_from(["knows", "a b"]), names)
queries = st.lists(st.sampled_from(["ada", "ADA", "the", "knows", "a", "b", "stanbul", "İ", "v2", "zzz"]), max_size=4)


def ranked(kept: list[tuple[int, Triple]], query: str, limit: int) -> list[tuple[Triple, float]]:
    """Rank by reading everything; `kept` are (age, triple) of all instances."""
    oldest: dict[Triple, int] = {}
    for age, triple in sorted(kept):
        oldest.setdefault(triple, age)
    wanted = set(ascii_tokens(query))
    scored = [(len(wanted & set(ascii_tokens(t.text))) / max(len(wanted), 1), age, t) for t, age in oldest.items()]
    return [(t, score) for score, _, t in sorted(scored, key=lambda s: (-s[0], s[1])) if score > 0][:limit]


class LiveInstances(RuleBasedStateMachine):
    """Instances are made, changed, searched and dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.live: list[KnowledgeTools] = []
        self.model: list[list[tuple[int, Triple]]] = []
        self.age = 0

    def teardown(self) -> None:
        self.live.clear()
        gc.collect(0)

    @precondition(lambda self: len(self.live) < 4)
    @rule()
    def make(self) -> None:
        self.live.append(KnowledgeTools(LIMIT))
        self.model.append([])

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        at = self._some(data)
        del self.live[at], self.model[at]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), triple=triples)
    def add(self, data: st.DataObject, triple: Triple) -> None:
        at = self._some(data)
        known = [one for _, one in self.model[at]]
        if triple not in known and len(known) == LIMIT:
            try:
                self.live[at].kg_add_triple(*triple)
            except InvalidRequest:
                return
            raise AssertionError("a full bag took one more")
        new = triple not in known
        if new:
            self.age += 1
            self.model[at].append((self.age, triple))
        assert self.live[at].kg_add_triple(*triple) == {"added": new, "triples": len(self.model[at])}

    @precondition(lambda self: self.live)
    @rule(data=st.data(), triple=triples)
    def remove(self, data: st.DataObject, triple: Triple) -> None:
        at = self._some(data)
        left = [(age, one) for age, one in self.model[at] if one != triple]
        removed, self.model[at] = len(left) < len(self.model[at]), left
        assert self.live[at].kg_remove_triple(*triple) == {"removed": removed, "triples": len(left)}

    @rule(words=queries, limit=st.integers(1, 5))
    def search_all(self, words: list[str], limit: int) -> None:
        kept = [one for kept in self.model for one in kept]
        assert search_live(" ".join(words), limit) == ranked(kept, " ".join(words), limit)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), words=queries, name=names)
    def read_one(self, data: st.DataObject, words: list[str], name: str) -> None:
        at = self._some(data)
        matches = [
            {**triple._asdict(), "score": score} for triple, score in ranked(self.model[at], " ".join(words), 10)
        ]
        assert self.live[at].kg_query(" ".join(words)) == {"matches": matches}
        about = [one for _, one in self.model[at] if plain(name) in (plain(one.subject), plain(one.object))]
        ends = self.live[at].kg_neighbors(name)
        assert ends["total"] == len(about)
        assert [end["entity"] for end in ends["neighbors"]] == [  # type: ignore[attr-defined]
            one.object if plain(one.subject) == plain(name) else one.subject for one in about
        ]

    def _some(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.live) - 1))


def plain(name: str) -> str:
    return name.removeprefix("the ").removeprefix("a ").lower()


LiveInstances.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLiveInstances = LiveInstances.TestCase


@given(st.text(max_size=40))
def test_tokens_are_those_of_the_rule(text: str) -> None:
    """Lower A-Z only, then split on everything outside a-z and 0-9."""
    lowered = "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)
    plain_tokens = "".join(c if c in "abcdefghijklmnopqrstuvwxyz0123456789" else " " for c in lowered).split()
    assert ascii_tokens(text) == plain_tokens

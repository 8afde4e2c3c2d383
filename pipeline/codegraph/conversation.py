"""Linking in a child process, as a conversation: orders name files and bring summaries, answers bring links or say what else
is wanted. What a child knows of a corpus lasts from one order to the next.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from pipeline.codegraph.entities import symbol_id
from pipeline.codegraph.files import SourceFiles, file_of, numbered
from pipeline.codegraph.links import Edge, Files, Handed, Linked
from pipeline.errors import Wanted

SLICE = 0.5
"""Seconds after which an order is answered with what is done."""

EXTERNAL = "external"
"""What stands outside of the corpus: the type of such an entity, and what its id begins with."""

LOST = "no_entity"
"""Why a reference that the linker found has no edge: an end of it is no entity."""

BUILTIN = "builtin"


class Linker(Protocol):
    """Links files of one corpus, in any order."""

    def link(self, path: str, received: Iterable[Handed] = ()) -> Linked:
        """Return all references of a file. CPU-bound."""
        ...


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """An edge between entities, by their public ids. `outside` is set where the target has no text of its own in the corpus
    and is mentioned where the edge is stated: `external`, or the language of an empty module.
    """

    source: str
    target: str
    kind: str
    line: int
    outside: str = ""


class Settled(msgspec.Struct, frozen=True, array_like=True):
    """What linking gave a file. `reads` are as `files.numbered` has them; what is handed comes with the file it goes to."""

    path: str
    references: tuple[Reference, ...] = ()
    counts: dict[str, int] = {}
    unresolved: dict[str, int] = {}
    reads: dict[int, bytes] = {}
    handed: tuple[tuple[str, Handed], ...] = ()


class Order(msgspec.Struct, array_like=True):
    """`corpus` begins another one: all paths, with whether there is text in each. `jobs` are files and what they receive."""

    jobs: list[tuple[str, tuple[Handed, ...]]] = []
    give: dict[str, bytes] = {}
    corpus: dict[str, bool] | None = None


class Answer(msgspec.Struct, array_like=True):
    """The first jobs, done; and a summary without which the next one cannot be, if it is that."""

    done: list[Settled]
    wanted: str = ""


ORDER: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
ANSWER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
ENCODER = msgspec.msgpack.Encoder()


class Conversation:
    """The child's side. `make` makes a linker for the files of one corpus."""

    def __init__(self, make: Callable[[Files], Linker]) -> None:
        self._make = make
        self._begin({})

    def _begin(self, corpus: dict[str, bool]) -> None:
        self._filled = {path for path, filled in corpus.items() if filled}
        self._files = SourceFiles(corpus)
        self._linker = self._make(self._files)
        self._known: dict[str, frozenset[str]] = {}
        gc.collect()

    def answer(self, request: bytes) -> bytes:
        """Do what an order says, for about SLICE."""
        order = ORDER.decode(request)
        if order.corpus is not None:
            self._begin(order.corpus)
        self._files.give(order.give)
        end = time.monotonic() + SLICE
        done: list[Settled] = []
        for path, received in order.jobs:
            try:
                done.append(self._settled(self._linker.link(path, received)))
            except Wanted as wanted:  # it may have been left in the middle of something
                self._linker = self._make(self._files)
                return ENCODER.encode(Answer(done, wanted.path))
            if time.monotonic() > end:
                break
        gc.collect(1)  # what a link leaves behind goes round in circles, and the collector of a child seldom comes
        return ENCODER.encode(Answer(done))

    def _settled(self, linked: Linked) -> Settled:
        """Keep the references between entities, and count."""
        counts: Counter[str] = Counter()
        unresolved = Counter(linked.unresolved)
        references: list[Reference] = []
        summary = self._files.summary(linked.path)
        if linked.path in self._filled and summary is not None and summary.symbols:
            counts["contains"] = len(summary.symbols)
        for edge in linked.edges if linked.path in self._filled else ():
            if edge.scope == BUILTIN:
                counts[BUILTIN] += 1
            elif self._is_entity(edge.source) and (edge.scope == EXTERNAL or self._is_entity(edge.target)):
                counts[edge.kind] += 1
                references.append(self._reference(edge))
            else:
                unresolved[LOST] += 1
        paths = self._files.paths
        targets = (file_of(edge.target, paths) for edge in linked.edges if edge.scope == "corpus")
        reads = numbered({*linked.reads, *targets})
        handed = tuple((file_of(one.function, paths), one) for one in linked.handed)
        return Settled(linked.path, tuple(references), counts, unresolved, reads, handed)

    def _reference(self, edge: Edge) -> Reference:
        if edge.scope == EXTERNAL:
            return Reference(edge.source, f"{EXTERNAL}::{edge.target}", edge.kind, edge.line, EXTERNAL)
        path = file_of(edge.target, self._files.paths)
        summary = None if path in self._filled else self._files.summary(path)
        return Reference(edge.source, edge.target, edge.kind, edge.line, summary.language if summary else "")

    def _is_entity(self, public_id: str) -> bool:
        """Whether this is a module, or a definition that is kept."""
        path = file_of(public_id, self._files.paths)
        if path not in self._known:
            summary = self._files.summary(path)
            names = ("", *(symbol.qualname for symbol in summary.symbols)) if summary else ()
            self._known[path] = frozenset(symbol_id(path, name) for name in names)
        return public_id in self._known[path]

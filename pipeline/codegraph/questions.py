"""Structural questions about source code, answered from a graph wherever it lies: who calls this, what inherits from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.codegraph.languages import language_of
from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest, NotFound
from pipeline.graphs.inspection import REACH, Edge, Found, Seen
from pipeline.graphs.parts import GraphRef
from schemas.code import CodeAnswer, CodeQuestion, CodeReference, CodeSymbol
from schemas.graph import Entity
from schemas.ids import entity_no

MAX_DEPTH = 10
MAX_REFERENCES = 1_000

_TYPES = ("class", "interface", "struct", "trait", "enum")
_DEFINED = ("function", "method", *_TYPES)
_MODULE, _EXTERNAL = ("module",), ("external",)
_EVERYTHING = (*_DEFINED, *_MODULE, *_EXTERNAL)
_AT_ONCE = 500
"""Sources whose edges are asked for at a time: together they stay below what one answer holds."""

_SHOWN = 20
"""Candidates that a message names."""

_CONSTRUCTORS = ("__init__", "__new__", "constructor")


class Inspector(Protocol):
    """The part of a `GraphInspector` that questions need."""

    async def named(self, graph: GraphRef, kind: str | None, text: str, limit: int, deadline: Deadline) -> list[Seen]:
        """See `GraphInspector`."""
        ...

    async def entity(self, graph: GraphRef, entity_id: str, deadline: Deadline) -> Seen | None:
        """See `GraphInspector`."""
        ...

    async def reached(self, graph: GraphRef, centre: int, hops: int, limit: int, deadline: Deadline) -> Found:
        """See `GraphInspector`."""
        ...

    async def edges(
        self, graph: GraphRef, sources: Sequence[int], targets: Sequence[int] | None, deadline: Deadline
    ) -> list[Edge]:
        """See `GraphInspector`."""
        ...


@dataclass(frozen=True, slots=True)
class _Way:
    """Which edges answer a question: their type, whether they are followed backwards, and what they may start from: the first
    kinds of symbols of which one fits.
    """

    kind: str
    back: bool
    start: tuple[tuple[str, ...], ...]


_WAYS = {
    CodeQuestion.CALLERS: _Way("calls", True, (_DEFINED, _EXTERNAL)),
    CodeQuestion.CALLEES: _Way("calls", False, (_DEFINED, _MODULE)),
    CodeQuestion.BASES: _Way("inherits", False, (_TYPES,)),
    CodeQuestion.SUBCLASSES: _Way("inherits", True, (_TYPES, _EXTERNAL)),
    CodeQuestion.IMPORTERS: _Way("imports", True, (_MODULE, _EXTERNAL)),
    CodeQuestion.PATH: _Way("calls", False, (_DEFINED, _MODULE)),
}


class Questions:
    """Asks one generation's graph. A symbol is given by its id (`path::qualified.name`), by the end of its qualified name or
    path (`Store.add`, `store.py::add`, `pkg/store.py`, `pkg.store`), or by its name.
    """

    def __init__(self, inspector: Inspector, graph: GraphRef, deadline: Deadline) -> None:
        self._inspector = inspector
        self._graph = graph
        self._deadline = deadline

    async def ask(
        self, question: CodeQuestion, symbol: str, to: str = "", depth: int = 1, limit: int = 100
    ) -> CodeAnswer:
        """Answer a question, with `limit` references at most.

        Raises:
            NotFound: there is no such symbol.
            InvalidRequest: several fit, which the message names; or it is of a kind that the question is not about.
        """
        if not symbol.strip():
            raise InvalidRequest("Name a symbol, e.g. `Store.add`.")
        if question is CodeQuestion.SYMBOLS:
            return await self._symbols(symbol, limit)
        way = _WAYS[question]
        start = await self._one(symbol, way.start, question)
        if question is not CodeQuestion.PATH:
            return await self._around(question, start, way, depth, limit)
        if not to:
            raise InvalidRequest("`path` leads from one symbol to another: name both")
        return await self._chain(start, await self._one(to, (_DEFINED, _EXTERNAL), question))

    async def _symbols(self, text: str, limit: int) -> CodeAnswer:
        """Return what a module or class contains, if its id is given, else all that the text may stand for, or is part of."""
        exact = await self._inspector.entity(self._graph, text, self._deadline)
        if exact is not None and exact.entity.type in (*_MODULE, *_TYPES):
            within = _Way("contains", False, ())
            held = await self._around(CodeQuestion.SYMBOLS, exact, within, 1, limit)
            inside = tuple(one.symbol for one in held.references)
            return CodeAnswer(question=held.question, symbol=held.symbol, symbols=inside, truncated=held.truncated)
        found = await self._fitting(text, _EVERYTHING) or await self._fitting(text, _EVERYTHING, partly=True)
        shown = tuple(map(symbol_view, found[:limit]))
        return CodeAnswer(question=CodeQuestion.SYMBOLS, symbols=shown, truncated=len(found) > limit)

    async def _one(self, text: str, tiers: Sequence[tuple[str, ...]], question: CodeQuestion) -> Seen:
        """Return the one symbol that a text stands for."""
        kinds = [kind for tier in tiers for kind in tier]
        exact = await self._inspector.entity(self._graph, text, self._deadline)
        if exact is not None:
            if exact.entity.type not in kinds:
                raise InvalidRequest(f"{text} is a {exact.entity.type}; `{question}` asks about {_listed(kinds)}")
            return exact
        for tier in tiers:
            found = await self._fitting(text, tier)
            if len(found) == 1:
                return found[0]
            if found:
                names = [f"\n  {one.entity.entity_id}" for one in found[:_SHOWN]]
                more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                raise InvalidRequest(f"{text} may be one of {len(found)}; name it by its id:{''.join(names)}{more}")
        raise NotFound(f"There is no {_listed(kinds)} named {text!r} in this graph.")

    async def _fitting(self, text: str, kinds: Iterable[str], *, partly: bool = False) -> list[Seen]:
        """Return the symbols of these kinds that a text may stand for, or is in whose names (`partly`), by id."""
        searched = search_text(text)
        found = [
            one
            for kind in kinds
            for one in await self._inspector.named(self._graph, kind, searched, REACH, self._deadline)
            if partly or fits(text, one.entity)
        ]
        return sorted(found, key=lambda one: one.entity.entity_id)

    async def _around(self, question: CodeQuestion, start: Seen, way: _Way, depth: int, limit: int) -> CodeAnswer:
        """Return the references in this direction, level by level; each symbol is gone on from once."""
        found: list[CodeReference] = []
        seen, frontier, cut = {start.entity.entity_id}, [start], False
        for level in range(1, depth + 1):
            reached: dict[str, Seen] = {}
            for one in frontier:
                near = await self._inspector.reached(self._graph, one.entity.entity_no, 1, REACH, self._deadline)
                cut |= near.total >= REACH
                others = {other.entity.entity_id: other for other in near.entities[1:]}
                edges = await self._edges(one, others, way)
                found += [_reference(edge, others, level, back=way.back) for edge in edges]
                ends = (edge.source if way.back else edge.target for edge in edges)
                reached |= {end: others[end] for end in ends if end in others and end not in seen}
                if len(found) > limit:
                    break
            seen |= reached.keys()
            frontier = [reached[end] for end in sorted(reached)]
            if not frontier or len(found) > limit:
                break
        return CodeAnswer(
            question=question,
            symbol=symbol_view(start),
            references=tuple(found[:limit]),
            truncated=cut or len(found) > limit,
        )

    async def _edges(self, one: Seen, others: Mapping[str, Seen], way: _Way) -> list[Edge]:
        """Return the edges between a symbol and those around it, by file and line."""
        number = one.entity.entity_no
        if not way.back:
            found = await self._inspector.edges(self._graph, [number], None, self._deadline)
        elif others:
            numbers = [other.entity.entity_no for other in others.values()]
            found = await self._inspector.edges(self._graph, numbers, [number], self._deadline)
        else:
            found = []
        return sorted((edge for edge in found if edge.type == way.kind), key=_place)

    async def _chain(self, start: Seen, end: Seen) -> CodeAnswer:
        """Return a shortest chain of calls, the first by file and line of each step. A class that is called leads to its
        constructor.
        """
        first, last = start.entity.entity_id, end.entity.entity_id
        came: dict[str, Edge] = {}
        frontier, cut = [first], False
        while frontier and last not in came and not cut:
            parts = [frontier[at : at + _AT_ONCE] for at in range(0, len(frontier), _AT_ONCE)]
            edges = [edge for part in parts for edge in await self._steps(part)]
            fresh: dict[str, Edge] = {}
            for edge in edges:
                if edge.target != first and edge.target not in came:
                    fresh.setdefault(edge.target, edge)
            came |= fresh
            frontier = list(fresh)
            cut = len(came) > REACH
        steps: list[Edge] = []
        while last in came and (not steps or steps[-1].source != first):
            steps.append(came[steps[-1].source if steps else last])
        ends: dict[str, Seen] = {}
        for edge in steps:
            if found := await self._inspector.entity(self._graph, edge.target, self._deadline):
                ends[edge.target] = found
        chain = [_reference(edge, ends, depth, back=False) for depth, edge in enumerate(reversed(steps), 1)]
        return CodeAnswer(
            question=CodeQuestion.PATH,
            symbol=symbol_view(start),
            to=symbol_view(end),
            references=tuple(chain),
            truncated=cut and not chain,
        )

    async def _steps(self, ids: Sequence[str]) -> list[Edge]:
        """Return the calls that start from these, in their order, then by file and line."""
        found = await self._inspector.edges(self._graph, [entity_no(one) for one in ids], None, self._deadline)
        order = {one: at for at, one in enumerate(ids)}
        steps = [edge for edge in found if edge.type == "calls" or _constructs(edge)]
        return sorted(steps, key=lambda edge: (order.get(edge.source, len(order)), _place(edge)))


def search_text(text: str) -> str:
    """Return the part of a symbol's name that its entity's name holds."""
    if "::" in text:
        text = text.rpartition("::")[2]
    elif "/" in text or language_of(text):
        return text
    return text.rpartition(".")[2]


def fits(text: str, one: Entity) -> bool:
    """Whether a text stands for an entity: as the end of its qualified name or of its path, whole parts at a time."""
    path, _, qualname = one.entity_id.partition("::")
    if one.entity_id == text:
        return True
    if one.type in _MODULE:
        return _ends(path, text, "/") or _ends(_dotted(path), text, ".")
    place, _, name = text.rpartition("::")
    return _ends(qualname, text, ".") or (bool(place) and qualname == name and _ends(path, place, "/"))


def symbol_view(seen: Seen) -> CodeSymbol:
    """Return a symbol as it goes on the wire."""
    one = seen.entity
    return CodeSymbol(
        entity_id=one.entity_id,
        name=one.name,
        kind=one.type,
        qualname=_text(one.properties.get("qualname")),
        path=_text(one.properties.get("path")),
        line=_line(one.properties.get("start_line")),
        signature=_text(one.properties.get("signature")),
        description=one.description,
    )


def _reference(edge: Edge, known: Mapping[str, Seen], depth: int, *, back: bool) -> CodeReference:
    """Return an edge as it goes on the wire; of an end that is not known only what its id says."""
    found = edge.source if back else edge.target
    symbol = CodeSymbol(entity_id=found, name=re.split(r"::|\.", found)[-1], kind="")
    return CodeReference(
        source_id=edge.source,
        target_id=edge.target,
        kind=edge.type,
        path=_text(edge.properties.get("path")),
        line=_line(edge.properties.get("line")),
        depth=depth,
        symbol=symbol_view(known[found]) if found in known else symbol,
    )


def _place(edge: Edge) -> tuple[str, int, str, str]:
    return _text(edge.properties.get("path")), _line(edge.properties.get("line")), edge.source, edge.target


def _constructs(edge: Edge) -> bool:
    """Whether an edge leads from a class to its constructor."""
    names = (*_CONSTRUCTORS, re.split(r"::|\.", edge.source)[-1])
    return edge.type == "contains" and edge.target in {f"{edge.source}.{name}" for name in names}


def _ends(whole: str, part: str, separator: str) -> bool:
    return bool(part) and (whole == part or whole.endswith(separator + part))


def _dotted(path: str) -> str:
    """Return a module's path as it is imported: `pkg.store`, and of a package `pkg`."""
    return re.sub(r"\.\w+$", "", path).replace("/", ".").removesuffix(".__init__")


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds[:-1]) + (f" or {kinds[-1]}" if len(kinds) > 1 else kinds[-1])


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _line(value: object) -> int:
    return value if isinstance(value, int) else 0

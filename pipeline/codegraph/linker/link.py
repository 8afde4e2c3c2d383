"""From summaries to edges: `Linker.link` says what one file refers to.

The statements of the file are run on sets of possible values (`values`): first its own, in order, then each function's,
with what its callers in the file hand to it, until nothing changes. Of other files, only those statements are run that a
name depends on which is needed. See `Linked` for what that makes of reading.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator

from pipeline.codegraph.linker.record import Record, Reference
from pipeline.codegraph.linker.run import Machine
from pipeline.codegraph.linker.scopes import Module, Unit
from pipeline.codegraph.linker.session import Noted, Trace, still
from pipeline.codegraph.linker.values import Func, Inst, Klass, Values
from pipeline.codegraph.links import Edge, Files, Handed, Linked, Rules

VERSION = "link-2"
"""Changes whenever the edges, counts or reads of the same summaries would; part of the recipe of documents."""

ROUNDS = 6
"""How often a file's functions are looked at again because their callers hand them something new."""

KEPT = 200
"""Files whose scopes are kept for the next links."""


class Linker:
    """Links the files of one corpus, as it is now."""

    def __init__(self, files: Files, rules: Iterable[Rules]) -> None:
        self._files = files
        self._rules = {language: each for each in rules for language in each.languages}
        self._modules: OrderedDict[str, Module | None] = OrderedDict()

    def link(self, path: str, received: Iterable[Handed] = ()) -> Linked:
        """Return what a file refers to.

        `received` is what other files hand to the parameters of its functions. A pure function of it and of the answers
        in `reads`. A file that is not there, or in a language without rules, refers to nothing.
        """
        files = Noted(path, self._files, self._module)
        record = self._record(path, files, received)
        if record is None:
            return Linked(path, reads=files.reads)
        lines: dict[tuple[str, str, str], Edge] = {}
        counts = record.unresolved()
        for edge in edges(record.references(), counts):
            key = edge.source, edge.target, edge.kind
            held = lines.get(key)
            if held is None or edge.line < held.line:
                lines[key] = edge
        unresolved = dict(sorted(counts.items()))
        return Linked(path, tuple(sorted(lines.values())), unresolved, files.reads, record.handed())

    def references(self, path: str, received: Iterable[Handed] = ()) -> list[tuple[Reference, int]]:
        """Return all that a file refers to, with the scopes that are no entities, and calls of itself."""
        record = self._record(path, Noted(path, self._files, self._module), received)
        return [] if record is None else list(record.references())

    def _record(self, path: str, files: Noted, received: Iterable[Handed]) -> Record | None:
        module = files.module(path)
        rules = self._rules.get(module.language) if module is not None else None
        if module is None or rules is None:
            return None
        machine = Machine(path, files, rules)
        for handed in received:
            _receive(machine, module, handed)
        return _Link(machine, module).run()

    def _module(self, path: str) -> Module | None:
        if path in self._modules:
            self._modules.move_to_end(path)
            return self._modules[path]
        summary = self._files.summary(path)
        module = self._modules[path] = Module(path, summary) if summary is not None else None
        if len(self._modules) > KEPT:
            self._modules.popitem(last=False)
        return module


class _Link:
    """Runs the scopes of one file until nothing changes."""

    def __init__(self, machine: Machine, module: Module) -> None:
        self.machine = machine
        self.root = module.root
        self.record = Record(machine, module)
        self.record.functions[module.root] = None
        self.traces: dict[Unit, Trace] = {}

    def run(self) -> Record:
        """Return what the file refers to."""
        for _ in range(ROUNDS):
            if not self._round():
                break
        return self.record

    def _round(self) -> bool:
        """Run what was not run yet, or looked at what has changed since; return whether there was any."""
        ran = False
        waiting = list(self.record.functions)
        seen = 0
        while seen < len(waiting):
            unit = waiting[seen]
            seen += 1
            if unit not in self.traces or not still(self.traces[unit]):
                ran = True
                self._run(unit)
                waiting.extend(list(self.record.functions)[len(waiting) :])
        return ran

    def _run(self, unit: Unit) -> None:
        machine = self.machine
        machine.trace = {}
        frame = machine.frames.get(unit)
        if frame is not None and unit is self.root:
            self._again()
        outside = self.record.functions[unit]
        outer = machine.frames.get(outside) if outside is not None else None
        made = machine.assumed(unit, outer, machine.class_of(unit, outer))
        if frame is None:
            frame = machine.frames[unit] = made
        frame.env, frame.this = made.env, made.this
        frame.dead, frame.open, frame.record = False, True, self.record
        frame.returns = frame.yields = ()
        if unit is self.root:
            machine.own = frame
        self.record.begin(unit)
        machine.run(unit.body, frame)
        frame.open = unit is not self.root
        self.traces[unit] = {key: entry for key, entry in machine.trace.items() if entry[0] is not frame}

    def _again(self) -> None:
        """Let every function be looked at again: the file's own names may mean something else now."""
        self.machine.forget()
        self.traces.clear()


def _receive(machine: Machine, module: Module, handed: Handed) -> None:
    path, _, qualname = handed.function.partition("::")
    parameter, _, number = handed.parameter.partition("#")
    unit = module.find(qualname, int(number or 1)) if path == module.path else None
    of = machine.unit_of(handed.value.removesuffix("()"))
    if unit is None or of is None:
        return
    value: Values = (Klass(of),) if of.kind == "class" else (Func(of),)
    if handed.value.endswith("()"):
        value = (Inst(Klass(of)),)
    machine.hand(unit, parameter, value)


# --- references to edges ---------------------------------------------------------------------------------------------


def entity(unit: Unit) -> Unit:
    """Return the scope itself if it is an entity, or the nearest one around it that is."""
    while unit.parent is not None and unit.qualname not in unit.module.symbols:
        unit = unit.parent
    return unit


def edges(references: Iterable[tuple[Reference, int]], counts: Counter[str]) -> Iterator[Edge]:
    """Yield edges between entities. Calls of itself are left out; calls of what is no entity are counted."""
    for reference, line in references:
        source = entity(reference.source).id
        target = reference.target
        if isinstance(target, str):
            yield Edge(source, target, reference.kind, line, reference.scope)
        elif entity(target) is not target:
            counts["anonymous"] += 1
        elif target.id != source:
            yield Edge(source, target.id, reference.kind, line)

"""What a file's statements refer to, noted while they are run, and made into edges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.codegraph.linker.asked import FOUND
from pipeline.codegraph.linker.bindings import THIS
from pipeline.codegraph.linker.overloads import OVERLOADING
from pipeline.codegraph.linker.scopes import Module, Unit
from pipeline.codegraph.linker.session import Frame
from pipeline.codegraph.linker.values import (
    Builtin,
    Ext,
    Func,
    Given,
    Inst,
    Klass,
    Literal,
    Mod,
    Unknown,
    Value,
    Values,
    known,
)
from pipeline.codegraph.links import External, Found, Handed, Kind, Missing, Place, Scope
from pipeline.codegraph.summary import Call, Class, From

if TYPE_CHECKING:
    from pipeline.codegraph.linker.run import Machine

Target = Unit | str
_ARITY = re.compile(r"/\d+$")  # Java's methods are bound with the number of their parameters
_MADE_BY = ("__new__", "__init__")


@dataclass(frozen=True, slots=True)
class Reference:
    """What one scope refers to. `target` is a unit of the corpus, the path of a module, or a name outside."""

    source: Unit
    target: Target
    kind: Kind
    scope: Scope = "corpus"


@dataclass(slots=True)
class Findings:
    """What running one scope showed. A reference comes with the first line that states it."""

    references: dict[Reference, int] = field(default_factory=dict[Reference, int])
    unresolved: dict[int, str] = field(default_factory=dict[int, str])
    handed: dict[Handed, None] = field(default_factory=dict[Handed, None])


class Record:
    """Notes references for the scope that is being run."""

    def __init__(self, machine: Machine, module: Module) -> None:
        self._machine = machine
        self._module = module
        self._now = Findings()
        self._line = 1
        self.findings: dict[Unit, Findings] = {}
        self.functions: dict[Unit, Unit | None] = {}

    def begin(self, unit: Unit) -> None:
        """Note from now on for this scope; what was noted for it before is forgotten."""
        self._now = self.findings[unit] = Findings()
        self._line = next(
            (symbol.first_line for symbol in self._module.summary.symbols if symbol.qualname == unit.qualname), 1
        )

    # --- what the machine tells --------------------------------------------------------------------------------------

    def defined(self, func: Func, frame: Frame) -> None:
        """Note a function that is to be looked at, and the scope of the call that it sees."""
        closure = frame.closure()
        self.functions.setdefault(func.unit, closure.unit if closure is not None else None)

    def site(self, frame: Frame, form: Call, values: Values, given: Given | None) -> None:
        """Note a call that is written in the file; without `given` it hands nothing on."""
        self._line = form.line or self._line
        found = [
            self._made(frame, value, form, given)
            if isinstance(value, Klass) and value.unit.module.language in OVERLOADING
            else self.call(frame, value, given)
            for value in values
        ]
        if not any(found):
            reasons = [value.reason for value in values if isinstance(value, Unknown)]
            self._now.unresolved[id(form)] = reasons[0] if reasons else "unknown_value"

    def call(self, frame: Frame, value: Value, given: Given | None, line: int = 0) -> bool:
        """Note a call of a value, if it is one that can be called, and what it hands on. Return whether it is."""
        self._line = line or self._line
        match value:
            case Func():
                self._refer(frame.unit, value.unit, "calls")
                self._pass(value, given)
            case Klass():
                self._construct(frame, value, given)
            case Inst(klass=klass):
                called = self._machine.method(klass, "__call__")
                return any(self._each(frame, called, given))
            case Ext(name=name):
                self._refer(frame.unit, name, "calls", "external")
            case Builtin(name=name):
                self._refer(frame.unit, name, "calls", "builtin")
            case Mod(place=place):
                whole = self._machine.member(place, "=") or ()
                return any(self._each(frame, self._machine.settle(whole), given))
            case _:
                return False
        return True

    def _each(self, frame: Frame, values: Values, given: Given | None) -> list[bool]:
        return [self.call(frame, each, given) for each in values]

    def _made(self, frame: Frame, klass: Klass, form: Call, given: Given | None) -> bool:
        """Note a construction where constructors are overloaded, and none is inherited."""
        if not form.new:
            return False
        self._refer(frame.unit, klass.unit, "calls")
        makers, sure = self._machine.constructor(klass, form, frame)
        for maker in makers:
            self._refer(frame.unit, maker.unit, "calls")
            self._pass(maker, given if sure else None)
        return True

    def _construct(self, frame: Frame, klass: Klass, given: Given | None) -> None:
        if self._is_symbol(klass.unit):
            self._refer(frame.unit, klass.unit, "calls")
        else:
            for base in self._machine.order(klass).classes[1:2]:
                self._refer(frame.unit, base.unit, "calls")
        for maker in self._makers(klass):
            self._refer(frame.unit, maker.unit, "calls")
            self._pass(maker, given)

    def _makers(self, klass: Klass) -> Iterator[Func]:
        if klass.unit.module.by_name:
            for name in _MADE_BY:
                for maker in self._machine.find(self._machine.order(klass).classes, name) or ():
                    if isinstance(maker, Func):
                        yield Func(maker.unit, maker.frame, Inst(klass) if name == "__init__" else klass)
            return
        for base in self._machine.order(klass).classes:
            makers = [
                unit for unit in base.unit.methods if unit.function is not None and unit.function.kind == "constructor"
            ]
            yield from [Func(unit, base.frame, Inst(klass)) for unit in makers]
            if makers:
                return

    def derived(self, klass: Klass, statement: Class, bases: tuple[Values, ...]) -> None:
        """Note the bases of a class."""
        if not self._is_symbol(klass.unit):
            return
        for (written, line), values in zip(statement.bases, bases, strict=True):
            self._line = line
            found = False
            settled = self._machine.settle(values)
            for value in settled:
                match value:
                    case Klass():
                        self._refer(klass.unit, value.unit, "inherits")
                    case Ext(name=name):
                        self._refer(klass.unit, name, "inherits", "external")
                    case Builtin(name=name):
                        self._refer(klass.unit, name, "inherits", "builtin")
                    case _:
                        continue
                found = True
            if not found:
                reasons = [value.reason for value in settled if isinstance(value, Unknown)]
                self._now.unresolved[id(written)] = reasons[0] if reasons else "unknown_value"

    def imported(self, found: Found, line: int) -> None:
        """Note an import of a whole module."""
        self._line = line
        match found:
            case Place(files=files):
                for path in files:
                    if path != self._module.path:
                        self._refer(self._module.root, path, "imports")
            case External(name=name):
                self._refer(self._module.root, name, "imports", "external")
            case Missing(name=name):
                self._now.unresolved[hash((name, line))] = "missing_module"

    def taken(self, found: Found, statement: From) -> None:
        """Note an import of names: of the submodules among them, and of the module itself if it has any of the others."""
        if not isinstance(found, Place):
            self.imported(found, statement.line)
            return
        itself = not statement.names
        for name, _ in statement.names:
            below = None
            if name != "*" and not self._machine.offers(found, name):
                below = self._machine.rules.below(found, name, self._module.path, self._machine.files)
            if isinstance(below, Place):
                self.imported(below, statement.line)
            else:
                itself = True
        if itself:
            self.imported(found, statement.line)

    # --- what is noted -----------------------------------------------------------------------------------------------

    @staticmethod
    def _is_symbol(unit: Unit) -> bool:
        return unit.qualname in unit.module.symbols

    def _refer(self, source: Unit, target: Target, kind: Kind, scope: Scope = "corpus") -> None:
        if isinstance(target, str) and scope != "corpus" and self._module.language == "java":
            target = _ARITY.sub("", target)
        self._now.references.setdefault(Reference(source, target, kind, scope), self._line)

    def _pass(self, func: Func, given: Given | None) -> None:
        """Note what a call hands to the parameters of a function, as far as anything follows from it."""
        if given is None:
            return
        machine = self._machine
        own = machine.is_own(func.unit.module)
        if own and func.receiver is not None and not func.unit.module.by_name:
            machine.hand(func.unit, THIS, (func.receiver,))
        for name, values in machine.explicit(func, given).items():
            if own:
                settled = known(machine.settle(values))
                useful = [each for each in settled if not isinstance(each, Literal) or name in func.unit.keys]
                if useful:
                    machine.hand(func.unit, name, tuple(useful))
            elif name != func.unit.first and func.unit.qualname in func.unit.module.symbols:
                machine.files.ask(func.unit.module, FOUND, func.unit.qualname)
                for text in self._texts(values):
                    self._now.handed[Handed(func.unit.id, func.unit.numbered(name), text)] = None

    def _texts(self, values: Values) -> Iterable[str]:
        for value in known(values):
            unit = (
                value.unit if isinstance(value, Func | Klass) else value.klass.unit if isinstance(value, Inst) else None
            )
            if unit is not None and unit.qualname in unit.module.symbols:
                yield unit.id + "()" if isinstance(value, Inst) else unit.id

    # --- the end -----------------------------------------------------------------------------------------------------

    def references(self) -> Iterator[tuple[Reference, int]]:
        """Yield all references with their lines."""
        for findings in self.findings.values():
            yield from findings.references.items()

    def unresolved(self) -> Counter[str]:
        """Count what led nowhere, by reason."""
        return Counter([reason for findings in self.findings.values() for reason in findings.unresolved.values()])

    def handed(self) -> tuple[Handed, ...]:
        """Return what the file hands to other files' functions."""
        return tuple(sorted({each for findings in self.findings.values() for each in findings.handed}))

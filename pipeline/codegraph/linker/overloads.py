"""Which of several methods of one name a call means, where the types of its arguments decide (Java).

A method is bound under its name and its number of parameters (`f/1`), so what is left to tell apart are overloads of equal
number, those that take any number, and those that a class inherits. The rules are those of the Java language specification
(15.12.2): the methods that fit without boxing, else with boxing, else by taking any number; of these the most specific. What a
type is, is taken from the text alone (`Types`): where it is not known, a method fits perhaps, and a call that perhaps means
another one is ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.codegraph.linker.session import Frame
from pipeline.codegraph.linker.types import Signature, Type, Types
from pipeline.codegraph.linker.values import AMBIGUOUS, Box, Func, Inst, Klass, Mod, Super, Value, Values, union
from pipeline.codegraph.summary import Attribute, Call, Choice, Class, Expression, First

OVERLOADING = frozenset({"java"})
"""Languages in which several functions share a name."""

SHARING = frozenset({"rust"})
"""Languages in which functions share a name, since of some only one is compiled, or since they are of several traits."""

_FRAMES = 4  # from a call to what it is called on

Meant = tuple[Values, bool]
"""What a call calls, and whether it is sure which overload of it: else its edges are right, and what it gives is unknown."""

Candidate = tuple[Klass, Func]


class Overloads(Types):
    """Chooses among overloads."""

    def meant(self, form: Call, frame: Frame) -> Meant:
        """Return what a call calls, whose arguments were looked at."""
        self.level += _FRAMES
        found = self.called[id(form)] = self._meant(form.of, form, frame)
        self.level -= _FRAMES
        return found

    def _meant(self, of: Expression, form: Call, frame: Frame) -> Meant:
        match of:
            case Attribute(of=holder, name=name) if "/" in name:
                parts = [self._of_value(value, of, form, frame) for value in self.evaluate(holder, frame)]
                return union([values for values, _ in parts]), all(sure for _, sure in parts)
            case First(options=options):
                return self._first_meant(options, form, frame)
            case Choice(options=options) if options:
                parts = [self._meant(option, form, frame) for option in options]
                there = [part for part in parts if _leads(part)]
                return there[0] if len(there) == 1 else (AMBIGUOUS, True) if there else parts[-1]
            case _:
                return self.evaluate(of, frame), True

    def _first_meant(self, options: tuple[Expression, ...], form: Call, frame: Frame) -> Meant:
        """Return what the first option that has it means; one with bases outside of the corpus may have it from there."""
        found: Meant = ((), True)
        hidden = False
        for option in options:
            found = self._meant(option, form, frame)
            if _leads(found):
                return (AMBIGUOUS, True) if hidden else found
            hidden = hidden or (isinstance(option, Attribute) and self._may_have(option, frame))
        return found

    def _may_have(self, option: Attribute, frame: Frame) -> bool:
        klass = self.type_of(option.of, frame).klass
        return klass is not None and self.open_to(klass, _bare(option.name))

    # --- of one value ------------------------------------------------------------------------------------------------

    def _of_value(self, value: Value, of: Attribute, form: Call, frame: Frame) -> Meant:
        """Return what a call of a method of a value calls, whatever the text sees the value as."""
        match value:
            case Inst(klass=klass) | Super(klass=klass):
                pass
            case Klass():
                klass = value
            case _:
                return self.attribute(value, of.name, frame), True
        name, views = of.name, self.order(klass).classes
        if isinstance(value, Super):
            views = tuple([each for each in views[1:] if not _is_interface(each)][:1])
        found = self._listed(views, name)
        sure = True
        if len(found) > 1 or (found and self.open_to(klass, _bare(name))):
            found.clear()
            listed = {view: self._methods(self.order(view).classes, name) for view in views}
            given = tuple([self.type_of(argument, frame) for argument in form.arguments])
            seen_as = value if isinstance(value, Klass) else self.type_of(of.of, frame).klass
            for view in [seen_as] if seen_as in listed else listed:
                one, certain = self._chosen(listed[view], given)
                sure = sure and certain
                found += one if isinstance(value, Super) else [self._overriding(klass, each, name) for each in one]
        return self._bound(found, value, klass, name, sure, frame)

    def _bound(
        self, found: Sequence[Candidate], value: Inst | Klass | Super, klass: Klass, name: str, sure: bool, frame: Frame
    ) -> Meant:
        if not found:
            return self.inherited_outside(self.order(klass), name), True
        if len({func.unit.id for _, func in found}) > 1:
            return AMBIGUOUS, True
        receiver = value.receiver if isinstance(value, Super) else value
        functions = list(dict.fromkeys([func for _, func in found]))
        told = {func.unit.function.returns: func for func in reversed(functions) if func.unit.function is not None}
        return union([self.bind(func, receiver, klass, frame) for func in told.values()]), sure and len(functions) == 1

    def _listed(self, views: tuple[Klass, ...], name: str) -> list[Candidate]:
        """Return all methods of the first of the classes and its bases."""
        classes = self.order(views[0]).classes if views else ()
        return [(klass, func) for klass in classes for func in self._own_methods(klass, name)]

    def _methods(self, classes: tuple[Klass, ...], name: str) -> list[Candidate]:
        """Return the methods that the first class has, its own and inherited ones, without those that it overrides."""
        found: list[Candidate] = []
        for klass in classes:
            before = list(found)
            for func in self._own_methods(klass, name):
                inherited = klass is classes[0] or not _is_private(func)
                if inherited and not any(self._overrides(one, func) for _, one in before):
                    found.append((klass, func))
        return found

    def _own_methods(self, klass: Klass, name: str) -> list[Func]:
        found: list[Func] = []
        for value in self.own_member(klass, name) or ():
            listed = [each for _, held in value.items for each in held] if isinstance(value, Box) else [value]
            found += [each for each in listed if isinstance(each, Func)]
        return found

    def _overrides(self, one: Func, other: Func) -> bool:
        if _is_private(other):
            return False
        mine, its = self.signature(one), self.signature(other)
        return len(mine.types) == len(its.types) and all(map(self.same_parameter, mine.types, its.types))

    def _overriding(self, klass: Klass, candidate: Candidate, name: str) -> Candidate:
        """Return what is run in an object of this class."""
        owner, func = candidate
        if func.unit.function is None or func.unit.function.kind in ("static", "private"):
            return candidate
        for each in self.order(klass).classes:
            if each == owner:
                break
            for own in self._own_methods(each, name):
                if self._overrides(own, func):
                    return each, own
        return candidate

    # --- the choice --------------------------------------------------------------------------------------------------

    def _chosen(self, found: list[Candidate], given: tuple[Type, ...]) -> tuple[list[Candidate], bool]:
        """Return those of the methods that a call may mean; sure if it is the only one."""
        possible: list[tuple[Candidate, bool]] = []
        phases = 0
        for boxing, spread in ((False, False), (True, False), (True, True)):
            fitting = [
                (each, fits)
                for each in found
                if (fits := self._fits(self.signature(each[1]), given, boxing, spread)) is not False
                and each not in [held for held, _ in possible]
            ]
            possible += [(each, fits is True) for each, fits in fitting]
            phases += bool(fitting)
            if any(fits for _, fits in fitting):
                break
        if phases == 1 and len(possible) > 1:
            for each, fits in possible:
                if fits and all(self._more_specific(each, other, given) for other, _ in possible if other != each):
                    return [each], True
        return [each for each, _ in possible], len(possible) <= 1

    def _fits(self, signature: Signature, given: tuple[Type, ...], boxing: bool, spread: bool) -> bool | None:
        if spread and not signature.spread:
            return False
        types = signature.of(len(given)) if spread else signature.types
        if len(types) != len(given):
            return False
        return _all(self.converts(argument, wanted, boxing) for argument, wanted in zip(given, types, strict=True))

    def _more_specific(self, one: Candidate, other: Candidate, given: tuple[Type, ...]) -> bool:
        """Whether one of two that fit is meant. What is given just what it asks for asks for no more than another one."""
        mine, its = self.signature(one[1]), self.signature(other[1])
        if len(mine.types) != len(given) or len(its.types) != len(given):
            return False
        parts = zip(mine.types, its.types, given, strict=True)
        return all((a == c and a.kind != "") or self.converts(a, b, False) for a, b, c in parts)

    def agreed(self, values: Values) -> Values:
        """Return what functions of one entity give that all say the same of it, else that it is not known."""
        functions = [value for value in values if isinstance(value, Func)]
        written = {func.unit.function.returns for func in functions if func.unit.function is not None}
        return (self.declared(functions[0]) if len(written) == 1 else ()) or AMBIGUOUS

    # --- constructors ------------------------------------------------------------------------------------------------

    def constructor(self, klass: Klass, form: Call, frame: Frame) -> tuple[tuple[Func, ...], bool]:
        """Return the constructors that a call may mean, of which there is one entity; sure if it is the only one."""
        makers = [
            unit for unit in klass.unit.methods if unit.function is not None and unit.function.kind == "constructor"
        ]
        found = [(klass, Func(unit, klass.frame, Inst(klass))) for unit in makers]
        given = tuple([self.type_of(argument, frame) for argument in form.arguments])
        chosen, sure = self._chosen(found, given)
        return tuple([func for _, func in chosen]), sure


def share_an_entity(values: Values) -> bool:
    """Whether several of the functions are one entity."""
    units = {value.unit for value in values if isinstance(value, Func)}
    return len(units) > 1 and len({unit.id for unit in units}) < len(units)


def _bare(key: str) -> str:
    return key.rpartition("/")[0]


def _is_interface(klass: Klass) -> bool:
    return isinstance(klass.unit.node, Class) and klass.unit.node.kind == "interface"


def _is_private(func: Func) -> bool:
    return func.unit.function is not None and func.unit.function.kind == "private"


def _leads(meant: Meant) -> bool:
    return any(isinstance(value, Func | Klass | Inst | Mod) for value in meant[0]) or meant[0] == AMBIGUOUS


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    found: bool | None = True
    for verdict in verdicts:
        if verdict is False:
            return False
        found = found and verdict
    return found

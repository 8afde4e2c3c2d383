"""Expressions to values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from pipeline.codegraph.linker.bindings import MUTATORS, THIS
from pipeline.codegraph.linker.classes import method_of
from pipeline.codegraph.linker.overloads import OVERLOADING, SHARING, Overloads, share_an_entity
from pipeline.codegraph.linker.session import LEVELS, Frame
from pipeline.codegraph.linker.values import (
    EMPTY,
    NO_GIVEN,
    NOTHING,
    TOO_DEEP,
    UNKNOWN,
    Box,
    Builtin,
    Ext,
    Func,
    Given,
    Inst,
    Klass,
    Literal,
    Mod,
    Unknown,
    Values,
    box,
    join,
    union,
)
from pipeline.codegraph.linker.values import Super as SuperValue
from pipeline.codegraph.summary import (
    Attribute,
    Awaited,
    Call,
    Choice,
    Comprehension,
    Constant,
    Expression,
    First,
    Index,
    Instance,
    Lambda,
    Mapping,
    Name,
    Opaque,
    Sequence,
    Star,
    Super,
    This,
    Walrus,
    Yield,
)

_FRAMES = 3  # from an expression to the one in it


class Evaluator(Overloads):
    """Evaluates expressions."""

    def evaluate(self, expression: Expression, frame: Frame) -> Values:
        """See `Names`."""
        return self.settle(self.value(expression, frame))

    def value(self, expression: Expression, frame: Frame) -> Values:
        """See `Calls`."""
        if type(expression) is Name:
            return self.lookup(expression.name, frame)
        if frame.record is None:
            self.steps -= 1
            if self.steps <= 0:
                return TOO_DEEP
        if self.level > LEVELS:
            return TOO_DEEP
        self.level += _FRAMES
        found = _HANDLERS[type(expression)](self, expression, frame)
        self.level -= _FRAMES
        return found

    @abstractmethod
    def assign(self, target: Expression, values: Values, frame: Frame) -> None:
        """Bind a target to values."""

    def item(self, of: Box, keys: Values) -> Values:
        """See `BuiltinCalls`."""
        found: Values = ()
        for key in keys:
            if isinstance(key, Literal) and key.value is not None:
                place = key.value
                if isinstance(place, int) and place < 0 and of.kind in ("list", "tuple") and not of.others:
                    place += len(of.items)
                found = join(found, of.get(place) or of.others)
            else:
                found = join(found, of.all())
        return found

    def make_defaults(self, func: Func, frame: Frame) -> None:
        """Look at the defaults of a function where it is defined; in Python that is when they are evaluated."""
        frame = frame if func.unit.module.by_name else frame.quiet()
        parameters = func.unit.function.parameters if func.unit.function is not None else ()
        made = {each.name: self.evaluate(each.default, frame) for each in parameters if each.default is not None}
        if made:
            self.defaults[func.unit, func.frame] = made

    @staticmethod
    def this(frame: Frame) -> Values:
        """Return what `this` is in a frame."""
        scope: Frame | None = frame
        while scope is not None:
            function = scope.unit.function
            if function is None or not function.bound:
                break
            scope = scope.outer
        return (scope.this if scope is not None else ()) or UNKNOWN


def _name(self: Evaluator, form: Name, frame: Frame) -> Values:
    return self.lookup(form.name, frame)


def _constant(self: Evaluator, form: Constant, frame: Frame) -> Values:
    return (Literal(form.type, form.value),)


def _attribute(self: Evaluator, form: Attribute, frame: Frame) -> Values:
    found: Values = ()
    for value in self.evaluate(form.of, frame):
        found = join(found, self.attribute(value, form.name, frame))
    return found


def _call(self: Evaluator, form: Call, frame: Frame) -> Values:
    if frame.unit.module.language in OVERLOADING:
        given = self.given(form, frame)
        values, sure = self.meant(form, frame)
    else:
        values = self.evaluate(form.of, frame)
        sure = frame.unit.module.language not in SHARING or not share_an_entity(values)
        given = self.given(form, frame)
    if frame.record is not None:
        frame.record.site(frame, form, values, given if sure else None)
    if not sure:
        return self.agreed(values)
    found: Values = ()
    self.changed = EMPTY
    for value in values:
        frame.site = id(form)
        found = join(found, self.call(value, given, frame))
    of = form.of.of if isinstance(form.of, Attribute) and form.of.name in MUTATORS else None
    if isinstance(of, Attribute) and self.changed and frame.stores is not None:
        frame.stores.append((of.name, self.evaluate(of.of, frame), self.changed))
    return found


def _sequence(self: Evaluator, form: Sequence, frame: Frame) -> Values:
    items: list[tuple[str | int, Values]] = []
    others: Values = ()
    for each in form.items:
        if isinstance(each, Star):
            others = join(others, self.elements(self.evaluate(each.of, frame), frame))
        elif len(items) >= 64:
            others = join(others, self.value(each, frame))
        else:
            items.append((len(items), self.value(each, frame)))
    if others:
        return box("list", (), union([others, *[values for _, values in items]]), id(form))
    return box("list", items, others, id(form))


def _mapping(self: Evaluator, form: Mapping, frame: Frame) -> Values:
    items: dict[str | int, Values] = {}
    others: Values = ()
    for key, each in form.items:
        values = self.value(each, frame)
        if key == "**":
            for value in self.settle(values):
                if isinstance(value, Box):
                    items.update(value.items)
                    others = join(others, value.others)
                else:
                    others = join(others, UNKNOWN)
        elif key is None or len(items) >= 200:
            others = join(others, values)
        else:
            items[key] = values
    made = box("dict" if frame.unit.module.by_name else "object", items.items(), others, id(form))
    if frame.record is not None and not frame.unit.module.by_name:
        _hand_itself(self, made)
    return made


def _hand_itself(self: Evaluator, made: Values) -> None:
    """Tell the methods that an object holds what their object is."""
    for held in made:
        for value in self.settle(held.all()) if isinstance(held, Box) else ():
            if isinstance(held, Box) and isinstance(value, Func) and method_of(value, held) is not value:
                self.hand(value.unit, THIS, made)


def _index(self: Evaluator, form: Index, frame: Frame) -> Values:
    values = self.evaluate(form.of, frame)
    keys = self.evaluate(form.key, frame)
    found: Values = ()
    for value in values:
        if isinstance(value, Box):
            found = join(found, _sliced(value, keys) or self.item(value, keys) or UNKNOWN)
        elif isinstance(value, Klass | Ext | Builtin):
            found = join(found, (value,))
        elif isinstance(value, Inst):
            found = join(found, self.apply(self.method(value.klass, "__getitem__"), Given((keys,)), frame) or UNKNOWN)
        else:
            found = join(found, (value,) if isinstance(value, Unknown) else UNKNOWN)
    return found


def _sliced(of: Box, keys: Values) -> Values:
    """Return a part of a sequence, or nothing where the key is none of a part."""
    if len(keys) != 1 or not isinstance(keys[0], Literal) or keys[0].type != "slice":
        return ()
    bounds = keys[0].value
    if not isinstance(bounds, str) or of.others or of.kind not in ("list", "tuple"):
        return box(of.kind, others=of.all())
    start, stop, step = [int(bound) if bound else None for bound in bounds.split(":")]
    return box(of.kind, enumerate([values for _, values in of.items][slice(start, stop, step or None)]))


def _star(self: Evaluator, form: Star, frame: Frame) -> Values:
    return self.value(form.of, frame)


def _choice(self: Evaluator, form: Choice, frame: Frame) -> Values:
    for condition in form.conditions:
        self.value(condition, frame)
    return union([self.value(option, frame) for option in form.options])


def _first(self: Evaluator, form: First, frame: Frame) -> Values:
    values: Values = UNKNOWN
    for option in form.options:
        values = self.evaluate(option, frame)
        if any(isinstance(value, Func | Klass | Inst | Mod) for value in values):
            break
    return values


def _awaited(self: Evaluator, form: Awaited, frame: Frame) -> Values:
    found: Values = ()
    for value in self.evaluate(form.of, frame):
        if isinstance(value, Box) and value.kind == "coroutine":
            found = join(found, value.others)
        elif isinstance(value, Inst) and (waits := self.method(value.klass, "__await__")):
            self.apply(waits, NO_GIVEN, frame)
            found = join(found, UNKNOWN)
        else:
            found = join(found, (value,))
    return found


def _yield(self: Evaluator, form: Yield, frame: Frame) -> Values:
    values = self.value(form.of, frame) if form.of is not None else NOTHING
    frame.yields = join(frame.yields, self.elements(values, frame) if form.all else values)
    return UNKNOWN


def _super(self: Evaluator, form: Super, frame: Frame) -> Values:
    klass = frame.klass
    if klass is None:
        return UNKNOWN
    return tuple([SuperValue(klass, value) for value in self.this(frame) if isinstance(value, Inst | Klass)]) or UNKNOWN


def _this(self: Evaluator, form: This, frame: Frame) -> Values:
    return self.this(frame)


def _lambda(self: Evaluator, form: Lambda, frame: Frame) -> Values:
    unit = frame.unit.module.unit(form.function, frame.unit)
    func = Func(unit, frame.closure())
    if frame.record is not None:
        frame.record.defined(func, frame)
        self.make_defaults(func, frame)
    return (func,)


def _comprehension(self: Evaluator, form: Comprehension, frame: Frame) -> Values:
    before = frame.env
    frame.env = dict(before)
    for target, source in form.clauses:
        self.assign(target, self.elements(self.evaluate(source, frame), frame), frame)
    for condition in form.conditions:
        self.value(condition, frame)
    results = [self.value(each, frame) for each in form.result]
    frame.env = before
    if not results:
        return UNKNOWN
    return box("list" if len(results) == 1 else "dict", others=results[-1], site=id(form))


def _walrus(self: Evaluator, form: Walrus, frame: Frame) -> Values:
    values = self.value(form.value, frame)
    self.assign(form.target, values, frame)
    return values


def _instance(self: Evaluator, form: Instance, frame: Frame) -> Values:
    return self.typed(form.type, frame) or UNKNOWN


def _opaque(self: Evaluator, form: Opaque, frame: Frame) -> Values:
    for part in form.parts:
        self.value(part, frame)
    return UNKNOWN


_HANDLERS: dict[type, Callable[[Evaluator, Any, Frame], Values]] = {
    Name: _name, Attribute: _attribute, Constant: _constant, Call: _call, Sequence: _sequence, Mapping: _mapping,
    Index: _index, Star: _star, Choice: _choice, Awaited: _awaited, Yield: _yield, Super: _super, This: _this,
    First: _first, Lambda: _lambda, Comprehension: _comprehension, Walrus: _walrus, Instance: _instance, Opaque: _opaque,
}  # fmt: skip

"""What a call gives: arguments to parameters, into the function and back."""

from __future__ import annotations

from abc import abstractmethod

from pipeline.codegraph.linker.asked import BODY
from pipeline.codegraph.linker.bindings import RESULT
from pipeline.codegraph.linker.classes import Classes
from pipeline.codegraph.linker.scopes import Unit
from pipeline.codegraph.linker.session import CALLS, CONTEXTS, Frame
from pipeline.codegraph.linker.values import (
    DEEPEST,
    NO_GIVEN,
    NOTHING,
    TOO_DEEP,
    UNKNOWN,
    Box,
    Builtin,
    Func,
    Given,
    Inst,
    Klass,
    Later,
    Literal,
    Mod,
    Value,
    Values,
    box,
    depth_of,
    join,
    known,
    union,
)
from pipeline.codegraph.summary import (
    Attribute,
    Call,
    Choice,
    Constant,
    Expression,
    First,
    Index,
    Name,
    Parameter,
    Sequence,
    Star,
)

_EITHER = frozenset({"Optional", "Union", "Final", "ClassVar", "Annotated", "Required", "NotRequired", "Self"})
_MANY = frozenset({
    "list", "List", "set", "Set", "frozenset", "FrozenSet", "Sequence", "MutableSequence", "Iterable", "Iterator",
    "Collection", "AbstractSet", "Generator", "AsyncIterator", "AsyncIterable", "AsyncGenerator", "deque", "Deque",
})  # fmt: skip
_KEYED = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "DefaultDict", "OrderedDict"})

Bound = dict[str, Values]
_Outcome = tuple[Values, tuple[tuple[Box, Values], ...]]  # what a call gives, and which containers become what
_NEITHER: _Outcome = ((), ())


class Calls(Classes):
    """Follows calls."""

    # --- any value ---------------------------------------------------------------------------------------------------

    def call(self, value: Value, given: Given, frame: Frame) -> Values:
        """Return what calling a value gives; what depends on nothing but the arguments may wait."""
        match value:
            case Func():
                if self._can_wait(value, given):
                    depth = 1 + max(map(depth_of, _all(given)), default=0)
                    return (Later(value, given, depth),) if depth <= DEEPEST else TOO_DEEP
                return self.invoke(value, given, frame)
            case Klass():
                return (Inst(value),)
            case Inst(klass=klass):
                return union([self.call(each, given, frame) for each in self.method(klass, "__call__")]) or UNKNOWN
            case Builtin():
                return self.call_builtin(value, given, frame)
            case Mod(place=place):
                whole = self.member(place, "=")
                return (
                    UNKNOWN if whole is None else union([self.call(each, given, frame) for each in self.settle(whole)])
                )
            case _:
                return UNKNOWN

    @abstractmethod
    def call_builtin(self, value: Builtin, given: Given, frame: Frame) -> Values:
        """Return what calling something of the language gives."""

    def _can_wait(self, func: Func, given: Given) -> bool:
        """Whether a call gives the same later: nothing that it could look at is still being run."""
        if func.unit.changes or self._touches(func.unit) or not self._is_settled(func):
            return False
        return all(self._is_settled(value) for values in _all(given) for value in values)

    def _touches(self, unit: Unit) -> frozenset[str]:
        """Return the names of the file that is linked which running a function changes."""
        return unit.touches if self.is_own(unit.module) else frozenset()

    def _is_settled(self, value: Value) -> bool:
        if isinstance(value, Func | Klass):
            running = self.own is None or self.own.open
            return value.frame is None and not (running and self.is_own(value.unit.module))
        if isinstance(value, Inst):
            return self._is_settled(value.klass)
        return not isinstance(value, Box)

    # --- functions ---------------------------------------------------------------------------------------------------

    def invoke(self, func: Func, given: Given, frame: Frame | None = None) -> Values:
        """See `Names`. A container that the function changes is changed where `frame` names it."""
        unit = func.unit
        if not unit.binds(RESULT) and not unit.changes and not self._touches(unit):
            return self.declared(func) or NOTHING
        if unit in self.calling:
            return self.declared(func)  # what a call of itself gives is among what its other ways give
        if len(self.calling) >= CALLS or self.steps <= 0:
            return self.declared(func) or TOO_DEEP
        contexts = self.contexts.setdefault(unit, {})
        if len(contexts) >= CONTEXTS:
            one, what = contexts.get((func, given), (Func(unit, func.frame), None))
        else:
            one, what = contexts[func, given] = func, given
        self.calling.add(unit)
        values, changed = self.once(("call", one, what), lambda: self._run(one, what), _NEITHER)
        self.calling.discard(unit)
        if frame is not None:
            for old, new in changed:
                self.change(frame, old, new)
        return values

    def _run(self, func: Func, given: Given | None) -> _Outcome:
        unit = func.unit
        self.files.ask(unit.module, BODY, unit.qualname)
        if given is None:  # any call
            frame = self.assumed(unit, func.frame, self.class_of(unit, func.frame))
            bound = frame.env
        else:
            bound = self.arguments(func, given)
            frame = Frame(unit, func.frame, bound)
            frame.klass = self.class_of(unit, func.frame)
            frame.this = (func.receiver,) if func.receiver is not None else ()
        frame.wanted = unit.wanted(RESULT).union(*map(unit.wanted, self._touches(unit)))
        boxes: list[tuple[str, Box]] = []
        for name in sorted(unit.changes):
            frame.wanted |= unit.wanted(name)
            boxes.extend([(name, value) for value in bound.get(name, ()) if isinstance(value, Box)])
        self.run(unit.body, frame)
        changed = [(old, now) for name, old in boxes if old not in (now := frame.env.get(name, (old,)))]
        return self.result(func, frame), tuple(changed)

    def result(self, func: Func, frame: Frame) -> Values:
        """Return what a call that ran in this frame gives."""
        function = func.unit.function
        if function is None:
            return UNKNOWN
        if function.generator:
            return box("generator", others=known(frame.yields) or UNKNOWN, site=id(function))
        values = frame.returns
        if not known(values):
            values = self._returns(func) or values
        if function.coroutine:
            return box("coroutine", others=values or NOTHING, site=id(function))
        return values

    def declared(self, func: Func) -> Values:
        """Return what a call gives as far as the function says."""
        values = self._returns(func)
        coroutine = func.unit.function is not None and func.unit.function.coroutine
        return box("coroutine", others=values) if values and coroutine else values

    def _returns(self, func: Func) -> Values:
        unit = func.unit
        if unit.function is None or unit.function.returns is None or unit.parent is None:
            return ()
        return self.typed(unit.function.returns, self.view(unit.parent, func.frame))

    # --- arguments ---------------------------------------------------------------------------------------------------

    def arguments(self, func: Func, given: Given) -> Bound:
        """Return the values of all parameters in one call; those that the call leaves out have their defaults."""
        bound = self.explicit(func, given)
        function = func.unit.function
        parent = func.unit.parent
        if function is None or parent is None:
            return bound
        for parameter in function.parameters:
            if parameter.name not in bound:
                bound[parameter.name] = self._left_out(func, parameter, parent)
        return bound

    def _left_out(self, func: Func, parameter: Parameter, parent: Unit) -> Values:
        if parameter.kind in ("*", "**"):
            return (Box("tuple" if parameter.kind == "*" else "dict"),)
        values = self.default(func.unit, func.frame, parameter)
        if not known(values) and parameter.type is not None:
            values = self.typed(parameter.type, self.view(parent, func.frame))
        return values or UNKNOWN

    def explicit(self, func: Func, given: Given) -> Bound:
        """Return the values of those parameters that a call gives something."""
        function = func.unit.function
        bound: Bound = {}
        if function is None:
            return bound
        positional = list(given.positional)
        if func.receiver is not None and func.unit.module.by_name:
            positional.insert(0, (func.receiver,))
        named = dict(given.named)
        spread = named.pop("**", ())
        for parameter in function.parameters:
            if parameter.kind == "*":
                items = enumerate(positional)
                bound[parameter.name] = box("tuple", items, given.rest)
                positional = []
            elif parameter.kind == "**":
                bound[parameter.name] = box("dict", named.items(), _others(spread))
            elif positional and parameter.kind != "k":
                bound[parameter.name] = positional.pop(0)
            elif parameter.name in named and parameter.kind != "/":
                bound[parameter.name] = named.pop(parameter.name)
            elif values := _spread(given, spread, parameter):
                bound[parameter.name] = values
        return bound

    def given(self, expression: Call, frame: Frame) -> Given:
        """Return what a call passes."""
        positional: list[Values] = []
        rest: Values = ()
        spread = False
        for argument in expression.arguments:
            if isinstance(argument, Star):
                values = self.evaluate(argument.of, frame)
                items = sequence_of(values)
                if items is None or spread:
                    spread = True
                    rest = join(rest, self.elements(values, frame))
                else:
                    positional.extend(items)
            elif spread:
                rest = join(rest, self.value(argument, frame))
            else:
                positional.append(self.value(argument, frame))
        named: list[tuple[str, Values]] = []
        for name, argument in expression.named:
            values = self.value(argument, frame)
            boxes = [value for value in self.settle(values) if isinstance(value, Box)] if name == "**" else []
            if len(boxes) == 1 and not boxes[0].others:
                named.extend([(key, held) for key, held in boxes[0].items if isinstance(key, str)])
            else:
                named.append((name, values))
        if not (positional or named or spread):
            return NO_GIVEN
        return Given(tuple(positional), tuple(named), rest, spread)

    @abstractmethod
    def value(self, expression: Expression, frame: Frame) -> Values:
        """Return what an expression may be; parts of it may wait."""

    @abstractmethod
    def elements(self, values: Values, frame: Frame) -> Values:
        """Return what going through the values gives."""

    # --- types -------------------------------------------------------------------------------------------------------

    def typed(self, written: Expression, frame: Frame) -> Values:
        """See `Classes`."""
        match written:
            case Choice(options=options):
                return union([self.typed(each, frame) for each in options])
            case Constant(type="None"):
                return ()
            case Sequence(items=(item,)):
                held = self.typed(item, frame)
                return box("list", others=held) if held or not isinstance(item, Choice | Constant) else ()
            case Index(of=of, key=key):
                return self._generic(of, key, frame)
            case Name() | Attribute() | First():
                return self._instances(self.evaluate(written, frame.quiet()))
            case _:
                return ()

    def _instances(self, values: Values) -> Values:
        found: list[Value] = []
        for value in values:
            if isinstance(value, Klass):
                found.append(Inst(value))
            elif isinstance(value, Builtin) and "." not in value.name and value.receiver is None:
                found.append(Literal(value.name))
        return tuple(found)

    def _generic(self, of: Expression, key: Expression, frame: Frame) -> Values:
        name = of.name if isinstance(of, Name | Attribute) else ""
        keys = key.items if isinstance(key, Sequence) else (key,)
        if name in _EITHER:
            return union([self.typed(each, frame) for each in keys])
        if name in _MANY and keys:
            return box("list", others=self.typed(keys[0], frame))
        if name in ("tuple", "Tuple"):
            return box("tuple", enumerate([self.typed(each, frame) for each in keys]))
        if name in _KEYED and len(keys) == 2:
            return box("dict", others=self.typed(keys[1], frame))
        if name in ("type", "Type") and keys:
            return tuple([each for each in self.evaluate(keys[0], frame.quiet()) if isinstance(each, Klass)])
        return tuple([each for each in self.typed(of, frame) if isinstance(each, Inst)])


def sequence_of(values: Values) -> list[Values] | None:
    """Return the items of the only sequence there is, if all of them are known."""
    boxes = [value for value in values if isinstance(value, Box)]
    if len(boxes) != 1 or len(values) != 1 or boxes[0].others or boxes[0].kind not in ("list", "tuple"):
        return None
    return [held for _, held in boxes[0].items]


def _all(given: Given) -> list[Values]:
    return [*given.positional, *[values for _, values in given.named], given.rest]


def _others(values: Values) -> Values:
    return union([value.all() for value in values if isinstance(value, Box)])


def _spread(given: Given, spread: Values, parameter: Parameter) -> Values:
    """Return what a star may give to a parameter."""
    found = given.rest if given.spread and parameter.kind != "k" else ()
    for value in spread:
        if isinstance(value, Box):
            found = join(found, value.get(parameter.name) or value.others)
    return found

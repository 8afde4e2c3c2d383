"""Classes: their order of bases, their members, and what an attribute of any value is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from pipeline.codegraph.linker.asked import ATTACHED, BODY, MEMBER
from pipeline.codegraph.linker.bindings import THIS
from pipeline.codegraph.linker.names import Names
from pipeline.codegraph.linker.scopes import Module, Unit
from pipeline.codegraph.linker.session import Frame
from pipeline.codegraph.linker.values import (
    EMPTY,
    NO_GIVEN,
    UNKNOWN,
    Box,
    Builtin,
    Ext,
    Func,
    Inst,
    Klass,
    Literal,
    Mod,
    Super,
    Unknown,
    Value,
    Values,
    join,
    known,
    union,
)
from pipeline.codegraph.summary import Class, Expression, Parameter

_STRICT = frozenset({"java"})  # languages in which a parameter holds nothing but what its type says
_EMBEDDING = frozenset({"go"})  # languages whose classes hold others instead of extending them
_ATTACHING = frozenset({"go", "rust"})  # languages in which methods stand outside of their classes
NO_ATTRIBUTE: Values = (Unknown("unknown_attribute"),)


@dataclass(frozen=True, slots=True)
class Order:
    """A class and its bases in the order in which members are looked for; the bases outside; whether others are unknown."""

    classes: tuple[Klass, ...]
    outside: tuple[Ext, ...] = ()
    builtin: tuple[str, ...] = ()
    open: bool = False


class Classes(Names):
    """Looks members up."""

    # --- the order of bases ------------------------------------------------------------------------------------------

    def order(self, klass: Klass) -> Order:
        """Return where members of a class are looked for, as C3 has it, and without that where C3 finds none."""
        return self.once(("order", klass), lambda: self._order(klass), Order((klass,), open=True))

    def _order(self, klass: Klass) -> Order:
        if klass.unit.module.language in _EMBEDDING:
            return self._by_depth(klass)
        outside: dict[Ext, None] = {}
        builtin: dict[str, None] = {}
        unknown = False
        direct: list[Klass] = []
        for values in self.bases_of(klass):
            for value in self.settle(values):
                if isinstance(value, Klass) and value != klass:
                    direct.append(value)
                elif isinstance(value, Ext):
                    outside[value] = None
                elif isinstance(value, Builtin):
                    builtin[value.name] = None
                else:
                    unknown = True
        orders = [self.order(base) for base in direct]
        for order in orders:
            outside.update(dict.fromkeys(order.outside))
            builtin.update(dict.fromkeys(order.builtin))
            unknown |= order.open
        merged = merge([*(list(order.classes) for order in orders), list(dict.fromkeys(direct))])
        return Order((klass, *[each for each in merged if each != klass]), tuple(outside), tuple(builtin), unknown)

    def _by_depth(self, klass: Klass) -> Order:
        """Return the order where what is embedded less deeply wins: nothing is known below what is not of the corpus."""
        found: dict[Klass, None] = {}
        outside: dict[Ext, None] = {}
        builtin: dict[str, None] = {}
        level, unknown = [klass], False
        while level and not (outside or builtin or unknown):
            found.update(dict.fromkeys(level))
            values = [value for each in level for base in self.bases_of(each) for value in self.settle(base)]
            level = [value for value in values if isinstance(value, Klass) and value not in found]
            outside.update(dict.fromkeys([value for value in values if isinstance(value, Ext)]))
            builtin.update(dict.fromkeys([value.name for value in values if isinstance(value, Builtin)]))
            unknown = not all(isinstance(value, Klass | Ext | Builtin) for value in values)
        found.update(dict.fromkeys(level))
        hidden = any(self.bases_of(each) for each in level)
        return Order(tuple(found), tuple(outside), tuple(builtin), unknown or hidden)

    def bases_of(self, klass: Klass) -> tuple[Values, ...]:
        """Return what the bases are; they were looked at where the class statement was run."""
        found = self.bases.get(klass)
        if found is None:
            frame = self.view(klass.unit.parent or klass.unit, klass.frame)
            node = klass.unit.node
            written = node.bases if isinstance(node, Class) else ()
            found = self.bases[klass] = tuple([self.evaluate(base, frame) for base, _ in written])
        return found

    def view(self, unit: Unit, outer: Frame | None) -> Frame:
        """Return a frame in which the names of a scope can be looked up without running it."""
        if outer is not None and outer.unit is unit:
            return outer.quiet()
        if unit.kind == "function":
            self.files.ask(unit.module, BODY, unit.qualname)
        frame = Frame(unit, outer)
        frame.view = True
        if unit.kind == "class":
            frame.klass = Klass(unit, outer)
        return frame

    # --- members -----------------------------------------------------------------------------------------------------

    def own_member(self, klass: Klass, name: str) -> Values | None:
        """See `Names`."""
        self.files.ask(klass.unit.module, MEMBER, klass.unit.qualname, name)
        if klass.unit.has(name):
            return self.once(("own", klass, name), lambda: self._end_of_class(klass, name), EMPTY)
        return self._attached(klass, name)

    def _end_of_class(self, klass: Klass, name: str) -> Values:
        frame = Frame(klass.unit, klass.frame)
        frame.klass = klass
        frame.wanted = klass.unit.wanted(name)
        self.run(klass.unit.body, frame)
        return frame.env.get(name, ())

    def class_of(self, unit: Unit, outer: Frame | None) -> Klass | None:
        """Return the class that a function is a method of; it may stand outside of it (Go, Rust)."""
        if unit.parent is not None and unit.parent.kind == "class":
            return Klass(unit.parent, outer)
        if unit.function is None or not unit.function.receiver:
            return outer.klass if outer is not None else None
        for module in [unit.module, *self._beside(unit.module)]:
            found = self.found(module, unit.function.receiver)
            if found is not None and found.kind == "class":
                return Klass(found)
        values = self.settle(self.module_name(unit.module, unit.function.receiver) or ())
        return values[0] if len(values) == 1 and isinstance(values[0], Klass) else None  # of another file (Rust)

    def _beside(self, module: Module) -> list[Module]:
        around = self.rules.around(module.path, self.files)
        return [each for each in self.modules(around) if each is not module] if around is not None else []

    def _attached(self, klass: Klass, name: str) -> Values | None:
        """Return a method that stands outside of its class (Go, Rust)."""
        module = klass.unit.module
        if module.language not in _ATTACHING:
            return None
        found = self.one_of(self._attached_in(each, klass, name) for each in (module, *self._beside(module)))
        return self._attached_here(klass, name) if found is None else found

    def _attached_here(self, klass: Klass, name: str) -> Values | None:
        """Return a method that the file that is linked gives to a class of another one (Rust)."""
        own = self.own.unit if self.own is not None else None
        if own is None or own.module is klass.unit.module:
            return None
        units = [unit for (_, method), listed in own.attached.items() if method == name for unit in listed]
        return tuple([Func(unit) for unit in units if self.class_of(unit, None) == klass]) or None

    def _attached_in(self, module: Module, klass: Klass, name: str) -> Values | None:
        self.files.ask(module, ATTACHED, klass.unit.qualname, name)
        return tuple(map(Func, module.root.attached.get((klass.unit.qualname, name), ()))) or None

    def find(self, classes: tuple[Klass, ...], name: str) -> Values | None:
        """Return the first of the classes' own members of this name."""
        for klass in classes:
            values = self.own_member(klass, name)
            if values is not None:
                return self.settle(values)
        return None

    def method(self, klass: Klass, name: str) -> Values:
        """Return a method that the language calls by itself, bound to an instance, or nothing."""
        values = self.find(self.order(klass).classes, name) or ()
        return union([self.bind(value, Inst(klass), klass, None) for value in values if isinstance(value, Func)])

    # --- attributes --------------------------------------------------------------------------------------------------

    def attribute(self, value: Value, name: str, frame: Frame | None = None) -> Values:
        """See `Names`. `frame` is where a getter's call is noted."""
        match value:
            case Inst(klass=klass):
                return self._of_instance(value, klass, name, frame)
            case Klass():
                return self._of_class(value, name, frame)
            case Mod(place=place):
                return self.refer(place, name, self.path)
            case Ext(name=above):
                return (Ext(f"{above}.{name}"),)
            case Builtin(name=above):
                return (Builtin(f"{above}.{name}"),)
            case Super(klass=klass, receiver=receiver):
                return self._of_super(klass, receiver, name, frame)
            case Box():
                return self._of_box(value, name)
            case Literal(type=kind):
                return () if kind == "None" else (Builtin(f"{kind}.{name}"),) if kind else UNKNOWN
            case Func():
                return self._set_elsewhere(value, name) or NO_ATTRIBUTE
            case _:
                return (value,)

    def _of_box(self, box: Box, name: str) -> Values:
        if box.kind == "object":
            values = box.get(name) or box.others or NO_ATTRIBUTE
            return tuple([method_of(value, box) for value in values])
        return (Builtin(f"{box.kind}.{name}", box),)

    def _of_instance(self, value: Inst, klass: Klass, name: str, frame: Frame | None) -> Values:
        order = self.order(klass)
        found = join(self._set_by_methods(klass, order, name), self._set_elsewhere(value, name))
        members = self.find(order.classes, name)
        if members is not None and not (found and all(isinstance(each, Func) for each in members)):
            bound = [self.bind(each, value, klass, frame) for each in members]
            found = join(found, union(bound))
        if found or members is not None:
            return found
        return self.inherited_outside(order, name)

    def _of_class(self, klass: Klass, name: str, frame: Frame | None) -> Values:
        order = self.order(klass)
        found = self._set_elsewhere(klass, name)
        members = self.find(order.classes, name)
        if members is not None:
            found = join(found, union([self.bind(each, klass, klass, frame) for each in members]))
        return found if found or members is not None else self.inherited_outside(order, name)

    def _of_super(self, klass: Klass, receiver: Inst | Klass, name: str, frame: Frame | None) -> Values:
        own = receiver.klass if isinstance(receiver, Inst) else receiver
        order = self.order(own)
        if klass not in order.classes:
            order = self.order(klass)
        after = order.classes[order.classes.index(klass) + 1 :]
        members = self.find(after, name)
        if members is None:
            return self.inherited_outside(order, name)
        return union([self.bind(each, receiver, own, frame) for each in members])

    def inherited_outside(self, order: Order, name: str) -> Values:
        """Return the member of the only base outside of the corpus, unless every object has one of this name."""
        if name.startswith("__") and name.endswith("__"):
            return () if not order.outside and not order.open else UNKNOWN
        if len(order.outside) == 1 and not order.open and not order.builtin:
            return (Ext(f"{order.outside[0].name}.{name}"),)
        if len(order.builtin) == 1 and not order.open and not order.outside:
            return (Builtin(f"{order.builtin[0]}.{name}"),)
        return NO_ATTRIBUTE

    def bind(self, value: Value, receiver: Inst | Klass, klass: Klass, frame: Frame | None) -> Values:
        """Return a member of a class as it is seen through an instance or the class."""
        if not isinstance(value, Func) or value.unit.function is None or value.receiver is not None:
            return (value,)
        kind = value.unit.function.kind
        if kind == "static":
            return (value,)
        if kind == "class":
            return (Func(value.unit, value.frame, klass),)
        if isinstance(receiver, Klass):
            return (value,)
        if value.unit.module.language in _EMBEDDING:  # what is embedded does not know in what
            owner = self.class_of(value.unit, value.frame)
            receiver = Inst(owner) if owner is not None else receiver
        bound = Func(value.unit, value.frame, receiver)
        if kind != "getter":
            return (bound,)
        if frame is not None and frame.record is not None:
            frame.record.call(frame, bound, NO_GIVEN)
        return self.settle(self.invoke(bound, NO_GIVEN, frame))

    # --- attributes that statements set ------------------------------------------------------------------------------

    def _set_by_methods(self, klass: Klass, order: Order, name: str) -> Values:
        """Return what the methods of a class and its bases set an attribute of their object to."""
        found: Values = ()
        for owner in order.classes:
            self.files.ask(owner.unit.module, MEMBER, owner.unit.qualname, name)
            for unit in owner.unit.setters.get(name, ()):
                found = join(found, self._set_by(unit, owner, Inst(klass), name))
        return self.settle(found)

    def _set_by(self, unit: Unit, owner: Klass, value: Inst, name: str) -> Values:
        return self.once(
            ("set", unit, owner.frame, value, name), lambda: self._run_setter(unit, owner, value, name), EMPTY
        )

    def _run_setter(self, unit: Unit, owner: Klass, value: Inst, name: str) -> Values:
        frame = self.assumed(unit, owner.frame, owner)
        receiver = owner if unit.function is not None and unit.function.kind == "class" else value
        frame.this = (receiver,)
        if unit.first:
            frame.env[unit.first] = (receiver,)
        self.files.ask(unit.module, BODY, unit.qualname)
        frame.wanted = unit.wanted(f".{name}")
        frame.stores = []
        self.run(unit.body, frame)
        mine = [values for set_name, of, values in frame.stores if set_name == name and receiver in of]
        return union(mine)

    def _set_elsewhere(self, value: Value, name: str) -> Values:
        """Return what statements of the file that is linked set an attribute of something else than their object to."""
        own = self.own
        if own is None or name not in own.unit.module.set_outside:
            return ()
        found: Values = ()
        for unit in own.unit.module.set_outside[name]:
            for of, values in self._stored(unit, name):
                if value in of or (isinstance(value, Inst) and value.klass in of):
                    found = join(found, values)
        return self.settle(found)

    def _stored(self, unit: Unit, name: str) -> tuple[tuple[Values, Values], ...]:
        nothing: tuple[tuple[Values, Values], ...] = ()
        return self.once(("stores", unit, name), lambda: self._stores(unit, name), nothing)

    def _stores(self, unit: Unit, name: str) -> tuple[tuple[Values, Values], ...]:
        parent = unit.parent
        frame = self.frames.get(parent) if parent is not None else None
        outer = frame.closure() if frame is not None else None
        run = self.assumed(unit, outer, self.class_of(unit, outer))
        run.wanted = unit.wanted(f".{name}")
        run.stores = []
        self.run(unit.body, run)
        return tuple([(of, values) for set_name, of, values in run.stores if set_name == name])

    # --- what parameters are, and types ------------------------------------------------------------------------------

    def assumed(self, unit: Unit, outer: Frame | None, klass: Klass | None) -> Frame:
        """Return a frame of a function with what its parameters are, as far as its callers and its text tell."""
        frame = Frame(unit, outer)
        frame.klass = klass
        function = unit.function
        if function is None:
            return frame
        receiver: Values = ()
        if klass is not None and (function.receiver or (unit.parent is not None and unit.parent.kind == "class")):
            receiver = (klass,) if function.kind in ("class", "static") else (Inst(klass),)
        frame.this = receiver if unit.module.by_name else join(receiver, self.passed(unit, THIS))
        for parameter in function.parameters:
            values = self.passed(unit, parameter.name)
            if parameter.name == unit.first:
                values = join(receiver, values) or UNKNOWN
                frame.this = values
            else:
                values = join(values, self.default(unit, outer, parameter))
                values = self._declared_as(unit, outer, parameter.type, values)
            if parameter.kind == "*":
                values = self.boxed("tuple", values)
            elif parameter.kind == "**":
                values = self.boxed("dict", values)
            frame.env[parameter.name] = values
        return frame

    def boxed(self, kind: str, values: Values) -> Values:
        """Return what a parameter for all the rest holds."""
        given = [value for value in values if isinstance(value, Box) and value.kind == kind]
        return tuple(given) if given else (Box(kind, others=known(values) or UNKNOWN),)

    def default(self, unit: Unit, outer: Frame | None, parameter: Parameter) -> Values:
        """Return what a parameter is that a call leaves out."""
        if parameter.default is None or unit.parent is None:
            return ()
        made = self.defaults.get((unit, outer))
        if made is not None and parameter.name in made:
            return made[parameter.name]
        return self.evaluate(parameter.default, self.view(unit.parent, outer))

    def _declared_as(self, unit: Unit, outer: Frame | None, written: Expression | None, values: Values) -> Values:
        if unit.module.language in _STRICT and written is not None and unit.parent is not None and values:
            values = self._fitting(values, self.typed(written, self.view(unit.parent, outer)))
        told = [value for value in known(values) if not isinstance(value, Literal)]
        if written is not None and unit.parent is not None and not told:
            values = join(values, self.typed(written, self.view(unit.parent, outer)))
        return values or UNKNOWN

    def _fitting(self, values: Values, declared: Values) -> Values:
        """Return the values without the objects that cannot be of a declared class."""
        classes = [value.klass for value in declared if isinstance(value, Inst)]
        if len(classes) != 1:
            return values
        wanted = self.order(classes[0]).classes
        return tuple(
            [
                value
                for value in values
                if not isinstance(value, Inst) or value.klass in wanted or classes[0] in self.order(value.klass).classes
            ]
        )

    @abstractmethod
    def typed(self, written: Expression, frame: Frame) -> Values:
        """Return the values that a type stands for; nothing where the type says nothing."""


def method_of(value: Value, box: Box) -> Value:
    """Return what an object holds, a method bound to it."""
    if not isinstance(value, Func) or value.receiver is not None or value.unit.function is None:
        return value
    return Func(value.unit, value.frame, box) if value.unit.function.kind == "method" else value


def merge(orders: list[list[Klass]]) -> list[Klass]:
    """Return the C3 linearization of these orders; where there is none, all classes as they come."""
    waiting = [list(order) for order in orders if order]
    found: list[Klass] = []
    while waiting:
        heads = [order[0] for order in waiting]
        head = next((each for each in heads if all(each not in other[1:] for other in waiting)), None)
        if head is None:
            return list(dict.fromkeys([*found, *[klass for order in waiting for klass in order]]))
        found.append(head)
        shorter = [[klass for klass in order if klass != head] for order in waiting]
        waiting = [order for order in shorter if order]
    return found

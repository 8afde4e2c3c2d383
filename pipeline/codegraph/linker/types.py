"""What types the text gives to expressions and parameters (Java), and which of them fit where.

Types are erased: what stands between `<` and `>` is not known. What has a parameter of types as its type is of some type that is
not known, unless it is a variable where that parameter is declared. Each question has three answers: None where the corpus does
not tell, as of the bases of a class outside of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.codegraph.linker.builtin import BuiltinCalls
from pipeline.codegraph.linker.jdk import BOXES, FINAL, MEMBERS, WIDER, bases_of_builtin
from pipeline.codegraph.linker.scopes import Unit
from pipeline.codegraph.linker.session import LEVELS, Frame, Noted
from pipeline.codegraph.linker.values import Builtin, Ext, Func, Klass, Values
from pipeline.codegraph.links import Rules
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Call,
    Choice,
    Class,
    Constant,
    Expression,
    First,
    Index,
    Instance,
    Lambda,
    Name,
    Sequence,
    This,
)

_FRAMES = 4  # from an expression to the one in it
_STEPS = 12  # levels of expressions whose type is looked for


@dataclass(frozen=True, slots=True)
class Type:
    """A class of the corpus, or by its name something else; `kind`: unknown ``, `primitive`, `builtin`, `external`, `class`,
    `array` (of `item`), `variable` (with `item` as its bound), `null`, `lambda`.
    """

    kind: str = ""
    name: str = ""
    klass: Klass | None = None
    item: Type | None = None


NO_TYPE = Type()
OBJECT = Type("builtin", "Object")
_GIVEN = frozenset(
    {"Enum", "Record", "Comparable", "Constable", "Serializable"}
)  # bases that the language itself gives
_NULL = Type("null")
_LAMBDA = Type("lambda")
_ALWAYS = {
    "toString/0": Type("builtin", "String"),
    "hashCode/0": Type("primitive", "int"),
    "equals/1": Type("primitive", "boolean"),
}


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a method's parameters; `spread`: the last one may be given any number of times."""

    types: tuple[Type, ...]
    spread: bool = False

    def of(self, count: int) -> tuple[Type, ...]:
        """Return what this many arguments are to be of."""
        if not self.spread:
            return self.types
        last = self.types[-1].item or NO_TYPE
        return (*self.types[:-1], *[last] * (count - len(self.types) + 1)) if count >= len(self.types) - 1 else ()


class Types(BuiltinCalls):
    """Knows types."""

    def __init__(self, path: str, files: Noted, rules: Rules) -> None:
        super().__init__(path, files, rules)
        self.called: dict[int, tuple[Values, bool]] = {}
        """What calls called when they were looked at last, and whether it is sure which overload."""

    # --- of declarations ---------------------------------------------------------------------------------------------

    def written(self, form: Expression | None, frame: Frame) -> Type:
        """Return the type that a form of a type means in a frame."""
        match form:
            case Constant(type=name) if name:
                return Type("primitive", name)
            case Sequence(items=(item,)):
                return Type("array", item=self.written(item, frame))
            case Choice(options=options):
                return Type("variable", item=self.written(options[0], frame) if options else OBJECT)
            case Name() | Attribute() | First():
                return self._of_class_named(self.evaluate(form, frame.quiet()))
            case _:
                return NO_TYPE

    @staticmethod
    def _of_class_named(values: Values) -> Type:
        match values:
            case (Klass() as klass,):
                return Type("class", klass.unit.id, klass)
            case (Builtin(name=name, receiver=None),) if "." not in name:
                return Type("builtin", name)
            case (Ext(name=name),):
                return Type("external", name)
            case _:
                return NO_TYPE

    def signature(self, func: Func) -> Signature:
        """Return the types of a method's parameters."""
        return self.once(("signature", func.unit, func.frame), lambda: self._signature(func), Signature(()))

    def _signature(self, func: Func) -> Signature:
        unit = func.unit
        if unit.function is None or unit.parent is None:
            return Signature(())
        frame = self.view(unit.parent, func.frame)
        parameters = unit.function.parameters
        types = [self.written(parameter.type, frame) for parameter in parameters]
        spread = bool(parameters) and parameters[-1].kind == "*"
        if spread and types[-1].kind != "array":
            types[-1] = Type("array", item=NO_TYPE)
        return Signature(tuple(types), spread)

    def returned(self, func: Func) -> Type:
        """Return the type of what a method gives."""
        unit = func.unit
        if unit.function is None or unit.parent is None:
            return NO_TYPE
        return _seen_outside(self.written(unit.function.returns, self.view(unit.parent, func.frame)))

    def field(self, klass: Klass, name: str) -> Type:
        """Return the type of a field of a class."""
        for owner in self.order(klass).classes:
            if self.own_member(owner, name) is not None:
                frame = self.view(owner.unit, owner.frame)
                for leaf in owner.unit.binds(name):
                    if isinstance(leaf.statement, Assign) and leaf.statement.type is not None:
                        return self.written(leaf.statement.type, frame)
                    if isinstance(leaf.statement, Assign) and isinstance(leaf.statement.value, Instance):
                        return self.written(leaf.statement.value.type, frame)
                return NO_TYPE
        return NO_TYPE

    # --- of expressions ----------------------------------------------------------------------------------------------

    def type_of(self, form: Expression, frame: Frame, steps: int = _STEPS) -> Type:
        """Return the type of an expression, as the text has it."""
        if steps <= 0 or self.level > LEVELS:
            return NO_TYPE
        self.level += _FRAMES
        found = self._type_of(form, frame, steps)
        self.level -= _FRAMES
        return found

    def _type_of(self, form: Expression, frame: Frame, steps: int) -> Type:
        match form:
            case This():
                return self._of_this(frame)
            case Name(name=name):
                return self._of_variable(name, frame, steps)
            case Attribute(of=of, name=name):
                return self._of_field(of, name, frame, steps)
            case Call():
                return self._of_call(form, frame)
            case Choice(options=options):
                return self._of_choice(options, frame, steps)
            case _:
                return self._of_plain(form, frame, steps)

    def _of_plain(self, form: Expression, frame: Frame, steps: int) -> Type:
        match form:
            case Constant(type=name) if name:
                return Type("builtin", name) if name == "String" else Type("primitive", name)
            case Instance(type=written):
                return self.written(written, frame)
            case Index(of=of):
                held = self.type_of(of, frame, steps - 1)
                return held.item if held.kind == "array" and held.item is not None else NO_TYPE
            case Sequence(items=(Instance(type=written),)):
                return Type("array", item=self.written(written, frame))
            case Lambda():
                return _LAMBDA
            case _:
                return NO_TYPE

    def _of_this(self, frame: Frame) -> Type:
        scope: Frame | None = frame
        while scope is not None and scope.unit.function is not None and scope.unit.function.bound:
            scope = scope.outer
        klass = scope.klass if scope is not None else None
        return Type("class", klass.unit.id, klass) if klass is not None else NO_TYPE

    def _of_variable(self, name: str, frame: Frame, steps: int) -> Type:
        scope: Frame | None = frame
        while scope is not None and (scope.unit.function is None or name not in scope.unit.bound):
            scope = scope.outer
        if scope is None:
            return NO_TYPE
        written, value = _declared(scope.unit, name)
        if written is not None:
            return self.written(written, scope)
        return NO_TYPE if value is None else _seen_outside(self.type_of(value, scope, steps - 1))

    def _of_field(self, of: Expression, name: str, frame: Frame, steps: int) -> Type:
        if "/" in name:
            return NO_TYPE
        holder = self.type_of(of, frame, steps - 1)
        if holder.kind == "array" and name == "length":
            return Type("primitive", "int")
        if holder.klass is None:
            values = self.evaluate(of, frame)
            if len(values) != 1 or not isinstance(values[0], Klass):
                return NO_TYPE
            holder = Type("class", klass=values[0])
        if holder.klass is None:
            return NO_TYPE
        found = self.field(holder.klass, name)
        return found if isinstance(of, This) else _seen_outside(found)

    def _of_call(self, form: Call, frame: Frame) -> Type:
        if form.new:
            return self._of_class_named(self.evaluate(form.of, frame))
        if isinstance(form.of, Attribute) and form.of.name in _ALWAYS:
            return _ALWAYS[form.of.name]
        values, sure = self.called.get(id(form), ((), False))
        types = {self.returned(value) if isinstance(value, Func) else NO_TYPE for value in values}
        return types.pop() if sure and len(types) == 1 else NO_TYPE

    def _of_choice(self, options: tuple[Expression, ...], frame: Frame, steps: int) -> Type:
        types = {self.type_of(option, frame, steps - 1) for option in options}
        if not types:
            return _NULL
        if len(types) == 2 and _NULL in types:
            types.discard(_NULL)
            return NO_TYPE if next(iter(types)).kind == "primitive" else types.pop()
        return types.pop() if len(types) == 1 else NO_TYPE

    # --- what fits ---------------------------------------------------------------------------------------------------

    def converts(self, one: Type, other: Type, boxing: bool) -> bool | None:
        """Whether a value of one type can be given where another is asked for."""
        if not one.kind or not other.kind:
            return False if one.kind == "primitive" and not boxing else None  # what has no name here is a class
        if one.kind == "primitive" or other.kind == "primitive":
            return self._with_primitives(one, other, boxing)
        if one.kind == "lambda":
            return self._takes_functions(other)
        return self.is_a(one, other)

    def _with_primitives(self, one: Type, other: Type, boxing: bool) -> bool | None:
        if one.kind == other.kind:
            return one.name == other.name or other.name in WIDER.get(one.name, ())
        if not boxing or one.kind in ("null", "lambda", "array") or other.kind == "array":
            return False
        if one.kind == "primitive":
            return self.is_a(Type("builtin", BOXES.get(one.name, "")), other)
        unboxed = next((name for name, held in BOXES.items() if one == Type("builtin", held)), "")
        if unboxed:
            return unboxed == other.name or other.name in WIDER.get(unboxed, ())
        return None if one.kind == "variable" else False

    def is_a(self, one: Type, other: Type) -> bool | None:
        """Whether what is of one class is of another, as far as the corpus and the language tell."""
        if not one.kind or not other.kind:
            return None
        if one.kind == "null" or one == other or other == OBJECT:
            return True
        if one.kind == "variable" or other.kind == "variable":
            return self._of_variables(one, other)
        if one.kind == "array" or other.kind == "array":
            return self._of_arrays(one, other)
        if one == OBJECT or (other.kind == "builtin" and other.name in FINAL):
            return False
        if one.klass is not None:
            return self._is_corpus_class_a(one.klass, other)
        if other.klass is not None:
            return False if one.kind == "builtin" else None
        if one.kind == "builtin":
            return _simple(other) in bases_of_builtin(one.name) or (False if one.name in FINAL else None)
        return None

    def _of_variables(self, one: Type, other: Type) -> bool | None:
        if one.kind == "variable" and other.kind != "variable":
            return True if one.item is not None and self.is_a(one.item, other) else None
        bound = other.item or OBJECT
        return False if one.kind != "variable" and self.is_a(one, bound) is False else None

    def _of_arrays(self, one: Type, other: Type) -> bool | None:
        if one.kind != other.kind:
            return one.kind == "array" and _simple(other) in ("Cloneable", "Serializable")
        mine, its = one.item or NO_TYPE, other.item or NO_TYPE
        if mine.kind and its.kind and "primitive" in (mine.kind, its.kind):
            return mine == its
        return self.is_a(mine, its)

    def _is_corpus_class_a(self, klass: Klass, other: Type) -> bool | None:
        order = self.order(klass)
        if other.klass is not None:
            return other.klass in order.classes or (None if order.open else False)
        names = {*order.builtin, *[each.name for each in order.outside]}
        if other.name in names or any(_simple(other) in bases_of_builtin(name) for name in order.builtin):
            return True
        plain = not order.outside and not order.open and all(name in MEMBERS for name in order.builtin)
        return False if plain and _simple(other) not in _GIVEN else None

    def _takes_functions(self, other: Type) -> bool | None:
        if other.kind == "builtin" and other.name in FINAL:
            return False
        node = other.klass.unit.node if other.klass is not None else None
        return False if other.kind == "array" or (isinstance(node, Class) and node.kind != "interface") else None

    def same_parameter(self, one: Type, other: Type) -> bool:
        """Whether a method with a parameter of the first type in a class overrides one with the second in its base: what was
        a parameter of types there may be of any class here.
        """
        if other.kind == "variable":
            return one.kind != "primitive" and (
                one.kind == "variable" or self.is_a(one, other.item or OBJECT) is not False
            )
        if one.kind == "array" and other.kind == "array":
            return self.same_parameter(one.item or NO_TYPE, other.item or NO_TYPE)
        return one == other

    def open_to(self, klass: Klass, name: str) -> bool:
        """Whether bases outside of the corpus may have a method of this name."""
        order = self.order(klass)
        if order.open:
            return True
        known = [*order.builtin, *[_simple(Type("external", each.name)) for each in order.outside]]
        return any(base not in MEMBERS or name in MEMBERS[base] for base in known)


def _simple(of: Type) -> str:
    """Return the name of a class of Java's own without its package, or nothing."""
    if of.kind == "builtin":
        return of.name
    return of.name.rpartition(".")[2] if of.kind == "external" and of.name.startswith("java.") else ""


def _seen_outside(of: Type) -> Type:
    """Return a type as it is known where its variables stand for types that are not known."""
    if of.kind == "variable":
        return NO_TYPE
    if of.kind == "array" and of.item is not None and of.item.kind == "variable":
        return Type("array", item=NO_TYPE)
    return of


def _declared(unit: Unit, name: str) -> tuple[Expression | None, Expression | None]:
    """Return what a function says of one of its variables: its type, or the value whose type it has."""
    for parameter in unit.function.parameters if unit.function is not None else ():
        if parameter.name == name:
            return parameter.type, None
    statements = [leaf.statement for leaf in unit.binds(name)]
    typed = [each for each in statements if isinstance(each, Assign) and each.targets == (Name(name),)]
    if not typed or typed[0] is not statements[0]:
        return None, None
    if typed[0].type is not None:
        return typed[0].type, None
    return (None, typed[0].value) if len(statements) == 1 or isinstance(typed[0].value, Instance) else (None, None)

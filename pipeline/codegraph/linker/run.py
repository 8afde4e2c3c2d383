"""Statements: what names mean after them.

Statements are run in order. Where the flow parts, both ways are run and what they bind is put together; a loop's body is
run until nothing new comes of it, twice at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pipeline.codegraph.linker.bindings import EXPORT
from pipeline.codegraph.linker.evaluate import Evaluator
from pipeline.codegraph.linker.names import module_value
from pipeline.codegraph.linker.session import Frame
from pipeline.codegraph.linker.values import (
    NO_GIVEN,
    UNKNOWN,
    Box,
    Builtin,
    Func,
    Given,
    Inst,
    Klass,
    Literal,
    Ref,
    Values,
    box,
    join,
    known,
    union,
)
from pipeline.codegraph.links import Found, Place
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Class,
    Define,
    Delete,
    Evaluate,
    Export,
    Expression,
    From,
    Import,
    Index,
    Loop,
    Name,
    Raise,
    Return,
    Scope,
    Sequence,
    Star,
    Try,
    With,
)

_SILENT = frozenset({"staticmethod", "classmethod", "property"})
_OF_PROPERTIES = frozenset({"setter", "getter", "deleter"})
_FRAMES = 2  # from a block to the one in it
_NESTED_LOOPS = 2  # levels of loops that are run twice

Env = dict[str, Values]


class Machine(Evaluator):
    """Runs statements."""

    def run(self, block: Block, frame: Frame) -> None:
        """See `Names`. With `wanted`, statements that bind none of those names are left out."""
        if frame.wanted is not None:
            block = frame.unit.part(block, frame.wanted)
        self.level += _FRAMES
        for statement in block:
            if frame.dead:
                break
            _HANDLERS[type(statement)](self, statement, frame)
        self.level -= _FRAMES

    # --- binding -----------------------------------------------------------------------------------------------------

    def assign(self, target: Expression, values: Values, frame: Frame) -> None:
        """See `Evaluator`."""
        match target:
            case Name(name=name):
                self.bind_name(name, values, frame)
            case Attribute(of=of, name=name):
                self._set_attribute(of, name, values, frame)
            case Index(of=of, key=key):
                self._set_item(of, self.evaluate(key, frame), values, frame)
            case Sequence(items=items):
                self._take_apart(items, self.settle(values), frame)
            case Star(of=of):
                self.assign(of, values, frame)
            case _:
                self.value(target, frame)

    def bind_name(self, name: str, values: Values, frame: Frame) -> None:
        """Bind a name in its scope; a name of another scope means more than before."""
        where = frame.unit.outside.get(name)
        if where is None:
            frame.env[name] = values
            if frame is self.own:
                self.own_sites.update([value.site for value in values if type(value) is Box])
            return
        scope = self._scope_of(name, frame, where)
        if scope is not None:
            scope.env[name] = join(scope.env.get(name, ()), values)

    def _scope_of(self, name: str, frame: Frame, of_file: bool) -> Frame | None:
        if of_file:
            return self.own if self.is_own(frame.unit.module) else None
        scope = frame.outer
        while scope is not None and not (scope.unit.kind == "function" and name in scope.unit.bound):
            scope = scope.outer
        return scope

    def _set_attribute(self, of: Expression, name: str, values: Values, frame: Frame) -> None:
        bases = self.evaluate(of, frame)
        if frame.stores is not None:
            frame.stores.append((name, bases, values))
        for base in bases:
            if isinstance(base, Box) and base.kind == "object":
                self.change(frame, base, with_item(base, name, values))

    def _set_item(self, of: Expression, keys: Values, values: Values, frame: Frame) -> None:
        bases = self.evaluate(of, frame)
        for base in bases:
            if isinstance(base, Box):
                new: Values = (base,)
                for key in keys or UNKNOWN:
                    place = key.value if isinstance(key, Literal) else None
                    new = union([with_item(each, place, values) for each in new if isinstance(each, Box)])
                self.change(frame, base, new)
                if isinstance(of, Attribute) and frame.stores is not None:
                    frame.stores.append((of.name, self.evaluate(of.of, frame), new))
            elif isinstance(base, Inst) and frame.record is not None:
                self.apply(self.method(base.klass, "__setitem__"), Given((keys, values)), frame)

    def _take_apart(self, targets: tuple[Expression, ...], values: Values, frame: Frame) -> None:
        star = next((place for place, target in enumerate(targets) if isinstance(target, Star)), None)
        parts: list[list[Values]] = [[] for _ in targets]
        for value in values:
            for place, part in enumerate(self._parts(value, len(targets), star, frame)):
                parts[place].append(part)
        for target, found in zip(targets, parts, strict=True):
            self.assign(target, union(found) or UNKNOWN, frame)

    def _parts(self, value: Any, count: int, star: int | None, frame: Frame) -> list[Values]:
        if not isinstance(value, Box) or value.others or value.kind not in ("list", "tuple"):
            each = self.elements((value,), frame)
            return [box("list", others=each) if place == star else each for place in range(count)]
        items = [held for _, held in value.items]
        if star is None:
            return [*items[:count], *[UNKNOWN] * (count - len(items))]
        after = count - star - 1
        middle = items[star : len(items) - after]
        return [*items[:star], box("list", enumerate(middle)), *items[len(items) - after :]][:count]

    # --- imports -----------------------------------------------------------------------------------------------------

    def first_part(self, found: Found, statement: Import, frame: Frame) -> Values:
        """Return what the first part of a dotted module's name means, once the whole was imported."""
        parts = statement.module.split(".")
        top = self.find_module(parts[0], statement.level, frame.unit.module.path)
        if isinstance(found, Place) and not isinstance(top, Place):
            whole = found.name.removesuffix("/").removesuffix(".py").removesuffix("/__init__")
            top = Place("/".join(whole.split("/")[: 1 - len(parts)]) + "/", ())
        return module_value(top)


def with_item(base: Box, key: str | int | None, values: Values) -> Values:
    """Return the container with one item set; under an unknown key it may be any."""
    if key is None:
        return box(base.kind, base.items, join(base.others, values), base.site)
    items = dict(base.items)
    items[key] = values
    return box(base.kind, items.items(), base.others, base.site)


def merged(envs: Iterable[Env]) -> Env:
    """Return what names mean after one of several ways was taken."""
    ways = list(envs)
    if not ways:
        return {}
    found = dict(ways[0])
    for way in ways[1:]:
        for name, values in way.items():
            held = found.get(name)
            if held is not values:
                found[name] = values if held is None else join(held, values)
    return found


# --- simple statements -----------------------------------------------------------------------------------------------


def _assign(self: Machine, statement: Assign, frame: Frame) -> None:
    values = self.value(statement.value, frame) if statement.value is not None else ()
    if statement.augmented:
        _augment(self, statement, values, frame)
        return
    if statement.type is not None and not _telling(self, values):
        values = join(values, self.typed(statement.type, frame))
    if statement.value is None and not values:
        return
    for target in statement.targets:
        self.assign(target, values, frame)


def _telling(self: Machine, values: Values) -> bool:
    """Whether values say more than that there is none yet."""
    for value in values:
        if isinstance(value, Box):
            if value.items or value.others:
                return True
        elif not isinstance(value, Literal) and known((value,)):
            return True
    return False


def _augment(self: Machine, statement: Assign, values: Values, frame: Frame) -> None:
    target = statement.targets[0]
    before = self.evaluate(target, frame)
    after: Values = ()
    for value in before:
        if isinstance(value, Box) and value.kind in ("list", "dict", "tuple"):
            others = join(value.others, self.elements(values, frame))
            after = join(after, box(value.kind, value.items, others, value.site))
        else:
            after = join(after, (Literal(value.type),) if isinstance(value, Literal) else UNKNOWN)
    self.assign(target, after or UNKNOWN, frame)


def _evaluate(self: Machine, statement: Evaluate, frame: Frame) -> None:
    self.value(statement.value, frame)


def _return(self: Machine, statement: Return, frame: Frame) -> None:
    if statement.value is not None:
        frame.returns = join(frame.returns, self.value(statement.value, frame))
    frame.dead = True


def _raise(self: Machine, statement: Raise, frame: Frame) -> None:
    if frame.record is not None and statement.value is not None:
        for value in self.evaluate(statement.value, frame):
            if isinstance(value, Klass):  # raising a class makes an instance of it
                frame.record.call(frame, value, NO_GIVEN)
    frame.dead = True


def _delete(self: Machine, statement: Delete, frame: Frame) -> None:
    for target in statement.targets:
        if isinstance(target, Name):
            frame.env.pop(target.name, None)
        elif isinstance(target, Attribute | Index):
            self.value(target.of, frame)


def _scope(self: Machine, statement: Scope, frame: Frame) -> None:
    pass


def _export(self: Machine, statement: Export, frame: Frame) -> None:
    frame.env[EXPORT + statement.name] = self.value(statement.value, frame)


# --- imports ---------------------------------------------------------------------------------------------------------


def _import(self: Machine, statement: Import, frame: Frame) -> None:
    path = frame.unit.module.path
    found = self.find_module(statement.module, statement.level, path)
    if frame.record is not None:
        frame.record.imported(found, statement.line)
    if statement.name:
        self.bind_name(statement.name, module_value(found), frame)
    elif self.rules.receiver_by_name:
        first = statement.module.split(".", 1)[0]
        values = self.first_part(found, statement, frame) if "." in statement.module else module_value(found)
        self.bind_name(first, values, frame)


def _from(self: Machine, statement: From, frame: Frame) -> None:
    path = frame.unit.module.path
    found = self.find_module(statement.module, statement.level, path)
    if frame.record is not None:
        frame.record.taken(found, statement)
    for name, bound in statement.names:
        if name == "*":
            continue
        values: Values = (Ref(found, name, path),)
        if bound:
            self.bind_name(bound, values, frame)
        if statement.exported:
            frame.env[EXPORT + bound] = values


# --- definitions -----------------------------------------------------------------------------------------------------


def _define(self: Machine, statement: Define, frame: Frame) -> None:
    unit = frame.unit.module.unit(statement.function, frame.unit)
    func = Func(unit, frame.closure())
    if frame.record is not None:
        frame.record.defined(func, frame)
    if frame.record is not None:
        self.make_defaults(func, frame)
    if statement.function.receiver:  # a name of its class, not of this scope
        return
    values: Values = (func,)
    for decorator, line in reversed(statement.decorators):
        values = _decorated(self, decorator, line, values, statement.name, frame)
    self.bind_name(statement.name, values, frame)


def _decorated(self: Machine, decorator: Expression, line: int, values: Values, name: str, frame: Frame) -> Values:
    """Return what a decorator makes of a definition; where nobody can tell, the definition itself."""
    if isinstance(decorator, Attribute) and decorator.name in _OF_PROPERTIES:
        before = frame.env.get(name)
        if before is not None:
            return before
    found: Values = ()
    for value in self.evaluate(decorator, frame):
        if isinstance(value, Builtin) and value.name in _SILENT:
            return values
        given = Given((values,))
        if frame.record is not None:
            frame.record.call(frame, value, given, line)
        if self.rules.receiver_by_name:
            found = join(found, known(self.settle(self.call(value, given, frame))))
    return _functions(found) or values


def _functions(values: Values) -> Values:
    """Return the values if they are more than literals."""
    return tuple([value for value in values if not isinstance(value, Literal)])


def _class(self: Machine, statement: Class, frame: Frame) -> None:
    unit = frame.unit.module.unit(statement, frame.unit)
    klass = Klass(unit, frame.closure())
    self.bases[klass] = tuple([self.value(base, frame) for base, _ in statement.bases])
    values: Values = (klass,)
    if frame.record is not None:
        frame.record.derived(klass, statement, self.bases[klass])
        inner = Frame(unit, frame.closure())
        inner.klass = klass
        inner.this = (Inst(klass),)
        inner.record = frame.record
        for _, value in statement.named:
            self.value(value, frame)
        self.run(statement.body, inner)
    for decorator, line in reversed(statement.decorators):
        values = _decorated(self, decorator, line, values, statement.name, frame)
    self.bind_name(statement.name, values, frame)


# --- compound statements ---------------------------------------------------------------------------------------------


def _branch(self: Machine, statement: Branch, frame: Frame) -> None:
    start = frame.env
    ways: list[Env] = [] if statement.total else [start]
    for arm in statement.arms:
        frame.env = dict(start)
        self.run(arm, frame)
        if not frame.dead:
            ways.append(frame.env)
        frame.dead = False
    frame.env = merged(ways) if ways else start
    frame.dead = not ways


def _loop(self: Machine, statement: Loop, frame: Frame) -> None:
    again = frame.loops < _NESTED_LOOPS and frame.unit.carried(statement)
    frame.loops += 1
    for _ in range(2 if again else 1):
        before = frame.env
        frame.env = dict(before)
        if statement.source is not None and statement.target is not None and _heads(statement, frame):
            self.assign(statement.target, self.elements(self.evaluate(statement.source, frame), frame), frame)
        elif statement.source is not None and frame.wanted is None:
            self.elements(self.evaluate(statement.source, frame), frame)
        self.run(statement.body, frame)
        after = [before] if frame.dead else [before, frame.env]
        frame.dead = False
        frame.env = merged(after)
        if frame.env == before:
            break
    frame.loops -= 1
    self.run(statement.orelse, frame)


def _heads(statement: Loop, frame: Frame) -> bool:
    """Whether the loop's own names matter."""
    if frame.wanted is None:
        return True
    return not frame.unit.head_binds(statement).isdisjoint(frame.wanted)


def _try(self: Machine, statement: Try, frame: Frame) -> None:
    start = frame.env
    frame.env = dict(start)
    self.run(statement.body, frame)
    stopped = merged([start, frame.env])
    ways: list[Env] = []
    if not frame.dead:
        self.run(statement.orelse, frame)
    if not frame.dead:
        ways.append(frame.env)
    for types, name, block in statement.handlers:
        frame.dead = False
        frame.env = dict(stopped)
        _catch(self, types, name, frame)
        self.run(block, frame)
        if not frame.dead:
            ways.append(frame.env)
    frame.dead = False
    frame.env = merged(ways) if ways else dict(stopped)
    self.run(statement.final, frame)
    frame.dead = frame.dead or not ways


def _catch(self: Machine, types: Expression | None, name: str, frame: Frame) -> None:
    if types is None or (not name and frame.wanted is not None):
        return
    values = self.evaluate(types, frame)
    if name:
        listed = union([self.settle(value.all()) if isinstance(value, Box) else (value,) for value in values])
        classes = [value for value in listed if isinstance(value, Klass)]
        frame.env[name] = tuple([Inst(klass) for klass in classes]) or UNKNOWN


def _with(self: Machine, statement: With, frame: Frame) -> None:
    for manager, target in statement.items:
        values = self.evaluate(manager, frame)
        entered: Values = ()
        for value in values:
            if isinstance(value, Inst):
                begin = self.method(value.klass, "__enter__") or self.method(value.klass, "__aenter__")
                end = self.method(value.klass, "__exit__") or self.method(value.klass, "__aexit__")
                given = self.apply(begin, NO_GIVEN, frame)
                self.apply(end, Given((UNKNOWN, UNKNOWN, UNKNOWN)), frame)
                entered = join(entered, _awaited(self.settle(given)))
            elif isinstance(value, Box):
                entered = join(entered, self.elements((value,), frame))
        if target is not None:
            self.assign(target, entered or UNKNOWN, frame)
    self.run(statement.body, frame)


def _awaited(values: Values) -> Values:
    return union(
        [value.others if isinstance(value, Box) and value.kind == "coroutine" else (value,) for value in values]
    )


_HANDLERS: dict[type, Callable[[Machine, Any, Frame], None]] = {
    Assign: _assign, Evaluate: _evaluate, Return: _return, Raise: _raise, Delete: _delete, Scope: _scope, Export: _export,
    Import: _import, From: _from, Define: _define, Class: _class, Branch: _branch, Loop: _loop, Try: _try, With: _with,
}  # fmt: skip

"""What single statements bind and use.

Besides plain names, a statement can bind `RESULT` (it returns or yields), `.name` (it sets that attribute of something, or
changes its items) and `EXPORT` with a name (the file offers something under it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Call,
    Class,
    Constant,
    Define,
    Delete,
    Evaluate,
    Export,
    Expression,
    Form,
    From,
    Function,
    Import,
    Index,
    Lambda,
    Loop,
    Name,
    Raise,
    Return,
    Sequence,
    Star,
    Statement,
    This,
    Try,
    Walrus,
    With,
    Yield,
)

RESULT = "<result>"
THIS = "<this>"  # the parameter through which an object gets into its methods
EXPORT = "<export>"  # followed by the name under which a file offers something
MUTATORS = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "push", "set"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A statement, or the head of a compound one, with what it binds and uses.

    `names` are those of `binds` that get a value, and do not only hold something that changes.
    """

    statement: Statement
    names: frozenset[str]
    binds: frozenset[str]
    uses: frozenset[str]


def walk(root: object) -> Iterator[Form]:
    """Yield all forms below, nested definitions among them."""
    stack = [root]
    while stack:
        form = stack.pop()
        if isinstance(form, tuple):
            stack.extend(cast("tuple[object, ...]", form))
        elif isinstance(form, Form):
            yield form
            if type(form) not in (Name, Constant):
                stack.extend([getattr(form, field) for field in form.__struct_fields__])


def leaves(block: Block, deep: bool, by_name: bool) -> Iterator[Leaf]:
    """Yield the statements of a block in order, compound ones taken apart. For `deep` and `by_name` see `_Seen`."""
    for statement in block:
        seen = _Seen(deep, by_name)
        handler = _LOOKERS.get(type(statement))
        if handler is not None:
            handler(seen, statement)
        yield Leaf(statement, frozenset(seen.binds), frozenset(seen.binds | seen.changes), frozenset(seen.uses))
        for inner in _inner(statement):
            yield from leaves(inner, deep, by_name)


def _inner(statement: Statement) -> tuple[Block, ...]:
    """Return the blocks of a compound statement that belong to the same scope."""
    match statement:
        case Branch(arms=arms):
            return arms
        case Loop(body=body, orelse=orelse):
            return (body, orelse)
        case Try(body=body, handlers=handlers, orelse=orelse, final=final):
            return (body, *(block for _, _, block in handlers), orelse, final)
        case With(body=body):
            return (body,)
        case _:
            return ()


def sum_binds(block: Block, heads: dict[int, frozenset[str]], found: dict[int, frozenset[str]]) -> frozenset[str]:
    """Return what a block binds; of each statement in it, blocks and all, it is put into `found`, by identity."""
    total: set[str] = set()
    for statement in block:
        own = heads[id(statement)]
        for inner in _inner(statement):
            own |= sum_binds(inner, heads, found)
        found[id(statement)] = found.get(id(statement), frozenset()) | own
        total |= own
    return frozenset(total)


class _Seen:
    """Collects the names of one statement. `deep`: what nested definitions use counts, as they see this scope's names."""

    def __init__(self, deep: bool, by_name: bool) -> None:
        self.deep = deep
        self.by_name = by_name
        self.binds: set[str] = set()
        self.changes: set[str] = set()
        self.uses: set[str] = set()

    def look(self, *roots: object) -> None:
        """Note what expressions use, and bind on their way."""
        stack = list(roots)
        while stack:
            form = stack.pop()
            if isinstance(form, Name):
                self.uses.add(form.name)
            elif isinstance(form, Attribute):
                stack.append(form.of)
            elif isinstance(form, tuple):
                stack.extend(cast("tuple[object, ...]", form))
            elif isinstance(form, Call):
                if isinstance(form.of, Attribute) and form.of.name in MUTATORS:
                    self.changed(form.of.of)
                stack.append(form.of)
                stack.extend(form.arguments)
                stack.extend([value for _, value in form.named])
            elif isinstance(form, Form) and not isinstance(form, Constant):
                self._form(form, stack)

    def _form(self, form: Form, stack: list[object]) -> None:
        if isinstance(form, Lambda):
            self.function(form.function)
            return
        if isinstance(form, Walrus):
            self.target(form.target)
            stack.append(form.value)
            return
        if isinstance(form, Yield):
            self.binds.add(RESULT)
        stack.extend([getattr(form, field) for field in form.__struct_fields__])

    def changed(self, base: Expression) -> None:
        """Note that the items of something change."""
        if isinstance(base, Name):
            self.changes.add(base.name)
        elif isinstance(base, Attribute):
            self.binds.add(f".{base.name}")
        elif isinstance(base, Index):
            self.changed(base.of)

    def target(self, target: Expression) -> None:
        """Note what an assignment binds."""
        match target:
            case Name(name=name):
                self.binds.add(name)
            case Attribute(of=of, name=name):
                self.binds.add(f".{name}")
                self.look(of)
                if not self.by_name and not isinstance(of, This):
                    self.changed(of)
            case Index(of=of, key=key):
                self.changed(of)
                self.look(of, key)
            case Sequence(items=items):
                for item in items:
                    self.target(item)
            case Star(of=of):
                self.target(of)
            case _:
                self.look(target)

    def function(self, function: Function) -> None:
        """Note what making a function uses."""
        if self.deep:
            for parameter in function.parameters:
                self.look(parameter.default)
            self.everything(function.body)

    def everything(self, root: object) -> None:
        """Note every name below."""
        self.uses.update([form.name for form in walk(root) if isinstance(form, Name)])


def _define(seen: _Seen, statement: Define) -> None:
    if statement.function.receiver:  # a name of its class, not of this scope
        return
    seen.binds.add(statement.name)
    seen.look(statement.decorators)
    seen.function(statement.function)
    if statement.function.kind == "getter" or statement.decorators:
        seen.uses.add(statement.name)  # a property's setter is made of the property


def _class(seen: _Seen, statement: Class) -> None:
    seen.binds.add(statement.name)
    seen.look(statement.bases, statement.decorators, statement.named)
    if seen.deep:
        seen.everything(statement.body)


def _assign(seen: _Seen, statement: Assign) -> None:
    for target in statement.targets:
        seen.target(target)
        if statement.augmented:
            seen.look(target)
    seen.look(statement.value, statement.type)


def _import(seen: _Seen, statement: Import) -> None:
    if statement.name or seen.by_name:
        seen.binds.add(statement.name or statement.module.split(".", 1)[0])


def _from(seen: _Seen, statement: From) -> None:
    seen.binds.update([bound for _, bound in statement.names if bound and bound != "*"])
    if statement.exported:
        seen.binds.update([f"{EXPORT}{bound}" for _, bound in statement.names if bound])


def _export(seen: _Seen, statement: Export) -> None:
    seen.binds.add(f"{EXPORT}{statement.name}")
    seen.look(statement.value)


def _result(seen: _Seen, statement: Return) -> None:
    seen.binds.add(RESULT)
    seen.look(statement.value)


def _head(seen: _Seen, statement: Loop) -> None:
    if statement.target is not None:
        seen.target(statement.target)
    seen.look(statement.source)


def _caught(seen: _Seen, statement: Try) -> None:
    for types, name, _ in statement.handlers:
        seen.look(types)
        if name:
            seen.binds.add(name)


def _managers(seen: _Seen, statement: With) -> None:
    for value, target in statement.items:
        seen.look(value)
        if target is not None:
            seen.target(target)


def _value(seen: _Seen, statement: Evaluate | Raise) -> None:
    seen.look(statement.value)


def _delete(seen: _Seen, statement: Delete) -> None:
    for target in statement.targets:
        if isinstance(target, Name):
            seen.binds.add(target.name)


_LOOKERS: dict[type, Callable[[_Seen, Any], None]] = {
    Assign: _assign, Evaluate: _value, Return: _result, Raise: _value, Loop: _head, Try: _caught, With: _managers,
    Delete: _delete, Import: _import, From: _from, Export: _export, Define: _define, Class: _class,
}  # fmt: skip


def names_in(targets: Iterable[Expression]) -> frozenset[str]:
    """Return the plain names that an assignment to these targets binds."""
    seen = _Seen(False, True)
    for target in targets:
        seen.target(target)
    return frozenset([name for name in seen.binds if name[0] != "."])
